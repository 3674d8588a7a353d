"""Messages as bytes: what is written is read back, and nothing else is read."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import tracemalloc
import typing

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from consentroid.core.arrays import Array
from consentroid.core.errors import MalformedMessage
from consentroid.protocol import codec, messages
from consentroid.protocol.messages import (
    BoxSums,
    Claim,
    ClaimSums,
    ColumnSums,
    Coordinates,
    Describe,
    Description,
    Evaluate,
    Evaluated,
    Examine,
    Failure,
    FindTriples,
    KeepPrices,
    Located,
    MakeColumns,
    Moments,
    MomentSums,
    MovePrices,
    Priced,
    PriceQuery,
    PriceReply,
    PricesKept,
    Query,
    Reply,
    Solve,
    Solved,
    StartPrices,
    Trim,
    Trimmed,
    TripleSums,
)
from consentroid.protocol.sizes import size_of
from consentroid.transport.metered import WireTransport


def a_query(rng: np.random.Generator, b: int = 2, k: int = 3, d: int = 2, c: int = 1) -> Query:
    return Query(
        round=7,
        rule="order",
        references=rng.normal(size=(k, d)),
        solve=Solve(rng.normal(size=(b, 2, k, d)), rng.normal(size=(b, k, d)), seconds=1.5),
        evaluate=Evaluate(rng.normal(size=(c, k, d))),
    )


def a_reply(rng: np.random.Generator, b: int = 2, k: int = 3, d: int = 2, c: int = 1) -> Reply:
    return Reply(
        round=7,
        node="north",
        solved=Solved(
            np.array([np.inf] + [1.0] * (b - 1)), rng.normal(size=b), rng.normal(size=(b, k, d)), rng.random(b) < 0.5
        ),
        evaluated=Evaluated(rng.random(c), rng.random((c, k)), rng.normal(size=(c, k, d)), rng.random((c, k))),
        seconds=0.25,
    )


def a_price_query(rng: np.random.Generator, b: int = 3, d: int = 2, s: int = 4, q: int = 2, t: int = 5) -> PriceQuery:
    def normal(*shape: int) -> Array:
        return rng.normal(size=shape)

    def whole(*shape: int) -> np.ndarray:
        return rng.integers(-1, 2**60, shape)

    held = rng.random((b, d)) < 0.5
    return PriceQuery(
        round=3,
        step=2,
        moments=Moments(normal(d)),
        coordinates=Coordinates(normal(d), normal(d, d), 0.5),
        start=StartPrices(0, normal(3, d)),
        move=MovePrices(1, 0, 0.1, rng.random(s)),
        columns=MakeColumns(1, 0, rng.random(s) < 0.5, normal(q, d)),
        triples=FindTriples(rng.random(s), 20),
        trim=Trim(1, normal(7, d)),
        examine=Examine(1, normal(b, d), normal(b, d), held, rng.random(b), whole(b), whole(b)),
        claim=Claim(1, normal(b, d), normal(b, d), held, whole(t), whole(t), whole(t), normal(t), rng.random(t)),
        evaluate=Evaluate(normal(2, 3, d)),
        keep=KeepPrices(whole(2)),
    )


def a_price_reply(rng: np.random.Generator, b: int = 3, d: int = 2, s: int = 4, q: int = 2, t: int = 5) -> PriceReply:
    def normal(*shape: int) -> Array:
        return rng.normal(size=shape)

    return PriceReply(
        round=3,
        node="north",
        step=2,
        moments=MomentSums(9.0, normal(d), normal(d, d)),
        located=Located(1e-30),
        priced=Priced(4.0, rng.random(s)),
        columns=ColumnSums(rng.random(q), rng.random(q), rng.random((q, s - 1 + q)), rng.random(q), rng.random(q)),
        triples=TripleSums(3.0, rng.random((s, s))),
        trimmed=Trimmed(-rng.random(7), rng.random(7), normal(7, d)),
        boxes=BoxSums(
            normal(b, d + 2), normal(b, d + 2), rng.random(b), rng.random(b), normal(b, d, 2, 3, 4), rng.random((b, d))
        ),
        claimed=ClaimSums(normal(b, d + 2), normal(b, d + 2), normal(t)),
        evaluated=Evaluated(rng.random(2), rng.random((2, 3)), normal(2, 3, d), rng.random((2, 3))),
        kept=PricesKept("0" * 64, rng.random(2)),
        seconds=0.25,
    )


def assert_same(left: object, right: object) -> None:
    assert type(left) is type(right)
    for field in dataclasses.fields(left):  # type: ignore[arg-type]
        a, b = getattr(left, field.name), getattr(right, field.name)
        if dataclasses.is_dataclass(a):
            assert_same(a, b)
        elif isinstance(a, np.ndarray):
            assert_array_equal(a, b)
            assert a.dtype == b.dtype
        else:
            assert a == b


SAMPLES = [
    Describe(3),
    Describe(3, np.zeros(2), np.ones(2), ("age", "weight")),
    Query(0),
    a_query(np.random.default_rng(1)),
    Description("north", 10, 2, 3, 10.0, ("age", "weight"), np.zeros(2), np.ones(2)),
    Description("Münster", 10, 2, 3, 10.0),
    Description("west", 10, 2, 3, 10.0, allowed=np.array([5000.0, 1e6, 1e6])),
    Reply(1, "north"),
    a_reply(np.random.default_rng(2)),
    Failure("south", "InvalidInput: row 3", 4),
    Failure("south", "this site does not take part", 4, final=True),
    PriceQuery(0),
    a_price_query(np.random.default_rng(3)),
    PriceReply(1, "north"),
    a_price_reply(np.random.default_rng(4)),
]


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_wire(message: object) -> None:
    decode = codec.decode_request if isinstance(message, codec.REQUESTS) else codec.decode_response
    assert_same(decode(codec.encode(message)), message)  # type: ignore[arg-type]


@given(st.integers(0, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_any_sizes_survive_the_wire(b: int, k: int, d: int, c: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, reply = a_query(rng, b, k, d, c), a_reply(rng, max(b, 1), k, d, c)
    assert_same(codec.decode_request(codec.encode(query)), query)
    assert_same(codec.decode_response(codec.encode(reply)), reply)


@given(st.integers(0, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_any_sizes_of_row_price_messages_survive_the_wire(b: int, d: int, s: int, q: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, reply = a_price_query(rng, b, d, s, q, b), a_price_reply(rng, b, d, s, q, b)
    assert_same(codec.decode_request(codec.encode(query)), query)
    assert_same(codec.decode_response(codec.encode(reply)), reply)


def test_every_array_field_of_every_message_has_a_shape() -> None:
    arrays, kinds = set(), list(codec.TYPES.values())
    for kind in kinds:
        for name, hint in codec.fields_of(kind).items():
            hint, _ = codec._required(hint)
            if dataclasses.is_dataclass(hint):
                kinds.append(hint)
            elif typing.get_origin(hint) is np.ndarray:
                arrays.add(f"{kind.__name__}.{name}")
    assert arrays == set(codec.SHAPES)
    declared = {one for one in vars(messages).values() if dataclasses.is_dataclass(one)}
    assert set(kinds) == declared


def _with(path: str, value: object, reply: Reply | PriceReply | None = None) -> bytes:
    """A good reply with one field of its frame replaced."""
    frame = msgpack.unpackb(codec.encode(reply or a_reply(np.random.default_rng(3))))
    *parents, leaf = path.split(".")
    place = frame
    for name in parents:
        place = place[name]
    place[leaf] = value
    return msgpack.packb(frame)


PRICED = a_price_reply(np.random.default_rng(4))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a msgpack"),
        (b"\x93\x01\x02", "not a msgpack"),
        (b"\xde\xff\xff", "elements"),
        (msgpack.packb([1, 2, 3]), "frame must hold"),
        (_with("consentroid", 1), "protocol version 1"),
        (_with("consentroid", True), "protocol version True"),
        (_with("type", "Query"), "unexpected message type"),
        (_with("type", "os.system"), "unexpected message type"),
        (_with("body.rows", [1.0]), "exactly the fields"),
        (_with("body.round", 1.5), "Reply.round"),
        (_with("body.round", True), "Reply.round"),
        (_with("body.node", None), "Reply.node is missing"),
        (_with("body.node", "n" * 5000), "Reply.node"),
        (_with("body.seconds", float("nan")), "Reply.seconds"),
        (_with("body.seconds", float("inf")), "Reply.seconds"),
        (_with("body.solved.bounds", ["f8", [2], np.array([np.nan, 1.0]).tobytes()]), "Solved.bounds holds nan"),
        (_with("body.solved.bounds", ["f8", [3], np.ones(3).tobytes()]), "B=3"),
        (_with("body.solved.bounds", ["f8", [2], np.ones(3).tobytes()]), "bytes"),
        (_with("body.solved.bounds", ["f8", [-2], np.ones(2).tobytes()]), "shape"),
        (_with("body.solved.bounds", ["f8", [2, 1], np.ones(2).tobytes()]), "dimension"),
        (_with("body.solved.bounds", ["O", [2], np.ones(2).tobytes()]), "kind f8"),
        (_with("body.solved.optimal", ["b1", [2], b"\x00\x02"]), "neither true nor false"),
        (_with("body.evaluated.costs", ["f8", [1], np.array([np.inf]).tobytes()]), "Evaluated.costs holds inf"),
        (_with("body.boxes.cuts", ["f8", [3, 2, 2, 3, 3], bytes(864)], PRICED), "4=4"),
        (_with("body.boxes.minorants", ["f8", [3, 5], bytes(120)], PRICED), "E=4"),
        (_with("body.boxes.minorants", ["f8", [3, 1], bytes(24)], PRICED), "E=4"),
        (_with("body.columns.overlaps", ["f8", [1, 4], bytes(32)], PRICED), "Q=2"),
        (_with("body.priced.total", -float("inf"), PRICED), "Priced.total"),
        (_with("body.kept.digest", 5, PRICED), "PricesKept.digest"),
        (_with("body.evaluated.offsets", ["f8", [1, 4, 2], np.ones(8).tobytes()]), "K=3"),
    ],
)
def test_what_is_not_a_reply_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        codec.decode_response(data)


MIB = 2**20
EIGHT = 8 * MIB


@pytest.mark.parametrize(
    "data",
    [
        b"\x90" * EIGHT,
        b"\xdd" + EIGHT.to_bytes(4, "big") + b"\x90" * EIGHT,  # a list of empty lists
        b"\x91" * EIGHT,  # one list in another, and so on
        b"\xdd\xff\xff\xff\xff",  # a list longer than the message
        b"\xdf\x7f\xff\xff\xff",
        (b"\xdc\xff\xff" + b"\x90" * 65_535) * 100,
        msgpack.packb({"consentroid": codec.VERSION, "type": "Reply", "body": [[]] * EIGHT}),
        msgpack.packb({"consentroid": "é" * (EIGHT // 2), "type": "Reply", "body": {}}),
        _with("body.node", b"x" * EIGHT),
        _with("body.solved.bounds", ["f8", [2], b"x" * EIGHT]),
        _with("body.solved.bounds", ["f8", [0] * 11_000, b""]),
        _with("body.solved.optimal", ["b1", [EIGHT], b"\x01" * EIGHT]),
        codec.encode(Description("a", 9, 10_000, 3, 1.0, tuple("ab" for _ in range(10_000)))),
        codec.encode(
            Reply(
                1, "a", evaluated=Evaluated(np.zeros(99), np.zeros((99, 9)), np.zeros((99, 9, 999)), np.zeros((99, 9)))
            )
        ),
    ],
    ids=range(14),
)
def test_decoding_takes_four_times_the_message_at_most(data: bytes) -> None:
    codec.decode_response(codec.encode(PRICED))  # what is prepared once is not counted
    tracemalloc.start()
    try:
        with contextlib.suppress(MalformedMessage):
            codec.decode_response(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 4 * len(data) + MIB


def test_extension_types_are_refused() -> None:
    """Extensions are where msgpack users hide pickles."""
    with pytest.raises(MalformedMessage):
        codec.decode_response(_with("body.node", msgpack.ExtType(1, b"payload")))


def test_a_message_that_would_be_refused_is_not_sent() -> None:
    with pytest.raises(MalformedMessage, match=r"Evaluate\.candidates"):
        codec.encode(Query(1, references=np.zeros((2, 2)), rule="order", evaluate=Evaluate(np.zeros((1, 3, 2)))))
    with pytest.raises(MalformedMessage, match=r"Solve\.prices holds nan"):
        codec.encode(Query(1, solve=Solve(np.zeros((1, 2, 1, 1)), np.full((1, 1, 1), np.nan))))


def test_a_long_reason_is_cut_rather_than_lost() -> None:
    assert len(codec.decode_response(codec.encode(Failure("north", "x" * 10_000))).reason) == codec.MAX_TEXT  # type: ignore[union-attr]


def test_ten_thousand_mutated_replies_are_decoded_or_refused_but_never_crash() -> None:
    source = random.Random(5)
    originals = [codec.encode(message) for message in SAMPLES if isinstance(message, codec.RESPONSES)]
    refused = 0
    for _ in range(10_000):
        data = bytearray(source.choice(originals))
        for _ in range(source.randint(1, 6)):
            action, at = source.randrange(4), source.randrange(len(data) or 1)
            if action == 0 and data:
                data[at] = source.randrange(256)
            elif action == 1:
                del data[at : at + source.randint(1, 9)]
            elif action == 2:
                data[at:at] = source.randbytes(source.randint(1, 9))
            else:
                other = source.choice(originals)
                data[at:] = other[source.randrange(len(other)) :]
        try:
            message = codec.decode_response(bytes(data))
        except MalformedMessage:
            refused += 1
        else:  # a flipped bit inside a number leaves a well-formed message, which must be encodable again
            codec.decode_response(codec.encode(message))
    assert refused > 5_000


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_size_is_known_without_encoding(message: typing.Any) -> None:
    true = len(codec.encode(message))
    assert true <= size_of(message) <= 1.1 * true + 200


def test_a_reply_that_cannot_be_encoded_is_a_failure_of_its_node() -> None:
    class Broken:
        nodes = ("a",)
        bytes_up = bytes_down = 0

        def exchange(self, requests: object) -> list[messages.Response]:
            return [
                Reply(
                    3,
                    "a",
                    evaluated=Evaluated(np.array([np.nan]), np.zeros((1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1))),
                )
            ]

        def close(self) -> None: ...

    (answer,) = WireTransport(Broken()).exchange([Query(3)])
    assert isinstance(answer, Failure)
    assert answer.node == "a"
    assert "Evaluated.costs holds nan" in answer.reason
