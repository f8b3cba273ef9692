"""The leading components of a pixel sample: a start from a pixel subset, the completion, the refit; or the SVD.

`estimate.py` is the chain, and what the pipeline calls; other packages also draw a pixel subset, and use the truncated SVD.
"""
