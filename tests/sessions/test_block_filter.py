"""The filter of a block equals a slow loop over its frames, whatever is missing in them."""

from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from usdenoise import Acquisition
from usdenoise.blood.clutter_projection import blocks_projection
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.errors import InputError
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.filter_chunk import filter_chunk
from usdenoise.pipeline.inspection import inspect_block
from usdenoise.pipeline.measures import Clutter, Measures
from usdenoise.pipeline.series import BlockLags
from usdenoise.sessions import measured_block
from usdenoise.sessions.blocks import stack_session
from usdenoise.sessions.measured_block import MeasuredBlock, measure_block
from usdenoise.sessions.session_estimate import TEMPORAL

N, SHAPE, K, N_LAGS = 50, (9, 7), 4, 6
"""Frames, pixels, components of clutter, and lags."""

SILENT = [0, 12, 13, 40]
DOUBLE = DenoiseOptions(precision="double", bad_frames="keep")


def draw(is_complex: bool, *size: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(size) + (1j * rng.standard_normal(size) if is_complex else 0)


def block(is_complex: bool = True, seed: int = 1) -> Any:
    """Strong components and weak noise, (pixels, frames)."""
    n_pixels = int(np.prod(SHAPE))
    clutter = left(is_complex) @ draw(is_complex, K + 2, N, seed=seed)
    return 1e3 * clutter + draw(is_complex, n_pixels, N, seed=seed + 1)


def left(is_complex: bool = True) -> Any:
    found = draw(is_complex, int(np.prod(SHAPE)), K + 2)
    found[SILENT] = 0
    return np.linalg.qr(found)[0]


def common(is_complex: bool = True, mask: NDArray[np.bool_] | None = None, n_left: int = K) -> Clutter:
    """Components of pixels of which some are silent, and as many lags as a projection of nothing has.

    The residual is kept, or the components from K on if there are any.
    """
    components = left(is_complex)[:, :n_left]
    projection = blocks_projection([np.zeros((8 * (N_LAGS - 1), 1))])
    assert projection.n_lags == N_LAGS
    keeps_residual = n_left == K
    return Clutter(
        left=components,
        low=K,
        high=n_left,
        keeps_residual=keeps_residual,
        projection=projection,
        grid=Neighbourhood.whole(SHAPE) if mask is None else Neighbourhood(mask),
        n_temporal=TEMPORAL if keeps_residual else 0,
        speckle=np.zeros((2, len(components))),
        noise_rms=1.0,
        power=1.0,
    )


def stack_of(rows: Any) -> Acquisition:
    return Acquisition(np.ascontiguousarray(rows.T).reshape(N, *SHAPE), "tzx")


@dataclass(frozen=True)
class Filtered:
    """A measured block, with its frames, and its lags and its power before they are rounded to single precision."""

    block: MeasuredBlock
    lags: NDArray[np.inexact]
    power: NDArray[np.float64]
    stack: NDArray[Any]
    """Filtered frames with the axes of the stack."""

    @property
    def rows(self) -> Any:
        """The filtered frames, (pixels, frames)."""
        assert self.block.frames is not None
        return self.block.frames.T

    @property
    def frames(self) -> Any:
        """Bad frames and movement."""
        return self.block.findings.frames


def filtered(
    stack: Acquisition, clutter: Clutter, options: DenoiseOptions, usual: float | None = None
) -> Filtered:
    """The measured block of a stack; what is measured of it is rounded once, at the end."""
    kept: list[Measures] = []

    def noted(*arguments: Any, **more: Any) -> Measures:
        kept.append(filter_chunk(*arguments, **more))
        return kept[-1]

    recording = stack_session(stack, SessionOptions(window=stack.n_frames), options.precision)
    with patch.object(measured_block, "filter_chunk", noted):
        found = measure_block(
            recording.blocks[0],
            clutter,
            options,
            recording.geometry,
            keeps_frames=True,
            usual=usual,
            by_halves=usual is not None,
        )
    assert isinstance(found, MeasuredBlock)
    assert found.lags is not None
    assert found.frames is not None
    (measures,) = kept
    exact = BlockLags.of(measures, clutter)
    lags, kept_power = exact.lags, clutter.grid.at_signal(measures.kept_power)
    power = lags[:, 0].real if clutter.keeps_residual else kept_power / measures.n_used_frames
    power = np.where(exact.observed > 0, power, np.nan)
    single = np.complex64 if clutter.is_complex else np.float32
    np.testing.assert_array_equal(found.lags.lags, lags.astype(single), strict=True)
    np.testing.assert_array_equal(found.power, power.astype(np.float32), strict=True)
    return Filtered(found, lags, power, recording.geometry.as_stack(found.frames))


def slow_filter(
    rows: Any, components: Any, left_out: tuple[int, ...] = (), n_temporal: int = 1
) -> tuple[Any, Any]:
    """The residual of least squares in each frame, without the strongest temporal vector of the coefficients (one for 48
    frames), and the mean products of the pairs that are observed."""
    residual, seen = np.zeros_like(rows), np.isfinite(rows)
    coefficients = np.zeros((N, components.shape[1]), rows.dtype)
    for t in range(N):
        if t in left_out:
            seen[:, t] = False
            continue
        known = seen[:, t]
        coefficients[t] = np.linalg.lstsq(components[known], rows[known, t])[0]
        residual[known, t] = rows[known, t] - components[known] @ coefficients[t]
    v = np.linalg.svd(coefficients)[0][:, :n_temporal]
    residual = np.where(seen, residual - residual @ v.conj() @ v.T, 0)
    lags = np.zeros((len(rows), N_LAGS), residual.dtype)
    for pixel in range(len(rows)):
        for lag in range(N_LAGS):
            pairs = [t for t in range(N - lag) if seen[pixel, t] and seen[pixel, t + lag]]
            products = [residual[pixel, t + lag] * np.conj(residual[pixel, t]) for t in pairs]
            lags[pixel, lag] = (1 - lag / N) * np.mean(products) if pairs else 0
    return residual, lags


@pytest.mark.parametrize("is_complex", [True, False])
@pytest.mark.parametrize("gaps", ["none", "scattered", "half of some frames", "a frame"])
@pytest.mark.parametrize("left_out", [(), (5, 6, 30)])
def test_a_block_is_filtered_as_by_a_slow_loop(
    is_complex: bool, gaps: str, left_out: tuple[int, ...]
) -> None:
    rows = block(is_complex)
    rng = np.random.default_rng(3)
    if gaps == "scattered":
        rows[rng.random(rows.shape) < 0.1] = np.nan
    elif gaps == "half of some frames":
        rows[:30, 3:9] = np.nan
        rows[20:, 20] = np.inf
    elif gaps == "a frame":
        rows[:, 17] = np.nan
    wanted, lags = slow_filter(rows, left(is_complex)[:, :K], left_out)
    options = DenoiseOptions(precision="double", bad_frames=left_out or "keep")
    found = filtered(stack_of(rows), common(is_complex), options)
    np.testing.assert_allclose(found.rows, wanted, atol=1e-8)
    np.testing.assert_allclose(found.lags, lags, atol=1e-8)
    np.testing.assert_allclose(found.power, lags[:, 0].real, atol=1e-8)
    gone = ~np.isfinite(rows)
    gone[:, list(left_out)] = True
    assert found.block.findings.n_unobserved == gone.sum()
    assert [bad.frame for bad in found.frames.bad] == list(left_out)


def test_pixels_that_are_silent_in_the_session_stay_out() -> None:
    """Their values, should they have any in this block, become 0."""
    rows, signal_pixels = block(), np.setdiff1d(np.arange(63), SILENT)
    mask = ~np.isin(np.arange(63), SILENT).reshape(SHAPE)
    wanted, lags = slow_filter(rows[signal_pixels], left()[signal_pixels, :K])
    found = filtered(stack_of(rows), common(mask=mask), DOUBLE)
    np.testing.assert_allclose(found.rows[signal_pixels], wanted, atol=1e-8)
    assert not found.rows[SILENT].any()
    np.testing.assert_allclose(found.lags, lags, atol=1e-8)
    # A pixel that is 0 in this block alone, or in most of its frames, was not observed.
    for n_silent in (N, N // 2 + 1):
        gappy = rows.copy()
        gappy[signal_pixels[5]] = np.nan
        wanted, lags = slow_filter(gappy[signal_pixels], left()[signal_pixels, :K])
        gappy[signal_pixels[5]] = rows[signal_pixels[5]]
        gappy[signal_pixels[5], :n_silent] = 0
        found = filtered(stack_of(gappy), common(mask=mask), DOUBLE)
        np.testing.assert_allclose(found.lags, lags, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e6])
def test_single_precision_has_the_scale_of_the_data(scale: float) -> None:
    rows = block()
    wanted, lags = slow_filter(rows, left()[:, :K])
    single = DenoiseOptions(bad_frames="keep")
    clutter = common()
    narrow = replace(clutter, left=clutter.left.astype(np.complex64))
    found = filtered(stack_of((scale * rows).astype(np.complex64)), narrow, single)
    assert found.rows.dtype == np.complex64
    # Numbers of 3000 are rounded to 2e-4 of what is left.
    np.testing.assert_allclose(found.rows / scale, wanted, atol=2e-3)
    np.testing.assert_allclose(found.lags[:, 0].real / scale**2, lags[:, 0].real, rtol=5e-3)


def test_a_high_cutoff_keeps_the_components_between() -> None:
    rows = block()
    components = left()
    options = DenoiseOptions(
        precision="double", bad_frames="keep", low_cutoff=K, high_cutoff=K + 2, rank=K + 2
    )
    found = filtered(stack_of(rows), common(n_left=K + 2), options)
    kept = components[:, K:] @ (components[:, K:].conj().T @ rows)
    np.testing.assert_allclose(found.rows, kept, atol=1e-8)
    np.testing.assert_allclose(found.power, np.mean(np.abs(kept) ** 2, axis=1), rtol=1e-8)
    # The blood is measured in all that is no clutter.
    np.testing.assert_allclose(found.lags, slow_filter(rows, components[:, :K], n_temporal=0)[1], atol=1e-8)


def test_other_axis_orders_and_volumes_are_the_same_pixels() -> None:
    rows = block()
    wanted = filtered(stack_of(rows), common(), DOUBLE).rows
    turned = np.ascontiguousarray(rows.reshape(*SHAPE, N).transpose(1, 2, 0))
    found = filtered(Acquisition(turned, "xtz"), common(), DOUBLE).stack
    assert found.shape == turned.shape
    np.testing.assert_allclose(found.transpose(2, 0, 1).reshape(63, N), wanted, atol=1e-12)


@pytest.mark.parametrize(("value", "sentence"), [(0, "is zero everywhere"), (np.nan, "has no finite entry")])
def test_a_block_without_data_is_refused(value: float, sentence: str) -> None:
    stack = stack_of(np.full((63, N), value, np.complex128))
    recording = stack_session(stack, SessionOptions(window=N), "double")
    found = measure_block(recording.blocks[0], common(), DOUBLE, recording.geometry, keeps_frames=True)
    assert isinstance(found, MeasuredBlock)
    assert sentence in found.findings.problem
    assert found.lags is found.frames is None
    with pytest.raises(InputError, match=sentence):
        inspect_block(recording.blocks[0].read(), common(), DOUBLE, "iq")


def test_components_of_its_own_that_stand_out_are_taken_out() -> None:
    rows = block()
    kept = slow_filter(rows, left()[:, :K])[0]
    rng = np.random.default_rng(5)
    course = np.linalg.qr(rng.standard_normal((N, 2)) + 1j * rng.standard_normal((N, 2)))[0].T
    place = draw(True, len(rows), 2, seed=7)
    place -= left()[:, :K] @ (left()[:, :K].conj().T @ place)
    strong = rows + 1e5 * place @ course
    energies = np.linalg.svd(kept, compute_uv=False) ** 2 / kept.size
    calm = filtered(stack_of(rows.copy()), common(), DOUBLE, usual=np.inf)
    assert calm.block.strongest == pytest.approx(energies[0])
    np.testing.assert_allclose(calm.rows, kept, atol=1e-9)
    found = filtered(stack_of(strong.copy()), common(), DOUBLE, usual=energies[0])
    # It is what the SVD leaves without its first two components.
    u, s, vh = np.linalg.svd(slow_filter(strong, left()[:, :K])[0], full_matrices=False)
    np.testing.assert_allclose(found.rows, (u[:, 2:] * s[2:]) @ vh[2:], atol=1e-3)
    assert found.block.strongest == pytest.approx(s[2] ** 2 / kept.size, rel=1e-4)
