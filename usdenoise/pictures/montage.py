"""Several methods in one picture: their images on one scale, and how they converge."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.pictures.figures import COLOR_MAP, DPI, axis_label, figure_png, on_one_line, panels_of


def montage_png(
    grid: Sequence[Sequence[tuple[str, NDArray[Any]] | None]],
    axes: str,
    *,
    dynamic_range_db: float,
    spacing_mm: Mapping[str, float] | None = None,
    title: str = "",
) -> bytes:
    """Power Doppler images side by side on one dB scale, each with its label above.

    Parameters
    ----------
    grid : rows of (label, image) or None
        Images in dB, all with the axes `axes`; None leaves a place empty. Of a volume the maximum over the
        last axis is shown.
    axes : str
        Axis letters of every image.
    dynamic_range_db : float
        What is this far below 0 dB is black.
    spacing_mm : mapping from axis letter to float, optional
        Pixel pitch; axes are in mm where it is known, otherwise in pixels.
    title : str
        Above the picture.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    spacing = spacing_mm or {}
    n_rows, n_columns = len(grid), max(len(row) for row in grid)
    first = next(cell for row in grid for cell in row if cell is not None)
    shape = panels_of(first[1], axes)[0][0].shape
    letters = panels_of(first[1], axes)[0][1:]
    height, width = (n * spacing.get(letter, 1.0) for n, letter in zip(shape, letters, strict=True))
    panel = 2.1
    figure = Figure(
        figsize=(
            max(n_columns * panel + 1.3, 4.0),
            n_rows * (panel * np.clip(height / width, 0.3, 2.5) + 0.3) + 0.9,
        ),
        dpi=DPI if n_rows * n_columns <= 30 else 100,
        layout="compressed",
    )
    subplots = figure.subplots(n_rows, n_columns, squeeze=False, sharex=True, sharey=True)
    for i, (row, axes_row) in enumerate(zip(grid, subplots, strict=True)):
        for j, subplot in enumerate(axes_row):
            cell = row[j] if j < len(row) else None
            if cell is None:
                subplot.set_axis_off()
                continue
            label, image = cell
            shown = subplot.imshow(
                np.maximum(panels_of(image, axes)[0][0], -dynamic_range_db),
                cmap=COLOR_MAP,
                vmin=-dynamic_range_db,
                vmax=0,
                extent=(0, width, height, 0),
                interpolation="nearest",
            )
            subplot.set_title(label, fontsize="small", parse_math=False)
            subplot.tick_params(labelsize="x-small")
            below = i + 1 < n_rows and j < len(grid[i + 1]) and grid[i + 1][j] is not None
            subplot.tick_params(labelbottom=not below)
            if not below:
                subplot.set_xlabel(axis_label(letters[1], spacing), fontsize="small")
            if j == 0:
                subplot.set_ylabel(axis_label(letters[0], spacing), fontsize="small")
    if title:
        figure.suptitle(on_one_line(title), fontsize="medium", parse_math=False)
    figure.colorbar(shown, ax=subplots, label="power Doppler (dB)", shrink=0.9, aspect=30)
    return figure_png(figure)


def convergence_png(curves: Mapping[str, Sequence[tuple[float, float, float]]]) -> bytes:
    """Held-out error of iterative methods against passes over the sample and against seconds.

    Parameters
    ----------
    curves : mapping from label to points (passes, seconds, held-out rms)
        One line each.

    Returns
    -------
    bytes
        8-bit PNG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), dpi=DPI, layout="constrained")
    by_pass, by_second = figure.subplots(1, 2, sharey=True)
    markers = "osv^D<>Pph*X"
    for number, (label, points) in enumerate(curves.items()):
        passes, seconds, errors = zip(*points, strict=True)
        style = {"marker": markers[number % len(markers)], "markersize": 3, "linewidth": 1.2}
        by_pass.plot(passes, errors, label=label, **style)
        by_second.plot(seconds, errors, **style)
    for panel, what in ((by_pass, "passes over the sample"), (by_second, "seconds, start included")):
        panel.set_yscale("log")
        panel.set_xscale("log")
        panel.set_xlabel(what)
        panel.grid(alpha=0.3, which="both")
    by_pass.set_ylabel("held-out rms")
    figure.legend(loc="outside right upper", fontsize="small")
    return figure_png(figure)
