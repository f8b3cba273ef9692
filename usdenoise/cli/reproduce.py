"""``usdenoise reproduce``."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, print_json, print_lines, two_columns, typed_command
from usdenoise.cli.option_groups import GroupedCommand, flag_option
from usdenoise.cli.option_types import PathType
from usdenoise.options import ReadOptions
from usdenoise.options.declaration import Group

WIDTH = 80


def _experiments(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from usdenoise.experiments.run_experiments import EXPERIMENTS

    return [name for name in (*EXPERIMENTS, "all") if name.startswith(incomplete)]


@click.command(
    "reproduce",
    cls=GroupedCommand,
    examples=[
        ("usdenoise reproduce", "List the experiments"),
        ("usdenoise reproduce one-bit phase -o out --quick", "Repeat two of them with fewer seeds"),
        (
            "usdenoise reproduce ultrasound --acquisition scan.h5",
            "Repeat the ultrasound experiment on your own stack",
        ),
    ],
)
@click.argument("names", nargs=-1, metavar="[NAME...|all]", shell_complete=_experiments)
@shared.output_option(default=Path("usdenoise-reproduce"), show_default=True)
@flag_option(
    Group.EXPERIMENTS,
    "--seeds",
    "n_seeds",
    type=click.IntRange(1),
    metavar="N",
    show_default="10, or 2 with --quick",
    help="Number of random seeds for each 10 x 10 experiment.",
)
@flag_option(
    Group.EXPERIMENTS,
    "--quick",
    is_flag=True,
    help="Use fewer seeds, only the paper's gradient, and a small phantom: all experiments take less than a minute.",
)
@flag_option(
    Group.INPUT,
    "--acquisition",
    type=PathType(),
    metavar="FILE",
    help="Your own stack for the ultrasound experiments, instead of a phantom.",
)
@shared.reading_options
@shared.threads_option(Group.EXPERIMENTS)
@shared.overwrite_option
@shared.messages
def command(
    names: tuple[str, ...],
    output: Path,
    n_seeds: int | None,
    quick: bool,
    acquisition: Path | None,
    threads: int | None,
    overwrite: bool,
    console: Console,
    **reading: Any,
) -> None:
    """Repeat the paper's experiments NAME..., or all of them, and check its claims.

    Without a name, the command lists the experiments. Each experiment writes a picture, its curves, a record, and
    a table that says which claims held, in the paper's own reading and from other starts and with other gradients.
    """
    from usdenoise.experiments.run_experiments import EXPERIMENTS, reproduce
    from usdenoise.experiments.setup import Setup

    if not names:
        titles = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
        if console.as_json:
            print_json({"experiments": titles})
        else:
            print_lines(two_columns(titles.items()))
        return
    unknown = [name for name in names if name not in EXPERIMENTS and name != "all"]
    if unknown:
        raise click.UsageError(
            f"there is no experiment '{unknown[0]}'; give all, or some of {', '.join(EXPERIMENTS)}"
        )
    chosen = list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    given = shared.given(ReadOptions, reading)
    if given and acquisition is None:
        raise click.UsageError(
            "reading options such as --axes are for a stack of your own; give --acquisition FILE"
        )

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
            command=typed_command(),
            on_done=advance,
        )
    except KeyboardInterrupt as error:
        error.add_note(f"{len(finished)} of {len(chosen)} experiments are written")
        raise
    console.show(summary, lambda: [*_claims(summary), f"the results are in {output}"])


def _claims(summary: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that say which claims held, by experiment and in total."""
    for name, experiment in summary["experiments"].items():
        yield f"{name}: {experiment['title']} ({experiment['seconds']:.0f} s)"
        statements: dict[str, list[dict[str, Any]]] = {}
        for claim in experiment["claims"]:
            statements.setdefault(claim["statement"], []).append(claim)
        for statement, claims in statements.items():
            text = f"{statement}: {claims[0]['wanted']}"
            yield from textwrap.wrap(
                text, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
            )
            for claim in claims:
                verdict = "held" if claim["held"] else "not held"
                yield f"    {verdict:<8}  {claim['figure']:>15}  {claim['reading']}"
        yield ""
    for reading, count in summary["by_reading"].items():
        yield f"{reading}: {count['held']} of {count['claims']} claims held"
