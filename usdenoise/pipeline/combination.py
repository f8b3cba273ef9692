"""The combination of blocks: their measures add up to the measures of the stack."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usdenoise.linalg.lag_sums import LagSums, boundary_products, pair_counts
from usdenoise.pipeline.block_filter import BlockFilter, Measures


def combine(blocks: Iterable[Measures], plan: BlockFilter) -> Measures:
    """Return the measures of a stack from the measures of its blocks, in the order of time.

    The sums of two neighbouring blocks miss the products of a frame of the first with a frame of the second. They are
    made of the last frames of the one and the first of the other.

    Parameters
    ----------
    blocks : iterable of Measures
        Measures of the blocks.
    plan : BlockFilter
        The filter of the blocks.
    """
    total: Measures | None = None
    coefficients, observed = [], []
    for block in blocks:
        coefficients.append(block.coefficients)
        observed.append(block.observed)
        if total is None:
            total = block
        else:
            _add(total, block, plan)
    assert total is not None
    total.coefficients = np.concatenate(coefficients)
    total.observed = _bits(observed, list(map(len, coefficients)))
    return total


def _add(total: Measures, block: Measures, plan: BlockFilter) -> None:
    """Add the block that follows to a total."""
    parts = plan.parts(total.stop - total.last.shape[1], total.stop)
    total.sums += block.sums
    total.sums += boundary_products(total.last, block.first, plan.n_lags, parts)
    total.power += block.power
    total.kept_power += block.kept_power
    total.n_unobserved += block.n_unobserved
    if total.counts is not None:
        assert block.counts is not None
        assert total.last_seen is not None
        assert block.first_seen is not None
        assert block.last_seen is not None
        total.counts += block.counts
        total.counts += boundary_products(total.last_seen, block.first_seen, plan.n_lags, parts)
        total.last_seen = _ends(total.last_seen, block.last_seen, plan.n_lags - 1)
    total.last = _ends(total.last, block.last, plan.n_lags - 1)
    total.stop = block.stop


def _ends(before: NDArray[Any], last: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the last frames of two neighbouring blocks; a short block has fewer than `count`."""
    return last if last.shape[1] >= count else np.concatenate([before, last], axis=1)[:, -count:]


def _bits(masks: list[NDArray[np.uint8] | None], lengths: list[int]) -> NDArray[np.uint8] | None:
    """Return the bit masks of blocks together; None if all of their entries are observed."""
    width = max((mask.shape[1] for mask in masks if mask is not None), default=0)
    if width == 0:
        return None
    whole = [
        np.full((n, width), 255, np.uint8) if mask is None else mask
        for mask, n in zip(masks, lengths, strict=True)
    ]
    return np.concatenate(whole)


def lag_sums_of(measures: Measures, plan: BlockFilter) -> LagSums:
    """Return the lags of the measures of a stack, with their numbers."""
    if measures.counts is not None:
        return LagSums(measures.sums, measures.counts)
    assert plan.n_frames is not None
    used = None if plan.excluded is None else ~plan.excluded
    return LagSums(measures.sums, pair_counts(plan.n_frames, plan.n_lags, used)[:, None])
