"""The node problem by Gurobi, through gurobipy. Nonconvex rows (the nearest rule) need Gurobi 11 or later."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.errors import SolverUnavailable
from .base import Budget, NodeProblem, NodeSolution, Status
from .miqcp import (
    CONVERGENCE,
    DUAL_FEASIBILITY,
    FEASIBILITY,
    Programme,
    Record,
    SolverLimits,
    SolverOutcome,
    solve_with,
)

_TOO_LARGE = 10010
_LICENCE_ERRORS = (10009, 10032)


class GurobiSolver:
    """Holds one Gurobi environment, opened on first use: one solver serves one thread."""

    name = "gurobi"

    def __init__(self) -> None:
        self._environment: Any = None

    def solve(self, problem: NodeProblem, budget: Budget, start: Array | None = None) -> NodeSolution:
        return solve_with(self.optimise, problem, budget, start)

    def optimise(
        self, model: Programme, limits: SolverLimits, start: Array | None, record: Record | None
    ) -> SolverOutcome:
        """Translate the neutral model and run Gurobi on one thread."""
        gurobipy = _import()
        try:
            if self._environment is None:
                self._environment = gurobipy.Env(params={"OutputFlag": 0, "Threads": 1})
            with gurobipy.Model(env=self._environment) as gurobi:
                return _run(gurobipy, gurobi, model, limits, start, record)
        except gurobipy.GurobiError as error:
            if error.errno == _TOO_LARGE:
                raise SolverUnavailable(
                    f"the model has {len(model.lower)} variables and {len(model.rows)} constraints, more than Gurobi's "
                    "size-limited licence allows (200 variables once quadratically constrained); "
                    "choose --solver exact or --solver scip, or install a full licence"
                ) from None
            if error.errno in _LICENCE_ERRORS:
                raise SolverUnavailable(
                    f"Gurobi found no usable licence ({error}); install one or choose --solver exact or --solver scip"
                ) from None
            raise


def _import() -> Any:
    try:
        import gurobipy
    except ImportError:
        raise SolverUnavailable(
            "Gurobi is not installed; run pip install 'consentroid[gurobi]' (its licence is limited in size) "
            "or choose --solver exact"
        ) from None
    return gurobipy


def _run(
    gurobipy: Any, gurobi: Any, model: Programme, limits: SolverLimits, start: Array | None, record: Record | None
) -> SolverOutcome:
    codes = gurobipy.GRB
    gurobi.Params.FeasibilityTol = FEASIBILITY
    gurobi.Params.IntFeasTol = FEASIBILITY
    gurobi.Params.OptimalityTol = DUAL_FEASIBILITY
    gurobi.Params.BarQCPConvTol = CONVERGENCE
    gurobi.Params.MIPGap = limits.gap
    gurobi.Params.TimeLimit = limits.seconds
    if limits.search_nodes < 2**60:
        gurobi.Params.NodeLimit = limits.search_nodes

    kinds = np.where(model.binary, codes.BINARY, codes.CONTINUOUS)
    x = gurobi.addMVar(len(model.lower), lb=model.lower, ub=model.upper, obj=model.objective, vtype=kinds).tolist()
    for row in model.rows:
        linear = gurobipy.LinExpr([c for _, c in row.linear], [x[i] for i, _ in row.linear])
        if row.products:
            left = gurobipy.QuadExpr(linear)
            first, second, coefficients = zip(*row.products)
            left.addTerms(coefficients, [x[i] for i in first], [x[j] for j in second])
            gurobi.addQConstr(left, codes.LESS_EQUAL, row.upper)
        else:
            gurobi.addLConstr(linear, codes.EQUAL if row.equality else codes.LESS_EQUAL, row.upper)
    if start is not None:
        for variable, number in zip(x, start):
            variable.Start = float(number)
    gurobi.optimize(None if record is None else _listener(codes, x, record))

    status_map = {
        codes.OPTIMAL: Status.OPTIMAL,
        codes.SUBOPTIMAL: Status.NODE_LIMIT,
        codes.TIME_LIMIT: Status.TIME_LIMIT,
        codes.NODE_LIMIT: Status.NODE_LIMIT,
        codes.INFEASIBLE: Status.INFEASIBLE,
        codes.INF_OR_UNBD: Status.INFEASIBLE,  # every variable is bounded
    }
    if gurobi.Status == codes.INTERRUPTED:
        raise KeyboardInterrupt
    if gurobi.Status not in status_map:
        raise SolverUnavailable(f"Gurobi stopped with status {gurobi.Status}; choose another solver for this problem")
    status = status_map[gurobi.Status]
    if status is Status.INFEASIBLE:
        return SolverOutcome(float("inf"), None, status)
    point = np.array(gurobi.X) if gurobi.SolCount > 0 else None
    return SolverOutcome(float(gurobi.ObjBound), point, status)


def _listener(codes: Any, x: list[Any], record: Record) -> Any:
    def listen(gurobi: Any, where: int) -> None:
        if where == codes.Callback.MIPSOL:
            record(None, np.array(gurobi.cbGetSolution(x)))
        elif where == codes.Callback.MIP:
            record(float(gurobi.cbGet(codes.Callback.MIP_OBJBND)), None)

    return listen
