"""The picture that explains the choice of a low cutoff."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.pictures.figures import DPI, encoded


def cutoff_picture(
    singular_values: NDArray[Any],
    similarity: NDArray[Any],
    profile: NDArray[Any],
    low: int,
    *,
    kind: str = "png",
) -> bytes:
    """Draw the low cutoff over the singular values and over the spatial similarity of the components.

    Parameters
    ----------
    singular_values : (k,) array
        Singular values, largest first, in any unit; they are drawn in dB below the first.
    similarity : (k, k) array
        Spatial similarity of every two components, 1 on the diagonal.
    profile : (k,) array
        Similarity of each component to the leading ones.
    low : int
        Low cutoff: the number of components removed, drawn as a red line in front of the first one kept.
    kind : str
        Format, one of :data:`usdenoise.options.job_options.FORMATS`; by default "png".

    Returns
    -------
    bytes
        The encoded picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), dpi=DPI, layout="constrained")
    curve, resemblance, matrix = figure.subplots(1, 3)
    # Components are counted from 1: as many are removed as are left of the line.
    numbers = np.arange(1, len(singular_values) + 1)
    curve.plot(numbers, 20 * np.log10(np.maximum(singular_values, 1e-300) / singular_values[0]), ".-")
    curve.set_ylabel("singular value (dB)")
    resemblance.plot(numbers[: len(profile)], profile, ".-")
    resemblance.set_ylabel("similarity to the leading components")
    last = len(similarity) + 0.5
    extent = (0.5, last, last, 0.5)
    # The diagonal is always 1: a scale that ends below 1 leaves more colours to the other entries.
    shown = matrix.imshow(similarity, vmin=0, vmax=0.7, cmap="viridis", extent=extent)
    matrix.set_ylabel("component")
    figure.colorbar(shown, ax=matrix, label="similarity")
    for panel in (curve, resemblance):
        panel.axvline(low + 0.5, color="tab:red", label=f"{low} removed")
        panel.legend()
    for panel in (curve, resemblance, matrix):
        panel.set_xlabel("component")
    matrix.axvline(low + 0.5, color="tab:red")
    matrix.axhline(low + 0.5, color="tab:red")
    return encoded(figure, kind)
