"""The model of a series that is there: what a session says of its regions and events, after its blocks are filtered."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.sessions.design import Event
from usdenoise.sessions.pose_series import joined_poses
from usdenoise.sessions.poses import PosePlan
from usdenoise.sessions.regions import region_series
from usdenoise.sessions.result_series import ResultSeries
from usdenoise.sessions.session_activation import with_activation
from usdenoise.stack.geometry import Geometry


def modelled(
    all_series: Sequence[ResultSeries],
    events: Sequence[Event],
    masks: Mapping[str, NDArray[np.bool_]],
    plan: PosePlan | None = None,
    geometry: Geometry | None = None,
) -> ResultSeries:
    """Return a series with its regions and its activation by some events.

    Parameters
    ----------
    all_series : sequence of ResultSeries
        The series, of one or several positions of the probe.
    events : sequence of Event
        The events; none for no activation maps.
    masks : mapping
        Name of each region -> its mask, over all positions; none for no regions.
    plan, geometry : PosePlan, Geometry, optional
        Which block shows which position, and the geometry of the joined series; by default there is one position.
    """
    bare, filled = list[ResultSeries](), [series.filled().images for series in all_series]
    for pose, (series, images) in enumerate(zip(all_series, filled, strict=True)):
        # The regions that the plane has, by the model of its position
        of_plane = {name: mask if plan is None else mask[pose] for name, mask in masks.items()}
        known = {name: mask for name, mask in of_plane.items() if mask.any()}
        bare.append(replace(series, region_series=region_series(images["blood_power"], known)))
    # The model has a column for each bad block, and so does not depend on its values.
    found = zip(with_activation(bare, events), filled, strict=True)
    poses = [replace(series, images=images) for series, images in found]
    return poses[0] if plan is None or geometry is None else joined_poses(poses, plan, geometry, masks)
