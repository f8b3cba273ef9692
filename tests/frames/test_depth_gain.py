"""Gains that change with depth are found in the images of a session; without them a session stays as it is."""

from typing import Any

import array_api_strict
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.frames.test_alignment import smooth
from usdenoise.frames.alignment import Alignment, Reference, reference_of
from usdenoise.linalg.array_library import to_host
from usdenoise.linalg.executor import ThreadExecutor

N_BLOCKS, SHAPE = 12, (48, 40)


def speckle(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.complex128]:
    """Complex speckle of a point-spread function of a pixel, with unit power."""
    found = smooth(rng, shape)
    return found / np.sqrt(np.mean(np.abs(found) ** 2))


def images_of(
    gains_db: NDArray[np.float64], shape: tuple[int, ...] = SHAPE, tissue: Any = 1.0
) -> list[NDArray[np.float32]]:
    """Mean envelopes of blocks with gains, (n_blocks, pixels along z).

    The tissue has this amplitude, at all depths or at each, and a twentieth of it differs from block to block. The noise has
    an amplitude of 0.03, and no gain.
    """
    rng = np.random.default_rng(0)
    common, found, along = speckle(rng, shape), [], (-1, *(1,) * (len(shape) - 1))
    for gain_db in gains_db:
        own = np.broadcast_to(tissue, shape[0]).reshape(along) * (common + 0.05 * speckle(rng, shape))
        noise = rng.standard_normal((32, *shape)) + 1j * rng.standard_normal((32, *shape))
        frames = 10 ** (gain_db / 20).reshape(along) * own + 0.03 * noise
        found.append(np.abs(frames).mean(axis=0).astype(np.float32))
    return found


def aligned(images: list[NDArray[np.float32]], scales: bool = True) -> tuple[Reference, list[Alignment]]:
    with ThreadExecutor(1) as executor:
        found = reference_of(images, executor, True, scales)
    return found


def gains_of(kind: str, n_rows: int = SHAPE[0]) -> NDArray[np.float64]:
    """Gain of each block and depth in dB."""
    block, depth = np.arange(N_BLOCKS)[:, None], np.linspace(0, 1, n_rows)
    return {
        "none": 0.0 * block * depth,
        "equal": 2.0 * (block >= 7) + 0 * depth,
        "step": 3.0 * (block >= 7) / (1 + np.exp(-(depth - 0.4) / 0.06)),
        "drift": -4.0 * block / (N_BLOCKS - 1) * depth,
        "one block": -3.0 * (block == 4) * depth**2,
        "two": 2.0 * (block >= 5) * depth - 2.0 * block / N_BLOCKS * np.sin(np.pi * depth),
    }[kind]


def profiles_in(alignments: list[Alignment]) -> NDArray[np.float64]:
    return np.array([alignment.profile_db for alignment in alignments])


def error_of(found: NDArray[np.float64], gains: NDArray[np.float64]) -> float:
    """Root mean square error of the gains without those of the reference."""
    error = found - gains
    return float(np.sqrt(np.mean((error - np.median(error, axis=0)) ** 2)))


@pytest.mark.parametrize("kind", ["step", "drift", "one block", "two"])
def test_a_gain_that_changes_with_depth_is_measured_and_divided_out(kind: str) -> None:
    gains = gains_of(kind)
    reference, alignments = aligned(images_of(gains))
    assert error_of(profiles_in(alignments), gains) < 0.12
    assert all(alignment.is_scaled for alignment in alignments)
    assert not any(alignment.is_uneven for alignment in alignments)
    frames = np.ones((2, *SHAPE), np.complex64).reshape(2, -1)
    frames[1, 3] = np.nan
    divided = reference.apply(frames, alignments[4]).reshape(2, *SHAPE)
    assert divided.dtype == np.complex64
    wanted = np.broadcast_to(10 ** (-profiles_in(alignments)[4, :, None] / 20), SHAPE)
    np.testing.assert_allclose(divided[0], wanted, rtol=1e-6)
    assert np.isnan(divided[1, 0, 3])
    on_device = to_host(reference.apply(array_api_strict.asarray(frames), alignments[4]))
    np.testing.assert_allclose(on_device.reshape(2, *SHAPE)[0], divided[0], rtol=1e-6)


def test_the_gain_of_a_volume_is_measured() -> None:
    gains = gains_of("drift", 24)
    _, alignments = aligned(images_of(gains, (24, 14, 12)))
    assert error_of(profiles_in(alignments), gains) < 0.1


@pytest.mark.parametrize("kind", ["none", "equal"])
def test_a_gain_that_is_the_same_at_all_depths_is_one_number(kind: str) -> None:
    reference, alignments = aligned(images_of(gains_of(kind)))
    assert reference.profiles is None
    assert all(alignment.profile_db is None for alignment in alignments)
    gains = np.array([alignment.gain_db for alignment in alignments])
    np.testing.assert_allclose(gains - gains[0], gains_of(kind)[:, 0], atol=0.1)
    assert [alignment.is_scaled for alignment in alignments[7:]] == [kind == "equal"] * 5


def test_noise_alone_has_no_profile() -> None:
    assert aligned(images_of(gains_of("drift"), tissue=0.0))[0].profiles is None


@pytest.mark.parametrize("shape", [(48, 3), (48, 1), (6, 40), (5, 4, 3)])
def test_small_images_have_no_profile(shape: tuple[int, ...]) -> None:
    assert aligned(images_of(5 * gains_of("step", shape[0]), shape))[0].profiles is None


def test_depths_of_noise_alone_say_nothing() -> None:
    gains, top = gains_of("drift"), np.arange(SHAPE[0]) < 30
    found = profiles_in(aligned(images_of(gains, tissue=top))[1])
    assert error_of(found[:, top], gains[:, top]) < 0.12
    np.testing.assert_allclose(found[:, 30:] - found[:, 29:30], 0, atol=0.1)


def test_vessels_and_pixels_without_a_signal_do_not_count() -> None:
    gains, rng = gains_of("step"), np.random.default_rng(5)
    images = images_of(gains)
    for image in images:
        image[:, 12:16] *= rng.uniform(0.5, 2)
        image[10:14, 20:] = 0
        image[:, -1] = 0
    assert error_of(profiles_in(aligned(images)[1]), gains) < 0.12


def test_a_profile_that_no_other_block_has_is_reported() -> None:
    gains = gains_of("drift")
    reference, _ = aligned(images_of(gains))
    bent = 2.0 * np.sin(2 * np.pi * np.linspace(0, 1, SHAPE[0]))
    assert reference.alignment(images_of(bent[None])[0]).is_uneven
    assert not reference.alignment(images_of(gains[3:4])[0]).is_uneven


def test_without_the_correction_a_profile_is_reported() -> None:
    reference, alignments = aligned(images_of(gains_of("step")), scales=False)
    assert reference.profiles is None
    assert [alignment.is_uneven for alignment in alignments] == [False] * 7 + [True] * 5
    assert not any(alignment.is_scaled for alignment in alignments)
