"""The denoising recipe: an array in, the filtered array and a description of the estimate out."""
