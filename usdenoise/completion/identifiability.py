"""The ranks that a sample of the entries determines."""

from usdenoise.errors import OptionError


def check_rank_fits(shape: tuple[int, int], rank: int) -> None:
    """Check that a matrix of this shape can have this rank.

    Parameters
    ----------
    shape : (int, int)
        (n_pixels, n_frames).
    rank : int
        Number of components.

    Raises
    ------
    OptionError
        If it cannot.
    """
    if rank > min(shape):
        raise OptionError(
            f"rank {rank} is above the number of {'frames' if shape[1] <= shape[0] else 'pixels'}, {min(shape)}",
            remedy="lower {rank} or widen {frames}",
        )


def check_rank(shape: tuple[int, int], rank: int, n_fitted: int) -> None:
    """Check that a rank fits the matrix, and that the sample determines it.

    Parameters
    ----------
    shape : (int, int)
        (n_pixels, n_frames).
    rank : int
        Number of components.
    n_fitted : int
        Number of fitted entries.

    Raises
    ------
    OptionError
        If the rank is above a dimension or above the number of samples of an average row or column, or if the
        factors have more unknowns than the sample has entries.
    """
    n_pixels, n_frames = shape
    check_rank_fits(shape, rank)
    if not determines(shape, rank, n_fitted):
        if possible := highest_rank(shape, n_fitted):
            remedy = f"lower {{rank}} to {possible} or raise {{sampling}}"
        elif n_pixels == 1:
            # All of its entries are as many as the unknowns, and some are held out.
            remedy = "give a stack of several pixels"
        else:
            remedy = "raise {sampling}: these samples determine no rank"
        raise OptionError(
            f"{n_fitted} samples of {n_pixels} pixels x {n_frames} frames are too few for rank {rank}",
            remedy=remedy,
        )


def determines(shape: tuple[int, int], rank: int, n_fitted: int) -> bool:
    """Return whether there are at least as many samples as unknowns, overall and in an average row and column."""
    n_pixels, n_frames = shape
    unknowns = rank * (n_pixels + n_frames - rank)
    return n_fitted >= unknowns and n_fitted >= rank * max(n_pixels, n_frames)


def highest_rank(shape: tuple[int, int], n_fitted: int) -> int:
    """Return the highest rank that `n_fitted` samples determine, 0 where they determine none."""
    ranks = range(1, min(shape) + 1)
    return max((rank for rank in ranks if determines(shape, rank, n_fitted)), default=0)
