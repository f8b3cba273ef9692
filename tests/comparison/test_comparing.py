"""The rows of a comparison: right numbers for a method that works, a sentence for one that fails."""

import signal

import numpy as np
import pytest

import usdenoise
from tests.reference import loops
from usdenoise.blood import metrics
from usdenoise.comparison import CONTENDERS, Settings, compare, compare_methods
from usdenoise.comparison.method_process import relative_distance, run_method
from usdenoise.comparison.temporal_filters import end_of_clutter
from usdenoise.comparison.work import Work
from usdenoise.errors import InputError, OptionError
from usdenoise.formats.phantom_file import Truth, read_truth
from usdenoise.stack.acquisition import Acquisition
from usdenoise.stack.casorati import casorati

LOW, RANK = 12, 20


@pytest.fixture(scope="module")
def acquisition(phantom_file):
    return usdenoise.load(phantom_file)


@pytest.fixture(scope="module")
def truth(phantom_file, acquisition):
    return read_truth(phantom_file, acquisition)


@pytest.fixture(scope="module")
def everything(acquisition, truth):
    """Compare all methods, each in its own process, once for the module."""
    return compare(acquisition, ["all"], truth=truth, rank=RANK, low_cutoff=LOW, timeout=120)


def of_power(outcome):
    """Return the rows, images and curves of the power Doppler images."""
    lists = zip(outcome.rows, outcome.images, outcome.curves, strict=True)
    return list(zip(*[entry for entry in lists if entry[0]["picture"] == "power Doppler"], strict=True))


def found(outcome, method, picture="power Doppler"):
    """Return the row and the image of a method."""
    number = next(
        i for i, row in enumerate(outcome.rows) if (row["method"], row["picture"]) == (method, picture)
    )
    return outcome.rows[number], outcome.images[number]


def exact_filter(acquisition, low=LOW):
    matrix = casorati(acquisition).astype(np.complex128)
    left, singular, right = loops.truncated_svd(matrix, low)
    return matrix, matrix - (left * singular) @ right.conj().T


def test_every_method_is_a_row_that_is_done(everything):
    rows, images, _ = of_power(everything)
    assert [row["method"] for row in rows] == list(CONTENDERS)
    for row, image in zip(rows, images, strict=True):
        assert row["status"] == "done", row
        assert row["seconds"] > 0
        assert row["peak_memory_bytes"] > 20 * 2**20
        assert image.shape == (40, 32)
        assert np.isfinite(image).all()
        assert row["citation"] == CONTENDERS[row["method"]].citation
        if CONTENDERS[row["method"]].sampled:
            assert row["held_out_rmse"] > 0
        else:
            assert row["held_out_rmse"] is None


def test_the_svds_row_holds_numpys_numbers(everything, acquisition, truth):
    _, wanted = exact_filter(acquisition)
    power = np.mean(np.abs(wanted) ** 2, axis=1).reshape(40, 32)
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
    maps = [row for row in everything.rows if row["picture"] == "blood map"]
    assert [row["method"] for row in maps] == list(CONTENDERS)
    alone = usdenoise.denoise(acquisition, method="svd", low_cutoff=LOW, rank=RANK).blood_power
    row, image = found(everything, "svd", "blood map")
    assert np.array_equal(image, alone)
    assert row["correlation"] == pytest.approx(metrics.correlation(alone, truth.blood_power))
    assert row["auc"] == pytest.approx(metrics.detection_auc(alone, truth.vessel_mask))
    assert (row["status"], row["low_cutoff"], row["seconds"]) == ("done", LOW, None)
    np.testing.assert_allclose(found(everything, "rsvd", "blood map")[1], alone, atol=1e-3 * alone.max())


@pytest.mark.parametrize("name", ["highpass", "polynomial", "rsvd"])
def test_noise_alone_is_no_blood_after_any_filter(name):
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
    # An autocorrelation of 0.5 at lag 1, half a turn away from the frequencies that the filter takes.
    flow[..., 1:] = 0.5 * (flow[..., 1:] + flow[..., :-1])
    stack[10:20, 10:20] += 2 * flow * np.exp(1j * np.pi * np.arange(200))
    outcome = compare(Acquisition(stack, "zxt"), ["highpass"], low_cutoff=4, rank=6)
    blood = found(outcome, "highpass", "blood map")[1]
    assert blood[11:19, 11:19].mean() == pytest.approx(4.0, rel=0.1)
    assert np.median(blood) < 0.1


