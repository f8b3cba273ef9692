"""Metadata: the names of scales and axes in files, and the options that override them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from usdenoise.errors import InputError
from usdenoise.options import ReadOptions
from usdenoise.options.denoise_options import SCALE_NAMES
from usdenoise.options.kinds import PITCHES_MM, SCALES
from usdenoise.stack.geometry import SOUND_SPEED_M_S, Coordinate
from usdenoise.stack.labels import ALIASES, AmbiguousAxes, Found


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
    def notes(self) -> tuple[str, ...]:
        """Sentences on scales that the stack has and that are not used."""
        if "t" not in self.coordinates or "frame_rate_hz" in self.values:
            return tuple(self.ignored.values())
        uneven = "the times of the frames are uneven, so the frame rate is not known: give it"
        return (uneven, *self.ignored.values())

    def with_value(self, name: str, value: Any, source: str) -> "Metadata":
        """Return the metadata with axes or a scale of the file, or with the reason why the scale is not used.

        Parameters
        ----------
        name : str
            "axes", or one of :data:`PLAUSIBLE`.
        value, source
            Its value and its source, as for :func:`implausible`.
        """
        if name in PLAUSIBLE and (reason := implausible(name, value, source)):
            return replace(self, ignored={**self.ignored, name: reason})
        values, sources = {**self.values, name: value}, {**self.sources, name: f"file: {source}"}
        return replace(self.without(name), values=values, sources=sources)

    def without(self, *names: str) -> "Metadata":
        """Return the metadata without some scales, or positions along some axes, and reasons why they are not used."""
        parts: tuple[Mapping[str, Any], ...] = (self.values, self.sources, self.coordinates, self.ignored)
        values, sources, coordinates, ignored = (
            {name: value for name, value in part.items() if name not in names} for part in parts
        )
        return replace(self, values=values, sources=sources, coordinates=coordinates, ignored=ignored)


PLAUSIBLE = {
    "frame_rate_hz": ("frame rate", "Hz", (10.0, 50e3), {"kHz": 1e3}),
    "center_frequency_hz": ("centre frequency", "Hz", (0.5e6, 100e6), {"kHz": 1e3, "MHz": 1e6}),
    "spacing_mm": ("pixel pitch", "mm", PITCHES_MM, {"m": 1e3, "um": 1e-3}),
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
    words, unit, (least, most), _ = PLAUSIBLE[name]
    numbers = np.ravel(list(value.values()) if isinstance(value, Mapping) else value).astype(float).tolist()
    stored_unit, in_our_unit = _in_unit(name, numbers)
    if stored_unit == unit:
        return ""
    listed = ", ".join(f"{number:g}" for number in numbers)
    hint = f"; if it is in {stored_unit}, give {in_our_unit.replace(',', ', ')} {unit}" if stored_unit else ""
    return f"the {words} of {listed} {unit} ({source}) is outside {least:.10g} to {most:.10g} {unit} and is not used{hint}"


def _in_unit(name: str, numbers: Sequence[float]) -> tuple[str, str]:
    """Return the first unit in which the values of a scale are plausible, empty if none is, and the values in ours."""
    _, unit, (least, most), others = PLAUSIBLE[name]
    for stored_unit, factor in {unit: 1.0, **others}.items():
        if all(least <= number * factor <= most for number in numbers):
            return stored_unit, ",".join(f"{number * factor:.10g}" for number in numbers)
    return "", ""


_LIKE = {
    "frame_rate_hz": "prf|fps|rate|repet|sampl|frame_?freq|^f_?[rs]$",
    "spacing_mm": "^d_?[xyz]$|pitch|spacing|(pixel|voxel)_?(size|dim)|voxdim|resol",
    "center_frequency_hz": "freq|^f_?[0c]$",
}
"""Our name of a scale -> pattern of the names, in any case, that other programs give it; the first that fits decides."""


def possible_scales(metadata: Metadata, scalars: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield the scalars of a file that could be an unknown scale of its stack, by their names and plausible values.

    Parameters
    ----------
    metadata : Metadata
        The known scales.
    scalars : mapping
        Name in the file, with its group or struct -> value.

    Yields
    ------
    tuple of str
        The name with its value and the likely unit, our name of the scale, and the value in our unit.
    """
    for name, value in scalars.items():
        last, numbers = name.rpartition("/")[2], scale_numbers(value)
        key = next((key for key, like in _LIKE.items() if re.search(like, last, re.IGNORECASE)), "")
        if numbers and key and key not in {**metadata.values, **metadata.ignored}:
            unit, given = _in_unit(key, numbers)
            if given:
                yield f"{name} = {', '.join(f'{number:g}' for number in numbers)}, if in {unit}", key, given


