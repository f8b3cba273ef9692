"""Claims and curves: which claims hold, medians and quartiles over seeds, and the table of claims."""

import math

import numpy as np
import pytest

from usdenoise.experiments import claims
from usdenoise.experiments.conventions import Convention, Start
from usdenoise.experiments.record import Claim, Curve, ExperimentResult, Panel


def curve(label, *errors):
    values = np.array(errors, np.float64)
    return Curve(label, np.arange(values.shape[1]), values, (0,) * len(values), (1,) * len(values), ("x",))


GOOD = curve("good", [1, 0.1, 0.01, 0.001], [1, 0.2, 0.02, 0.002], [1, 0.3, 0.03, 0.003])
BAD = curve("bad", [1, 0.9, 0.8, 0.5], [1, 0.9, 0.8, 0.05], [1, 0.9, 0.8, 0.7])
PANEL = Panel("here", (GOOD, BAD), 0.01, Start.APPENDIX, Convention.OF_BOTH_SYMMETRIC)


def test_curve_summaries():
    assert GOOD.final == 0.002
    assert GOOD.quartiles[:, 1] == pytest.approx([0.15, 0.2, 0.25])
    assert GOOD.reaches(0.02) == 2
    assert GOOD.reaches(0.025) == 2
    assert BAD.reaches(0.4) == math.inf
    assert BAD.reaches(0.6) == 3
    assert PANEL["bad"] is BAD
    assert [GOOD.reaches(0.02, share) for share in (0.3, 0.6, 0.7, 1)] == [2, 2, 3, 3]
    assert BAD.reaches(0.5, 0.7) == math.inf


def test_median_of_an_even_number_of_seeds_of_which_half_never_get_there():
    assert curve("x", [1, 0.1], [1, 1]).reaches(0.5) == 1
    assert curve("x", [1, 0.1], [1, 1], [1, 1]).reaches(0.5) == math.inf


@pytest.mark.parametrize(
    ("check", "measured", "held"),
    [
        (claims.reaches("good", 0.02, 2), 2, True),
        (claims.reaches("good", 0.02, 1), 2, False),
        (claims.reaches("bad", 0.02, 3), math.inf, False),
        (claims.reaches_floor("good", 2), 3, False),
        (claims.reaches_floor("good", 3), 3, True),
        (claims.stays_above_floor("bad"), 50.0, True),
        (claims.stays_above_floor("good"), 0.2, False),
        (claims.ends_above("bad", "good", at_least=10), 250.0, True),
        (claims.ends_above("good", "bad", at_least=1), 0.004, False),
        (claims.ends_near_best("bad", ["good", "bad"], "one", 2), 250.0, False),
        (claims.slower("good", "bad", 0.5), 3.0, True),
        (claims.slower("good", "bad", 0.1), math.inf, True),
        (claims.slower("bad", "good", 0.1), 0.0, False),
        (claims.slower("good", "bad"), math.inf, True),
        (claims.as_fast("good", "bad", 0.5), 1 / 3, True),
        (claims.as_fast("bad", "good", 0.1), math.inf, False),
    ],
)
def test_claims_are_checked_numbers(check, measured, held):
    claim = check.claim(PANEL, "w")
    assert claim.measured == pytest.approx(measured)
    assert claim.held is held
    assert claim.statement.startswith("here: ")
    assert (claim.where, claim.start, claim.convention) == ("w", Start.APPENDIX, Convention.OF_BOTH_SYMMETRIC)
    assert claims.in_abstract(check).claim(PANEL, "w").where == "abstract; w"


def test_a_bound_is_ours_unless_it_is_the_run_of_the_paper():
    check = claims.reaches("good", 0.02, 500)
    assert check.claim(PANEL, "w").as_dict()["bound"] == "ours"
    of_paper = claims.in_its_run(check).claim(PANEL, "w").as_dict()
    assert (of_paper["bound"], of_paper["wanted"]) == ("paper", "at most 500 (paper)")


