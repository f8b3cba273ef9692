"""Which errors mean that memory has run out."""

import errno

import pytest

from usdenoise.errors import is_out_of_memory

OUT_OF_MEMORY = [
    MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), RuntimeError("can't start new thread"),
    ImportError("libjpeg.so: failed to map segment from shared object"),
    SystemError("error return without exception set"),
]  # fmt: skip
OTHERS = [SystemError("bad argument to internal function"), OSError(errno.EACCES, "Permission denied")]


@pytest.mark.parametrize("error", [*OUT_OF_MEMORY, *OTHERS], ids=repr)
def test_errors_that_mean_out_of_memory(error: Exception) -> None:
    assert is_out_of_memory(error) == (error in OUT_OF_MEMORY)
