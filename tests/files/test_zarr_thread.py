"""Zarr works in a thread of its own, and what fails there prints nothing."""

import json
from pathlib import Path

from tests.files import layouts
from tests.programs import python


def test_several_damaged_members_of_a_group_are_one_sentence(tmp_path: Path) -> None:
    path = layouts.confusius()(tmp_path)
    metadata = sorted(path.rglob("zarr.json"))
    assert len(metadata) > 3
    for file in metadata:
        content = json.loads(file.read_bytes())
        if content["node_type"] == "group":
            content.pop("consolidated_metadata", None)
            file.write_text(json.dumps(content))
        else:
            file.write_bytes(b"\xff" + file.read_bytes())
    done = python("from usdenoise.cli import main; main()", "info", path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is damaged: it cannot be read as a Zarr group" in done.stderr
