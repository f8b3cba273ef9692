"""The commands beside the filters: ``usdenoise info``, ``simulate``, ``compare`` and ``reproduce``."""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from usdenoise.cli import flags
from usdenoise.cli.console import Console, JobView, columns, two_columns, typed_command
from usdenoise.cli.main import FAILED
from usdenoise.errors import InputError
from usdenoise.options import (
    FLAGS,
    CompareOptions,
    DenoiseOptions,
    Display,
    JobOptions,
    PhantomSettings,
    ReadOptions,
    ReproduceOptions,
)
from usdenoise.options.declaration import Group

if TYPE_CHECKING:
    from usdenoise.files.contents import Candidate
    from usdenoise.files.recordings import FileDescription


@click.command(
    "info",
    cls=flags.GroupedCommand,
    often=("--dataset", "--axes", "--frame-rate", "--spacing", "--json"),
    examples=[
        ("usdenoise info scan.h5", "Show the stack that would be read, and its metadata"),
        ("usdenoise info scans", "List the stacks of all files in a folder"),
        ("usdenoise info scan.h5 --axes tzx --frame-rate 500", "Check the options before giving them to run"),
    ],
)
@click.argument("file", type=flags.PathType(readable=False))
@flags.reading_flags
@flags.json_option
def info(file: Path, as_json: bool, **reading: object) -> None:
    """Show the contents of FILE and how it would be read.

    The list has all stacks in FILE, marks the one that would be read, and shows the source of each metadata
    entry: the file, an option, or an assumption. For a folder it has the stack of each file.
    """
    from usdenoise.files import describe
    from usdenoise.files.contents import readable
    from usdenoise.files.input_files import is_zarr

    with readable(file):
        # The error about a folder that cannot be listed is the one of a Zarr group.
        is_folder = file.is_dir() and os.access(file, os.R_OK | os.X_OK) and not is_zarr(file)
    if is_folder:
        _list_folder(file, as_json, flags.requested(ReadOptions, reading))
        return
    description = describe(file, **flags.requested(ReadOptions, reading))
    metadata, problem = description.metadata, description.problem
    descriptions = {
        "values": metadata.values,
        "sources": metadata.sources,
        "ignored": metadata.ignored,
        "attributes": sorted(metadata.attributes),
    }
    # Attributes of HDF5 may be references, which cannot be copied.
    plain = replace(description, problem=None, metadata=replace(metadata, attributes={}))
    report = {**asdict(plain), "problem": problem and problem.worded(FLAGS), "metadata": descriptions}
    Console(as_json=as_json).show_rows(report, _description_rows(description))
    if problem is not None:
        raise problem


def _list_folder(folder: Path, as_json: bool, reading: flags.Values) -> None:
    """List the stacks that would be read from the files of a folder."""
    from usdenoise.files import describe
    from usdenoise.files.contents import readable
    from usdenoise.files.input_files import acquisition_files

    with readable(folder):
        # A folder is not one of its own subfolders, so that no file is skipped.
        paths = acquisition_files(folder, folder, ())
    if not paths:
        raise InputError(f"{folder} contains no file of a known format", remedy="check the path")
    stacks: dict[str, dict[str, object]] = {}
    rows: list[tuple[str, str]] = []
    for path in paths:
        name, chosen, problem = str(path.relative_to(folder)), None, ""
        try:
            description = describe(path, **reading)
        except InputError as error:
            problem = error.worded(FLAGS)
        else:
            chosen = description.chosen
            if description.problem is not None:
                problem = description.problem.worded(FLAGS).replace(f"{path} ", "")
        stacks[name] = {"stack": chosen and asdict(chosen), "problem": problem or None}
        rows.append((name, problem if chosen is None else problem or _stack_text(chosen)))
    Console(as_json=as_json).show_rows({"files": stacks}, rows)


def _stack_text(stack: "Candidate") -> str:
    return f"{stack.name}  {' x '.join(map(str, stack.shape))}  {stack.dtype}"


