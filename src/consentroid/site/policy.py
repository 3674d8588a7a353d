"""What a site answers, decided by the site: `policy.json` in its own folder, with safe defaults for what it omits.

A refusal names the rule and never a value, neither of the site's nor of its rows'. The rules on numbers of questions
hold for a whole run, over all of its jobs, and what is left of them is told as the run begins. A run's first request
must be `Describe`, where K, columns and domain are settled. Groups of fewer than `least_rows` rows are not reported and
sums lie on a grid: see `guard.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput, NodeRefused
from ..protocol.demand import demand_of
from ..protocol.messages import Describe, Query, Request
from .guard import GRAIN, Guard

POLICY_FILE = "policy.json"
Approval = Literal["rule", "hand"]
Masks = Literal["three", "always", "never"]


@dataclass(frozen=True)
class Policy:
    """The defaults hold for every rule that the file does not name."""

    largest_k: int = 50
    require_domain: bool = True  # without a domain a site tells its extremes, and those are values of rows
    require_features: bool = False  # the columns must be named in the request, in the site's order
    least_rows: int = 5  # of a group that is reported; 1 reports all
    grain: float = GRAIN  # step of sums, in spreads of a row, where least_rows > 1; 0: sums as they are
    most_questions: int = 5_000  # per run
    most_boxes: int = 1_000_000  # per run
    most_points: int = 1_000_000  # centroids and candidates per run
    most_runs_per_day: int = 50
    masks: Masks = "three"  # masked sums are required: with three or more sites, always, never
    paper_methods: bool = False  # the paper's node problems: centroids of the site's own rows would be told
    approval: Approval = "rule"  # by these rules, or each job by hand
    keep_days: int = 90  # log and prices

    @classmethod
    def read(cls, folder: Path) -> Policy:
        """The site's own file, or the defaults where there is none; an unreadable file admits nothing."""
        path = folder / POLICY_FILE
        if not path.exists():
            return cls()
        try:
            told = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{path} cannot be read ({error}); mend it, or delete it for the defaults") from None
        return cls.checked(told, str(path))

    @classmethod
    def checked(cls, told: Any, where: str = "policy") -> Policy:
        if not isinstance(told, Mapping):
            raise InvalidInput(f"{where}: a policy is a mapping of rules to values")
        known = {one.name: one.default for one in fields(cls)}
        for rule, value in told.items():
            if rule not in known:
                raise InvalidInput(f"{where}: unknown rule '{rule}'; the rules are {', '.join(known)}")
            if type(value) is not type(known[rule]) and not (type(known[rule]) is float and type(value) is int):
                raise InvalidInput(f"{where}: rule '{rule}' must be {_kind(known[rule])}, not {value!r}")
            if type(value) is int and value < LEAST.get(rule, 1):
                raise InvalidInput(f"{where}: rule '{rule}' must be at least {LEAST.get(rule, 1)}")
        if not 0.0 <= told.get("grain", 0.0) <= LARGEST_GRAIN:
            raise InvalidInput(f"{where}: rule 'grain' must be from 0 to {LARGEST_GRAIN:g}, not {told['grain']!r}")
        for rule, choices in (("approval", get_args(Approval)), ("masks", get_args(Masks))):
            if rule in told and told[rule] not in choices:
                raise InvalidInput(f"{where}: rule '{rule}' must be one of {', '.join(choices)}")
        return replace(cls(), **told)

    def guard(self) -> Guard:
        return Guard(self.least_rows, float(self.grain))

    def write(self, folder: Path) -> None:
        path = folder / POLICY_FILE
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")
        path.chmod(0o600)

    def in_words(self) -> list[str]:
        """What the operator reads at start."""
        whom = {"three": "with three or more sites", "always": "always", "never": "not required"}[self.masks]
        return [
            f"at most {self.largest_k} clusters, {self.most_questions:,} questions, {self.most_boxes:,} boxes and "
            f"{self.most_points:,} points per run; {self.most_runs_per_day} runs a day",
            f"a domain {'must be given' if self.require_domain else 'need not be given: extremes may be told'}; "
            f"columns {'must be named' if self.require_features else 'need not be named'}",
            f"groups of fewer than {self.least_rows} rows are not reported; "
            f"{f'sums in steps of {self.grain:g} spreads of a row' if self.grain else 'sums are told exactly'}"
            if self.least_rows > 1
            else "groups of any size are reported, single rows too",
            f"masked sums: {whom}; methods of the paper: {'allowed' if self.paper_methods else 'refused'}",
            f"jobs approved {'one by one, by hand' if self.approval == 'hand' else 'by these rules'}; "
            f"log and prices kept for {self.keep_days} days",
        ]


