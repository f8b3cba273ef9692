"""The library call speaks Python: defaults by None, types, names, masked arrays, and a result that shows itself."""

import inspect
from typing import Any

import numpy as np
import pytest

import usdenoise
from usdenoise.errors import InputError, OptionError
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.stack.acquisition import Acquisition

STACK = np.random.default_rng(0).standard_normal((30, 12, 10)).astype(np.float32)


def test_none_means_the_default() -> None:
    result = usdenoise.denoise(STACK, axes="tzx", low_cutoff=None, high_cutoff=None, seed=None, rank=3)
    assert (result.options.high_cutoff, result.options.seed) == ("none", 0)
    paper = usdenoise.denoise(STACK, axes="tzx", preset="paper", rank=3, alpha=1e3, decay=None).options
    assert paper.decay == 0.05


def test_numbers_of_numpy_are_numbers() -> None:
    options = DenoiseOptions(rank=np.int32(4), sampling=np.float32(0.25), seed=np.uint8(3), ridge=1)
    assert (options.rank, options.sampling, options.seed, options.ridge) == (4, 0.25, 3, 1.0)
    assert [type(value) for value in (options.rank, options.sampling, options.ridge)] == [int, float, float]


@pytest.mark.parametrize(("options", "sentence"), [
    ({"rank": 1.5}, "rank 1.5 is not valid"),
    ({"rank": True}, "rank True is not valid"),
    ({"rank": 49}, r"rank 49 is above the number of frames, 30; lower rank"),
    ({"rank": 20}, "too few for rank 20; lower rank to"),
    ({"rank": 2, "sampling": 0.01}, "determine no rank"),
    ({"low_cutoff": 40}, "low_cutoff 40 needs rank 41, and 3600 samples of 120 pixels x 30 frames determine"),
    ({"method": "svd", "low_cutoff": 30}, "low_cutoff 30 needs rank 31, and 3600 samples of 120 pixels"),
    ({"seed": 0.5}, "seed 0.5 is not valid"),
    ({"high_cutoff": "auto"}, "high_cutoff 'auto' is not valid"),
    ({"ridge": "some"}, "ridge 'some' is not valid"),
    ({"preset": "magic"}, "preset 'magic' is not known"),
    ({"step": 0.5, "alpha": 1.0}, "give step or alpha, not both"),
    ({"axes": None}, "give axes"),
    ({"axes": ("t", "z", "x")}, r"axes must be a string of letters, .* 'tzx', not \('t', 'z', 'x'\)"),
    ({"start": [[1.0], [2.0]]}, r"start must be .* arrays, U of \(n_pixels, r\) and V of \(n_frames, r\)"),
    ({"frame_rate_hz": 500}, r"unknown option frame_rate_hz; did you mean frame_rate\?"),
    ({"options": DenoiseOptions(), "rank": 3}, "options contains all options; omit rank, or set them in"),
    ({"options": {"rank": 3}}, "options must be a DenoiseOptions, not dict"),
    ({"rnak": 3}, r"unknown option rnak; did you mean rank\? The options are axes, frame_rate, "),
], ids=str)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_names_of_python(options, sentence):
    with pytest.raises(OptionError, match=sentence) as caught:
        usdenoise.denoise(STACK, **{"axes": "tzx", **options})
    assert "--" not in str(caught.value)


def test_an_acquisition_knows_its_axes() -> None:
    acquisition = Acquisition(STACK, "tzx")
    usdenoise.denoise(acquisition, axes="tzx", rank=2)
    with pytest.raises(OptionError, match="the acquisition has the axes 'tzx'; omit axes='xzt'"):
        usdenoise.denoise(acquisition, axes="xzt", rank=2)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int16])
def test_masked_entries_are_unobserved(dtype: Any) -> None:
    values = (100 * STACK).astype(dtype)
    mask = np.random.default_rng(1).random(values.shape) < 0.05
    masked = np.ma.MaskedArray(values, mask)
    holes = values.astype(np.float64 if dtype == np.int16 else dtype)
    holes[mask] = np.nan
    ours = usdenoise.denoise(masked, axes="tzx", rank=3, low_cutoff=1)
    assert ours.n_unobserved == mask.sum()
    wanted = usdenoise.denoise(holes, axes="tzx", rank=3, low_cutoff=1)
    assert np.array_equal(ours.acquisition.iq, wanted.acquisition.iq)
    assert np.array_equal(masked.data, values)


def test_power_doppler_of_an_acquisition_and_of_arrays() -> None:
    expected = np.mean(STACK.astype(float) ** 2, axis=0)
    for power in (
        usdenoise.power_doppler(Acquisition(STACK, "tzx")),
        usdenoise.power_doppler(STACK, axes="tzx"),
        usdenoise.power_doppler(STACK, axis=0),
        usdenoise.power_doppler(np.ma.MaskedArray(STACK), 0),
    ):
        np.testing.assert_allclose(power, expected, rtol=1e-6)


@pytest.mark.parametrize("image", [usdenoise.power_doppler, usdenoise.directional_power])
def test_an_array_without_a_time_axis_is_refused(image: Any) -> None:
    says = "has no axis labels, so time is unknown; give axes, for example axes='tzx'"
    with pytest.raises(OptionError, match=says):
        image(STACK.astype(np.complex64))
    with pytest.raises(OptionError, match=r"an array of shape \(30 x 12 x 10\) has no axis 3"):
        image(STACK.astype(np.complex64), axis=3)
    with pytest.raises(InputError, match="names 2 axes, but the data have 3"):
        image(STACK.astype(np.complex64), axes="tz")


def test_the_public_names_are_there() -> None:
    assert {"denoise", "load", "metrics", "power_doppler", "METHODS"} <= set(dir(usdenoise))
    for name in usdenoise.__all__:
        assert getattr(usdenoise, name) is not None
    image = np.array([1.0, 2.0, 4.0])
    assert usdenoise.metrics.correlation(image, 3 * image) == pytest.approx(1.0)
    with pytest.raises(AttributeError, match="module 'usdenoise' has no attribute 'denoize'"):
        getattr(usdenoise, "denoi" + "ze")


def test_without_a_residual_the_fit_is_as_good_as_it_can_be() -> None:
    rng = np.random.default_rng(0)
    exact = (rng.standard_normal((400, 3)) @ rng.standard_normal((3, 60))).reshape(20, 20, 60)
    options = {"rank": 3, "low_cutoff": 0, "high_cutoff": "rank", "precision": "double"}
    result = usdenoise.denoise(exact, axes="zxt", **options)
    assert result.fit_quality.verdict.is_good, result


@pytest.mark.parametrize("function", [usdenoise.denoise, usdenoise.session, usdenoise.Session])
def test_signatures_have_all_options_with_their_defaults(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    for name, declared in DenoiseOptions.declared.items():
        assert parameters[name].default == declared.default
    assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())
