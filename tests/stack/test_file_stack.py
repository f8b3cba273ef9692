"""Stacks in files: they are filled by parts, and an index gives what it gives of an array."""

from pathlib import Path

import numpy as np
import pytest

from usdenoise.files.layout import Disk
from usdenoise.stack.file_stack import FileStack
from usdenoise.system import row_file

SHAPE = (5, 6, 7, 23)


def filled(values: np.ndarray, pieces: tuple[int, ...], folder: Path) -> FileStack:
    """A stack in a file, filled in pieces of this shape."""
    edges = {*range(0, values.shape[-1], pieces[-1]), values.shape[-1]}
    stack = Disk(folder, 1, is_cached=False).begin(values.shape, values.dtype, edges)
    for start in np.ndindex(*(-(-n // piece) for n, piece in zip(values.shape, pieces, strict=True))):
        place = tuple(
            slice(i * n, min((i + 1) * n, end)) for i, n, end in zip(start, pieces, values.shape, strict=True)
        )
        stack[place] = values[place]
    return stack.filled()


@pytest.mark.parametrize("pieces", [(5, 6, 7, 4), (2, 6, 3, 23), (2, 4, 3, 9)])
@pytest.mark.parametrize("group", [1, 3000, 1 << 20])
def test_an_index_of_a_file_is_that_of_an_array(
    pieces: tuple[int, ...], group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_file, "_GROUP_BYTES", group)
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(SHAPE) + 1j * rng.standard_normal(SHAPE)).astype(np.complex64)
    stack = filled(values, pieces, tmp_path)
    assert (stack.shape, stack.dtype, stack.nbytes) == (SHAPE, values.dtype, values.nbytes)
    assert np.array_equal(stack, values)
    for order in ((3, 0, 1, 2), (2, 0, 3, 1), (1, 2, 3, 0)):
        index = (slice(1, 4), None, slice(0, 5, 2), slice(None), slice(2, 3))
        for one, other in (
            (stack, values),
            (stack.real, values.real),
            (stack.imag.transpose(), values.imag.T),
        ):
            moved = one.transpose(order)
            assert moved.letters.index("t") == order.index(3) or one is not stack
            expected = other.transpose(order)[index]
            assert np.array_equal(moved[index], expected)
            assert np.asarray(moved[index].astype(complex)).dtype == np.complex128
    rows = stack.rows
    matrix = values.reshape(-1, SHAPE[-1])
    some = np.array([0, 1, 4, 200])
    chosen = rows.select(some, held=False)
    chosen[1:3] = 7
    matrix[some[1:3]] = 7
    assert np.array_equal(chosen[:], matrix[some])
    assert np.array_equal(rows[:, 3:20:4], matrix[:, 3:20:4])
    assert np.array_equal(chosen[2:, :0], matrix[:2, :0])
    assert np.array_equal(stack, values)
