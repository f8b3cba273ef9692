"""What makes a result doubtful, and what must not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import usdenoise
from tests.conftest import all_frames
from usdenoise.blood.neighbourhood import Neighbourhood
from usdenoise.blood.picture_quality import FLOOR_QUANTILE, missing_share, speckle_likeness
from usdenoise.phantom import PhantomSettings, Terms
from usdenoise.pipeline.result import find_doubts

SHAPE = (40, 36, 120)


def simulated(seed: int, shape: tuple[int, ...] = SHAPE, **settings: Any) -> Terms:
    """Frames of a phantom, (t, z, x)."""
    return all_frames(PhantomSettings(shape, seed=seed, **settings))[1]


def codes(iq: NDArray[Any], axes: str = "tzx", **options: Any) -> list[str]:
    """The codes of the doubts about a stack."""
    return [doubt.code for doubt in usdenoise.denoise(iq, axes=axes, **options).doubts]


@pytest.fixture(scope="module")
def terms() -> Terms:
    """A phantom with tissue, blood and noise."""
    return simulated(3, clutter_to_blood_db=45)


@pytest.fixture(scope="module")
def right(terms: Terms) -> NDArray[np.complex64]:
    """Its frames."""
    return terms.iq


@pytest.fixture(scope="module")
def good(right: NDArray[np.complex64]) -> usdenoise.DenoiseResult:
    """Its result."""
    return usdenoise.denoise(right, axes="tzx")


@pytest.fixture(scope="module")
def suggested(good: usdenoise.DenoiseResult) -> int:
    """The low cutoff that is chosen for it."""
    return int(good.options.low_cutoff)


@pytest.mark.parametrize("options", [{"method": "svd"}, {"high_cutoff": "rank"}])
def test_the_automatic_cutoff_of_a_good_stack_is_not_doubtful(right, good, options):
    assert good.doubts == ()
    assert codes(right, **options) == []


@pytest.mark.parametrize("order", ["xzt", pytest.param("ztx", marks=pytest.mark.slow)])
def test_a_stack_in_any_order_is_not_doubtful(right: NDArray[np.complex64], order: str) -> None:
    assert codes(right.transpose(["tzx".index(letter) for letter in order]), order) == []


@pytest.mark.parametrize("n_frames", [12, 31])
def test_a_map_of_few_frames_is_doubtful(right: NDArray[np.complex64], n_frames: int) -> None:
    assert "few-frames" in codes(right[:n_frames])
    assert "few-frames" not in codes(right[: n_frames + 20])


def test_the_remedies_for_few_frames_hold() -> None:
    """Of packets of 14 pulses as int16, a session shows more than one packet does, and more components show less."""
    terms = all_frames(PhantomSettings((48, 40, 84), seed=3))[1]
    iq = np.round(1000 * terms.iq / np.abs(terms.iq).std()).astype(np.complex64)
    true = np.sqrt(np.mean(np.abs(terms.blood) ** 2, axis=0)).ravel()

    def likeness(power: NDArray[np.float32]) -> float:
        return float(np.corrcoef(np.sqrt(power.ravel()), true)[0, 1])

    packet = usdenoise.denoise(iq[:14], axes="tzx", frame_rate=500)
    (few,) = [doubt.sentence for doubt in packet.doubts if doubt.code == "few-frames"]
    assert "at most the suggested number of components" in few
    assert "session" in few
    more = usdenoise.denoise(iq[:14], axes="tzx", frame_rate=500, low_cutoff=packet.low_cutoff + 1)
    joined = usdenoise.session(iq, 14, axes="tzx", frame_rate=500)
    assert likeness(more.power_doppler) < likeness(packet.power_doppler) - 0.05
    assert likeness(joined.power_doppler.mean(axis=0)) > likeness(packet.power_doppler) + 0.1
    assert "few-frames" not in {doubt.code for doubt in joined.doubts}


@pytest.mark.parametrize("share", [0.9, 1.2])
def test_a_cutoff_near_the_suggested_one_is_not_doubtful(right, suggested, share):
    assert codes(right, low_cutoff=round(share * suggested)) == []


@pytest.mark.parametrize("low", [1, 4])
def test_tissue_is_left_by_a_cutoff_that_is_too_low(right, suggested, low):
    result = usdenoise.denoise(right, axes="tzx", low_cutoff=low)
    assert result.doubts[0].code == "cutoff"
    assert f"suggest {suggested} " in result.doubts[0].sentence
    assert result.options.low_cutoff == low


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("gain_db", [0, 10, 20])
@pytest.mark.parametrize("tissue", [0, 100])
def test_noise_shows_no_blood(correlation: float, gain_db: float, tissue: float) -> None:
    """White or correlated between pixels, flat or growing with depth, alone or over tissue that stands still."""
    rng = np.random.default_rng(10)
    noise = rng.standard_normal((120, *SHAPE[:2], 2)) @ [1, 1j]
    beside = sum(np.roll(noise, step, axis) for axis in (1, 2) for step in (1, -1))
    noise = (noise + correlation / 2 * beside) * 10 ** (gain_db / 20 * np.linspace(0, 1, SHAPE[0]))[:, None]
    still = tissue * (rng.standard_normal((1, *SHAPE[:2], 2)) @ [1, 1j])
    assert "no-blood" in codes((noise + still).astype(np.complex64))


@pytest.mark.parametrize("share", [2, 4])
def test_blood_is_removed_by_a_cutoff_that_is_too_high(right, suggested, share):
    assert "cutoff" in codes(right, low_cutoff=share * suggested)


def test_tissue_in_the_residual_is_doubtful_whatever_the_cutoff(right, good, suggested):
    picture = usdenoise.denoise(right, axes="tzx", low_cutoff=suggested // 2).picture_quality
    assert picture.tissue_share > 0.3
    assert good.picture_quality.tissue_share < 0.15


@pytest.mark.parametrize("wrong", ["zxt", "ztx"])
def test_wrong_axes_are_doubtful_and_the_right_order_is_named(right, wrong):
    counts = np.round(100 * right[:14] / np.abs(right).max()).astype(np.complex64)
    result = usdenoise.denoise(counts, axes=wrong)
    assert result.doubts[0].code == "axes"
    assert "'tzx' or 'txz'" in result.doubts[0].sentence
    # A cutoff along a wrong axis is unsure, and only the axes have a remedy
    assert result.cutoff.certainty == "unsure"
    assert not {"cutoff", "cutoff-unsure", "values", "frame-order"} & {doubt.code for doubt in result.doubts}


def test_wrong_axes_of_a_volume_are_doubtful() -> None:
    iq = all_frames(PhantomSettings((20, 18, 12, 60), seed=2))[1].iq
    assert codes(iq, "zxty")[0] == "axes"
    assert "axes" not in codes(iq, "tzxy")


@pytest.mark.parametrize("kind", ["noise", "tissue"])
def test_a_stack_without_blood_is_doubtful(kind: str, terms: Terms) -> None:
    rng = np.random.default_rng(4)
    noise = rng.standard_normal(terms.iq.shape) + 1j * rng.standard_normal(terms.iq.shape)
    noise = noise.astype(np.complex64)
    # 40 dB above unit power
    tissue = 100 * terms.tissue / np.sqrt(np.mean(np.abs(terms.tissue) ** 2))
    found = codes(noise if kind == "noise" else noise + tissue)
    assert "no-blood" in found
    assert "axes" not in found


def test_blood_that_does_not_repeat_or_is_everywhere_is_doubtful(good: usdenoise.DenoiseResult) -> None:
    picture = replace(good.picture_quality, reproducibility=0.4, vessel_share=0.9)
    found = [doubt.code for doubt in replace(good, picture_quality=picture).doubts]
    assert found == ["repeatability", "tissue"]


def test_an_unsure_cutoff_is_doubtful(right: NDArray[np.complex64]) -> None:
    assert "cutoff-unsure" in codes(right, rank=4)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_compressed_magnitudes_of_complex_values_are_doubtful(right, scale):
    phase, magnitude = np.exp(1j * np.angle(right)), np.abs(right)
    decibels = np.maximum(20 * np.log10(magnitude / magnitude.max()) + 60, 0)
    for compressed in (np.sqrt(magnitude), decibels):
        doubts = usdenoise.denoise((scale * compressed * phase).astype("c8"), axes="tzx").doubts
        (doubt,) = [each for each in doubts if each.code == "values"]
        assert "compressed" in doubt.sentence
    assert codes(np.float32(scale) * right) == []


def test_values_of_noise_are_not_doubtful() -> None:
    rng = np.random.default_rng(7)
    for shape in ((40, 20, 20), (40, 12, 10, 8)):
        noise = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        assert "values" not in codes(noise.astype(np.complex64), "tzxy"[: len(shape)])


def rf_of(iq: NDArray[np.complex64], samples: float, times: int = 2) -> NDArray[np.float32]:
    """RF with `samples` a wavelength, of IQ that is interpolated along depth to `times` as many pixels."""
    depth = np.linspace(0, iq.shape[1] - 1, times * iq.shape[1])
    before = np.minimum(depth.astype(int), iq.shape[1] - 2)
    share = (depth - before)[:, None]
    fine = iq[:, before] * (1 - share) + iq[:, before + 1] * share
    turns = np.exp(2j * np.pi / samples * np.arange(len(depth)))
    return np.real(fine * turns[:, None]).astype(np.float32)


NOT_LINEAR: dict[str, Any] = {
    "dB": lambda iq: 20 * np.log10(np.abs(iq) / np.abs(iq).max()),
    "dB about 0": lambda iq: 20 * np.log10(np.abs(iq) / np.median(np.abs(iq))),
    "dB in bytes": lambda iq: np.clip(40 * np.log10(np.abs(iq) / np.median(np.abs(iq))), -127, 127).astype("i1"),
    "root": lambda iq: np.sqrt(np.abs(iq)) - np.sqrt(np.abs(iq)).mean(),
    "envelope": lambda iq: np.abs(iq) - np.abs(iq).mean(),
    "power": lambda iq: np.abs(iq) ** 2 - np.mean(np.abs(iq) ** 2),
    "phase": np.angle,
}  # fmt: skip


@pytest.mark.parametrize("kind", [
    pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("dB about 0", "root", "power")))
    for kind in NOT_LINEAR
])  # fmt: skip
def test_compressed_values_are_doubtful(right: NDArray[np.complex64], kind: str) -> None:
    doubt = usdenoise.denoise(NOT_LINEAR[kind](right), axes="tzx", rank=20).doubts[0]
    assert doubt.code == "values"
    assert ("log" in doubt.sentence) == (kind.startswith("dB") or kind == "root")


def test_rf_around_an_offset_is_doubtful(right: NDArray[np.complex64]) -> None:
    rf = rf_of(right, 4)
    unsigned = usdenoise.Acquisition(np.round(rf / np.abs(rf).max() * 32767 + 32768).astype("u2"), "tzx")
    doubt = usdenoise.denoise(unsigned, rank=20).doubts[0]
    assert doubt.code == "values"
    assert "subtract the offset 32768" in doubt.sentence


@pytest.mark.parametrize("samples", [2.2, 4, pytest.param(7, marks=pytest.mark.slow)])
def test_rf_is_not_doubtful(right: NDArray[np.complex64], samples: float) -> None:
    rf = rf_of(right, samples)
    masked = np.where(np.arange(SHAPE[1]) < 12, 0, rf + 0.1 * rf.std())
    for stack, axes in ((rf, "tzx"), (np.moveaxis(masked, 0, 2).astype("f8"), "zxt")):
        assert "values" not in codes(stack, axes)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("how", ["alternating", "halves"])
def test_interleaved_i_and_q_are_doubtful(right: NDArray[np.complex64], axis: int, how: str) -> None:
    # Some systems store -Q.
    parts, at = [right.real, -right.imag], axis + (how == "alternating")
    stack = np.stack(parts, at).reshape((*parts[0].shape[:axis], -1, *parts[0].shape[axis + 1 :]))
    stack = np.concatenate(parts, axis) if how == "halves" else stack
    (doubt,) = [each for each in usdenoise.denoise(stack, axes="tzx").doubts if each.code == "values"]
    # The sentence has the expression that gives the stack.
    expression = doubt.sentence.split("give ")[1].split(", or ")[0]
    np.testing.assert_array_equal(eval(expression, {"iq": stack}), right.conj())


def test_blocks_of_a_session_are_looked_at(right: NDArray[np.complex64]) -> None:
    """For interleaved I and Q, and for values that were rounded or averaged."""
    alternating = np.stack([right.real, right.imag], 2).reshape(len(right), -1, right.shape[2])
    for stack, code, is_doubtful in (
        (alternating, "values", True),
        (rf_of(right, 4), "values", False),
        (rounded(right, 127), "values", True),
        (rounded(right, 32767), "values", False),
        (averaged(right, "sliding"), "correlated-noise", True),
        (right, "correlated-noise", False),
    ):
        found = usdenoise.session(stack, 50, axes="tzx").doubts
        assert (code in [doubt.code for doubt in found]) == is_doubtful


def test_an_envelope_is_refused(right: NDArray[np.complex64]) -> None:
    with pytest.raises(usdenoise.UsdenoiseError, match="or an envelope, without the phase"):
        usdenoise.denoise(np.abs(right), axes="tzx")
    assert codes(right.real) == []


def test_frames_in_no_order_are_a_doubt(right: NDArray[np.complex64], good: usdenoise.DenoiseResult) -> None:
    assert "frame-order" not in [doubt.code for doubt in good.doubts]
    found = usdenoise.denoise(right[np.random.default_rng(1).permutation(len(right))], axes="tzx")
    assert "frame-order" in [doubt.code for doubt in found.doubts]
    # The filter does not need the order of the frames
    assert np.corrcoef(found.blood_power.ravel(), good.power_doppler.ravel())[0, 1] > 0.8


def rounded(stack: NDArray[np.complex64], most: int, scale: float = 1.0) -> NDArray[np.complex64]:
    step = max(np.abs(stack.real).max(), np.abs(stack.imag).max()) / most
    return (scale * (np.round(stack.real / step) + 1j * np.round(stack.imag / step))).astype(np.complex64)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_noise_that_is_rounding_errors_is_a_doubt(right: NDArray[np.complex64], scale: float) -> None:
    # Tissue is 45 dB over the blood: 8 bits have steps above it, and 16 bits do not
    assert "values" in codes(rounded(right, 127, scale))
    assert "values" not in codes(rounded(right, 32767, scale))


def averaged(stack: NDArray[np.complex64], how: str) -> NDArray[np.complex64]:
    """Means of two neighbouring frames, or frames with persistence."""
    if how == "sliding":
        return (stack[1:] + stack[:-1]) / 2
    result = stack.copy()
    for t in range(1, len(stack)):
        result[t] = (result[t - 1] + stack[t]) / 2
    return result


@pytest.mark.parametrize("how", ["sliding", "persistence"])
def test_frames_that_were_averaged_are_a_doubt(right: NDArray[np.complex64], how: str) -> None:
    assert "correlated-noise" not in codes(right)
    assert "correlated-noise" in codes(averaged(right, how))


def test_two_recordings_in_one_stack_do_not_repeat() -> None:
    shape = (*SHAPE[:2], SHAPE[2] // 2)
    halves = [simulated(seed, shape, clutter_to_blood_db=35, blood_to_noise_db=10).iq for seed in (3, 4)]
    found = usdenoise.denoise(np.concatenate(halves), axes="tzx")
    assert found.picture_quality.steadiness < 0.5
    assert "repeatability" in [doubt.code for doubt in found.doubts]


def test_a_map_without_what_power_doppler_shows_is_a_doubt(good: usdenoise.DenoiseResult) -> None:
    grid, power = Neighbourhood.whole(good.power_doppler.shape), good.power_doppler.ravel().astype(float)
    floor = grid.floor(power, FLOOR_QUANTILE)
    assert missing_share(power, good.blood_power.ravel().astype(float), floor) < 0.05
    half = np.where(np.arange(power.size) % SHAPE[1] < SHAPE[1] // 2, good.blood_power.ravel(), 0)
    share = missing_share(power, half.astype(float), floor)
    assert 0.2 < share < 0.8
    quality = replace(good.picture_quality, missing_share=share)
    assert [doubt.code for doubt in find_doubts(good, quality)] == ["map-incomplete"]


def test_tissue_in_the_map_is_a_doubt_whatever_its_time_course(right, good):
    grid = Neighbourhood.whole(good.power_doppler.shape)
    tissue = np.mean(np.abs(right) ** 2, axis=0).ravel().astype(float)
    blood = good.blood_power.ravel().astype(float)
    assert abs(speckle_likeness(blood, tissue, grid)) < 0.2
    likeness = speckle_likeness(blood + tissue * blood.sum() / tissue.sum(), tissue, grid)
    assert likeness > 0.4
    quality = replace(good.picture_quality, speckle_likeness=likeness)
    assert [doubt.code for doubt in find_doubts(good, quality)] == ["tissue"]
