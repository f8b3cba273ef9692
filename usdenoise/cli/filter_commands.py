"""The commands that filter: ``usdenoise run``, ``session`` and ``batch``, and the progress of a batch on stderr."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from usdenoise.cli import flags
from usdenoise.cli.console import Clock, Console, JobView, print_json, print_line, show_summary, typed_command
from usdenoise.cli.main import FAILED
from usdenoise.options import BatchOptions, DenoiseOptions, Display, JobOptions, Output, SessionOptions
from usdenoise.options.job_options import NO_PRODUCTS, ModelKeywords

if TYPE_CHECKING:
    from usdenoise.clutter.clutter_cutoff import CommonCutoff
    from usdenoise.jobs.batch import BatchReport
    from usdenoise.jobs.batch_table import Scan
    from usdenoise.report.pages import Row


@click.command(
    "run",
    cls=flags.GroupedCommand,
    often=("--output", "--overwrite", "--axes", "--frame-rate", "--spacing", "--low-cutoff"),
    examples=[
        ("usdenoise run scan.h5", "Filter scan.h5 with automatic settings; the results go to scan-usdenoise"),
        (
            "usdenoise run scan.h5 -o out --low-cutoff 5 --products power,velocity",
            "Remove five components as clutter, and map the velocity too",
        ),
        (
            "usdenoise run scan.h5 -o more --rank 40 --estimator iterations=30",
            "Estimate 40 components in up to 30 iterations",
        ),
    ],
)
@click.argument("acquisition", type=flags.PathType(readable=False))
@flags.reading_flags
@flags.config_option
@flags.flags_of(
    DenoiseOptions, "low_cutoff", "high_cutoff", "rank", "bad_frames", "method", "seed", "threads", "device"
)
@flags.flags_of(JobOptions, "preset")
@flags.estimator_option
@flags.flags_of(JobOptions, "output", show_default="<stem>-usdenoise")
@flags.flags_of(JobOptions, "overwrite")
@flags.flags_of(Output)
@flags.flags_of(JobOptions, "bids")
@flags.flags_of(Display)
@flags.flags_of(JobOptions, "memory", "dask")
@flags.messages
def run(acquisition: Path, output: Path | None, console: Console, **values: object) -> None:
    """Denoise or clutter-filter ACQUISITION, a stack of beamformed frames.

    The file may be HDF5, MATLAB, UFF, zea, NumPy, Zarr or Iconeus IQ. The results are the filtered stack, the blood map and
    the power Doppler image as pictures and as numbers, and a report, also as a page for the browser. No option is
    required: the rank and the low cutoff are chosen from the data, and the report gives the reason.
    """
    arguments = flags.job_arguments(values)
    from usdenoise.files.bids import is_recording_of_bids
    from usdenoise.jobs import run_job
    from usdenoise.system.resources import use_one_heap

    use_one_heap()
    bids = arguments.get("bids")
    if bids is None and arguments["output"].nifti and is_recording_of_bids(acquisition):
        bids = "auto"
    arguments["bids"] = None if bids == "none" else bids
    watcher = JobView(console, arguments["options"].iterations)
    report = run_job.run(acquisition, output, **arguments, command=typed_command(), watcher=watcher)
    show_summary(console, report)


@click.command(
    "session",
    cls=flags.GroupedCommand,
    often=(
        *("--output", "--overwrite", "--axes", "--frame-rate", "--spacing", "--block-interval"),
        *("--window", "--events", "--region", "--live", "--low-cutoff"),
    ),
    examples=[
        ("usdenoise session blocks -o out", "One time series from the files of a folder, each a block"),
        ("usdenoise session long.h5 --window 300 -o out", "The same from a long file, 300 frames a block"),
        (
            "usdenoise session blocks --poses 5 --pose-step 0.4 -o out",
            "Blocks of five positions of the probe in turn, 0.4 mm apart",
        ),
        (
            "usdenoise session blocks -o out --live --until-idle 30",
            "Show pictures while the files arrive, until none arrives for 30 s",
        ),
    ],
)
@click.argument("paths", nargs=-1, required=True, type=flags.PathType(), metavar="PATH...")
@flags.reading_flags
@flags.config_option
@flags.flags_of(JobOptions, "patterns")
@flags.flags_of(SessionOptions)
@flags.flags_of(JobOptions, "regions")
@flags.flags_of(DenoiseOptions, "low_cutoff", "bad_frames", "device")
@flags.short_estimator_option
@flags.flags_of(JobOptions, "output", required=True)
@flags.flags_of(JobOptions, "overwrite")
@flags.flags_of(Output, "nifti", "gzip")
@flags.flags_of(JobOptions, "bids", "dask")
@flags.flags_of(Display, "dynamic_range", "color_map", "figure_formats", "dpi", "scale_bar_mm")
@flags.messages
def session(paths: tuple[Path, ...], output: Path, console: Console, **values: object) -> None:
    """Filter the blocks of a session, and make one time series of them.

    PATHS are files of one block each, a folder of them, or, with --window, one long file. Blocks that
    share their tissue lose the same clutter components, so the series is steady. The results are the series of blood power
    and of power Doppler, their means, a table of the blocks, pictures and a page. The same command resumes a stopped
    session.
    """
    arguments = flags.job_arguments(values)
    session_options = SessionOptions(**flags.requested(SessionOptions, values))
    arguments["regions"] = _named(arguments["regions"])
    if arguments.get("bids") == "none":
        del arguments["bids"]
    from usdenoise.jobs.session_job import run_session
    from usdenoise.system.resources import use_one_heap

    use_one_heap()
    if session_options.live:
        console.say(f"page: {output / 'live.html'}")
    arguments["session_options"] = session_options
    watcher = JobView(console, arguments["options"].iterations)
    report = run_session(paths, output, **arguments, command=typed_command(), watcher=watcher)
    if "sequence" in report:
        show_summary(console, report)
        return
    # The files of a live session were removed before its end.
    for sentence in report["notes"]:
        console.warn(sentence)
    console.show_rows(report, [("wrote", path) for path in report["output"].values()])


@click.command(
    "model",
    cls=flags.GroupedCommand,
    often=("--output", "--overwrite", "--events", "--region"),
    examples=[
        ("usdenoise model mouse_sequence.h5 --events other.tsv -o model", "Other events, nothing filtered"),
        ("usdenoise model rest.scan --region v1=mask.png -o model", "Regions of the power of a scanner"),
        ("usdenoise model --collect day1 day2 -o group", "Responses in many sessions as one table"),
    ],
)
@click.argument("series", nargs=-1, required=True, type=flags.PathType(), metavar="SERIES")
@flags.config_option
@flags.flags_of(SessionOptions, "events", *ModelKeywords.__annotations__)
@flags.flags_of(JobOptions, "regions", "collect")
@flags.reading_flags
@flags.flags_of(JobOptions, "output", required=True)
@flags.flags_of(JobOptions, "overwrite")
@flags.flags_of(Output, "nifti", "gzip")
@flags.flags_of(Display, "dynamic_range", "color_map", "figure_formats", "dpi", "scale_bar_mm")
@flags.messages
def model(series: tuple[Path, ...], output: Path, console: Console, **values: object) -> None:
    """Map the activation, and follow regions, in a series of power images that exists.

    SERIES is what `usdenoise session` has written (*_sequence.h5, .mat or .zarr, also of several positions), or power
    Doppler of others: .scan of Iconeus, NIfTI with four axes, Zarr of ConfUSIus, or a file with a real stack.
    """
    if values["collect"]:
        from usdenoise.jobs.collect_job import collect

        joined = collect(series, output, bool(values["overwrite"]))
        counts = [(name, str(joined[f"n_{name}"])) for name in ("sessions", "rows")]
        console.show_rows(joined, [*counts, *joined["output"].items()])
        return
    if len(series) > 1:
        raise click.BadParameter("give one series, or folders of results with --collect", param_hint="SERIES")
    arguments = flags.job_arguments({**values, "estimator": ()})
    session_options = SessionOptions(**flags.requested(SessionOptions, values))
    arguments["regions"] = _named(arguments["regions"])
    from usdenoise.jobs.model_job import run_model

    arguments |= {"command": typed_command(), "watcher": JobView(console)}
    report = run_model(series[0], output, session_options, **arguments)
    show_summary(console, report)


def _named(regions: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the regions of a command by their names, of which no two may be the same."""
    if len(dict(regions)) < len(regions):
        raise click.BadParameter("two regions have the same name", param_hint="--region")
    return dict(regions)


