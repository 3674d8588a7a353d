"""The order rule inside the search: multipliers that raise a bound.

For a fixed assignment, min Σ_k W_k ‖m_k‖² + ⟨q_k, m_k⟩ over the boxes and n_p · (m_k − m_l) ≥ 0 is at least

    L(u) = Σ_k min_{m_k ∈ box_k} W_k ‖m_k‖² + ⟨q_k − (Σ_p u_p a_p)_k, m_k⟩      for every u ≥ 0,

with a_p the coefficients of pair p. Any u is valid, so nothing below needs to be trusted: it only has to find good u.
All functions treat S assignments at once: weight (S, K), linear (S, K, D), lower and upper (S, K, D), u (S, P).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array


@dataclass(frozen=True)
class Order:
    """The order rule as P pairs: Σ_kd coefficients[p, k, d] m[k, d] ≥ 0."""

    coefficients: Array  # (P, K, D)

    @classmethod
    def of(cls, references: Array | None, n_clusters: int, n_features: int) -> Order:
        if references is None:
            return cls(np.zeros((0, n_clusters, n_features)))
        rows = []
        for k in range(n_clusters):
            for other in range(k + 1, n_clusters):
                row = np.zeros((n_clusters, n_features))
                row[k], row[other] = references[k] - references[other], references[other] - references[k]
                rows.append(row)
        return cls(np.array(rows).reshape(-1, n_clusters, n_features))

    @property
    def n_pairs(self) -> int:
        return len(self.coefficients)

    def slack(self, centroids: Array) -> Array:
        return np.einsum("pkd,...kd->...p", self.coefficients, centroids)

    def priced(self, multipliers: Array) -> Array:
        return np.einsum("...p,pkd->...kd", multipliers, self.coefficients)


def parabolas(weight: Array, linear: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """min of W‖m‖² + ⟨q, m⟩ over boxes, for arrays (..., K) and (..., K, D): values (..., K) and minimisers."""
    w = weight[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        free = np.where(w > 0, linear / (-2.0 * w), np.where(linear >= 0, -np.inf, np.inf))
    m = np.minimum(np.maximum(free, lower), upper)
    return ((w * m + linear) * m).sum(axis=-1), m


def ascend(
    weight: Array, linear: Array, lower: Array, upper: Array, rule: Order, u: Array, enough: Array, sweeps: int = 2
) -> tuple[Array, Array, Array]:
    """Coordinate ascent from u until L(u) ≥ enough, for so many sweeps: new u, L(u), its minimiser. Cheap."""
    u = u.copy()
    values, m = parabolas(weight, linear - rule.priced(u), lower, upper)
    bound = values.sum(axis=1)
    w = np.maximum(weight, 0.05 * weight.sum(axis=1, keepdims=True) + 1e-300)  # an empty cluster would allow no step
    live = np.arange(len(u))
    for _ in range(sweeps):
        live = live[bound[live] < enough[live]]
        for p, coefficient in enumerate(rule.coefficients):
            slack = (coefficient * m[live]).sum(axis=(1, 2))
            moving = (slack < 0) | ((slack > 0) & (u[live, p] > 0))
            i, slack = live[moving], slack[moving]
            if len(i) == 0:
                continue
            share = coefficient**2 / (2.0 * w[i])[:, :, None]
            free = (m[i] > lower[i]) & (m[i] < upper[i])
            curvature = np.maximum((share * free).sum(axis=(1, 2)), 0.1 * share.sum(axis=(1, 2)))
            trial = u[i]
            trial[:, p] = np.maximum(trial[:, p] - slack / np.maximum(curvature, 1e-300), 0.0)
            values, at = parabolas(weight[i], linear[i] - rule.priced(trial), lower[i], upper[i])
            reached = values.sum(axis=1)
            better = reached > bound[i]
            j = i[better]
            u[j], m[j], bound[j] = trial[better], at[better], reached[better]
    return u, bound, m


def polish(
    weight: Array, linear: Array, lower: Array, upper: Array, rule: Order, u: Array, enough: Array
) -> tuple[Array, Array, Array]:
    """Interior-point method for the whole quadratic programme: best u found, L(u), and nearly optimal centroids.

    Constraints are a_p · m = s_p ≥ 0 with multipliers u, and m − lower ≥ 0, upper − m ≥ 0 with multipliers α, β. Every
    step is Newton's towards products s u, (m − lower) α, (upper − m) β of a tenth of their mean. States leave the
    iteration when L(u) is enough or nothing is left to gain.
    """
    values, nearly = parabolas(weight, linear - rule.priced(u), lower, upper)
    best, bound = u.copy(), values.sum(axis=1)
    if rule.n_pairs == 0:
        return best, bound, nearly
    lengths = np.maximum(np.linalg.norm(rule.coefficients, axis=(1, 2)), 1e-300)
    rows = rule.coefficients.reshape(rule.n_pairs, -1) / lengths[:, None]
    width = float(np.max(upper - lower, initial=0.0)) or 1.0
    live = np.nonzero(bound < enough)[0]
    state = _Interior.start(weight[live], linear[live], lower[live], upper[live], rows, width)
    for _ in range(60):
        if len(live) == 0:
            break
        state = state.step(rows)
        sound = np.all(np.isfinite(state.m), axis=1) & np.all(np.isfinite(state.u), axis=1)
        live, state = live[sound], state.pick(sound)
        trial = state.u / lengths
        reached = parabolas(weight[live], linear[live] - rule.priced(trial), lower[live], upper[live])[0].sum(axis=1)
        better = reached > bound[live]
        best[live[better]], bound[live[better]] = trial[better], reached[better]
        nearly[live] = state.m.reshape(-1, *lower.shape[1:])
        going = (bound[live] < enough[live]) & (state.products > 1e-14 * state.size[:, 0] * width)
        live, state = live[going], state.pick(going)
    return best, bound, np.clip(nearly, lower, upper)


@dataclass(frozen=True)
class _Interior:
    """Iterates of the interior-point method for S states with n = K·D coordinates."""

    curvature: Array  # (S, n), 2 W
    slope: Array  # (S, n)
    low: Array  # (S, n)
    high: Array  # (S, n)
    size: Array  # (S, 1) a typical gradient
    m: Array  # (S, n)
    s: Array  # (S, P)
    u: Array  # (S, P)
    alpha: Array  # (S, n)
    beta: Array  # (S, n)

    @classmethod
    def start(
        cls, weight: Array, linear: Array, lower: Array, upper: Array, rows: Array, width: float
    ) -> _Interior:
        n_states = len(weight)
        thin = 1e-9 * width * (upper - lower < 1e-9 * width)  # an interior is needed, if only a thin one
        low, high = (lower - thin).reshape(n_states, rows.shape[1]), (upper + thin).reshape(n_states, rows.shape[1])
        curvature, slope = np.repeat(2.0 * weight, lower.shape[2], axis=1), linear.reshape(low.shape)
        size = (np.abs(slope).max(axis=1) + curvature.max(axis=1) * width)[:, None] + 1e-300
        m = 0.5 * (low + high)
        s = np.maximum(m @ rows.T, 0.1 * width)
        return cls(curvature, slope, low, high, size, m, s, size + 0 * s, size + 0 * m, size + 0 * m)

    def pick(self, chosen: NDArray[np.bool_]) -> _Interior:
        return _Interior(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @property
    def products(self) -> Array:
        inner = self.alpha * (self.m - self.low) + self.beta * (self.high - self.m)
        return np.asarray((self.s * self.u).sum(axis=1) + inner.sum(axis=1))

    def step(self, rows: Array) -> _Interior:
        m, s, u, alpha, beta = self.m, self.s, self.u, self.alpha, self.beta
        tiny = 1e-18 * (self.high - self.low)
        a, b = np.maximum(m - self.low, tiny), np.maximum(self.high - m, tiny)
        aim = 0.1 * (self.products / (s.shape[1] + 2 * m.shape[1]))[:, None]
        stationary = self.curvature * m + self.slope - u @ rows - alpha + beta
        apart = m @ rows.T - s
        matrix = (self.curvature + alpha / a + beta / b)[:, :, None] * np.eye(m.shape[1])
        matrix += np.einsum("pi,sp,pj->sij", rows, u / s, rows, optimize=True)
        right = -stationary + ((aim - u * (s + apart)) / s) @ rows + (aim / a - alpha) - (aim / b - beta)
        try:
            dm = np.linalg.solve(matrix, right[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            dm = np.full_like(m, np.nan)
        ds = dm @ rows.T + apart
        du, dalpha, dbeta = (aim - u * ds) / s - u, (aim - alpha * dm) / a - alpha, (aim + beta * dm) / b - beta
        step = _step(((s, ds), (u, du), (a, dm), (b, -dm), (alpha, dalpha), (beta, dbeta)))
        alpha, beta = alpha + step * dalpha, beta + step * dbeta
        return replace(self, m=m + step * dm, s=s + step * ds, u=u + step * du, alpha=alpha, beta=beta)


def _step(pairs: tuple[tuple[Array, Array], ...]) -> Array:
    """The longest step (S, 1), at most 1, that keeps every x + step · dx well above zero."""
    longest = np.full(len(pairs[0][0]), 1.0)
    for x, dx in pairs:
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = np.where(dx < 0, -0.99 * x / dx, np.inf).min(axis=1)
        longest = np.minimum(longest, limit)
    return longest[:, None]
