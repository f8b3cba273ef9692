"""Sessions that are filtered once for several tests."""

import pytest

from tests.sessions.scans import LENGTH, Scan, scan
from usdenoise import SessionResult, session


@pytest.fixture(scope="session")
def rising() -> tuple[Scan, SessionResult]:
    """40 blocks in which the blood of the right half rises by 20 %."""
    made = scan(40, rise=0.2)
    return made, session(made.stack, LENGTH)


@pytest.fixture(scope="session")
def noise_alone() -> SessionResult:
    """30 blocks of noise."""
    return session(scan(30, tissue=0, blood=0).stack, LENGTH)


@pytest.fixture(scope="session")
def tissue_alone() -> SessionResult:
    """30 blocks of tissue and noise."""
    return session(scan(30, blood=0).stack, LENGTH)
