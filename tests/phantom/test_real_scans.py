"""What real scans have: noise that grows with depth and is correlated, attenuation, thin vessels and slow flow."""

import hashlib
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.ndimage import binary_dilation

from tests.conftest import all_frames
from tests.phantom.powers import correlation, mean_power
from usdenoise.jobs.simulate_job import simulate_to_file
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.phantom.motion_and_noise import NoiseField
from usdenoise.phantom.scatterers import PULSATILITY, SIGMA_SLICE, SIGMA_X, SIGMA_Z

SAMPLE = Path(__file__).parents[2] / "sample_data/phantom.h5"
PLAIN = PhantomSettings((40, 32, 40), frame_rate_hz=250.0, seed=6)


def noise_frames(settings):
    field = NoiseField(settings)
    return field.power, np.stack([field.frame(number) for number in range(settings.n_frames)])


# ---------------------------------------------------------------- what stays as it was


def test_the_sample_data_can_be_simulated_again():
    settings = PhantomSettings((72, 56, 150), frame_rate_hz=500.0, blood_to_noise_db=10.0, seed=2)
    with ThreadExecutor() as executor, h5py.File(SAMPLE) as file:
        phantom = Phantom(settings, executor)
        assert np.array_equal(phantom.frames(np.arange(8)).iq, file["iq"][:8])
        assert np.array_equal(phantom.mask, file["truth/vessel_mask"][()])
        assert np.array_equal(phantom.velocity_mm_s, file["truth/velocity"][()])


@pytest.mark.parametrize(
    ("settings", "digest"),
    [
        (PhantomSettings((24, 20, 12), seed=1, real=True), "2d9ee6f5259478051ffa2beb"),
        (PhantomSettings((10, 9, 8, 6), seed=4), "678be92665d75627d46c04a2"),
        (
            PhantomSettings(
                (40, 32, 12), seed=6, thin_vessels=3, capillary_db=-10.0, attenuation_db=20.0, noise_gain_db=10.0,
                jerk_pixels=1.0, drift_pixels=2.0, breathing=(0.5, 2.0), max_speed_mm_s=9.0,
            ),
            "9866934dc21b4bc87ed5d09b",
        ),
    ],
    ids=["real", "volume", "everything"],
)  # fmt: skip
def test_a_phantom_has_the_same_bytes_as_ever(settings, digest):
    phantom, terms = all_frames(settings)
    found = hashlib.sha256()
    for values in (
        terms.iq, terms.tissue, terms.blood, terms.noise, phantom.mask, phantom.velocity_mm_s
    ):  # fmt: skip
        found.update(np.ascontiguousarray(values).tobytes())
    assert found.hexdigest()[:24] == digest


@pytest.mark.slow
def test_thin_vessels_and_capillaries_change_neither_tissue_nor_noise_nor_the_other_vessels():
    _, plain = all_frames(PLAIN)
    _, more = all_frames(replace(PLAIN, thin_vessels=2, capillary_db=-10.0))
    assert np.array_equal(plain.tissue, more.tissue)
    assert np.array_equal(plain.noise, more.noise)
    _, most = all_frames(replace(PLAIN, thin_vessels=3, capillary_db=-10.0))
    # What the third thin vessel adds is in a few pixels; elsewhere no scatterer has moved.
    same = np.isclose(more.blood, most.blood, rtol=0, atol=1e-5).all(axis=0)
    assert 0.5 < same.mean() < 0.98


# ---------------------------------------------------------------- noise


@pytest.mark.parametrize("shape", [(40, 30, 300), (20, 12, 10, 80)])
@pytest.mark.parametrize("correlation_pixels", [0.0, 1.0])
def test_noise_grows_by_the_gain_and_is_at_the_bottom_what_was_asked_for(shape, correlation_pixels):
    settings = PhantomSettings(
        shape, blood_to_noise_db=-6.0, noise_gain_db=20.0, noise_correlation_pixels=correlation_pixels, seed=3
    )
    power, noise = noise_frames(settings)
    decibels = 10 * np.log10(power.reshape(shape[0], -1))
    np.testing.assert_allclose(decibels[:, 0], np.linspace(-14.0, 6.0, shape[0]), atol=1e-4)
    assert np.ptp(decibels, axis=1).max() == 0
    assert (power.dtype, power.shape, noise.dtype) == (np.float32, shape[:-1], np.complex64)
    measured = mean_power(noise).reshape(shape[0], -1).mean(axis=1)
    # Pixels that are correlated over s count as one in 4 pi s^2, along a row as one in 2 sqrt(2 pi) s at most.
    independent = noise[:, 0].size / (6.0 if correlation_pixels and len(shape) == 3 else 1.0)
    independent /= 4 * np.pi if correlation_pixels and len(shape) == 4 else 1.0
    np.testing.assert_allclose(measured, power.reshape(shape[0], -1)[:, 0], rtol=4.5 / np.sqrt(independent))


