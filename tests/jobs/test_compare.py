"""The rows of a comparison: right numbers for a method that works, a reason for one that fails."""

import numpy as np
import pytest

import usdenoise
from tests.reference import loops
from usdenoise.blood import metrics
from usdenoise.errors import DivergedError, InputError, OptionError
from usdenoise.files.hdf5_writing import Truth, read_truth
from usdenoise.jobs import clutter_filters
from usdenoise.jobs.clutter_filters import CLUTTER_FILTERS, run_filter
from usdenoise.jobs.compare import compare
from usdenoise.options import DenoiseOptions
from usdenoise.stack.acquisition import Acquisition

LOW, RANK = 12, 20


@pytest.fixture(scope="module")
def acquisition(phantom_file):
    return usdenoise.load(phantom_file)


@pytest.fixture(scope="module")
def truth(phantom_file, acquisition):
    return read_truth(phantom_file, acquisition)


@pytest.fixture(scope="module")
def everything(acquisition, truth):
    """Compare all methods, once for the module."""
    before = acquisition.iq.copy()
    outcome = compare(acquisition, ["all"], truth=truth, rank=RANK, low_cutoff=LOW)
    assert np.array_equal(acquisition.iq, before)
    return outcome


def of_power(outcome):
    """Return the rows of the power Doppler images."""
    return [row for row in outcome.rows if row["picture"] == "power Doppler"]


def found(outcome, method, picture="power Doppler"):
    """Return the row and the image of a method."""
    number = [(row["method"], row["picture"]) for row in outcome.rows].index((method, picture))
    return outcome.rows[number], outcome.images[number]


def exact_filter(acquisition):
    matrix = acquisition.frames.T.astype(np.complex128)
    left, singular, right = loops.truncated_svd(matrix, LOW)
    return matrix - (left * singular) @ right.conj().T


def test_every_method_has_two_rows_that_are_done(everything):
    assert [row["method"] for row in everything.rows[::2]] == list(CLUTTER_FILTERS)
    assert [row["method"] for row in everything.rows[1::2]] == list(CLUTTER_FILTERS)
    for row, image in zip(everything.rows, everything.images, strict=True):
        assert row["status"] == "done", row
        assert row["seconds"] > 0
        assert image.shape == (40, 32)
        assert np.isfinite(image).all()
        assert row["citation"]


def test_the_svds_row_holds_numpys_numbers(everything, acquisition, truth):
    power = np.mean(np.abs(exact_filter(acquisition)) ** 2, axis=1).reshape(40, 32)
    row, image = found(everything, "svd")
    assert image == pytest.approx(power, rel=1e-3)
    assert everything.reference == pytest.approx(power, rel=1e-3)
    mask = truth.vessel_mask
    assert row["contrast_db"] == pytest.approx(metrics.contrast_db(power, mask, ~mask), abs=1e-3)
    assert row["cnr"] == pytest.approx(metrics.cnr(power, mask, ~mask), rel=1e-3)
    assert row["gcnr"] == pytest.approx(metrics.gcnr(power, mask, ~mask), abs=0.02)
    assert row["correlation"] == pytest.approx(metrics.correlation(power, truth.blood_power), rel=1e-3)
    assert row["auc"] == pytest.approx(metrics.detection_auc(power, mask), abs=1e-3)
    assert row["distance_to_svd"] is None


def test_every_filter_has_the_same_noise_correction(everything, acquisition, truth):
    alone = usdenoise.denoise(
        acquisition, method="svd", low_cutoff=LOW, rank=RANK, tissue="recorded"
    ).blood_power
    row, image = found(everything, "svd", "blood map")
    assert np.array_equal(image, alone)
    assert row["correlation"] == pytest.approx(metrics.correlation(alone, truth.blood_power))
    assert (row["status"], row["low_cutoff"]) == ("done", LOW)
    np.testing.assert_allclose(found(everything, "rsvd", "blood map")[1], alone, atol=1e-3 * alone.max())


