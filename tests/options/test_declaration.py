"""An option is declared once: from its field come the flag, the key of the file, the check, the errors and the help."""

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import usdenoise
import usdenoise.options
from usdenoise.cli import main
from usdenoise.cli.flags import GroupedCommand, config_option, flags_of, keys_of, requested
from usdenoise.cli.main import COMMANDS
from usdenoise.errors import OptionError
from usdenoise.options import (
    DenoiseOptions,
    Display,
    Output,
    PhantomSettings,
    ReadOptions,
    SessionOptions,
    kinds,
)
from usdenoise.options.declaration import Group, Options, option
from usdenoise.options.denoise_options import SCALE_NAMES, DenoiseKeywords, LoadKeywords, StackKeywords
from usdenoise.options.job_options import SeriesKeywords

CLASSES = Options.__subclasses__()


def test_the_typed_keyword_arguments_are_the_declared_options() -> None:
    def types(hint: Any) -> set[Any]:
        # A tuple is stored, and any sequence is taken.
        sequences = {tuple[kind, ...]: Sequence[kind] for kind in (int, float, str)}
        kinds = {sequences.get(each, each) for each in get_args(hint | None)}
        return kinds | ({float} if Sequence[float] in kinds else set())

    for keywords, options, names in [
        (DenoiseKeywords, DenoiseOptions, DenoiseOptions.declared),
        (SeriesKeywords, SessionOptions, SeriesKeywords.__annotations__),
        (LoadKeywords, ReadOptions, ["axes", *SCALE_NAMES, *SCALE_NAMES.values()]),
    ]:
        declared = get_type_hints(options)
        wanted = {name: types(declared[SCALE_NAMES.get(name, name)]) for name in names}
        assert {name: types(hint) for name, hint in get_type_hints(keywords).items()} == wanted


def test_functions_of_stacks_show_the_same_scales_and_the_declared_defaults() -> None:
    scales = list(StackKeywords.__annotations__)
    assert scales == ["axes", *SCALE_NAMES]
    functions = (usdenoise.load, usdenoise.denoise, usdenoise.session, usdenoise.Session)
    shown = {each: inspect.signature(each).parameters for each in functions}
    for function, parameters in shown.items():
        assert [name for name in parameters if name in scales] == scales, function
        assert all(parameters[name].default is None for name in scales)
        assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    session = shown[usdenoise.session]
    assert session["hrf"].default == SessionOptions().hrf
    assert session["registration"].default is shown[usdenoise.Session]["registration"].default is True


@dataclass(frozen=True)
class More(Options, group=Group.RARE):
    """Options with one more field."""

    strength_db: float | str = option(
        "auto", "Raise it against {haze}.", group=Group.CUTOFFS, words=("auto",), bounds=(0, 9)
    )
    haze: bool = option(True, "Leave out the haze.")
    marks: tuple[str, ...] = option(("a",), "Marks.", kind=kinds.NAMES, choices=("a", "b"))
    depth: int = option(3, "Depth.", group=Group.ESTIMATOR_KEYS, bounds=(0, None))
    tone: str = option("low", "Tone.", group=Group.ESTIMATOR_KEYS, choices=("low", "high"))


@click.command("more", cls=GroupedCommand)
@flags_of(More)
@keys_of(More, Group.ESTIMATOR_KEYS, "Keys.")
@config_option
def more(estimator: Any, **values: Any) -> None:
    click.echo(repr(More(**requested(More, {**values, **dict(estimator)}))))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(more, arguments)


def test_one_field_gives_a_flag_a_key_a_check_and_help(tmp_path: Path) -> None:
    assert call().stdout == f"{More()}\n"
    typed = call("--strength=3", "--no-haze", "--marks=b,a", "--estimator=depth=2", "--estimator=tone=high")
    assert typed.stdout == "More(strength_db=3.0, haze=False, marks=('b', 'a'), depth=2, tone='high')\n"
    (tmp_path / "c.toml").write_text("strength = 4\nno-haze = true\nmarks = ['b']\nestimator = ['depth=2']\n")
    of_file = call("--config", str(tmp_path / "c.toml")).stdout
    assert of_file == "More(strength_db=4.0, haze=False, marks=('b',), depth=2, tone='low')\n"
    page = call("--help").stdout
    assert "--strength auto|X" in page
    assert "[default: auto]" in page
    assert "depth=N" in page
    assert "tone=low|high" in page
    assert "Raise it against haze." in str(More.__doc__)
    with pytest.raises(OptionError) as caught:
        More(strength_db="x")
    assert caught.value.option == "strength_db"


