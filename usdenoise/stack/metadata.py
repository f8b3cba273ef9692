"""Metadata: the names of scales and axes in files, and the options that override them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from usdenoise.errors import InputError
from usdenoise.options.kinds import SCALES
from usdenoise.stack.geometry import SOUND_SPEED_M_S, Coordinate
from usdenoise.stack.labels import ALIASES, AmbiguousAxes


@dataclass(frozen=True)
class Metadata:
    """Axes and scales of a stack, each with its source.

    Attributes
    ----------
    values : mapping
        Any of "axes" (str), "frame_rate_hz", "center_frequency_hz", "sound_speed_m_s" (float) and
        "spacing_mm" (axis letter -> pixel pitch in mm): fields of :class:`usdenoise.Acquisition`.
    sources : mapping
        Name of each of these values -> "file: …", "option", "the data" or "assumed".
    attributes : mapping
        All other attributes of the stack, which are copied to the output.
    coordinates : mapping
        Axis letter -> positions of the pixels in mm, or times of the frames in s, where the file has them.
    contradiction : str
        How the given axes differ from the axes of the stack, in words; empty (the default) if they do not.
    ignored : mapping
        Name of each scale of the file that is not plausible, and that no option replaces -> why, in words.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, object] = field(default_factory=dict)
    coordinates: Mapping[str, Coordinate] = field(default_factory=dict)
    contradiction: str = ""
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_uneven_times(self) -> bool:
        """Whether the times of the frames are known, and give no frame rate."""
        return "t" in self.coordinates and "frame_rate_hz" not in self.values


PLAUSIBLE = {
    "frame_rate_hz": ("frame rate", "Hz", (10.0, 50e3), {"kHz": 1e3}),
    "center_frequency_hz": ("centre frequency", "Hz", (0.5e6, 100e6), {"kHz": 1e3, "MHz": 1e6}),
    "spacing_mm": ("pixel pitch", "mm", (1e-3, 5.0), {"m": 1e3, "um": 1e-3}),
    "sound_speed_m_s": ("speed of sound", "m/s", SCALES, {}),
}
"""Scale -> its name, its unit, the range of ultrafast ultrasound, and other units in which programs store it, with their
factors. Files have no units, and a scale in another unit is off by at least 1000."""


Scale = float | Sequence[float] | Mapping[str, float]
"""A frequency or a speed; or the pixel pitch along all axes, along each axis, or by the letter of the axis."""


def implausible(name: str, value: Scale, source: str) -> str:
    """Return why a scale of a file is not used, in words; empty if it is plausible.

    Parameters
    ----------
    name : str
        Its name, one of :data:`PLAUSIBLE`.
    value : float, sequence of float, or mapping to float
        Its value.
    source : str
        Its source in the file.
    """
    words, unit, (least, most), others = PLAUSIBLE[name]
    numbers = np.ravel(list(value.values()) if isinstance(value, Mapping) else value).astype(float).tolist()

    def fits(factor: float) -> bool:
        return all(least <= number * factor <= most for number in numbers)

    if fits(1.0):
        return ""
    listed = ", ".join(f"{number:g}" for number in numbers)
    hints = [
        f"; if it is in {other}, give {', '.join(f'{number * factor:.10g}' for number in numbers)} {unit}"
        for other, factor in others.items()
        if fits(factor)
    ]
    return (
        f"the {words} of {listed} {unit} ({source}) is outside {least:.10g} to {most:.10g} {unit} and is not used"
        f"{''.join(hints[:1])}"
    )


_KNOWN = frozenset(alias for aliases in ALIASES.values() for alias in aliases)


def is_known(name: str) -> bool:
    """Return whether a name in a file is a known name of axes or of a scale, in any case."""
    return name.lower() in _KNOWN


