"""The leading components of a stack: a start from a pixel subset, the completion, its extension to all pixels, or the SVD.

`estimate.py` is the chain, and what the recipe calls; other rooms also draw a pixel subset, and use the truncated SVD.
"""
