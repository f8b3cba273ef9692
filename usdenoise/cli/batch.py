"""``usdenoise batch``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.batch_view import make_view
from usdenoise.cli.configured import ConfiguredCommand, config_option
from usdenoise.cli.console import Console, print_json, print_table
from usdenoise.cli.main import FAILED

if TYPE_CHECKING:
    from usdenoise.batch import BatchReport


@click.command("batch", cls=ConfiguredCommand, short_help="Denoise many acquisitions, resumably.")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder of all results; the tree of the scans is mirrored in it.",
)
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Names of the scans in folders, e.g. '*.mat'; again for another.  [default: by their suffixes]",
)
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Scans at a time, as memory allows."
)
@click.option("--stop-on-error", is_flag=True, help="Start no more scans after the first failure.")
@click.option("--retry-failed", is_flag=True, help="Try scans again that failed and would fail again.")
@click.option("--dry-run", is_flag=True, help="Say what would be done with each scan, and why.")
@shared.job_options
@config_option
@click.option("--overwrite", is_flag=True, help="Do every scan again, also those that are whole.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object a line: each scan, then a summary."
)
@shared.verbosity_options
def command(
    paths: tuple[Path, ...],
    output: Path,
    patterns: tuple[str, ...],
    jobs: int,
    stop_on_error: bool,
    retry_failed: bool,
    dry_run: bool,
    preset: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: int,
    verbose: int,
    **values: Any,
) -> None:
    """Denoise every acquisition that PATH names or holds, each as `usdenoise run` does.

    Run it again to resume: scans whose results are whole are skipped, unless their input, the options or the
    version changed. --threads is the number for all scans at a time together. Writes batch.csv, batch.json and
    contact_sheet.png to the top of DIR.
    """
    selection: dict[str, Any] = {
        "arguments": shared.job_arguments(preset, values),
        "patterns": patterns,
        "overwrite": overwrite,
        "retry_failed": retry_failed,
    }
    from usdenoise.batch import plan_batch, run_batch

    if dry_run:
        _print_plan(plan_batch(paths, output, **selection), as_json)
        return
    with make_view(Console(quiet, verbose), as_json) as view:
        report = run_batch(
            paths,
            output,
            **selection,
            jobs=jobs,
            stop_on_error=stop_on_error,
            command=["usdenoise", *sys.argv[1:]],
            watcher=view,
        )
    if as_json:
        print_json({"summary": report.summary})
    elif not quiet:
        print_table(_rows(report))
    if not report.all_done:
        click.get_current_context().exit(FAILED)


def _print_plan(decisions: Any, as_json: bool) -> None:
    for scan, decision in decisions.items():
        if as_json:
            print_json({"scan": scan.name, "path": str(scan.path), "folder": str(scan.folder),
                        "action": decision.action, "reason": decision.reason})  # fmt: skip
        else:
            print_table([(f"{decision.action:<11}", f"{scan.name}  ({decision.reason})")])


def _rows(report: "BatchReport") -> list[tuple[str, str]]:
    summary = report.summary
    counts = [f"{summary[key]} {key.replace('_', ' ')}" for key in ("done", "skipped", "failed", "not_run")]
    rows = [("scans", f"{summary['scans']}: {', '.join(counts)}"), ("time", f"{summary['seconds']:.1f} s")]
    rows += [("failed", f"{row.scan}: {row.error}") for row in report.rows if row.error]
    unsure = [row.scan for row in report.rows if row.cutoff_certainty == "unsure"]
    if unsure:
        rows.append(("look at", f"{', '.join(unsure)}: the low cutoff is unsure"))
    return rows + [("wrote", name) for name in summary["output"].values()]
