"""Mutated files of every reader: each is loaded, or refused with a sentence, within limits of memory and time.

This is the short version; more cases on demand: ``python -m tests.fuzz``.
"""

from pathlib import Path

import pytest

from tests.fuzz.originals import READERS, originals
from tests.fuzz.reading import ChildReader, outcomes

CASES = 40


def expected(reader: str, number: int) -> str:
    """What comes of an original: the last one of MATLAB is of version 4, which can hold no stack."""
    return "refused" if (reader, number) == ("MATLAB 5", len(READERS["MATLAB 5"]) - 1) else "loaded"


@pytest.mark.parametrize("reader", READERS)
def test_the_files_to_be_mutated_are_sound(reader: str, child_reader: ChildReader, tmp_path: Path) -> None:
    for number, (files, name) in enumerate(originals(reader)):
        for place, content in files.items():
            (tmp_path / str(number) / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / str(number) / place).write_bytes(content)
        assert child_reader.outcome(tmp_path / str(number) / name) == expected(reader, number), number


@pytest.mark.parametrize("reader", READERS)
def test_a_mutated_file_is_loaded_or_refused(reader: str, child_reader: ChildReader) -> None:
    found = list(outcomes(child_reader, reader, 0, range(CASES)))
    assert [str(one) for one in found if not one.is_sound] == []
    # Mutations that harm nothing, or that no file survives, would prove little.
    n_refused = sum(one.outcome == "refused" for one in found)
    assert 0.1 * CASES < n_refused < CASES
