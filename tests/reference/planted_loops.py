"""Independent loops of the planted experiments in plain NumPy: no line of the package takes part in them."""

import numpy as np


def sensing_gradient(M, matrices, y):
    """f = 1/m sum_i (<A_i, M> - y_i)^2 and G = 2/m sum_i (<A_i, M> - y_i) A_i."""
    off = np.einsum("kij,ij->k", matrices.conj(), M).real - y
    return np.mean(off**2), 2 * np.einsum("k,kij->ij", off, matrices) / len(y)


def one_bit_gradient(M, log_odds):
    """f = sum log(1 + exp M) - observed M over the entries, and G = predicted minus observed fraction of ones."""
    observed, predicted = 1 / (1 + np.exp(-log_odds)), 1 / (1 + np.exp(-M))
    return np.sum(np.log(1 + np.exp(M)) - observed * M), predicted - observed


def symmetric(gradient):
    """f and the derivative G + G^T by a real X, or the Wirtinger derivative (G + G^H) / 2 by a complex X."""

    def of_x(M):
        f, G = gradient(M)
        return f, (G + G.conj().T) / (2 if np.iscomplexobj(M) else 1)

    return of_x


def descent(gradient, X, truth, kind, parameter, step, iterations, V=None):
    """Relative errors of GD, ScaledGD(lambda), PrecGD (proxy) or eta-decay (beta), the start's error first."""
    U, V, errors, first = X, X if V is None else V, [], None
    for _ in range(iterations + 1):
        M = U @ V.conj().T
        errors.append(np.linalg.norm(M - truth) / np.linalg.norm(truth))
        f, G = gradient(M)
        first = np.sqrt(f) if first is None else (parameter or 0) * first
        eta = {"eta-decay": first, "precgd": np.sqrt(abs(f - (parameter or 0) ** 2)), "scaledgd": parameter}
        DU, DV = G @ V, G.conj().T @ U
        if kind != "gd":
            identity = np.eye(X.shape[1])
            DU = np.linalg.solve((V.conj().T @ V + eta[kind] * identity).T, DU.T).T
            DV = np.linalg.solve((U.conj().T @ U + eta[kind] * identity).T, DV.T).T
        U, V = U - step * DU, V - step * DV
    return np.array(errors)
