"""Options that several commands share, each declared once."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

from usdenoise.cli import option_values as read
from usdenoise.cli.option_groups import Group, completing, option
from usdenoise.jobs.job_options import COMPRESSIONS, MOVIES, PRODUCTS, Output
from usdenoise.options.denoise_options import (
    CHOICES,
    PRESETS,
    DenoiseOptions,
    flag,
    make_options,
    preset_values,
)
from usdenoise.pictures.figure_choices import COLOR_MAPS

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]

READING = ("dataset", "axes", "frames", "frame_rate_hz", "spacing_mm", "allow_external")
_DISPLAY = (
    "dynamic_range",
    "db_factor",
    "cutoff_figure",
    "frames_figure",
    "color_map",
    "figure_formats",
    "movie_speed",
)
_OUTPUT = ("products", "keep_factors", "compression", "window", "stride", "movie", "nifti")
_RESOURCES = ("memory", "dask")
_DEFAULTS = {field.name: field.default for field in fields(DenoiseOptions)}


def _stack(*decorators: Decorator[Any]) -> Decorator[Any]:
    def apply(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


def _estimator(group: Group, name: str, help_text: str, **settings: Any) -> tuple[str, Decorator[Any]]:
    """Return an option of the estimator with its name. It is None unless given, so that a preset can tell."""
    default = _DEFAULTS[name]
    if name in CHOICES:
        settings.setdefault("type", click.Choice(CHOICES[name]))
    return name, option(
        group,
        flag(name),
        name,
        default=None,
        show_default=False if default is None or isinstance(default, bool) else str(default),
        help=help_text,
        **settings,
    )


_ESTIMATOR = dict((
    _estimator(Group.CUTOFFS, "low_cutoff", "Remove the N largest components as clutter. Raise it when haze remains over "
               "the image, lower it when vessels fade.", metavar="auto|N", callback=read.auto(int)),
    _estimator(Group.CUTOFFS, "high_cutoff", "Drop components from N on. rank keeps only the estimated ones, for a cleaner "
               "image of strong blood; none keeps all, the residual too.", metavar="rank|none|N", callback=read.high_cutoff),
    _estimator(Group.CUTOFFS, "local_cutoff", "Take the components near the low cutoff out pixel by pixel, as far as they "
               "are tissue there. Use it when vessels fade and haze remains.", is_flag=True),
    _estimator(Group.CUTOFFS, "rank", "Number of components to estimate. Raise it when tissue reaches the last one.",
               metavar="auto|N", callback=read.auto(int)),
    _estimator(Group.FRAMES, "bad_frames", "Frames to leave out, for example 3,17,40:45 (40 to 44). auto finds those that "
               "are damaged or unlike the others; keep leaves none out.", metavar="LIST",
               callback=read.bad_frames),
    _estimator(Group.ESTIMATOR, "method", "How the components are estimated. svd is the full SVD: exact, for small stacks "
               "without missing entries.", metavar="NAME"),
    _estimator(Group.ESTIMATOR, "sampling", "Fraction of the entries to sample in each sampled pixel. It decides the "
               "quality with --refit none.", type=float, metavar="P"),
    _estimator(Group.ESTIMATOR, "seed", "Seed of every random choice. The same seed gives the same result.", type=int,
               metavar="N"),
    _estimator(Group.ESTIMATOR, "refit", "Fit the factors to all observed entries at the end; none uses the sample alone, "
               "as the paper does."),
    _estimator(Group.ESTIMATOR, "precision", "Precision of the stored values; double takes twice the memory.",
               metavar="NAME"),
    _estimator(Group.ESTIMATOR, "threads", "Number of threads, all processors unless given. Lower it to leave some to "
               "others; the result stays the same.", type=int, metavar="N"),
    _estimator(Group.ADVANCED, "init", "Start of the iteration. pixels: a pixel subset with all frames. spectral: the "
               "paper's start. random, small: random factors of the size of the data, or near zero.", metavar="NAME"),
    _estimator(Group.ADVANCED, "ridge", "Penalty on the factors, in units of the noise edge. A larger one shrinks "
               "weak components more.", metavar="auto|X", callback=read.auto(float)),
    _estimator(Group.ADVANCED, "patience", "Stop after N iterations without a lower held-out error; 0 does all iterations.",
               type=int, metavar="N"),
    _estimator(Group.ADVANCED, "iterations", "Largest number of iterations.", type=int, metavar="N"),
    _estimator(Group.ADVANCED, "decay", "Ratio of each damping to the one before; 1 keeps the damping constant.", type=float,
               metavar="BETA"),
    _estimator(Group.ADVANCED, "damping", "First damping of eta-decay, sigma_hat of precgd, or lambda of scaledgd-lambda. "
               "It follows from the data unless given.", type=float, metavar="ETA0"),
    _estimator(Group.ADVANCED, "step", "Step size tau of the descent, relative to the objective. Lower it if the solver "
               "diverges.", type=float, metavar="TAU"),
    _estimator(Group.ADVANCED, "alpha", "Step size as written in the paper, alpha = tau n_pixels n_frames / 2. Use either "
               "--step or --alpha.", type=float, metavar="ALPHA"),
))  # fmt: skip

_preset_option = option(
    Group.ESTIMATOR,
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="Use the settings of the paper's ultrasound experiment, to compare with it. They remove no clutter. Other "
    "flags win over them.",
)


def estimator_subset(*names: str) -> Decorator[Any]:
    """Return the decorator that adds some of the estimator's options, by their names."""
    return _stack(*(_ESTIMATOR[name] for name in names))


