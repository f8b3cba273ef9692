"""The progress of a batch on stderr: bars on a terminal, otherwise one line for each finished scan."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from usdenoise.cli.console import DETAIL, NOTE, WARNING, Console, print_json
from usdenoise.cli.time_left import Clock

if TYPE_CHECKING:
    from usdenoise.jobs.batch import Decision, Row, Scan

_LONGEST_NAME = 22


class BatchView:
    """A watcher of a batch.

    It prints a line for each finished scan, on a terminal only for those that failed: there a bar counts the scans,
    and below it are those that run. With --json each row is also printed on stdout.

    Parameters
    ----------
    console : Console
        Console for the lines and bars.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = Clock()
        self._total = 0
        self._counts: Counter[str] = Counter()

    def planned(self, decisions: "Mapping[Scan, Decision]") -> None:
        """Begin to count the scans."""
        self._total = len(decisions)
        self._console.begin("scans", self._total)

    def started(self, scan: "Scan") -> None:
        """Show a scan that runs."""
        self._console.say(f"start     {scan.name}", DETAIL)
        self._console.begin("scan", None, scan.name)
        self._console.advance(0, _short(scan.name), scan.name)

    def finished(self, row: "Row") -> None:
        """Print the outcome of a scan, and the time that the remaining scans may take."""
        self._console.end(row.scan)
        self._counts[row.status] += 1
        over = self._counts.total()
        if self._console.as_json:
            print_json({name: value for name, value in vars(row).items() if value not in (None, "")})
        count = f"{over:>{len(str(self._total))}}/{self._total}"
        level = WARNING if row.error else DETAIL if self._console.is_animated else NOTE
        self._console.say(f"{row.status:<8}  {count}  {row.scan}  {_outcome(row)}".rstrip(), level)
        # Skipped scans take no time.
        skipped = self._counts["skipped"]
        left = self._clock.left(over - skipped, self._total - skipped)
        counts = ", ".join(f"{number} {status}" for status, number in self._counts.items())
        self._console.advance(over, "; ".join(filter(None, (f"{count}: {counts}", left))))


def _short(name: str) -> str:
    """Return the last parts of a long name, which leave room for the bar on a line of 80 characters."""
    end = name[-_LONGEST_NAME:]
    return name if end == name else "…" + (re.sub("^[^/_.-]*", "", end) or end)


def _outcome(row: "Row") -> str:
    from usdenoise.jobs.batch import Status

    seconds = f"{row.seconds:.1f} s" if row.status == Status.DONE else ""
    return row.error or ", ".join(filter(None, (seconds, row.remark)))
