"""The progress of a batch on stderr: a live table on a terminal, otherwise one line for each finished scan."""

import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from usdenoise.cli.console import DETAIL, NOTE, WARNING, Console, duration, print_json
from usdenoise.system.printable import printable

if TYPE_CHECKING:
    from usdenoise.batch import Decision, Row, Scan

_FAILURES_SHOWN = 3


class LineView:
    """A watcher of a batch that prints one line on stderr for each finished scan.

    Parameters
    ----------
    console : Console
        Console for the lines, which holds the level of -q and -v.
    as_json : bool
        Whether each row is also printed as a JSON object on stdout.
    """

    def __init__(self, console: Console, as_json: bool) -> None:
        self._console = console
        self._as_json = as_json
        self._total = 0
        self.over = 0

    def planned(self, decisions: "Mapping[Scan, Decision]") -> None:
        """Store the number of scans, for the count in each line."""
        self._total = len(decisions)

    def started(self, scan: "Scan", pid: int | None) -> None:
        """Print the process of a scan, with -v."""
        self._console.say(f"start    {scan.name}  (process {pid})", DETAIL)

    def progress(self, scan: "Scan", text: str) -> None:
        """Print the stage or iteration of a scan, with -v."""
        self._console.say(f"{text:<8} {scan.name}", DETAIL)

    def finished(self, row: "Row") -> None:
        """Print the outcome of a scan."""
        self.over += 1
        if self._as_json:
            print_json({name: value for name, value in vars(row).items() if value not in (None, "")})
        count = f"{self.over:>{len(str(self._total))}}/{self._total}"
        line = f"{row.status:<7}  {count}  {row.scan}  {_outcome(row)}"
        self._console.say(line, WARNING if row.error else NOTE)

    def tick(self) -> None:
        """Do nothing, as the lines do not move."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing, as there is no display to close."""


class LiveView(LineView):
    """A live table on the terminal: the totals, the running scans, and the last failures."""

    def __init__(self, console: Console, as_json: bool) -> None:
        super().__init__(console, as_json)
        from rich.console import Console as RichConsole
        from rich.live import Live

        self._running: dict[Scan, tuple[float, str]] = {}
        self._counts: Counter[str] = Counter()
        self._failures: deque[Row] = deque(maxlen=_FAILURES_SHOWN)
        self._began = time.monotonic()
        self._live = Live(
            console=RichConsole(stderr=True), transient=True, get_renderable=self._table, refresh_per_second=2
        )

    def started(self, scan: "Scan", pid: int | None) -> None:
        """Add the line of a scan."""
        self._running[scan] = (time.monotonic(), "starts")

    def progress(self, scan: "Scan", text: str) -> None:
        """Show the stage or iteration in the line of a scan."""
        self._running[scan] = (self._running[scan][0], text)

    def finished(self, row: "Row") -> None:
        """Remove the line of a scan, and count its outcome."""
        self.over += 1
        self._running = {scan: how for scan, how in self._running.items() if scan.name != row.scan}
        self._counts[row.status] += 1
        if row.error:
            self._failures.append(row)
        if self._as_json:
            print_json({name: value for name, value in vars(row).items() if value not in (None, "")})

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _left(self, seconds: float) -> str:
        """Return the expected time left in words, from the scans that were run so far."""
        run = self.over - self._counts["skipped"]
        waiting = self._total - self.over
        return f"; about {duration(seconds / run * waiting)} left" if run and waiting else ""

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(width=12, no_wrap=True)
        table.add_column(width=7, no_wrap=True, justify="right")
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        now = time.monotonic()
        counts = ", ".join(f"{number} {status}" for status, number in self._counts.items())
        left = self._left(now - self._began)
        table.add_row(
            f"{self.over}/{self._total}",
            _clock(now - self._began),
            Text(f"{counts}{left}" if counts else "no scan is finished yet"),
        )
        for scan, (began, text) in self._running.items():
            table.add_row(text, _clock(now - began), Text(printable(scan.name)))
        for row in self._failures:
            table.add_row("failed", "", Text(printable(f"{row.scan}: {row.error}")), style="red")
        return table


def make_view(console: Console, as_json: bool) -> LineView:
    """Return a live table if stderr is a terminal and neither -q nor -v is given, otherwise a view by lines."""
    live = console.level == NOTE and sys.stderr.isatty()
    return LiveView(console, as_json) if live else LineView(console, as_json)


def _outcome(row: "Row") -> str:
    if row.error:
        return row.error
    error = "-" if row.held_out_rmse is None else f"{row.held_out_rmse:.3g}"
    from usdenoise.batch import Status

    seconds = "" if row.status == Status.SKIPPED else f"{row.seconds:.1f} s, "
    return f"{seconds}{row.low_cutoff} removed ({row.cutoff_certainty}), held-out {error}, {row.verdict}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