def test_distances_to_the_svd_tell_the_methods_apart(everything):
    distance = {row["method"]: row["distance_to_svd"] for row in of_power(everything)[0]}
    assert distance["rsvd"] < 1e-3
    assert distance["eta-decay"] < 0.1
    assert distance["softimpute"] < 1
    assert all(distance[name] > 1 for name in ("gd", "gd-small", "paper", "polynomial"))


def test_each_methods_row_is_what_the_library_gives(acquisition, everything):
    row, image = found(everything, "eta-decay")
    alone = usdenoise.denoise(acquisition, rank=RANK, low_cutoff=LOW)
    assert row["held_out_rmse"] == alone.held_out_rmse
    assert row["passes"] == alone.solution.passes
    assert np.array_equal(image, alone.power_doppler)
    _, wanted = exact_filter(acquisition)
    difference = casorati(alone.acquisition) - wanted
    assert row["distance_to_svd"] == pytest.approx(
        np.linalg.norm(difference) / np.linalg.norm(wanted), rel=0.05
    )


def test_curves_end_at_the_last_pass_with_the_error_of_that_pass(everything):
    rows, _, curves = of_power(everything)
    for row, curve in zip(rows, curves, strict=True):
        assert bool(curve) == CONTENDERS[row["method"]].sampled
        if curve:
            passes, seconds, errors = zip(*curve, strict=True)
            # Soft-Impute evaluates the residual once more after its last iteration.
            assert passes[-1] == row["passes"] - (row["method"] == "softimpute")
            assert list(passes) == sorted(passes)
            assert list(seconds) == sorted(seconds)
            assert 0 < seconds[0] < seconds[-1] <= row["seconds"]
            assert row["held_out_rmse"] == (min(errors) if row["method"] == "eta-decay" else errors[-1])


def test_one_cutoff_is_chosen_for_all_on_the_full_svd(acquisition):
    outcome = compare(acquisition, ["rsvd", "eta-decay", "polynomial"])
    chosen = usdenoise.denoise(acquisition, method="svd").options
    assert outcome.low_cutoff == chosen.low_cutoff
    rows = of_power(outcome)[0]
    assert [row["low_cutoff"] for row in rows] == [chosen.low_cutoff, chosen.low_cutoff, None]
    assert rows[0]["rank"] == chosen.rank
    assert rows[2]["note"] == f"order {chosen.low_cutoff - 1}"
    # Without a truth or regions there is no contrast to compute.
    assert all(row[name] is None for row in outcome.rows for name in ("contrast_db", "gcnr", "auc"))


def test_methods_that_sample_have_a_row_for_each_fraction(acquisition):
    outcome = compare(acquisition, ["svd", "eta-decay"], sampling=[0.6, 0.3], low_cutoff=LOW, rank=RANK)
    rows = of_power(outcome)[0]
    assert [(row["method"], row["sampling"]) for row in rows] == [
        ("svd", None), ("eta-decay", 0.6), ("eta-decay", 0.3),
    ]  # fmt: skip
    assert rows[1]["held_out_rmse"] < rows[2]["held_out_rmse"]


def test_missing_entries_leave_the_svd_out_and_the_rest_in(acquisition):
    iq = acquisition.iq.copy()
    iq[::7, ::5, ::3] = np.nan
    told = []
    outcome = compare(
        Acquisition(iq, acquisition.axes, frame_rate_hz=500.0),
        ["svd", "highpass", "eta-decay", "rpca", "softimpute"],
        rank=RANK,
        low_cutoff=LOW,
        on_row=told.append,
    )
    rows, images, _ = of_power(outcome)
    assert told == list(rows)
    status = {row["method"]: row["status"] for row in outcome.rows}
    assert status == {
        "svd": "failed", "highpass": "failed", "eta-decay": "done", "rpca": "done", "softimpute": "done",
    }  # fmt: skip
    assert "NaN or infinite" in outcome.rows[0]["message"]
    assert "this method needs every entry, and " in outcome.rows[1]["message"]
    assert outcome.images[0] is None
    assert all(row["distance_to_svd"] is None for row in outcome.rows)
    assert outcome.reference == pytest.approx(images[2])