@pytest.mark.parametrize("name", ["highpass", "polynomial", "rsvd"])
def test_noise_gives_no_blood_after_any_filter(name):
    rng = np.random.default_rng(5)
    noise = rng.standard_normal((40, 32, 200)) + 1j * rng.standard_normal((40, 32, 200))
    outcome = compare(Acquisition(noise, "zxt"), [name], low_cutoff=4, rank=6)
    power, blood = found(outcome, name)[1], found(outcome, name, "blood map")[1]
    assert power.mean() > 1.5
    assert blood.max() < 4 * 2 / np.sqrt(200)


def test_a_filter_over_time_has_the_true_blood_power():
    rng = np.random.default_rng(6)
    shape = (40, 32, 200)
    stack = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    flow = rng.standard_normal((10, 10, 200)) + 1j * rng.standard_normal((10, 10, 200))
    # An autocorrelation of 0.5 at lag 1, half a turn away from the frequencies that the filter removes.
    flow[..., 1:] = 0.5 * (flow[..., 1:] + flow[..., :-1])
    stack[10:20, 10:20] += 2 * flow * np.exp(1j * np.pi * np.arange(200))
    outcome = compare(Acquisition(stack, "zxt"), ["highpass"], low_cutoff=4, rank=6)
    blood = found(outcome, "highpass", "blood map")[1]
    assert blood[11:19, 11:19].mean() == pytest.approx(4.0, rel=0.1)
    assert np.median(blood) < 0.1


def test_distances_to_the_svd_tell_the_methods_apart(everything):
    distance = {row["method"]: row["distance_to_svd"] for row in of_power(everything)}
    assert distance["rsvd"] < 1e-3
    # It filters other frames, whose tissue is still
    assert 0.1 < distance["eta-decay"] < 0.8
    assert all(distance[name] > 1 for name in ("gd", "paper", "polynomial"))


def test_the_row_of_a_method_equals_the_result_of_the_library(acquisition, everything):
    row, image = found(everything, "eta-decay")
    alone = usdenoise.denoise(acquisition, rank=RANK, low_cutoff=LOW)
    assert row["held_out_rmse"] == alone.held_out_rmse
    assert row["passes"] == alone.solution.passes
    assert np.array_equal(image, alone.power_doppler)
    wanted = exact_filter(acquisition)
    difference = np.linalg.norm(alone.acquisition.frames.T - wanted)
    assert row["distance_to_svd"] == pytest.approx(difference / np.linalg.norm(wanted), rel=0.05)


def test_one_cutoff_is_chosen_for_all_on_the_full_svd(acquisition, truth):
    started, methods = [], ["rsvd", "eta-decay", "highpass", "polynomial"]
    outcome = compare(acquisition, methods, truth=truth, on_start=started.append)
    assert started == ["svd", *methods]
    chosen = usdenoise.denoise(acquisition, method="svd", tissue="recorded").options
    own = usdenoise.denoise(acquisition).options
    assert own.low_cutoff < chosen.low_cutoff
    assert outcome.low_cutoff == chosen.low_cutoff
    rows = of_power(outcome)
    assert [row["low_cutoff"] for row in rows] == [chosen.low_cutoff, own.low_cutoff, None, None]
    assert rows[1]["note"].startswith("tissue held still, ")
    assert rows[0]["rank"] == chosen.rank
    # The cutoff of the high-pass is where the clutter ends.
    assert rows[2]["correlation"] > 0.5
    assert rows[3]["note"] == f"order {chosen.low_cutoff - 1}"


