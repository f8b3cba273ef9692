"""Names under which files keep the scales of a stack, and the options that override them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from usdenoise.errors import InputError
from usdenoise.formats.description import Metadata
from usdenoise.stack.acquisition import SOUND_SPEED_M_S

ALIASES: Mapping[str, tuple[str, ...]] = {
    "frame_rate_hz": (
        "frame_rate_hz",
        "frame_rate",
        "framerate",
        "compound_sampling_frequency",
        "framerateuf",
    ),
    "center_frequency_hz": ("center_frequency_hz", "center_frequency", "transmit_frequency"),
    "sound_speed_m_s": ("sound_speed_m_s", "sound_speed", "speed_of_sound", "beamforming_sound_velocity"),
    "spacing_mm": ("spacing_mm", "pixel_spacing_mm"),
    "axes": ("axes",),
}


_KNOWN = frozenset(alias for aliases in ALIASES.values() for alias in aliases)


def is_known(name: str) -> bool:
    """Whether a name is one under which files keep axes or scales."""
    return name.lower() in _KNOWN


def interpret(found: Mapping[str, tuple[Any, str]]) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """Sort what a file says into known metadata, their sources, and the rest.

    Parameters
    ----------
    found : mapping
        Name in the file -> (value, where it stands).

    Returns
    -------
    values, sources, others : dicts
        See :class:`usdenoise.formats.description.Metadata`. A spacing may still be a list here, in the order
        of the spatial axes.
    """
    by_alias = {alias: key for key, aliases in ALIASES.items() for alias in aliases}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    others: dict[str, Any] = {}
    for name, (value, place) in found.items():
        key = by_alias.get(name.lower())
        if key is None or key in values:
            others[name] = value
            continue
        if key == "axes":
            known: Any = value.decode("ascii", errors="replace") if isinstance(value, bytes) else value
            usable = isinstance(known, str) and known.isascii()
        elif isinstance(value, Mapping):
            usable, known = True, value
        else:
            numbers = positive_numbers(value)
            usable = bool(numbers)
            known = numbers if key == "spacing_mm" else next(iter(numbers), None)
        if usable:
            values[key], sources[key] = known, f"file: {place}"
    return values, sources, others


def add_verasonics(values: dict[str, Any], sources: dict[str, str], others: Mapping[str, Any]) -> None:
    """Add what Verasonics scripts keep in other units: MHz (TwFreq), and wavelengths (PData.PDelta: x, y, z).

    Parameters
    ----------
    values, sources : dicts
        Changed in place.
    others : mapping
        As :func:`interpret` gives them. Without a speed of sound the wavelength is that at 1540 m/s.
    """
    megahertz = positive_numbers(others.get("TwFreq", ()))
    if megahertz and "center_frequency_hz" not in values:
        values["center_frequency_hz"] = megahertz[0] * 1e6
        sources["center_frequency_hz"] = "file: UF.TwFreq in MHz"
    try:
        deltas = np.asarray(others.get("PDelta", ()), np.float64).reshape(-1)
    except (TypeError, ValueError):
        return
    frequency = values.get("center_frequency_hz")
    if "spacing_mm" in values or not frequency or len(deltas) != 3 or not deltas[0] > 0 or not deltas[2] > 0:
        return
    speed = values.get("sound_speed_m_s", SOUND_SPEED_M_S)
    wavelength_mm = speed / frequency * 1e3
    known = "" if "sound_speed_m_s" in values else " assumed"
    values["spacing_mm"] = {
        letter: float(delta) * wavelength_mm for letter, delta in zip("xyz", deltas, strict=True) if delta > 0
    }
    sources["spacing_mm"] = f"file: PData.PDelta in wavelengths at{known} {speed:g} m/s"


def with_options(
    values: dict[str, Any],
    sources: dict[str, str],
    attributes: Mapping[str, Any],
    *,
    axes: str | None,
    guessed_axes: str,
    frame_rate_hz: float | None,
    spacing_mm: tuple[float, ...] | None,
) -> Metadata:
    """Metadata with the user's options over the file's, and axes guessed where neither tells.

    Raises
    ------
    InputError
        If the number of pitches given does not fit the axes.
    """
    values, sources = dict(values), dict(sources)
    for key, option in (("axes", axes), ("frame_rate_hz", frame_rate_hz), ("spacing_mm", spacing_mm)):
        if option is not None:
            values[key], sources[key] = option, "option"
    if "axes" not in values:
        values["axes"], sources["axes"] = guessed_axes, "assumed"
    spatial = values["axes"].replace("t", "")
    if isinstance(values.get("spacing_mm"), Mapping):
        values["spacing_mm"] = {
            letter: pitch for letter, pitch in values["spacing_mm"].items() if letter in spatial
        }
    elif "spacing_mm" in values:
        pitches = list(values["spacing_mm"])
        pitches = pitches * len(spatial) if len(pitches) == 1 else pitches
        if len(pitches) != len(spatial):
            if sources["spacing_mm"] == "option":
                raise InputError(
                    f"{len(pitches)} pixel pitches for the {len(spatial)} spatial axes {spatial}; "
                    "give --spacing one number, or one for each"
                )
            del values["spacing_mm"], sources["spacing_mm"]
        else:
            values["spacing_mm"] = dict(zip(spatial, pitches, strict=True))
    return Metadata(values, sources, attributes)


def positive_numbers(value: Any) -> list[float]:
    """The numbers in a value, if there are one to three and all are finite and positive; else none."""
    try:
        array = np.asarray(value, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        return []
    numbers = [float(number) for number in array] if array.size <= 3 else []
    return numbers if all(math.isfinite(number) and number > 0 for number in numbers) else []
