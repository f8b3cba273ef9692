"""Where a session reacts to events: a general linear model of its series, with autoregressive noise."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.tall_matrices import NEGLIGIBLE, TINY, cached_slices, slices_of
from usdenoise.sessions.design import (
    LEAST_FREE,
    Design,
    Event,
    column_basis,
    delayed,
    joined_events,
    response_of,
)
from usdenoise.sessions.regions import mean_course
from usdenoise.stack.sampling import RandomStream

NOISE_PIXELS = 1.5
"""Standard deviation, in pixels, of the Gaussian that smooths the autocorrelation of the noise. In strips 4 pixels wide with
an autocorrelation of 0.6 between others of 0.1, t has a standard deviation of 1.07, of 1.20 with one coefficient for the
image, and of 1.09 with one for each pixel (40 blocks, `python -m benchmarks.activation --noise`)."""

CLUSTER_T = 2.3
"""Absolute t above which pixels form clusters, as in FSL."""

NULL_DRAWS, RUN_BLOCKS = 499, 4
"""Draws of the null of the largest cluster, and mean number of blocks whose sign changes together in one."""

Images = Sequence[NDArray[np.floating]] | NDArray[np.floating]
"""One image for each block."""

MOST_RHO, RHO_STEP = 0.9, 0.02
"""Largest coefficient of the noise, and step to which coefficients are rounded."""

LONGEST_DELAY_S, DELAY_TILE = 8.0, 8
"""Longest delay of a response that is looked for, longer than to its peak in any species, and the side in pixels of the
tiles of each half of the image, which is several times the resolution."""

ALIKE_GAIN = 0.99
"""Gain of the likelihood over the largest one from which delays are alike."""

SIGNIFICANT = 0.05
"""Level of the tests of a delay, and of the doubts about an activation: the usual one."""


@dataclass(frozen=True)
class LinearModel:
    """Properties of the general linear model of a session.

    Attributes
    ----------
    n_responses : int
        Number of columns of the responses, which are the first ones.
    condition_number : float
        Condition number of the design, each of its columns scaled to the norm 1; 1e16 for columns that depend on each other.
    n_free : int
        Degrees of freedom of the noise.
    autocorrelation : float or None
        Median over the tested pixels of the correlation of the noise of neighbouring blocks; None without any.
    """

    n_responses: int
    condition_number: float
    n_free: int
    autocorrelation: float | None


@dataclass(frozen=True, repr=False)
class ActivationMap:
    """How the pixels react to one type of event, or to any type.

    Attributes
    ----------
    t : (spatial) float32 array or None
        t of the response; NaN in pixels without a series. None if several columns are tested at once.
    f : (spatial) float32 array or None
        F of the columns: the delays of a type with "fir:N", or the responses to all types. None if `t` is known.
    change : (spatial) or (N, spatial) float32 array, or None
        The response in per cent of the baseline, for "fir:N" at each delay; NaN outside the vessels. None for all types.
    active : (spatial) boolean array
        Pixels in vessels whose response is significant, in either direction.
    threshold : float or None
        Least absolute t, or F, of the active pixels; None without any.
    rule : str
        The rule by which they are significant, such as "fdr:0.05".
    expected : (n_blocks,) array
        The response that the model expects, without the drift.
    course : (n_blocks,) array
        Mean blood power of the active pixels in per cent of their mean; NaN without any.
    columns : tuple of str
        Columns of the model.
    model : LinearModel
        Properties of the model.
    correlations : mapping
        Measure of the motion of the tissue -> how it correlates with the events, from
        :func:`usdenoise.sessions.design.locked_correlation`; empty by default.
    clusters : tuple of float
        Mass of each cluster of active pixels; empty (the default) without a rule on clusters.
    smoothing_mm : float or None
        Full width of a Gaussian with which far more pixels would be active; None (the default) for none.
    n_active_smoothed : int or None
        Number of these pixels; None (the default) without such a width.
    """

    t: NDArray[np.float32] | None
    f: NDArray[np.float32] | None
    change: NDArray[np.float32] | None
    active: NDArray[np.bool_]
    threshold: float | None
    rule: str
    expected: NDArray[np.float64]
    course: NDArray[np.float64]
    columns: tuple[str, ...]
    model: LinearModel
    correlations: Mapping[str, float] = field(default_factory=dict)
    clusters: tuple[float, ...] = ()
    smoothing_mm: float | None = None
    n_active_smoothed: int | None = None

    @property
    def statistic(self) -> NDArray[np.float32]:
        """`t`, or `f` if several columns are tested."""
        values = self.f if self.t is None else self.t
        assert values is not None
        return values

    @property
    def images(self) -> dict[str, NDArray[np.float32]]:
        """The images that it has by their names: "t" or "f", and "change"."""
        known = {"t": self.t, "f": self.f, "change": self.change}
        return {name: image for name, image in known.items() if image is not None}

    @property
    def letter(self) -> str:
        """Name of the statistic, "t" or "F"."""
        return "F" if self.t is None else "t"

    def __repr__(self) -> str:
        """Describe the content in one line."""
        sign = "F" if self.t is None else "|t|"
        shown = math.floor(100 * (self.threshold or 0)) / 100
        least = "" if self.threshold is None else f", {sign} of {shown:.2f} or more"
        return f"<ActivationMap: {int(self.active.sum())} active pixels{least}>"


@dataclass(frozen=True)
class BlockSeries:
    """The blood power of the blocks of a session, or of one position of its probe, and their model.

    Attributes
    ----------
    images : sequence of (spatial) arrays
        Blood power of each block; NaN without data.
    in_vessels : (spatial) boolean array
        Pixels that are tested.
    design : Design
        The design, from :func:`usdenoise.sessions.design.design_of`.
    times, durations : (n_blocks,) arrays
        Middle and duration of each block, in s.
    """

    images: Images
    in_vessels: NDArray[np.bool_]
    design: Design
    times: NDArray[np.float64]
    durations: NDArray[np.float64]


@dataclass(frozen=True)
class FoundDelay:
    """The delay of a response that is common to the vessels.

    Attributes
    ----------
    delay_s : float
        The delay in s.
    is_rise : bool
        Whether most of the response is a rise, and not a fall.
    fall_s : float
        Delay with which a fall explains the series as well as the rise; NaN if none does.
    gain : float
        Gain of the likelihood over the gain with the delay of the designs.
    """

    delay_s: float
    is_rise: bool
    fall_s: float
    gain: float

    @property
    def words(self) -> str:
        """What the response is, in words."""
        words = f"a {'rise' if self.is_rise else 'fall'} with a delay of {self.delay_s:.2g} s"
        return words if math.isnan(self.fall_s) else f"{words} or a fall with one of {self.fall_s:.2g} s"


@dataclass(frozen=True)
class FittedSeries:
    """A linear model that is fitted to the series of all pixels; NaN where a pixel cannot be fitted.

    Attributes
    ----------
    statistics : mapping
        Type of event or contrast -> t (of one column) or F (of several), (spatial); "" -> F of all types.
    p : mapping
        The same names -> p for either direction, (spatial); 1 where a pixel cannot be fitted.
    effects : (n_responses, spatial) array
        Coefficients of the responses.
    baseline : (spatial) array
        Coefficient of the constant.
    autocorrelation : (spatial) array
        Correlation of the noise of neighbouring blocks.
    """

    statistics: Mapping[str, NDArray[np.float64]]
    p: Mapping[str, NDArray[np.float64]]
    effects: NDArray[np.float64]
    baseline: NDArray[np.float64]
    autocorrelation: NDArray[np.float64]


class _Estimator:
    """The design of pixels with a column for each of their missing blocks, and its estimators by autocorrelation.

    `_lags` are the lags that the residual is expected to have, and the correlations of neighbouring blocks of its noise.
    """

    def __init__(self, design: Design, missing: NDArray[np.bool_]) -> None:
        self._matrix = np.hstack([design.matrix, np.eye(len(missing))[:, missing]])
        self._left = column_basis(self._matrix)
        self.n_free = len(missing) - self._left.shape[1]
        self._of_rho: dict[int, tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]] = {}
        self.is_possible = design.is_fitted(~missing & ~design.is_bad, self.n_free)
        # Expected lags 0 and 1 of the residual R e, with R = I - Q Q^T, of noise e with the covariance rho^|k|: the sums
        # over k of rho^k times the diagonals k and -k of R and of R D R, where D shifts by one block
        q = self._left
        later, earlier = np.vstack([q[1:], 0 * q[:1]]), np.vstack([0 * q[:1], q[:-1]])
        power = -_diagonals(q, q)
        product = _diagonals(q @ (q.T @ later), q) - _diagonals(q, earlier) - _diagonals(later, q)
        power[0] += len(q)
        product[1] += len(q) - 1
        grid = np.arange(0, MOST_RHO + RHO_STEP, RHO_STEP)
        expected = np.polynomial.polynomial.polyval(grid, np.stack([power, product], axis=1))
        lags = np.maximum.accumulate(expected[1] / np.maximum(expected[0], NEGLIGIBLE))
        # Without neighbouring blocks nothing is known of the correlation, which is then taken to be 0.
        self._lags = np.where(np.ptp(lags) > 1e-6, lags, np.inf), grid

    def steps(self, lags: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the correlations of the noise, in RHO_STEP, with which residuals are expected to have some lags."""
        return np.asarray(np.rint(np.interp(lags, *self._lags) / RHO_STEP).astype(np.intp))

    def residual_lag(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return lag 1 over lag 0 of the residuals of some series, (n_blocks, m); NaN without noise."""
        residual = values - self._left @ (self._left.T @ values)
        energies = np.sum(residual**2, axis=0)
        is_noise = energies > NEGLIGIBLE * np.sum(values**2, axis=0)
        lagged = np.sum(residual[1:] * residual[:-1], axis=0)
        unknown = np.full_like(lagged, np.nan)
        return np.asarray(np.divide(lagged, energies, out=unknown, where=is_noise))

    def fit(
        self, values: NDArray[np.float64], step: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the coefficients of some series, (p, m), their whitened residuals, and their unit covariance."""
        rho = step * RHO_STEP
        if step not in self._of_rho:
            matrix = _whitened(self._matrix, rho)
            inverse = np.asarray(np.linalg.pinv(matrix), np.float64)
            self._of_rho[step] = matrix, inverse, inverse @ inverse.T
        matrix, inverse, covariance = self._of_rho[step]
        white = _whitened(values, rho)
        effects = inverse @ white
        residuals = white - matrix @ effects
        is_noise = np.sum(residuals**2, axis=0) > NEGLIGIBLE * np.sum(white**2, axis=0)
        return effects, np.where(is_noise, residuals, 0), covariance

    def null(
        self,
        values: NDArray[np.float64],
        step: int,
        signs: NDArray[np.floating],
        weights: NDArray[np.float64],
        has_t: bool,
    ) -> NDArray[np.float64]:
        """Return t, or F, of some rows of weights of the responses, in draws without activation, (n_draws, m).

        In a draw the responses have other signs in the blocks, (n_draws, n_blocks), and are compared with the residuals. It
        is infinite if they leave nothing of these.
        """
        noise = self.fit(values, step)[1]
        (matrix, inverse, _), (n_columns, n_responses) = self._of_rho[step], weights.shape
        if self.n_free <= n_columns:
            return np.full((len(signs), values.shape[1]), np.inf)
        noise /= np.maximum(np.linalg.norm(noise, axis=0), TINY)
        rows = (signs[:, None] * (weights @ inverse[:n_responses])).reshape(-1, len(values))
        rows -= (rows @ matrix) @ inverse
        own, upper = np.linalg.qr(rows.reshape(-1, n_columns, len(values)).swapaxes(1, 2))
        own *= np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None]
        rows = own.swapaxes(1, 2).reshape(rows.shape)
        explained = (rows.astype(np.float32) @ noise.astype(np.float32)).reshape(len(signs), n_columns, -1)
        energies = np.sum(explained**2, axis=1)
        left = np.maximum(1 - energies, NEGLIGIBLE) / (self.n_free - n_columns)
        return np.asarray(explained[:, 0] / np.sqrt(left) if has_t else energies / n_columns / left)


