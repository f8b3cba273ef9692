"""``usdenoise simulate``."""

import time
from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, two_columns, typed_command
from usdenoise.cli.flags import GroupedCommand, PathType
from usdenoise.options import DenoiseOptions, JobOptions, PhantomSettings
from usdenoise.options.declaration import Group


@click.command(
    "simulate",
    cls=GroupedCommand,
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
@click.argument("out", type=PathType())
@shared.flags_of(PhantomSettings)
@shared.keys_of(
    PhantomSettings,
    Group.PHANTOM_KEYS,
    "Set one of the keys below, for example thin_vessels=5. Repeat it for several keys.",
)
@shared.flags_of(DenoiseOptions, "threads")
@shared.flags_of(JobOptions, "overwrite")
@shared.messages
def command(out: Path, threads: int | None, console: Console, **values: Any) -> None:
    """Simulate an acquisition with known truth, and write it to the HDF5 file OUT, or a session to the folder OUT.

    The group truth of the file has vessel_mask, blood_power (mean over the frames), noise_power (expected), velocity
    (axial, in mm/s, positive towards the probe), capillary_mask if there are capillaries, and the numbers of the bad
    frames if there are any. A session also has block_blood_power, blood_rise (the relative rise by the activation), start_s,
    is_burst, shift_pixels (z, x, y) and gain_db, one value or image for each block.
    """
    from usdenoise.jobs.simulate_job import simulate_to_file

    settings = PhantomSettings(**shared.requested(PhantomSettings, {**values, **dict(values["set"])}))
    began = time.perf_counter()
    console.begin("frames", settings.n_frames)

    def show_progress(done: int) -> None:
        console.advance(done)
        block, rest = divmod(done, settings.frames_a_block)
        if settings.session is not None and not rest and not console.is_animated:
            console.say(f"{block} of {settings.n_blocks} blocks are simulated")

    summary = simulate_to_file(
        out,
        settings,
        threads=threads,
        overwrite=values["overwrite"],
        command=typed_command(),
        on_frames=show_progress,
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
    console.show(summary, lambda: two_columns(rows))
