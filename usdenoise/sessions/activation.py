"""Where a session reacts to events: a general linear model of its series."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.errors import InputError, OptionError

FALSE_DISCOVERY_RATE = 0.05
"""Expected share of pixels without a response among the active pixels (Benjamini and Hochberg)."""

LEAST_FREE = 4
"""Degrees of freedom from which a running t is shown."""

LEAST_APART = 0.5
"""Energy of a response at another time outside the design, over the median of all such responses, from which it counts."""

SLOWEST_HZ, PERIODS = 0.01, 2.0
"""Cosines are drift below SLOWEST_HZ, or below 1 / (PERIODS x longest time between onsets of one type) if that is lower."""


@dataclass(frozen=True)
class Event:
    """An event.

    Attributes
    ----------
    onset, duration : float
        When it begins, from the first frame of the session, and how long it is, in s.
    trial_type : str
        Its condition.
    """

    onset: float
    duration: float
    trial_type: str


@dataclass(frozen=True, repr=False)
class ActivationMap:
    """How the pixels react to one type of event.

    Attributes
    ----------
    t : (spatial) float32 array
        t of the response; NaN in pixels without a series.
    change : (spatial) float32 array
        The response in per cent of the baseline; NaN outside the vessels.
    active : (spatial) boolean array
        Pixels in vessels whose response is significant at a false discovery rate of 0.05, in either direction.
    threshold : float or None
        Least absolute t of the active pixels; None without any.
    expected : (n_blocks,) array
        The response that the model expects, without the drift.
    course : (n_blocks,) array
        Mean blood power of the active pixels in per cent of their mean; NaN without any.
    columns : tuple of str
        Columns of the model.
    smoothing_mm : float or None
        Full width of a Gaussian with which far more pixels would be active; None (the default) for none.
    n_active_smoothed : int or None
        Number of these pixels; None (the default) without such a width.
    """

    t: NDArray[np.float32]
    change: NDArray[np.float32]
    active: NDArray[np.bool_]
    threshold: float | None
    expected: NDArray[np.float64]
    course: NDArray[np.float64]
    columns: tuple[str, ...] = ()
    smoothing_mm: float | None = None
    n_active_smoothed: int | None = None

    def __repr__(self) -> str:
        """Describe the content in one line."""
        least = "" if self.threshold is None else f", |t| of {self.threshold:.2f} or more"
        return f"<ActivationMap: {int(self.active.sum())} active pixels{least}>"


def is_within(event: Event, last: float) -> bool:
    """Return whether an event overlaps a session whose last block is at a time in s."""
    return event.onset <= last and event.onset + event.duration >= 0


def check_events(events: Sequence[Event], last: float) -> None:
    """Check that events are within a session, and that no two types overlap.

    Parameters
    ----------
    events : sequence of Event
        The events.
    last : float
        Time of the last block, in s.

    Raises
    ------
    InputError
        If they are not.
    """
    if not any(is_within(event, last) for event in events):
        raise InputError(
            f"no event is within the session, whose last block is at {last:.4g} s",
            remedy="give the onsets in s from the first frame",
        )
    for one, other in combinations(sorted(events, key=lambda event: event.onset), 2):
        if one.trial_type != other.trial_type and other.onset < one.onset + one.duration:
            raise InputError(
                f"the events '{one.trial_type}' at {one.onset:g} s and '{other.trial_type}' at {other.onset:g} s overlap"
            )


def activation_maps(
    block_powers: NDArray[np.floating],
    in_vessels: NDArray[np.bool_],
    times: NDArray[np.float64],
    is_bad: NDArray[np.bool_],
    events: Sequence[Event],
    confounds: Mapping[str, NDArray[np.float64]] | None = None,
    hrf: str = "boxcar",
) -> dict[str, ActivationMap]:
    """Fit a general linear model to the series of a session, and return a map for each type of event.

    The model has a column for each type, cosines for slow drifts, the confounds, and a column for each bad block. Its noise
    is autoregressive of order 1, with one coefficient for the image: with one for each pixel, as nilearn estimates it, t has
    a standard deviation of 1.09 in white noise of 40 blocks, and 20 % of the maps have active pixels. t is divided by its
    root mean square for the same events at other times, if this is above 1: leaked tissue has slow changes that the model
    does not have.

    Parameters
    ----------
    block_powers : (n_blocks, spatial) array
        Blood power of each block; NaN in blocks without data.
    in_vessels : (spatial) boolean array
        Pixels that are tested.
    times : (n_blocks,) array
        Middle of each block, in s.
    is_bad : (n_blocks,) boolean array
        Bad blocks.
    events : sequence of Event
        The events.
    confounds : mapping, optional
        Name -> values of each block, (n_blocks,), that change the series besides the events, such as its motion; by default
        none. NaN counts as 0, and a constant one is not in the model.
    hrf : str
        "boxcar", "glover" or "spm"; by default "boxcar".

    Raises
    ------
    InputError
        If there are too few blocks for the model, or no event is in the session.
    OptionError
        If nilearn is not installed.

    References
    ----------
    Friston et al., "Statistical parametric maps in functional imaging: a general linear approach", Human Brain Mapping 2,
    1995. Benjamini and Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57, 1995.
    """
    from scipy.stats import t as student_t

    glm = _import_nilearn()
    design = _design(times, is_bad, events, confounds or {}, hrf)
    shape = block_powers.shape[1:]
    values = _filled(block_powers.reshape(len(block_powers), -1), is_bad)
    good = values[~is_bad]
    known = np.ptp(good, axis=0) > 0
    tested = known & in_vessels.ravel()
    types = list(dict.fromkeys(event.trial_type for event in events))
    if len(times) <= design.shape[1] or not known.any():
        raise InputError(
            f"{len(times)} blocks are too few for an activation model of {design.shape[1]} columns",
            remedy="take more or shorter blocks, or fewer trial types",
        )
    # The scale of the data is not the one that numerical tolerances expect.
    scale = float(np.abs(values[:, known]).max())
    matrix, scaled = design.to_numpy(), values[:, known] / scale
    rho = _autocorrelation(scaled, matrix)
    white, columns = _whitened(scaled, rho), _whitened(matrix, rho)
    labels, fitted = glm.first_level.run_glm(white, columns, noise_model="ols")
    baseline = _effects(glm, labels, fitted, design, "constant").effect_size().ravel()
    maps = {}
    for name in types:
        effect = _effects(glm, labels, fitted, design, name)
        t, p = np.full(values.shape[1], np.nan), np.ones(values.shape[1])
        change = np.full(values.shape[1], np.nan)
        elsewhere = _whitened(_at_other_times(design[name].to_numpy()), rho)
        t[known] = effect.stat() / _inflation(white[:, tested[known]], columns, elsewhere)
        p[known] = 2 * student_t.sf(np.abs(t[known]), len(matrix) - np.linalg.matrix_rank(matrix))
        change[known] = 100 * effect.effect_size().ravel() / np.where(baseline > 0, baseline, np.nan)
        change[~tested] = np.nan
        active = _significant(p, tested)
        course = values[:, active].mean(axis=1) if active.any() else np.full(len(block_powers), np.nan)
        maps[name] = ActivationMap(
            t=t.reshape(shape).astype(np.float32),
            change=change.reshape(shape).astype(np.float32),
            active=active.reshape(shape),
            threshold=float(np.abs(t[active]).min()) if active.any() else None,
            expected=design[name].to_numpy(),
            course=100 * course / course[~is_bad].mean() if active.any() else course,
            columns=tuple(map(str, design.columns)),
        )
    return maps


def running_t(
    block_powers: NDArray[np.floating],
    times: NDArray[np.float64],
    is_bad: NDArray[np.bool_],
    events: Sequence[Event],
    motion: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float32]]:
    """Return t of the response to each type of event so far, by least squares on boxcars, a line and the motion.

    Parameters
    ----------
    block_powers : (n_blocks, spatial) array
        Blood power of the blocks so far.
    times, is_bad, events
        As for :func:`activation_maps`.
    motion : (n_blocks,) array, optional
        Motion of the image within each block; by default it is not in the model.

    Returns
    -------
    dict
        Type -> t; without the types that have not changed yet, and empty while there are too few blocks.
    """
    good = np.flatnonzero(~is_bad)
    at = times[good]
    courses: dict[str, NDArray[np.float64]] = {}
    for event in events:
        during = ((at >= event.onset) & (at < event.onset + event.duration)).astype(float)
        courses[event.trial_type] = np.maximum(courses.get(event.trial_type, 0.0), during)
    courses = {name: course for name, course in courses.items() if np.ptp(course) > 0} if len(at) else {}
    moved = [motion[good]] if motion is not None and len(at) and np.ptp(motion[good]) > 0 else []
    design = np.stack([*courses.values(), np.ones(len(at)), at, *moved], axis=1)
    n_free = len(at) - design.shape[1]
    if not courses or n_free < LEAST_FREE:
        return {}
    values = _filled(block_powers[good].reshape(len(good), -1), np.zeros(len(good), bool))
    effects = np.linalg.lstsq(design, values)[0]
    variance = np.sum((values - design @ effects) ** 2, axis=0) / n_free
    of_effects = np.diag(np.linalg.pinv(design.T @ design))
    maps = {}
    for row, name in enumerate(courses):
        spread = np.sqrt(of_effects[row] * variance)
        t = np.divide(effects[row], spread, out=np.zeros(values.shape[1]), where=spread > 0)
        maps[name] = t.reshape(block_powers.shape[1:]).astype(np.float32)
    return maps


def smoothed_series(block_powers: NDArray[np.floating], sigmas: Sequence[float]) -> NDArray[np.float64]:
    """Return a series, (n_blocks, spatial), smoothed over its pixels by a Gaussian; pixels that are always 0 stay so.

    Parameters
    ----------
    block_powers : (n_blocks, spatial) array
        The series.
    sigmas : sequence of float
        Standard deviation along each spatial axis, in pixels.
    """
    from scipy.ndimage import gaussian_filter

    has_values = np.any(np.nan_to_num(block_powers) != 0, axis=0)
    weights = gaussian_filter(has_values.astype(float), sigmas)
    smooth = gaussian_filter(np.nan_to_num(block_powers.astype(np.float64)), (0, *sigmas))
    smooth = np.where(has_values, smooth / np.maximum(weights, 1e-12), 0)
    smooth[np.isnan(block_powers).all(axis=tuple(range(1, block_powers.ndim)))] = np.nan
    return smooth


def _import_nilearn() -> Any:
    try:
        import nilearn.glm
        import nilearn.glm.first_level
    except ImportError as error:
        raise OptionError(
            "activation maps require the package nilearn", remedy="run pip install nilearn"
        ) from error
    return nilearn.glm


def _design(
    times: NDArray[np.float64],
    is_bad: NDArray[np.bool_],
    events: Sequence[Event],
    confounds: Mapping[str, NDArray[np.float64]],
    hrf: str,
) -> Any:
    """Return the design matrix, a DataFrame."""
    import pandas as pd
    from nilearn.glm.first_level import make_first_level_design_matrix

    # Around their mean, so that the constant, the baseline of the change, is not extrapolated to an image at rest.
    known = {name: np.nan_to_num(values) for name, values in confounds.items()}
    columns = {
        name: values - values[~is_bad].mean() for name, values in known.items() if np.ptp(values[~is_bad]) > 0
    }
    for block in np.flatnonzero(is_bad):
        columns[f"bad_block_{block}"] = (np.arange(len(times)) == block).astype(float)
    regressors = np.stack(list(columns.values()), axis=1) if columns else None
    table = pd.DataFrame([vars(event) for event in events])
    return make_first_level_design_matrix(
        times,
        table,
        hrf_model=None if hrf == "boxcar" else hrf,
        drift_model="cosine",
        high_pass=_high_pass(events),
        add_regs=regressors,
        add_reg_names=list(columns) or None,
    )


def _filled(values: NDArray[np.floating], is_bad: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return a series, (n_blocks, n_pixels), with the mean of the good blocks where a pixel has no value, 0 without any."""
    is_known = np.isfinite(values)
    filled = np.where(is_known, values, 0).astype(np.float64)
    n_known = is_known[~is_bad].sum(axis=0)
    return np.where(is_known, filled, filled[~is_bad].sum(axis=0) / np.maximum(n_known, 1))