estimator_options = _stack(
    estimator_subset("method"), _preset_option, *(_ESTIMATOR[name] for name in _ESTIMATOR if name != "method")
)

external_option = option(
    Group.ADVANCED,
    "--allow-external",
    is_flag=True,
    default=None,
    help="Also read files outside the folder of the input that the input names or links to. Use it only for files "
    "that you trust.",
)

reading_options = _stack(
    option(
        Group.INPUT,
        "--dataset",
        metavar="NAME",
        help="Name of the stack in the file. Needed when the file holds several.",
    ),
    option(
        Group.INPUT,
        "--axes",
        metavar="ORDER",
        help="Order of the axes in the file, in letters z x y t: tzx has the frames first. Needed if info shows a "
        "wrong order.",
    ),
    option(
        Group.INPUT,
        "--frames",
        metavar="A:B[:S]",
        callback=read.frames,
        help="Read frames A to B-1, every S-th one, counted from 0. Read fewer to save memory.",
    ),
    option(
        Group.INPUT,
        "--frame-rate",
        "frame_rate_hz",
        type=float,
        callback=read.positive,
        metavar="HZ",
        help="Frames per second. Use it if the file has no frame rate, or a wrong one.",
    ),
    option(
        Group.INPUT,
        "--spacing",
        "spacing_mm",
        metavar="MM[,MM[,MM]]",
        callback=read.positive_numbers("MM[,MM[,MM]]", ",", float, range(1, 4)),
        help="Pixel pitch in mm: one number, or one for each spatial axis in the file's order. Use it if the file "
        "has no pixel pitch, or a wrong one.",
    ),
    external_option,
)

scale_options = _stack(
    option(
        Group.OUTPUTS,
        "--dynamic-range",
        callback=read.dynamic_range,
        metavar="DB|MIN,MAX",
        show_default="suits the image",
        help="Range of the pictures in dB below the maximum. MIN,MAX sets two levels in dB of the power itself, for one "
        "scale over all scans of a study.",
    ),
    option(
        Group.OUTPUTS,
        "--cmap",
        "color_map",
        type=click.Choice(COLOR_MAPS),
        metavar="NAME",
        show_default=COLOR_MAPS[0],
        help="Colours of power. In all but hot, equal steps in dB look equally large.",
    ),
    option(
        Group.OUTPUTS,
        "--db-factor",
        type=click.Choice(["10", "20"]),
        default=None,
        show_default="10",
        help="Scale of the pictures: 10 log10 of the power, or 20 log10 as in the paper.",
    ),
)

display_options = _stack(
    scale_options,
    option(
        Group.OUTPUTS,
        "--figure-format",
        "figure_formats",
        callback=read.figure_formats,
        metavar="LIST",
        show_default="png",
        help="Formats of the figures, any of png, pdf and svg with commas.",
    ),
    option(
        Group.OUTPUTS,
        "--cutoff-figure",
        is_flag=True,
        help="Draw how the low cutoff was chosen. Use it when the report says unsure.",
    ),
    option(
        Group.OUTPUTS,
        "--frames-figure",
        is_flag=True,
        help="Draw curves over the frames above a carpet plot. Use it when frames look bad.",
    ),
)

