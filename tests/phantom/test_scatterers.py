"""Vessels, thin ones and capillaries: widths, levels, speeds, and the blood that they hold."""

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import binary_dilation

from tests.conftest import all_frames
from tests.phantom.terms import correlation, mean_power
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.phantom.scatterers import PULSATILITY, SIGMA_SLICE, SIGMA_X, SIGMA_Z


def test_vessels_have_several_radii_angles_and_speeds():
    vessels = all_frames(PhantomSettings((128, 96, 2)))[0].vessels
    assert len(vessels) >= 5
    radii = [vessel.radius for vessel in vessels]
    assert max(radii) > 1.7 * min(radii)
    angles = np.sort([np.arctan2(v.direction[1], v.direction[0]) % np.pi for v in vessels])
    assert np.diff(angles).min() > 0.1
    assert len({round(vessel.mean_speed, 6) for vessel in vessels}) == len(vessels)


PLAIN = PhantomSettings((40, 32, 40), frame_rate_hz=250.0, seed=6)


@pytest.mark.slow
def test_thin_vessels_and_capillaries_change_neither_tissue_nor_noise_nor_the_other_vessels():
    _, plain = all_frames(PLAIN)
    _, more = all_frames(replace(PLAIN, thin_vessels=2, capillary_db=-10.0))
    assert np.array_equal(plain.tissue, more.tissue)
    assert np.array_equal(plain.noise, more.noise)
    _, most = all_frames(replace(PLAIN, thin_vessels=3, capillary_db=-10.0))
    # What the third thin vessel adds is in a few pixels; elsewhere no scatterer has moved.
    assert 0.5 < np.isclose(more.blood, most.blood, rtol=0, atol=1e-5).all(axis=0).mean() < 0.98


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


@pytest.mark.parametrize("shape", [(24, 20, 100), (24, 20, 12, 100)])
def test_the_true_velocity_is_the_mean_of_the_blood_in_the_pixel(shape: tuple[int, ...]) -> None:
    """Against a sum over a fine grid of points, weighted by the power of their point-spread function."""
    settings = PhantomSettings(shape, frame_rate_hz=1000.0, thin_vessels=2, seed=5)
    with ThreadExecutor() as executor:
        phantom = Phantom(settings, executor)
    sigma = np.array([SIGMA_Z, SIGMA_X, SIGMA_X if settings.is_volume else SIGMA_SLICE])
    axes = [np.linspace(-2.5, 2.5, 41), np.linspace(-2.5, 2.5, 41), np.linspace(-2.5, 2.5, 161)]
    steps = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.exp(-np.sum(steps**2, axis=1))
    mask = phantom.mask.reshape(settings.grid)
    pixels = np.random.default_rng(0).permutation(np.argwhere(mask))[:4]
    found = phantom.velocity_mm_s.reshape(settings.grid)
    for pixel in pixels:
        power = flow = 0.0
        for vessel in phantom.vessels:
            square = (vessel.radial_distance(pixel + steps * sigma) / vessel.radius) ** 2
            inside = weights * (square < 1)
            axial = -2 * vessel.mean_speed * (1 - square) * vessel.direction[0] * settings.wavelength_mm
            power, flow = power + inside.sum(), flow + inside @ axial
        assert found[tuple(pixel)] == pytest.approx(flow / power, abs=0.02 * float(np.abs(found).max()))
    assert not found[~mask].any()


def test_the_true_velocity_of_hundreds_of_vessels_takes_no_minute() -> None:
    """Only the pixels near a vessel are looked at."""
    settings = PhantomSettings((96, 80, 10), thin_vessels=150)
    with ThreadExecutor() as executor:
        began = time.process_time()
        Phantom(settings, executor)
        assert time.process_time() - began < 8


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
    assert np.corrcoef(true, measured)[0, 1] > 0.9
    assert 0.9 < np.polyfit(true, measured, 1)[0] < 1.1
    # A part of the spectrum is beyond what 250 frames a second can tell apart.
    power = mean_power(np.fft.fft(terms.blood[:, inside] * np.hanning(160)[:, None], axis=0).T)
    beyond = np.abs(np.fft.fftfreq(160, 1 / 1000.0)) > 125.0
    assert least <= power[beyond].sum() / power.sum() <= most
    # The frame rate samples one flow: another one gives the same blood, with a level of its own.
    slow, slow_terms = all_frames(replace(settings, shape=(40, 36, 40), frame_rate_hz=250.0))
    assert np.array_equal(slow.velocity_mm_s, phantom.velocity_mm_s)
    assert abs(correlation(slow_terms.blood, terms.blood[::4])) == pytest.approx(1.0, abs=1e-5)
