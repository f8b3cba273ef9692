"""``usdenoise reproduce``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, print_json, print_lines, two_columns, typed_command
from usdenoise.cli.flags import GroupedCommand
from usdenoise.cli.job_view import JobView
from usdenoise.options import DenoiseOptions, JobOptions, ReproduceOptions


def _experiments(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from usdenoise.experiments.run_experiments import EXPERIMENTS

    return [name for name in (*EXPERIMENTS, "all") if name.startswith(incomplete)]


@click.command(
    "reproduce",
    cls=GroupedCommand,
    examples=[
        ("usdenoise reproduce", "List the experiments"),
        ("usdenoise reproduce one-bit phase -o out --quick", "Repeat two of them with fewer seeds"),
    ],
)
@click.argument("names", nargs=-1, metavar="[NAME...|all]", shell_complete=_experiments)
@shared.flags_of(JobOptions, "output", default=Path("usdenoise-reproduce"), show_default=True)
@shared.flags_of(ReproduceOptions)
@shared.flags_of(DenoiseOptions, "threads")
@shared.flags_of(JobOptions, "overwrite")
@shared.messages
def command(
    names: tuple[str, ...], output: Path, threads: int | None, console: Console, **values: Any
) -> None:
    """Repeat the paper's experiments NAME..., or all of them, and check its claims.

    Without a name, the command lists the experiments. Each experiment writes a picture, its curves, and a record with
    its claims.
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
            f"unknown experiment '{unknown[0]}'; give all, or names of {', '.join(EXPERIMENTS)}"
        )
    chosen = list(EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    summary = reproduce(
        chosen,
        output,
        Setup(values["n_seeds"], values["quick"], threads, JobView(console)),
        overwrite=values["overwrite"],
        command=typed_command(),
    )
    console.show(summary, lambda: [*_claims(summary), f"the results are in {output}"])


def _claims(summary: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that show the claims, by experiment and in total."""
    for name, experiment in summary["experiments"].items():
        yield f"{name}: {experiment['title']} ({experiment['seconds']:.0f} s)"
        for claim in experiment["claims"]:
            verdict = "held" if claim["held"] else "NOT HELD"
            yield f"  {claim['statement']}"
            yield f"    {verdict:<8}  {claim['number']:>11}  ({claim['bound']})"
        yield ""
    yield f"{summary['held']} of {summary['claims']} claims held"