def test_a_wrong_text_is_wrong_usage() -> None:
    wrong = ["--strength=much", "--strength=10", "--strength=nan", "--marks=c", "--estimator=depth"]
    keys = ("depth=-1", "depth=x", "tone=loud", "strength=3")
    for text in (*wrong, *(f"--estimator={key}" for key in keys)):
        assert call(text).exit_code == 2, text


def test_every_flag_is_a_field_but_those_of_the_console() -> None:
    fields = [field for options in CLASSES for field in options.declared.values()]
    declared = {field.flag.partition(" ")[0] for field in fields} | {"--sampling"}
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in COMMANDS]
    names = [each.opts[-1] for command in commands if command for each in command.params]
    flags = {name for name in names if name[0] == "-"}
    assert flags - declared == {"--json", "--quiet", "--verbose", "--help"}
    assert declared <= flags


@pytest.mark.parametrize("options", CLASSES)
def test_none_means_the_default_and_values_have_one_form(options: type[Options]) -> None:
    assert options(**dict.fromkeys(options.declared)) == options()
    assert replace(options()) == options()  # type: ignore[type-var]


def test_values_of_other_libraries_are_values() -> None:
    assert ReadOptions(frames=slice(np.int64(1), None)).frames == slice(1, None)
    assert ReadOptions(spacing_mm=np.float32(0.5)).spacing_mm == (0.5,)  # type: ignore[arg-type]
    assert DenoiseOptions(bad_frames=np.array([3, 1])).bad_frames == (1, 3)  # type: ignore[arg-type]
    assert Display(dynamic_range=[1, 2]).dynamic_range == (1.0, 2.0)  # type: ignore[arg-type]
    assert PhantomSettings(shape=[8, 9, 10], blood_to_noise_db=math.inf).shape == (8, 9, 10)  # type: ignore[arg-type]


WRONG: dict[type[Options], list[tuple[str, Any]]] = {
    ReadOptions: [("spacing_mm", (1, 2, 3, 4)), ("frame_rate_hz", 0), ("axes", 3)],
    Display: [
        ("color_map", "jet"), ("figure_formats", ("png", "jpg")), ("dynamic_range", (30, 10)), ("dynamic_range", -40)
    ],
    Output: [("stack", 1)],
    DenoiseOptions: [
        ("rank", 0), ("rank", 2.5), ("sampling", math.nan), ("decay", 0), ("damping", math.inf), ("bad_frames", ()),
        ("low_cutoff", "many"),
    ],
    PhantomSettings: [
        ("shape", (8, 8)), ("frame_rate_hz", 0), ("attenuation_db", math.nan), ("max_speed_mm_s", 1e308),
        ("thin_vessels", 10**29), ("breathing", (1, 1e308)), ("bad_frame_level", 0), ("drift_pixels", -7),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name", "value"), [(options, *wrong) for options in WRONG for wrong in WRONG[options]]
)
def test_a_wrong_value_is_refused(options: type[Options], name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{name} ") as caught:
        options(**{name: value})
    assert caught.value.option == name


@pytest.mark.parametrize("settings", [
    {"shape": (4, 8, 10)}, {"shape": (8, 8, 1)}, {"shape": (10**20, 10, 10)}, {"activation": 10},
    {"session": 4, "burst_blocks": (1, 4), "jerk_pixels": 1}, {"session": 4, "burst_blocks": (1,)},
    {"session": 4, "block_interval_s": 0.1},
])  # fmt: skip
def test_a_phantom_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        PhantomSettings(**settings)
