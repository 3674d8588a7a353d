"""Solvers of node problems by name and rule; a back end imports its library when it solves, and names the remedy."""

from __future__ import annotations

from ..core.errors import InvalidInput
from ..core.symmetry import Rule
from .nearest.solver import NearestSolver
from .node.base import NodeSolver
from .node.exact import ExactSolver
from .node.gurobi import GurobiSolver
from .node.scip import ScipSolver

SOLVERS = {"exact": ExactSolver, "scip": ScipSolver, "gurobi": GurobiSolver}


def solver_named(name: str, rule: Rule = "none") -> NodeSolver:
    """A new solver; the rule 'nearest' has an exact solver of its own, MIQCP solvers state every rule."""
    if name not in SOLVERS:
        raise InvalidInput(f"unknown solver '{name}'; choose one of {', '.join(SOLVERS)}")
    if name == "exact" and rule == "nearest":
        return NearestSolver()
    return SOLVERS[name]()