def _description_rows(description: "FileDescription") -> Iterator[tuple[str, str]]:
    yield "file", description.path
    yield "container", description.container
    chosen = None if description.chosen is None else description.chosen.name
    for candidate in description.candidates:
        mark = "  <- read" if candidate.name == chosen else ""
        layout = f"  ({candidate.layout})" if candidate.layout else ""
        yield "candidate", f"{_stack_text(candidate)}{layout}{mark}"
    for name, value in description.metadata.values.items():
        if isinstance(value, dict):
            text = ", ".join(f"{letter} {pitch:g}" for letter, pitch in value.items())
        else:
            text = value if isinstance(value, str) else f"{value:g}"
        yield name, f"{text}  ({description.metadata.sources[name]})"
    known = {*description.metadata.values, *description.metadata.ignored}
    for name in sorted({"frame_rate_hz", "spacing_mm"} - known) if description.chosen is not None else ():
        yield name, f"unknown; give {FLAGS[name]}"
    for words, scale, given in description.possible_scales:
        yield "possible scale", f"{words}: {FLAGS[scale]} {given}"
    for name, reason in description.metadata.ignored.items():
        yield name, reason
    for note in description.notes:
        yield "note", note


@click.command(
    "simulate",
    cls=flags.GroupedCommand,
    often=("--shape", "--seed", "--session", "--set", "--overwrite"),
    examples=[
        ("usdenoise simulate phantom.h5", "Simulate 128 x 96 pixels and 400 frames"),
        (
            "usdenoise simulate small.h5 --shape 64x48x200 --noise-gain 20",
            "Simulate a smaller phantom with noise that grows with depth",
        ),
        (
            "usdenoise simulate blocks --session 40 --shape 64x64x300 --set activation=10",
            "Simulate 40 blocks in a folder, with an activation",
        ),
    ],
)
@click.argument("out", type=flags.PathType())
@flags.flags_of(PhantomSettings)
@flags.keys_of(
    PhantomSettings,
    Group.PHANTOM_KEYS,
    "Set one of the keys below, for example thin_vessels=5. Repeat it for several keys.",
)
@flags.flags_of(DenoiseOptions, "threads")
@flags.flags_of(JobOptions, "overwrite")
@flags.messages
def simulate(out: Path, threads: int | None, overwrite: bool, console: Console, **values: Any) -> None:
    """Simulate an acquisition with known truth, and write it to the HDF5 file OUT, or a session to the folder OUT.

    The group truth of the file has vessel_mask, blood_power (mean over the frames), noise_power (expected), velocity
    (axial, in mm/s, positive towards the probe), capillary_mask if there are capillaries, and the numbers of the bad
    frames if there are any. A session also has block_blood_power, blood_rise (the relative rise by the activation), start_s,
    is_burst, shift_pixels (z, x, y) and gain_db, one value or image for each block.
    """
    from usdenoise.jobs.simulate_job import simulate_to_file

    settings = PhantomSettings(**flags.requested(PhantomSettings, {**values, **dict(values["set"])}))
    began = time.perf_counter()
    console.begin("frames", settings.n_frames)

    def show_progress(done: int) -> None:
        console.advance(done)
        block, rest = divmod(done, settings.frames_a_block)
        if settings.session is not None and not rest and not console.is_animated:
            console.say(f"{block} of {settings.n_blocks} blocks are simulated")

    summary = simulate_to_file(
        out, settings, threads=threads, overwrite=overwrite, command=typed_command(), on_frames=show_progress
    )
    letters = "zxyt" if settings.is_volume else "zxt"
    shape = ", ".join(f"{letter} {n}" for letter, n in zip(letters, settings.shape, strict=True))
    session = f"{settings.n_blocks} blocks of {settings.frames_a_block} frames" if settings.session else ""
    rows = [
        ("phantom", f"{shape}, {'real' if settings.real else 'complex'}, seed {settings.seed}"),
        *([("session", session)] if session else []),
        ("vessels", f"{100 * summary['vessel_fraction']:.1f} % of the pixels"),
        ("time", f"{time.perf_counter() - began:.1f} s"),
        ("wrote", summary["path"]),
    ]
    console.show_rows(summary, rows)


