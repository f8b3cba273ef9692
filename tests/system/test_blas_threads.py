"""Two calls of the library at once leave the settings of the process as they found them."""

from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tests.programs import python
from usdenoise.system.resources import blas_on_one_thread


def blas_threads() -> list[int]:
    return sorted(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def test_an_error_inside_restores_the_threads() -> None:
    with threadpool_limits(4, user_api="blas"):
        threads = blas_threads()
        with pytest.raises(ZeroDivisionError), blas_on_one_thread():
            divmod(set(blas_threads()) == {1}, 0)
        assert blas_threads() == threads


LATE = """
import numpy
from threadpoolctl import threadpool_info
from usdenoise.system.resources import blas_on_one_thread

def threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

first = threads()
with blas_on_one_thread():
    import scipy.linalg
    with blas_on_one_thread():
        assert threads() == [1, 1]
assert threads() == first * 2
"""


def test_a_blas_that_is_loaded_meanwhile_is_limited_and_restored() -> None:
    python(LATE).check_returncode()


CONCURRENT = """
import signal, sys, threading
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits
import scipy.linalg
import usdenoise
from usdenoise.jobs.run_job import run
from tests.jobs.batch.shared import ARGUMENTS
from usdenoise.jobs import products

products.draw_picture = lambda *arguments, **settings: b"picture"

def state():
    pools = sorted(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return pools, [signal.getsignal(number) for number in numbers]

threadpool_limits(4, user_api="blas")
stack = np.random.default_rng(0).standard_normal((40, 30, 60)).astype(np.float32)
before, results, errors = state(), [], []

def work(number):
    try:
        results.append(usdenoise.denoise(stack, axes="zxt", rank=5, low_cutoff=2).power_doppler)
        run(sys.argv[1], f"{sys.argv[2]}/{number}", **ARGUMENTS)
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
work("main")
for thread in threads:
    thread.join()
assert not errors, errors
assert all(np.array_equal(power, results[0]) for power in results)
assert state() == before, (state(), before)
"""


@pytest.mark.slow
def test_concurrent_calls_leave_the_process_as_they_found_it(tmp_path: Path, phantom_file: Path) -> None:
    python(CONCURRENT, phantom_file, tmp_path).check_returncode()
