"""Masked sums between real desks: the same result as open sums, and nothing of a single site at the coordinator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.shareable import Shareable

from consentroid.certificate.signatures import Root
from consentroid.core.errors import InvalidInput, NodeFailed, NodeRefused
from consentroid.core.problem import Problem
from consentroid.federation.controller import without_small_cells
from consentroid.federation.desk import KEPT, serve
from consentroid.federation.protocol import ASK, DONE, REFUSED
from consentroid.federation.secure import ALL, SecureTransport
from consentroid.federation.signing import Question, Signer, identifier_of
from consentroid.federation.transport import FlareTransport
from consentroid.protocol import codec
from consentroid.protocol.messages import Describe, Description, Failure, Moments, PriceQuery, PriceReply, Query
from consentroid.site.masks import MaskedReply, SiteMasks
from consentroid.site.policy import Policy
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.inprocess import InProcessTransport
from consentroid.transport.journal import JournalTransport
from engine_runs import Outcome, run_engine
from keys import startup
from made_results import made_result
from wire import COORDINATOR, NODES, OPEN, SECURE, VICTIM, Fault, Wire, round_of


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng = np.random.default_rng(4)
    return Problem.checked({name: rng.normal(size=(30, 2)) + 3 * rng.integers(0, 2, (30, 1)) for name in NODES}, 3)


@pytest.fixture(scope="module")
def alone(problem: Problem) -> Outcome:
    return run_engine(InProcessTransport.of(problem), problem, gap=1e-4)


def secure(
    problem: Problem, journal: Path | None = None, fault: Fault | None = None, policy: Policy = SECURE
) -> Outcome:
    line = Wire(problem, fault, policy)
    transport = line.transport()
    masked = SecureTransport(transport, problem.domain)
    try:
        inner = masked if journal is None else JournalTransport(masked, journal)
        return run_engine(CheckedTransport(inner), problem, gap=1e-4)
    finally:
        transport.close()
        line.close()


def assert_agrees(result: Outcome, expected: Outcome) -> None:
    """The bound of the masked run differs from the open one only by rounding."""
    assert result.upper == pytest.approx(expected.upper, rel=1e-9)
    assert result.lower == pytest.approx(expected.lower, rel=1e-4)
    assert result.lower <= expected.upper * (1 + 1e-12)
    assert (result.upper - result.lower) / result.upper <= 1e-4


def test_a_masked_run_proves_what_an_open_run_proves(problem: Problem, alone: Outcome) -> None:
    assert_agrees(secure(problem), alone)


def test_a_masked_run_under_the_default_policy() -> None:
    """Sums on a grid: with twenty rows in each cluster and site that costs half a per cent, and the run ends."""
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [9.0, 1.0], [2.0, 9.0]])
    rows = {name: np.concatenate([c + rng.normal(size=(20, 2)) for c in centres]) for name in NODES}
    problem = Problem.checked(rows, 3)
    exact, guarded = run_engine(InProcessTransport.of(problem), problem, gap=1e-4), secure(problem, policy=Policy())
    assert guarded.lower <= exact.upper
    assert exact.lower <= guarded.upper <= 1.001 * exact.upper
    assert guarded.lower >= 0.995 * exact.lower


def test_two_sites_can_mask_too() -> None:
    rng = np.random.default_rng(0)
    problem = Problem.checked({name: rng.normal(size=(20, 2)) for name in NODES[:2]}, 2)
    assert_agrees(secure(problem), run_engine(InProcessTransport.of(problem), problem, gap=1e-4))


def test_what_a_site_sends_tells_nothing_of_its_own(problem: Problem) -> None:
    """All words of all replies look random: no number of the open reply is among them, and every bit is even."""
    seen: list[np.ndarray] = []

    def listening(line: Wire, name: str, request: Shareable) -> Shareable:
        reply = serve(line.desks[name], request)
        masked = MaskedReply.unpacked(reply["data"]) if reply["state"] == DONE and round_of(request) > 0 else None
        if masked is not None:
            seen.append(masked.words)
        return reply

    secure(problem, fault=listening)
    words = np.concatenate(seen)
    assert len(words) > 1000
    for bit in range(64):
        share = float(np.mean(words >> np.uint64(bit) & np.uint64(1)))
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(len(words)), bit
    assert len(np.unique(words)) == len(words)


def flipping(line: Wire, name: str, request: Shareable) -> Shareable:
    reply = serve(line.desks[name], request)
    if reply["state"] == DONE and round_of(request) == 4:
        data = bytearray(reply["data"])
        place = data.index(b"words") + 40
        data[place] ^= 4
        reply["data"] = bytes(data)
    return reply


def test_a_flipped_bit_stops_the_run_and_it_resumes(problem: Problem, alone: Outcome, tmp_path: Path) -> None:
    with pytest.raises(NodeFailed, match="do not add up"):
        secure(problem, tmp_path / "journal", flipping)
    assert_agrees(secure(problem, tmp_path / "journal"), alone)


def test_a_bit_flipped_once_is_asked_again(problem: Problem, alone: Outcome) -> None:
    struck: list[int] = []

    def once(line: Wire, name: str, request: Shareable) -> Shareable:
        if round_of(request) == 4 and not struck:
            struck.append(1)
            return flipping(line, name, request)
        return serve(line.desks[name], request)

    assert_agrees(secure(problem, fault=once), alone)
    assert struck


def test_a_lost_site_is_resumed_with_new_keys(problem: Problem, alone: Outcome, tmp_path: Path) -> None:
    def silent(line: Wire, name: str, request: Shareable) -> Shareable:
        from nvflare.apis.fl_constant import ReturnCode
        from nvflare.apis.shareable import make_reply

        return make_reply(ReturnCode.TIMEOUT) if round_of(request) >= 8 else serve(line.desks[name], request)

    with pytest.raises(NodeFailed, match="no sign of life"):
        secure(problem, tmp_path / "journal", silent)
    assert_agrees(secure(problem, tmp_path / "journal"), alone)


def test_a_site_with_a_key_of_another_federation_is_refused_by_the_others(problem: Problem, tmp_path: Path) -> None:
    """The victim signs its key for masks with a certificate that this federation's root did not issue."""
    stranger = Signer.of_site(startup(tmp_path / "south", "south", root="another root"))

    greeting = False

    def strange(line: Wire, name: str, request: Shareable) -> Shareable:
        nonlocal greeting
        reply = serve(line.desks[name], request)
        if request["call"] == ASK:
            greeting = msgpack.unpackb(request["data"])["kind"] == "hello"
        if greeting and reply["state"] == DONE:  # at once, or when it is asked for later
            greeting = False
            from consentroid.site.masks import Hello

            hello = Hello.unpacked(msgpack.unpackb(reply["data"]))
            forged = replace(hello, certificate=stranger.certificate, signature=stranger.sign(hello.statement()))
            reply["data"] = msgpack.packb(forged.packed())
        return reply

    with pytest.raises(NodeFailed, match="no certificate of this federation"):
        secure(problem, fault=strange)


