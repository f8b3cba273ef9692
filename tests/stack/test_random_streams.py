"""Random streams have the numbers that they always had: of different keys, and so independent."""

import numpy as np

from usdenoise.stack.sampling import RandomStream, TileStream


def test_a_stream_is_keyed_by_seed_and_number() -> None:
    numbers = {"START": 1, "PIXEL_SUBSET": 2, "RANGE_FINDER": 3, "SAMPLED_PIXELS": 4, "SPREAD_ROWS": 5}
    numbers["SAMPLED_FRAMES"] = 6
    assert {stream.name: int(stream) for stream in RandomStream} == numbers
    for stream in RandomStream:
        expected = np.random.default_rng([7, numbers[stream.name]])
        assert stream.generator(7).integers(1 << 60) == expected.integers(1 << 60)


def test_a_tile_stream_is_keyed_by_seed_number_and_tile() -> None:
    assert {stream.name: int(stream) for stream in TileStream} == {"COUNTS": 0, "FITTED": 1, "HELD_OUT": 2}
    for stream in TileStream:
        expected = np.random.Generator(np.random.SFC64(np.random.SeedSequence([7, int(stream), 5])))
        assert stream.generator(7, 5).integers(1 << 60) == expected.integers(1 << 60)