def test_missing_entries_fail_in_the_svd_and_not_in_the_completion(acquisition):
    iq = acquisition.iq.copy()
    iq[::7, ::5, ::3] = np.nan
    stack, methods = (
        Acquisition(iq, acquisition.axes, frame_rate_hz=500.0),
        ["svd", "highpass", "eta-decay", "rpca"],
    )
    outcome = compare(stack, methods, rank=RANK, low_cutoff=LOW)
    status = {row["method"]: row["status"] for row in outcome.rows}
    assert status == {"svd": "failed", "highpass": "failed", "eta-decay": "done", "rpca": "failed"}
    assert all("NaN or infinite" in row["message"] for row in outcome.rows[:2])
    assert outcome.images[0] is None
    assert all(row["distance_to_svd"] is None for row in outcome.rows)
    assert outcome.reference == pytest.approx(found(outcome, "eta-decay")[1])
    # Without a truth or regions there is no contrast to compute.
    assert all(row[name] is None for row in outcome.rows for name in ("contrast_db", "gcnr", "auc"))


@pytest.mark.parametrize(("error", "status", "message"), [
    (MemoryError(), "failed", "there is not enough memory"),
    (DivergedError("left the finite numbers"), "diverged", "left the finite numbers"),
    (ArithmeticError("no number"), "failed", "ArithmeticError: no number"),
])  # fmt: skip
def test_a_method_that_fails_is_a_row_and_the_next_one_runs(acquisition, monkeypatch, error, status, message):
    def failing(*arguments):
        raise error

    monkeypatch.setattr(clutter_filters, "randomized_svd", failing)
    first, *others = compare(acquisition, ["rsvd", "polynomial"], low_cutoff=LOW, rank=RANK).rows
    assert (first["status"], first["seconds"]) == (status, None)
    assert message in first["message"]
    assert [row["status"] for row in others] == ["done", "done"]


def test_wrong_regions_and_methods_are_refused_before_any_work(acquisition):
    small, whole = np.ones((2, 2), bool), np.ones((40, 32), bool)
    wrong = [{"signal": small, "background": whole}, {"signal": whole}, {"methods": ["svdd"]}]
    for arguments in (*wrong, {"sampling": 1.5}, {"rank": 0}, {"init": "small"}):
        with pytest.raises((OptionError, InputError)):
            compare(acquisition, on_start=lambda name: pytest.fail("a method ran"), **arguments)


@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1)], ids=["zxt", "xtz"])
def test_the_order_of_the_axes_does_not_matter(axes, acquisition, truth):
    turned = Acquisition(acquisition.iq.transpose(axes), "".join(acquisition.axes[i] for i in axes))
    order = [acquisition.spatial_axes.index(letter) for letter in turned.spatial_axes]
    flipped = Truth(truth.blood_power.transpose(order), truth.vessel_mask.transpose(order))
    first = compare(acquisition, ["rsvd"], truth=truth, low_cutoff=LOW, rank=RANK)
    second = compare(turned, ["rsvd"], truth=flipped, low_cutoff=LOW, rank=RANK)
    assert np.array_equal(first.images[0].transpose(order), second.images[0])
    for name in ("correlation", "auc", "gcnr"):
        assert first.rows[0][name] == pytest.approx(second.rows[0][name])


@pytest.mark.parametrize("name", ["eta-decay", "rsvd", "rpca", "highpass"])
def test_masked_pixels_are_excluded_from_every_filter(acquisition, name):
    masked = acquisition.iq.copy()
    masked[:, :14] = 0
    options = DenoiseOptions(rank=RANK, low_cutoff=LOW, threads=1)

    def filtered(iq):
        stack = Acquisition(iq, acquisition.axes, frame_rate_hz=acquisition.frame_rate_hz)
        return run_filter(name, stack, options)

    whole, cropped = filtered(masked), filtered(masked[:, 14:].copy())
    assert (whole.blood_power[:14] == 0).all()
    assert whole.matrix.shape == (40 * 32, 120)
    assert whole.power.ravel() == pytest.approx(np.mean(np.abs(whole.matrix) ** 2, axis=1), rel=1e-4)
    assert metrics.correlation(whole.power[14:], cropped.power) > 0.9999
    assert whole.blood_power[14:].sum() == pytest.approx(cropped.blood_power.sum(), rel=0.02)
