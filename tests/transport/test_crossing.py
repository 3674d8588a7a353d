"""What crosses between sites and coordinator in a whole run: fields of protocol/messages.py, and how often a row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgpack
import numpy as np
import pytest

from clocks import Clock
from consentroid.core.arrays import Array
from consentroid.core.problem import Problem
from consentroid.fitting import run
from consentroid.paper.instances import generate
from consentroid.protocol import codec, messages
from consentroid.protocol.messages import PriceReply
from consentroid.rowprices import search
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.inprocess import InProcessTransport
from consentroid.transport.metered import WireTransport
from draws import draws

SEEDS = range(draws(6))


def names_in(packed: object) -> Iterator[str]:
    if isinstance(packed, dict):
        for key, value in packed.items():
            yield key
            yield from names_in(value)


def recorded_run(problem: Problem) -> list[bytes]:
    recorder = WireTransport(InProcessTransport.of(problem), record=True)
    result = run(CheckedTransport(recorder), problem.n_clusters, domain=problem.domain, gap=1e-4)
    recorder.close()
    assert result.certified
    assert recorder.recorded is not None
    assert len(recorder.recorded) == 2 * len(problem.nodes) * recorder.exchanges
    return recorder.recorded


def small(seed: int) -> Problem:
    return generate(3, 2, 3, seed=seed, points_per_cluster=5, radius=0.3).problem


def test_only_fields_of_the_messages_cross_and_no_row_as_it_stands() -> None:
    problem = small(11)
    kinds = [one for one in vars(messages).values() if isinstance(one, type) and dataclasses.is_dataclass(one)]
    allowed = {field.name for kind in kinds for field in dataclasses.fields(kind)} | {"consentroid", "type", "body"}
    rows = np.concatenate([node.points for node in problem.nodes])
    for data in recorded_run(problem):
        assert set(names_in(msgpack.unpackb(data))) <= allowed
        for row in rows:
            assert row.tobytes() not in data


def rows_told(problem: Problem) -> int:
    """Rows that the coordinator can compute at once: a cluster of one row at a site is that row, m + offset."""
    told: list[Array] = []
    candidates: dict[int, Array] = {}
    for data in recorded_run(problem):
        if msgpack.unpackb(data)["type"] == "PriceQuery":
            query = codec.decode_request(data)
            assert isinstance(query, messages.PriceQuery)
            if query.evaluate is not None:
                candidates[query.round] = query.evaluate.candidates
        elif msgpack.unpackb(data)["type"] == "PriceReply":
            reply = codec.decode_response(data)
            assert isinstance(reply, PriceReply)
            if reply.evaluated is not None:
                one = reply.evaluated.counts == 1.0
                told += list((candidates[reply.round] + reply.evaluated.offsets)[one])
    rows = np.concatenate([node.points for node in problem.nodes])
    if not told:
        return 0
    distance = np.abs(rows[:, None, :] - np.array(told)[None]).max(axis=2).min(axis=1)
    return int(np.sum(distance < 1e-9))


def test_how_many_rows_a_coordinator_can_compute_is_measured() -> None:
    """No promise, a measurement: sites with few rows are told to set a least count, which `site/guard.py` keeps."""
    told = [rows_told(small(seed)) for seed in SEEDS]
    rows = sum(len(node.points) for node in small(0).nodes)
    print(f"rows of {rows} that a coordinator can compute, by seed: {told}")
    assert 0 < max(told) < rows  # docs/disclosure.md says so: if it were none, the page and the README could say more


def test_ten_simulated_sites_have_the_same_trace_over_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding loses nothing, not even the last bit of a float. The clock stands still: batches are as large as it lets
    them be, and a busy machine must not make two traces of one."""
    monkeypatch.setattr(search, "time", Clock())
    rng = np.random.default_rng(2)
    rows = {f"node{i}": 2.0 * rng.integers(0, 2, (6, 1)) + 0.3 * rng.normal(size=(6, 2)) for i in range(10)}
    problem = Problem.checked(rows, 2)
    plain = run(InProcessTransport.of(problem), 2, domain=problem.domain, gap=1e-3)
    wired = run(CheckedTransport(WireTransport(InProcessTransport.of(problem))), 2, domain=problem.domain, gap=1e-3)
    for mine, theirs in zip(wired.trace, plain.trace, strict=True):
        assert (mine.phase, mine.lower, mine.upper) == (theirs.phase, theirs.lower, theirs.upper)
    assert wired.bytes_up > 0
    assert np.array_equal(wired.centroids, plain.centroids)
