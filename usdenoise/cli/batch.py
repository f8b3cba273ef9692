"""``usdenoise batch``, and its progress on stderr."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import (
    DETAIL,
    NOTE,
    WARNING,
    Clock,
    Console,
    print_json,
    print_line,
    two_columns,
    typed_command,
)
from usdenoise.cli.flags import GroupedCommand, PathType
from usdenoise.cli.main import FAILED
from usdenoise.cli.shared_options import config_option
from usdenoise.options import BatchOptions, DenoiseOptions, Display, JobOptions, Output
from usdenoise.options.job_options import NO_PRODUCTS

if TYPE_CHECKING:
    from usdenoise.jobs.batch import BatchReport
    from usdenoise.jobs.batch_table import Scan
    from usdenoise.report.pages import Row

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

    def planned(self, rows: "Mapping[Scan, Row]") -> None:
        """Begin to count the scans."""
        self._total = len(rows)
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
        seconds = f"{row.seconds:.1f} s" if row.status == "done" else ""
        outcome = row.error or ", ".join(filter(None, (seconds, row.remark)))
        self._console.say(f"{row.status:<8}  {count}  {row.scan}  {outcome}".rstrip(), level)
        # Skipped scans take no time.
        skipped = self._counts["skipped"]
        left = self._clock.left(over - skipped, self._total - skipped)
        counts = ", ".join(f"{number} {status}" for status, number in self._counts.items())
        self._console.advance(over, "; ".join(filter(None, (f"{count}: {counts}", left))))


def _short(name: str) -> str:
    """Return the last parts of a long name, which leave room for the bar on a line of 80 characters."""
    end = name[-_LONGEST_NAME:]
    return name if end == name else "…" + (re.sub("^[^/_.-]*", "", end) or end)


@click.command(
    "batch",
    cls=GroupedCommand,
    examples=[
        ("usdenoise batch scans -o out --jobs 2", "Filter all scans below the folder scans, two at a time"),
        ("usdenoise batch scans -o out --dry-run", "Show what a second call would skip or run, and why"),
        (
            "usdenoise batch scans -o out --pattern 'day1/*.h5' --low-cutoff 5",
            "Filter only the scans of one subfolder, with a fixed cutoff",
        ),
    ],
)
@click.argument("paths", nargs=-1, required=True, type=PathType(readable=False), metavar="PATH...")
@shared.reading_flags
@config_option
@shared.flags_of(JobOptions, "patterns")
@shared.flags_of(BatchOptions, "jobs", "dry_run")
@shared.flags_of(DenoiseOptions, "low_cutoff", "high_cutoff", "rank", "bad_frames", "method", "seed")
@shared.flags_of(JobOptions, "preset")
@shared.short_estimator_option
@shared.flags_of(JobOptions, "output", required=True)
@shared.flags_of(JobOptions, "overwrite")
@shared.flags_of(Output)
@shared.flags_of(BatchOptions, "flat")
@shared.flags_of(Display, "dynamic_range")
@shared.flags_of(JobOptions, "memory", "dask")
@shared.messages
def command(paths: tuple[Path, ...], output: Path, console: Console, **values: Any) -> None:
    """Denoise many acquisitions: every file PATH, and every acquisition in a folder PATH.

    Each one is filtered by a process of `usdenoise run`. DIR mirrors the tree of the scans. The same command again
    resumes: it skips scans with complete results, unless their input, the options or the version changed. The
    processors are divided among the scans that run at a time. The page index.html and the tables batch.csv and
    batch.json are written to the top of DIR; the page can be opened while the batch runs. --json prints a line for
    each scan, then a summary.
    """
    batch = BatchOptions(**shared.requested(BatchOptions, values))
    if batch.flat and values["method"] == "svd" and values["products"] is None:
        # Exact stacks in one folder are for localisation, where no map of the blood is judged.
        values["products"] = NO_PRODUCTS
    arguments = shared.job_arguments(values)
    dask = arguments.pop("dask", None)
    selection: dict[str, Any] = {name: arguments.pop(name) for name in ("patterns", "overwrite")}
    selection["arguments"] = arguments
    from usdenoise.jobs.batch import plan_batch, run_batch

    if batch.dry_run:
        for row in plan_batch(paths, output, **selection).values():
            action = "skip" if row.status == "skipped" else "run"
            if console.as_json:
                print_json({"scan": row.scan, "path": row.path, "folder": row.folder,
                            "action": action, "reason": row.reason})  # fmt: skip
            else:
                print_line(f"{action:<4}  {row.scan}  ({row.reason})")
        return
    report = run_batch(
        paths,
        output,
        **selection,
        flat=batch.flat,
        jobs=batch.jobs,
        dask=dask,
        command=typed_command(),
        watcher=BatchView(console),
    )
    console.show({"summary": report.summary}, lambda: two_columns(_summary_rows(report)))
    if not report.all_done:
        click.get_current_context().exit(FAILED)


def _summary_rows(report: "BatchReport") -> list[tuple[str, str]]:
    from usdenoise.report.pages import Status

    summary = report.summary
    counts = [f"{summary[status.key]} {status}" for status in Status if summary[status.key]]
    rows = [("scans", f"{summary['scans']}: {', '.join(counts)}"), ("time", f"{summary['seconds']:.1f} s")]
    rows += [("failed", f"{row.scan}: {row.error}") for row in report.rows if row.error]
    rows += [("check", f"{row.scan}: {row.doubts}") for row in report.rows if row.doubts]
    return rows + [("wrote", name) for name in summary["output"].values()]
