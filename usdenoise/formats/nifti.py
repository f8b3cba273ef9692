"""A power-Doppler sequence as NIfTI with the JSON sidecar of fUSI-BIDS; nibabel is loaded when one is written.

(Fields: the fUSI-BIDS proposal, BIDS extension 40.) Axes are x lateral, y elevation, z depth, then time.
"""

import gzip
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import OptionError
from usdenoise.stack.acquisition import Acquisition

_ORDER = "xyz"


def write_nifti(
    path: Path,
    power: NDArray[np.float32],
    stack: Acquisition,
    times: NDArray[np.float64],
    unit: str,
    window: int,
    stride: int,
    blocks: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Write a sequence, and return its sidecar.

    Parameters
    ----------
    path : Path
        Written, gzipped.
    power : (n_blocks, spatial) array
        Power Doppler, spatial axes as in the stack.
    stack : Acquisition
        Whose axes and scales these are. Pixels of unknown pitch have 1 mm, and the sidecar says so.
    times : (n_blocks,) array
        Middle of each block, in seconds or frames.
    unit : str
        "s" or "frames".
    window, stride : int
        Frames a block, and frames from one block to the next.
    blocks : sequence of mappings
        Records of the blocks, in order: low_cutoff, complete.

    Returns
    -------
    dict
        The sidecar's fields.

    Raises
    ------
    OptionError
        If nibabel is not installed.
    """
    nibabel = import_nibabel()
    spatial = stack.spatial_axes
    present = [letter for letter in _ORDER if letter in spatial]
    values = power.transpose([1 + spatial.index(letter) for letter in present] + [0])
    if "y" not in spatial:
        values = values[:, None]
    pitches = [stack.spacing_mm.get(letter, 1.0) for letter in _ORDER]
    image = nibabel.Nifti1Image(np.ascontiguousarray(values), np.diag([*pitches, 1.0]))
    step = float(times[1] - times[0]) if len(times) > 1 else 1.0
    image.header.set_zooms((*pitches, step))
    image.header.set_xyzt_units("mm", "sec" if unit == "s" else "unknown")
    # nibabel goes by the suffix, and this name is temporary.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, 0) as file:
        file.write(image.to_bytes())
    return _sidecar(
        stack, times, unit, window, stride, blocks, [x for x in spatial if x not in stack.spacing_mm]
    )


def import_nibabel() -> Any:
    """The package nibabel.

    Raises
    ------
    OptionError
        If it is not installed.
    """
    try:
        return import_module("nibabel")
    except ImportError as error:
        raise OptionError(
            "NIfTI needs the package nibabel; run pip install 'usdenoise[nifti]', or leave out --nifti"
        ) from error


def _sidecar(
    stack: Acquisition,
    times: NDArray[np.float64],
    unit: str,
    window: int,
    stride: int,
    blocks: Sequence[Mapping[str, Any]],
    unknown: Sequence[str],
) -> dict[str, Any]:
    rate = stack.frame_rate_hz
    cutoffs = sorted({int(block["low_cutoff"]) for block in blocks})
    components = f"{cutoffs[0]}" if len(cutoffs) == 1 else f"{cutoffs[0]} to {cutoffs[-1]}"
    fields: dict[str, Any] = {
        "Description": "Power Doppler in blocks of frames",
        "ClutterFilters": [f"low-rank, {components} leading components removed in each block"],
        "UltrasoundTransmitFrequency": (
            None if stack.center_frequency_hz is None else stack.center_frequency_hz / 1e6
        ),
        "BeamformingSoundVelocity": stack.sound_speed_m_s,
        "CompoundSamplingFrequency": rate,
        "FramesPerBlock": window,
        "BlockStride": stride,
        "CompleteBlocks": [bool(block["complete"]) for block in blocks],
    }
    if rate is not None:
        middles = [(block["n_frames"] - 1) / 2 / rate for block in blocks]
        starts = [round(float(at) - half, 9) for at, half in zip(times, middles, strict=True)]
        fields |= {
            "VolumeTiming": starts,
            "FrameAcquisitionDuration": window / rate,
            "ClutterFilterWindowDuration": window / rate,
            "ClutterFilterWindowStride": stride / rate,
            "PowerDopplerIntegrationDuration": window / rate,
            "PowerDopplerIntegrationStride": stride / rate,
        }
    if unknown:
        fields["PixelPitchUnknown"] = list(unknown)
    return {name: value for name, value in fields.items() if value is not None}
