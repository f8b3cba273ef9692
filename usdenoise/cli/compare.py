"""``usdenoise compare``."""

import sys
from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, print_json, print_rows
from usdenoise.cli.main import FAILED


def _parameters(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    parameters: dict[str, dict[str, Any]] = {}
    for text in values:
        name, equals, value = text.partition("=")
        method, dot, key = name.partition(".")
        if not (method and dot and key and equals):
            raise click.BadParameter(f"'{text}' is not METHOD.NAME=VALUE, for example highpass.cutoff_hz=60")
        parameters.setdefault(method, {})[key.replace("-", "_")] = _value(value)
    return parameters


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


@click.command("compare", short_help="The same acquisition through several methods, side by side.")
@click.argument("acquisition", type=click.Path(path_type=Path))
@click.option(
    "-m",
    "--method",
    "methods",
    multiple=True,
    metavar="NAME",
    help="A method to run; again for another one.  [default: all]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the results.  [default: <stem>-comparison]",
)
@click.option(
    "--sampling",
    type=float,
    multiple=True,
    metavar="P",
    help="Fraction of the entries, for methods that use a sample; again for another one.  [default: 0.5]",
)
@click.option(
    "--signal",
    metavar="REGION",
    help="rect:Z0,X0,Z1,X1 or circle:Z,X,R, with mm at the end for mm, or a mask image.",
)
@click.option("--background", metavar="REGION", help="What to compare the signal with, in the same forms.")
@click.option(
    "--set",
    "parameters",
    multiple=True,
    metavar="METHOD.NAME=VALUE",
    callback=_parameters,
    help="A parameter of one method, e.g. highpass.cutoff_hz=60.",
)
@click.option(
    "--timeout", type=float, default=600.0, show_default=True, metavar="SECONDS", help="For each method."
)
@shared.estimator_subset("rank", "low_cutoff", "high_cutoff", "seed", "precision", "threads")
@shared.reading_options
@shared.scale_options
@shared.overwrite_option
@shared.json_option
@shared.verbosity_options
def command(
    acquisition: Path,
    methods: tuple[str, ...],
    output: Path | None,
    sampling: tuple[float, ...],
    signal: str | None,
    background: str | None,
    parameters: dict[str, dict[str, Any]],
    timeout: float,
    dynamic_range: float | None,
    db_factor: str | None,
    overwrite: bool,
    as_json: bool,
    quiet: int,
    verbose: int,
    **values: Any,
) -> None:
    """Run several methods on ACQUISITION and put their pictures and figures of merit side by side.

    Every method runs alone in a process of its own, and all low-rank methods keep the same band of components, chosen
    once on the full SVD. A method that fails is a row that says so, and the exit code is 1.
    """
    from usdenoise.comparison import CONTENDERS, Settings
    from usdenoise.comparison.compare_file import compare_file

    values = shared.given(values)
    reading = {name: values.pop(name) for name in shared.READING if name in values}
    with Console(quiet, verbose) as console:
        console.begin("compare", None)

        def tell(row: dict[str, Any]) -> None:
            sampling = "" if row["sampling"] is None else f" at {row['sampling']:g}"
            outcome = f"{row['seconds']:.2f} s" if row["status"] == "done" else row["status"]
            console.say(f"{row['method']}{sampling}: {outcome}")

        report = compare_file(
            acquisition,
            output,
            [] if methods == ("all",) else list(methods),
            **({"sampling": sampling} if sampling else {}),
            settings=Settings(timeout=timeout, parameters=parameters, **values),
            signal=signal,
            background=background,
            reading=reading,
            dynamic_range=dynamic_range,
            db_factor=float(db_factor or 10),
            overwrite=overwrite,
            command=["usdenoise", *sys.argv[1:]],
            on_row=tell,
        )
    rows = report["rows"]
    bad = [row for row in rows if row["status"] != "done"]
    for row in bad:
        console.warn(f"{row['method']} {row['status']}: {row['message']}")
    if as_json:
        print_json(report)
    elif not quiet:
        several = len({row["sampling"] for row in rows if CONTENDERS[row["method"]].sampled}) > 1
        print_rows(*_table(rows, several))
    if bad:
        click.get_current_context().exit(FAILED)


_COLUMNS = {
    "seconds": ("s", "{:.2f}"),
    "peak_memory_bytes": ("MiB", "{:.0f}"),
    "held_out_rmse": ("held", "{:.2g}"),
    "distance_to_svd": ("to SVD", "{:.2g}"),
    "contrast_db": ("dB", "{:.1f}"),
    "cnr": ("CNR", "{:.2f}"),
    "gcnr": ("gCNR", "{:.2f}"),
    "correlation": ("corr", "{:.3f}"),
    "auc": ("AUC", "{:.2f}"),
}


def _table(rows: list[dict[str, Any]], several: bool) -> tuple[list[str], list[list[str]]]:
    """Headings and cells; figures that no row has are left out."""
    shown = [key for key in _COLUMNS if key == "seconds" or any(row[key] is not None for row in rows)]
    headings = ["method", *(["p"] if several else []), *(_COLUMNS[key][0] for key in shown)]
    cells = []
    for row in rows:
        line = [row["method"]]
        if several:
            line.append("" if row["sampling"] is None else f"{row['sampling']:g}")
        for key in shown:
            value = row[key]
            if key == "peak_memory_bytes" and value is not None:
                value /= 2**20
            if key == "seconds" and row["status"] != "done":
                line.append(row["status"])
            else:
                line.append("" if value is None else _COLUMNS[key][1].format(value))
        cells.append(line)
    return headings, cells
