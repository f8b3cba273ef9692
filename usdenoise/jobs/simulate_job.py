"""Simulate a phantom: settings in, a file with the stack and its truth out, or a file for each block of a session."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.blood.doppler import power_doppler
from usdenoise.errors import OptionError
from usdenoise.files.hdf5_writing import write_phantom
from usdenoise.files.output_folder import OutputFolder
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.phantom.motion_and_noise import block_motion, blood_rise, coupling
from usdenoise.system.text import record, to_json

FRAMES_A_PART = 32
"""Frames that are simulated and written together: 25 MB of complex64 at 200 x 130 pixels, with their terms."""

SEEDS_APART = 1_000_003
"""Distance of the seeds of the positions of the probe."""

ONE_FILE = (".h5", ".hdf5")
"""Suffixes of a path to which a session is written as one long file."""


Arrays = dict[str, NDArray[Any]]
"""Arrays by their names in the file, of images, numbers or truth values."""


def simulate_to_file(
    path: str | Path,
    settings: PhantomSettings,
    *,
    threads: int | None = None,
    overwrite: bool = False,
    command: list[str] | None = None,
    on_frames: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Simulate an acquisition or a session of several blocks, and write it a few frames at a time.

    Parameters
    ----------
    path : str or Path
        HDF5 file to write. For a session it may be a folder, without a suffix of HDF5: each block is a file there,
        ``block_00.h5`` and so on.
    settings : PhantomSettings
        Size, scales and levels of the phantom. With `terms`, the file also contains truth/tissue, truth/blood and
        truth/noise.
    threads : int, optional
        Number of threads; by default one for each processor.
    overwrite : bool
        Whether existing files may be replaced.
    command : list of str, optional
        The command line, for the record.
    on_frames : callable, optional
        Called with the number of frames made so far.

    Returns
    -------
    dict
        path, the settings, and vessel_fraction.

    Raises
    ------
    OutputError
        If a file exists or cannot be written.
    """
    path = Path(path)
    blocks = range(settings.n_blocks)
    digits = len(str(blocks[-1]))
    if settings.session is None or path.suffix in ONE_FILE:
        folder, files = path.parent, {path.name: blocks}
    else:
        folder = path
        files = {f"block_{block:0{digits}}.h5": range(block, block + 1) for block in blocks}
    if settings.poses is not None and len(files) < len(blocks):
        raise OptionError(
            f"requires a file for each block, and {path} is one file",
            option="poses",
            remedy="give a folder as OUT",
        )
    with OutputFolder(folder, overwrite) as outputs, ThreadExecutor(threads) as executor:
        output_paths = [(outputs.reserve(name), held) for name, held in files.items()]
        # Each position has an anatomy of its own.
        seeds = [settings.seed + SEEDS_APART * pose for pose in range(settings.poses or 1)]
        phantoms = [Phantom(replace(settings, seed=seed), executor) for seed in seeds]
        provenance = to_json(record(command, asdict(settings), None))
        for output_path, held in output_paths:
            phantom = phantoms[settings.sweep_and_pose(held[0])[1]]
            truth, attributes = _truth(phantom, held), _truth_attributes(settings, held[0])
            parts, n_frames = _parts(phantom, held, truth, on_frames), len(held) * settings.frames_a_block
            write_phantom(output_path, parts, n_frames, truth, attributes, provenance)
        outputs.commit()
    return {"path": str(path), **asdict(settings), "vessel_fraction": float(np.mean(phantoms[0].mask))}


def _truth(phantom: Phantom, blocks: Sequence[int]) -> Arrays:
    """Return the truth of some blocks; the powers of their blood are filled while their frames are made."""
    settings = phantom.settings
    image, length = settings.shape[:-1], settings.frames_a_block
    truth: Arrays = {
        "vessel_mask": phantom.mask,
        "blood_power": np.zeros(image, np.float32),
        "velocity": phantom.velocity_mm_s,
        "noise_power": phantom.noise_power,
    }
    if settings.session is not None:
        truth["block_blood_power"] = np.zeros((len(blocks), *image), np.float32)
        truth["blood_rise"] = np.stack([blood_rise(settings, block) for block in blocks])
        if settings.poses is not None:
            truth["pose"] = np.array([settings.sweep_and_pose(block)[1] for block in blocks])
        truth["start_s"] = np.array([settings.seconds(block * length) for block in blocks])
        truth["is_burst"] = np.isin(blocks, settings.burst_blocks or ())
        truth["shift_pixels"] = np.stack([block_motion(settings, block) for block in blocks])
        middles = [block * length + length // 2 for block in blocks]
        truth["gain_db"] = 20 * np.log10([coupling(settings, frame) for frame in middles])
    if settings.bad_frames:
        bad = phantom.bad_frames - blocks[0] * length
        truth["bad_frames"] = bad[(bad >= 0) & (bad < len(blocks) * length)]
    if phantom.capillary_mask is not None:
        truth["capillary_mask"] = phantom.capillary_mask
    return truth


def _parts(
    phantom: Phantom, blocks: Sequence[int], truth: Arrays, on_frames: Callable[[int], None] | None
) -> Iterator[Arrays]:
    """Yield the arrays of the frames of some blocks, a few frames at a time, and sum up the power of their blood."""
    length = phantom.settings.frames_a_block
    for index, block in enumerate(blocks):
        done = block * length
        for part in phantom.parts(block, FRAMES_A_PART):
            power = np.float32(len(part.iq) / length) * power_doppler(part.blood, axis=0)
            truth["blood_power"][...] += power / np.float32(len(blocks))
            if "block_blood_power" in truth:
                truth["block_blood_power"][index] += power
            yield asdict(part) if phantom.settings.terms else {"iq": part.iq}
            done += len(part.iq)
            if on_frames is not None:
                on_frames(done)


def _truth_attributes(settings: PhantomSettings, first_block: int) -> dict[str, object]:
    spatial = "zxy"[: len(settings.shape) - 1]
    attributes: dict[str, object] = {
        "axes": "t" + spatial,
        "frame_rate_hz": settings.frame_rate_hz,
        "spacing_mm": [settings.wavelength_mm] * len(spatial),
        "center_frequency_hz": settings.center_frequency_hz,
        "sound_speed_m_s": settings.sound_speed_m_s,
    }
    if settings.session is not None:
        attributes["start_s"] = settings.seconds(first_block * settings.frames_a_block)
    return attributes