def _methods(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from usdenoise.jobs.clutter_filters import CLUTTER_FILTERS

    return [name for name in (*CLUTTER_FILTERS, "all") if name.startswith(incomplete)]


@click.command(
    "compare",
    cls=flags.GroupedCommand,
    often=("--method", "--output", "--overwrite", "--axes", "--low-cutoff"),
    examples=[
        ("usdenoise compare scan.h5 -m eta-decay -m svd", "Compare the default method with the full SVD"),
        (
            "usdenoise compare scan.h5 --signal circle:20,15,4 --background rect:2,2,8,8",
            "Run the usual methods, and measure the contrast of two regions",
        ),
    ],
)
@click.argument("acquisition", type=flags.PathType(readable=False))
@flags.flags_of(CompareOptions, "methods", shell_complete=_methods)
@flags.flags_of(JobOptions, "output", show_default="<stem>-comparison")
@flags.flags_of(CompareOptions, "signal", "background")
@flags.flags_of(DenoiseOptions, "sampling", "low_cutoff", "high_cutoff", "rank", "seed", "threads")
@flags.reading_flags
@flags.flags_of(Display, "dynamic_range", "color_map")
@flags.flags_of(JobOptions, "overwrite")
@flags.messages
def compare(acquisition: Path, output: Path | None, overwrite: bool, console: Console, **values: Any) -> None:
    """Run several methods on ACQUISITION, and show their images and metrics side by side.

    The methods run one after the other. All low-rank methods keep the same band of components, which is chosen on
    the full SVD. A method that fails has a row with the reason, and the exit code is then 1.
    """
    from usdenoise.jobs.compare import compare_file, table_of

    chosen = CompareOptions(**flags.requested(CompareOptions, values))
    regions = {"signal": chosen.signal, "background": chosen.background}
    report = compare_file(
        acquisition,
        output,
        methods=[name.lower() for name in chosen.methods],
        regions={name: text for name, text in regions.items() if text is not None},
        reading=flags.requested(ReadOptions, values),
        display=Display(**flags.requested(Display, values)),
        overwrite=overwrite,
        command=typed_command(),
        on_start=console.say,
        **flags.requested(DenoiseOptions, values),
    )
    rows = report["rows"]
    bad = [row for row in rows if row["status"] != "done"]
    for row in bad:
        console.warn(f"{row['method']} {row['status']}: {row['message']}")
    written = [("wrote", name) for name in report["output"].values()]
    console.show(report, lambda: [*columns(*table_of(rows)), "", *two_columns(written)])
    if bad:
        click.get_current_context().exit(FAILED)


def _experiments(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from usdenoise.experiments import EXPERIMENTS

    return [name for name in (*EXPERIMENTS, "all") if name.startswith(incomplete)]


@click.command(
    "reproduce",
    cls=flags.GroupedCommand,
    examples=[
        ("usdenoise reproduce", "List the experiments"),
        ("usdenoise reproduce one-bit phase -o out --quick", "Repeat two of them with fewer seeds"),
    ],
)
@click.argument("names", nargs=-1, metavar="[NAME...|all]", shell_complete=_experiments)
@flags.flags_of(JobOptions, "output", default=Path("usdenoise-reproduce"), show_default=True)
@flags.flags_of(ReproduceOptions)
@flags.flags_of(DenoiseOptions, "threads")
@flags.flags_of(JobOptions, "overwrite")
@flags.messages
def reproduce(names: tuple[str, ...], output: Path, overwrite: bool, console: Console, **values: Any) -> None:
    """Repeat the paper's experiments NAME..., or all of them, and check its claims.

    Without a name, the command lists the experiments. Each experiment writes a picture, its curves, and a record with
    its claims.
    """
    from usdenoise import experiments

    if not names:
        titles = {name: experiment.title for name, experiment in experiments.EXPERIMENTS.items()}
        # The list is the result, which -q does not silence.
        Console(as_json=console.as_json).show_rows({"experiments": titles}, titles.items())
        return
    unknown = [name for name in names if name not in experiments.EXPERIMENTS and name != "all"]
    if unknown:
        raise click.UsageError(
            f"unknown experiment '{unknown[0]}'; give all, or names of {', '.join(experiments.EXPERIMENTS)}"
        )
    chosen = list(experiments.EXPERIMENTS) if "all" in names else list(dict.fromkeys(names))
    setup = experiments.Setup(values["n_seeds"], values["quick"], values["threads"], JobView(console))
    summary = experiments.reproduce(chosen, output, setup, overwrite=overwrite, command=typed_command())
    console.show(summary, lambda: [*_claims(summary), f"the results are in {output}"])


def _claims(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that show the claims, by experiment and in total."""
    for name, experiment in summary["experiments"].items():
        yield f"{name}: {experiment['title']} ({experiment['seconds']:.0f} s)"
        for claim in experiment["claims"]:
            verdict = "held" if claim["held"] else "NOT HELD"
            yield f"  {claim['statement']}"
            yield f"    {verdict:<8}  {claim['number']:>11}  ({claim['bound']})"
        yield ""
    yield f"{summary['held']} of {summary['claims']} claims held"