def test_noise_is_against_the_blood_at_the_bottom_with_its_attenuation():
    settings = PhantomSettings((48, 40, 40), blood_to_noise_db=3.0, attenuation_db=20.0, noise_gain_db=10.0)
    phantom, terms = all_frames(settings)
    decibels = 10 * np.log10(phantom.noise_power[:, 0])
    assert decibels[[0, -1]] == pytest.approx([-33.0, -23.0], abs=1e-4)
    rows = mean_power(terms.noise).mean(axis=1)
    np.testing.assert_allclose(rows, phantom.noise_power[:, 0], rtol=4.5 / np.sqrt(40 * 40))
    without = all_frames(replace(settings, attenuation_db=0.0))[0]
    assert 10 * np.log10(without.noise_power[-1, 0]) == pytest.approx(-3.0, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "sigma", "shifts"),
    [
        *(((64, 56, 200), sigma, [(1, 0), (0, 1), (2, 0), (0, 3), (2, 2)]) for sigma in (0.4, 2.5)),
        ((18, 20, 16, 100), 1.2, [(2, 0, 0), (0, 2, 0), (0, 0, 2)]),
    ],
)
def test_neighbours_are_correlated_as_a_gaussian_makes_them(shape, sigma, shifts):
    _, noise = noise_frames(PhantomSettings(shape, noise_correlation_pixels=sigma))
    for shift in shifts:
        # Rolled, so that pixels at opposite edges are neighbours as well.
        measured = correlation(noise, np.roll(noise, shift, range(1, noise.ndim)))
        assert measured == pytest.approx(np.exp(-np.dot(shift, shift) / (4 * sigma**2)), abs=0.02)
    assert abs(correlation(noise[:-1], noise[1:])) < 0.02
    assert abs(np.mean(noise.astype(complex) ** 2)) < 0.02 * np.mean(mean_power(noise))


# ---------------------------------------------------------------- attenuation


@pytest.mark.parametrize("shape", [(32, 24, 6), (12, 10, 8, 4)])
def test_tissue_and_blood_lose_the_attenuation_linearly_in_db(shape):
    settings = PhantomSettings(shape, thin_vessels=1, capillary_db=0.0)
    _, plain = all_frames(settings)
    _, attenuated = all_frames(replace(settings, attenuation_db=30.0))
    gain = 10 ** (-30.0 / 20 * np.arange(shape[0]) / (shape[0] - 1))
    gain = gain.reshape((-1,) + (1,) * (len(shape) - 2))
    np.testing.assert_allclose(attenuated.tissue, plain.tissue * gain, rtol=1e-5)
    np.testing.assert_allclose(attenuated.blood, plain.blood * gain, rtol=1e-5)


def test_the_truth_in_the_file_has_attenuation_noise_and_capillaries(tmp_path):
    settings = PhantomSettings(
        (24, 20, 10), attenuation_db=12.0, capillary_db=-3.0, noise_gain_db=6.0, seed=2
    )
    summary = simulate_to_file(tmp_path / "p.h5", settings)
    assert summary["attenuation_db"] == 12.0
    phantom, terms = all_frames(settings)
    with h5py.File(tmp_path / "p.h5") as file:
        truth = {name: values[()] for name, values in file["truth"].items()}
    np.testing.assert_allclose(truth["blood_power"], mean_power(terms.blood), rtol=1e-4)
    assert truth["noise_power"].dtype == np.float32
    assert np.array_equal(truth["noise_power"], phantom.noise_power)
    assert np.array_equal(truth["capillary_mask"], phantom.capillary_mask)
    assert truth["capillary_mask"].dtype == bool


# ---------------------------------------------------------------- thin vessels


