"""The verdict on a fit, by its error on the held-out entries and the gain of the refit."""

import numpy as np
import pytest

from usdenoise.pipeline.fit_result import Verdict, judge_fit

LEFT = 100 * 80 - 10 * (100 + 80 - 10)
"""Degrees of freedom of what a model of rank 10 leaves of 100 x 80 entries: a residual of this energy has rms 1."""


def judged(held_out_rmse, gained_energy, **given):
    usual = {"residual_energy": LEFT, "energy": 1e3 * LEFT, "samples_per_pixel": 50.0}
    return judge_fit(
        held_out_rmse=held_out_rmse, gained_energy=gained_energy, shape=(100, 80), rank=10, **usual | given
    )


@pytest.mark.parametrize(("held_out", "samples_per_pixel", "gained", "verdict"), [
    (1.03, 50.0, 0.4, Verdict.AS_FULL_SVD), (9.0, 50.0, 0.4, Verdict.AS_FULL_SVD),
    (1.3, 50.0, 0.6, Verdict.CLOSE_TO_FULL_SVD), (1.3, 50.0, 6.0, Verdict.NOT_REFITTED),
    (9.0, 50.0, None, Verdict.NOT_FITTED), (1.03, 50.0, None, Verdict.AS_SAMPLE_ALLOWS),
    (1.3, 15.0, None, Verdict.TOO_FEW_SAMPLES), (1.3, 8.0, 0.4, Verdict.TOO_FEW_SAMPLES),
    (None, 50.0, 0.4, Verdict.NOT_JUDGED),
])  # fmt: skip
def test_verdicts(held_out, samples_per_pixel, gained, verdict):
    gained_energy = None if gained is None else gained * LEFT
    quality = judged(held_out, gained_energy, samples_per_pixel=samples_per_pixel)
    assert quality.residual_rms == pytest.approx(1.0)
    assert quality.verdict is verdict
    assert quality.verdict.is_good == (verdict in (Verdict.AS_FULL_SVD, Verdict.AS_SAMPLE_ALLOWS))
    if held_out is not None and samples_per_pixel == 50.0:
        assert quality.allowed_rmse == pytest.approx(np.sqrt(1 + 10 / 40))


@pytest.mark.parametrize(("gained", "verdict"), [(1e-8, Verdict.AS_FULL_SVD), (1e-3, Verdict.NOT_REFITTED)])
def test_rounding_errors_are_no_gain_of_the_refit(gained, verdict):
    assert judged(1e-7, gained, residual_energy=0.0, energy=1.0).verdict is verdict
