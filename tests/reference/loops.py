"""The completion objective, the method of the paper and the filter of a chunk, entry by entry and step by step."""

from types import SimpleNamespace

import numpy as np

from usdenoise.completion.problem import gaussian


def value_and_gradients(U, V, M, mask):
    """f = 1/|O| sum |(U V^H)_ij - M_ij|^2 and its gradients under <A, B> = Re tr(A^H B)."""
    value = 0.0
    gradient_u = np.zeros(U.shape, np.result_type(U, np.float64))
    gradient_v = np.zeros(V.shape, np.result_type(V, np.float64))
    n_observed = 0
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            if not mask[i, j]:
                continue
            n_observed += 1
            model = 0.0
            for k in range(U.shape[1]):
                model += U[i, k] * np.conj(V[j, k])
            error = model - M[i, j]
            value += abs(error) ** 2
            for k in range(U.shape[1]):
                gradient_u[i, k] += 2 * error * V[j, k]
                gradient_v[j, k] += 2 * np.conj(error) * U[i, k]
    return value / n_observed, gradient_u / n_observed, gradient_v / n_observed


def eta_decay(U, V, M, mask, alpha, beta, iterations):
    """The paper's iteration: both factors move at once, eta starts at sqrt(f) and shrinks by beta."""
    U, V = U.astype(np.complex128), V.astype(np.complex128)
    identity = np.eye(U.shape[1])
    eta = None
    values = []
    for _ in range(iterations):
        R = np.where(mask, U @ V.conj().T - M, 0)
        n_observed = mask.sum()
        value = np.sum(np.abs(R) ** 2) / n_observed
        eta = np.sqrt(value) if eta is None else beta * eta
        values.append(value)
        step_u = (2 / n_observed) * R @ V @ np.linalg.inv(V.conj().T @ V + eta * identity)
        step_v = (2 / n_observed) * R.conj().T @ U @ np.linalg.inv(U.conj().T @ U + eta * identity)
        U, V = U - alpha * step_u, V - alpha * step_v
    return U, V, values


def truncated_svd(M, rank):
    """Best rank-r approximation by numpy's SVD in double precision."""
    U, s, Vh = np.linalg.svd(M.astype(np.result_type(M, np.float64)), full_matrices=False)
    return U[:, :rank], s[:rank], Vh[:rank].conj().T


def lag_sums(rows, n_lags, edges):
    """Sum of x[t + l] conj(x[t]) by half, row and lag; quarters 0 and 2 of the columns t are half 0."""
    n = rows.shape[1]
    sums = np.zeros((2, len(rows), n_lags), complex)
    halves = [sum(t >= edge for edge in edges[1:-1]) % 2 for t in range(n)]
    for row, x in enumerate(rows.astype(complex)):
        for lag in range(n_lags):
            for t in range(n - lag):
                sums[halves[t], row, lag] += x[t + lag] * np.conj(x[t])
    return sums


def filter_chunk(x, clutter, excluded, n_lags):
    """The filter of a chunk that is a block, and its measures, frame by frame and pixel by pixel in double precision."""
    (n, n_pixels), mask = x.shape, clutter.grid.mask.ravel()
    u, low, high = clutter.left.astype(complex), clutter.low, clutter.high
    # Least squares over the observed pixels of a frame; the model without any, in excluded frames, and if it is given
    a = np.zeros((n, u.shape[1]), complex)
    for t in range(n):
        known = np.isfinite(x[t]) & mask
        if clutter.model is not None and (clutter.is_given or excluded[t] or not known.any()):
            a[t] = clutter.model[t]
        elif known.any():
            a[t] = np.linalg.lstsq(u[known], x[t, known].astype(complex), rcond=None)[0]
    # Subtraction of the clutter from each pixel
    counted = np.isfinite(x) & mask & ~excluded[:, None]
    residual = np.zeros((n, n_pixels), complex)
    for t, pixel in np.argwhere(counted):
        residual[t, pixel] = x[t, pixel] - sum(u[pixel, k] * a[t, k] for k in range(low))
    # Temporal components of the clutter in the frames that count, one for 48 frames
    left, singular, _ = np.linalg.svd(np.where(excluded[:, None], 0, a[:, :low]), full_matrices=False)
    n_temporal = min(clutter.n_temporal, n // 48, np.count_nonzero(singular > 1e-6 * singular[:1]))
    temporal = left[:, :n_temporal]
    for pixel in range(n_pixels):
        residual[:, pixel] -= temporal @ (temporal.conj().T @ residual[:, pixel])
    residual[~counted] = 0
    # The components that are kept fill all other entries.
    kept = residual.copy()
    for t, pixel in np.argwhere(~counted if clutter.keeps_residual else np.ones_like(counted)):
        kept[t, pixel] = sum(u[pixel, k] * a[t, k] for k in range(low, high))
    quarters = [n * quarter // 4 for quarter in range(5)]
    return SimpleNamespace(
        coefficients=a,
        temporal=temporal,
        power=np.sum(np.abs(residual) ** 2, axis=0),
        kept_power=np.sum(np.abs(kept[~excluded]) ** 2, axis=0),
        filtered=kept,
        sums=lag_sums(residual.T, n_lags, quarters),
        counts=lag_sums(counted.T, n_lags, quarters).real,
        n_unobserved=np.count_nonzero(~np.isfinite(x) & mask & ~excluded[:, None]),
    )


def expected_lags(right, autocorrelation, n_lags):
    """Expected lags 1/n sum_t E f[t + l] conj(f[t]) of a stationary signal after I - V V^H, by full matrices."""
    n = len(right)
    covariance = np.array(
        [[autocorrelation(t - s) for s in range(n)] for t in range(n)], complex
    )  # E x[t] conj(x[s])
    projector = np.eye(n) - right @ right.conj().T
    after = projector @ covariance @ projector
    return np.array([sum(after[t + lag, t] for t in range(n - lag)) / n for lag in range(n_lags)])


def assert_taylor(problem, factors, rng, first_step):
    """Check the gradient: along a line the remainder after it falls with the square of the step."""
    direction = tuple(gaussian(rng, factor.shape, factor.dtype) for factor in factors)
    here = problem.evaluate(factors)
    slope = sum(
        np.vdot(gradient, step).real for gradient, step in zip(here.gradients, direction, strict=True)
    )
    steps = first_step / 2.0 ** np.arange(4)
    remainders = []
    for h in steps:
        moved = tuple(factor + h * step for factor, step in zip(factors, direction, strict=True))
        remainders.append(abs(problem.evaluate(moved).value - here.value - h * slope))
    orders = np.diff(np.log(remainders)) / np.diff(np.log(steps))
    assert np.all(np.abs(orders - 2.0) < 0.05)
