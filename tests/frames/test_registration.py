"""Shifts of images against a phase correlation of one image at a time, and movements of images that were moved."""

import numpy as np
import pytest
from scipy import ndimage

from tests.conftest import all_frames
from tests.reference.matrices import displaced
from usdenoise import denoise
from usdenoise.frames.registration import PEAK_SIGMA, Registration, describe_movement, image_spectra, shifts
from usdenoise.phantom import PhantomSettings


def smooth_images(size, n_images, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((n_images, *size))
    return ndimage.gaussian_filter(images, (0, *[1.0] * len(size))).astype(np.float32)


def textbook(image, reference):
    """The peak of the phase correlation of two images, with the transform of a Gaussian as its weight."""
    size = image.shape
    cross = np.fft.fftn(image.astype(float)) * np.fft.fftn(reference.astype(float)).conj()
    squares = sum(f**2 for f in np.meshgrid(*map(np.fft.fftfreq, size), indexing="ij"))
    correlation = np.fft.ifftn(cross / np.abs(cross) * np.exp(-2 * (np.pi * PEAK_SIGMA) ** 2 * squares)).real
    best = np.unravel_index(np.argmax(correlation), size)
    places = []
    for axis, n in enumerate(size):
        line = np.moveaxis(correlation, axis, 0)[(slice(None), *np.delete(best, axis))]
        low, peak, high = np.log(line[[best[axis] - 1, best[axis], (best[axis] + 1) % n]])
        place = best[axis] + 0.5 * (low - high) / (low - 2 * peak + high)
        places.append(place - n * (place > n / 2))
    return places


@pytest.mark.parametrize("size", [(16,), (100,), (15, 16), (40, 37), (24, 20, 18)])
def test_shifts_are_those_of_the_textbook(size):
    images = smooth_images(size, 5)
    # Turned around the edges, as the transform takes them to be.
    shift = (5, -3, 2)[: len(size)]
    images[1:] = np.roll(images[:1], shift, axis=tuple(range(1, len(size) + 1)))
    images += 0.1 * smooth_images(size, 5, seed=1)
    spectra = image_spectra(images)
    found = shifts(spectra, spectra[0], size)
    expected = [textbook(images[k], images[0]) for k in range(5)]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    if len(size) > 1:
        assert np.abs(found[1:] - shift).max() < 0.2


def test_the_error_of_a_shift_is_that_of_images_with_noise():
    rng = np.random.default_rng(3)
    smooth = np.exp(-2 * (np.pi * 1.2 * np.hypot(*np.ix_(*[np.fft.fftfreq(64)] * 2))) ** 2)

    def speckle(scale):
        return scale * np.abs(np.fft.ifft2(np.fft.fft2(rng.standard_normal((64, 64)) + 0j) * smooth))

    tissue = speckle(1.0)
    registration = Registration.of(tissue)
    for level in (0.2, 0.6):
        found = [registration.shift(tissue + speckle(level)) for _ in range(60)]
        spread = np.std([one.pixels for one in found], axis=0).max()
        assert 0.4 < np.mean([one.error for one in found]) / spread < 2.5
    same = registration.shift(tissue)
    assert same.error < 1e-3
    np.testing.assert_allclose(same.pixels, 0, atol=1e-3)


def moved_speckle(shape, shifts, seed=0, dtype=np.complex64):
    """A smooth speckle image, moved by a shift in each frame; Casorati matrix."""
    rng = np.random.default_rng(seed)
    wide = [n + 16 for n in shape]
    parts = [ndimage.gaussian_filter(rng.standard_normal(wide), 1.5) for _ in range(2)]
    image = parts[0] + 1j * parts[1] if np.iscomplexobj(dtype()) else parts[0]
    inner = tuple(slice(8, 8 + n) for n in shape)
    frames = [ndimage.shift(image, shift, order=3)[inner].reshape(-1) for shift in shifts]
    return np.stack(frames, axis=1).astype(dtype)


@pytest.mark.parametrize(("shape", "most"), [((60, 50), 0.1), ((24, 20, 22), 0.15), ((90, 100), 0.1)])
def test_displacements_are_found_to_a_tenth_of_a_pixel(shape, most):
    rng = np.random.default_rng(1)
    shifts = rng.uniform(-2, 2, (12, len(shape)))
    found = displaced((moved_speckle(shape, shifts)), shape)
    error = (found - np.median(found, axis=0)) - (shifts - np.median(shifts, axis=0))
    assert np.sqrt(np.mean(error**2)) < most


def test_the_image_inside_a_mask_is_what_moves():
    shifts = np.linspace(-2, 2, 12)[:, None] * (1, 0.5)
    speckle = moved_speckle((60, 50), shifts).reshape(60, 50, 12)
    whole, has_signal = np.zeros((100, 90, 12), np.complex64), np.zeros((100, 90), bool)
    whole[35:95, 5:55], has_signal[35:95, 5:55] = speckle, True
    found = displaced((whole.reshape(-1, 12)), (100, 90), has_signal)
    alone = displaced((speckle.reshape(-1, 12)), (60, 50))
    assert found == pytest.approx(alone, abs=1e-3)
    # Within a disk, whose edges stay where they are.
    z, x = np.indices((60, 50))
    disk = (z - 30) ** 2 + (x - 25) ** 2 < 20**2
    within = displaced(((speckle * disk[..., None]).reshape(-1, 12)), (60, 50), disk)
    assert within - within.mean(axis=0) == pytest.approx(shifts, abs=0.3)


def test_frames_without_an_image_are_not_displaced():
    matrix = moved_speckle((40, 30), np.zeros((6, 2)))
    matrix[:, 2], matrix[:, 3] = 0, 5
    assert displaced((matrix), (40, 30)) == pytest.approx(np.zeros((6, 2)), abs=0.01)
    assert displaced((np.zeros((12, 4), np.float32)), (4, 3)).tolist() == [[0, 0]] * 4
    assert displaced((np.ones((1, 4), np.complex64)), (1, 1)).tolist() == [[0, 0]] * 4


def test_a_stack_that_moves_is_said_to_move():
    settings = PhantomSettings((32, 28, 80), frame_rate_hz=500.0, seed=5, drift_pixels=3.0)
    found = denoise(np.moveaxis(all_frames(settings)[1].iq, 0, -1), axes="zxt")
    assert np.ptp(found.frame_quality.curves.displacement[:, 0]) > 1.5
    assert "the image moves by up to" in found.verdict


def everything(n):
    return np.ones(n, bool)


def test_a_step_is_told_from_a_drift_and_from_a_jerk():
    n = np.arange(200)
    noise = 0.02 * np.random.default_rng(0).standard_normal((200, 2))
    step = noise + np.outer(n >= 80, [1.0, 0.5])
    found = describe_movement(step, everything(200))
    assert found.steps == (80,)
    assert found.step_pixels == pytest.approx(np.hypot(1, 0.5), abs=0.05)
    assert "the image steps by 1.1 pixels (frames 80)" in found.sentence
    assert found.advice == "try shorter windows"
    drift = describe_movement(noise + np.outer(n / 50, [1.0, 0.0]), everything(200))
    assert drift.steps == ()
    assert "the image moves by up to 1.9 pixels" in drift.sentence
    still = describe_movement(noise, everything(200))
    assert (still.sentence, still.advice, still.step_pixels) == ("", None, 0.0)


@pytest.mark.parametrize("length", [14, 20, 24])
def test_a_jerk_that_goes_back_is_no_step(length):
    n = np.arange(200)
    inside = np.clip((n - 90) / length, 0, 1)
    jerk = np.outer(1.5 * np.sin(np.pi * inside) ** 2, [0.8, 0.6])
    noise = np.random.default_rng(1).normal(0, 0.02, (200, 2))
    found = describe_movement(jerk + noise, everything(200))
    assert found.steps == ()
    assert "the image moves by up to 1." in found.sentence


def test_noise_has_no_place():
    noise = np.random.default_rng(0).uniform(-8, 8, (200, 2))
    assert describe_movement(noise, everything(200)).sentence == ""


def test_frames_without_a_place_do_not_count_as_movement():
    displacement = np.zeros((200, 2))
    displacement[50:60] = 9.0
    used = np.ones(200, bool)
    used[50:60] = False
    assert describe_movement(displacement, used).sentence == ""
    moved = np.outer(np.arange(200) >= 100, [2.0, 0.0])
    assert describe_movement(moved, used).steps == (100,)
    assert describe_movement(moved[:5], used[:5]).steps == ()
