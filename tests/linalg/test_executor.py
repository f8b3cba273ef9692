"""Threads: blocks in order, and every BLAS on one thread, whenever it was loaded."""

import pytest

from tests.programs import python
from usdenoise.linalg.executor import ThreadExecutor

THREADS = """
import numpy
from threadpoolctl import threadpool_info
from usdenoise.linalg.executor import ThreadExecutor, blas_on_one_thread

def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

with ThreadExecutor(2) as executor:
    import scipy.linalg
    assert len(threadpool_info()) == 2, threadpool_info()
    with blas_on_one_thread():
        assert threads() == {1}
    assert list(executor.map(lambda item: threads(), range(3))) == [{1}] * 3
with ThreadExecutor(1):
    assert threads() == {1}
"""


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


def test_a_blas_that_is_loaded_late_is_limited_too():
    python(THREADS).check_returncode()
