"""Arrays of other libraries than NumPy: array-api-strict, which has nothing but the standard, and CuPy on a GPU."""

import sys
import threading
from dataclasses import replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from unittest import mock

import array_api_strict
import numpy as np
import pytest

import usdenoise
from tests.pipeline.test_filter_chunk import CASES as BLOCK_CASES
from tests.pipeline.test_filter_chunk import UNEVEN, check_equal, example
from tests.sessions.scans import LENGTH, scan
from tests.stacks import write_stack
from usdenoise import Acquisition
from usdenoise.errors import InputError, OptionError
from usdenoise.linalg.array_library import to_host
from usdenoise.pipeline import devices
from usdenoise.pipeline import filter_chunk as filters
from usdenoise.pipeline.filter_chunk import PartOfBlock, filter_chunk

IMAGES = ("blood_power", "power_doppler", "noise_power")


def check_near(found, wanted, near=1e-5):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=near * np.nanmax(np.abs(wanted)))


def examples(iq):
    rng = np.random.default_rng(0)
    gaps, masked, bad = iq.copy(), iq.copy(), iq.copy()
    gaps[rng.random(iq.shape) < 1e-3] = np.nan
    gaps[:, 3, 4] = np.inf
    masked[:, :9] = 0
    bad[[20, 50]] *= 30
    return {
        "complex": (iq, "tzx", {}),
        "pixel after pixel": (np.moveaxis(iq, 0, -1), "zxt", {}),
        "volume": (iq.reshape(len(iq), 40, 8, 4), "tzxy", {}),
        "real": (iq.real.copy(), "tzx", {}),
        "double": (iq.astype(np.complex128), "tzx", {"precision": "double"}),
        "wide": (iq.astype(np.complex128), "tzx", {}),
        "integers": (np.round(iq.real * 100).astype(np.int32), "tzx", {}),
        "gaps": (gaps, "tzx", {}),
        "masked": (masked, "tzx", {}),
        "bad frames": (bad, "tzx", {}),
        "model": (iq, "tzx", {"high_cutoff": "rank", "bad_frames": (3,)}),
        "paper": (iq, "tzx", {"preset": "paper", "rank": 20}),
    }


CASES = ("complex", "pixel after pixel", "real", "integers", "gaps", "masked", "bad frames")
SIMILAR = ("volume", "double", "wide", "model", "paper")
"""Cases of the slow run."""


def check_denoised(there, values, axes, more):
    wanted = usdenoise.denoise(values, axes=axes, frame_rate=500, **more)
    found = usdenoise.denoise(there, axes=axes, frame_rate=500, **more)
    assert type(found.stack) is type(there)
    assert found.stack.shape == values.shape
    assert to_host(found.stack).dtype == wanted.stack.dtype
    # Rounding errors are relative to the tissue.
    largest = np.abs(values[np.isfinite(values)]).max()
    # Errors of the phase of the tissue add up over the frames
    rounding = 16 * np.finfo(np.float32).eps * np.sqrt(len(wanted.acquisition.frames)) * largest
    np.testing.assert_allclose(to_host(found.stack), wanted.stack, rtol=0, atol=rounding)
    for name in IMAGES:
        assert isinstance(getattr(found, name), np.ndarray)
        # Which frequencies are quiet is decided by values that may be equal but for rounding errors. The noise of real
        # stacks of 120 frames comes from three lags, and is sensitive to them.
        near = 3e-3 if not np.iscomplexobj(values) or name in ("blood_power", "noise_power") else 1e-4
        check_near(getattr(found, name), getattr(wanted, name), near)
    assert found.options == wanted.options
    assert found.n_unobserved == wanted.n_unobserved
    np.testing.assert_array_equal(found.frame_quality.excluded, wanted.frame_quality.excluded)
    np.testing.assert_array_equal(to_host(there), values)
    return found, wanted


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in SIMILAR)])
def test_a_stack_of_another_library_is_filtered_there_as_by_numpy(small_phantom, case):
    values, axes, more = examples(small_phantom[1].iq)[case]
    check_denoised(array_api_strict.asarray(values), values, axes, more)