output_options = _stack(
    option(
        Group.OUTPUTS,
        "--products",
        callback=read.product_names,
        shell_complete=completing(PRODUCTS),
        metavar="NAME[,NAME]",
        show_default="power,blood",
        help="Pictures to make: power, blood, directional, signed, velocity.",
    ),
    option(
        Group.OUTPUTS,
        "--keep-factors",
        is_flag=True,
        help="Store the factors U, S and V as well, so that expand can rebuild the stack with other cutoffs.",
    ),
    option(
        Group.OUTPUTS,
        "--no-stack",
        is_flag=True,
        help="Leave out the filtered stack to save disk space. Needs --keep-factors.",
    ),
    option(
        Group.OUTPUTS,
        "--no-html",
        is_flag=True,
        help="Leave out <stem>_report.html, the report as a page for the browser.",
    ),
    option(
        Group.OUTPUTS,
        "--compression",
        type=click.Choice(COMPRESSIONS),
        default=None,
        show_default="none",
        help="Compression of the stored stack.",
    ),
    option(
        Group.OUTPUTS,
        "--window",
        type=int,
        metavar="N",
        help="Filter N frames at a time and write a sequence of images. For long acquisitions. Frames that are "
        "left over make a shorter window; one or two join the last window.",
    ),
    option(
        Group.OUTPUTS,
        "--stride",
        type=int,
        metavar="M",
        show_default="the window",
        help="Frames from one window to the next; fewer than the window make windows overlap.",
    ),
    option(
        Group.OUTPUTS,
        "--movie",
        type=click.Choice(MOVIES),
        help="Write the sequence as a film. Needs --window.",
    ),
    option(
        Group.OUTPUTS,
        "--movie-speed",
        type=float,
        callback=read.positive,
        metavar="X",
        show_default="1, real time",
        help="How many times faster than in reality the film plays. Use 0.1 for slow motion.",
    ),
    option(
        Group.OUTPUTS,
        "--nifti",
        is_flag=True,
        help="Write the sequence as NIfTI with a JSON sidecar. Needs --window.",
    ),
)

memory_option = option(
    Group.ESTIMATOR,
    "--memory",
    callback=read.size,
    metavar="SIZE",
    show_default="what the system has",
    help="Memory to take at most, for example 600M. A larger stack goes into a temporary file in the folder of the "
    "results.",
)
dask_option = option(
    Group.ESTIMATOR,
    "--dask",
    metavar="N|ADDRESS",
    help="Work on Dask workers: on N processes that are started here, or on those of the scheduler at ADDRESS, which see "
    "the same files.",
)
job_options = _stack(
    reading_options, estimator_options, memory_option, dask_option, output_options, display_options
)

overwrite_option = option(Group.OUTPUTS, "--overwrite", is_flag=True, help="Replace existing results.")
json_option = option(
    Group.MESSAGES,
    "--json",
    "as_json",
    is_flag=True,
    help="Print the result as one JSON object, for scripts.",
)
verbosity_options = _stack(
    option(
        Group.MESSAGES,
        "-q",
        "--quiet",
        count=True,
        help="Print no summary and no notes; twice, no warnings either.",
    ),
    option(Group.MESSAGES, "-v", "--verbose", count=True, help="Print more on stderr while working."),
)


def threads_option(group: Group) -> Decorator[Any]:
    """Return the decorator that adds --threads to a command without an estimator."""
    return option(
        group,
        "--threads",
        type=click.IntRange(1),
        metavar="N",
        help="Number of threads, all processors unless given.",
    )


def given(values: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given on the command line."""
    return {name: value for name, value in values.items() if value is not None}


def job_arguments(preset: str | None, values: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of :func:`usdenoise.jobs.run_job.run` for the values of `job_options`.

    Parameters
    ----------
    preset : str or None
        Name of the preset.
    values : mapping from str to value
        Values of all other options by their Python names, None where not given.

    Raises
    ------
    OptionError
        If the options contradict each other.
    """
    from usdenoise.jobs.job_options import Display

    values = given(values)
    reading = {name: values.pop(name) for name in READING if name in values}
    display = {name: values.pop(name) for name in _DISPLAY if name in values}
    if "db_factor" in preset_values(preset):
        display.setdefault("db_factor", preset_values(preset)["db_factor"])
    if "db_factor" in display:
        display["db_factor"] = float(display["db_factor"])
    output = {name: values.pop(name) for name in _OUTPUT if name in values}
    output["stack"] = not values.pop("no_stack", False)
    output["html"] = not values.pop("no_html", False)
    resources = {name: values.pop(name) for name in _RESOURCES if name in values}
    return {
        **resources,
        "options": make_options(preset, **values),
        "display": Display(**display),
        "output": Output(**output),
        "reading": reading,
    }
