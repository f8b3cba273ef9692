"""Stacks that are Dask arrays, against the same stacks in memory."""

import os
import signal
import threading
import time
from collections import Counter

import dask
import dask.array as da
import numpy as np
import pytest
import xarray
from distributed import Client, LocalCluster

import usdenoise
from tests.conftest import all_frames
from tests.reference.matrices import with_gaps
from usdenoise.errors import InputError, OptionError
from usdenoise.phantom import PhantomSettings
from usdenoise.pipeline import inspection

CHUNKINGS = {"whole": (120, 40, 32), "frames": (7, 40, 32), "pixels": (120, 7, 9), "both": (50, 13, 32)}


def difference(found, expected):
    return np.linalg.norm(np.asarray(found) - np.asarray(expected)) / np.linalg.norm(np.asarray(expected))


@pytest.fixture(scope="module")
def stacks(small_phantom):
    """The small phantom: as it is, with gaps, and with bad frames."""
    iq = small_phantom[1].iq
    bad = iq.copy()
    bad[17] = 0
    bad[60] *= 7
    return {"plain": iq, "gaps": with_gaps(iq, 5), "bad frames": bad}


@pytest.fixture(scope="module")
def in_memory(stacks):
    """Their results in memory, made when they are asked for."""
    made = {}

    def result(name, **options):
        key = name, tuple(options.items())
        if key not in made:
            made[key] = usdenoise.denoise(stacks[name], axes="tzx", **options)
        return made[key]

    return result


def check_equal(found, expected, maps=0.0):
    """Check that two results are equal; their blood maps within `maps` if that is more than rounding errors."""
    # Fits of pixels with gaps amplify rounding errors.
    rel = 1e-4 if expected.observed is None else 5e-4
    assert found.options == expected.options
    assert found.verdict == expected.verdict
    assert found.n_unobserved == expected.n_unobserved
    if expected.observed is None:
        assert found.observed is None
    else:
        assert np.array_equal(found.observed, expected.observed)
    assert difference(found.power_doppler, expected.power_doppler) < rel
    # Where there is next to no blood, its power is a small difference of the noise power.
    assert difference(
        found.blood_power + found.noise_power, expected.blood_power + expected.noise_power
    ) < max(rel, maps)
    assert difference(found.noise_power, expected.noise_power) < max(rel, maps)
    assert found.singular_values == pytest.approx(expected.singular_values, rel=1e-3)
    assert difference(found.acquisition.iq, expected.acquisition.iq) < 1e-3


@pytest.mark.parametrize(
    ("name", "chunks"), [("plain", "frames"), ("plain", "pixels"), ("gaps", "both"), ("bad frames", "both")]
)
def test_a_dask_array_gives_the_result_of_the_array(stacks, in_memory, name, chunks):
    lazy = da.from_array(stacks[name], chunks=CHUNKINGS[chunks])
    found = usdenoise.denoise(lazy, axes="tzx")
    assert isinstance(found.acquisition.iq, da.Array)
    assert found.acquisition.iq.chunks == lazy.chunks
    check_equal(found, in_memory(name))


@pytest.mark.parametrize(("name", "options"), [
    ("plain", {"high_cutoff": "rank"}),
    ("gaps", {"high_cutoff": 20, "low_cutoff": 5, "rank": 25, "bad_frames": (3, 4)}),
    ("plain", {"precision": "double", "sampling": 0.2, "seed": 3}),
], ids=str)  # fmt: skip
def test_options_have_the_same_effect_on_chunks(stacks, in_memory, name, options):
    lazy = da.from_array(stacks[name], chunks=CHUNKINGS["both"])
    check_equal(usdenoise.denoise(lazy, axes="tzx", **options), in_memory(name, **options))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_real_volumes_of_any_scale_and_axis_order(scale):
    rng = np.random.default_rng(2)
    tissue = 300 * np.outer(rng.standard_normal(9 * 8 * 7), np.linspace(1, 1.2, 60))
    volume = (scale * (tissue + rng.standard_normal(tissue.shape))).reshape(9, 8, 7, 60)
    stack = volume.transpose(3, 1, 0, 2).astype(np.float32)
    expected = usdenoise.denoise(stack, axes="txzy")
    # In noise alone all frequencies are about as quiet, and a rounding error chooses other ones for the noise map.
    found = usdenoise.denoise(da.from_array(stack, chunks=(20, 3, 9, 4)), axes="txzy")
    check_equal(found, expected, maps=1e-2)


