"""``usdenoise reproduce``."""

import sys
import textwrap
from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, print_json, print_table

WIDTH = 80


@click.command("reproduce", short_help="Do the paper's experiments, and check its claims.")
@click.argument("names", nargs=-1, metavar="[NAME...|all]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=Path("usdenoise-reproduce"),
    help="Folder of the results.  [default: usdenoise-reproduce]",
)
@click.option(
    "--seeds",
    "n_seeds",
    type=click.IntRange(1),
    metavar="N",
    help="Random problems of each 10 x 10 setting.  [default: 10, or 3 with --quick]",
)
@click.option("--quick", is_flag=True, help="Fewer seeds and a small phantom: under three minutes in all.")
@click.option(
    "--acquisition",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A stack of your own for the ultrasound experiments.",
)
@shared.reading_options
@click.option("--threads", type=click.IntRange(1), help="Threads; by default all processors.")
@shared.overwrite_option
@shared.json_option
@shared.verbosity_options
def command(
    names: tuple[str, ...],
    output: Path,
    n_seeds: int | None,
    quick: bool,
    acquisition: Path | None,
    threads: int | None,
    overwrite: bool,
    as_json: bool,
    quiet: int,
    verbose: int,
    **reading: Any,
) -> None:
    """Do the experiments NAME... of the seed paper, or all of them, and check what is claimed.

    Without a name, lists them. Each writes a picture, the curves, a record, and a table of claims that
    held or did not hold.
    """
    from usdenoise.experiments.catalogue import EXPERIMENTS

    if not names:
        titles = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
        if as_json:
            print_json({"experiments": titles})
        else:
            print_table(titles.items())
        return
    unknown = [name for name in names if name not in EXPERIMENTS and name != "all"]
    if unknown:
        raise click.UsageError(
            f"there is no experiment '{unknown[0]}'; give all, or some of {', '.join(EXPERIMENTS)}"
        )
    chosen = list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    given = shared.given(reading)
    if given and acquisition is None:
        raise click.UsageError("options on how to read a stack need one: give --acquisition FILE")

    from usdenoise.experiments.run_experiments import reproduce
    from usdenoise.experiments.setup import Setup

    with Console(quiet, verbose) as console:
        console.begin("experiments", len(chosen))
        finished: list[str] = []

        def advance(name: str) -> None:
            finished.append(name)
            console.advance(len(finished), f"{len(finished)}/{len(chosen)}")

        try:
            summary = reproduce(
                chosen,
                output,
                Setup(n_seeds, quick, acquisition, given, threads, console.say),
                overwrite=overwrite,
                command=["usdenoise", *sys.argv[1:]],
                on_done=advance,
            )
        except KeyboardInterrupt as error:
            error.add_note(f"{len(finished)} of {len(chosen)} experiments are written")
            raise
    if as_json:
        print_json(summary)
    elif not quiet:
        _print(summary, output)


def _print(summary: dict[str, Any], output: Path) -> None:
    for name, experiment in summary["experiments"].items():
        click.echo(f"{name}: {experiment['title']} ({experiment['seconds']:.0f} s)")
        for claim in experiment["claims"]:
            verdict = "held" if claim["held"] else "not held"
            head = f"  {verdict:<8}  {claim['figure']:>15}  "
            lines = textwrap.wrap(claim["statement"], WIDTH - len(head), break_on_hyphens=False)
            click.echo(head + f"\n{' ' * len(head)}".join(lines))
        click.echo()
    click.echo(f"{summary['held']} of {summary['claims']} claims held; the results are in {output}")