def test_a_method_that_takes_too_long_is_a_row_that_says_so(acquisition):
    outcome = compare(acquisition, ["rsvd"], low_cutoff=LOW, rank=RANK, timeout=0.01)
    row = outcome.rows[0]
    assert (row["status"], row["seconds"]) == ("timed out", None)
    assert row["message"] == "it took more than 0.01 s; raise --timeout"


def test_a_method_that_diverges_or_cannot_be_is_a_row_that_says_so(acquisition):
    parameters = {"eta-decay": {"step": 1e30, "init": "spectral"}, "highpass": {"cutoff_hz": 400.0}}
    outcome = compare(
        acquisition, ["eta-decay", "highpass"], low_cutoff=LOW, rank=RANK, parameters=parameters
    )
    first, second = outcome.rows
    assert first["status"] == "diverged"
    assert "the solver diverged at iteration 1" in first["message"]
    assert second["status"] == "failed"
    assert "must be in (0, 0.5)" in second["message"]


def killed(*arguments):
    signal.raise_signal(signal.SIGKILL)


def broken(*arguments):
    raise ArithmeticError("no number")


@pytest.mark.parametrize(
    ("method", "status", "message"),
    [
        (killed, "killed", "its process was ended by SIGKILL, as the system does when memory runs out; take"),
        (broken, "failed", "ArithmeticError: no number"),
    ],
)
def test_a_method_whose_process_fails_is_a_row_that_says_so(
    acquisition, monkeypatch, method, status, message
):
    monkeypatch.setattr(compare_methods, "run_method", method)
    row = compare(acquisition, ["rsvd"], low_cutoff=LOW, rank=RANK).rows[0]
    assert row["status"] == status
    assert row["message"].startswith(message)


