"""Several positions of the probe in one session: which block shows which, and each as a session of its own."""

import json
from dataclasses import replace
from itertools import combinations, cycle
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.io import loadmat
from scipy.ndimage import gaussian_filter
from scipy.special import stdtr
from xarray import open_zarr

import usdenoise
from tests.sessions.scans import BLOCK_S, FOUR, IMAGE, LENGTH, RATE_HZ, scan
from usdenoise import Acquisition, PosesResult, save, session
from usdenoise.errors import InputError, OptionError, UsdenoiseError
from usdenoise.linalg.executor import ThreadExecutor
from usdenoise.options import SessionOptions
from usdenoise.pipeline.result import Doubt
from usdenoise.report.tables import region_correlation_table
from usdenoise.sessions.blocks import stack_session
from usdenoise.sessions.poses import Leads, PosePlan, cycle_of, likeness_of, plan_of, proposed_rule
from usdenoise.sessions.result_series import block_doubts
from usdenoise.sessions.session_activation import region_correlations

N_POSES, N_SWEEPS = 3, 12
ACTIVE = 1
"""Position whose blood rises in sweeps 3 to 5 and 9 to 11, in the right half."""

SWEEP_S = N_POSES * BLOCK_S
EVENTS = [(3 * SWEEP_S, 3 * SWEEP_S, "on"), (9 * SWEEP_S, 3 * SWEEP_S, "on")]

