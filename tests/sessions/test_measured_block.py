"""The filter of a block equals a slow loop over its frames, whatever is missing in them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion

from usdenoise import Acquisition
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.noise import blocks_projection
from usdenoise.errors import InputError
from usdenoise.frames.alignment import Reference, mean_envelope
from usdenoise.frames.deformation import Deformation
from usdenoise.options import DenoiseOptions, SessionOptions
from usdenoise.pipeline.inspection import inspect_block
from usdenoise.pipeline.measures import Clutter
from usdenoise.sessions.blocks import stack_session
from usdenoise.sessions.measured_block import BlockFilter, BlockFindings, MeasuredBlock, measure_block
from usdenoise.sessions.session_estimate import TEMPORAL
from usdenoise.system.text import from_plain, plain

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
    grid = Neighbourhood.whole(SHAPE) if mask is None else Neighbourhood(mask)
    cutoffs = {"low": K, "high": n_left, "keeps_residual": keeps_residual}
    own = {"n_temporal": TEMPORAL if keeps_residual else 0, "speckle": np.zeros((2, len(components)))}
    return Clutter(
        left=components, projection=projection, grid=grid, noise_rms=1.0, power=1.0, **cutoffs, **own
    )


def stack_of(rows: Any) -> Acquisition:
    return Acquisition(np.ascontiguousarray(rows.T).reshape(N, *SHAPE), "tzx")


def filtered(
    stack: Acquisition, clutter: Clutter, options: DenoiseOptions, usual: float | None = None
) -> MeasuredBlock:
    """The measured block of a stack, with its frames; lags and power are rounded to single precision."""
    recording = stack_session(stack, SessionOptions(window=stack.n_frames), options.precision)
    more = {"keeps_frames": True, "usual_power": usual, "by_halves": usual is not None}
    how = BlockFilter(options=options, geometry=recording.geometry, **more)
    found = measure_block(recording.blocks[0], clutter, how)
    assert isinstance(found, MeasuredBlock)
    return found


def lags_of(found: MeasuredBlock, is_complex: bool = True) -> Any:
    """The lags of the filtered block; the series has them over the share of noise that the filter keeps."""
    kept = 1 - np.sum(np.abs(left(is_complex)[:, :K]) ** 2, axis=1)
    if len(kept) > len(found.lags.lags):
        kept = kept[np.setdiff1d(np.arange(63), SILENT)]
    return found.lags.lags * kept[:, None]


def rows_of(found: MeasuredBlock) -> Any:
    """The filtered frames, (pixels, frames)."""
    return found.frames.T


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


@pytest.mark.parametrize(("is_complex", "gaps", "left_out"), [
    (True, "none", ()), (False, "none", (5, 6, 30)), (True, "scattered", (5, 6, 30)),
    (False, "half of some frames", ()), (True, "a frame", (5, 6, 30)),
])  # fmt: skip
def test_a_block_is_filtered_as_by_a_slow_loop(is_complex, gaps, left_out):
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
    np.testing.assert_allclose(rows_of(found), wanted, atol=1e-8)
    np.testing.assert_allclose(lags_of(found, is_complex), lags, rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(found.power, lags[:, 0].real, atol=2e-6)
    gone = ~np.isfinite(rows)
    gone[:, list(left_out)] = True
    assert found.findings.n_unobserved == gone.sum()
    assert [bad.frame for bad in found.findings.frames.bad] == list(left_out)


def test_pixels_masked_in_the_session_stay_out() -> None:
    """Their values, should they have any in this block, become 0."""
    rows, signal_pixels = block(), np.setdiff1d(np.arange(63), SILENT)
    mask = ~np.isin(np.arange(63), SILENT).reshape(SHAPE)
    wanted, lags = slow_filter(rows[signal_pixels], left()[signal_pixels, :K])
    found = filtered(stack_of(rows), common(mask=mask), DOUBLE)
    np.testing.assert_allclose(rows_of(found)[signal_pixels], wanted, atol=1e-8)
    assert not rows_of(found)[SILENT].any()
    np.testing.assert_allclose(lags_of(found), lags, atol=2e-6)
    # A pixel that is 0 in this block alone, or in most of its frames, was not observed.
    for n_silent in (N, N // 2 + 1):
        gappy = rows.copy()
        gappy[signal_pixels[5]] = np.nan
        wanted, lags = slow_filter(gappy[signal_pixels], left()[signal_pixels, :K])
        gappy[signal_pixels[5]] = rows[signal_pixels[5]]
        gappy[signal_pixels[5], :n_silent] = 0
        found = filtered(stack_of(gappy), common(mask=mask), DOUBLE)
        np.testing.assert_allclose(lags_of(found), lags, atol=2e-6)


def test_a_high_cutoff_keeps_the_components_between() -> None:
    rows = block()
    components = left()
    options = replace(DOUBLE, low_cutoff=K, high_cutoff=K + 2, rank=K + 2)
    found = filtered(stack_of(rows), common(n_left=K + 2), options)
    kept = components[:, K:] @ (components[:, K:].conj().T @ rows)
    np.testing.assert_allclose(rows_of(found), kept, atol=1e-8)
    np.testing.assert_allclose(found.power, np.mean(np.abs(kept) ** 2, axis=1), rtol=1e-6)
    # The blood is measured in all that is no clutter.
    lags = slow_filter(rows, components[:, :K], n_temporal=0)[1]
    np.testing.assert_allclose(lags_of(found), lags, atol=2e-6 * np.abs(lags).max())


@pytest.mark.parametrize(("value", "sentence"), [(0, "is zero everywhere"), (np.nan, "has no finite entry")])
def test_a_block_without_data_is_refused(value: float, sentence: str) -> None:
    stack = stack_of(np.full((63, N), value, np.complex128))
    recording = stack_session(stack, SessionOptions(window=N), "double")
    how = BlockFilter(options=DOUBLE, geometry=recording.geometry, keeps_frames=True)
    found = measure_block(recording.blocks[0], common(), how)
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
    assert calm.findings.own.strongest_left == pytest.approx(energies[0])
    np.testing.assert_allclose(rows_of(calm), kept, atol=1e-9)
    found = filtered(stack_of(strong.copy()), common(), DOUBLE, usual=energies[0])
    # It is what the SVD leaves without its first two components.
    u, s, vh = np.linalg.svd(slow_filter(strong, left()[:, :K])[0], full_matrices=False)
    np.testing.assert_allclose(rows_of(found), (u[:, 2:] * s[2:]) @ vh[2:], atol=1e-3)
    assert found.findings.own.strongest_left == pytest.approx(s[2] ** 2 / kept.size, rel=1e-4)


def turned_block(degrees: float, is_complex: bool, size: tuple[int, ...]) -> tuple[Any, Any]:
    """Tissue of one image and blood of a smooth power that flows in two directions, turned in the first two axes: (t, z, x).

    And the image of the tissue.
    """
    z, x = (place - (n - 1) / 2 for place, n in zip(np.indices(size)[:2], size[:2], strict=True))
    angle = np.radians(degrees)
    # What is at the place p of the turned image was at these places
    z, x = z * np.cos(angle) - x * np.sin(angle), z * np.sin(angle) + x * np.cos(angle)
    rng, t = np.random.default_rng(8), np.arange(N).reshape(-1, *(1,) * len(size))
    y = np.indices(size)[2] if len(size) > 2 else 0
    waves = rng.uniform(-1.5, 1.5, (60, 3)), rng.uniform(0, 2 * np.pi, 60)
    tissue = sum(np.exp(1j * (a * z + b * x + c * y + d)) for (a, b, c), d in zip(*waves, strict=True))
    power = 1.5 + np.sin(z / 3) * np.cos(x / 4)
    cycles = np.where(x > 0, 0.2, -0.15) * t
    frames = 300 * tissue + np.sqrt(power) * np.exp(2j * np.pi * cycles) + 0.03 * draw(True, N, *size, seed=9)
    return (frames if is_complex else frames.real * np.sqrt(2)), tissue if is_complex else tissue.real


@pytest.mark.parametrize(("is_complex", "is_masked", "size"), [
    (True, True, (44, 40)), (False, False, (44, 40)), (True, False, (24, 22, 9))
])  # fmt: skip
def test_a_turned_block_is_measured_as_a_still_one(is_complex, is_masked, size, monkeypatch):
    kinds, letters = ("signed", "velocity", "directional") if is_complex else (), "zxy"[: len(size)]
    (still, tissue), (turned, other) = (turned_block(angle, is_complex, size) for angle in (0, 3))
    turned = turned.copy()
    mask = np.ones(size, bool)
    if is_masked:
        mask[:, 30] = False
        # Missing in this block alone
        turned[:, 20, 12] = np.nan
    components = np.linalg.qr(np.stack([tissue[mask], other[mask]], axis=1))[0]
    whole = np.zeros((mask.size, 2), components.dtype)
    whole[mask.ravel()] = components
    frames = still.reshape(N, -1).astype(np.complex64 if is_complex else np.float32)
    projection = blocks_projection([np.zeros((8 * (N_LAGS - 1), 1))])
    image = {"grid": Neighbourhood(mask), "reference": Reference(mean_envelope(frames, size), mask)}
    clutter = Clutter(left=whole, low=2, high=2, projection=projection, noise_rms=1.0, power=1.0, **image)

    def measured(frames: Any) -> MeasuredBlock:
        stack = Acquisition(np.where(mask, frames, 0), "t" + letters, spacing_mm=dict.fromkeys(letters, 0.1))
        recording = stack_session(stack, SessionOptions(window=N), "double")
        how = BlockFilter(
            options=DOUBLE, geometry=recording.geometry, products=("power", *kinds), by_halves=True
        )
        found = measure_block(recording.blocks[0], clutter, how)
        assert isinstance(found, MeasuredBlock)
        return found

    # The components have no shifted tissue
    monkeypatch.setattr("usdenoise.frames.alignment.LEAST_SHIFT", 1.0)
    before, after = measured(still), measured(turned)
    assert before.findings.deformation == Deformation()
    assert after.findings.deformation.rotation[0] == pytest.approx(-3, abs=0.3)
    assert from_plain(BlockFindings, plain(after.findings)) == after.findings
    observed = clutter.grid.everywhere(after.lags.observed).reshape(size)
    inside = np.zeros(size, bool)
    inside[(slice(6, -6),) * 2] = True
    assert set(np.unique(observed)) == {0, N}
    if is_masked:
        # The pixel that is missing in the block, and none but its place and those of the masked column
        inside &= binary_erosion(mask, iterations=4) & (np.hypot(*(np.indices(size).T - [20, 12]).T) > 5)
        gone = np.argwhere((observed == 0)[6:-6, 6:25]) + 6
        assert len(gone) in (1, 2)
        assert np.abs(gone - [20, 12]).max() <= 1
    within = clutter.grid.at_signal(inside.ravel())
    np.testing.assert_array_equal(after.lags.observed[within], N)
    np.testing.assert_array_equal(np.isnan(after.power), after.lags.observed == 0)

    def differences(found: MeasuredBlock) -> list[float]:
        # Away from the border of both directions
        apart = inside & (np.abs(np.indices(size)[1] - (size[1] - 1) / 2) > 3)
        at = clutter.grid.at_signal(apart.ravel())
        pairs = [
            (found.lags.lags[at], before.lags.lags[at]),
            (found.power[within], before.power[within]),
            (found.lags.sums.mean(slice(1), N)[at], before.lags.sums.mean(slice(1), N)[at]),
        ]
        pairs += [(found.images[name][apart], image[apart]) for name, image in before.images.items()]
        return [float(np.linalg.norm(one - two) / np.linalg.norm(two)) for one, two in pairs]

    errors = differences(after)
    monkeypatch.setattr("usdenoise.sessions.measured_block.deformation_of", lambda *_: None)
    uncorrected = differences(measured(turned))
    assert max(errors) < 0.04
    assert np.mean(errors) < 0.5 * np.mean(uncorrected)
