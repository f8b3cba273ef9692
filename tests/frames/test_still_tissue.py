"""The tissue held still, against loops over frames, tiles and pixels, and against simulated motion."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import usdenoise
from usdenoise.frames import still_tissue
from usdenoise.frames.still_tissue import FALL, LEVELS, Tiles, TissueMotion, tile_products
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.pipeline.recording import ArrayFrames, Chunk, Recording
from usdenoise.stack.geometry import Geometry

SHAPES = {"image": ((13, 10), (0.1, 0.2)), "line": ((21,), (0.1,)), "volume": ((6, 5, 7), (0.2, 0.3, 0.2))}


def gaussian(rng: np.random.Generator, shape: tuple[int, ...], dtype: type = np.complex64) -> NDArray:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def moving_speckle(seed: int, n: int, shape: tuple[int, ...], strain: float = 2.0) -> tuple[NDArray, NDArray]:
    """Frames (n, n_pixels) of speckle that is strained along the first axis, and the phase of its motion."""
    rng = np.random.default_rng(seed)
    place = np.indices(shape).reshape(len(shape), -1)[0] / shape[0]
    path = np.cumsum(rng.standard_normal(n)) / np.sqrt(n)
    phase = strain * path[:, None] * place
    return gaussian(rng, (1, place.size)) * np.exp(1j * phase).astype(np.complex64), phase


def motion_of(x: NDArray, tiles: Tiles, used: NDArray | None = None) -> TissueMotion:
    used = np.ones(len(x), bool) if used is None else used
    products = tile_products(x, tiles, used)
    energy = tiles.summed(np.mean(np.abs(x[used].astype(complex)) ** 2, axis=0)[None])[0]
    return still_tissue.motion_and_strengths(tiles, products, energy)[0]


def slow_turns(x: NDArray, tiles: Tiles) -> NDArray:
    """e of frames of one image or volume, by loops: sums over tiles, the kernel, the step, its place at a pixel."""
    shape, counts = tiles.shape, tiles.counts
    frames = x.reshape(-1, *shape).astype(complex)
    pixels, cells = list(np.ndindex(*shape)), list(np.ndindex(*counts))
    turns = [np.ones(shape, complex)]
    for before, after in itertools.pairwise(frames):
        sums = np.zeros(counts, complex)
        for p in pixels:
            sums[tuple(i // side for i, side in zip(p, tiles.sides, strict=True))] += (
                after[p] * before[p].conj()
            )
        steps = np.ones(counts, complex)
        # The phase of the average, corrected three times by the phase of what it leaves
        for _ in range(4):
            left = sums * steps.conj()
            for a in cells:
                total = 0j
                for b in cells:
                    squared = sum(((i - j) * mm) ** 2 for i, j, mm in zip(a, b, tiles.side_mm, strict=True))
                    weight = sum(FALL**k * np.exp(-squared / (2 * (0.7 * 2**k) ** 2)) for k in range(LEVELS))
                    total += weight * left[b]
                steps[a] *= total / abs(total)
        step = np.zeros(shape, complex)
        for p in pixels:
            for a in cells:
                weight = 1.0
                for i, j, side, count in zip(p, a, tiles.sides, counts, strict=True):
                    at = min(max((i + 0.5) / side - 0.5, 0), count - 1)
                    weight *= max(1 - abs(at - j), 0)
                step[p] += weight * steps[a]
            step[p] /= abs(step[p])
        turns.append(turns[-1] * step)
    return np.stack(turns).reshape(len(x), -1)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("kind", SHAPES)
def test_turns_are_those_of_loops(kind: str, scale: float, is_compiled: bool, order: str) -> None:
    shape, pitches = SHAPES[kind]
    tiles = replace(Tiles.of(shape, pitches), is_compiled=is_compiled)
    x = np.asarray(np.float32(scale) * moving_speckle(1, 6, shape)[0], order=order)
    wanted = slow_turns(x, tiles)
    motion = motion_of(x, tiles)
    # Each step is the angle of a sum of n_pixels products in single precision.
    most = len(x) * np.finfo(np.float32).eps * np.sqrt(x.shape[1]) * 4
    assert np.abs(motion.still(np.ones_like(x)) - wanted.conj()).max() < most
    some = np.array([0, 3, x.shape[1] - 1])
    assert np.abs(motion.of_pixels(some) - wanted[:, some]).max() < most
    assert np.abs(motion.end(None) - wanted[-1]).max() < most


def test_strained_tissue_becomes_one_component() -> None:
    x, _ = moving_speckle(2, 60, (40, 32))
    still = motion_of(x, Tiles.of((40, 32), (None, None))).still(x)
    before, after = (np.linalg.svd(frames, compute_uv=False) for frames in (x, still))
    assert before[1] > 0.1 * before[0]
    assert after[1] < 0.1 * before[1]


def test_what_turns_back_is_as_recorded_and_powers_stay() -> None:
    x, _ = moving_speckle(3, 30, (20, 16))
    motion = motion_of(x, Tiles.of((20, 16), (None, None)))
    still = motion.still(x)
    rounding = 8 * len(x) * np.finfo(np.float32).eps * np.abs(x).max()
    assert np.abs(np.abs(still) - np.abs(x)).max() < rounding
    assert np.abs(motion.still(still, is_back=True) - x).max() < rounding


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_chunks_and_rows_turn_as_the_whole(order: str, is_compiled: bool) -> None:
    shape, n = (20, 16), 40
    tiles = replace(Tiles.of(shape, (None, None)), is_compiled=is_compiled)
    x = np.asarray(moving_speckle(4, n, shape)[0], order=order)
    used = np.ones(n, bool)
    used[[0, 13, 14, 39]] = False
    x[13:15] = 50 * gaussian(np.random.default_rng(5), (2, x.shape[1]))
    whole = tile_products(x, tiles, used)
    edges = [0, 14, 15, 31, n]
    parts = [tile_products(x[a:b], tiles, used[a:b]) for a, b in itertools.pairwise(edges)]
    joined = still_tissue.joined_products(parts, tiles)
    assert joined.numbers.tolist() == whole.numbers.tolist()
    np.testing.assert_allclose(joined.products, whole.products, rtol=1e-5)
    motion = motion_of(x, tiles, used)
    wanted = motion.still(x)
    geometry = Geometry(axes="tzx", shape=(n, *shape), dtype=np.dtype(np.complex64))
    chunks = [Chunk(a, ArrayFrames(x[a:b], "tz", x.dtype, "x")) for a, b in itertools.pairwise(edges)]
    rounding = 8 * n * np.finfo(np.float32).eps * np.abs(x).max()
    with ThreadExecutor(2) as executor:
        recording = Recording.of_chunks(geometry, x.dtype, chunks)
        still = recording.still(motion, edges[:-1], executor)
        found = np.concatenate([chunk.read() for chunk in still.chunks])
        assert np.abs(found - wanted).max() < rounding
        for chunk in still.chunks:
            assert np.abs(chunk.frames.moving(chunk.read()) - x[chunk.first : chunk.stop]).max() < rounding
            assert np.abs(chunk.frames.cut(0, 1).read() - wanted[chunk.first]).max() < rounding
        in_memory = replace(recording, in_memory=ArrayFrames(x, "tz", x.dtype, "x"))
        target = np.empty_like(x)
        held = in_memory.still(motion, edges[:-1], executor, target)
        assert np.abs(target - wanted).max() < rounding
        assert np.abs(held.at_once.frames.moving(target, target, executor) - x).max() < rounding


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
def test_products_of_tiles_are_sums_over_pixels(kind: str, is_compiled: bool, lag: int, order: str) -> None:
    shape, pitches = SHAPES[kind]
    tiles = replace(Tiles.of(shape, pitches), is_compiled=is_compiled)
    x = np.asarray(gaussian(np.random.default_rng(8), (9, np.prod(shape))), order=order)
    x[4, 5] = np.nan
    numbers, counted = np.array([0, 1, 3, 4, 5, 8]), np.arange(x.shape[1]) % 7 != 2
    seen = np.where(np.isfinite(x) & counted, x, 0)[numbers].astype(complex)
    wanted = np.zeros((len(numbers) - lag, *tiles.counts), complex)
    for pixel, place in enumerate(np.ndindex(*shape)):
        tile = tuple(i // side for i, side in zip(place, tiles.sides, strict=True))
        wanted[:, *tile] += seen[lag:, pixel] * seen[: len(seen) - lag, pixel].conj()
    found = still_tissue.lagged_products(x, tiles, numbers, counted, lag)
    # A tile sums a few dozen products of numbers of size 1
    np.testing.assert_allclose(found, wanted, atol=64 * np.finfo(np.float32).eps * np.abs(wanted).max())


def test_missing_entries_and_frames_do_not_count() -> None:
    shape, n = (24, 20), 30
    x, _ = moving_speckle(6, n, shape)
    tiles, rng = Tiles.of(shape, (None, None)), np.random.default_rng(7)
    wanted = motion_of(x, tiles).still(np.ones_like(x))
    gaps = x.copy()
    gaps[rng.random(x.shape) < 0.1] = np.nan
    gaps[11] = np.inf
    used = np.isfinite(gaps).any(axis=1)
    found = motion_of(np.where(np.isfinite(gaps), gaps, 0), tiles, used)
    energy = tiles.summed(np.nanmean(np.abs(x) ** 2, axis=0)[None])[0]
    direct, _ = still_tissue.motion_and_strengths(tiles, tile_products(gaps, tiles, used), energy)
    np.testing.assert_array_equal(direct.steps, found.steps)
    # A tenth of the pixels has the phase of all of them but for speckle
    error = np.angle(direct.still(np.ones_like(x)) * wanted.conj())
    assert np.sqrt(np.mean(error[used] ** 2)) < 0.1


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_noise_is_not_turned(correlation: float) -> None:
    rng, shape = np.random.default_rng(8), (64, 48)
    noise = gaussian(rng, (120, *shape))
    noise = noise + correlation * np.roll(noise, 1, axis=1) + correlation * np.roll(noise, 1, axis=2)
    assert not motion_of(noise.reshape(120, -1), Tiles.of(shape, (None, None))).moves


def test_tissue_decides_in_a_vessel_and_far_from_it_nothing_turns() -> None:
    """Blood flows in a vessel of 16 pixels, 40 dB below the tissue beside it; noise fills the lower half."""
    rng, shape, n = np.random.default_rng(9), (48, 64), 40
    tissue, phase = moving_speckle(10, n, shape)
    tissue, phase = (values.reshape(n, *shape).copy() for values in (tissue, phase))
    flow = np.exp(2j * np.pi * 0.2 * np.arange(n))[:, None, None] * gaussian(rng, (1, *shape))
    frames = 100 * tissue
    frames[:, :, 20:36] = flow[:, :, 20:36]
    tiles = Tiles.of(shape, (None, None))
    turns = motion_of(frames.reshape(n, -1), tiles).still(np.ones((n, frames[0].size), np.complex64))
    error = np.angle(turns.conj().reshape(n, *shape) * np.exp(-1j * (phase - phase[:1])))
    assert np.abs(error[:, 4:-4]).max() < 0.3


def test_speckle_that_moves_on_is_flow() -> None:
    """A medium that moves by .25 cycles a frame, and one that goes to and fro as far in some frames."""
    rng, shape, n = np.random.default_rng(17), (32, 24), 60
    speckle, tiles = gaussian(rng, (1, 32 * 24)), Tiles.of(shape, (None, None))
    steps = np.full(n, 0.25)
    moves = motion_of((speckle * np.exp(2j * np.pi * np.cumsum(steps))[:, None]).astype(np.complex64), tiles)
    assert not moves.moves
    steps[::2] *= -1
    turns = np.exp(2j * np.pi * np.cumsum(steps)[:, None] * np.linspace(0.5, 1, 32 * 24))
    assert motion_of((speckle * turns).astype(np.complex64), tiles).moves


def test_a_damaged_frame_does_not_turn_the_frames_after_it() -> None:
    x, _ = moving_speckle(11, 30, (24, 20))
    tiles, used = Tiles.of((24, 20), (None, None)), np.ones(30, bool)
    wanted = still_tissue.motion_of(x, tiles, used)[0].steps[20:]
    x[[9, 16, 17]] = 30 * gaussian(np.random.default_rng(12), (3, x.shape[1]))
    found = still_tissue.motion_of(x, tiles, used)[0].steps
    np.testing.assert_array_equal(found[20:], wanted)
    assert (found[[9, 16, 17]] == 1).all()


def test_blocks_have_one_reference_of_phase() -> None:
    shape, n = (32, 24), 20
    tiles, x = Tiles.of(shape, (None, None)), moving_speckle(13, 4 * n, shape)[0]
    blocks = x.reshape(4, n, -1)
    means = np.stack([motion_of(block, tiles).still(block).mean(axis=0) for block in blocks])
    reference = still_tissue.StillReference.of(tiles, means)
    held = [reference.hold(block.copy(), np.ones(n, bool)) for block in blocks]
    singular = np.linalg.svd(np.concatenate([frames for frames, _ in held]), compute_uv=False)
    assert (singular[1:] < 3e-2 * singular[0]).all()
    for block, (frames, turn) in zip(blocks, held, strict=True):
        assert np.abs(turn.moving(frames) - block).max() < 1e-4 * np.abs(block).max()


@pytest.mark.parametrize("precision", ["single", "double"])
def test_filtered_frames_are_the_frames_minus_their_clutter(precision: str) -> None:
    """y = x - e U U^H (conj(e) x), with e of the frames and U of the still ones."""
    rng, shape, n = np.random.default_rng(14), (32, 24), 60
    x = 100 * moving_speckle(15, n, shape, 4.0)[0] + gaussian(rng, (n, 32 * 24))
    options = {"low_cutoff": 2, "method": "svd", "bad_frames": "keep", "precision": precision}
    found = usdenoise.denoise(x.reshape(n, *shape), axes="tzx", **options).acquisition.iq.reshape(n, -1)
    turns = motion_of(x, Tiles.of(shape, (None, None))).still(np.ones(x.shape, complex)).conj()
    u = np.linalg.svd((turns.conj() * x).T, full_matrices=False)[0][:, :2]
    wanted = x - turns * ((turns.conj() * x) @ u.conj() @ u.T)
    # In each precision e is made of steps in single precision, the same ones here.
    most = 16 * np.finfo(np.float32).eps * np.abs(x).max() * np.sqrt(n)
    assert np.abs(found - wanted).max() < most


def test_frames_that_are_simpler_as_recorded_are_filtered_as_they_are() -> None:
    """Fixed patterns with courses of their own, as of reverberation: no motion explains them."""
    rng = np.random.default_rng(16)
    x = 50 * gaussian(rng, (80, 4)) @ gaussian(rng, (4, 30 * 20)) + gaussian(rng, (80, 600))
    stack = x.reshape(80, 30, 20)
    found, recorded = (
        usdenoise.denoise(stack, axes="tzx", low_cutoff=4, tissue=tissue) for tissue in ("still", "recorded")
    )
    np.testing.assert_array_equal(found.acquisition.iq, recorded.acquisition.iq)


@pytest.mark.parametrize("strain", [0.0, 1.0])
def test_the_displacement_is_that_of_the_tiles(strain):
    """4 pi are a wavelength, and what moves deeper lags behind."""
    n, shape = 60, (48, 40)
    path = np.cumsum(np.random.default_rng(3).standard_normal(n)) / 4
    place = np.repeat(np.linspace(0.5, 1.5, shape[0]), shape[1])
    depth = path[:, None] * (1 + strain * (place - 1))
    x = (gaussian(np.random.default_rng(4), (1, place.size)) * np.exp(-4j * np.pi * depth / 10)).astype(
        np.complex64
    )
    used = np.arange(n) != 7
    found = motion_of(x, Tiles.of(shape, (0.1, 0.1)), used).displacement(used)
    assert np.isnan(found[7]).all()
    wanted = (depth - np.median(depth[used], axis=0))[used] / 10
    np.testing.assert_allclose(found[used, 0], np.median(wanted, axis=1), atol=0.004)
    np.testing.assert_allclose(found[used, 1], np.quantile(np.abs(wanted), 0.95, axis=1), atol=0.01)


def test_noise_is_not_displaced():
    x = gaussian(np.random.default_rng(0), (40, 48 * 40))
    assert np.isnan(motion_of(x, Tiles.of((48, 40), (0.1, 0.1))).displacement(np.ones(40, bool))).all()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_some_frames_are_those_of_all(order, is_compiled):
    x = np.asarray(moving_speckle(5, 90, (24, 20))[0], order=order)
    # As of a file that is mapped into memory, and some frames of a longer array
    x.setflags(write=False)
    x = np.concatenate([x, x], axis=0).T.copy(order="C").T[:90] if order == "F" else x
    motion = motion_of(x, replace(Tiles.of((24, 20), (0.1, 0.1)), is_compiled=is_compiled))
    numbers = np.random.default_rng(0).permutation(90)[:40]
    np.testing.assert_array_equal(motion.still_frames(x, numbers), motion.still(x)[numbers])