ON = np.zeros((N_POSES, *IMAGE), bool)
ON[ACTIVE, :, IMAGE[1] // 2 :] = True
"""Where that is."""


def stack_of(blocks: Any) -> Acquisition:
    return Acquisition(np.concatenate(blocks), "tzx", frame_rate_hz=RATE_HZ, spacing_mm={"z": 0.1, "x": 0.2})


@pytest.fixture(scope="module")
def by_pose() -> list[list[NDArray[np.complex64]]]:
    """Blocks of each position."""
    rises = [2.0 * (pose == ACTIVE) for pose in range(N_POSES)]
    return [scan(N_SWEEPS, rise=rise, seed=20 + pose, blood=3.0).blocks for pose, rise in enumerate(rises)]


@pytest.fixture(scope="module")
def in_turn(by_pose: list[list[NDArray[np.complex64]]]) -> list[NDArray[np.complex64]]:
    return [by_pose[pose][sweep] for sweep in range(N_SWEEPS) for pose in range(N_POSES)]


@pytest.fixture(scope="module")
def found(in_turn: list[NDArray[np.complex64]]) -> PosesResult:
    """The session with its events and regions."""
    regions = {"on": ON, "off": np.roll(ON, 1, axis=0), "half": ON[ACTIVE], "rect": "rect:0,12,24,24"}
    how: dict[str, Any] = {"pose_step_mm": 0.4, "events": EVENTS, "regions": regions, "options": FOUR}
    return session(stack_of(in_turn), LENGTH, poses=N_POSES, **how)


def plan(blocks: Any, rule: Any, table: Any = (), numbers: Any = None) -> PosePlan:
    """The plan of blocks, which are recorded one after the other, or at the times of these numbers."""
    recording = stack_session(stack_of(blocks), SessionOptions(window=LENGTH), "single")
    if numbers is not None:
        timed = zip(recording.blocks, np.asarray(numbers).tolist(), strict=True)
        recording = replace(recording, blocks=[replace(block, start_s=at * BLOCK_S) for block, at in timed])
    with ThreadExecutor(1) as executor:
        return plan_of(recording, str(rule), table, executor)


def rows(poses: Any) -> list[dict[str, str]]:
    return [{"block": str(number), "pose": str(pose)} for number, pose in enumerate(poses)]


def test_each_position_is_a_session_of_its_own(by_pose: Any, found: PosesResult) -> None:
    assert isinstance(found, PosesResult)
    assert found.blood_power.shape == (N_SWEEPS, N_POSES, *IMAGE)
    for pose, blocks in enumerate(by_pose):
        alone = session(stack_of(blocks), LENGTH, options=FOUR)
        for name, images in alone.images.items():
            np.testing.assert_allclose(found.images[name][:, pose], images, rtol=1e-5)
        for name, image in alone.means.items():
            np.testing.assert_allclose(found.means[name][pose], image, rtol=1e-5)
        np.testing.assert_array_equal(found.bad_blocks[:, pose], alone.bad)
        assert found.poses[pose].low_cutoff == alone.low_cutoff
    starts = np.arange(N_SWEEPS * N_POSES).reshape(N_SWEEPS, N_POSES) * BLOCK_S
    np.testing.assert_allclose(found.block_times, starts + (LENGTH - 1) / 2 / RATE_HZ)
    np.testing.assert_allclose(found.time, found.block_times.mean(axis=1))
    assert found.geometry.spacing_mm["y"] == pytest.approx(0.4)
    assert found.names == ("0", "1", "2")


def test_the_activation_is_in_its_plane_at_the_times_of_its_blocks(by_pose: Any, found: PosesResult) -> None:
    active = found.activation["on"].active
    assert active.shape == (N_POSES, *IMAGE)
    counts = active.sum(axis=(1, 2))
    assert counts[ACTIVE] > 20
    assert counts.sum() - counts[ACTIVE] <= 0.1 * counts[ACTIVE]
    assert active[ACTIVE, :, IMAGE[1] // 2 :].sum() > 0.9 * counts[ACTIVE]
    # t of a session of this position alone, whose first block is later by those of the others before it
    late = ACTIVE * BLOCK_S
    events = [(onset - late, *more) for onset, *more in EVENTS]
    alone = session(stack_of(by_pose[ACTIVE]), LENGTH, block_interval_s=SWEEP_S, events=events, options=FOUR)
    t, wanted = found.activation["on"].statistic[ACTIVE], alone.activation["on"].statistic
    np.testing.assert_allclose(t, wanted, rtol=1e-4, atol=1e-6)


def test_the_significance_is_among_the_pixels_of_all_positions(in_turn: Any) -> None:
    how = {"poses": N_POSES, "events": EVENTS, "threshold": "bonferroni:0.05", "options": FOUR}
    found = session(stack_of(in_turn), LENGTH, **how)
    for pose, of_pose in enumerate(found.poses):
        one = of_pose.activation["on"]
        np.testing.assert_array_equal(found.activation["on"].active[pose], one.active)
    tested = sum(int(np.isfinite(one.activation["on"].change).sum()) for one in found.poses)
    # p of the weakest active pixel times the tested pixels of all positions is below the level.
    one = found.poses[ACTIVE].activation["on"]
    p = 2 * stdtr(one.model.n_free, -np.abs(one.t))
    expected = (p * tested <= 0.05) & np.isfinite(one.change)
    np.testing.assert_array_equal(one.active, expected)


def test_positions_that_see_few_events_have_no_map_and_say_why(in_turn: Any) -> None:
    """The first one sees both events, the second one the later event, and the third one none."""
    events = [(3 * SWEEP_S, BLOCK_S, "on"), (9 * SWEEP_S, 2 * BLOCK_S, "on")]
    how: dict[str, Any] = {"events": events, "confounds": "none", "options": FOUR}
    found = session(stack_of(in_turn), LENGTH, poses=N_POSES, **how)
    known = np.isfinite(found.activation["on"].t).any(axis=(1, 2))
    np.testing.assert_array_equal(known, [True, False, False])
    sentences = [doubt.sentence for doubt in found.doubts if doubt.code == "design"]
    assert any(sentence.startswith("pose 1: the type 'on' has 1 event that") for sentence in sentences)
    assert any(sentence.startswith("pose 2: no block is within the events") for sentence in sentences)


@pytest.mark.parametrize("lost", [[10], [1], [4, 20], [16, 17]])
@pytest.mark.parametrize("rule", [str(N_POSES), f"back-and-forth:{N_POSES}"])
def test_the_times_have_places_for_lost_blocks(lost: list[int], rule: str, by_pose: Any) -> None:
    order = np.resize(cycle_of(rule), N_SWEEPS * N_POSES)
    kept = np.delete(np.arange(len(order)), lost)
    blocks = [by_pose[order[number]][number // N_POSES] for number in kept]
    found = plan(blocks, rule, numbers=kept)
    np.testing.assert_array_equal(found.poses, order[kept])
    np.testing.assert_array_equal(found.sweeps, kept // N_POSES)
    assert f"missing before block {lost[0]}, by the times" in found.notes[0]
    cells = np.empty((N_SWEEPS, N_POSES))
    cells[np.arange(len(order)) // N_POSES, order] = np.arange(len(order)) * BLOCK_S
    np.testing.assert_allclose(found.cell_starts, cells)
    # A table says it where the times do not. In the first three sweeps images tell less.
    if lost[0] < 3 * N_POSES:
        return
    with pytest.raises(InputError, match=r"by (back-and-forth:)?3, and its image is like those of pose \d"):
        plan(blocks, rule)
    np.testing.assert_array_equal(plan(blocks, "poses.tsv", rows(order[kept])).poses, order[kept])


@pytest.mark.parametrize("rule", [str(N_POSES), f"back-and-forth:{N_POSES}"])
def test_a_whole_lost_sweep_is_a_note(rule: str, by_pose: Any) -> None:
    kept = np.delete(np.arange(N_SWEEPS * N_POSES), slice(5 * N_POSES, 6 * N_POSES))
    order = np.resize(cycle_of(rule), N_SWEEPS * N_POSES)[kept]
    blocks = [by_pose[pose][number // N_POSES] for pose, number in zip(order, kept, strict=True)]
    found = plan(blocks, rule, numbers=kept)
    np.testing.assert_array_equal(found.poses, order)
    sentence = {str(N_POSES): "1 sweep missing, or a pause, before block 15"}.get(rule)
    assert found.notes[0].startswith(sentence or "3 missing before block 15")


def test_pauses_between_sweeps_are_no_lost_blocks(in_turn: Any) -> None:
    numbers = np.arange(15)
    paused = plan(in_turn[:15], N_POSES, numbers=numbers + numbers // N_POSES)
    np.testing.assert_array_equal(paused.sweeps, numbers // N_POSES)
    assert not paused.notes


def test_a_table_of_one_position_after_the_other(by_pose: Any) -> None:
    blocks = [block for pose in range(N_POSES) for block in by_pose[pose][:4]]
    found = plan(blocks, "poses.tsv", rows(np.repeat(["a", "b", "c"], 4)))
    np.testing.assert_array_equal(found.sweeps, np.tile(np.arange(4), N_POSES))
    np.testing.assert_allclose(found.cell_starts.T.ravel(), np.arange(12) * BLOCK_S)


@pytest.mark.parametrize(("places", "fifth", "message"), [
    ("0 0.5 2", "nan", "is not a number"),
    ("0 0.5 2", "1", "two values of position_mm"),
    ("0 0 2", None, "a position_mm of its own"),
    ("0 500 1500", None, "poses.tsv: position_mm has steps of 750 mm, outside 0.001 to 5 mm"),
])  # fmt: skip
def test_places_that_are_none_are_an_error(
    places: str, fifth: str | None, message: str, in_turn: Any
) -> None:
    table = [
        {**row, "position_mm": places.split()[int(row["pose"])]} for row in rows(np.arange(len(in_turn)) % 3)
    ]
    if fifth is not None:
        table[4]["position_mm"] = fifth
    with pytest.raises(InputError, match=message):
        plan(in_turn, "poses.tsv", table)


def test_blocks_that_the_rule_does_not_expect_are_named(in_turn: Any, by_pose: Any) -> None:
    extra = scan(N_SWEEPS + 1, seed=21, blood=3.0).blocks[-1]
    with pytest.raises(InputError, match="block 11 is of pose 2 by 3, and its image is like those of pose 1"):
        plan([*in_turn[:11], extra, *in_turn[11:]], N_POSES)
    swapped = [*in_turn]
    swapped[19], swapped[20] = swapped[20], swapped[19]
    with pytest.raises(InputError, match=r"block 19 .* pose 2; 2 blocks are like those of another pose"):
        plan(swapped, N_POSES)


def test_back_and_forth(by_pose: Any) -> None:
    order = np.resize(cycle_of(f"back-and-forth:{N_POSES}"), N_SWEEPS * N_POSES)
    blocks = [by_pose[pose][number // N_POSES] for number, pose in enumerate(order.tolist())]
    np.testing.assert_array_equal(plan(blocks, f"back-and-forth:{N_POSES}").poses, order)


def test_another_slice_on_the_way_back_is_a_doubt_by_direction(by_pose: Any, found: PosesResult) -> None:
    blocks = []
    for sweep in range(N_SWEEPS):
        shown = [of_pose[sweep] for of_pose in by_pose]
        # A mixture with another slice
        mixed = [np.sqrt(0.6) * block + np.sqrt(0.4) * np.flip(block, 2) for block in shown]
        blocks += mixed[::-1] if sweep % 2 else shown
    back = session(stack_of(blocks), LENGTH, poses=f"back-and-forth:{N_POSES}", options=FOUR)
    assert any("differ between sweeps forth and back" in doubt.sentence for doubt in back.doubts)
    same = replace(found, block_times=back.block_times)
    assert not any("forth and back" in doubt.sentence for doubt in same.doubts)


def test_images_that_contradict_the_rule_are_an_error_that_names_the_right_one(in_turn: Any) -> None:
    says = f"not show the positions in this order; they do with poses {N_POSES};"
    with pytest.raises(InputError, match=says):
        plan(in_turn, N_POSES + 1)
    with pytest.raises(InputError, match="fewer than two sweeps"):
        plan(in_turn[: 2 * N_POSES - 1], N_POSES)


def test_images_that_do_not_tell_positions_apart_are_taken_as_given_with_a_note(by_pose: Any) -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((12, LENGTH, *IMAGE)) + 1j * rng.standard_normal((12, LENGTH, *IMAGE))
    for blocks in (list(noise.astype(np.complex64)), by_pose[0][:8]):
        found = plan(blocks, 2)
        np.testing.assert_array_equal(found.poses, np.arange(len(blocks)) % 2)
        assert "do not confirm the positions" in found.notes[-1]
    # Nor is a rule proposed.
    assert proposed_rule(likeness_of(np.abs(noise).mean(axis=1))) == ""


def test_a_table_names_the_positions_and_their_places(in_turn: Any) -> None:
    names = np.resize(["left", "right", "middle"], len(in_turn)).tolist()
    places = {"left": "-0.5", "right": "0.9", "middle": "0.1"}
    table = [{**row, "position_mm": places[row["pose"]]} for row in rows(names)]
    found = plan(in_turn, "poses.tsv", table)
    # In the order of their places
    assert found.names == ("left", "middle", "right")
    assert found.positions_mm == (-0.5, 0.1, 0.9)
    assert [note for note in found.notes if "uneven" in note] == [
        "the positions in poses.tsv are uneven: NIfTI files have their mean distance"
    ]
    np.testing.assert_array_equal(found.poses, np.resize([0, 2, 1], len(in_turn)))
    np.testing.assert_array_equal(found.sweeps, np.arange(len(in_turn)) // N_POSES)
    table[5]["pose"] = "n/a"
    found = plan(in_turn, "poses.tsv", table)
    assert found.poses[5] == found.sweeps[5] == -1
    np.testing.assert_array_equal(found.sweeps[6:], np.arange(6, len(in_turn)) // N_POSES)


def test_a_table_that_contradicts_the_images_is_an_error_that_names_the_block(in_turn: Any) -> None:
    poses = np.arange(len(in_turn)) % N_POSES
    poses[[10, 11]] = poses[[11, 10]]
    with pytest.raises(InputError, match=r"block 10 is of pose 2 by poses.tsv, .* pose 1; 2 blocks are"):
        plan(in_turn, "poses.tsv", rows(poses))
    # From one block on the next position: a lost block that the table does not know
    kept, says = (
        in_turn[:12] + in_turn[13:],
        "block 12 is of pose 0 by poses.tsv, and its image is like those of pose 1",
    )
    with pytest.raises(InputError, match=says):
        plan(kept, "poses.tsv", rows(np.arange(len(kept)) % N_POSES))
    with pytest.raises(OptionError, match="has no row for block 26"):
        plan(in_turn, "poses.tsv", rows(np.arange(26) % N_POSES))


def drifting(seed: int, n_poses: int, likeness: float, drift: float) -> list[NDArray[np.float64]]:
    """Images of blocks in turn of planes of which neighbours correlate; a fifth of them is displaced by up to a pixel.

    Over the session each position drifts by a part of the distance of the planes.
    """
    rng, size, n_sweeps = np.random.default_rng(seed), (48, 48), 12

    def texture() -> Any:
        return 5 * gaussian_filter(rng.standard_normal(size), 1.5)

    planes = [texture()]
    for _ in range(n_poses + 2):
        planes.append(likeness * planes[-1] + np.sqrt(1 - likeness**2) * texture())
    images = []
    for number in range(n_sweeps * n_poses):
        sweep, pose = divmod(number, n_poses)
        plane, part = divmod(pose + drift * sweep / n_sweeps, 1)
        before, after = planes[int(plane) : int(plane) + 2]
        image = before * np.cos(np.pi / 2 * part) + after * np.sin(np.pi / 2 * part)
        if rng.uniform() < 0.2:
            image = np.roll(image, rng.integers(-1, 2, 2), (0, 1))
        images.append(np.exp(image / 2) * (1 + 0.3 * rng.standard_normal(size)))
    return images


@pytest.mark.parametrize("drift", [0.0, 1.0])
@pytest.mark.parametrize(("n_poses", "alike"), [(2, 0.9), (5, 0.9), (12, 0.9), (5, 0.97)])
def test_neighbouring_planes_that_are_alike_and_move(n_poses: int, alike: float, drift: float) -> None:
    for seed in (10, 11, 12):
        likeness = likeness_of(drifting(seed, n_poses, alike, drift))
        n_blocks = len(likeness)
        shown = np.arange(n_blocks) % n_poses
        leads = Leads.of(shown, likeness)
        assert leads.tell_apart()
        assert not leads.contradictions()
        # A block is lost: the one behind it is of the next position, and so on.
        lost = n_blocks // 2 + seed % 3
        kept = np.delete(np.arange(n_blocks), lost)
        (number, likest), *_ = Leads.of(shown[:-1], likeness[np.ix_(kept, kept)]).contradictions()
        assert lost <= number < lost + n_poses
        assert likest == (shown[number] + 1) % n_poses


def test_one_plane_is_not_several() -> None:
    for seed in (10, 11, 12):
        likeness = likeness_of(drifting(seed, 1, 1.0, 0.0) * 3)
        assert not Leads.of(np.arange(len(likeness)) % 3, likeness).tell_apart()


@pytest.mark.parametrize("is_returning", [False, True])
def test_a_session_without_the_option_names_it(in_turn: Any, is_returning: bool) -> None:
    """Also if a block of each sweep shows all planes, while the motor returns."""
    # The planes have other vessels.
    blocks = [np.flip(block, axes) for block, axes in zip(in_turn, cycle([(), 1, 2]), strict=False)]
    if is_returning:
        parts = [slice(pose * LENGTH // N_POSES, (pose + 1) * LENGTH // N_POSES) for pose in range(N_POSES)]
        for sweep in range(N_SWEEPS, 0, -1):
            shown = blocks[(sweep - 1) * N_POSES : sweep * N_POSES]
            returned = np.concatenate([block[part] for block, part in zip(shown, parts, strict=True)])
            blocks.insert(sweep * N_POSES, returned)
    found = session(stack_of(blocks), LENGTH, options=FOUR)
    # Where the filter takes none for bad
    records = [replace(block, is_bad=False) for block in found.block_records]
    for doubts in (found.doubts, block_doubts(records, found.images["power_doppler"])):
        (doubt,) = [doubt for doubt in doubts if "several positions" in doubt.sentence]
        assert f"(poses {N_POSES + is_returning})" in doubt.sentence


def test_doubts_of_several_positions_are_one_with_the_numbers_of_each(found: PosesResult) -> None:
    sentences = [
        ["3 of 4 pixels of 'p1' change by 1.5 %", "2 of 4 pixels of 'p2' change by 1.5 %", "0 left"],
        ["no contact", "3 of 5 pixels of 'p2' change by 2e-05 %"],
        ["5 of 4 pixels of 'p2' change by 0.5 %"],
    ]
    poses = [
        replace(series, event_doubts=tuple(Doubt("activation", sentence) for sentence in of_pose))
        for series, of_pose in zip(found.poses, sentences, strict=True)
    ]
    doubts = [doubt for doubt in replace(found, poses=tuple(poses)).doubts if doubt.code == "activation"]
    assert [doubt.sentence for doubt in doubts] == [
        "pose 0: 3 of 4 pixels of 'p1' change by 1.5 %",
        "2/3/5 of 4/5/4 pixels of 'p2' change by 1.5/2e-05/0.5 %",
        "pose 0: 0 left",
        "pose 1: no contact",
    ]


def test_regions_are_masks_over_all_positions(found: PosesResult) -> None:
    """One of a single plane is in all of them."""
    wanted = found.blood_power[..., IMAGE[1] // 2 :].mean(axis=(1, 2, 3))
    for name in ("half", "rect"):
        assert found.region_series[name].mask.sum() == N_POSES * ON.sum()
        np.testing.assert_allclose(found.regions[name], wanted, rtol=0.02)
    blood = found.blood_power[:, ON]
    np.testing.assert_allclose(found.regions["on"], blood[:, blood.any(axis=0)].mean(axis=1), rtol=0.02)
    # Each position has its own motion
    assert "a model of drift and the responses" in region_correlation_table(found).texts["r"]
    correlations = region_correlations(found)
    assert [*correlations] == [*combinations(("on", "off", "half", "rect"), 2)]
    assert all(-1 < r < 1 and 4 <= n_free < len(found.time) for r, n_free in correlations.values())


def test_regions_have_the_response_of_each_position_by_its_model(by_pose: Any, found: PosesResult) -> None:
    table = found.region_responses
    change = dict(zip(zip(table["region"], table["pose"], strict=True), table["change"], strict=True))
    # "on" is in one plane only, and "off" in the next one
    assert {pose for name, pose in change if name == "on"} == {str(ACTIVE)}
    assert {pose for name, pose in change if name == "off"} == {str(ACTIVE + 1)}
    assert change["on", str(ACTIVE)] == change["half", str(ACTIVE)] > 100
    for pose in range(N_POSES):
        assert (abs(change["half", str(pose)]) < 20) == (pose != ACTIVE)
    events = [(onset - ACTIVE * BLOCK_S, *more) for onset, *more in EVENTS]
    how: dict[str, Any] = {"regions": {"half": ON[ACTIVE]}, "block_interval_s": SWEEP_S, "options": FOUR}
    alone = session(stack_of(by_pose[ACTIVE]), LENGTH, events=events, **how).region_responses
    row = [*zip(table["region"], table["pose"], strict=True)].index(("half", str(ACTIVE)))
    for name in ("change", "standard_error", "t", "p"):
        assert table[name][row] == pytest.approx(alone[name][1], rel=1e-4)


def test_an_incomplete_last_sweep_and_a_bad_block(in_turn: Any, tmp_path: Path) -> None:
    blocks = [*in_turn[:-2]]
    blocks[13] = np.full_like(blocks[13], np.nan)
    found = session(stack_of(blocks), LENGTH, poses=N_POSES, options=FOUR)
    expected = np.zeros((N_SWEEPS, N_POSES), bool)
    expected[4, 1] = expected[-1, 1:] = True
    np.testing.assert_array_equal(found.bad_blocks, expected)
    np.testing.assert_array_equal(np.isnan(found.blood_power).any(axis=(2, 3)), expected)
    image = nibabel.load(save(found, tmp_path / "x.nii.gz")).get_fdata().transpose(3, 2, 1, 0)
    later, earlier = found.block_times[[5, 3], 1] - found.block_times[4, 1]
    of_two = (found.blood_power[3, 1] * later - found.blood_power[5, 1] * earlier) / (later - earlier)
    np.testing.assert_allclose(image[4, 1], of_two, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(image[-1, 1:], found.blood_power[-2, 1:])
    np.testing.assert_array_equal(image[~expected], found.blood_power[~expected])
    sidecar = json.loads((tmp_path / "x.json").read_text())
    assert sidecar["BadBlocks"] == sidecar["InterpolatedBlocks"] == expected.tolist()
    # A sweep with a bad or missing block is an outlier; the motion is the mean over the positions.
    table = pd.read_csv(tmp_path / "x_confounds.tsv", sep="\t")
    outliers = table[["motion_outlier00", "motion_outlier01"]].to_numpy()
    np.testing.assert_array_equal(outliers.T, np.eye(N_SWEEPS)[[4, N_SWEEPS - 1]])
    means = pd.DataFrame(found.blocks).groupby("sweep")["shift_z_mm"].mean()
    np.testing.assert_allclose(table["shift_z"], means, rtol=1e-6)
    assert (
        "mean over the positions"
        in json.loads((tmp_path / "x_confounds.json").read_text())["shift_z"]["Description"]
    )
    assert np.isfinite(found.block_times).all()
    np.testing.assert_allclose(np.diff(found.block_times, axis=1), BLOCK_S, rtol=1e-6)
    assert not found.bad.any()


def test_a_result_with_interpolated_blocks_is_saved(in_turn: Any, tmp_path: Path) -> None:
    # The last block of the last sweep is missing.
    blocks = [*in_turn[:17]]
    blocks[7] = np.full_like(blocks[7], np.nan)
    found = session(stack_of(blocks), LENGTH, poses=N_POSES, bad_blocks="interpolate", options=FOUR)
    assert np.isfinite(found.blood_power).all()
    names = {array.name: np.asarray(array.values) for array in found.contents()}
    np.testing.assert_array_equal(np.argwhere(names["interpolated"]), [[2, 1], [5, 2]])
    with h5py.File(save(found, tmp_path / "x.h5")) as file:
        np.testing.assert_array_equal(file["interpolated"], found.bad_blocks)
        assert file["bad"].attrs["poses"] == "0, 1, 2"
    assert loadmat(save(found, tmp_path / "x.mat"))["slice_time"].shape == (6, N_POSES)
    with open_zarr(save(found, tmp_path / "x.zarr")) as group:
        assert group["interpolated"].dims == ("time", "k")
    assert save(found, tmp_path / "x.nii.gz").exists()


@pytest.mark.parametrize("poses", [1, "0", "back-and-forth:1", "", True, 2.5])
def test_values_that_are_no_positions_are_an_error(poses: Any, in_turn: Any) -> None:
    with pytest.raises(OptionError, match="poses"):
        SessionOptions(poses=poses)


def test_what_does_not_go_together_is_an_error(in_turn: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="pose_step_mm requires several positions"):
        SessionOptions(pose_step_mm=1.0)
    with pytest.raises(OptionError, match="live does not apply to several positions"):
        SessionOptions(poses=3, live=True)
    with pytest.raises(UsdenoiseError, match="missing"):
        session(stack_of(in_turn), LENGTH, poses=tmp_path / "missing.tsv")
    with pytest.raises(OptionError, match="paths requires a path for each position"):
        session(stack_of(in_turn), LENGTH, poses="paths")


def test_a_picture_of_the_positions_for_a_paper(found: PosesResult) -> None:
    """In an order, on one scale, with a scale bar instead of ticks."""
    figure = Figure()
    axes = usdenoise.plot(
        found, "blood_power", ax=figure.subplots(), planes=[2, 0], scale_bar_mm=1.0, color_map="gray"
    )
    assert [each.get_title() for each in axes] == [found.planes[2], found.planes[0]]
    images = [each.images[0] for each in axes]
    assert {(image.get_clim(), image.get_cmap().name) for image in images} == {(images[0].get_clim(), "gray")}
    brightest = found.mean_blood_power.max()
    for image, pose in zip(images, (2, 0), strict=True):
        wanted = 10 * np.log10(np.maximum(found.mean_blood_power[pose], 1e-30) / brightest)
        np.testing.assert_allclose(image.get_array(), np.maximum(wanted, image.get_clim()[0]), atol=1e-4)
    (bar,) = axes[0].lines
    assert np.ptp(bar.get_xdata()) == pytest.approx(1.0)
    for image in ("activation", "noise_power"):
        assert len(usdenoise.plot(found, image, ax=Figure().subplots())) == N_POSES
