"""Mutated files of every reader are loaded, or refused; `tests/fuzz.py` says how to read more of them."""

import os

import pytest

from tests.fuzz import READERS, read_cases

# SciPy's reader of MATLAB 5 crashes, with its process, at case 64: a known fault, which no exception reports.
MANY = {reader: 60 if reader == "MATLAB 5" else 200 for reader in READERS}
MANY |= dict.fromkeys(READERS, int(os.environ["FUZZ_CASES"])) if "FUZZ_CASES" in os.environ else {}
SEED = int(os.environ.get("FUZZ_SEED", 0))


@pytest.mark.parametrize(("reader", "n_cases"), [
    *((reader, 8) for reader in READERS),
    *(pytest.param(reader, n_cases, marks=pytest.mark.slow) for reader, n_cases in MANY.items()),
])  # fmt: skip
def test_a_mutated_file_is_loaded_or_refused(reader, n_cases, child_reader, tmp_path):
    for number, write in enumerate(READERS[reader]):
        (tmp_path / str(number)).mkdir()
        assert child_reader.outcome(write(tmp_path / str(number))) == "loaded"
    failures, n_refused = read_cases(child_reader, reader, SEED, n_cases)
    assert failures == []
    # Mutations that harm nothing, or that no file survives, would show little.
    assert 0.1 * n_cases < n_refused
    assert n_refused < n_cases or n_cases < 100