def fit_series(images: Images, design: Design) -> FittedSeries:
    """Fit a linear model with autoregressive noise to the series of each pixel.

    The noise is autoregressive of order 1. Its coefficient is the one whose residual is expected to have the measured
    correlation of neighbouring blocks, averaged by a Gaussian over the pixels around, so that vessels and parenchyma differ
    though a pixel has few blocks. The model is then fitted to whitened series.

    Parameters
    ----------
    images : sequence of (spatial) arrays
        Blood power of each block; NaN without data.
    design : Design
        The columns. A block in which a pixel has no data has a column in the model of this pixel.

    Returns
    -------
    FittedSeries
        Pixels without a series, or with too few blocks for the responses, are NaN.

    References
    ----------
    Worsley et al., "A general statistical analysis for fMRI data", NeuroImage 15, 2002.
    """
    from scipy.ndimage import gaussian_filter
    from scipy.special import fdtrc, stdtr

    shape, estimators, n_responses = images[0].shape, dict[bytes, _Estimator](), design.n_responses
    series, (lags, rho, baseline) = [image.reshape(-1) for image in images], np.full((3, *shape), np.nan)
    for pixels, values, estimator in _groups(series, design, estimators):
        lags.flat[pixels] = estimator.residual_lag(values)
    is_known = np.isfinite(lags)
    weight = gaussian_filter(is_known.astype(float), NOISE_PIXELS)
    lag = gaussian_filter(np.where(is_known, lags, 0), NOISE_PIXELS)
    lag = np.divide(lag, weight, out=np.zeros(shape), where=weight > NEGLIGIBLE).ravel()
    effects = np.full((n_responses, images[0].size), np.nan)
    statistics = {name: np.full(shape, np.nan) for name in design.tested}
    p = {name: np.ones(shape) for name in design.tested}
    seen = {name: weights for name, weights in design.tested.items() if np.isfinite(weights).all()}
    for all_pixels, all_values, estimator in _groups(series, design, estimators):
        # The correlation of the noise whose residual is expected to have this lag
        steps = estimator.steps(lag[all_pixels])
        rho.flat[all_pixels] = steps * RHO_STEP
        for step in np.unique(steps).tolist():
            is_of_step = steps == step
            pixels, values = all_pixels[is_of_step], all_values[:, is_of_step]
            found, residuals, covariance = estimator.fit(values, step)
            variance = np.sum(residuals**2, axis=0) / estimator.n_free
            effects[:, pixels], baseline.flat[pixels] = found[:n_responses], found[len(design.names) - 1]
            for name, weights in seen.items():
                of_unit = weights @ covariance[:n_responses, :n_responses] @ weights.T
                tested = weights @ found[:n_responses]
                n_columns, n_free, has_t = len(of_unit), estimator.n_free, design.has_t(name)
                if has_t:
                    value, spread = tested[0], np.sqrt(of_unit[0, 0] * variance)
                else:
                    value = np.sum(tested * (np.linalg.pinv(of_unit) @ tested), axis=0) / n_columns
                    spread = variance
                value = np.divide(value, spread, out=np.zeros_like(value), where=spread > 0)
                chance = 2 * stdtr(n_free, -np.abs(value)) if has_t else fdtrc(n_columns, n_free, value)
                statistics[name].flat[pixels] = value
                p[name].flat[pixels] = np.where(np.isfinite(value), chance, 1)
    return FittedSeries(statistics, p, effects.reshape(-1, *shape), baseline, rho)


