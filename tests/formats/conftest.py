"""What the tests of formats share."""

from collections.abc import Iterator

import pytest

from tests.fuzz.reading import ChildReader
from usdenoise.formats.matlab import matlab_writing


@pytest.fixture(scope="session")
def child_reader() -> Iterator[ChildReader]:
    """A process that loads one file after the other, within limits of memory and time."""
    with ChildReader() as reader:
        yield reader


@pytest.fixture(params=["v5", "v73"])
def matlab_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The version of MATLAB of the results: small ones are of version 5, large ones of version 7.3."""
    if request.param == "v73":
        monkeypatch.setattr(matlab_writing, "V5_LIMIT_BYTES", 100)
    version: str = request.param
    return version
