"""Simulate a phantom: settings in, a file with the stack and its truth out."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.formats.hdf5.hdf5_phantom import write_phantom
from usdenoise.formats.output_folder import OutputFolder
from usdenoise.images.power_doppler import power_doppler
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.system.provenance import record, to_json

FRAMES_PER_BLOCK = 32
"""Frames that are simulated and written together: 25 MB of complex64 at 200 x 130 pixels, with their terms."""


def simulate_to_file(
    path: str | Path,
    settings: PhantomSettings,
    *,
    terms: bool = False,
    threads: int | None = None,
    overwrite: bool = False,
    command: list[str] | None = None,
    on_frames: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Simulate an acquisition, and write it in blocks of frames.

    Parameters
    ----------
    path : str or Path
        HDF5 file to write.
    settings : PhantomSettings
        Size, scales and levels of the phantom.
    terms : bool
        Whether tissue, blood and noise are also stored one by one (truth/tissue, truth/blood, truth/noise).
    threads : int, optional
        Number of threads; by default one for each processor.
    overwrite : bool
        Whether an existing file may be replaced.
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
        If the file exists or cannot be written.
    """
    path = Path(path)
    with OutputFolder(path.parent, overwrite) as outputs, ThreadExecutor(threads) as executor:
        place = outputs.reserve(path.name)
        phantom = Phantom(settings, executor)
        blood_power = np.zeros(settings.shape[:-1], np.float32)

        def blocks() -> Iterator[dict[str, NDArray[Any]]]:
            done = 0
            for block in phantom.blocks(FRAMES_PER_BLOCK):
                weight = len(block.iq) / settings.n_frames
                blood_power[...] += np.float32(weight) * power_doppler(block.blood, axis=0)
                yield asdict(block) if terms else {"iq": block.iq}
                done += len(block.iq)
                if on_frames is not None:
                    on_frames(done)

        truth = {
            "vessel_mask": phantom.mask,
            "blood_power": blood_power,
            "velocity": phantom.velocity_mm_s,
            "noise_power": phantom.noise_power,
        }
        if settings.bad_frames:
            truth["bad_frames"] = phantom.bad_frames
        if phantom.capillary_mask is not None:
            truth["capillary_mask"] = phantom.capillary_mask
        spatial = "zxy"[: len(settings.shape) - 1]
        write_phantom(
            place,
            blocks(),
            settings.n_frames,
            truth,
            {
                "axes": "t" + spatial,
                "frame_rate_hz": settings.frame_rate_hz,
                "spacing_mm": [settings.wavelength_mm] * len(spatial),
                "center_frequency_hz": settings.center_frequency_hz,
                "sound_speed_m_s": settings.sound_speed_m_s,
            },
            to_json(record(command, asdict(settings), None)),
        )
        outputs.commit()
    return {"path": str(path), **asdict(settings), "vessel_fraction": float(np.mean(phantom.mask))}
