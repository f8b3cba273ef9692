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
    filled = [series.filled().images for series in all_series]
    if plan is None or geometry is None:
        # The model has a column for each bad block, and so does not depend on its values.
        regions = region_series(filled[0]["blood_power"], masks)
        (series,) = with_activation([replace(all_series[0], region_series=regions)], events)
        return replace(series, images=filled[0])
    active = zip(with_activation(all_series, events), filled, strict=True)
    return joined_poses([replace(series, images=images) for series, images in active], plan, geometry, masks)
