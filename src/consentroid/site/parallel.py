"""Work of one site on all cores: kernels release the interpreter's lock, so threads run side by side."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

WORTH_A_THREAD = 100_000
N_CORES = os.cpu_count() or 1
Pool = ThreadPoolExecutor | None


def in_parallel(work: Callable[[int, int], None], n: int, pool: Pool, effort: int) -> None:
    """work(first, last) over 0..n in pieces, side by side where there is a pool and the effort, in numbers looked at,
    is worth the hand-over."""
    if pool is None or n < 4 or effort < WORTH_A_THREAD:
        if n > 0:
            work(0, n)
        return
    ends = np.linspace(0, n, min(4 * N_CORES, n) + 1).astype(int)
    for done in [pool.submit(work, int(first), int(last)) for first, last in pairwise(ends)]:
        done.result()
