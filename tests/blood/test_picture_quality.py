"""What a blood map shows."""

import numpy as np

from usdenoise.blood.picture_quality import blood_pixels


def test_blood_is_where_it_is_stronger_than_noise_and_not_faint() -> None:
    blood, noise = np.ones(200), np.full(200, 0.1)
    noise[0], blood[1] = 2.0, 0.005
    noise[1] = 0.0
    expected = np.ones(200, bool)
    expected[:2] = False
    assert np.array_equal(blood_pixels(blood, noise), expected)
