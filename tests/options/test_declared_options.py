"""An option is declared once: from its field come the flag, the key of the file, the check, the errors and the help."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from usdenoise.cli.config_file import config_option
from usdenoise.cli.option_groups import GroupedCommand
from usdenoise.cli.shared_options import flags_of, given
from usdenoise.errors import OptionError
from usdenoise.options import DenoiseOptions, Display, Output, PhantomSettings, ReadOptions
from usdenoise.options.declaration import Group, Options, option
from usdenoise.options.kinds import NAMES


@dataclass(frozen=True)
class More(Options, group=Group.RARE):
    """Options with one more field."""

    strength_db: float | str = option(
        "auto", "Raise it against --haze.", group=Group.CUTOFFS, words=("auto",), least=0, most=9
    )
    haze: bool = option(True, "Leave out the haze.")
    marks: tuple[str, ...] = option(("a",), "Marks.", kind=NAMES, choices=("a", "b"))


@click.command("more", cls=GroupedCommand)
@click.argument("path", is_eager=True, type=click.Path(path_type=Path))
@flags_of(More)
@config_option
def more(path: Path, config: Path | None, **values: Any) -> None:
    try:
        click.echo(repr(More(**given(More, values))))
    except OptionError as error:
        click.echo(error.command_line_text)


def call(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(more, [str(folder), *arguments])


def test_one_field_gives_a_flag_a_key_a_check_and_help(tmp_path: Path) -> None:
    assert call(tmp_path).stdout == "More(strength_db='auto', haze=True, marks=('a',))\n"
    typed = call(tmp_path, "--strength", "3", "--no-haze", "--marks", "b,a").stdout
    assert typed == "More(strength_db=3.0, haze=False, marks=('b', 'a'))\n"
    assert (
        call(tmp_path, "--strength", "10").stdout == "--strength 10 must be from 0 to 9; change --strength\n"
    )
    for wrong in ("--strength=much", "--marks=c"):
        assert call(tmp_path, wrong).exit_code == 2
    (tmp_path / "usdenoise.toml").write_text("strength = 4\nno-haze = true\nmarks = ['b']\n")
    assert call(tmp_path).stdout == "More(strength_db=4.0, haze=False, marks=('b',))\n"
    page = call(tmp_path, "--help").stdout
    assert "Cutoffs:\n  --strength auto|X    Raise it against --haze.  [default: auto]\n" in page
    assert "  --no-haze            Leave out the haze.\n" in page
    assert "strength_db : auto or a number, from 0 to 9; by default 'auto'\n    Raise it against " in str(
        More.__doc__
    )
    with pytest.raises(OptionError, match=r"strength_db 'x' is not known; give strength_db auto or a number"):
        More(strength_db="x")


@pytest.mark.parametrize("options", [DenoiseOptions, Display, Output, PhantomSettings, ReadOptions])
def test_none_means_the_default_and_values_have_one_form(options: type[Options]) -> None:
    everything = dict.fromkeys(options.declared)
    assert options(**everything) == options()
    assert replace(options()) == options()  # type: ignore[type-var]


def test_values_of_other_libraries_are_values() -> None:
    assert ReadOptions(frames=slice(np.int64(1), None)).frames == slice(1, None)
    assert ReadOptions(spacing_mm=np.float32(0.5)).spacing_mm == (0.5,)  # type: ignore[arg-type]
    assert DenoiseOptions(bad_frames=np.array([3, 1])).bad_frames == (1, 3)  # type: ignore[arg-type]
    assert Display(dynamic_range=[1, 2]).dynamic_range == (1.0, 2.0)  # type: ignore[arg-type]
    assert PhantomSettings(shape=[8, 9, 10], blood_to_noise_db=math.inf).shape == (8, 9, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "values", "says"),
    [
        (ReadOptions, {"spacing_mm": (1, 2, 3, 4)}, "give spacing_mm 1 or 2 or 3 positive numbers"),
        (ReadOptions, {"frame_rate_hz": 0}, "frame_rate_hz 0 is not known; give frame_rate_hz a positive number"),
        (ReadOptions, {"axes": 3}, "axes 3 is not known; give axes text"),
        (Display, {"color_map": "jet"}, "color_map 'jet' is not known; choose one of inferno, magma"),
        (Display, {"figure_formats": ("png", "jpg")}, "figure_formats .*'jpg'.* choose one or more of png, pdf"),
        (Display, {"figure_formats": ()}, "figure_formats .* is not known"),
        (Display, {"figure_formats": "png"}, "figure_formats 'png' is not known"),
        (Display, {"dynamic_range": (30, 10)}, r"dynamic_range \(30, 10\) is not known; .*low below high"),
        (Display, {"dynamic_range": -40}, "dynamic_range -40 is not known"),
        (Display, {"db_factor": 15}, "db_factor 15 is not known; choose one of 10, 20"),
        (Display, {"movie_speed": math.nan}, "movie_speed nan is not known; give movie_speed a positive number"),
        (PhantomSettings, {"shape": (8, 8)}, "shape .* is not known; give shape 3 or 4 positive numbers"),
        (PhantomSettings, {"shape": (4, 8, 10)}, "phantom of shape 4x8x10 cannot be made; give shape at least 8 x 8"),
        (PhantomSettings, {"shape": (8, 8, 1)}, "at least 8 x 8 pixels and 2 frames"),
        (PhantomSettings, {"frame_rate_hz": 0}, r"0 must be from 1e-06 to 1e\+12; change frame_rate_hz"),
        (PhantomSettings, {"center_frequency_hz": math.inf}, r"must be from 1000 to 1e\+12; change center_frequency_hz"),
        (PhantomSettings, {"clutter_to_blood_db": 1e9}, "must be from -200 to 200; change clutter_to_blood_db"),
        (PhantomSettings, {"blood_to_noise_db": -math.inf}, "give blood_to_noise_db within 200 dB, or inf"),
        (PhantomSettings, {"noise_gain_db": math.inf}, "noise_gain_db inf must be from 0 to 100"),
        (PhantomSettings, {"noise_correlation_pixels": -1}, "must be from 0 to 100; change noise_correlation_pixels"),
        (PhantomSettings, {"attenuation_db": math.nan}, "attenuation_db nan must be from 0 to 100"),
        (PhantomSettings, {"max_speed_mm_s": 1e308}, r"must be from 1e-06 to 1e\+12; change max_speed_mm_s"),
        (PhantomSettings, {"thin_vessels": 10**29}, "must be at most 1000; change thin_vessels"),
        (PhantomSettings, {"breathing": (1, 1e308)}, r"give breathing 2 positive numbers from 1e-06 to 1e\+12"),
        (PhantomSettings, {"shape": (10**20, 10, 10)}, r"cannot be made; give shape at least .* and 1e\+12 entries at most"),
        (ReadOptions, {"frame_rate_hz": 5e-324}, r"frame_rate_hz 4.94066e-324 must be from 1e-06 to 1e\+12"),
        (ReadOptions, {"spacing_mm": (1e-300, 1e300)}, r"give spacing_mm 1 or 2 or 3 positive numbers from 1e-06 to 1e\+12"),
        (PhantomSettings, {"thin_vessels": -1}, "thin_vessels -1 is not known; give thin_vessels a whole number from 0"),
        (PhantomSettings, {"capillary_db": math.inf}, "capillary_db inf must be from -200 to 200"),
        (PhantomSettings, {"bad_frames": 401}, "401 bad frames of 400 cannot be made; give bad_frames from 0 to 400"),
        (PhantomSettings, {"bad_frame_level": 0}, "bad_frame_level 0 must be positive and at most 1000"),
        (PhantomSettings, {"jerk_pixels": 6}, "jerk_pixels 6 must be from -5 to 5; change jerk_pixels"),
        (PhantomSettings, {"drift_pixels": -7}, "drift_pixels -7 must be from -5 to 5"),
        (PhantomSettings, {"breathing": (9, 1)}, "a breathing of 9 pixels cannot be made; give breathing within 5"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_what_it_has_to_be(
    options: type[Options], values: dict[str, Any], says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        options(**values)