def test_a_lazy_data_array_stays_lazy_and_can_be_written(stacks, in_memory, tmp_path):
    time_axis = ("time", np.arange(120) / 500.0, {"units": "s"})
    lazy, labels = da.from_array(stacks["plain"], chunks=CHUNKINGS["both"]), {"coords": {"time": time_axis}}
    data = xarray.DataArray(lazy, dims=("time", "z", "x"), name="iq", **labels)
    found = usdenoise.denoise(data)
    assert isinstance(found.stack.data, da.Array)
    assert difference(found.power_doppler, in_memory("plain").power_doppler) < 1e-4
    found.stack.to_dataset().to_zarr(tmp_path / "filtered.zarr", consolidated=False)
    back = xarray.open_zarr(tmp_path / "filtered.zarr", consolidated=False)["iq"]
    assert difference(back, in_memory("plain").acquisition.iq) < 1e-3
    assert back.dims == ("time", "z", "x")
    dataset = found.to_xarray()
    assert isinstance(dataset["iq"].data, da.Array)
    # In Hz, in pixels of noise too: half the frame rate down is the same as half of it up.
    lazily, at_once = (
        np.exp(2j * np.pi / 500 * np.asarray(hz))
        for hz in (dataset["axial_velocity"], usdenoise.denoise(data.compute()).axial_velocity)
    )
    assert difference(lazily, at_once) < 1e-2


def test_images_of_a_lazy_stack(stacks, in_memory, tmp_path):
    expected = in_memory("bad frames")
    found = usdenoise.denoise(da.from_array(stacks["bad frames"], chunks=CHUNKINGS["both"]), axes="tzx")
    left_out = found.frame_quality.excluded
    assert left_out.any()
    velocity = usdenoise.axial_velocity(found.acquisition, left_out)
    assert isinstance(velocity.values, da.Array)
    assert difference(velocity.values, usdenoise.axial_velocity(expected.acquisition, left_out).values) < 1e-2
    power = usdenoise.power_doppler(found.acquisition)
    assert difference(power, usdenoise.power_doppler(expected.acquisition)) < 1e-3
    directions = (usdenoise.directional_power(one.acquisition) for one in (found, expected))
    for one, other in zip(*directions, strict=True):
        assert difference(one, other) < 1e-3
    usdenoise.save(found, tmp_path / "saved.h5")
    saved = usdenoise.load(tmp_path / "saved.h5", dataset="iq")
    assert difference(saved.iq, expected.acquisition.iq) < 1e-3


@pytest.mark.parametrize(("sample", "passes"), [((2000, 6000), 2), ((300, 300), 3)])
def test_chunks_are_read_once_for_each_pass(stacks, monkeypatch, sample, passes):
    """A look, the fit of all pixels unless the sample has them all, and the filter."""
    monkeypatch.setattr(inspection, "SAMPLE_PIXELS", sample)
    reads = Counter()

    def read(block, block_info=None):
        reads[tuple(block_info[0]["chunk-location"])] += 1
        return block

    lazy, meta = da.from_array(stacks["plain"], chunks=CHUNKINGS["frames"]), np.empty((0, 0, 0), np.complex64)
    lazy = lazy.map_blocks(read, dtype=np.complex64, meta=meta)
    usdenoise.denoise(lazy, axes="tzx", low_cutoff=8, rank=20)
    assert set(reads.values()) == {passes}


@pytest.mark.parametrize(("options", "message"), [
    ({"method": "svd"}, "method 'svd' requires the whole stack in memory.*choose another method"),
    ({"refit": "none"}, "refit 'none' requires the whole stack in memory.*choose 'all', or call compute"),
])  # fmt: skip
def test_options_that_need_the_whole_stack_are_refused(stacks, options, message):
    with pytest.raises(OptionError, match=message):
        usdenoise.denoise(da.from_array(stacks["plain"]), axes="tzx", **options)


def test_chunks_of_unknown_sizes_are_refused(stacks):
    lazy = da.from_array(stacks["plain"], chunks=CHUNKINGS["frames"])
    unknown = lazy[da.from_array(np.ones(120, bool), chunks=7)]
    with pytest.raises(InputError, match=r"not known; call compute_chunk_sizes\(\)"):
        usdenoise.denoise(unknown, axes="tzx")


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes."""
    with (
        dask.config.set({"distributed.worker.daemon": True}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as made,
    ):
        yield made


@pytest.mark.slow
def test_on_workers_and_when_one_is_killed(stacks, in_memory, cluster):
    with Client(cluster) as client:
        lazy = da.from_array(stacks["plain"], chunks=CHUNKINGS["both"])
        pids = list(client.run(os.getpid).values())
        killed = threading.Timer(0.3, os.kill, (pids[0], signal.SIGKILL))

        def slow(block):
            time.sleep(0.03)
            return block

        killed.start()
        check_equal(usdenoise.denoise(lazy.map_blocks(slow), axes="tzx"), in_memory("plain"))
        killed.join()
        client.wait_for_workers(2)
        assert pids[0] not in client.run(os.getpid).values()


def test_a_cutoff_that_is_not_sure_is_tried_on_all_chunks():
    # Lines that flicker, which are not divided out of Dask values
    iq = all_frames(PhantomSettings((56, 44, 120), frame_rate_hz=500.0, seed=11))[1].iq
    flicker = 1 + 0.02 * np.random.default_rng(0).standard_normal((120, 1, 44))
    stack = da.from_array((iq * flicker).astype(np.complex64), chunks=(80, -1, -1))
    found = usdenoise.denoise(stack, axes="tzx")
    assert found.cutoff.certainty != "sure"
    assert {"flicker", "cutoff-unsure"} <= {doubt.code for doubt in found.doubts}
    assert np.isfinite(found.blood_power).all()
