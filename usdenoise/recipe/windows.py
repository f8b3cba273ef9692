"""Filter a long acquisition in windows of frames, each with a clutter subspace of its own."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from usdenoise.completion.solve import Iteration
from usdenoise.errors import OptionError
from usdenoise.images.power_doppler import power_doppler
from usdenoise.options.denoise_options import DenoiseOptions
from usdenoise.recipe.denoise import denoise
from usdenoise.recipe.result import DenoiseResult
from usdenoise.stack.acquisition import Acquisition
from usdenoise.system.blas_threads import available_threads

_FITTED_SHARE = 0.98
"""Share of the sampled entries that is fitted, with a margin: 1 % is held out."""

TOGETHER_ENTRIES = 1 << 24
"""Entries of the windows that are in memory at a time, if there are several: larger windows have enough work for all
threads, and their memory adds up."""


@dataclass(frozen=True)
class Window:
    """Consecutive frames that are filtered together.

    Attributes
    ----------
    start, stop : int
        First frame, and the one after the last.
    complete : bool
        Whether it has all frames of a window. The last one may be shorter, or a few frames longer.
    """

    start: int
    stop: int
    complete: bool

    @property
    def n_frames(self) -> int:
        """Number of frames."""
        return self.stop - self.start

    @property
    def middle(self) -> float:
        """Mean time of its frames, counted in frames from the first one of the acquisition."""
        return (self.start + self.stop - 1) / 2


@dataclass(frozen=True)
class FilteredWindow:
    """A window, filtered.

    Attributes
    ----------
    window : Window
        Its frames.
    result : DenoiseResult
        The filtered stack of these frames.
    first : int
        Number of the first frame of the estimate: before the window where that is too short by itself.
    """

    window: Window
    result: DenoiseResult
    first: int

    @property
    def is_bad(self) -> bool:
        """Whether so many of its frames are bad that none was left out."""
        return self.result.frame_quality.is_bad


def cut_into_windows(
    n_frames: int, length: int, stride: int | None = None, shortest: int = 1
) -> list[Window]:
    """Return the windows of an acquisition.

    If whole windows do not reach the last frame, a shorter window starts a stride after the last of them. If it
    would have fewer than `shortest` frames, the last whole window takes the remaining frames instead.

    Parameters
    ----------
    n_frames : int
        Frames of the acquisition.
    length : int
        Frames of a window.
    stride : int, optional
        Frames from one window to the next, at most `length`; by default `length`.
    shortest : int
        Fewest frames of a window of its own, at least 1; by default 1. :func:`shortest_window` gives it.

    Returns
    -------
    list of Window
        Together they cover every frame.

    Raises
    ------
    OptionError
        If the acquisition is shorter than a window.
    """
    step = length if stride is None else stride
    if n_frames < length:
        raise OptionError(
            f"window {length} is longer than the {n_frames} frames of the stack; lower --window"
        )
    windows = [Window(start, start + length, True) for start in range(0, n_frames - length + 1, step)]
    last = windows[-1]
    if last.stop == n_frames:
        return windows
    if n_frames - (last.start + step) < shortest:
        return [*windows[:-1], replace(last, stop=n_frames)]
    return [*windows, Window(last.start + step, n_frames, False)]


def shortest_window(options: DenoiseOptions) -> int:
    """Return the number of frames below which a window cannot be filtered, to be given to :func:`cut_into_windows`.

    The sample of very few frames determines no component, so no rank can be chosen automatically. A window that is
    too short for a given rank or cutoff can be filtered, together with frames before it: see :func:`filter_windows`.

    Parameters
    ----------
    options : DenoiseOptions
        Options of each window.
    """
    if options.method == "svd" or _components_needed(options):
        return 1
    return _frames_that_determine(1, options)


def filter_windows(
    read: Callable[[int, int], Acquisition],
    windows: list[Window],
    options: DenoiseOptions,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Iterator[FilteredWindow]:
    """Filter each window of an acquisition by itself, several small ones at a time.

    The next windows are filtered while the result of one is used. A window that is too short for the rank that was
    given is filtered together with frames before it, and only its own frames are returned.

    Parameters
    ----------
    read : callable
        Returns the frames [start, stop) as an acquisition. It is called in one thread.
    windows : list of Window
        From :func:`cut_into_windows`.
    options : DenoiseOptions
        Options of each window; automatic ones are chosen for each.
    on_iteration : callable, optional
        Called with each line of the trace of each window, in the order of time.

    Yields
    ------
    FilteredWindow
        In the order of time. The result does not depend on the number of threads.
    """
    threads = options.threads or available_threads()

    def filtered(window: Window, first: int, acquisition: Acquisition, n_held: int) -> FilteredWindow:
        share = max(1, threads // n_held)
        own = replace(_options_of(options, first, window.stop), threads=share)
        result = denoise(acquisition, options=own, in_place=True)
        result = replace(result, options=replace(result.options, threads=options.threads))
        whole = result.acquisition.n_frames == window.n_frames
        return FilteredWindow(window, result if whole else _last_frames(result, window.n_frames), first)

    waiting: deque[Future[FilteredWindow]] = deque()

    def next_one() -> FilteredWindow:
        done = waiting.popleft().result()
        if on_iteration is not None and done.result.solution is not None:
            for line in done.result.solution.trace:
                on_iteration(line)
        return done

    pool, n_held = ThreadPoolExecutor(threads), 1
    try:
        for window in windows:
            while len(waiting) >= n_held:
                yield next_one()
            first = min(window.start, max(0, window.stop - _least_frames(options)))
            acquisition = read(first, window.stop)
            # One for each thread, and one that is read meanwhile.
            n_held = min(max(1, TOGETHER_ENTRIES // acquisition.iq.size), threads + 1, len(windows))
            waiting.append(pool.submit(filtered, window, first, acquisition, n_held))
            del acquisition
        while waiting:
            yield next_one()
    finally:
        # Whoever interrupts does not wait for the windows that are being filtered.
        pool.shutdown(wait=False, cancel_futures=True)


def _options_of(options: DenoiseOptions, first: int, stop: int) -> DenoiseOptions:
    """Return options whose bad frames are counted from the first frame of a window."""
    if isinstance(options.bad_frames, str):
        return options
    own = tuple(frame - first for frame in options.bad_frames if first <= frame < stop)
    return replace(options, bad_frames=own or "keep")


def _least_frames(options: DenoiseOptions) -> int:
    """Return the number of frames below which the given rank and cutoffs are impossible."""
    needed = _components_needed(options)
    return max(2, needed if options.method == "svd" else _frames_that_determine(needed, options))


def _components_needed(options: DenoiseOptions) -> int:
    """Return the number of components that the given rank and cutoffs need; 0 where all are automatic."""
    given = [
        value
        for value in (options.rank, options.low_cutoff, options.high_cutoff)
        if not isinstance(value, str)
    ]
    return max(given, default=0) + (0 if isinstance(options.low_cutoff, str) else 1)


def _frames_that_determine(n_components: int, options: DenoiseOptions) -> int:
    """Return the number of frames whose sample determines this number of components."""
    return -int(-n_components // (_FITTED_SHARE * options.sampling))


def _last_frames(result: DenoiseResult, n_frames: int) -> DenoiseResult:
    stack = result.acquisition
    time = stack.axes.index("t")
    index = tuple(slice(-n_frames, None) if axis == time else slice(None) for axis in range(stack.iq.ndim))
    left_out = result.frame_quality.left_out
    used = np.ones(n_frames, bool) if left_out is None else ~left_out[-n_frames:]
    # An acquisition has two frames at least: of a single frame only the power is that of the frame.
    power = power_doppler(np.compress(used if used.any() else ~used, stack.iq[index], axis=time), time)
    kept = replace(stack, iq=stack.iq[index]) if n_frames > 1 else stack
    return replace(result, acquisition=kept, power_doppler=power)
