"""What crosses between nodes and coordinator in a whole run: fields of protocol/messages.py, and no row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgpack
import numpy as np

from consentroid.core.problem import Problem
from consentroid.fitting import run
from consentroid.paper.instances import generate
from consentroid.paper.settings import Settings
from consentroid.paper.worker import PaperWorker
from consentroid.protocol import codec, messages
from consentroid.protocol.messages import Request, Response
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.inprocess import InProcessTransport
from consentroid.transport.metered import WireTransport


def arrays_of(message: object) -> Iterator[np.ndarray]:
    for field in dataclasses.fields(message):  # type: ignore[arg-type]
        value = getattr(message, field.name)
        if isinstance(value, np.ndarray):
            yield value
        elif dataclasses.is_dataclass(value):
            yield from arrays_of(value)


def names_in(packed: object) -> Iterator[str]:
    if isinstance(packed, dict):
        for key, value in packed.items():
            yield key
            yield from names_in(value)


def decoded(data: bytes) -> Request | Response:
    kind = msgpack.unpackb(data)["type"]
    requests = {one.__name__ for one in codec.REQUESTS}
    return codec.decode_request(data) if kind in requests else codec.decode_response(data)


def test_only_fields_of_the_messages_cross_and_no_row_is_among_them() -> None:
    problem = generate(3, 2, 3, seed=11, points_per_cluster=5, radius=0.3).problem
    recorder = WireTransport(InProcessTransport.of(problem, PaperWorker), record=True)
    result = run(CheckedTransport(recorder), Settings(3, gap=1e-4))
    recorder.close()
    assert result.certified
    assert recorder.recorded is not None
    assert len(recorder.recorded) == 2 * 3 * recorder.exchanges
    kinds = [one for one in vars(messages).values() if isinstance(one, type) and dataclasses.is_dataclass(one)]
    allowed = {field.name for kind in kinds for field in dataclasses.fields(kind)} | {"consentroid", "type", "body"}
    rows = np.concatenate([node.points for node in problem.nodes])
    for data in recorder.recorded:
        assert set(names_in(msgpack.unpackb(data))) <= allowed
        for row in rows:
            assert row.tobytes() not in data
        for array in arrays_of(decoded(data)):
            if array.ndim >= 2 and array.shape[-1] == rows.shape[1]:
                vectors = array.reshape(-1, rows.shape[1])
                distance = np.abs(vectors[:, None, :] - rows[None, :, :]).max(axis=2)
                assert distance.min(initial=np.inf) > 1e-12, "a row crossed"


def test_ten_simulated_nodes_have_the_same_trace_over_the_wire() -> None:
    """Encoding loses nothing, not even the last bit of a float."""
    rng = np.random.default_rng(2)
    rows = {f"node{i}": 2.0 * rng.integers(0, 2, (6, 1)) + 0.3 * rng.normal(size=(6, 2)) for i in range(10)}
    problem = Problem.checked(rows, 2)
    settings = Settings(2, gap=1e-3, max_rounds=12, prove=False)
    plain = run(InProcessTransport.of(problem, PaperWorker), settings, domain=problem.domain)
    wired = run(
        CheckedTransport(WireTransport(InProcessTransport.of(problem, PaperWorker))), settings, domain=problem.domain
    )
    for mine, theirs in zip(wired.history, plain.history, strict=True):
        assert (mine.lower, mine.upper, mine.dual_value) == (theirs.lower, theirs.upper, theirs.dual_value)
    assert wired.bytes_up > 0
    assert np.array_equal(wired.centroids, plain.centroids)
