"""Which frames of the blocks are in the sample."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from usdenoise.sessions.session_sample import SAMPLED_FRAMES, sampled_frames


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(2, 900), min_size=1, max_size=60), st.integers(0, 2**32 - 1))
def test_the_sample_has_frames_of_every_block(lengths: list[int], seed: int) -> None:
    found = sampled_frames(lengths, seed)
    assert len(found) == len(lengths)
    for frames, length in zip(found, lengths, strict=True):
        assert len(frames) >= 1
        assert np.all(np.diff(frames) > 0)
        assert frames[0] >= 0
        assert frames[-1] < length
    total, wanted = sum(lengths), SAMPLED_FRAMES
    n_found = sum(map(len, found))
    if len(lengths) == 1 or total <= wanted:
        assert n_found == total
    else:
        # Rounded in each block, and one frame of the shortest.
        assert abs(n_found - wanted) <= len(lengths)
    again = sampled_frames(lengths, seed)
    assert all(np.array_equal(one, other) for one, other in zip(found, again, strict=True))
