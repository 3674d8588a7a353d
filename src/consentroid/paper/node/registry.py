"""Solvers by name; each back end is imported only when asked for."""

from __future__ import annotations

from ...core.errors import InvalidInput
from .base import NodeSolver

SOLVERS = ("exact", "scip", "gurobi")


def solver_named(name: str) -> NodeSolver:
    if name == "exact":
        from .exact import ExactSolver

        return ExactSolver()
    if name == "scip":
        from .scip import ScipSolver

        return ScipSolver()
    if name == "gurobi":
        from .gurobi import GurobiSolver

        return GurobiSolver()
    raise InvalidInput(f"unknown solver '{name}'; choose one of {', '.join(SOLVERS)}")
