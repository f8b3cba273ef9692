"""Memory that threads share and the system has, threads of BLAS, and background work."""

import math
import platform
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tests.programs import python
from usdenoise.system import resources
from usdenoise.system.resources import blas_on_one_thread, run_in_background

# Every new heap of glibc reserves 64 MiB of addresses.
HEAPS = r"""
import re, threading
from usdenoise.system.resources import use_one_heap
def address_space_kib():
    return int(re.search(r"VmSize:\s+(\d+)", open("/proc/self/status").read())[1])
{setting}
before = address_space_kib()
barrier = threading.Barrier(5)
def take():
    held = [bytes(1000) for _ in range(100)]
    barrier.wait()
    barrier.wait()
threading.stack_size(1 << 18)
for _ in range(4):
    threading.Thread(target=take).start()
barrier.wait()
print((address_space_kib() - before) >> 10)
barrier.wait()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has a heap for each thread")
def test_threads_share_one_heap() -> None:
    def grown_mib(setting: str) -> int:
        return int(python(HEAPS.format(setting=setting)).stdout)

    assert grown_mib("use_one_heap()") < 32
    assert grown_mib("") >= 64


MIB = 1 << 20


def system(root: Path, groups: str, **limits: tuple[int, int, int]) -> Path:
    """A tree with 1000 MiB free, and control groups of version 2 or 1: limit, taken and pages to drop in MiB by folder.

    Half of the pages to drop were used once, and as many more as these are used again and again.
    """
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable:    {1000 * 1024} kB\n")
    (root / "proc/self/cgroup").write_text(groups)
    for name, (limit, taken, dropped) in limits.items():
        place = root / "sys/fs/cgroup" / name.strip("_").replace("_", "/")
        place.mkdir(parents=True, exist_ok=True)
        is_old = name.startswith("memory")
        most = str(limit * MIB) if limit else "9223372036854771712" if is_old else "max"
        files = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if is_old else ("memory.max", "memory.current")
        )
        (place / files[0]).write_text(f"{most}\n")
        (place / files[1]).write_text(f"{taken * MIB}\n")
        once, again = dropped * MIB // 2, dropped * MIB
        pages = f"inactive_file {once}", f"active_file {again}"
        stat = ["inactive_file 0", "active_file 0", *(f"total_{each}" for each in pages)] if is_old else pages
        (place / "memory.stat").write_text("\n".join([*stat, "total_mapped_file 9", "file 1\n"]))
    return root


@pytest.mark.parametrize(("groups", "limits", "expected"), [
    ("", {}, 1000),
    ("0::/\n", {"_": (400, 100, 20)}, 320),
    ("0::/slurm/job\n", {"slurm_job": (400, 100, 20), "slurm": (0, 100, 0)}, 320),
    # The limit of a job of SLURM is that of a parent, and one further up can be lower still.
    ("0::/slurm/job/step\n", {"slurm_job_step": (0, 90, 0), "slurm_job": (400, 100, 20)}, 320),
    ("0::/slurm/job/step\n", {"slurm_job": (400, 100, 0), "slurm": (500, 450, 30)}, 80),
    # A container sees its own group at the top.
    ("0::/docker/0f3a\n", {"_": (400, 100, 0)}, 300),
    ("4:cpu:/job\n3:memory:/job\n", {"memory_job": (400, 100, 20), "memory": (0, 900, 0)}, 320),
    ("3:hugetlb,memory:/uid/job/step\n", {"memory_uid_job": (400, 100, 0)}, 300),
    ("3:memory:/docker/0f3a\n", {"memory": (400, 100, 0)}, 300),
    ("3:memory:/job\n0::/\n", {"memory_job": (0, 100, 0), "memory": (0, 900, 0)}, 1000),
    ("3:memory:/job\n0::/other\n", {"memory_job": (400, 100, 0), "other": (350, 100, 0)}, 250),
    ("3:cpu,name=memory:/job\n", {"memory_job": (400, 100, 0)}, 1000),
    # More is taken than the limit that was set afterwards.
    ("0::/job\n", {"job": (400, 500, 20)}, 0),
])  # fmt: skip
def test_the_smallest_limit_of_all_control_groups_counts(groups, limits, expected, tmp_path):
    assert resources.available_bytes(system(tmp_path, groups, **limits)) == expected * MIB


def test_a_system_without_memory_files_has_no_limit(tmp_path: Path) -> None:
    assert math.isinf(resources.available_bytes(tmp_path))
    assert resources.available_bytes() > MIB


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
from usdenoise.report import pictures

pictures.draw_picture = lambda *arguments, **settings: b"picture"

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


def test_background_work_returns_its_result_or_raises_its_error() -> None:
    assert run_in_background(divmod, 17, 5).result() == (3, 2)
    with pytest.raises(ZeroDivisionError):
        run_in_background(divmod, 1, 0).result()


def test_background_work_does_not_delay_the_end_of_the_process() -> None:
    code = "import time; from usdenoise.system.resources import run_in_background; run_in_background(time.sleep, 600)"
    python(code).check_returncode()
