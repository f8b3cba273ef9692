"""The result of denoising a stack."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.picture_quality import PictureQuality
from usdenoise.clutter.clutter_cutoff import CutoffChoice
from usdenoise.clutter.cutoff_reason import CutoffCertainty, CutoffReason
from usdenoise.completion.solve import Solution
from usdenoise.frames.frame_quality import FrameQuality
from usdenoise.linalg.low_rank import LowRank
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.recipe.fit_quality import FitQuality
from usdenoise.stack.acquisition import Acquisition


@dataclass(frozen=True, repr=False)
class DenoiseResult:
    """A filtered acquisition, and how it was obtained.

    Attributes
    ----------
    acquisition : Acquisition
        The filtered stack, in the axis order of the input. From a Dask array it is a Dask array, not made yet.
    power_doppler : float32 array
        Mean power over frames, in the squared units of the stack; spatial axes in the order of the input.
    blood_power : float32 array
        Blood map: power of the blood before the clutter filter, without the noise, in the units of `power_doppler`
        (docs/blood.md).
    noise_power : float32 array
        Power of the noise in the stack, smooth over the image, in the same units.
    model : LowRank
        The estimated singular triplets. Of a large stack whose residual is kept they are those below the low cutoff
        and eight more, unless all were asked for.
    singular_values : (rank,) float64 array
        Singular values of all components. Those that the model does not have are estimated from every few pixels.
    options : DenoiseOptions
        The options as used, with numbers for those that were automatic.
    solution : Solution or None
        The result of the iterative method; None for the SVD.
    cutoff : CutoffChoice or None
        How the low cutoff was chosen; None where it was given.
    picture_quality : PictureQuality
        Blood over noise, the share of the image where noise dominates, the loss to the clutter filter, and the
        correlation of the blood maps of two halves of the scan.
    frame_quality : FrameQuality
        Bad frames, and curves over all frames.
    fit_quality : FitQuality
        The held-out error against the one that the sample allows, and the verdict.
    noise_floor : float
        Noise level: estimated rms of the noise in an entry, in the units of the data.
    observed : (n_pixels, ceil(n_frames / 8)) uint8 array or None
        Bit mask of the entries of the Casorati matrix that were observed and in no frame that was left out; None
        when that is all of them.
    n_unobserved : int
        Number of entries that were NaN or infinite, or in a frame that was left out.
    n_sampled : int
        Number of entries that were fitted or held out.
    timings_s : dict
        Seconds of the stages "solve" and "filter".

    Examples
    --------
    >>> import usdenoise
    >>> result = usdenoise.denoise(usdenoise.load("sample_data/phantom.h5"), low_cutoff=8)
    >>> result.kept, result.power_doppler.shape, result.cutoff_sentence
    ('[8, all)', (72, 56), 'as given')
    """

    acquisition: Acquisition
    power_doppler: NDArray[np.float32]
    blood_power: NDArray[np.float32]
    noise_power: NDArray[np.float32]
    model: LowRank
    singular_values: NDArray[np.float64]
    options: DenoiseOptions
    solution: Solution | None
    cutoff: CutoffChoice | None
    picture_quality: PictureQuality
    frame_quality: FrameQuality
    fit_quality: FitQuality
    noise_floor: float
    observed: NDArray[np.uint8] | None
    n_unobserved: int
    n_sampled: int
    timings_s: dict[str, float]

    @property
    def held_out_rmse(self) -> float | None:
        """Error of the sample's own factors on the held-out entries; None without such entries or a sample."""
        return None if self.solution is None else self.solution.held_out_rmse

    @property
    def cutoff_certainty(self) -> CutoffCertainty:
        """How certain the low cutoff is."""
        return CutoffCertainty.GIVEN if self.cutoff is None else self.cutoff.certainty

    @property
    def cutoff_sentence(self) -> str:
        """Why the low cutoff was chosen, in words."""
        return CutoffReason.GIVEN.value if self.cutoff is None else self.cutoff.sentence

    @property
    def verdict(self) -> str:
        """What can be said of the picture, and then of the estimate, in words."""
        frames = self.frame_quality.sentence
        return "; ".join(
            [
                self.picture_quality.sentence,
                *([frames] if frames else []),
                f"estimate: {self.fit_quality.sentence}",
            ]
        )

    @property
    def kept(self) -> str:
        """The components that were kept, for example "[14, all)"."""
        high = {"rank": self.options.rank, "none": "all"}.get(
            str(self.options.high_cutoff), self.options.high_cutoff
        )
        return f"[{self.options.low_cutoff}, {high})"

    def to_xarray(self) -> Any:
        """Return the filtered stack and its images as an xarray.Dataset, with positions, units and provenance.

        Raises
        ------
        OptionError
            If xarray is not installed.
        """
        from usdenoise.recipe.labelled_result import to_dataset

        return to_dataset(self)

    def __repr__(self) -> str:
        stack, options = self.acquisition, self.options
        shape = ", ".join(f"{letter} {n}" for letter, n in zip(stack.axes, stack.iq.shape, strict=True))
        iterations = "not iterative" if self.solution is None else self.solution.stop_reason.value
        n_iterations = 0 if self.solution is None else self.solution.iterations
        error = "-" if self.held_out_rmse is None else f"{self.held_out_rmse:.4g}"
        seconds = ", ".join(f"{stage} {value:.2f} s" for stage, value in self.timings_s.items())
        lines = {
            "stack": f"{stack.name}, {shape}, {stack.iq.dtype}, {self.n_unobserved} entries unobserved",
            "method": f"{options.method}, rank {options.rank}, sampling {options.sampling:g}, seed {options.seed}",
            "kept": f"components {self.kept}",
            "low cutoff": f"{options.low_cutoff}, {self.cutoff_certainty}: {self.cutoff_sentence}",
            "iterations": f"{n_iterations}: {iterations}",
            "error": f"held-out {error}, noise {self.noise_floor:.4g}",
            "picture": self.picture_quality.sentence,
            "frames": self.frame_quality.sentence or "none is bad",
            "estimate": self.fit_quality.sentence,
            "power": f"mean {float(self.power_doppler.mean()):.4g}, largest {float(self.power_doppler.max()):.4g}",
            "time": seconds,
        }
        width = max(map(len, lines))
        rows = [f"  {name:<{width}}  {text}" for name, text in lines.items()]
        return "\n".join([f"<{type(self).__name__}", *rows]) + ">"
