"""Threads have their results in order; compiled loops run although their code cannot be kept, as on a full disk."""

import runpy

import numba
import numpy as np
import pytest

from tests.programs import files_of_at_most
from usdenoise.linalg import compiled_loops
from usdenoise.linalg.executor import ThreadExecutor


def lag_of_ones() -> float:
    """The sum of products of neighbours of four ones, by a module that has just been imported."""
    sums = np.zeros((1, 1, 2))
    real_lags = runpy.run_path(compiled_loops.__file__)["real_lags"]
    real_lags(np.ones((4, 1)), np.array([[0, 4, 0]]), sums)
    return float(sums[0, 0, 1])


def test_without_a_folder_for_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    # The only place is the folder of the user's setting, and there is no setting.
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    assert lag_of_ones() == 3


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with NUMBA_DISABLE_JIT=1, by which loops can be debugged."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    assert lag_of_ones() == 3


@pytest.mark.slow
def test_with_a_full_disk_and_with_code_that_was_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    with files_of_at_most(16):
        assert lag_of_ones() == 3
    assert not list(tmp_path.rglob("*.nbi"))
    assert lag_of_ones() == 3
    (index,) = tmp_path.rglob("*.nbi")
    index.write_bytes(b"")
    assert lag_of_ones() == 3


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order(threads):
    with ThreadExecutor(threads) as executor:
        assert list(executor.map(lambda item: item * item, range(20))) == [item**2 for item in range(20)]


def test_few_results_wait_for_a_slow_caller():
    done = []
    with ThreadExecutor(2) as executor:
        made = executor.map(lambda item: done.append(item), range(50))
        next(made)
        next(made)
    assert len(done) <= 4