@pytest.mark.parametrize("case", BLOCK_CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_chunks_of_another_library_are_filtered_as_those_of_numpy(dtype, case):
    x, clutter, excluded, wanted = example(dtype, case)
    out, there, total = np.empty_like(x), array_api_strict.asarray(x), None
    for first, stop in pairwise(UNEVEN["short"]):
        frames = slice(first, stop)
        place = PartOfBlock(first, len(x))
        part = filter_chunk(there[frames, :], clutter, excluded[frames], place, out=out[frames], is_kept=True)
        np.testing.assert_array_equal(to_host(part.filtered), out[frames])
        if total is None:
            total = part
        else:
            total.add(part, len(x))
    check_equal(total, out, x, clutter, excluded, wanted)


@pytest.mark.parametrize("wrong", [0, np.nan])
def test_an_empty_result_of_a_device_is_an_error(monkeypatch, wrong):
    x, clutter, excluded, _ = example(np.complex64, next(iter(BLOCK_CASES)))
    unobserved, clutter = array_api_strict.asarray(np.full_like(x, np.nan)), replace(clutter, has_gaps=True)
    # A chunk without observed entries is not one
    assert filter_chunk(unobserved, clutter, excluded).n_unobserved == x.size
    lags = filters.column_lag_sums
    monkeypatch.setattr(filters, "column_lag_sums", lambda *values: wrong * lags(*values))
    filter_chunk(x, clutter, excluded)
    with pytest.raises(InputError, match="empty or non-finite"):
        filter_chunk(array_api_strict.asarray(x), clutter, excluded)


def test_what_is_made_of_a_result_of_another_library(small_phantom, tmp_path):
    iq = small_phantom[1].iq
    found, wanted = check_denoised(array_api_strict.asarray(iq), iq, "tzx", {})
    back = usdenoise.load(usdenoise.save(found, tmp_path / "filtered.h5"))
    np.testing.assert_array_equal(back.iq, to_host(found.stack))
    own, numpys = (one.to_xarray() for one in (found, wanted))
    for name in numpys:
        if name != "axial_velocity":
            # As in check_denoised
            check_near(own[name].values, numpys[name].values, 3e-3 if "_power" in str(name) else 1e-3)
    # The phase of r(1) has the rounding of the input over |r(1)|: much where neighbouring frames are hardly correlated
    y = wanted.acquisition.iq
    r_0, r_1 = (np.abs(y) ** 2).sum(axis=0), np.abs((y[1:] * y[:-1].conj()).sum(axis=0))
    rounding = np.finfo(np.float32).eps * np.sqrt(len(iq) * (np.abs(iq) ** 2).sum(axis=0) / r_0)
    velocity, wanted_velocity = (one["axial_velocity"].values for one in (own, numpys))
    turn = 2 * np.abs(wanted_velocity).max()
    error = np.abs(velocity - wanted_velocity)
    assert (np.minimum(error, np.abs(error - turn)) <= turn / (2 * np.pi) * rounding * r_0 / r_1).all()
    assert "complex64" in repr(found)
    # Rounding (6e-8) of values 70 times as large as those that are left, in sums of some hundred terms
    check_near(usdenoise.power_doppler(found.acquisition), usdenoise.power_doppler(wanted.acquisition), 4e-5)
    signed, wanted_signed = (usdenoise.signed_power(one.acquisition).values for one in (found, wanted))
    check_near(signed, wanted_signed, 1e-4)


@pytest.fixture(scope="module")
def uneven():
    """8 blocks: some are displaced by a part of a pixel, or stronger; one has a dead line, another one a bad frame."""
    made = scan(8, rise=0.2, resolution=1.0)
    blocks = np.stack(made.blocks)
    waves = np.exp(-2j * np.pi * 0.6 * np.fft.fftfreq(blocks.shape[2]))[:, None]
    blocks[::4] = np.fft.ifft(np.fft.fft(blocks[::4], axis=2) * waves, axis=2)
    blocks[5] *= 1.3
    blocks[7, :, 4] = 0
    blocks[6, 30] *= 20
    return blocks.reshape(made.iq.shape)


@pytest.fixture(scope="module")
def numpys_session(uneven):
    return usdenoise.session(uneven, LENGTH, axes="tzx", frame_rate=500)


def check_session(there, wanted, near=1e-5):
    found = usdenoise.session(there, LENGTH, axes="tzx", frame_rate=500)
    for name in IMAGES:
        check_near(found.images[name], wanted.images[name], near)
        check_near(found.means[name], wanted.means[name], near)
    assert found.low_cutoff == wanted.low_cutoff
    shown = [{block.is_shifted for block in one.block_records} for one in (found, wanted)]
    assert shown == [{False, True}] * 2
    return found


def test_a_session_of_another_library_equals_that_of_numpy(uneven, numpys_session):
    assert len(check_session(array_api_strict.asarray(uneven), numpys_session).blood_power) == 8


@pytest.mark.slow
def test_blocks_of_another_library_are_added_as_those_of_numpy(uneven):
    sessions = [usdenoise.Session(axes="tzx", frame_rate=500) for _ in range(2)]
    for block in np.split(uneven, 8)[:6]:
        blocks = (block, array_api_strict.asarray(block))
        wanted, found = (session.add(each) for session, each in zip(sessions, blocks, strict=True))
        check_near(found.blood_power, wanted.blood_power)
        check_near(found.mean_blood_power, wanted.mean_blood_power)
        assert (found.why, found.low_cutoff) == (wanted.why, wanted.low_cutoff)


class Stub:
    """An array of a library that cannot filter it."""

    shape, ndim = (9, 4, 4), 3

    def __init__(self, dtype, **functions):
        self.dtype, self.namespace = dtype, ModuleType("stub")
        vars(self.namespace).update(functions)

    def __array_namespace__(self, api_version=None):
        return self.namespace


def test_what_a_library_cannot_filter_is_refused_in_one_sentence():
    for array, words in (
        (Stub("stub.float32"), "stub has no complex"),
        (Stub("stub.bfloat16", complex64=1), "bfloat16"),
    ):
        with pytest.raises(InputError, match=words):
            usdenoise.denoise(array, axes="tzx")
    with pytest.raises(InputError, match="zero everywhere"):
        usdenoise.denoise(array_api_strict.zeros((9, 4, 4), dtype=array_api_strict.complex64), axes="tzx")
    values = array_api_strict.asarray(1e300 * np.random.default_rng(0).standard_normal((9, 4, 4)))
    with pytest.raises(InputError, match="single precision ends"), np.errstate(over="ignore"):
        usdenoise.denoise(Acquisition(values, "tzx"), threads=1)


class Copied(np.ndarray):
    """Memory of a device: it can be set, and is read as an array of array-api-strict."""

    def set(self, values, stream):
        self[:] = values


@pytest.fixture
def device(monkeypatch):
    """A device of CuPy with arrays of array-api-strict; its free memory can be set, and its copies counted."""
    state = SimpleNamespace(free=1 << 30, shapes=[])

    def finished(array):
        state.shapes.append(array.shape)
        return array_api_strict.asarray(np.array(array))

    stream = SimpleNamespace(use=lambda: None, record=lambda: stream, synchronize=lambda: None)
    module = ModuleType("cupy")
    module.ndarray, module.ascontiguousarray = type(None), finished
    module.empty = lambda shape, dtype: np.empty(shape, dtype).view(Copied)
    module.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=lambda: None)
    module.cuda = SimpleNamespace(
        Device=lambda number=0: SimpleNamespace(use=stream.use, mem_info=(state.free, 1 << 40)),
        Stream=lambda: stream,
        get_current_stream=lambda: stream,
        alloc_pinned_memory=bytearray,
        runtime=SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    # Parts that do not divide a chunk
    monkeypatch.setattr(devices, "HELD_ENTRIES", 8 * 1000)
    monkeypatch.setattr(devices, "_threads", threading.local())
    return state


@pytest.mark.usefixtures("no_pictures")
def test_a_file_is_filtered_on_a_device_in_chunks_that_fit(phantom_file, device, tmp_path):
    reports = {}
    for name, free in (("cpu", 1 << 30), ("cuda", 1 << 30), ("cuda:0", 10 * 8 * 40 * 32 * 7)):
        device.free = free
        options = usdenoise.DenoiseOptions(device=name, threads=1)
        reports[name] = usdenoise.run(phantom_file, tmp_path / name, options=options)
        check_near(*(usdenoise.load(tmp_path / one / "small_denoised.h5").iq for one in (name, "cpu")), 3e-4)
    # With room for all, each frame is copied once for all passes.
    shapes = device.shapes
    assert [n for n, _ in shapes[:2]] == [60, 60]
    assert {n for n, _ in shapes[2:]} == {7, 4}
    assert len(shapes) > 2 + 2 * 120 // 7
    assert len({report["low_cutoff"] for report in reports.values()}) == 1
    device.free = 1 << 10
    with pytest.raises(OptionError, match="memory of the device cuda is too small"):
        usdenoise.denoise(usdenoise.load(phantom_file), device="cuda")


@pytest.mark.parametrize("module", ["cupy.cuda.memory", "numpy"])
def test_only_the_memory_of_the_device_is_named_if_it_runs_out(uneven, device, monkeypatch, module):
    error = type("OutOfMemoryError", (MemoryError,), {"__module__": module})
    monkeypatch.setattr(sys.modules["cupy"], "empty", mock.Mock(side_effect=error("Out of memory")))
    expected, scales = OptionError if module != "numpy" else MemoryError, {"axes": "tzx", "device": "cuda"}
    with pytest.raises(expected):
        usdenoise.denoise(uneven[:LENGTH], **scales)
    with pytest.raises(expected):
        usdenoise.session(uneven, LENGTH, **scales)
    with pytest.raises(expected):
        usdenoise.Session(**scales).add(uneven[:LENGTH])


def test_blocks_are_filtered_on_a_device(uneven, numpys_session, device):
    scales, wanted = {"axes": "tzx", "frame_rate": 500}, numpys_session
    found = usdenoise.session(uneven, LENGTH, device="cuda", **scales)
    assert len(device.shapes) >= 8
    for name in IMAGES:
        check_near(found.images[name], wanted.images[name])
    updates = [usdenoise.Session(device=where, **scales).add(uneven[:LENGTH]) for where in ("cpu", "cuda")]
    check_near(*(update.blood_power for update in updates))


def test_frames_of_overlapping_windows_are_copied_once(uneven, device):
    """Apart from the block that is looked at for noisy pixels."""
    iq, windows = uneven[100:400], {"window": LENGTH, "stride": 30, "low_cutoff": 5}

    def session(where, threads):
        device.shapes.clear()
        found = usdenoise.session(iq, axes="tzx", frame_rate=500, device=where, threads=threads, **windows)
        return found.blood_power, sum(n for n, _ in device.shapes)

    wanted, _ = session("cpu", 2)
    for threads in (1, 16):
        found, n_copied = session("cuda", threads)
        check_near(found, wanted)
        assert n_copied == len(iq) + LENGTH
    # Without room for what is held, each window is copied alone.
    device.free = 8 * LENGTH * 24 * 24 * 10
    assert session("cuda", 16)[1] > LENGTH * len(wanted)


def test_windows_of_files_and_their_faults_on_a_device(uneven, device, tmp_path):
    """A file that cannot be read, one that is shorter, and frames that are read in another order than in the file."""
    paths = [tmp_path / f"{name}.h5" for name in "abcd"]
    for path, (first, stop) in zip(paths, ((0, 200), (200, 340), (340, 540), (540, 700)), strict=True):
        write_stack(path, np.moveaxis(uneven[first:stop], 0, -1), axes="zxt", frame_rate_hz=500.0)
    paths[2].write_bytes(paths[2].read_bytes()[:5000])
    windows = {"window": LENGTH, "stride": 40, "skip_bad_files": True, "low_cutoff": 5}
    wanted, found = (usdenoise.session(paths, device=where, **windows) for where in ("cpu", "cuda"))
    check_near(np.nan_to_num(found.blood_power), np.nan_to_num(wanted.blood_power))
    assert np.isnan(found.blood_power).any()
    np.testing.assert_array_equal(np.isnan(found.blood_power), np.isnan(wanted.blood_power))
    # Once for all windows, and then for those that are filtered once more
    assert 200 + 140 + 160 + LENGTH in np.cumsum([n for n, _ in device.shapes])


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_workers_have_devices_that_this_process_does_not_have(uneven, phantom_file, device, tmp_path):
    from distributed import LocalCluster

    path = write_stack(tmp_path / "x.h5", uneven, axes="tzx", frame_rate_hz=500.0)
    windows = {"window": LENGTH, "stride": 60}
    wanted, reports = usdenoise.session(path, **windows), {}
    sys.modules["cupy"].cuda.runtime.getDeviceCount = lambda: (
        threading.current_thread() is not threading.main_thread()
    )
    with LocalCluster(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        workers = {"dask": cluster.scheduler_address}
        found = usdenoise.session(path, device="cuda", **windows, **workers)
        for where in ("cpu", "cuda"):
            options = usdenoise.DenoiseOptions(device=where)
            reports[where] = usdenoise.run(phantom_file, tmp_path / where, options=options, **workers)
    check_near(found.blood_power, wanted.blood_power)
    assert len(device.shapes) >= len(found.blood_power) + 2
    # Rounding (6e-8) of values 70 times as large as those that are left, which adds up over the phases of 100 frames
    check_near(*(usdenoise.load(report["output"]["denoised"]).iq for report in reports.values()), 4e-4)


def test_a_device_that_is_not_there_is_an_error_in_one_sentence(device):
    iq = np.random.default_rng(0).standard_normal((20, 8, 8))
    with pytest.raises(OptionError, match="the number of GPUs is 1"):
        usdenoise.denoise(iq, axes="tzx", device="cuda:1")
    sys.modules["cupy"].cuda.runtime.getDeviceCount = lambda: 1 / 0
    sys.modules["cupy"].cuda.runtime.CUDARuntimeError = ZeroDivisionError
    with pytest.raises(OptionError, match="no GPU"):
        usdenoise.session(iq, 10, axes="tzx", device="cuda")
    sys.modules["cupy"] = None
    with pytest.raises(OptionError, match=r"usdenoise\[gpu\]"):
        usdenoise.Session(axes="tzx", device="cuda").add(iq)
    for wrong in ("gpu", "cuda:", "cuda:-1", 0):
        with pytest.raises(OptionError, match="device"):
            usdenoise.denoise(iq, axes="tzx", device=wrong)


def on_gpu(library):
    """The function that copies an array of NumPy to a GPU as an array of a library."""
    module = pytest.importorskip(library)
    if library == "cupy":
        try:
            module.cuda.runtime.getDeviceCount()
        except module.cuda.runtime.CUDARuntimeError:
            pytest.skip("no GPU")
        return module.asarray
    if library == "torch":
        return (
            (lambda values: module.asarray(values, device="cuda"))
            if module.cuda.is_available()
            else pytest.skip("no GPU")
        )
    if module.default_backend() != "gpu":
        pytest.skip("no GPU")
    return module.numpy.asarray


@pytest.mark.cuda
@pytest.mark.parametrize("library", ["cupy", "torch", "jax"])
def test_on_a_gpu_a_stack_and_a_session_equal_those_of_numpy(small_phantom, uneven, numpys_session, library):
    copied = on_gpu(library)
    for name, (values, axes, more) in examples(small_phantom[1].iq).items():
        if library != "jax" or name not in ("double", "wide"):
            check_denoised(copied(values), values, axes, more)
    # The tissue is 40 dB above the blood, and so are the rounding errors of its products.
    check_session(copied(uneven), numpys_session, 1e-4)


@pytest.mark.cuda
def test_on_a_gpu_overlapping_windows_equal_those_of_the_processor(uneven):
    on_gpu("cupy")
    windows = {"window": LENGTH, "stride": 30, "low_cutoff": 5, "axes": "tzx", "frame_rate": 500}
    wanted = usdenoise.session(uneven, **windows)
    for threads in (1, 8):
        found = usdenoise.session(uneven, device="cuda", threads=threads, **windows)
        check_near(found.blood_power, wanted.blood_power, 1e-4)


@pytest.mark.cuda
def test_on_a_gpu_a_file_is_filtered_as_by_the_processor(phantom_file):
    on_gpu("cupy")
    wanted = usdenoise.denoise(usdenoise.load(phantom_file))
    by_option = usdenoise.denoise(usdenoise.load(phantom_file), device="cuda")
    there = usdenoise.denoise(usdenoise.load(phantom_file, device="cuda"))
    assert isinstance(by_option.stack, np.ndarray)
    for found in (by_option, there):
        check_near(to_host(found.stack), wanted.stack, 1e-4)
        check_near(found.blood_power, wanted.blood_power, 1e-4)
