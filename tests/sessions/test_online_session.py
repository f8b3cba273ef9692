"""A live session in memory: its blocks, and what is drawn at random for them."""

import numpy as np

from tests.sessions.scans import scan
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.sessions.online_session import OnlineSession
from usdenoise.stack.acquisition import Acquisition


def test_a_block_that_is_begun_twice_changes_nothing() -> None:
    # A file that changes while it is filtered is read again.
    made = scan(9, bursts=(4,))
    stacks = [Acquisition(block, "tzx", frame_rate_hz=500.0) for block in made.blocks]
    updates = []
    for again in (None, 1):
        session = OnlineSession({}, DenoiseOptions(threads=1))
        for number, stack in enumerate(stacks):
            if number == again:
                session.begin(stack).filtered.result()
            update = session.finish(session.begin(stack))
        updates.append(update)
    one, other = updates
    assert one.low_cutoff == other.low_cutoff
    np.testing.assert_array_equal(one.bad, other.bad)
    np.testing.assert_array_equal(one.power_doppler, other.power_doppler)
    np.testing.assert_array_equal(one.mean_blood_power, other.mean_blood_power)