def interpret(
    entries: Mapping[str, tuple[object, str]],
) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Sort the metadata of a file into known values, their sources, and the rest.

    Parameters
    ----------
    entries : mapping from str to (value, str)
        Name in the file -> its value, and its source in the file.

    Returns
    -------
    values : dict
        Known values by their names in :class:`Metadata`. Here "spacing_mm" may
        still be a list in the order of the spatial axes.
    sources : dict of str
        Source in the file of each value; for a scale that is not plausible, and so has no value, the reason in words.
    others : dict
        All other values by their names in the file.
    """
    by_alias = {alias: key for key, aliases in ALIASES.items() for alias in aliases}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    attributes: dict[str, Any] = {}
    for name, (value, source) in entries.items():
        if name == "coordinates":
            # Files also have text of this name, with which xarray lists its coordinates.
            attributes |= {name: value} if isinstance(value, Mapping) else {}
            continue
        key = by_alias.get(name.lower())
        if key is None or key in values:
            attributes[name] = value
            continue
        text = value.decode("ascii", errors="replace") if isinstance(value, bytes) else value
        known: Any = text
        if key == "axes":
            usable = isinstance(text, str) and text.isascii()
        elif isinstance(value, Mapping):
            usable, known = True, value
        else:
            numbers = scale_numbers(value)
            usable = bool(numbers)
            known = numbers if key == "spacing_mm" else next(iter(numbers), None)
        reason = ""
        if key != "axes":
            if usable:
                reason = implausible(key, known, source)
            elif isinstance(text, str) and any(letter.isdigit() for letter in text):
                words, unit, *_ = PLAUSIBLE[key]
                reason = f"the {words} '{text}' ({source}) is not a number in {unit}, and is not used"
        if reason:
            sources[key] = reason
        elif usable:
            values[key], sources[key] = known, f"file: {source}"
    return values, sources, attributes


def add_verasonics(values: dict[str, Any], sources: dict[str, str], attributes: Mapping[str, object]) -> None:
    """Add the scales of Verasonics scripts: TwFreq in MHz, and PData.PDelta (x, y, z) in wavelengths.

    If the file gives no speed of sound, a wavelength is 1540 m/s over the centre frequency. Scales that the
    file also gives under a known name stay as they are.

    Parameters
    ----------
    values, sources : dicts
        Known values and their sources, from :func:`interpret`; the scales are added to them.
    attributes : mapping
        The other values of the file, from :func:`interpret`.
    """
    source = "UF.TwFreq in MHz"
    for megahertz in scale_numbers(attributes.get("TwFreq", ()))[:1]:
        if "center_frequency_hz" not in values:
            reason = implausible("center_frequency_hz", megahertz * 1e6, source)
            sources["center_frequency_hz"] = reason or f"file: {source}"
            values |= {} if reason else {"center_frequency_hz": megahertz * 1e6}
    try:
        deltas = np.asarray(attributes.get("PDelta", ()), np.float64).reshape(-1)
    except (TypeError, ValueError):
        return
    frequency = values.get("center_frequency_hz")
    if "spacing_mm" in values or not frequency or len(deltas) != 3 or not deltas[0] > 0 or not deltas[2] > 0:
        return
    speed = values.get("sound_speed_m_s", SOUND_SPEED_M_S)
    wavelength_mm = speed / frequency * 1e3
    known = "" if "sound_speed_m_s" in values else " assumed"
    spacing = {
        letter: float(delta) * wavelength_mm for letter, delta in zip("xyz", deltas, strict=True) if delta > 0
    }
    source = f"PData.PDelta in wavelengths at{known} {speed:g} m/s"
    reason = implausible("spacing_mm", spacing, source)
    sources["spacing_mm"] = reason or f"file: {source}"
    values |= {} if reason else {"spacing_mm": spacing}


def with_options(
    values: dict[str, Any],
    sources: dict[str, str],
    attributes: Mapping[str, Any],
    *,
    axes: str | None = None,
    guessed_axes: str = "",
    guessed_from: str = "assumed",
    **scales: Any,
) -> Metadata:
    """Return the metadata of a stack: the user's options first, then the values of the file, then a guess.

    Parameters
    ----------
    values, sources, attributes
        Known values, their sources and the other values of the file, from :func:`interpret`.
    axes : str or None
        Axis letters given by the user.
    guessed_axes : str
        Axis letters to assume if neither the user nor the file gives them.
    guessed_from : str
        Source of these; by default "assumed".
    **scales
        `frame_rate_hz`, `spacing_mm` (one number, or one for each spatial axis) and `center_frequency_hz` given by the user;
        None for those that were not.

    Raises
    ------
    InputError
        If the user gives another number of pitches, or neither the file nor the user specifies which axis is
        depth. Pitches of the file that do not fit the axes are ignored.
    """
    frame_rate_hz, spacing_mm = scales.get("frame_rate_hz"), scales.get("spacing_mm")
    ignored = {name: reason for name, reason in sources.items() if name not in values}
    values, sources, attributes = dict(values), {name: sources[name] for name in values}, dict(attributes)
    coordinates = attributes.pop("coordinates", {})
    stated = values.get("axes")
    if isinstance(stated, AmbiguousAxes) and axes is None:
        raise InputError(stated.sentence)
    if is_renamed := stated is not None and axes not in (None, stated):
        coordinates = _by_user_letters(coordinates, stated, str(axes))
        if isinstance(values.get("spacing_mm"), Mapping):
            values["spacing_mm"] = _by_user_letters(values["spacing_mm"], stated, str(axes))
    if is_renamed or spacing_mm is not None:
        # The user's axes or pitches contradict the matrix of a voxel grid.
        attributes = {
            name: value for name, value in attributes.items() if not name.startswith("voxel_to_world")
        }
    coordinates = {
        letter: coordinate
        for letter, coordinate in coordinates.items()
        if (frame_rate_hz if letter == "t" else spacing_mm) is None
    }
    for key, option in {"axes": axes, **scales}.items():
        if option is not None:
            values[key], sources[key] = option, "option"
    if "axes" not in values:
        values["axes"], sources["axes"] = guessed_axes, guessed_from
    if "spacing_mm" in values:
        spacing = _by_letter(values["spacing_mm"], values["axes"].replace("t", ""), spacing_mm is not None)
        if spacing is None:
            del values["spacing_mm"], sources["spacing_mm"]
        else:
            values["spacing_mm"] = spacing
    is_certain = not isinstance(stated, AmbiguousAxes) and set(stated or "") <= set("tzxy")
    contradiction = (
        f"the axes are '{axes}', as given; the stack has '{stated}'" if is_renamed and is_certain else ""
    )
    ignored = {name: reason for name, reason in ignored.items() if name not in values}
    return Metadata(values, sources, attributes, coordinates, contradiction, ignored)


def without_implausible(metadata: Metadata, frames: slice = slice(None)) -> Metadata:
    """Return metadata without positions and times of frames in another unit, and with the reasons.

    They are in another unit if their median step is not plausible; uneven ones give no scale that would show it.

    Parameters
    ----------
    metadata : Metadata
        The metadata; times that go back were refused.
    frames : slice
        The frames whose times count; by default all.
    """
    coordinates, ignored = dict(metadata.coordinates), dict(metadata.ignored)
    for letter, coordinate in metadata.coordinates.items():
        is_time = letter == "t"
        steps = np.abs(np.diff(coordinate.values[frames] if is_time else coordinate.values))
        steps = steps[np.isfinite(steps) & (steps > 0)]
        if len(steps) == 0:
            continue
        name, source = (
            ("frame_rate_hz", "times of the frames")
            if is_time
            else ("spacing_mm", f"positions along {letter}")
        )
        step = np.median(steps)
        # Positions in single precision have no more than 7 significant digits.
        reason = implausible(name, float(f"{1 / step if is_time else step:.7g}"), source)
        if reason:
            del coordinates[letter]
            ignored.setdefault(name, reason)
    return replace(metadata, coordinates=coordinates, ignored=ignored)


def _by_letter(spacing: Any, spatial: str, is_option: bool) -> dict[str, float] | None:
    """Return the pixel pitch of each spatial axis; None if the pitches of a file do not fit the axes."""
    if isinstance(spacing, Mapping):
        return {letter: pitch for letter, pitch in spacing.items() if letter in spatial}
    pitches = list(spacing)
    if len(pitches) == 1:
        pitches *= len(spatial)
    if len(pitches) == len(spatial):
        return dict(zip(spatial, pitches, strict=True))
    if is_option:
        raise InputError(
            f"{len(pitches)} pixel pitches do not fit the {len(spatial)} spatial axes {spatial}",
            remedy="give {spacing_mm} one number, or one for each axis",
        )
    return None


def _by_user_letters(by_letter: Mapping[str, Any], letters: str, axes: str) -> dict[str, Any]:
    """Return values of a file by the axis letters of the user, instead of the letters of the file."""
    new = dict(zip(letters, axes, strict=False)) if len(letters) == len(axes) else {}
    return {new[letter]: value for letter, value in by_letter.items() if letter in new}


def scale_numbers(value: object) -> list[float]:
    """Return one to three numbers, also in text, as a list; for any other value return an empty list."""
    if isinstance(value, bytes):
        value = value.decode("ascii", errors="replace")
    if isinstance(value, str):
        value = re.sub(r"[\s,;]+", " ", value.strip(" \t\n\0[]()")).split(" ")
    try:
        array = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        return []
    return [float(number) for number in array] if array.size <= 3 else []
