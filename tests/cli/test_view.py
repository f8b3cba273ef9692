"""``usdenoise view``: which address it opens, and what it says where there is no browser."""

import json
import webbrowser
from pathlib import Path

import pytest

from tests.cli.shared import cli, refused


@pytest.mark.parametrize("found", [True, False])
def test_the_page_is_opened_or_named(found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return found

    monkeypatch.setattr(webbrowser, "open", browse)
    page = tmp_path / "a b" / "x_report.html"
    page.parent.mkdir()
    page.touch()
    result = cli("view", page.parent)
    assert (result.exit_code, result.stdout) == (0, f"page  {page}\n")
    hint = "warning: no browser was found here; copy the page to a computer that has one: it needs no other file\n"
    assert result.stderr == ("" if found else hint)
    assert opened == [page.as_uri()]
    result = cli("view", page, page.parent, "--json", "-qq")
    assert json.loads(result.stdout) == {"pages": [str(page)] * 2, "opened": [found] * 2}
    assert result.stderr == ""


def test_what_has_no_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", pytest.fail)
    refused(cli("view", tmp_path), "has no page; make one with usdenoise run --overwrite, without --no-html")
