"""The random streams of a phantom, so that one term does not change another."""

from enum import IntEnum


class Stream(IntEnum):
    """Random streams: a generator is seeded with the phantom's seed and the number of its stream."""

    ANATOMY = 0
    NOISE = 1
    THIN_VESSELS = 2
    CAPILLARIES = 3
    INTERFERENCE = 4
    JITTER = 5
