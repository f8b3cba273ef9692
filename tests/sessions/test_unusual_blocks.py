"""Blocks that the estimate of a session leaves out: those that spoil it, and no others."""

from dataclasses import replace

import numpy as np

from tests.sessions.scans import IMAGE, LENGTH, scan
from usdenoise import session


def test_a_component_that_some_blocks_have_more_of_leaves_none_out() -> None:
    """It is in few pixels, nine times as strong in five blocks, and the others have it, too."""
    made = scan(16)
    z, x = np.indices(IMAGE)
    patch = np.exp(-((z - 14) ** 2 + (x - 9) ** 2) / 8 + 0.7j * z)
    strength = np.where(np.isin(np.arange(16), range(3, 8)), 18.0, 6.0)
    course = np.repeat(strength, LENGTH) * np.exp(0.06j * np.pi * np.arange(16 * LENGTH))
    iq = (made.iq + course[:, None, None] * patch).astype(np.complex64)
    found = session(replace(made.stack, iq=iq), LENGTH)
    assert found.n_unusual == 0
    assert not found.bad.any()


def test_blocks_in_which_the_image_jumps_are_left_out() -> None:
    found = session(scan(16, bursts=(3, 9), seed=1).stack, LENGTH)
    assert found.n_unusual == 2
    assert np.flatnonzero(found.bad).tolist() == [3, 9]
