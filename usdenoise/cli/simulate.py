"""``usdenoise simulate``."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, print_json, print_table


@click.command("simulate", short_help="Make a phantom with known truth.")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--shape",
    metavar="ZxX[xY]xT",
    callback=shared.positive_numbers("ZxXxT or ZxXxYxT", "x", int, range(3, 5)),
    help="Pixels and frames.  [default: 128x96x400]",
)
@click.option(
    "--frame-rate", "frame_rate_hz", type=float, metavar="HZ", help="Frames a second.  [default: 1000]"
)
@click.option("--center-frequency", "center_frequency_hz", type=float, metavar="HZ", help="[default: 15e6]")
@click.option(
    "--clutter-to-blood",
    "clutter_to_blood_db",
    type=float,
    metavar="DB",
    help="Tissue over blood.  [default: 40]",
)
@click.option(
    "--blood-to-noise", "blood_to_noise_db", type=float, metavar="DB", help="Blood over noise.  [default: 6]"
)
@click.option("--seed", type=click.IntRange(0), help="Same seed, same phantom.  [default: 0]")
@click.option("--real", is_flag=True, help="Real RF in place of complex IQ.")
@click.option("--terms", is_flag=True, help="Store tissue, blood and noise apart, too.")
@click.option("--threads", type=click.IntRange(1), help="Threads; by default all processors.")
@shared.overwrite_option
@shared.json_option
@shared.verbosity_options
def command(
    out: Path,
    terms: bool,
    threads: int | None,
    overwrite: bool,
    as_json: bool,
    quiet: int,
    verbose: int,
    **values: Any,
) -> None:
    """Simulate an acquisition and write it, with its truth, to the HDF5 file OUT.

    The truth is in the group truth: vessel_mask, blood_power (mean over frames) and velocity (axial, in mm/s,
    positive towards the probe).
    """
    from usdenoise.jobs.simulate_job import simulate_to_file
    from usdenoise.phantom import PhantomSettings

    settings = PhantomSettings(**shared.given(values))
    began = time.perf_counter()
    with Console(quiet, verbose) as console:
        console.begin("frames", settings.n_frames)
        summary = simulate_to_file(
            out,
            settings,
            terms=terms,
            threads=threads,
            overwrite=overwrite,
            command=["usdenoise", *sys.argv[1:]],
            on_frames=console.advance,
        )
    if as_json:
        print_json(summary)
    elif not quiet:
        shape = " x ".join(str(n) for n in settings.shape)
        print_table(
            [
                (
                    "phantom",
                    f"{shape} (z x [y] t), {'real' if settings.real else 'complex'}, seed {settings.seed}",
                ),
                ("vessels", f"{100 * summary['vessel_fraction']:.1f} % of the pixels"),
                ("time", f"{time.perf_counter() - began:.1f} s"),
                ("wrote", summary["path"]),
            ]
        )