@pytest.mark.parametrize("policy", [OPEN, SECURE])
def test_open_questions_are_answered_as_the_policy_says(problem: Problem, policy: Policy) -> None:
    line = Wire(problem, policy=policy)
    transport = line.transport()
    try:
        transport.exchange([Describe(3, problem.domain.lower, problem.domain.upper)] * 3)
        replies = transport.exchange([PriceQuery(1, moments=Moments(np.zeros(2)))] * 3)
    finally:
        transport.close()
        line.close()
    for reply in replies:
        if policy is OPEN:
            assert isinstance(reply, PriceReply)
        else:
            assert isinstance(reply, Failure)
            assert "rule 'masks'" in reply.reason


def test_a_site_that_masks_answers_nothing_openly_any_more(problem: Problem) -> None:
    """After the keys are met, every reply about rows is masked, also one that a single site is asked for."""
    line = Wire(problem, policy=OPEN)
    transport = line.transport()
    masked = SecureTransport(transport, problem.domain)
    try:
        described = masked.exchange([Describe(3, problem.domain.lower, problem.domain.upper)])
        assert isinstance(described[0], Description)
        assert described[0].n_points == 90
        replies = transport.exchange([PriceQuery(1, moments=Moments(np.zeros(2)))] * 3)
        assert all(isinstance(reply, Failure) for reply in replies)  # not a message that the open protocol knows
        with pytest.raises(InvalidInput, match="--open"):
            masked.exchange([Query(1)])
    finally:
        transport.close()
        line.close()
    assert masked.nodes == (ALL,)


# ------------------------------------------------------------------ a mask serves once


def recorded(problem: Problem, kinds: tuple[str, ...] = ("request",)) -> tuple[Wire, FlareTransport, list[Shareable]]:
    """A masked run up to its moments, and what the victim was sent."""
    seen: list[Shareable] = []

    def listening(line: Wire, name: str, request: Shareable) -> Shareable:
        if request["call"] == ASK and msgpack.unpackb(request["data"])["kind"] in kinds:
            seen.append(request)
        return serve(line.desks[name], request)

    line = Wire(problem, listening, SECURE)
    transport = line.transport()
    masked = SecureTransport(transport, problem.domain)
    described = masked.exchange([Describe(3, problem.domain.lower, problem.domain.upper)])
    assert isinstance(described[0], Description)
    assert isinstance(masked.exchange([PriceQuery(1, moments=Moments(np.zeros(2)))])[0], PriceReply)
    return line, transport, seen


