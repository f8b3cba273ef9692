"""Claims and curves: which claims hold, medians and quartiles over seeds, and the table of claims."""

import math

import numpy as np
import pytest

from usdenoise.experiments import claims
from usdenoise.experiments.record import Claim, Curve, ExperimentResult, Panel


def curve(label, *errors):
    values = np.array(errors, np.float64)
    return Curve(label, np.arange(values.shape[1]), values, (0,) * len(values), (1,) * len(values), ("x",))


GOOD = curve("good", [1, 0.1, 0.01, 0.001], [1, 0.2, 0.02, 0.002], [1, 0.3, 0.03, 0.003])
BAD = curve("bad", [1, 0.9, 0.8, 0.5], [1, 0.9, 0.8, 0.05], [1, 0.9, 0.8, 0.7])
PANEL = Panel("here", (GOOD, BAD), 0.01)


def test_curve_summaries():
    assert GOOD.final == 0.002
    assert GOOD.quartiles[:, 1] == pytest.approx([0.15, 0.2, 0.25])
    assert GOOD.reaches(0.02) == 2
    assert GOOD.reaches(0.025) == 2
    assert BAD.reaches(0.4) == math.inf
    assert BAD.reaches(0.6) == 3
    assert PANEL["bad"] is BAD


def test_median_of_an_even_number_of_seeds_of_which_half_never_get_there():
    assert curve("x", [1, 0.1], [1, 1]).reaches(0.5) == 1
    assert curve("x", [1, 0.1], [1, 1], [1, 1]).reaches(0.5) == math.inf


@pytest.mark.parametrize(
    ("claim", "measured", "held"),
    [
        (claims.within_of_parameter(PANEL, "good", 0.01, 10), 5.0, True),
        (claims.within_of_parameter(PANEL, "good", 1e-4, 10), 20.0, False),
        (claims.reaches(PANEL, "good", 0.02, 2), 2, True),
        (claims.reaches(PANEL, "good", 0.02, 1), 2, False),
        (claims.reaches(PANEL, "bad", 0.02, 3), math.inf, False),
        (claims.reaches_floor(PANEL, "good", 2), 2, True),
        (claims.ends_above(PANEL, "bad", "good", 10), 250.0, True),
        (claims.ends_above(PANEL, "good", "bad", 1), 0.004, False),
        (claims.ends_near(PANEL, "good", "bad", 1.1), 0.004, True),
        (claims.ends_near(PANEL, "bad", "good", 1.1), 250.0, False),
        (claims.ends_near_best(PANEL, "bad", ["good", "bad"], "one", 2), 250.0, False),
        (claims.sooner(PANEL, "good", "bad", 0.5, 2), 3.0, True),
        (claims.sooner(PANEL, "good", "bad", 0.1, 2), math.inf, True),
        (claims.sooner(PANEL, "bad", "good", 0.1, 2), 0.0, False),
        (claims.as_soon(PANEL, "good", "bad", 0.5, 1), 1 / 3, True),
        (claims.as_soon(PANEL, "bad", "good", 0.1, 9), math.inf, False),
    ],
)
def test_claims_are_checked_numbers(claim, measured, held):
    assert claim.measured == pytest.approx(measured)
    assert claim.held is held
    assert claim.statement.startswith("here: ")


def test_claims_of_never_and_nothing():
    assert Claim("x", math.inf, 1).figure == "never"
    assert Claim("x", math.inf, 1, at_most=False).figure == "the other never"
    assert not Claim("x", math.nan, 1).held
    assert not Claim("x", math.nan, 1, at_most=False).held
    assert Claim("x", 1234.5, 1).figure == "1.23e+03"
    assert Claim("x", 2, 2).held
    assert Claim("x", 2, 2, at_most=False).wanted == "at least 2"


def test_ratio_to_an_error_of_exactly_zero():
    panel = Panel("here", (curve("zero", [1, 0]), BAD))
    assert claims.ends_above(panel, "bad", "zero", 10).held


RESULT = ExperimentResult(
    "Title", {"step": 0.1}, ("a choice",), (0, 1, 2), (PANEL,), (Claim("so it is", 1, 2), Claim("no", 3, 2))
)


def test_rows_are_quartiles_by_panel_and_curve():
    rows = list(RESULT.rows())
    assert len(rows) == 8
    assert rows[1] == ("here", "good", 1.0, pytest.approx(0.15), pytest.approx(0.2), pytest.approx(0.25))


def test_record_has_every_seed():
    summary = RESULT.as_dict()["panels"][0]["curves"][0]
    assert summary["final_error_of_each_seed"] == [0.001, 0.002, 0.003]
    assert summary["final_error"]["median"] == 0.002
    assert summary["halvings"] == [1, 1, 1]


def test_table_says_what_did_not_hold():
    text = RESULT.markdown("name")
    assert "## name: Title" in text
    assert "* a choice" in text
    assert "| so it is | 1 | at most 2 | held |" in text
    assert "| no | 3 | at most 2 | **not held** |" in text