LEAST = {"keep_days": 0}
LARGEST_GRAIN = 1.0  # a coordinator that checks sums allows for no more


def _kind(default: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}[type(default)]


@dataclass(frozen=True)
class Earlier:
    """What a run asked in its earlier jobs, and how many runs there were within a day."""

    questions: int = 0
    boxes: int = 0
    points: int = 0
    n_clusters: int | None = None  # with which the run was described and admitted
    runs_today: int = 1


class Meter:
    """Holds one run to the policy; `earlier` carries on from the run's earlier jobs."""

    def __init__(self, policy: Policy, earlier: Earlier | None = None) -> None:
        earlier = earlier or Earlier()
        self._policy = policy
        self._questions, self._boxes, self._points = earlier.questions, earlier.boxes, earlier.points
        self._n_clusters = earlier.n_clusters
        self._runs_today = earlier.runs_today

    def admit(self, request: Request, n_sites: int, masked: bool) -> None:
        """Raises `NodeRefused` with the rule that a request breaks."""
        policy, size = self._policy, demand_of(request)
        self._questions += 1
        self._boxes += size.boxes
        self._points += size.points
        if self._runs_today > policy.most_runs_per_day:
            raise refusal("most_runs_per_day")
        if self._questions > policy.most_questions:
            raise refusal("most_questions")
        if self._boxes > policy.most_boxes:
            raise refusal("most_boxes")
        if self._points > policy.most_points:
            raise refusal("most_points")
        if size.n_clusters > policy.largest_k:
            raise refusal("largest_k")
        if isinstance(request, Describe):
            self._describe(request)
        elif self._n_clusters is None:
            raise NodeRefused("the first request of a run must describe it")
        elif size.n_clusters > self._n_clusters:
            raise refusal("largest_k", "; the run was described with fewer clusters")
        elif isinstance(request, Query):
            if not policy.paper_methods:
                raise refusal("paper_methods", "; use the default method")
        else:
            self.check_masks(n_sites, masked)

    def left(self) -> Array:
        """Questions, boxes and points that the policy still answers in this run."""
        policy = self._policy
        most = np.array([policy.most_questions, policy.most_boxes, policy.most_points], dtype=float)
        return np.maximum(most - [self._questions, self._boxes, self._points], 0.0)

    def admit_set_up(self) -> None:
        """A question before the run is described: keys for masks, sums of features, one scale for all."""
        self._questions += 1
        if self._runs_today > self._policy.most_runs_per_day:
            raise refusal("most_runs_per_day")
        if self._questions > self._policy.most_questions:
            raise refusal("most_questions")

    def check_masks(self, n_sites: int, masked: bool) -> None:
        required = self._policy.masks == "always" or (self._policy.masks == "three" and n_sites >= 3)
        if required and not masked:
            raise refusal("masks", "; the administrator must ask with --secure")

    def _describe(self, request: Describe) -> None:
        if self._policy.require_domain and (request.lower is None or request.upper is None):
            raise refusal("require_domain", "; the administrator must give --domain")
        if self._policy.require_features and not request.features:
            raise refusal("require_features", "; the administrator must give --features")
        self._n_clusters = request.n_clusters


def refusal(rule: str, remedy: str = "") -> NodeRefused:
    return NodeRefused(f"the site's policy does not admit this: rule '{rule}'{remedy}")
