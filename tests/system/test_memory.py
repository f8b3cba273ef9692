"""Memory that threads share."""

import ctypes
import platform

import pytest

from tests.programs import python
from usdenoise.system import memory

# Every new heap of glibc reserves 64 MiB of addresses.
HEAPS = """
import threading
from usdenoise.system.memory import address_space_bytes, use_one_heap
{setting}
before = address_space_bytes()
barrier = threading.Barrier(5)
def take():
    held = [bytes(1000) for _ in range(100)]
    barrier.wait()
    barrier.wait()
threading.stack_size(1 << 18)
for _ in range(4):
    threading.Thread(target=take).start()
barrier.wait()
print((address_space_bytes() - before) >> 20)
barrier.wait()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has a heap for each thread")
def test_threads_share_one_heap() -> None:
    def grown_mib(setting: str) -> int:
        return int(python(HEAPS.format(setting=setting)).stdout)

    assert grown_mib("use_one_heap()") < 32
    assert grown_mib("") >= 64


def test_another_c_library_keeps_its_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    memory.use_one_heap()
