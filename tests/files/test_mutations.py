"""Mutated files of every reader are loaded, or refused; more cases on demand: ``python -m tests.fuzz``."""

from pathlib import Path

import pytest

from tests.fuzz import READERS, ChildReader, read_cases

CASES = 40


@pytest.mark.parametrize("reader", READERS)
def test_a_mutated_file_is_loaded_or_refused(reader: str, child_reader: ChildReader, tmp_path: Path) -> None:
    for number, write in enumerate(READERS[reader]):
        (tmp_path / str(number)).mkdir()
        assert child_reader.outcome(write(tmp_path / str(number))) == "loaded"
    failures, n_refused = read_cases(child_reader, reader, 0, CASES)
    assert failures == []
    # Mutations that harm nothing, or that no file survives, would show little.
    assert 0.1 * CASES < n_refused < CASES
