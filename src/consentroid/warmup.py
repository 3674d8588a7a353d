"""Compile everything once: `python -m consentroid.warmup`. Later processes load the kernels from disk."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from .core.problem import Domain, NodeData
from .core.symmetry import Symmetry
from .paper.nearest.solver import NearestSolver
from .paper.node.base import Budget, NodeProblem
from .paper.node.exact import ExactSolver
from .paper.worker import PaperWorker
from .protocol.messages import Query, Solve, Statistics

ROWS = np.array([[0.0, 0.0], [1.0, 0.5], [4.0, 4.0], [5.0, 4.5]])


def prepare_solver() -> None:
    """Solve a tiny problem: the first solve on a machine compiles the solver, which is better done before a run."""
    boxes = Domain(ROWS.min(axis=0), ROWS.max(axis=0)).boxes(2)[None]
    worker = PaperWorker(NodeData.checked("preparation", ROWS))
    for rule, references in (("none", None), ("order", ROWS[[0, 3]])):
        query = Query(1, rule=rule, references=references, solve=Solve(boxes, np.ones((1, 2, 2))))  # type: ignore[arg-type]
        worker.answer(query)
    worker.answer(Query(1, statistics=Statistics(boxes)))


def prepare_run() -> None:
    """A run that needs every part: the master of the bundle, the tree."""
    from .fitting import fit

    prepare_solver()
    random = np.random.default_rng(0)
    fit({"a": random.normal(size=(6, 2)), "b": random.normal(size=(6, 2))}, 3, gap=1e-3)


def prepare_other_searches() -> None:
    """What small runs do not need: many rows, one feature, the paper's symmetry rule."""
    boxes = Domain(ROWS.min(axis=0), ROWS.max(axis=0)).boxes(2)
    for regime, rule, n_features in (("boxes", "order", 2), ("auto", "nearest", 2), ("auto", "none", 1)):
        rows = np.ascontiguousarray(ROWS[:, :n_features])
        symmetry = Symmetry(rule, None if rule == "none" else rows[[0, 3]])  # type: ignore[arg-type]
        price = np.full((2, n_features), 0.1 if n_features > 1 else 0.0)
        problem = NodeProblem(rows, np.ones(len(rows)), price, boxes[:, :, :n_features], symmetry)
        solver = NearestSolver() if rule == "nearest" else ExactSolver(regime)  # type: ignore[arg-type]
        solver.solve(problem, Budget())


def _do(part: Callable[[], None]) -> None:
    part()


def main() -> None:
    print("Compiling the kernels; this happens once on a machine and takes about a minute.", flush=True)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(_do, (prepare_run, prepare_other_searches)))


if __name__ == "__main__":
    main()
