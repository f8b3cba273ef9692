"""The claims of the planted experiments, with few seeds."""

import pytest

from usdenoise.experiments import Setup
from usdenoise.experiments.planted_experiments import HIGH_NOISE, ONE_BIT, PHASE


@pytest.mark.parametrize(("experiment", "n_seeds"), [
    (ONE_BIT, 3),
    pytest.param(HIGH_NOISE, 6, marks=pytest.mark.slow),
    pytest.param(PHASE, 2, marks=pytest.mark.slow),
])  # fmt: skip
def test_claims_hold_in_the_paper_s_reading(experiment, n_seeds):
    result = experiment.run(Setup(n_seeds))
    assert all(claim.held for claim in result.claims)
