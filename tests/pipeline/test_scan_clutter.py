"""The cutoff of a scan, which is raised while tissue leaks."""

import numpy as np
import pytest

from usdenoise import denoise
from usdenoise.blood.metrics import correlation
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.phantom import Phantom, PhantomSettings


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
