"""The session to which a Python program adds blocks."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Unpack, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, cause_of
from usdenoise.files.regions import drawn_regions
from usdenoise.files.tables import events_of_rows, read_events
from usdenoise.options.denoise_options import DenoiseKeywords, DenoiseOptions, shows_options
from usdenoise.options.job_options import SessionOptions
from usdenoise.pipeline.denoise import chosen_options
from usdenoise.sessions.activation import Event, check_events
from usdenoise.sessions.online_session import OnlineSession


@runtime_checkable
class EventTable(Protocol):
    """A pandas.DataFrame with the columns of a BIDS table of events."""

    def to_dict(self, orient: Any) -> Any:
        """Return the rows for "records"."""


EventSource = str | Path | Sequence[tuple[float, float, str]] | EventTable
"""A BIDS table of events, a DataFrame of its columns, or (onset, duration, trial_type) of each."""


class Session(OnlineSession):
    """A session to which blocks are added one after the other, as they are acquired.

    The clutter is estimated again as blocks come, and a block is filtered with the latest estimate.
    :func:`usdenoise.session` filters all blocks with the final estimate, which is better.

    Parameters
    ----------
    axes : str, optional
        One letter for each axis of the blocks, for example "tzx"; needed for arrays.
    frame_rate, spacing : float; float or sequence of float, optional
        Frames per second, and pixel pitch in mm, as for :func:`usdenoise.denoise`.
    events : str, Path, pandas.DataFrame or sequence of (onset, duration, trial_type), optional
        Events in s from the first frame, as for :func:`usdenoise.session`. A file may grow while the session runs. By
        default there are none.
    preset, options, **requested_options
        As for :func:`usdenoise.denoise`.
    block_interval_s : float, optional
        Seconds from one block start to the next; by default from the blocks, or without pauses.
    registration, gain_correction : bool
        Whether blocks are registered to the previous blocks, and divided by the gain of the tissue; by default both.
    regions : mapping, optional
        Name -> region whose mean blood power is followed: a boolean array, or a text such as "rect:Z0,X0,Z1,X1",
        "circle:Z,X,R" or the path of a mask image. By default none.

    Raises
    ------
    OptionError
        If an option is wrong.

    Examples
    --------
    >>> import numpy as np, usdenoise
    >>> stack = usdenoise.load("sample_data/phantom.h5").iq
    >>> session = usdenoise.Session(axes="tzx", frame_rate=500)
    >>> for block in np.split(stack, 3):
    ...     update = session.add(block)
    >>> update, update.blood_power.shape, update.series["whole image"].shape
    (<SessionUpdate: block 2, 0 bad so far>, (72, 56), (3,))
    """

    @shows_options
    def __init__(  # noqa: PLR0913
        self,
        *,
        axes: str | None = None,
        frame_rate: float | None = None,
        spacing: float | Sequence[float] | None = None,
        preset: str | None = None,
        options: DenoiseOptions | None = None,
        block_interval_s: float | None = None,
        registration: bool = True,
        gain_correction: bool = True,
        regions: Mapping[str, NDArray[np.bool_] | str] | None = None,
        events: EventSource | None = None,
        **requested_options: Unpack[DenoiseKeywords],
    ) -> None:
        super().__init__(
            drawn_regions(regions),
            chosen_options(preset, options, requested_options),
            axes=axes,
            frame_rate=frame_rate,
            spacing=spacing,
            session=SessionOptions(
                block_interval_s=block_interval_s,
                registration=registration,
                gain_correction=gain_correction,
            ),
            events=None if events is None else _EventsSoFar(events),
        )


def live_session(
    options: DenoiseOptions,
    session: SessionOptions,
    regions: Mapping[str, NDArray[np.bool_] | str] | None,
    events: EventSource | None,
) -> OnlineSession:
    """Return a session with the regions and events of :class:`Session`, and the options of a finished session."""
    return OnlineSession(
        drawn_regions(regions),
        options,
        session=session,
        events=None if events is None else _EventsSoFar(events),
    )


class _EventsSoFar:
    """The events of a session, from the current content of a file, or from its last content that was right."""

    def __init__(self, events: EventSource) -> None:
        self._source, self._known = events, list[Event]()

    def __call__(self) -> tuple[list[Event], str]:
        try:
            events = events_of(self._source)
            # Events may still be to come.
            check_events(events, math.inf)
        except InputError as error:
            return self._known, cause_of(error)
        self._known = events
        return events, ""


def events_of(source: EventSource) -> list[Event]:
    """Return the events of a table or a DataFrame, or of tuples.

    Raises
    ------
    InputError
        As for :func:`usdenoise.files.tables.read_events`.
    """
    if isinstance(source, str | Path):
        return read_events(Path(source))
    if isinstance(source, EventTable):
        return events_of_rows(source.to_dict("records"), "the table of events", "row", 0)
    return [Event(*event) for event in source]
