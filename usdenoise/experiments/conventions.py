"""What the paper leaves open in every 10 x 10 experiment: the start, and the convention of the gradient."""

from collections.abc import Mapping
from enum import StrEnum


class Start(StrEnum):
    """First factor of a run."""

    SPECTRAL = "spectral"
    """Leading eigenpairs of the mean of y_i A_i, computed from the measurements as in the main text."""

    SVD = "svd"
    """Leading singular triples of the mean of y_i A_i, which have no sign: every column of X is in use.

    The mean has as many negative as positive eigenvalues beyond the leading ones. The spectral start has columns of
    zeros in their place, and these never move: its search rank is the number of the positive ones.
    """

    APPENDIX = "appendix"
    """Q S^(1/2) + 0.1 Gaussian, the formula of the appendix, which knows M* = Q S Q^T."""

    SMALL = "small"
    """1e-12 Gaussian, the start of the other methods in some experiments."""


class Convention(StrEnum):
    """Gradient that the step multiplies, in terms of G = 2/m sum_i (<A_i, M> - y_i) A_i at the estimate M."""

    OF_X = "f(X)"
    """The derivative (G + G^T) X of f(X), which is 4/m sum_i (<A_i, X X^T> - y_i) A_i X for symmetric A_i.

    The symmetric and the general form of A_i give the same f(X), and so the same gradient.
    """

    OF_BOTH_SYMMETRIC = "(U, V), symmetric A_i"
    """G V and G^T U, with 2/m, from equal factors. With symmetric A_i both factors stay equal.

    For Hermitian A_i and a complex X it is the Wirtinger derivative of f(X) with respect to the conjugate of X.
    """

    OF_BOTH_GENERAL = "(U, V), general A_i"
    """The same with the A_i as drawn, which moves the two factors apart."""


Tried = Mapping[Convention, tuple[Start, ...]]
"""Conventions that are tried, each with its starts. The first convention with its first start is the paper's reading."""

STARTS = (Start.SPECTRAL, Start.APPENDIX, Start.SVD)

MAIN_TEXT: Tried = {
    Convention.OF_X: STARTS,
    Convention.OF_BOTH_SYMMETRIC: STARTS[:2],
    Convention.OF_BOTH_GENERAL: STARTS[:2],
}
"""The start that the main text describes comes first."""

APPENDIX: Tried = {one: (Start.APPENDIX, Start.SPECTRAL, *starts[2:]) for one, starts in MAIN_TEXT.items()}
"""The start that the appendix describes comes first."""

HERMITIAN: Tried = {
    Convention.OF_BOTH_SYMMETRIC: APPENDIX[Convention.OF_X],
    Convention.OF_X: APPENDIX[Convention.OF_BOTH_SYMMETRIC],
}
"""The Wirtinger derivative comes first, with the appendix's start. Hermitian A_i have no other general form."""
