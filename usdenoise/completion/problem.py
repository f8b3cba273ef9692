"""The completion problem: the mean squared residual on sampled entries, and its gradients.

The inner product of matrices is <A, B> = Re tr(A^H B), for complex and real factors alike. With it the
gradients of f(U, V) = 1/|O| sum_{(i,j) in O} |(U V^H)_ij - M_ij|^2 are (2/|O|) R V and (2/|O|) R^H U,
R being the sampled residual.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from usdenoise.completion.block_sums import (
    BlockSums,
    Entries,
    dense_block,
    gather,
    prefers_sparse,
    sparse_block,
)
from usdenoise.linalg.executor import Executor
from usdenoise.linalg.row_blocks import block_rows, row_blocks

SPARSE_BLOCKS = 8
"""Row blocks of the sparse evaluation: enough for the threads to finish together, few since each adds up a V."""

_FRAMES_AT_ONCE = 4096
"""Frames of the gradient by V that are written at a time."""

Factors = tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Evaluation:
    """Value and gradients of an objective at some factors.

    Attributes
    ----------
    value : float
        Value of the objective.
    gradients : tuple of arrays
        Gradient by each factor, of the shape of the factor.
    held_out_rmse : float or None
        Root mean square error on the held-out entries, in the units of the data; None without such entries.
    """

    value: float
    gradients: Factors
    held_out_rmse: float | None = None


class Problem(Protocol):
    """Anything with a value and gradients for a tuple of factors: a pair (U, V), or one X."""

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return value and gradients at `factors`."""
        ...


class Sample(Protocol):
    """The fitted and the held-out entries of a matrix, by row blocks."""

    @property
    def n_fitted(self) -> int:
        """Number of fitted entries."""
        ...

    @property
    def n_held_out(self) -> int:
        """Number of held-out entries."""
        ...

    def mask(self, rows: slice) -> NDArray[np.bool_]:
        """Return the mask of the fitted entries of some rows, (n_rows, n_columns)."""
        ...

    def held_out(self, rows: slice) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return rows and columns of the held-out entries of some rows, rows counted from the first of them."""
        ...


class CompletionProblem:
    """The objective of matrix completion and its gradients, by a map over row blocks and a sum.

    Parameters
    ----------
    matrix : (m, n) array, or anything that gives its rows for a slice
        The matrix M; entries outside the sample are read but never used, and must be finite.
    sample : Sample
        The fitted and the held-out entries.
    executor : Executor
        Maps over the row blocks.
    kernel : {"auto", "dense", "sparse"}
        Dense evaluation by row blocks, or sparse evaluation by entries; "auto" takes the faster one for the density
        and the rank.
    """

    def __init__(
        self, matrix: NDArray[Any], sample: Sample, executor: Executor, kernel: str = "auto"
    ) -> None:
        self.matrix = matrix
        self.sample = sample
        self.executor = executor
        self.kernel = kernel
        self.blocks = block_rows(matrix.shape)
        self._entries: dict[int, Entries] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (m, n) of the matrix."""
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def density(self) -> float:
        """Number of fitted entries over the number of all entries."""
        return self.sample.n_fitted / (self.shape[0] * self.shape[1])

    def is_sparse(self, rank: int) -> bool:
        """Return whether factors of this rank are evaluated entry by entry."""
        if self.kernel == "auto":
            return prefers_sparse(self.density, self.shape[0] * self.shape[1], rank)
        return self.kernel == "sparse"

    def evaluate(self, factors: Factors) -> Evaluation:
        """Return objective, gradients and held-out error at (U, V), in one pass over the sampled residual."""
        u, v = factors
        gradient_u = np.empty_like(u)
        u_residual = np.zeros(v.shape[::-1], np.result_type(v.dtype, np.float64))
        loss = held_out = 0.0
        scale = 2 / self.sample.n_fitted
        for rows, sums in self._map(u, v):
            loss += sums.loss
            held_out += sums.held_out
            gradient_u[rows] = sums.residual_v
            u_residual += sums.u_residual
            # Before the next ones are waited for.
            del sums
        gradient_u *= np.asarray(scale, gradient_u.real.dtype)
        gradient_v = np.empty(v.shape, v.dtype)
        # In long stacks each copy of these sums takes tens of megabytes.
        for part in row_blocks(len(v), _FRAMES_AT_ONCE):
            gradient_v[part] = scale * u_residual[:, part].conj().T
        n_held_out = self.sample.n_held_out
        return Evaluation(
            loss / self.sample.n_fitted,
            (gradient_u, gradient_v),
            float(np.sqrt(held_out / n_held_out)) if n_held_out else None,
        )

    def _map(self, u: NDArray[Any], v: NDArray[Any]) -> Iterator[tuple[slice, BlockSums]]:
        if self.is_sparse(v.shape[1]):
            # Each block costs a sum of the size of V, and its entries need not fit a cache.
            n_rows = len(u)
            larger = list(row_blocks(n_rows, max(1, -(-n_rows // SPARSE_BLOCKS))))

            def by_entries(rows: slice) -> tuple[slice, BlockSums]:
                return rows, sparse_block(u[rows], v, self._sampled(rows))

            return self.executor.map(by_entries, larger)
        v_h = np.ascontiguousarray(v.conj().T)

        def by_block(rows: slice) -> tuple[slice, BlockSums]:
            held_out = self.sample.held_out(rows)
            return rows, dense_block(u[rows], v, v_h, self.matrix[rows], self.sample.mask(rows), held_out)

        return self.executor.map(by_block, self.blocks)

    def _sampled(self, rows: slice) -> Entries:
        # The sparse evaluation is used where entries are few, so they are kept between passes.
        if rows.start not in self._entries:
            held_out = self.sample.held_out(rows)
            self._entries[rows.start] = gather(self.matrix[rows], self.sample.mask(rows), held_out)
        return self._entries[rows.start]
