"""Which of the components that are removed are noise."""

import numpy as np
import pytest

from usdenoise.clutter.choose_local_cutoffs import without_noise


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


@pytest.mark.parametrize("n_frames", [60, 200, 1000])
@pytest.mark.parametrize("dtype", [complex, float])
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
