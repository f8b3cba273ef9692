"""The design of the model of a session: responses as in nilearn and confusius, and tables that no model can answer."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from confusius.glm import make_first_level_design_matrix as confusius_design
from nilearn.glm.first_level import compute_regressor, make_first_level_design_matrix
from numpy.typing import NDArray

import usdenoise
from tests.cli.shared import cli, refused, report_of
from tests.sessions.scans import BLOCK_S as BLOCK
from tests.sessions.scans import LENGTH, RATE_HZ, Scan, scan, write_blocks, write_events
from tests.stacks import write_stack
from usdenoise import Session, session
from usdenoise.errors import InputError
from usdenoise.sessions.activation import ActivationMaps, BlockSeries, activation_maps
from usdenoise.sessions.design import (
    Design,
    Event,
    check_design,
    design_of,
    locked_correlation,
    own_shares,
    recorded_time,
    with_main_effects,
)

N, BLOCK_S = 60, 0.5
TIMES = BLOCK_S * (np.arange(N) + 0.5)
DURATIONS, NONE_BAD = np.full(N, BLOCK_S), np.zeros(N, bool)


def every(
    first: float, period: float, duration: float, name: str, end: float = 30.0, height: float = 1.0
) -> list[Event]:
    onsets = np.arange(first, end - duration + 1e-6, period)
    return [Event(float(onset), duration, name, height) for onset in onsets]


def response(
    events: list[Event], hrf: str, times: Any = TIMES, durations: Any = DURATIONS
) -> NDArray[np.float64]:
    design = design_of(events, times, durations, np.zeros(len(times), bool), hrf=hrf, least_events=1)
    return design.matrix[:, : design.n_responses]


@pytest.mark.parametrize("hrf", ["glover", "spm"])
def test_human_responses_are_those_of_nilearn(hrf: str) -> None:
    events = [*every(4, 10, 3, "on"), Event(18.3, 0.4, "on", -2.0)]
    events.sort(key=lambda event: event.onset)
    events[0] = replace(events[0], modulation=0.4)
    fine = np.arange(0, 30.1, 0.05)
    table = [[getattr(event, name) for event in events] for name in ("onset", "duration", "modulation")]
    course = compute_regressor(table, hrf, fine)[0][:, 0]
    wanted = [course[(fine >= t - BLOCK_S / 2) & (fine < t + BLOCK_S / 2)].mean() for t in TIMES]
    np.testing.assert_allclose(response(events, hrf)[:, 0], wanted, atol=0.01)


@pytest.mark.parametrize("hrf", ["boxcar", "glover", "claron2021", "fir:4"])
def test_a_response_has_the_height_of_its_event(hrf: str) -> None:
    """An event of the height 0 is none, also for the drift."""
    heights = [0.4, 1.2, -1.0]
    events = [replace(one, modulation=height) for one, height in zip(ON, heights, strict=True)]
    single = [response([one], hrf) for one in ON]
    wanted = sum(height * one for height, one in zip(heights, single, strict=True))
    np.testing.assert_allclose(response(events, hrf), wanted, atol=1e-12)
    check_design(events, TIMES, DURATIONS, hrf)
    far = np.arange(1000) + 0.5
    none_bad, lengths = np.zeros(1000, bool), np.ones(1000)
    with_zeros = [*ON, Event(900.0, 1.0, "on", 0.0)]
    plain, also_zero = (design_of(each, far, lengths, none_bad, hrf=hrf) for each in (ON, with_zeros))
    np.testing.assert_array_equal(also_zero.matrix, plain.matrix)


@pytest.mark.parametrize("hrf", ["verhoef2025", "claron2021", "glover", "spm"])
def test_responses_are_those_of_confusius(hrf: Any) -> None:
    events, times = every(4, 10, 3, "on"), np.arange(300) * 0.1
    rows = [(e.onset, e.duration, "on") for e in events]
    table = pd.DataFrame(rows, columns=["onset", "duration", "trial_type"])
    wanted = confusius_design(times, table, hrf_model=hrf, drift_model=None)["on"].to_numpy()
    found = response(events, hrf, times, np.full(300, 1e-3))[:, 0]
    np.testing.assert_allclose(found, wanted, atol=0.02 * wanted.max())
    # During a long event the response reaches 1, as a boxcar does.
    assert response([Event(-100.0, 110.0, "on")], hrf)[0, 0] == pytest.approx(1)


def test_free_responses_are_those_of_nilearn() -> None:
    events = every(4, 10, 1e-3, "on")
    table = pd.DataFrame([(e.onset, 0.01, "on") for e in events], columns=["onset", "duration", "trial_type"])
    wanted = make_first_level_design_matrix(
        TIMES - BLOCK_S / 2, table, hrf_model="fir", fir_delays=[0, 1, 2, 3], drift_model=None
    )
    columns = wanted[[f"on_delay_{delay}" for delay in range(4)]].to_numpy()
    np.testing.assert_array_equal(response(events, "fir:4") > 0, columns > 1e-6)


def test_slow_cosines_are_those_of_nilearn_and_a_line_is_the_first() -> None:
    events, times = every(30, 200, 60, "on", 1200), 0.5 * np.arange(2400) + 0.25
    design = design_of(events, times, np.full(2400, 0.5), np.zeros(2400, bool))
    wanted = make_first_level_design_matrix(times, None, drift_model="cosine", high_pass=1 / 400).to_numpy()
    assert design.names[:2] == ("on", "linear_drift")
    np.testing.assert_allclose(design.matrix[:, 2:], wanted[:, 1:], atol=1e-12)
    # A minute of blocks has a line alone, which takes little of a response
    short = design_of(
        every(10, 20, 10, "on", 60), 2.0 * np.arange(30) + 1, np.full(30, 2.0), np.zeros(30, bool)
    )
    assert own_shares(short.matrix[:, :1], short.matrix[:, 1:]) > 0.9


@pytest.mark.parametrize("minutes", [10, 60])
def test_the_drift_is_over_the_recorded_time(minutes: float) -> None:
    """A pause between two parts adds a level, and neither cosines nor a line over the time in which nothing was recorded."""
    times, durations = 0.6 * np.arange(40) + 0.3, np.full(40, 0.6)
    paused, events = times + 60 * minutes * (np.arange(40) >= 20), every(3, 10, 6, "on")
    later = [replace(event, onset=event.onset + 60 * minutes * (event.onset > 12)) for event in events]
    check_design(later, paused, durations)
    check_design([events[0], replace(events[0], onset=9)], paused, durations)
    bad = np.zeros(40, bool)
    plain, found = design_of(events, times, durations, bad), design_of(later, paused, durations, bad)
    assert plain.names == ("on", "linear_drift", "constant")
    assert found.names == ("on", "linear_drift", "part_2", "constant")
    np.testing.assert_allclose(found.matrix[:, [0, 1, 3]], plain.matrix, atol=1e-9)
    np.testing.assert_allclose(found.matrix[:, 2], np.repeat([-0.5, 0.5], 20), atol=1e-12)


def test_the_columns_of_the_drift_are_not_nearly_dependent() -> None:
    events, times = every(5, 30, 10, "on", 600), 1.0 * np.arange(600) + 0.5
    design = design_of(events, times, np.ones(600), np.zeros(600, bool))
    assert len(design.names) > 10
    assert design.condition_number < 5
    assert np.linalg.matrix_rank(np.column_stack([design.matrix, times])) == design.matrix.shape[1]


@pytest.mark.parametrize("interval", [0.5, 90.0])
def test_usual_steps_are_no_pauses(interval: float) -> None:
    times = interval * np.arange(60)
    recorded, part = recorded_time(times)
    np.testing.assert_allclose(recorded, times)
    assert not part.any()


ON = every(5, 10, 5, "on")
CASES: dict[str, tuple[list[Event], str]] = {
    "rest listed too": ([*ON, *every(0, 10, 5, "Rest")], "omit the type 'Rest'"),
    "two types without a pause": ([*every(0, 10, 6, "left"), *every(6, 10, 4, "right")], "omit the type 'left'"),
    "one event of the whole session": ([Event(0, 30, "on")], "all blocks are within the events of 'on'"),
    "ms": ([Event(5000, 5000, "on"), Event(15000, 5000, "on")], "are these in ms"),
    "too long": ([*ON, Event(27, 4000, "on")], "lasts 4000 s, longer than the session"),
    "after the end": ([*ON, Event(31, 2, "on")], "'on' at 31 s begins after the session of 30 s"),
    "before the start": ([Event(-9, 1, "on"), Event(-5, 1, "on")], "no event is within the session"),
    "a single event": ([*ON, Event(2, 1, "puff")], "the type 'puff' has 1 event"),
    "between blocks": ([*ON, Event(2.49, 0, "puff"), Event(12.49, 0, "puff")], "no block is within the events of 'puff'"),
    "pauses of 20 ms": ([Event(2.0 * k, 1.98, "on") for k in range(15)], "all blocks are within the events of 'on'"),
    "one of two at the end": ([Event(10, 2, "on"), Event(30, 2, "on")], "the type 'on' has 1 event"),
    "one of two before": ([Event(10, 2, "on"), Event(-2, 2, "on")], "the type 'on' has 1 event"),
    "overlap": ([*ON, Event(7, 1, "off"), Event(17, 1, "off")], "overlap"),
    "overlap with another height": ([*ON, Event(7, 1, "on", 0.5)], "overlap, and have the modulations 1 and 0.5"),
    "heights of 0": ([*ON, *every(0, 10, 2, "off", height=0.0)], "all events of 'off' have the modulation 0"),
    "one height above 0": ([*every(0, 10, 2, "on", height=0.0), ON[0]], "the type 'on' has 1 event"),
    "too many types": (
        [Event(0.25 * k + 0.05, 0.1, str(k % 58)) for k in range(116)],
        "60 blocks are too few for an activation model of 60 columns",
    ),
}  # fmt: skip
RIGHT: dict[str, list[Event]] = {
    "rest in pauses of its own": [*every(5, 10, 4, "on"), *every(0, 10, 4, "rest")],
    "two types with pauses": [*every(0, 10, 3, "left"), *every(5, 10, 3, "right")],
    "half of the session": every(0, 6, 3, "on"),
    "the last event runs on": [*ON, Event(28, 6, "on")],
    "an event before the start": [*ON, Event(-3, 2, "on")],
    "two events": ON[:2],
    "overlap with the same height": [*every(5, 10, 5, "on", height=0.5), Event(7, 1, "on", 0.5)],
    "one after the other, of two heights": [Event(10.2, 0.6, "on", 0.5), Event(10.8, 0.6, "on", 2.0)],
    "lower blood": every(5, 10, 5, "on", height=-1.0),
    "without a pause, of several heights": [Event(3.0 * k, 3.0, "on", 0.5 + k % 3) for k in range(10)],
    "one after the other": [Event(10.2, 0.6, "on"), Event(10.8, 0.6, "on")],
    "the same with rounding": [Event(10.3, 0.6, "on"), Event(10.9, 0.6, "on")],
    "short events in blocks": [*ON, Event(2.1, 0.1, "puff"), Event(12.1, 0.1, "puff")],
    "side by side": [*ON, *every(0, 10, 2, "off")],
    "many types": [Event(0.5 * k + 0.05, 0.1, str(k % 20)) for k in range(60) if k % 3],
}


@pytest.mark.parametrize("case", CASES)
def test_a_design_that_no_session_can_answer_is_refused(case: str) -> None:
    events, sentence = CASES[case]
    with pytest.raises(InputError, match=re.escape(sentence)):
        check_design(events, TIMES, DURATIONS)


@pytest.mark.parametrize("case", RIGHT)
def test_its_mirror_image_is_right(case: str) -> None:
    check_design(RIGHT[case], TIMES, DURATIONS)
    assert 1 <= design_of(RIGHT[case], TIMES, DURATIONS, NONE_BAD).condition_number < 30


@pytest.mark.parametrize("hrf", ["spm", "verhoef2025", "claron2021", "glover"])
def test_the_rise_of_a_slow_response_is_no_baseline(hrf: str) -> None:
    """Rest and stimulus cover the session; the response to the first is low in its first seconds alone."""
    times = 0.5 * np.arange(120) + 0.25
    both = [*every(15, 30, 15, "on", 60), *every(0, 30, 15, "pause", 60)]
    with pytest.raises(InputError, match="omit the type"):
        check_design(both, times, np.full(120, 0.5), hrf)
    check_design([event for event in both if event.trial_type == "on"], times, np.full(120, 0.5), hrf)
    # A late event has no response within the session.
    with pytest.raises(InputError, match="has 1 event"):
        check_design([Event(5, 2, "on"), Event(59.5, 2, "on")], times, np.full(120, 0.5), hrf)


def test_events_outside_the_session_do_not_change_the_drift() -> None:
    times, durations, none_bad = 0.5 * np.arange(600) + 0.25, np.full(600, 0.5), np.zeros(600, bool)
    inside = every(30, 60, 30, "on", 300)
    names = design_of(inside, times, durations, none_bad).names
    assert sum(name.startswith("drift") for name in names) == 4
    for far in (-2000.0, 5000.0):
        assert design_of([Event(far, 10, "on"), *inside], times, durations, none_bad).names == names


def maps_of(series: NDArray[np.float64], pixels: NDArray[np.bool_], model: Design) -> ActivationMaps:
    times = np.arange(float(len(series)))
    return activation_maps([BlockSeries(series, pixels, model, times, np.ones(len(series)))])[0]


def test_a_baseline_whose_blocks_are_bad_is_none() -> None:
    """Noise alone: without the check, the singular design made every pixel active."""
    events = [*every(0, 10, 4, "left"), *every(4.5, 10, 4, "right")]
    check_design(events, TIMES, DURATIONS)
    outside = sum(design_of(events, TIMES, DURATIONS, NONE_BAD).shares.values()) < 0.5
    series = 100 + np.random.default_rng(0).standard_normal((N, 20, 20))
    everywhere = np.ones((20, 20), bool)
    for confounds in ({}, {"motion": np.random.default_rng(1).random(N)}):
        design = design_of(events, TIMES, DURATIONS, outside, confounds)
        assert "depend on each other" in design.problem[0]
        for one in maps_of(series, everywhere, design).values():
            assert not one.active.any()
            assert np.isnan(one.statistic).all()
    design = design_of(events, TIMES, DURATIONS, outside & (np.arange(N) > 20))
    assert design.problem == ("", "")
    assert maps_of(series, everywhere, design)["left"].active.mean() < 0.01


@pytest.mark.parametrize("hrf", ["boxcar", "glover"])
def test_a_type_that_only_bad_blocks_show_has_no_map_and_leaves_f_to_the_other(hrf: str) -> None:
    """Half a frame of its events is in good blocks. Slow responses vary in the good blocks, though all are in events."""
    shift = 0.0025 if hrf == "boxcar" else 0.0
    events = [*every(8, 10, 2, "on"), *every(5.0 + shift, 10, 0.5, "puff")]
    bad = design_of(events, TIMES, DURATIONS, NONE_BAD).shares["puff"] > 0.5
    if hrf == "glover":
        events, bad = every(5, 10, 5, "on"), design_of(ON, TIMES, DURATIONS, NONE_BAD).shares["on"] < 0.5
        events = [*events, Event(-40.0, 0.4, "other"), *every(0.1, 12, 0.4, "other", 20)]
    lost = "puff" if hrf == "boxcar" else "on"
    design = design_of(events, TIMES, DURATIONS, bad, hrf=hrf)
    assert list(design.problems) == [lost]
    series = 100 + np.random.default_rng(0).standard_normal((N, 9, 9))
    maps = maps_of(series, np.ones((9, 9), bool), design)
    other = next(name for name in maps if name != lost)
    assert np.isnan(maps[lost].t).all()
    np.testing.assert_allclose(maps[""].f, maps[other].t ** 2, rtol=1e-4)


@pytest.mark.parametrize("duration", [0.5, 0.04])
def test_blocks_that_begin_when_events_end_do_not_show_them(duration: float) -> None:
    """Events locked to blocks of 0.2 s each 1.5 s, which have 2 % or 10 % of what a block can have."""
    starts, lengths, none_bad = 1.5 * np.arange(80), np.full(80, 0.2), np.zeros(80, bool)
    events = [Event(onset, duration, "on") for onset in starts[4::16].tolist()]
    little, enough = (starts + duration - part * min(duration, 0.2) + 0.1 for part in (0.02, 0.1))
    design = design_of(events, little, lengths, none_bad)
    assert "no block is within" in design.problems["on"]
    assert not design.responses
    assert design_of(events, enough, lengths, none_bad).problems == {}
    with pytest.raises(InputError, match="no block is within"):
        check_design(events, little, lengths)


def test_a_single_event_that_good_blocks_show_is_no_response() -> None:
    bad = (TIMES > 15) & (TIMES < 20)
    design = design_of(ON[:2], TIMES, DURATIONS, bad)
    assert "has 1 event that the good blocks show" in design.problems["on"]
    assert design_of(ON[:2], TIMES, DURATIONS, bad, least_events=1).problems == {}
    # Events of a height near 0 do not count, either
    low = [replace(ON[0], modulation=0.01), ON[1]]
    for hrf in ("boxcar", "glover", "fir:3"):
        assert "has 1 event" in design_of(low, TIMES, DURATIONS, NONE_BAD, hrf=hrf).problems["on"]


def test_measures_and_designs_without_good_blocks_are_no_error() -> None:
    assert locked_correlation(np.full(N, np.nan), TIMES, DURATIONS, ON) == (0.0, 0.0, 1.0)
    design = design_of(ON, TIMES, DURATIONS, ~NONE_BAD)
    found = maps_of(np.ones((N, 4, 4)), np.ones((4, 4), bool), design)["on"]
    assert np.isnan(found.t).all()
    events = [*ON, *every(2, 10, 1, "constant"), *every(0, 10, 1, "constant_")]
    names = design_of(events, TIMES, DURATIONS, NONE_BAD).names
    assert len(set(names)) == len(names)


def test_a_delay_that_no_good_block_has_is_named() -> None:
    design = design_of(ON, TIMES, DURATIONS, np.isin(np.arange(N), [10, 30, 50]), hrf="fir:3")
    assert "no good block is at one of the delays" in design.problems["on"]
    assert design_of(ON, TIMES, DURATIONS, NONE_BAD, hrf="fir:3").problems == {}
    series = 100 + np.random.default_rng(0).standard_normal((N, 4, 4))
    found = maps_of(series, np.ones((4, 4), bool), design)["on"]
    assert np.isnan(found.f).all()
    assert found.change.shape == (3, 4, 4)


def test_a_free_response_over_the_whole_period_is_refused() -> None:
    check_design(ON, TIMES, DURATIONS, "fir:8")
    with pytest.raises(InputError, match="cannot be distinguished from the baseline") as error:
        check_design(every(0, 5, 2, "on"), TIMES, DURATIONS, "fir:10")
    assert "fir:N" in str(error.value.remedy)


def test_the_condition_number_tells_how_alike_responses_are() -> None:
    apart = [*every(0, 10, 3, "left"), *every(5, 10, 3, "right")]
    alike = [*every(0, 10, 4.8, "left"), *every(5, 10, 4.8, "right")]
    numbers = [design_of(events, TIMES, DURATIONS, NONE_BAD).condition_number for events in (apart, alike)]
    matrix = design_of(apart, TIMES, DURATIONS, NONE_BAD).matrix
    assert numbers[0] == pytest.approx(np.linalg.cond(matrix / np.linalg.norm(matrix, axis=0)))
    assert numbers[1] > 3 * numbers[0]


def test_motion_that_follows_the_events_correlates_and_other_motion_does_not() -> None:
    rng, events = np.random.default_rng(0), every(5, 10, 5, "on")
    since = (TIMES - 5) % 10
    locked = {
        "jerk": np.where(since < 2, np.sin(np.pi * since / 2) ** 2, 0),
        "while on": (since < 5).astype(float),
        "pressure": np.where(since < 8, np.sin(np.pi * since / 8) ** 2, 0),
    }
    for course in locked.values():
        correlation, size, p = locked_correlation(course + TIMES**2, TIMES, DURATIONS, events)
        assert correlation > 0.6
        assert p < 1e-6
        assert 0.1 < size < 0.6
    others = [rng.standard_normal(N), np.sin(2 * np.pi * TIMES / 6.3), TIMES**2, np.ones(N)]
    found = [locked_correlation(values, TIMES, DURATIONS, events)[0] for values in others]
    assert max(found) < 0.4
    assert found[2:] == pytest.approx([0, 0], abs=1e-6)
    # Chance gives no correlation on average, and in a short session neither.
    part = (TIMES[:20], DURATIONS[:20], events[:1])
    chance = np.array([locked_correlation(rng.standard_normal(20), *part) for _ in range(200)])
    assert np.median(chance[:, 0]) < 0.3
    assert np.mean(chance[:, 2] < 0.1) == pytest.approx(0.1, abs=3 * np.sqrt(0.1 * 0.9 / 200))


@pytest.fixture(scope="module")
def still() -> Scan:
    return scan(24, blood=2.0, resolution=0.8)


@pytest.fixture(scope="module")
def few(still: Scan) -> usdenoise.Acquisition:
    """Every second frame of its first 12 blocks."""
    return usdenoise.Acquisition(still.iq[: 12 * LENGTH : 2], "tzx", frame_rate_hz=RATE_HZ / 2)


QUICK: dict[str, Any] = {"rank": 12, "low_cutoff": 4}
REST = [(BLOCK * first, 3 * BLOCK, "on" if first // 3 % 2 else "rest") for first in range(0, 24, 3)]


def test_rest_as_a_type_is_refused_before_anything_is_filtered(still: Scan, tmp_path: Path) -> None:
    """On the command line, in Python, and at each update of a live session; without it all is well."""
    path = write_stack(tmp_path / "s.h5", still.iq, axes="tzx", frame_rate_hz=RATE_HZ)
    table, out = write_events(tmp_path / "events.tsv", REST), tmp_path / "out"
    command = ("session", path, "--window", LENGTH, "-o", out, "--events", table, "-q")
    refused(cli(*command), ".*depend on each other.*omit the type 'rest'")
    assert not any(out.glob("s_*"))
    done: list[int] = []
    with pytest.raises(InputError, match="omit the type 'rest'"):
        session(still.stack, LENGTH, events=REST, on_block=lambda n, total: done.append(n), **QUICK)
    assert done == []
    live = Session(axes="tzx", frame_rate=RATE_HZ, events=REST, **QUICK)
    for block in still.blocks[:12]:
        update = live.add(block)
    assert update.activation == {}
    assert "depend on each other" in update.events_problem
    only = [event for event in REST if event[2] == "on"]
    found = session(still.stack, LENGTH, events=only, **QUICK)
    assert not found.activation["on"].active.any()
    assert np.nanmean(np.abs(found.activation["on"].t) > 3) < 0.02


def test_tuples_are_checked_as_tables_are(few: usdenoise.Acquisition) -> None:
    on = [(BLOCK * first, 3 * BLOCK, "on") for first in (3, 9)]
    wanted = session(few, LENGTH // 2, events=on, **QUICK).activation["on"].t
    numbers = session(few, LENGTH // 2, events=[(*event[:2], 1) for event in on], **QUICK).activation
    np.testing.assert_array_equal(numbers["1"].t, wanted)
    beside = [*on, (0.1, float("nan"), None), (0.1, 0.2, "n/a")]
    np.testing.assert_array_equal(
        session(few, LENGTH // 2, events=beside, **QUICK).activation["on"].t, wanted
    )
    for wrong, sentence in (
        ([event[:2] for event in on], "no table and no sequence of"),
        ([(*event[:2], "on", 1, 1) for event in on], "no table and no sequence of"),
        ([(float("nan"), 1.0, "on"), *on], "the onset must be finite"),
        ([(0.1, -0.5, "on"), *on], "the duration positive"),
        ([("a", "b", "on")], "must be numbers"),
        (3, "no table and no sequence of"),
        ([], "has no events"),
    ):
        with pytest.raises(InputError, match=sentence):
            session(few, LENGTH // 2, events=wrong, **QUICK)


PLAN = [(BLOCK * (start + 2 * at), 2 * BLOCK, "ab"[at]) for start in (0, 6, 12, 30) for at in (0, 1)]
"""Two types and a pause in turn; the last events are after 24 blocks."""


def test_a_live_table_is_judged_by_its_end(still: Scan) -> None:
    """Before the first pause all blocks so far are within events, though the table is right."""
    live = Session(axes="tzx", frame_rate=RATE_HZ, events=PLAN, **QUICK)
    updates = [live.add(block) for block in still.blocks[:14]]
    assert {update.events_problem for update in updates} == {""}
    assert set(updates[-1].activation) == {"a", "b"}


@pytest.mark.slow
def test_a_live_session_may_end_before_its_last_events(still: Scan, tmp_path: Path) -> None:
    """The same command without --live refuses them."""
    folder = write_blocks(tmp_path / "blocks", still.blocks[:20], "b{:02d}.h5")
    table, out = write_events(tmp_path / "events.tsv", PLAN), tmp_path / "out"
    command = ("--events", table, "--block-interval", BLOCK, "-q", "--low-cutoff", 4)
    report = report_of("session", folder, "-o", out, "--live", "--until-idle", 0.3, *command)
    assert {record["trial_type"] for record in report["sequence"]["activation"]} == {"a", "b", ""}
    assert "design" in {doubt["code"] for doubt in report["doubts"]}
    again = cli("session", folder, "-o", tmp_path / "again", *command)
    refused(again, ".*'a' at 6 s begins after the session")


@pytest.mark.filterwarnings("error")
def test_a_rest_with_pauses_is_a_condition_and_a_doubt(few: usdenoise.Acquisition) -> None:
    apart = [(onset, duration - BLOCK, kind) for onset, duration, kind in REST[:4]]
    found = session(few, LENGTH // 2, events=apart, **QUICK)
    assert "design" in {doubt.code for doubt in found.doubts}
    renamed = [(onset, duration, kind.replace("rest", "off")) for onset, duration, kind in apart]
    other = session(few, LENGTH // 2, events=renamed, **QUICK)
    assert "design" not in {doubt.code for doubt in other.doubts}
    np.testing.assert_array_equal(found.activation["on"].t, other.activation["on"].t)
    assert not found.activation["on"].active.any()


@pytest.mark.filterwarnings("error")
def test_every_second_block_may_be_missing(still: Scan) -> None:
    """Then no framewise displacement is known, and no neighbouring blocks show the correlation of the noise."""
    gone = still.iq.copy()
    gone[np.arange(len(gone)) // LENGTH % 2 == 0] = np.nan
    events = [(BLOCK * first, 3 * BLOCK, "on") for first in range(3, 24, 6)]
    one = session(replace(still.stack, iq=gone), LENGTH, events=events, **QUICK).activation["on"]
    assert np.isfinite(one.t).mean() > 0.5
    assert one.model.autocorrelation == 0
    assert one.correlations["framewise_displacement"] == 0
    assert not one.active.any()


def test_bad_blocks_that_leave_too_few_take_the_map_and_not_the_session(few: usdenoise.Acquisition) -> None:
    """The table is right for all blocks, and five of them are empty."""
    damaged = few.iq.copy()
    damaged[2 * LENGTH : 9 * LENGTH // 2] = 0
    events = [(BLOCK * (first + at), BLOCK, "ab"[at]) for first in (1, 5, 9) for at in (0, 1)]
    found = session(replace(few, iq=damaged), LENGTH // 2, events=events, **QUICK)
    assert int(found.bad.sum()) == 5
    assert np.isfinite(found.blood_power[~found.bad]).all()
    assert "design" in {doubt.code for doubt in found.doubts}
    assert all(np.isnan(one.t).all() for one in found.activation.values())
    assert "design" not in {doubt.code for doubt in session(few, LENGTH // 2, events=events, **QUICK).doubts}


def test_a_modulation_has_a_main_effect_beside_it() -> None:
    """The response at the mean modulation, and per unit of it: a series of both has their least-squares fit."""
    heights = [1.0, 3.0, 5.0]
    events = with_main_effects(
        [replace(one, modulation=height) for one, height in zip(ON, heights, strict=True)]
    )
    check_design(events, TIMES, DURATIONS)
    model = design_of(events, TIMES, DURATIONS, np.zeros(len(TIMES), bool))
    single = [response([one], "boxcar")[:, 0] for one in ON]
    series = 10 + sum((2 + 0.5 * height) * one for height, one in zip(heights, single, strict=True))
    effects = np.linalg.lstsq(model.matrix, series)[0]
    np.testing.assert_allclose(effects[:2], [2 + 0.5 * 3, 0.5], rtol=1e-9)
    assert [*model.responses] == ["on", "on x modulation"]


def test_modulations_that_overlap_are_named_as_they_were_given() -> None:
    events = [Event(1.0, 2.0, "on", 1.0), Event(2.0, 2.0, "on", 3.0), Event(8.0, 2.0, "on", 2.0)]
    with pytest.raises(
        InputError, match="'on' at 1 s and 'on' at 2 s overlap, and have the modulations 1 and 3"
    ):
        with_main_effects(events)