_KEYS: dict[str, str | None] = {alias: key for key, aliases in ALIASES.items() for alias in aliases}
# Entries from which scales are computed
_KEYS |= dict.fromkeys(("twfreq", "pdelta", "voxel_to_world", "voxel_to_world_units"))


def is_known(name: str) -> bool:
    """Return whether a name in a file is a known name of axes or of a scale, in any case."""
    return name.lower() in _KEYS


def interpret(entries: Found) -> Metadata:
    """Sort the metadata of a file into known values, with their sources, and the rest.

    Parameters
    ----------
    entries : mapping from str to (value, str)
        Name in the file -> its value, and its source in the file.

    Returns
    -------
    Metadata
        "spacing_mm" may still be a list in the order of the spatial axes. The scales of Verasonics scripts are among the
        values, if no other entry gives them.
    """
    metadata, attributes = Metadata(), dict[str, object]()
    for name, (value, source) in entries.items():
        key = _KEYS.get(name.lower())
        text = value.decode("ascii", errors="replace") if isinstance(value, bytes) else value
        if name == "coordinates":
            # Files also have text of this name, with which xarray lists its coordinates.
            metadata = replace(metadata, coordinates=value if isinstance(value, Mapping) else {})
        elif key is None or key in metadata.values:
            attributes[name] = value
        elif key == "axes":
            if isinstance(text, str) and text.isascii():
                metadata = metadata.with_value(key, text, source)
        elif isinstance(value, Mapping) or (numbers := scale_numbers(value)):
            known = value if isinstance(value, Mapping) else numbers if key == "spacing_mm" else numbers[0]
            metadata = metadata.with_value(key, known, source)
        elif isinstance(text, str) and any(map(str.isdigit, text)):
            words, unit, *_ = PLAUSIBLE[key]
            reason = f"the {words} '{text}' ({source}) is not a number in {unit}, and is not used"
            metadata = replace(metadata, ignored={**metadata.ignored, key: reason})
    return _with_verasonics(replace(metadata, attributes=attributes))


def _with_verasonics(metadata: Metadata) -> Metadata:
    """Return metadata with the scales of Verasonics scripts: TwFreq in MHz, and PData.PDelta (x, y, z) in wavelengths.

    If the file gives no speed of sound, a wavelength is 1540 m/s over the centre frequency.
    """
    if "center_frequency_hz" not in metadata.values:
        for megahertz in scale_numbers(metadata.attributes.get("TwFreq", ()))[:1]:
            metadata = metadata.with_value("center_frequency_hz", megahertz * 1e6, "UF.TwFreq in MHz")
    values = metadata.values
    try:
        deltas = np.asarray(metadata.attributes.get("PDelta", ()), np.float64).reshape(-1)
    except (TypeError, ValueError):
        return metadata
    frequency = values.get("center_frequency_hz")
    if "spacing_mm" in values or not frequency or len(deltas) != 3 or not deltas[0] > 0 or not deltas[2] > 0:
        return metadata
    speed = values.get("sound_speed_m_s", SOUND_SPEED_M_S)
    known = "" if "sound_speed_m_s" in values else " assumed"
    pitches = zip("xyz", (float(delta) * (speed / frequency * 1e3) for delta in deltas), strict=True)
    spacing = {letter: pitch for letter, pitch in pitches if pitch > 0}
    source = f"PData.PDelta in wavelengths at{known} {speed:g} m/s"
    return metadata.with_value("spacing_mm", spacing, source)


