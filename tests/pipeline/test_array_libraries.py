"""Arrays of other libraries than NumPy: array-api-strict, which has nothing but the standard, and CuPy on a GPU."""

from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest

import usdenoise
from tests.sessions.scans import LENGTH, scan
from usdenoise import Acquisition
from usdenoise.errors import InputError
from usdenoise.frames.alignment import Alignment, Reference, mean_envelope
from usdenoise.linalg.array_library import to_host

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


CASES = (
    *("complex", "pixel after pixel", "volume", "real", "double", "wide"),
    *("integers", "gaps", "masked", "bad frames", "model", "paper"),
)


def check_denoised(there, values, axes, more):
    wanted = usdenoise.denoise(values, axes=axes, frame_rate=500, **more)
    found = usdenoise.denoise(there, axes=axes, frame_rate=500, **more)
    assert type(found.stack) is type(there)
    assert found.stack.shape == values.shape
    assert to_host(found.stack).dtype == wanted.stack.dtype
    check_near(to_host(found.stack), wanted.stack, 1e-4)
    for name in IMAGES:
        assert isinstance(getattr(found, name), np.ndarray)
        # The noise of real stacks of 120 frames comes from three lags, and is sensitive to their rounding errors.
        near = 1e-4 if np.iscomplexobj(values) else 3e-3
        check_near(getattr(found, name), getattr(wanted, name), near)
    assert found.options == wanted.options
    assert found.n_unobserved == wanted.n_unobserved
    np.testing.assert_array_equal(found.frame_quality.excluded, wanted.frame_quality.excluded)
    np.testing.assert_array_equal(to_host(there), values)
    return found, wanted


@pytest.mark.parametrize("case", CASES)
def test_a_stack_of_another_library_is_filtered_there_as_by_numpy(small_phantom, case):
    values, axes, more = examples(small_phantom[1].iq)[case]
    check_denoised(array_api_strict.asarray(values), values, axes, more)


def test_what_is_made_of_a_result_of_another_library(small_phantom, tmp_path):
    iq = small_phantom[1].iq
    found, wanted = check_denoised(array_api_strict.asarray(iq), iq, "tzx", {})
    back = usdenoise.load(usdenoise.save(found, tmp_path / "filtered.h5"))
    check_near(back.iq, wanted.stack)
    own, numpys = (one.to_xarray() for one in (found, wanted))
    for name in numpys:
        check_near(own[name].values, numpys[name].values, 1e-4)
    assert "complex64" in repr(found)
    check_near(usdenoise.power_doppler(found.acquisition), usdenoise.power_doppler(wanted.acquisition))
    signed, wanted_signed = (usdenoise.signed_power(one.acquisition).values for one in (found, wanted))
    check_near(signed, wanted_signed, 1e-4)


@pytest.fixture(scope="module")
def uneven():
    """24 blocks: some are displaced by a part of a pixel, or stronger; one has a dead line, another one a bad frame."""
    made = scan(24, rise=0.2, resolution=1.0)
    blocks = np.stack(made.blocks)
    waves = np.exp(-2j * np.pi * 0.6 * np.fft.fftfreq(blocks.shape[2]))[:, None]
    blocks[::4] = np.fft.ifft(np.fft.fft(blocks[::4], axis=2) * waves, axis=2)
    blocks[5] *= 1.3
    blocks[7, :, 4] = 0
    blocks[9, 30] *= 20
    return blocks.reshape(made.iq.shape)


def check_session(there, iq):
    scales = {"axes": "tzx", "frame_rate": 500}
    wanted, found = (usdenoise.session(one, LENGTH, **scales) for one in (iq, there))
    for name in IMAGES:
        check_near(found.series.images[name], wanted.series.images[name])
        check_near(found.series.means[name], wanted.series.means[name])
    assert found.low_cutoff == wanted.low_cutoff
    shown = [{block.is_shifted for block in one.series.blocks} for one in (found, wanted)]
    assert shown == [{False, True}] * 2
    return found


def test_a_session_of_another_library_equals_that_of_numpy(uneven):
    found = check_session(array_api_strict.asarray(uneven), uneven)
    assert len(found.blood_power) == 24


def test_blocks_of_another_library_are_added_as_those_of_numpy(uneven):
    sessions = [usdenoise.Session(axes="tzx", frame_rate=500) for _ in range(2)]
    for block in np.split(uneven, 24)[:6]:
        wanted, found = (
            session.add(of_library(block))
            for session, of_library in zip(sessions, (np.asarray, array_api_strict.asarray), strict=True)
        )
        check_near(found.blood_power, wanted.blood_power)
        check_near(found.mean_blood_power, wanted.mean_blood_power)
        assert (found.why, found.low_cutoff) == (wanted.why, wanted.low_cutoff)


@pytest.mark.parametrize("shape", [(24, 24), (13, 12, 14), (13, 1, 14)])
@pytest.mark.parametrize("has_gaps", [False, True])
def test_frames_of_another_library_are_aligned_as_those_of_numpy(shape, has_gaps):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((9, *shape)) + 1j).astype(np.complex64).reshape(9, -1)
    reference = Reference(mean_envelope(x, shape), np.ones(shape, bool))
    if has_gaps:
        x[4, 20:30] = np.nan
    wanted, alignment = reference.align(x)
    aligned = Alignment((0.4, -0.7, 1.2)[: len(shape)], 1.0, 1.0, is_shifted=True, is_scaled=True)
    there = array_api_strict.asarray(x)
    np.testing.assert_allclose(to_host(reference.align(there)[0]), wanted, atol=1e-5)
    assert reference.align(there)[1] == alignment
    check_near(to_host(reference.apply(there, aligned)), reference.apply(x, aligned))


def stub(dtype, **functions):
    namespace = SimpleNamespace(__name__="stub", **functions)
    return SimpleNamespace(
        dtype=dtype, shape=(9, 4, 4), ndim=3, __array_namespace__=lambda api_version=None: namespace
    )


def test_what_a_library_cannot_filter_is_refused_in_one_sentence():
    for array, words in (
        (stub("stub.float32"), "stub has no complex"),
        (stub("stub.bfloat16", complex64=1), "bfloat16"),
    ):
        with pytest.raises(InputError, match=words):
            usdenoise.denoise(array, axes="tzx")
    with pytest.raises(InputError, match="zero everywhere"):
        usdenoise.denoise(array_api_strict.zeros((9, 4, 4), dtype=array_api_strict.complex64), axes="tzx")
    values = array_api_strict.asarray(1e300 * np.random.default_rng(0).standard_normal((9, 4, 4)))
    with pytest.raises(InputError, match="single precision ends"), np.errstate(over="ignore"):
        usdenoise.denoise(Acquisition(values, "tzx"), threads=1)


@pytest.mark.cuda
def test_on_a_gpu_a_stack_and_a_session_equal_those_of_numpy(small_phantom, uneven):
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no GPU")
    for values, axes, more in examples(small_phantom[1].iq).values():
        check_denoised(cupy.asarray(values), values, axes, more)
    check_session(cupy.asarray(uneven), uneven)