def _high_pass(events: Sequence[Event]) -> float:
    """Return the frequency in Hz below which cosines are drift."""
    in_order = sorted(events, key=lambda event: (event.trial_type, event.onset))
    pauses = [
        later.onset - earlier.onset
        for earlier, later in pairwise(in_order)
        if later.trial_type == earlier.trial_type
    ]
    period = max(pauses, default=math.inf)
    return min(SLOWEST_HZ, 1 / (PERIODS * period))


def _autocorrelation(values: NDArray[np.float64], design: NDArray[np.float64]) -> float:
    """Return the mean correlation of the noise of neighbouring blocks, without what the fit of the design adds to it."""
    left = np.linalg.qr(design)[0]
    noise = values - left @ (left.T @ values)
    energies = np.sum(noise**2, axis=0)
    is_known = energies > 1e-12 * np.sum(values**2, axis=0)
    if not is_known.any():
        return 0.0
    coefficients = np.sum(noise[1:] * noise[:-1], axis=0)[is_known] / energies[is_known]
    residual = np.eye(len(left)) - left @ left.T
    of_fit = np.trace(residual, offset=1) / np.trace(residual)
    return float(np.clip(np.mean(coefficients) - of_fit, 0.0, 0.9))


def _whitened(values: NDArray[np.float64], rho: float) -> NDArray[np.float64]:
    """Return columns whose noise is autoregressive of order 1 as columns of white noise."""
    return np.concatenate([np.sqrt(1 - rho**2) * values[:1], values[1:] - rho * values[:-1]])


