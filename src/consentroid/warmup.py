"""Compile once: `python -m consentroid.warmup`. Later processes load the kernels from disk."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from .core.problem import Domain, NodeData
from .core.symmetry import Symmetry
from .fitting import fit
from .paper.nearest.solver import NearestSolver
from .paper.node.base import Budget, NodeProblem
from .paper.node.exact import ExactSolver
from .paper.worker import PaperWorker
from .protocol.messages import Query, Solve
from .site.pairs.anticlusters import deal
from .site.pairs.prices import BEFORE_TRIANGLES, PairPrices
from .verify import verify

ROWS = np.array([[0.0, 0.0], [1.0, 0.5], [4.0, 4.0], [5.0, 4.5]])


def prepare_solver() -> None:
    """Small runs, one with two sites that branches, one that needs a fee: the first on a machine compile the kernels,
    which is better done before the clock starts."""
    random = np.random.default_rng(0)
    fit({"a": random.normal(size=(12, 2)), "b": random.normal(size=(12, 2))}, 3, gap=1e-6, time_limit=None)
    fit({"a": np.random.default_rng(47).normal(size=(24, 2))}, 6, gap=1e-6, time_limit=None, regions=False)
    deal(random.normal(size=(20, 3)), np.ones(20), random.normal(size=(2, 3)), 10)
    PairPrices(random.normal(size=(20, 3)), np.ones(20), 3).improve(BEFORE_TRIANGLES)


def prepare_checker() -> None:
    """The independent checker has kernels of its own."""
    rows = {"a": ROWS[:2], "b": ROWS[2:]}
    with tempfile.TemporaryDirectory() as folder:
        result = fit(rows, 2, folder=Path(folder), time_limit=None)
        verify(result.certificate, rows, {name: Path(folder) / f"prices-{name}.npz" for name in rows})


def prepare_paper() -> None:
    """The paper's node solver: few and many rows, one feature; a run."""
    boxes = Domain(ROWS.min(axis=0), ROWS.max(axis=0)).boxes(2)
    worker = PaperWorker(NodeData.checked("preparation", ROWS))
    for rule, references in (("none", None), ("order", ROWS[[0, 3]])):
        solve = Solve(boxes[None], np.ones((1, 2, 2)))
        worker.answer(Query(1, rule=rule, references=references, solve=solve))  # type: ignore[arg-type]
    ExactSolver("boxes").solve(_problem(Symmetry("order", ROWS[[0, 3]]), 2), Budget())
    ExactSolver("auto").solve(_problem(Symmetry("none"), 1), Budget())
    random = np.random.default_rng(0)
    fit({"a": random.normal(size=(6, 2)), "b": random.normal(size=(6, 2))}, 3, method="proximal", time_limit=None)


def prepare_nearest() -> None:
    """The solver of the paper's own rule, whose kernels take as long as all the others."""
    NearestSolver().solve(_problem(Symmetry("nearest", ROWS[[0, 3]]), 2), Budget())


def _problem(symmetry: Symmetry, n_features: int) -> NodeProblem:
    rows = np.ascontiguousarray(ROWS[:, :n_features])
    boxes = Domain(rows.min(axis=0), rows.max(axis=0)).boxes(2)
    price = np.full((2, n_features), 0.1 if n_features > 1 else 0.0)
    return NodeProblem(rows, np.ones(len(rows)), price, boxes, symmetry)


def prepare_all_proofs() -> None:
    prepare_solver()
    prepare_checker()


def _do(part: Callable[[], None]) -> None:
    part()


def main(paper: bool = False) -> None:
    """Proof and checker; the paper's methods, whose kernels take ten times as long, only where they are asked for."""
    takes = "some minutes" if paper else "some twenty seconds"
    print(f"Compiling the kernels; this happens once on a machine and takes {takes}.", flush=True)
    parts = (prepare_paper, prepare_nearest, prepare_all_proofs) if paper else (prepare_all_proofs,)
    with ProcessPoolExecutor(min(len(parts), os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        list(pool.map(_do, parts))


if __name__ == "__main__":
    main(paper="--paper" in sys.argv[1:])
