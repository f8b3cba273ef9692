"""The leading components of a stack: a start from a subset of pixels, the completion, its extension to all pixels."""