def test_thin_vessels_are_one_to_two_pixels_wide_and_are_in_the_mask():
    with ThreadExecutor() as executor:
        plain = Phantom(PhantomSettings((96, 80, 10)), executor)
        phantom = Phantom(PhantomSettings((96, 80, 10), thin_vessels=40), executor)
        few = Phantom(PhantomSettings((96, 80, 10), thin_vessels=1), executor)
    thin = phantom.vessels[len(plain.vessels) :]
    diameters = [2 * vessel.radius for vessel in thin]
    assert len(thin) == 40
    assert 1.0 <= min(diameters) < 1.2 < 1.8 < max(diameters) <= 2.0
    assert phantom.mask[plain.mask].all()
    # In the mask, a vessel has as many pixels as its length in the image times its diameter.
    alone = few.mask & ~plain.mask
    distance = thin[0].radial_distance(np.stack([*np.nonzero(alone), np.zeros(alone.sum())], axis=1))
    assert distance.max() < thin[0].radius
    along = np.linspace(-200, 200, 8001)[:, None] * thin[0].direction + thin[0].center
    visible = ((along[:, :2] > -0.5) & (along[:, :2] < [95.5, 79.5])).all(axis=1)
    free = [
        not plain.mask[tuple(np.round(point[:2]).astype(int))] for point in along[visible]
    ]  # where no other vessel covers it
    assert alone.sum() == pytest.approx(np.sum(free) * 0.05 * diameters[0], rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_thin_vessel_is_as_wide_in_the_blood_as_its_diameter_and_the_point_spread_function(seed):
    settings = PhantomSettings((48, 40, 100), frame_rate_hz=250.0, seed=seed)
    plain, without = all_frames(settings)
    phantom, terms = all_frames(replace(settings, thin_vessels=1))
    vessel = phantom.vessels[-1]
    added = mean_power(terms.blood - without.blood)
    points = np.stack(np.meshgrid(*map(np.arange, added.shape), indexing="ij"), axis=-1)
    normal = np.array([-vessel.direction[1], vessel.direction[0]])
    across = (points - vessel.center[:2]) @ normal
    # The power of a point has half of the variance of its amplitude; a disk projects to a variance of R^2 / 4.
    expected = vessel.radius**2 / 4 + 0.5 * normal**2 @ [SIGMA_Z**2, SIGMA_X**2]
    variance = np.sum(added * across**2) / added.sum()
    assert variance == pytest.approx(expected, rel=0.2)
    # A volume of blood has the same power as in the other vessels.
    widest = max(plain.vessels, key=lambda other: other.radius)
    dense = (
        plain.scatterers["vessels"].amplitude @ plain.scatterers["vessels"].amplitude / volume(plain.vessels)
    )
    thin = phantom.scatterers["thin"].amplitude @ phantom.scatterers["thin"].amplitude / volume([vessel])
    assert thin == pytest.approx(dense, rel=0.02)
    assert 2 * vessel.mean_speed < 2.6 * widest.mean_speed


def volume(vessels):
    return sum(np.pi * vessel.radius**2 * vessel.length for vessel in vessels)


# ---------------------------------------------------------------- capillaries


@pytest.fixture(scope="module")
def perfused():
    """The blood of capillaries alone, the motion of the tissue taken out of its phase, and its phantom."""
    settings = PhantomSettings((48, 40, 120), frame_rate_hz=250.0, seed=1)
    _, without = all_frames(settings)
    phantom, terms = all_frames(replace(settings, capillary_db=-5.0))
    flow = terms.blood - without.blood
    return phantom, flow, np.exp(-1j * np.angle(terms.tissue))


@pytest.mark.slow
def test_capillaries_have_their_level_in_their_region_and_end_outside(perfused):
    phantom, flow, _ = perfused
    power = mean_power(flow)
    assert 10 * np.log10(power[phantom.capillary_mask].mean()) == pytest.approx(-5.0, abs=0.3)
    assert 0.25 < phantom.capillary_mask.mean() < 0.45
    edges = np.r_[phantom.capillary_mask[[0, -1]].ravel(), phantom.capillary_mask[:, [0, -1]].ravel()]
    assert not edges.any()
    near = binary_dilation(phantom.capillary_mask, np.ones((11, 11)))
    assert power[~near].max() < 1e-2 * power[phantom.capillary_mask].mean()


@pytest.mark.slow
def test_capillaries_move_at_half_to_two_mm_a_second_in_all_directions(perfused):
    phantom, flow, still = perfused
    settings = phantom.settings
    rng = np.random.default_rng(0)
    direction = rng.standard_normal((100_000, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    speed = rng.uniform(0.5, 2.0, (len(direction), 1)) / settings.wavelength_mm
    inside = phantom.capillary_mask
    for lag in (1, 2, 4):
        products = np.conj(flow[:-lag]) * flow[lag:] * still[lag:] * np.conj(still[:-lag])
        measured = products[:, inside].mean() / mean_power(flow)[inside].mean()
        # A way of d wavelengths turns the phase by 4 pi d_z, and takes the scatterer through the point-spread function.
        way = direction * speed * lag / settings.frame_rate_hz
        loss = np.sum((way / [SIGMA_Z, SIGMA_X, SIGMA_SLICE]) ** 2, axis=1) / 4
        expected = np.mean(np.exp(-loss - 4j * np.pi * way[:, 0]))
        assert measured == pytest.approx(expected, abs=0.05 * (1 - expected.real) + 0.03)
    # Single pixels have a direction for a while: phases of all signs, and hardly one beyond 2 mm/s.
    first = np.angle((np.conj(flow[:7]) * flow[1:8])[:, inside].sum(axis=0))
    fastest = 4 * np.pi * 2.0 / settings.wavelength_mm / settings.frame_rate_hz
    assert 0.3 < np.mean(first > 0) < 0.7
    assert np.percentile(np.abs(first), 95) < 1.2 * fastest


# ---------------------------------------------------------------- speeds


@pytest.mark.parametrize("seed", [1])
def test_no_vessel_aliases_at_250_hz_unless_a_speed_is_given(seed):
    settings = PhantomSettings((64, 56, 4), frame_rate_hz=250.0, thin_vessels=5, seed=seed)
    nyquist_mm_s = settings.wavelength_mm * 250.0 / 4
    with ThreadExecutor() as executor:
        default = Phantom(settings, executor)
        fast = Phantom(replace(settings, max_speed_mm_s=40.0), executor)
    assert np.abs(default.velocity_mm_s).max() * (1 + PULSATILITY) < nyquist_mm_s
    assert np.abs(fast.velocity_mm_s).max() > nyquist_mm_s
    speeds = [2 * vessel.mean_speed * settings.wavelength_mm for vessel in fast.vessels]
    assert max(speeds) == pytest.approx(40.0)
    # All speeds have changed by one factor, and nothing else has.
    ratio = [b.mean_speed / a.mean_speed for a, b in zip(default.vessels, fast.vessels, strict=True)]
    assert ratio == pytest.approx([ratio[0]] * len(ratio))
    assert np.array_equal(default.mask, fast.mask)


@pytest.mark.slow
@pytest.mark.parametrize(("speed_mm_s", "least", "most"), [(5.0, 0.0, 0.08), (20.0, 0.25, 0.9)])
def test_the_fastest_speed_is_that_of_the_blood_and_aliases_at_a_low_frame_rate(speed_mm_s, least, most):
    settings = PhantomSettings((40, 36, 160), frame_rate_hz=1000.0, max_speed_mm_s=speed_mm_s, seed=5)
    phantom, terms = all_frames(settings)
    inside = phantom.mask & (mean_power(terms.blood) > 0.5)
    lag_one = np.sum(np.conj(terms.blood[:-1]) * terms.blood[1:], axis=0)
    measured = np.angle(lag_one[inside]) / (4 * np.pi) * settings.frame_rate_hz * settings.wavelength_mm
    true = phantom.velocity_mm_s[inside]
    assert np.corrcoef(true, measured)[0, 1] > 0.85
    assert 0.5 < np.polyfit(true, measured, 1)[0] < 1.05
    # A part of the spectrum is beyond what 250 frames a second can tell apart.
    power = mean_power(np.fft.fft(terms.blood[:, inside] * np.hanning(160)[:, None], axis=0).T)
    beyond = np.abs(np.fft.fftfreq(160, 1 / 1000.0)) > 125.0
    assert least <= power[beyond].sum() / power.sum() <= most
    # The frame rate samples one flow: another one gives the same blood, with a level of its own.
    slow, slow_terms = all_frames(replace(settings, shape=(40, 36, 40), frame_rate_hz=250.0))
    assert np.array_equal(slow.velocity_mm_s, phantom.velocity_mm_s)
    assert abs(correlation(slow_terms.blood, terms.blood[::4])) == pytest.approx(1.0, abs=1e-5)
