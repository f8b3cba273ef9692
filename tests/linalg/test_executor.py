"""Threads: blocks in order, and every BLAS on one thread, whenever it was loaded."""

import pytest

from usdenoise.linalg.executor import ThreadExecutor


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order(threads):
    with ThreadExecutor(threads) as executor:
        assert list(executor.map(lambda item: item * item, range(20))) == [item**2 for item in range(20)]


def test_few_results_wait_for_a_slow_caller():
    done = []
    with ThreadExecutor(2) as executor:
        made = executor.map(lambda item: done.append(item), range(50))
        next(made)
        next(made)
    assert len(done) <= 4
