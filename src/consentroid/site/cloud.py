"""Rows as points in blocks of neighbours, or groups of such rows as one point each; what trimmed Lloyd asks of them.

Groups are for guesses where rows are many: rows in which neighbours stand together, so many at a time. For all m

    Σ_{j in group} w |y_j − m|² = W (|ȳ − m|² + s),     s the group's mean squared distance from its mean ȳ,

so a group is a row of weight W at ȳ with one more coordinate √s, in which all points are 0: sums over groups are sums
over their rows, and only where the border of a cluster runs through a group do the rows know better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from .blocks import Blocks
from .kernels.columns import trim_step, two_nearest
from .parallel import Pool, in_parallel

NARROW = 0.02  # spread of groups over their prices
LEAST_SAMPLE = 1000  # groups, or rows looked at: sums over fewer would tell too much of each


def fair_stride(stride: int, n_rows: int) -> int:
    """A power of two, so that samples are nested and differ by many rows, which leaves enough of them."""
    most = min(max(stride, 0), n_rows // LEAST_SAMPLE)
    return 1 << max(most.bit_length() - 1, 0)


@dataclass(frozen=True)
class Cloud:
    y: Array  # (n, D) or, of groups, (n, D + 1)
    w: Array
    blocks: Blocks
    stride: int = 1  # rows in a group

    def grouped(self, stride: int) -> Cloud:
        """(ȳ, √s) and W of each `stride` rows."""
        starts = np.arange(0, len(self.y), stride)
        w = np.add.reduceat(self.w, starts)
        means = np.add.reduceat(self.y * self.w[:, None], starts, axis=0) / w[:, None]
        apart = ((self.y - np.repeat(means, stride, axis=0)[: len(self.y)]) ** 2).sum(axis=1)
        y = np.column_stack([means, np.sqrt(np.add.reduceat(apart * self.w, starts) / w)])
        return Cloud(y, w, Blocks.of(y), stride)

    def means_of(self, groups: Cloud, values: Array) -> Array:
        """The mean of our values in each group."""
        return np.asarray(np.add.reduceat(values * self.w, np.arange(0, len(values), groups.stride)) / groups.w)

    def thinned(self, stride: int) -> Cloud:
        """The middle one of each `stride` rows, with the weight of all of them."""
        middle = self._middle(stride)
        y = np.ascontiguousarray(self.y[middle])
        return Cloud(y, np.add.reduceat(self.w, np.arange(0, len(self.y), stride)), Blocks.of(y), stride)

    def _middle(self, stride: int) -> NDArray[np.int64]:
        return np.minimum(np.arange(stride // 2, len(self.y) + stride // 2, stride), len(self.y) - 1)

    def guess(self, groups: Cloud, prices: Array) -> tuple[Cloud, Array]:
        """Fewer points to guess with, and their prices: groups where they are narrow beside their prices, else some of
        the rows, which are as wide as all of them."""
        of_groups = self.means_of(groups, prices)
        if groups.w @ groups.y[:, -1] ** 2 <= NARROW * (groups.w @ of_groups):
            return groups, of_groups
        return self.thinned(groups.stride), prices[self._middle(groups.stride)]

    def carried_over(self, groups: Cloud, learnt: Array, first: Array) -> Array:
        """Prices learnt on groups: each row its first price plus what its group has gained over the mean of these."""
        gained = learnt - self.means_of(groups, first)
        return np.asarray(np.maximum(first + np.repeat(gained, groups.stride)[: len(first)], 0.0))

    def among(self, points: Array) -> Array:
        """Points where ours are."""
        out = np.zeros((len(points), self.y.shape[1]))
        out[:, : points.shape[1]] = points
        return out

    def trim(self, points: Array, prices: Array, pool: Pool) -> tuple[Array, Array, Array]:
        """f, weight and offset Σ w (y − m) of the rows with |y − m|² < λ, for each point."""
        n = len(points)
        values, weights, offsets = np.empty(n), np.empty(n), np.empty(points.shape)
        blocks, dearest = self.blocks, self.blocks.greatest(prices)

        def work(first: int, last: int) -> None:
            trim_step(self.y, self.w, prices, blocks.starts, blocks.low, blocks.high, dearest, points, first, last,
                      values, weights, offsets)  # fmt: skip

        in_parallel(work, n, pool, n * self.y.size // 4)
        return values, weights, offsets


def first_prices(y: Array, centroids: Array) -> Array:
    """Halfway between the least and the second least squared distance to the centroids."""
    least, second = np.empty(len(y)), np.empty(len(y))
    two_nearest(y, centroids, least, second)
    if len(centroids) == 1:
        second = 2.0 * np.maximum(least, least.mean())
    return np.asarray(0.5 * (least + second))
