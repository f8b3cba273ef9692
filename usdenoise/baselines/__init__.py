"""Clutter filters from the literature that `usdenoise compare` runs beside the methods of :func:`usdenoise.denoise`.

Each is one function on the Casorati matrix (n_pixels, n_frames), with its source in the docstring. `highpass` and
`polynomial` filter the matrix in place; `randomized_svd` and `robust_pca` return the components of the clutter.
"""

from usdenoise.baselines.randomized_svd import randomized_svd as randomized_svd
from usdenoise.baselines.robust_pca import robust_pca as robust_pca
from usdenoise.baselines.temporal_filters import highpass as highpass
from usdenoise.baselines.temporal_filters import polynomial as polynomial