def _at_other_times(response: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a response at all other times, shifted in a circle, (n_blocks, n_blocks - 1)."""
    return np.stack([np.roll(response, shift) for shift in range(1, len(response))], axis=1)


def _inflation(
    values: NDArray[np.float64], design: NDArray[np.float64], elsewhere: NDArray[np.float64]
) -> float:
    """Return the root mean square t of responses at other times in the residual of a design, at least 1.

    Parameters
    ----------
    values : (n_blocks, n_pixels) array
        Whitened series.
    design, elsewhere : (n_blocks, k) arrays
        Whitened design, and responses at other times. Those that are nearly a part of the design do not count.
    """
    basis = np.linalg.qr(design)[0]
    residual, elsewhere_residual = (columns - basis @ (basis.T @ columns) for columns in (values, elsewhere))
    energies, powers = np.sum(elsewhere_residual**2, axis=0), np.sum(residual**2, axis=0)
    counts, has_noise = energies > LEAST_APART * np.median(energies), powers > 0
    if not (counts.any() and has_noise.any()):
        return 1.0
    unit = elsewhere_residual[:, counts] / np.sqrt(energies[counts])
    squares = (unit.T @ residual[:, has_noise]) ** 2 / powers[has_noise]
    return max(1.0, math.sqrt((len(values) - basis.shape[1]) * float(squares.mean())))


def _effects(glm: Any, labels: Any, fitted: Mapping[Any, Any], design: Any, name: str) -> Any:
    weights = (design.columns == name).astype(float)
    return glm.compute_contrast(labels, fitted, weights, stat_type="t")


def _significant(p: NDArray[np.float64], tested: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the tested pixels that are significant at the false discovery rate."""
    from scipy.stats import false_discovery_control

    significant = np.zeros(len(p), bool)
    if tested.any():
        significant[tested] = false_discovery_control(p[tested]) <= FALSE_DISCOVERY_RATE
    return significant
