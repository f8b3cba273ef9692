"""``usdenoise simulate``."""

import sys
import time
from pathlib import Path
from typing import Any

import click

from usdenoise.cli import shared_options as shared
from usdenoise.cli.console import Console, print_json, print_table, shape_text
from usdenoise.cli.option_groups import Group, GroupedCommand, option
from usdenoise.cli.option_values import positive_numbers


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
            "usdenoise simulate volume.h5 --shape 24x20x16x80 --terms",
            "Simulate a volume, and store its terms",
        ),
    ],
)
@click.argument("out", type=click.Path(path_type=Path))
@option(
    Group.PHANTOM,
    "--shape",
    metavar="ZxX[xY]xT",
    callback=positive_numbers("ZxXxT or ZxXxYxT", "x", int, range(3, 5)),
    show_default="128x96x400",
    help="Pixels in depth, width (and elevation), and frames.",
)
@option(
    Group.PHANTOM,
    "--frame-rate",
    "frame_rate_hz",
    type=float,
    metavar="HZ",
    show_default="1000",
    help="Frames per second.",
)
@option(
    Group.PHANTOM,
    "--center-frequency",
    "center_frequency_hz",
    type=float,
    metavar="HZ",
    show_default="15e6",
    help="Centre frequency of the pulse. The pixel pitch is its wavelength.",
)
@option(
    Group.PHANTOM,
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    show_default="0",
    help="Seed of the phantom. The same seed gives the same phantom.",
)
@option(Group.PHANTOM, "--real", is_flag=True, help="Simulate real RF instead of complex IQ.")
@option(
    Group.LEVELS,
    "--clutter-to-blood",
    "clutter_to_blood_db",
    type=float,
    metavar="DB",
    show_default="40",
    help="Mean power of tissue over that of blood. Raise it for a harder phantom.",
)
@option(
    Group.LEVELS,
    "--blood-to-noise",
    "blood_to_noise_db",
    type=float,
    metavar="DB",
    show_default="6",
    help="Mean power of blood over that of noise at the bottom of the image; inf leaves the noise out.",
)
@option(
    Group.LEVELS,
    "--noise-gain",
    "noise_gain_db",
    type=float,
    metavar="DB",
    show_default="0",
    help="How much stronger the noise is at the bottom than at the top, as after a time-gain compensation.",
)
@option(
    Group.LEVELS,
    "--noise-correlation",
    "noise_correlation_pixels",
    type=float,
    metavar="PIXELS",
    show_default="0",
    help="Standard deviation of the Gaussian that smooths the noise in space. Its power stays the same.",
)
@option(
    Group.LEVELS,
    "--attenuation",
    "attenuation_db",
    type=float,
    metavar="DB",
    show_default="0",
    help="Loss of tissue and blood from the top of the image to the bottom.",
)
@option(
    Group.FLOW,
    "--max-speed",
    "max_speed_mm_s",
    type=float,
    metavar="MM_S",
    help="Speed on the axis of the fastest vessel in mm/s. Flow may then alias. By default speeds scale with "
    "the frame rate so that none does.",
)
@option(
    Group.FLOW,
    "--thin-vessels",
    type=click.IntRange(0),
    metavar="N",
    show_default="0",
    help="Number of additional vessels that are 1 to 2 pixels wide.",
)
@option(
    Group.FLOW,
    "--capillary",
    "capillary_db",
    type=float,
    metavar="DB",
    help="Add a region with slow flow in all directions (0.5 to 2 mm/s); DB is its blood power over that of "
    "the vessels. By default there is none.",
)
@option(
    Group.DISTURBANCES,
    "--bad-frames",
    type=click.IntRange(0),
    metavar="N",
    show_default="0",
    help="Number of frames with electrical interference, at random times.",
)
@option(
    Group.DISTURBANCES,
    "--bad-frame-level",
    type=float,
    metavar="X",
    show_default="3",
    help="Rms of the interference over that of tissue and blood.",
)
@option(
    Group.DISTURBANCES,
    "--jerk",
    "jerk_pixels",
    type=float,
    metavar="PIXELS",
    show_default="0",
    help="Largest displacement of the image by a jerk, out and back in a tenth of the scan.",
)
@option(
    Group.DISTURBANCES,
    "--drift",
    "drift_pixels",
    type=float,
    metavar="PIXELS",
    show_default="0",
    help="Displacement of the image from the first frame to the last.",
)
@option(
    Group.DISTURBANCES,
    "--breathing",
    metavar="PIXELS@HZ",
    callback=positive_numbers("PIXELS@HZ", "@", float, range(2, 3)),
    help="Amplitude and rate of a periodic displacement of the image. By default there is none.",
)
@option(Group.OUTPUTS, "--terms", is_flag=True, help="Store tissue, blood and noise too, each as a stack.")
@shared.threads_option(Group.PHANTOM)
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
    """Simulate an acquisition with known truth, and write it to the HDF5 file OUT.

    The group truth of the file has vessel_mask, blood_power (mean over the frames), noise_power (expected), velocity
    (axial, in mm/s, positive towards the probe), capillary_mask if there are capillaries, and the numbers of the bad
    frames if there are any.
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
        letters = "zxyt" if len(settings.shape) == 4 else "zxt"
        shape = shape_text({"axes": letters, "shape": settings.shape})
        print_table(
            [
                (
                    "phantom",
                    f"{shape}, {'real' if settings.real else 'complex'}, seed {settings.seed}",
                ),
                ("vessels", f"{100 * summary['vessel_fraction']:.1f} % of the pixels"),
                ("time", f"{time.perf_counter() - began:.1f} s"),
                ("wrote", summary["path"]),
            ]
        )
