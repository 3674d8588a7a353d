"""All that changes in a run: what a checkpoint holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..core.arrays import Array
from ..core.symmetry import Symmetry
from ..paper.dual.base import DualEvaluation
from ..paper.trace import Trace
from .branching import Tree
from .certificate import Certificate


@dataclass
class Run:
    certificate: Certificate
    # fixed after the first round
    symmetry: Symmetry = field(default_factory=Symmetry)
    anchors: Array | None = None  # the nodes' own centroids of round 1, (N·K, D)
    # change every round
    round: int = 0
    phase: str = "dual"  # then "tree"
    stop_reason: str | None = None
    candidates: Array | None = None  # to be evaluated in the next exchange
    dual_state: Any = None
    tree: Tree | None = None
    trace: Trace = field(default_factory=Trace)
    elapsed: float = 0.0  # seconds up to the last checkpoint
    bytes_up: int = 0
    bytes_down: int = 0
    # change when something better is found
    evaluation: DualEvaluation | None = None  # the best under the present symmetry rule
    dual_value: float = -math.inf  # best attained d(λ), also where the rule makes it no bound
    incumbent_counts: Array | None = None  # (N, K): rows of each node in each cluster of the incumbent
    incumbent_offsets: Array | None = None  # (N, K, D): and the sums of those rows
