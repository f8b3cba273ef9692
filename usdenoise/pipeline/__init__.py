"""The denoising recipe: an array in, the filtered array and a description of the estimate out.

`denoise.py` is the recipe, `checked_rows.py` to `filter_rows.py` its steps, `result.py` its result, and `windows.py`
the same for many windows of a long scan. Outside, these and `fit_quality.Verdict` are imported.
"""
