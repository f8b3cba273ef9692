"""Which of the components that are removed are noise, and the cutoff that is raised while tissue leaks."""

import numpy as np
import pytest

from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings
from usdenoise.pipeline.scan_clutter import without_noise


def vectors(n_frames, kinds, dtype=complex):
    """Orthonormal temporal vectors: slow motion, noise, or interference in a few frames."""
    rng = np.random.default_rng(n_frames)
    t = np.arange(n_frames)[:, None]
    noise = rng.standard_normal((n_frames, len(kinds)))
    if dtype is complex:
        noise = noise + 1j * rng.standard_normal(noise.shape)
    slow = np.exp(-0.5 * ((t - t.T) / 4) ** 2) @ noise
    burst = noise * (np.abs(t - n_frames // 2) < max(n_frames // 20, 1))
    made = {"slow": slow, "noise": noise, "burst": burst}
    columns = [made[kind][:, number] for number, kind in enumerate(kinds)]
    return np.linalg.qr(np.stack(columns, axis=1))[0]


@pytest.mark.parametrize(("n_frames", "dtype"), [(60, float), (200, complex), (1000, complex)])
def test_noise_is_no_clutter(n_frames, dtype):
    right = vectors(n_frames, ["slow"] * 5 + ["noise"] * 7, dtype)
    assert without_noise(right) == 5
    assert without_noise(right[:, 5:]) == 0
    assert without_noise(right[:, :5]) == 5
    assert without_noise(right[:, :0]) == 0


@pytest.mark.parametrize("n_frames", [12, 24, 40])
def test_a_single_frequency_in_few_frames_is_no_noise(n_frames):
    frequencies = np.arange(4)[None] / n_frames
    waves = np.exp(2j * np.pi * np.arange(n_frames)[:, None] * frequencies) / np.sqrt(n_frames)
    assert without_noise(waves) == 4
    assert without_noise(waves[:, :1].real) == 1


def test_interference_in_a_few_frames_is_no_noise():
    assert without_noise(vectors(200, ["slow"] * 3 + ["noise", "burst", "noise"])) == 5


@pytest.mark.slow
def test_the_cutoff_of_a_long_scan_is_raised_while_tissue_remains():
    # Tissue of 65 dB resembles its leading components up to the 55th alone, and has about 98.
    settings = PhantomSettings((32, 32, 2400), 500.0, clutter_to_blood_db=65, blood_to_noise_db=6, seed=1)
    with ThreadExecutor(2) as executor:
        parts = [(part.iq, part.blood) for part in Phantom(settings, executor).parts(frames_a_part=64)]
    iq, blood = (np.concatenate(frames) for frames in zip(*parts, strict=True))
    truth = np.mean(np.abs(blood) ** 2, axis=0, dtype=np.float64).ravel()
    found = denoise(iq, axes="tzx")
    assert 85 <= found.low_cutoff <= 104
    assert found.cutoff_certainty == "unsure"
    assert correlation(found.power_doppler.ravel(), truth) > 0.9
    assert "cutoff-unsure" in [doubt.code for doubt in found.doubts]
    # A given cutoff stays as it is
    given = denoise(iq, axes="tzx", low_cutoff=55)
    assert given.low_cutoff == 55
    assert correlation(given.power_doppler.ravel(), truth) < 0.3
