"""The node problem by SCIP, through PySCIPOpt."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.errors import SolverUnavailable
from .base import Budget, NodeProblem, NodeSolution, Status
from .miqcp import DUAL_FEASIBILITY, FEASIBILITY, Programme, Record, SolverLimits, SolverOutcome, solve_with

STATUS_MAP = {
    "optimal": Status.OPTIMAL,
    "gaplimit": Status.OPTIMAL,
    "timelimit": Status.TIME_LIMIT,
    "nodelimit": Status.NODE_LIMIT,
    "totalnodelimit": Status.NODE_LIMIT,
    "infeasible": Status.INFEASIBLE,
}


class ScipSolver:
    name = "scip"

    def solve(self, problem: NodeProblem, budget: Budget, start: Array | None = None) -> NodeSolution:
        return solve_with(optimise, problem, budget, start)


def optimise(model: Programme, limits: SolverLimits, start: Array | None, record: Record | None) -> SolverOutcome:
    """Translate the neutral model and run SCIP on one thread."""
    try:
        import pyscipopt
    except ImportError:
        raise SolverUnavailable(
            "SCIP is not installed; run pip install 'consentroid[scip]' or choose --solver exact"
        ) from None
    scip = pyscipopt.Model()
    scip.hideOutput()
    scip.setParam("numerics/feastol", FEASIBILITY)
    scip.setParam("numerics/dualfeastol", DUAL_FEASIBILITY)
    scip.setParam("limits/gap", limits.gap)
    scip.setParam("lp/threads", 1)
    if limits.seconds < 1e20:
        scip.setParam("limits/time", limits.seconds)
    if limits.search_nodes < 2**60:
        scip.setParam("limits/totalnodes", limits.search_nodes)

    x = [
        scip.addVar(lb=float(low), ub=float(high), vtype="B" if binary else "C", obj=float(cost))
        for low, high, binary, cost in zip(model.lower, model.upper, model.binary, model.objective)
    ]
    for row in model.rows:
        terms = [c * x[i] for i, c in row.linear] + [c * x[i] * x[j] for i, j, c in row.products]
        left = pyscipopt.quicksum(terms)
        scip.addCons(left == row.upper if row.equality else left <= row.upper)
    if start is not None:
        solution = scip.createSol()
        for variable, number in zip(x, start):
            scip.setSolVal(solution, variable, float(number))
        scip.addSol(solution)
    if record is not None:
        _listen(pyscipopt, scip, x, record)

    scip.optimize()
    status = scip.getStatus()
    if status == "userinterrupt":
        raise KeyboardInterrupt
    if status not in STATUS_MAP:
        raise SolverUnavailable(f"SCIP stopped with status '{status}'; choose another solver for this problem")
    point = None
    if scip.getNSols() > 0 and STATUS_MAP[status] is not Status.INFEASIBLE:
        best = scip.getBestSol()
        point = np.array([scip.getSolVal(best, variable) for variable in x])
    return SolverOutcome(float(scip.getDualbound()), point, STATUS_MAP[status])


def _listen(pyscipopt: Any, scip: Any, x: list[Any], record: Record) -> None:
    events = pyscipopt.SCIP_EVENTTYPE

    class Listener(pyscipopt.Eventhdlr):  # type: ignore[misc]
        def eventinit(self) -> None:
            self.model.catchEvent(events.BESTSOLFOUND, self)
            self.model.catchEvent(events.NODESOLVED, self)

        def eventexit(self) -> None:
            self.model.dropEvent(events.BESTSOLFOUND, self)
            self.model.dropEvent(events.NODESOLVED, self)

        def eventexec(self, event: Any) -> None:
            if event.getType() == events.BESTSOLFOUND:
                best = self.model.getBestSol()
                record(None, np.array([self.model.getSolVal(best, variable) for variable in x]))
            else:
                record(float(self.model.getDualbound()), None)

    scip.includeEventhdlr(Listener(), "progress", "records bound and incumbent over time")
