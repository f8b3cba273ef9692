"""Stacks and files that many tests share, made once a session by the package's own simulator."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401, loads the BLAS of SciPy, so that it is limited as well
from threadpoolctl import threadpool_limits

from tests.jobs.batch.shared import scans_in_this_process  # noqa: F401, a fixture of all tests
from tests.sessions.scans import LENGTH, Scan, scan
from usdenoise import SessionResult, session
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.jobs.workers import DEATHS
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings, Terms
from usdenoise.report import pictures

SMALL = PhantomSettings(shape=(40, 32, 120), frame_rate_hz=500.0, seed=3)


def all_frames(settings: PhantomSettings) -> tuple[Phantom, Terms]:
    """A phantom and all of its frames."""
    with ThreadExecutor() as executor:
        phantom = Phantom(settings, executor)
        return phantom, phantom.frames(np.arange(settings.n_frames))


@pytest.fixture(scope="session", autouse=True)
def one_thread_of_blas() -> Iterator[None]:
    """BLAS has one thread: on the small matrices of the tests more of them only wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="session")
def small_phantom() -> tuple[Phantom, Terms]:
    """40 x 32 pixels, 120 frames, clutter 40 dB above blood."""
    return all_frames(SMALL)


@pytest.fixture(scope="session")
def phantom_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small phantom as a file. Read only."""
    path = tmp_path_factory.mktemp("phantom") / "small.h5"
    simulate_to_file(path, replace(SMALL, terms=True))
    return path


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two worker processes of one thread each, which all tests that need workers share."""
    # Imported where it is used: it takes a second.
    import dask
    from distributed import LocalCluster

    with dask.config.set({"distributed.scheduler.allowed-failures": DEATHS}):
        workers = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with workers:
        yield workers


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


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs draw nothing: it takes most of the time of a small one, and has tests of its own."""
    monkeypatch.setattr(pictures, "draw_picture", lambda *arguments, **settings: b"picture")
