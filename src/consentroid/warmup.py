"""Compile everything once: `python -m consentroid.warmup`. Later processes load the kernels from disk."""

from __future__ import annotations

import numpy as np

from .messages import Query, Solve, Statistics
from .node.worker import NodeWorker
from .problem import Domain, NodeData


def prepare_solver() -> None:
    """Solve a tiny problem: the first solve on a machine compiles the solver, which is better done before a run."""
    rows = np.array([[0.0, 0.0], [1.0, 0.5], [4.0, 4.0], [5.0, 4.5]])
    boxes = Domain(rows.min(axis=0), rows.max(axis=0)).boxes(2)[None]
    worker = NodeWorker(NodeData.checked("preparation", rows))
    for rule, references in (("none", None), ("order", rows[[0, 3]])):
        query = Query(1, rule=rule, references=references, solve=Solve(boxes, np.ones((1, 2, 2))))  # type: ignore[arg-type]
        worker.answer(query)
    worker.answer(Query(1, statistics=Statistics(boxes)))


def main() -> None:
    from .api import fit

    print("Compiling the kernels; this happens once on a machine and takes about a minute.", flush=True)
    prepare_solver()
    random = np.random.default_rng(0)  # a run that needs every part: the master of the bundle, the tree
    fit({"a": random.normal(size=(6, 2)), "b": random.normal(size=(6, 2))}, 3, gap=1e-3)


if __name__ == "__main__":
    main()