def test_parameters_reach_their_method(acquisition):
    outcome = compare(
        acquisition,
        ["highpass", "polynomial", "rsvd"],
        low_cutoff=LOW,
        rank=RANK,
        parameters={
            "highpass": {"cutoff_hz": 75.0, "order": 3},
            "polynomial": {"order": 5},
            "rsvd": {"power_iterations": 1},
        },
    )
    notes = [row["note"] for row in of_power(outcome)[0]]
    assert notes == ["order 3, 75 Hz", "order 5", "2 passes over all entries"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {"signal": np.ones((2, 2), bool), "background": np.ones((40, 32), bool)},
            "the signal region has shape",
        ),
        ({"methods": ["svdd"]}, "method 'svdd' is not known; did you mean svd?"),
        ({"parameters": {"nope": {}}}, "method 'nope' is not known; the methods are eta-decay"),
        ({"parameters": {"rsvd": {"order": 1}}}, "rsvd has no parameter 'order'; it has oversampling"),
        ({"parameters": {"svd": {"method": 1}}}, "it has none that can be set"),
        ({"sampling": []}, "no sampling was given"),
        ({"sampling": [1.5]}, "sampling 1.5 must be from 1e-06 to 1"),
        ({"timeout": 0}, "timeout 0 must be positive"),
        ({"rank": 0}, "rank 0 must be at least 1"),
        ({"signal": np.ones((40, 32), bool)}, "give signal and background"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_work(acquisition, arguments, sentence):
    with pytest.raises((OptionError, InputError), match=sentence):
        compare(acquisition, **arguments)


def test_the_order_of_the_axes_does_not_matter(acquisition, truth):
    turned = Acquisition(acquisition.iq.transpose(1, 2, 0), "".join(acquisition.axes[i] for i in (1, 2, 0)))
    order = [acquisition.spatial_axes.index(letter) for letter in turned.spatial_axes]
    flipped = Truth(truth.blood_power.transpose(order), truth.vessel_mask.transpose(order))
    first = compare(acquisition, ["rsvd"], truth=truth, low_cutoff=LOW, rank=RANK)
    second = compare(turned, ["rsvd"], truth=flipped, low_cutoff=LOW, rank=RANK)
    assert np.array_equal(first.images[0].transpose(order), second.images[0])
    for name in ("correlation", "auc", "gcnr"):
        assert first.rows[0][name] == pytest.approx(second.rows[0][name])


@pytest.mark.parametrize("name", [name for name in CONTENDERS if name not in ("rpca", "svd")])
def test_a_worker_measures_and_keeps_what_it_filtered(tmp_path, acquisition, name):
    """Run the task in this process, where coverage and debuggers see it."""
    stack = casorati(acquisition).reshape(40, 32, -1)[:16, :16, :60]
    np.save(tmp_path / "stack.npy", stack)
    thumbnail = Acquisition(np.zeros((2, 2, 2), np.complex64), "zxt", frame_rate_hz=500.0)
    contender = CONTENDERS[name]
    settings = Settings(rank=6, low_cutoff=2, threads=1)
    work = Work(thumbnail, settings, 0.5 if contender.sampled else None, contender.defaults)
    reference = tmp_path / "reference.npy"
    np.save(reference, stack.reshape(-1, 60))
    answer = run_method(name, work, tmp_path / "stack.npy", reference, tmp_path / "kept.npy")
    assert answer.status == "done"
    kept = np.load(tmp_path / "kept.npy")
    assert answer.filtered.power == pytest.approx(np.mean(np.abs(kept) ** 2, axis=1), rel=1e-4)
    assert answer.distance == pytest.approx(
        np.linalg.norm(kept - stack.reshape(-1, 60)) / np.linalg.norm(stack), rel=1e-4
    )


def test_relative_distance_by_hand():
    assert relative_distance(np.array([[3.0, 0]]), np.array([[0, 4.0]])) == pytest.approx(1.25)
    assert np.isnan(relative_distance(np.ones((2, 2)), np.zeros((2, 2))))


@pytest.mark.parametrize("name", list(CONTENDERS))
def test_pixels_without_a_signal_count_in_no_filter(acquisition, name):
    masked = acquisition.iq.copy()
    masked[:, :14] = 0
    settings, contender = Settings(rank=RANK, low_cutoff=LOW, threads=1), CONTENDERS[name]

    def filtered(iq):
        stack = Acquisition(iq, acquisition.axes, frame_rate_hz=acquisition.frame_rate_hz)
        return contender.run(Work(stack, settings, 0.5 if contender.sampled else None, contender.defaults))

    found, cropped = filtered(masked), filtered(masked[:, 14:].copy())
    assert (found.blood_power[: 14 * 32] == 0).all()
    assert found.matrix.shape == (40 * 32, 120)
    assert metrics.correlation(found.power[14 * 32 :], cropped.power) > 0.9999
    assert found.blood_power[14 * 32 :].sum() == pytest.approx(cropped.blood_power.sum(), rel=0.02)


@pytest.mark.parametrize(
    ("name", "value", "parameters", "error", "sentence"),
    [
        ("highpass", 1, {"cutoff_hz": 60.0}, OptionError, "needs the frame rate; give frame_rate"),
        ("polynomial", 1, {}, OptionError, "low_cutoff must be a number for this method"),
        ("rsvd", 1, {}, OptionError, "rank must be a number for this method"),
        ("rpca", 0, {}, InputError, "is zero everywhere"),
    ],
)
def test_a_filter_says_what_it_misses(name, value, parameters, error, sentence):
    stack = Acquisition(np.full((6, 5, 40), value, np.complex64), "zxt")
    work = Work(stack, Settings(threads=1), None, {**CONTENDERS[name].defaults, **parameters})
    with pytest.raises(error, match=sentence):
        CONTENDERS[name].run(work)


def test_by_default_the_methods_that_a_user_would_choose_between(acquisition, truth):
    """The cutoff of the high-pass is where the clutter ends."""
    outcome = compare(acquisition, truth=truth)
    rows = [row for row in outcome.rows if row["picture"] == "power Doppler"]
    assert [row["method"] for row in rows] == ["eta-decay", "svd", "rsvd", "highpass"]
    assert rows[-1]["correlation"] > 0.5
    assert "where the clutter ends" in rows[-1]["note"]


@pytest.mark.parametrize("edge", [0.05, 0.2])
def test_the_clutter_ends_where_its_spectrum_falls_below_the_rest(edge):
    rng = np.random.default_rng(0)
    n_frames = 200
    tones = np.exp(2j * np.pi * np.outer(np.linspace(-edge, edge, 9), np.arange(n_frames)))
    clutter = 100 * (rng.standard_normal((600, 9)) @ tones)
    rest = rng.standard_normal((600, n_frames)) + 1j * rng.standard_normal((600, n_frames))
    found = end_of_clutter((clutter + rest).reshape(30, 20, n_frames), 9)
    assert found == pytest.approx(edge, abs=0.03)
    assert end_of_clutter(rest.reshape(30, 20, n_frames), 0) == 1 / n_frames
