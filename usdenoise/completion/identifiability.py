"""Which ranks a sample of the entries determines."""

from usdenoise.errors import OptionError
from usdenoise.stack.sampling import EntrySample


def check_rank_fits(shape: tuple[int, int], rank: int) -> None:
    """Check that a matrix of this shape can have this rank.

    Raises
    ------
    OptionError
        If it cannot.
    """
    if rank > min(shape):
        raise OptionError(
            f"rank {rank} is above min(n_pixels, n_frames) = {min(shape)}; lower --rank or widen --frames"
        )


def check_rank(shape: tuple[int, int], rank: int, sample: EntrySample) -> None:
    """Check that a rank fits the matrix and that the sample can determine it.

    Raises
    ------
    OptionError
        If the rank is above a dimension, or above the number of samples that an average row or column
        has, or if the factors have more unknowns than there are samples.
    """
    n_pixels, n_frames = shape
    check_rank_fits(shape, rank)
    if not determines(shape, rank, sample.n_fitted):
        possible = highest_rank(shape, sample.n_fitted)
        advice = (
            f"lower --rank to {possible} or raise --sampling"
            if possible
            else "raise --sampling, no rank is determined by so few"
        )
        raise OptionError(
            f"{sample.n_fitted} samples of {n_pixels} pixels x {n_frames} frames are too few for rank {rank}; "
            + advice
        )


def determines(shape: tuple[int, int], rank: int, n_fitted: int) -> bool:
    """Whether the samples are at least as many as the unknowns, overall and in an average row and column."""
    n_pixels, n_frames = shape
    unknowns = rank * (n_pixels + n_frames - rank)
    return n_fitted >= unknowns and n_fitted >= rank * max(n_pixels, n_frames)


def highest_rank(shape: tuple[int, int], n_fitted: int) -> int:
    """The highest rank that so many samples determine; 0 where they do not determine any."""
    ranks = range(1, min(shape) + 1)
    return max((rank for rank in ranks if determines(shape, rank, n_fitted)), default=0)