def test_a_reference_that_does_not_reach_the_level_is_followed_to_its_last_error():
    slow = curve("slow", [1, 0.5, 0.25, 0.125])
    panel = Panel("here", (slow, curve("same", [1, 0.5, 0.2, 0.1]), curve("late", [1, 1, 1, 0.9])))
    assert claims.as_fast("same", "slow", 1e-10).measure(panel) == 1
    assert claims.as_fast("late", "slow", 1e-10).measure(panel) == math.inf


@pytest.mark.parametrize(("power", "held"), [(1.0, True), (1.05, True), (0.8, False), (-0.2, False)])
def test_proportional_is_a_slope_of_one(power, held):
    values = (1e-2, 1e-4, 1e-6, 1e-9)
    labels = [str(value) for value in values]
    panel = Panel("here", tuple(curve(str(value), [1, 0.02 * value**power]) for value in values))
    claim = claims.proportional(labels, values, "all").claim(panel, "w")
    assert claim.measured == pytest.approx(power)
    assert claim.held is held
    assert claim.wanted == "0.9 to 1.1 (ours)"


def test_claims_of_never_and_nothing():
    assert Claim("x", "w", math.inf, at_most=1).figure == "never"
    assert Claim("x", "w", math.inf, at_least=1).figure == "the other never"
    assert not Claim("x", "w", math.nan, at_most=1).held
    assert not Claim("x", "w", math.nan, at_least=1).held
    assert Claim("x", "w", 1234.5, at_most=1).figure == "1.23e+03"
    assert Claim("x", "w", 2, at_most=2).held
    assert Claim("x", "w", 2, at_least=2).wanted == "at least 2 (ours)"


def test_ratio_to_an_error_of_exactly_zero():
    panel = Panel("here", (curve("zero", [1, 0]), BAD))
    assert claims.ends_above("bad", "zero", at_least=10).claim(panel, "w").held


RESULT = ExperimentResult(
    "Title",
    {"step": 0.1},
    ("a choice",),
    (0, 1, 2),
    (PANEL,),
    (
        Claim("so it is", "abstract", 1, at_most=2),
        Claim("no", "experiment 1", 3, at_most=2),
        Claim("so it is", "abstract", 5, at_most=2, start=Start.APPENDIX, reading="appendix start, f(X)"),
    ),
)


def test_rows_are_quartiles_by_panel_and_curve():
    rows = list(RESULT.rows())
    assert len(rows) == 8
    assert rows[1] == (
        "here, appendix start, (U, V), symmetric A_i", "good", 1.0,
        pytest.approx(0.15), pytest.approx(0.2), pytest.approx(0.25),
    )  # fmt: skip


def test_the_record_has_every_seed_and_how_each_claim_was_tried():
    record = RESULT.as_dict()
    panel, summary = record["panels"][0], record["panels"][0]["curves"][0]
    assert [panel[key] for key in ("setting", "start", "convention")] == [
        "here", "appendix", "(U, V), symmetric A_i",
    ]  # fmt: skip
    assert summary["final_error_of_each_seed"] == [0.001, 0.002, 0.003]
    assert summary["final_error"]["median"] == 0.002
    assert summary["halvings"] == [1, 1, 1]
    assert record["claims"][2] == {
        "statement": "so it is", "where": "abstract", "reading": "appendix start, f(X)", "start": "appendix",
        "convention": "f(X)", "measured": 5, "figure": "5", "wanted": "at most 2 (ours)", "bound": "ours", "held": False,
    }  # fmt: skip


def test_table_has_a_row_for_each_claim_and_a_column_for_each_reading():
    text = RESULT.markdown("name")
    assert "## name: Title" in text
    assert "* a choice" in text
    assert "| claim | in the paper | wanted | paper | appendix start, f(X) |" in text
    assert "| so it is | abstract | at most 2 (ours) | held: 1 | **not held**: 5 |" in text
    assert "| no | experiment 1 | at most 2 (ours) | **not held**: 3 |  |" in text