_LONGEST_NAME = 22


class BatchView:
    """A watcher of a batch.

    It counts the scans, and prints a line for each one that failed or is doubtful, with -v for all. With --json each row is
    also printed on stdout.

    Parameters
    ----------
    console : Console
        Console for the lines and bars.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clock = Clock()
        self._total = self._n_complete = 0
        self._counts: Counter[str] = Counter()

    def estimating(self, n_scans: int) -> None:
        """Print from how many scans the common cutoff follows."""
        self._console.say(f"the common cutoff is estimated from {n_scans} scans")

    def chosen(self, common: "CommonCutoff") -> None:
        """Print the common cutoff."""
        level = Console.WARNING if common.certainty == "unsure" else Console.NOTE
        self._console.say(f"cutoff    {common.words}", level)

    def planned(self, rows: "Mapping[Scan, Row]") -> None:
        """Begin to count the scans."""
        self._total, self._clock = len(rows), Clock()
        self._console.begin("scans", self._total)

    def started(self, scan: "Scan") -> None:
        """Show a scan that runs."""
        self._console.say(f"start     {scan.name}", Console.DETAIL)
        self._console.begin("scan", None, scan.name)
        # The last parts of a long name leave room for the bar on a line of 80 characters.
        end = scan.name[-_LONGEST_NAME:]
        shown = end if end == scan.name else "…" + (re.sub("^[^/_.-]*", "", end) or end)
        self._console.advance(0, shown, scan.name)

    def finished(self, row: "Row") -> None:
        """Print the outcome of a scan, and the time that the remaining scans may take."""
        self._console.end(row.scan)
        self._counts[row.status] += 1
        over = self._counts.total()
        if self._console.as_json:
            print_json({name: value for name, value in vars(row).items() if value not in (None, "")})
        count = f"{over:>{len(str(self._total))}}/{self._total}"
        is_complete = row.reason == "complete"
        is_doubtful = bool(row.doubts) and not is_complete
        level = Console.WARNING if row.error else Console.NOTE if is_doubtful else Console.DETAIL
        how = row.reason if is_complete else f"{row.seconds:.1f} s" if row.seconds is not None else ""
        outcome = row.error or ", ".join(filter(None, (how, row.remark)))
        self._console.say(f"{row.status:<8}  {count}  {row.scan}  {outcome}".rstrip(), level)
        # Scans with results take no time.
        self._n_complete += is_complete
        left = self._clock.left(over - self._n_complete, self._total - self._n_complete)
        counts = ", ".join(f"{number} {status}" for status, number in self._counts.items())
        self._console.advance(over, "; ".join(filter(None, (f"{count}: {counts}", left))))

    def ended(self, report: "BatchReport") -> None:
        """Print the summary, also of a batch that is interrupted."""
        self._console.show_rows({"summary": report.summary}, _summary_rows(report))


@click.command(
    "batch",
    cls=flags.GroupedCommand,
    often=("--output", "--pattern", "--dry-run", "--jobs", "--axes", "--frame-rate", "--low-cutoff"),
    examples=[
        ("usdenoise batch scans -o out --jobs 2", "Filter all scans below the folder scans, two at a time"),
        ("usdenoise batch scans -o out --dry-run", "Show what a second call would skip or run, and why"),
        (
            "usdenoise batch scans -o out --pattern 'day1/*.h5' --low-cutoff 5",
            "Filter only the scans of one subfolder, with a fixed cutoff",
        ),
    ],
)
@click.argument("paths", nargs=-1, required=True, type=flags.PathType(readable=False), metavar="PATH...")
@flags.reading_flags
@flags.config_option
@flags.flags_of(JobOptions, "patterns")
@flags.flags_of(BatchOptions, "jobs", "dry_run", "low_cutoff")
@flags.flags_of(DenoiseOptions, "high_cutoff", "rank", "bad_frames", "method", "seed")
@flags.flags_of(JobOptions, "preset")
@flags.short_estimator_option
@flags.flags_of(JobOptions, "output", required=True)
@flags.flags_of(JobOptions, "overwrite")
@flags.flags_of(Output)
@flags.flags_of(BatchOptions, "flat")
@flags.flags_of(Display, "dynamic_range", "color_map", "dpi", "scale_bar_mm")
@flags.flags_of(JobOptions, "memory", "dask")
@flags.messages
def batch(paths: tuple[Path, ...], output: Path, console: Console, **values: object) -> None:
    """Denoise many acquisitions: every file PATH, and every acquisition in a folder PATH.

    Each one is filtered as by `usdenoise run`. DIR mirrors the tree of the scans. The same command again
    resumes: it skips scans with complete results, unless their input, the options or the version changed. The
    processors are divided among the scans that run at a time. The page index.html and the tables batch.csv and
    batch.json are written to the top of DIR; the page can be opened while the batch runs. --json prints a line for
    each scan, then a summary.
    """
    batch_options = BatchOptions(**flags.requested(BatchOptions, values))
    is_common = batch_options.low_cutoff == "common"
    if is_common:
        # It wins over the cutoff of a preset.
        values["low_cutoff"] = "auto"
    if batch_options.flat and values["method"] == "svd" and values["products"] is None:
        # Exact stacks in one folder are for localisation, where no map of the blood is judged.
        values["products"] = NO_PRODUCTS
    arguments = flags.job_arguments(values)
    dask = arguments.pop("dask", None)
    selection = {name: arguments.pop(name) for name in ("patterns", "overwrite")}
    selection |= {"arguments": arguments, "common_cutoff": is_common}
    from usdenoise.jobs.batch import plan_batch, run_batch

    if batch_options.dry_run:
        for row in plan_batch(paths, output, **selection).values():
            action = "skip" if row.status == "done" else "run"
            if console.as_json:
                print_json({"scan": row.scan, "path": row.path, "folder": row.folder,
                            "action": action, "reason": row.reason})  # fmt: skip
            else:
                print_line(f"{action:<4}  {row.scan}  ({row.reason})")
        return
    selection |= {"flat": batch_options.flat, "jobs": batch_options.jobs, "dask": dask}
    report = run_batch(paths, output, **selection, command=typed_command(), watcher=BatchView(console))
    if not report.all_done:
        click.get_current_context().exit(FAILED)


def _summary_rows(report: "BatchReport") -> list[tuple[str, str]]:
    from usdenoise.report.pages import Status

    summary = report.summary
    counts = [f"{summary[status.key]} {status}" for status in Status if summary[status.key]]
    rows = [("scans", f"{summary['scans']}: {', '.join(counts)}"), ("time", f"{summary['seconds']:.1f} s")]
    if report.common is not None:
        rows.append(("cutoff", report.common.words))
    rows += [("failed", f"{row.scan}: {row.error}") for row in report.rows if row.error]
    rows += [("check", f"{row.scan}: {row.doubts}") for row in report.rows if row.doubts]
    return rows + [("wrote", name) for name in summary["output"].values()]
