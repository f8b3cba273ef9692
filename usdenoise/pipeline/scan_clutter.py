"""The clutter of a recording by its estimate, as the filter of its chunks needs it."""

from dataclasses import replace

from usdenoise.blood.clutter_projection import clutter_projection
from usdenoise.blood.picture_quality import removed_energy, weak_speckle
from usdenoise.linalg.array_library import Numbers
from usdenoise.linalg.low_rank import LowRank, interpolated
from usdenoise.linalg.tall_matrices import COMPILED_ENTRIES
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.pipeline.estimate_clutter import ClutterEstimate
from usdenoise.pipeline.measures import Clutter


def scan_clutter(found: ClutterEstimate, options: DenoiseOptions) -> Clutter:
    """Return the clutter of a scan by its estimate, with the effect of its filter on the autocorrelation."""
    model, low = found.model, found.band.low
    left = found.grid.everywhere(model.left)
    return replace(
        components_only(found, options),
        projection=clutter_projection(model.right[:, :low], ~found.excluded),
        speckle=weak_speckle(left, low),
        tissue=removed_energy(left, model.singular_values, low),
        power=found.power,
    )


def components_only(found: ClutterEstimate, options: DenoiseOptions) -> Clutter:
    """Return the clutter of an estimate, by which its components are measured without lags."""
    model = interpolated(found.model, found.excluded)
    return Clutter(
        left=found.grid.everywhere(model.left),
        low=found.band.low,
        high=min(found.band.high, model.rank),
        keeps_residual=found.band.keeps_residual,
        grid=found.grid,
        model=model_coefficients(model),
        is_given=options.refit == "none" and options.method != "svd",
        has_gaps=found.has_gaps,
        noise_rms=found.estimate.noise_rms,
        is_compiled=len(found.excluded) * found.grid.mask.size >= COMPILED_ENTRIES,
    )


def model_coefficients(model: LowRank) -> Numbers:
    """Return the coefficients of the components in each frame, (n_frames, r)."""
    a: Numbers = model.right.conj() * model.singular_values.astype(model.right.real.dtype)
    return a
