"""The row-price engine over any transport, without the files and options around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from consentroid.core.arrays import Array
from consentroid.core.problem import Problem
from consentroid.protocol.transport import Transport
from consentroid.rowprices.engine import Engine
from consentroid.rowprices.session import Session
from consentroid.rowprices.totals import Totals
from consentroid.transport.channel import Channel


@dataclass(frozen=True)
class Outcome:
    lower: float
    upper: float
    centroids: Array
    steps: tuple[tuple[str, int, float, float, int], ...]  # phase, round, bounds and boxes of each step
    rounds: int


def run_engine(transport: Transport, problem: Problem, gap: float = 1e-6, features: tuple[str, ...] = ()) -> Outcome:
    channel = Channel(transport)
    domain = channel.agree(problem.n_clusters, problem.domain, features)
    totals = Totals(channel.ask_prices)
    session = Session(totals, domain, problem.n_clusters, gap, math.inf, np.random.default_rng(0))
    Engine(session).run()
    assert session.centroids is not None
    steps = tuple((one.phase, one.round, one.lower, one.upper, one.boxes_done) for one in session.trace)
    return Outcome(session.lower, session.upper, session.centroids, steps, channel.round)