def replayed(line: Wire, request: Shareable, **changes: object) -> Shareable:
    """The victim asked once more: the same bytes, or newly signed by the coordinator with these changes."""
    again = Shareable()
    again.update(request)
    if changes:
        envelope = msgpack.unpackb(request["data"])
        kept = {name: envelope[name] for name in ("run", "job", "site", "n_sites", "number", "kind", "content")}
        again["data"] = COORDINATOR.seal(Question(**kept | changes))
        again["id"] = identifier_of(again["data"])
    return serve(line.desks[VICTIM], again)


def test_a_replayed_request_gets_the_kept_reply_or_none(problem: Problem) -> None:
    """Also one that the coordinator itself signs again for a single site: no second reply under the same masks."""
    line, transport, seen = recorded(problem)
    try:
        last = seen[-1]
        first = replayed(line, last)
        assert first["state"] == DONE
        assert replayed(line, last)["data"] == first["data"], "the same bytes: nothing is learnt"
        other = codec.encode(PriceQuery(1, moments=Moments(np.ones(2))))
        for changes in ({"kind": "request"}, {"content": other}, {"number": 1}, {"kind": "features"}):
            refused = replayed(line, last, **changes)
            assert (refused["state"], refused["data"]) == (REFUSED, b""), changes
        for number in range(100, 100 + KEPT):
            replayed(line, last, number=number)
        gone = replayed(line, last)
        assert (gone["state"], gone["data"]) == (REFUSED, b""), "no longer kept, and not made again"
    finally:
        transport.close()
        line.close()


def test_one_number_and_several_contents_make_garbage(problem: Problem) -> None:
    """The coordinator asks one site something else under the same number: the sum tells nothing, and is found out."""
    line, transport, _ = recorded(problem)
    try:
        contents = [codec.encode(PriceQuery(2, moments=Moments(np.full(2, x)))) for x in (0.0, 0.0, 1.0)]
        replies = [MaskedReply.unpacked(one) for one in transport.ask("request", contents) if isinstance(one, bytes)]
        words = sum((reply.words for reply in replies if reply is not None), np.zeros((), np.uint64))
        assert len(replies) == 3
        small = (words < np.uint64(2**62)) | (words > np.uint64(2**64 - 2**62))
        assert not small.all(), "masks that cancel leave numbers below 2^62"
        honest = [MaskedReply.unpacked(one) for one in transport.ask("request", contents[:1] * 3)]  # type: ignore[arg-type]
        words = sum((reply.words for reply in honest if reply is not None), np.zeros((), np.uint64))[:-1]
        assert ((words < np.uint64(2**62)) | (words > np.uint64(2**64 - 2**62))).all()
    finally:
        transport.close()
        line.close()


def test_masks_are_refused_for_a_number_that_does_not_grow(tmp_path: Path) -> None:
    masks = {}
    for name in ("north", "south"):
        signer = Signer.of_site(startup(tmp_path / name, name))
        check = Root.read(tmp_path / name).check_site("")
        masks[name] = SiteMasks("job", name, signer.sign, signer.certificate, check)
    hellos = [one.hello(30.0, 8.0) for one in masks.values()]
    for one in masks.values():
        one.meet(hellos, 2)
    north, words = masks["north"], np.zeros(5, np.uint64)
    first = north.masked(words, 7, b"digest")
    assert np.all(first + masks["south"].masked(words, 7, b"digest") == 0)
    north.meet(hellos, 2)  # the same keys once more are the same masks
    for number in (7, 6, 0, -1):
        with pytest.raises(NodeRefused, match="have been used"):
            north.masked(words, number, b"another digest")
    assert not np.array_equal(north.masked(words, 8, b"digest"), first)


@pytest.mark.parametrize(
    ("counts", "told", "withheld"),
    [
        ([20.0, 30.0, 40.0], [20.0, 30.0, 40.0], 0.0),
        ([3.0, 30.0, 40.0], [0.0, 0.0, 40.0], 33.0),  # the total is known: three would follow from it
        ([3.0, 4.0, 40.0], [0.0, 0.0, 40.0], 7.0),
        ([0.0, 30.0, 40.0], [0.0, 30.0, 40.0], 0.0),
    ],
)
def test_counts_of_few_rows_are_left_out(counts: list[float], told: list[float], withheld: float) -> None:
    result = made_result(counts=np.array(counts), radii=np.ones(3))
    left = without_small_cells(result)
    assert left.counts.tolist() == told
    assert left.withheld == withheld
    assert np.array_equal(np.isnan(left.radii), (np.array(counts) > 0) & (np.array(told) == 0))