def with_options(
    metadata: Metadata, options: ReadOptions, guessed_axes: str = "", guessed_from: str = "assumed"
) -> Metadata:
    """Return the metadata of a stack: the user's options first, then the values of the file, then a guess.

    Parameters
    ----------
    metadata : Metadata
        Metadata of the file, from :func:`interpret`.
    options : ReadOptions
        Axes and scales given by the user.
    guessed_axes : str
        Axis letters to assume if neither the user nor the file gives them.
    guessed_from : str
        Source of these; by default "assumed".

    Raises
    ------
    InputError
        If the user gives another number of pitches, or neither the file nor the user specifies which axis is
        depth. Pitches of the file that do not fit the axes are ignored.
    """
    axes, frame_rate_hz, spacing_mm = options.axes, options.frame_rate_hz, options.spacing_mm
    values, sources = dict(metadata.values), dict(metadata.sources)
    attributes, coordinates = metadata.attributes, metadata.coordinates
    stated = values.get("axes")
    if isinstance(stated, AmbiguousAxes) and axes is None:
        raise InputError(stated.sentence)
    if is_renamed := stated is not None and axes not in (None, stated):
        coordinates = _by_user_letters(coordinates, stated, str(axes))
        if isinstance(values.get("spacing_mm"), Mapping):
            values["spacing_mm"] = _by_user_letters(values["spacing_mm"], stated, str(axes))
    if is_renamed or spacing_mm is not None:
        # The user's axes or pitches contradict the matrix of a voxel grid.
        attributes = {key: value for key, value in attributes.items() if not key.startswith("voxel_to_world")}
    given = {"t": frame_rate_hz}
    coordinates = {
        letter: along for letter, along in coordinates.items() if given.get(letter, spacing_mm) is None
    }
    for key in ("axes", *SCALE_NAMES.values()):
        if (option := getattr(options, key)) is not None:
            values[key], sources[key] = option, "option"
    if "axes" not in values:
        values["axes"], sources["axes"] = guessed_axes, guessed_from
    pitches, spatial = values.get("spacing_mm"), values["axes"].replace("t", "")
    if isinstance(pitches, Mapping):
        values["spacing_mm"] = {letter: pitch for letter, pitch in pitches.items() if letter in spatial}
    elif pitches is not None and len(pitches) in (1, len(spatial)):
        # One pitch is that of all axes.
        values["spacing_mm"] = dict(zip(spatial, [*pitches] * len(spatial), strict=False))
    elif spacing_mm is not None:
        raise InputError(
            f"{len(spacing_mm)} pixel pitches do not fit the {len(spatial)} spatial axes {spatial}",
            remedy="give {spacing_mm} one number, or one for each axis",
        )
    elif pitches is not None:
        del values["spacing_mm"], sources["spacing_mm"]
    is_certain = not isinstance(stated, AmbiguousAxes) and set(stated or "") <= set("tzxy")
    sentence = f"the axes are '{axes}', as given; the stack has '{stated}'"
    contradiction = sentence if is_renamed and is_certain else ""
    ignored = {name: reason for name, reason in metadata.ignored.items() if name not in values}
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
    for letter, coordinate in metadata.coordinates.items():
        is_time = letter == "t"
        name = "frame_rate_hz" if is_time else "spacing_mm"
        source = "times of the frames" if is_time else f"positions along {letter}"
        steps = np.abs(np.diff(coordinate.values[frames] if is_time else coordinate.values))
        steps = steps[np.isfinite(steps) & (steps > 0)]
        if len(steps) == 0:
            continue
        step = 1 / np.median(steps) if is_time else np.median(steps)
        # Positions in single precision have no more than 7 significant digits.
        if reason := implausible(name, float(f"{step:.7g}"), source):
            ignored = {**metadata.ignored, name: metadata.ignored.get(name, reason)}
            metadata = replace(metadata.without(letter), ignored=ignored)
    return metadata


def _by_user_letters(by_letter: Mapping[str, Any], letters: str, axes: str) -> dict[str, Any]:
    """Return values of a file by the axis letters of the user, instead of the letters of the file."""
    new = dict(zip(letters, axes, strict=False)) if len(letters) == len(axes) else {}
    return {new[letter]: value for letter, value in by_letter.items() if letter in new}


def scale_numbers(value: object) -> list[float]:
    """Return one to three real numbers, also in text, as a list; for any other value return an empty list."""
    if isinstance(value, bytes):
        value = value.decode("ascii", errors="replace")
    if isinstance(value, str):
        value = re.sub(r"[\s,;]+", " ", value.strip(" \t\n\0[]()")).split(" ")
    try:
        array = np.asarray(value)
        if array.dtype.kind == "c" or array.size > 3:
            return []
        return [float(number) for number in array.astype(np.float64).reshape(-1)]
    except (TypeError, ValueError):
        return []
