"""How a low cutoff was chosen, as a picture."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.pictures.figures import DPI, figure_png


def cutoff_png(
    singular_values: NDArray[Any],
    similarity: NDArray[Any],
    profile: NDArray[Any],
    low: int,
) -> bytes:
    """Picture of how a low cutoff was chosen: the singular values, the similarity matrix, and the cut.

    Parameters
    ----------
    singular_values : (k,) array
        Decreasing.
    similarity : (k, k) array
        Spatial similarity of the components.
    profile : (k,) array
        Similarity of each component to the leading ones.
    low : int
        Components removed.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), dpi=DPI, layout="constrained")
    curve, resemblance, matrix = figure.subplots(1, 3)
    curve.plot(20 * np.log10(np.maximum(singular_values, 1e-300) / singular_values[0]), ".-")
    curve.set_ylabel("singular value (dB)")
    resemblance.plot(profile, ".-")
    resemblance.set_ylabel("similarity to the leading components")
    shown = matrix.imshow(similarity, vmin=0, vmax=0.7, cmap="viridis")
    matrix.set_ylabel("component")
    figure.colorbar(shown, ax=matrix, label="similarity")
    for panel in (curve, resemblance):
        panel.axvline(low - 0.5, color="tab:red", label=f"{low} removed")
        panel.legend()
    for panel in (curve, resemblance, matrix):
        panel.set_xlabel("component")
    matrix.axvline(low - 0.5, color="tab:red")
    matrix.axhline(low - 0.5, color="tab:red")
    return figure_png(figure)
