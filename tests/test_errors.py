"""Which errors mean that memory has run out."""

import errno

import pytest

from usdenoise.errors import is_out_of_memory


@pytest.mark.parametrize("error", [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("can't start new thread"),
    ImportError("libjpeg.so: failed to map segment from shared object"),
    SystemError("error return without exception set"),
])  # fmt: skip
def test_errors_that_mean_out_of_memory(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_other_errors_are_not_out_of_memory() -> None:
    assert not is_out_of_memory(SystemError("bad argument to internal function"))
    assert not is_out_of_memory(OSError(errno.EACCES, "Permission denied"))
