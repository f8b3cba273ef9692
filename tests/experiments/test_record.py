"""Claims are checked numbers of curves: medians over seeds, the noise floor, ratios, and bounds."""

import math

import numpy as np
import pytest

from usdenoise.experiments.record import (
    BEST_OTHER,
    DELAY,
    FINAL,
    FLOOR,
    LAMBDAS,
    SLOPE,
    TIME,
    TIME_RATIO,
    Claim,
    Curve,
    CurvePanel,
)


def curve(label, *errors):
    values = np.array(errors, np.float64)
    return Curve(label, np.arange(values.shape[1]), values)


GOOD = curve("eta-decay", [1, 0.1, 0.01, 0.001], [1, 0.2, 0.02, 0.002], [1, 0.3, 0.03, 0.003])

BAD = curve("bad", [1, 0.9, 0.8, 0.5], [1, 0.9, 0.8, 0.05], [1, 0.9, 0.8, 0.7])

PANEL = CurvePanel("here", (GOOD, BAD), 0.01)


def test_curve_summaries():
    assert GOOD.final == 0.002
    assert GOOD.quartiles[:, 1] == pytest.approx([0.15, 0.2, 0.25])
    assert (GOOD.reaches(0.02), BAD.reaches(0.6), BAD.reaches(0.4)) == (2, 3, math.inf)
    assert [GOOD.reaches(0.02, share) for share in (0.3, 0.6, 0.7, 1)] == [2, 2, 3, 3]


@pytest.mark.parametrize(("claim", "measured", "held"), [
    (Claim("eta-decay", TIME, 0.02, at_most=2), 2, True),
    (Claim("eta-decay", TIME, 0.02, at_most=1), 2, False),
    (Claim("bad", TIME, 0.02, at_most=3), math.inf, False),
    (Claim("eta-decay", TIME, FLOOR, at_most=2), 3, False),
    (Claim("eta-decay", TIME, FLOOR, at_most=3), 3, True),
    (Claim("bad", FINAL, FLOOR, at_least=2), 50.0, True),
    (Claim("eta-decay", FINAL, FLOOR, at_least=2), 0.2, False),
    (Claim("bad", FINAL, "eta-decay", at_least=10), 250.0, True),
    (Claim("bad", FINAL, BEST_OTHER, at_most=2), 250.0, False),
    (Claim("bad", DELAY, 0.5, at_least=2), 3.0, True),
    (Claim("bad", DELAY, 0.1, at_least=2), math.inf, True),
    (Claim("bad", DELAY, 1e-4, at_least=2), 0.0, False),
    (Claim("bad", DELAY, FLOOR, at_least=2), math.inf, True),
    # A reference that does not reach the level is followed to its last error.
    (Claim("eta-decay", TIME_RATIO, "bad", at_most=1.5), 1 / 3, True),
    (Claim("bad", TIME_RATIO, "eta-decay", at_most=1.5), math.inf, False),
])  # fmt: skip
def test_claims_are_checked_numbers(claim, measured, held):
    checked = claim.check("here", [PANEL])
    assert checked.measured == pytest.approx(measured)
    assert checked.held is held


@pytest.mark.parametrize(("power", "held"), [(1.0, True), (1.05, True), (0.8, False), (-0.2, False)])
def test_proportional_is_a_slope_of_one(power, held):
    panel = CurvePanel(
        "here", tuple(curve(f"ScaledGD({value:g})", [1, 0.02 * value**power]) for value in LAMBDAS)
    )
    checked = Claim("all", SLOPE, at_least=0.9, at_most=1.1).check("here", [panel])
    assert checked.measured == pytest.approx(power)
    assert checked.held is held


def test_a_claim_on_several_panels_has_the_worst_number():
    panels = [PANEL, CurvePanel("there", (GOOD, BAD), 0.02)]
    assert Claim("bad", FINAL, FLOOR, at_least=2).check("both", panels).measured == pytest.approx(25)
    assert Claim("bad", FINAL, FLOOR, at_most=2).check("both", panels).measured == pytest.approx(50)


def test_ratio_to_an_error_of_exactly_zero():
    panel = CurvePanel("here", (curve("zero", [1, 0]), BAD))
    assert Claim("bad", FINAL, "zero", at_least=10).check("here", [panel]).held