def noise_correlation(pair: NDArray[np.float64], design: Design) -> tuple[float, int]:
    """Return the correlation of two series, (n_blocks, 2), without what a design explains, and its degrees of freedom.

    The residuals are whitened, each by its own autocorrelation. NaN is no data; the correlation is NaN without noise, or
    with fewer than LEAST_FREE degrees of freedom.
    """
    known = np.isfinite(pair)
    estimator, values = _Estimator(design, ~known.all(axis=1) & ~design.is_bad), np.where(known, pair, 0.0)
    lags = estimator.residual_lag(values)
    if estimator.n_free < LEAST_FREE or not np.isfinite(lags).all():
        return math.nan, estimator.n_free
    steps = estimator.steps(lags).tolist()
    noise = np.hstack([estimator.fit(values[:, [at]], step)[1] for at, step in enumerate(steps)])
    return float(noise[:, 0] @ noise[:, 1] / np.linalg.norm(noise, axis=0).prod()), estimator.n_free


def common_delay(all_series: Sequence[BlockSeries], events: Sequence[Event]) -> FoundDelay | None:
    """Return the delay with which the model explains most of the series of the vessels.

    The likelihood of the model of white noise is summed over the pixels, once over each half of the image, cut into tiles as
    a chessboard. A delay counts if each half has significant responses with the delay of the other half: where the noise of
    the halves is independent, the number of delays that are tried does not matter.

    Parameters
    ----------
    all_series : sequence of BlockSeries
        The series, of one or several positions of the probe, whose designs may have any delay.
    events : sequence of Event
        The events of the types that have the delay. The responses to other types are those of the designs.

    Returns
    -------
    FoundDelay or None
        None if the halves have no delay in common, it is not within the range that is tried, or one of them has no response
        with it; for free responses, too.
    """
    from scipy.special import chdtri

    # Of the position that sees most types
    design = max((series.design for series in all_series), key=lambda design: len(design.responses))
    moving = joined_events([event for event in events if event.modulation])
    types = {name: moving[name] for name in design.responses if name in moving}
    pauses = [np.diff([one.onset for one in each]).min() for each in types.values() if len(each) > 1]
    # In a periodic design a response that is late by more than half of the period is early
    step = float(np.median(np.diff(all_series[0].times)))
    number = math.floor(4 * min(LONGEST_DELAY_S, min(pauses, default=0.0) / 2) / step)
    if number < 1 or design.is_free:
        return None
    # At the edge of the range the likelihood may still rise: one block more shows whether it does
    delays = np.arange(-number - 4, number + 5) * step / 4
    first = (np.indices(all_series[0].in_vessels.shape) // DELAY_TILE).sum(axis=0) % 2 == 0
    halves = [
        [replace(one, in_vessels=one.in_vessels & half) for one in all_series] for half in (first, ~first)
    ]
    summed = np.sum([[_delay_gains(series, types, delays) for series in half] for half in halves], axis=1)
    gains, rising, total = summed[:, 0, 1:], summed[:, 1, 1:].sum(axis=0) > 0, summed[:, 0, 1:].sum(axis=0)

    def best(gain: NDArray[np.float64], is_tried: NDArray[np.bool_]) -> tuple[float, NDArray[np.intp]]:
        # Blocks with pauses between them do not tell some delays apart. Of equal ones, as in a periodic design, the shortest
        alike = np.flatnonzero(is_tried & (gain >= ALIKE_GAIN * gain[is_tried].max()))
        runs = np.split(alike, np.flatnonzero(np.diff(alike) > 1) + 1)
        run = min(reversed(runs), key=lambda run: abs(float(delays[run].mean())))
        return 0.0 if number + 4 in run else round(float(delays[run].mean()), 3), run

    # A rise with one delay may explain what a fall with another does
    is_tried, fall_s = rising == rising[total.argmax()], math.nan
    if rising.any() and not rising.all():
        (rise_s, rise), (late_s, fall) = (best(total, sign) for sign in (rising, ~rising))
        lead = gains[:, rise].max(axis=1) - gains[:, fall].max(axis=1)
        is_told = np.abs(lead) > np.maximum((1 - ALIKE_GAIN) * gains.max(axis=1), chdtri(1, SIGNIFICANT) / 2)
        if abs(rise_s - late_s) > step and abs(np.sum(np.sign(lead) * is_told)) < 2:
            is_tried, fall_s = rising, late_s
    delay, run = best(total, is_tried)
    of_halves = [best(gain, is_tried)[0] for gain in gains]
    if abs(np.diff(of_halves)) > step / 2 or run[0] == 0 or run[-1] == len(delays) - 1:
        return None
    name = "" if len(types) > 1 else next(iter(types))
    for half, late in zip(halves, reversed(of_halves), strict=True):
        maps = activation_maps([_late(series, types, late) for series in half], f"fdr:{SIGNIFICANT}")
        if not any(of_series[name].active.any() for of_series in maps):
            return None
    return FoundDelay(delay, bool(rising[run[0]]), fall_s, float(total[run].max() / summed[:, 0, 0].sum()))


def _late(series: BlockSeries, types: Mapping[str, Sequence[Event]], delay: float) -> BlockSeries:
    """Return a series with a design that has a delay in s of some types of events."""
    design, matrix = series.design, series.design.matrix.copy()
    for name in types.keys() & design.responses.keys():
        late = delayed(types[name], delay)
        matrix[:, design.responses[name]] = response_of(late, series.times, series.durations, design.hrf)
    return replace(series, design=replace(design, matrix=matrix))


def _delay_gains(
    series: BlockSeries, types: Mapping[str, Sequence[Event]], delays: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how the logarithm of the likelihood grows by some types, (2, 1 + n_delays), as given and by each delay.

    First of all pixels, then of those that rise less those that fall.
    """
    images, design = series.images, series.design
    columns = [design.responses[name].start for name in types if name in design.responses]
    others = column_basis(np.delete(design.matrix, columns, axis=1))

    def own(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(values - others @ (others.T @ values))

    with_delays = [series, *(_late(series, types, delay) for delay in delays.tolist())]
    responses = [own(each.design.matrix[:, columns]) for each in with_delays]
    bases = [(column_basis(each), each.sum(axis=1)) for each in responses]
    pixels, gains = np.flatnonzero(series.in_vessels), np.zeros((2, len(bases)))
    for of_tile in cached_slices(len(pixels), len(images)):
        powers = np.stack([image.reshape(-1)[pixels[of_tile]] for image in images]).astype(np.float64)
        known = np.isfinite(powers[~design.is_bad]).all(axis=0)
        left = own(np.where(np.isfinite(powers), powers, 0)[:, known])
        energies = np.maximum(np.sum(left**2, axis=0), TINY)
        for at, (basis, course) in enumerate(bases):
            explained = np.minimum(np.sum((basis.T @ left) ** 2, axis=0) / energies, 1 - NEGLIGIBLE)
            gain = -np.log1p(-explained)
            gains[:, at] += gain.sum(), gain @ np.sign(course @ left)
    # Of one pixel in a quarter of each tile, as neighbours are not independent
    return gains * np.count_nonzero(~design.is_bad) / 2 * (2 / DELAY_TILE) ** 2


TestedSeries = tuple[BlockSeries, FittedSeries, NDArray[np.bool_]]
"""A series, its model, and the pixels that are tested, (spatial)."""

ActivationMaps = Mapping[str, ActivationMap]
"""Type of event -> its map, and "" -> the map for any type if there are several."""


def activation_maps(
    all_series: Sequence[BlockSeries], rule: str = "fdr:0.05", seed: int = 0
) -> list[ActivationMaps]:
    """Fit a linear model to each series of a session, and return a map for each type of event and contrast, and any type.

    Parameters
    ----------
    all_series : sequence of BlockSeries
        The series of a session: one, or one for each position of its probe. A response is significant among the tested
        pixels of all of them.
    rule : str
        From where on a response is significant: "fdr:Q" (false discovery rate), "bonferroni:P" (family-wise error), or "t:X"
        (F of several columns: the same p as of this t), or "cluster:P" (family-wise error of the mass of clusters); by
        default "fdr:0.05".
    seed : int
        Seed of the null of clusters; 0 by default.

    Returns
    -------
    list of dict
        For each series: type of event or contrast -> its map, and "" -> the map for any of several types. A map is NaN for a
        type that no good block sees, and all are if the noise has fewer than LEAST_FREE degrees of freedom.

    References
    ----------
    Friston et al., "Statistical parametric maps in functional imaging: a general linear approach", Human Brain Mapping 2,
    1995. Benjamini and Hochberg, "Controlling the false discovery rate", J. R. Stat. Soc. B 57, 1995. Bullmore et al.,
    "Global, voxel, and cluster tests, by theory and permutation", IEEE Trans. Med. Imaging 18, 1999.
    """
    tested = []
    for series in all_series:
        fitted = fit_series(series.images, series.design)
        tested.append((series, fitted, series.in_vessels & np.isfinite(fitted.baseline)))
    names = [*all_series[0].design.tested]
    active = {name: _active_pixels(name, tested, rule, seed) for name in names}
    return [
        {name: _map_of(name, of_series, active[name][number], rule) for name in names}
        for number, of_series in enumerate(tested)
    ]


def _active_pixels(name: str, tested: Sequence[TestedSeries], rule: str, seed: int) -> NDArray[np.bool_]:
    """Return the pixels of each series that are significant among all, (n_series, spatial), by their values or by clusters.

    The null of clusters is the largest mass over all series, in draws with the same signs in the blocks of each.
    """
    from scipy.special import fdtri, stdtr

    has_t, n_free = tested[0][0].design.has_t(name), [series.design.n_free for series, *_ in tested]
    values = np.stack([np.where(pixels, fitted.statistics[name], np.nan) for _, fitted, pixels in tested])
    active, (kind, _, level) = np.asarray(np.isfinite(values)), rule.partition(":")
    if kind != "cluster":
        p = np.stack([fitted.p[name] for _, fitted, _ in tested])[active]
        of_pixels = np.repeat(n_free, [of_series.sum() for of_series in active])
        active[active] = significant(p, rule, of_pixels, values[active] if has_t else None)
        return active
    masses, largest = np.zeros(values.shape), np.zeros(NULL_DRAWS)
    for number, of_series in enumerate(tested):
        if not active[number].any():
            continue
        n_columns, least = len(of_series[0].design.tested[name]), CLUSTER_T
        if not has_t:
            least = float(fdtri(n_columns, n_free[number], 1 - 2 * stdtr(n_free[number], -CLUSTER_T)))
        masses[number] = cluster_masses(np.nan_to_num(values[number])[None], least)[0][0]
        for draws, maps in _null_maps(name, of_series, seed):
            of_maps = cluster_masses(maps, least)[0].reshape(len(maps), -1).max(axis=1)
            largest[draws] = np.maximum(largest[draws], of_maps)
    # The least mass that at most this part of the draws, the data being one of them, reach
    return np.asarray(masses > np.sort(largest)[-math.floor(float(level) * (NULL_DRAWS + 1))])


def _null_maps(name: str, of_series: TestedSeries, seed: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield draws of the null, and maps of t or F in them, (n_draws, spatial), 0 outside the tested pixels."""
    series, fitted, pixels = of_series
    weights, has_t = series.design.tested[name], series.design.has_t(name)
    changes = RandomStream.NULL_SIGNS.generator(seed).random((len(series.images), NULL_DRAWS))
    signs = (-1.0) ** np.cumsum(changes < 1 / RUN_BLOCKS, axis=0).T
    known, numbers = [image[pixels] for image in series.images], np.flatnonzero(pixels)
    estimators = dict[bytes, _Estimator]()
    steps = np.rint(fitted.autocorrelation[pixels] / RHO_STEP).astype(int)
    # Draws in parts that take no more memory than the series
    for draws in slices_of(NULL_DRAWS, len(known)):
        maps = np.zeros((len(signs[draws]), pixels.size), np.float32)
        for of_group, values, estimator in _groups(known, series.design, estimators):
            for step in np.unique(steps[of_group]).tolist():
                is_of_step = steps[of_group] == step
                drawn = estimator.null(values[:, is_of_step], step, signs[draws], weights, has_t)
                maps[:, numbers[of_group[is_of_step]]] = drawn
        yield draws, maps.reshape(-1, *pixels.shape)


def cluster_masses(
    maps: NDArray[np.floating], least: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mass of the cluster of each pixel, 0 outside clusters, and the mass of each cluster.

    Parameters
    ----------
    maps : (n_maps, spatial) array
        t or F of some maps.
    least : float
        Absolute value above which pixels of one sign that share a face are a cluster; its mass is their sum.
    """
    from scipy.ndimage import generate_binary_structure, label

    faces = generate_binary_structure(maps.ndim + 1, 1)
    faces[[0, 2]] = faces[:, [0, 2]] = False
    labels = label(np.stack([maps > least, maps < -least]), faces)[0].max(axis=0)
    masses = np.bincount(labels.ravel(), np.where(labels > 0, np.abs(maps), 0).ravel()).astype(np.float64)
    return masses[labels], masses[1:]


def _map_of(name: str, of_series: TestedSeries, active: NDArray[np.bool_], rule: str) -> ActivationMap:
    """Return the map of a type of event, or ("") of any type, from its active pixels."""
    series, fitted, tested = of_series
    design, change, rho = series.design, None, fitted.autocorrelation[tested]
    if name:
        baseline = np.where(tested & (fitted.baseline > 0), fitted.baseline, np.nan)
        effects = np.tensordot(design.tested[name], fitted.effects, 1)
        change = (100 * effects / baseline).astype(np.float32)
        change = change if design.is_free else change[0]
    values, has_t = fitted.statistics[name].astype(np.float32), design.has_t(name)
    of_clusters = np.where(active & rule.startswith("cluster"), values, 0)
    course = mean_course(np.stack([image[active] for image in series.images]))
    return ActivationMap(
        t=values if has_t else None,
        f=None if has_t else values,
        change=change,
        active=active,
        threshold=float(np.abs(values[active]).min()) if active.any() else None,
        rule=rule,
        expected=np.sum([design.expected[one] for one in ([name] if name else design.shares)], axis=0),
        course=100 * course / np.nanmean(course[~design.is_bad]) if active.any() else course,
        columns=design.names,
        model=LinearModel(
            n_responses=design.n_responses,
            condition_number=min(design.condition_number, 1e16),
            n_free=design.n_free,
            autocorrelation=float(np.median(rho)) if rho.size else None,
        ),
        clusters=tuple(cluster_masses(of_clusters[None], 0.0)[1].tolist()),
    )


def significant(
    p: NDArray[np.float64], rule: str, n_free: NDArray[np.intp] | int, t: NDArray[np.floating] | None = None
) -> NDArray[np.bool_]:
    """Return which of some tests are significant.

    Parameters
    ----------
    p : (n,) array
        p of each.
    rule : str
        As for :func:`activation_maps`.
    n_free : int or (n,) array of int
        Degrees of freedom, for the p of a t.
    t : (n,) array, optional
        t of each, for a rule on t; by default the p of this t counts.
    """
    from scipy.special import stdtr
    from scipy.stats import false_discovery_control

    kind, _, level = rule.partition(":")
    if not p.size:
        return np.zeros(0, bool)
    if kind == "fdr":
        is_significant = false_discovery_control(p) <= float(level)
    elif kind == "bonferroni":
        is_significant = p <= float(level) / p.size
    elif t is None:
        is_significant = p <= 2 * stdtr(n_free, -float(level))
    else:
        is_significant = np.abs(t) >= float(level)
    return np.asarray(is_significant, bool)


def rule_words(rule: str) -> str:
    """Return a rule of significance in words."""
    kind, level = rule.split(":")
    return {
        "fdr": f"false discovery rate {level}",
        "bonferroni": f"family-wise error {level}, Bonferroni",
        "cluster": f"family-wise error {level} of the mass of clusters with |t| above {CLUSTER_T}, {NULL_DRAWS} draws",
        "t": f"as given, |t| = {level} or the same p, not corrected for the number of pixels",
    }[kind]


def smoothed_series(block_powers: NDArray[np.floating], sigmas: Sequence[float]) -> NDArray[np.float64]:
    """Return a series, (n_blocks, spatial), smoothed over its pixels by a Gaussian; pixels that are always 0 stay so.

    The mean of each pixel and the changes from it are smoothed apart, each over the pixels that have them: a vessel
    without data in some blocks changes nothing in its neighbours. A pixel without data in a block is NaN in it.

    Parameters
    ----------
    block_powers : (n_blocks, spatial) array
        The series.
    sigmas : sequence of float
        Standard deviation along each spatial axis, in pixels.
    """
    from scipy.ndimage import gaussian_filter

    values = block_powers.astype(np.float64)
    is_known = np.isfinite(values)
    has_values = np.any(np.where(is_known, values, 0) != 0, axis=0)
    counts = np.maximum(np.count_nonzero(is_known, axis=0), 1)
    mean = np.sum(values, axis=0, where=is_known) / counts
    counted = is_known & has_values
    weights = gaussian_filter(counted.astype(float), (0, *sigmas))
    changes = gaussian_filter(np.where(counted, values - mean, 0), (0, *sigmas)) / np.maximum(weights, 1e-12)
    weight = np.maximum(gaussian_filter(has_values.astype(float), sigmas), 1e-12)
    of_mean = gaussian_filter(mean, sigmas) / weight
    smooth: NDArray[np.float64] = np.where(has_values, of_mean + changes, 0)
    smooth[~is_known] = np.nan
    return smooth


def _groups(
    series: Sequence[NDArray[np.floating]], design: Design, estimators: dict[bytes, _Estimator]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64], _Estimator]]:
    """Yield pixels without data in the same blocks, their series, (n_blocks, m), and their estimator, tile by tile.

    Pixels whose series does not change, or has too few blocks for the responses, are in none.
    """
    is_bad = design.is_bad
    if is_bad.all():
        return
    for tile in cached_slices(series[0].size, len(series)):
        powers = np.stack([image[tile] for image in series]).astype(np.float64)
        is_known = np.isfinite(powers)
        counts = np.maximum(is_known[~is_bad].sum(axis=0), 1)
        values = np.where(is_known, powers, 0)
        # A missing block has a column, so that any value does. The mean of the good ones keeps the scale.
        values = np.where(is_known, values, values[~is_bad].sum(axis=0) / counts)
        changing = np.flatnonzero(np.ptp(values[~is_bad], axis=0) > 0)
        missing = ~is_known[:, changing] & ~is_bad[:, None]
        groups: dict[bytes, list[int]] = {}
        for number, key in enumerate(map(bytes, np.packbits(missing, axis=0).T)):
            groups.setdefault(key, []).append(number)
        for key, numbers in groups.items():
            if key not in estimators:
                estimators[key] = _Estimator(design, missing[:, numbers[0]])
            if estimators[key].is_possible:
                pixels = changing[numbers]
                yield tile.start + pixels, values[:, pixels], estimators[key]


def _diagonals(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums over the diagonals k and -k of a b^T, for k from 0 to n - 1, of (n, m) arrays."""
    n = len(a)
    spectra = (np.fft.rfft(one, 2 * n, axis=0) for one in (a, b))
    sums = np.fft.irfft(np.sum(next(spectra).conj() * next(spectra), axis=1), 2 * n)
    return np.asarray(sums[:n] + np.concatenate([[0.0], sums[:n:-1]]))


def _whitened(values: NDArray[np.float64], rho: float) -> NDArray[np.float64]:
    """Return columns whose noise is autoregressive of order 1 as columns of white noise."""
    return np.concatenate([np.sqrt(1 - rho**2) * values[:1], values[1:] - rho * values[:-1]])
