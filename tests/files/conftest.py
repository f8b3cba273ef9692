"""What the tests of formats share."""

from collections.abc import Iterator

import pytest

from tests.fuzz import ChildReader


@pytest.fixture(scope="session")
def child_reader() -> Iterator[ChildReader]:
    """A process that loads one file after the other, within limits of memory and time."""
    with ChildReader() as reader:
        yield reader
