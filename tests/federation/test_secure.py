"""Masked sums between real desks: the same result as open sums, and nothing of a single site at the coordinator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.shareable import Shareable

from consentroid.core.errors import InvalidInput, NodeFailed
from consentroid.core.problem import Problem
from consentroid.federation.desk import serve
from consentroid.federation.protocol import ASK, DONE
from consentroid.federation.secure import ALL, SecureTransport
from consentroid.federation.signing import Signer
from consentroid.protocol.messages import Describe, Description, Failure, Moments, PriceQuery, PriceReply, Query
from consentroid.site.masks import MaskedReply
from consentroid.site.policy import Policy
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.inprocess import InProcessTransport
from consentroid.transport.journal import JournalTransport
from engine_runs import Outcome, run_engine
from keys import startup
from wire import NODES, OPEN, SECURE, Fault, Wire, round_of


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
    """Groups of five rows or more: with twenty rows in each cluster and site nothing is lost."""
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0], [9.0, 1.0], [2.0, 9.0]])
    rows = {name: np.concatenate([c + rng.normal(size=(20, 2)) for c in centres]) for name in NODES}
    problem = Problem.checked(rows, 3)
    assert_agrees(secure(problem, policy=Policy()), run_engine(InProcessTransport.of(problem), problem, gap=1e-4))


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

    def strange(line: Wire, name: str, request: Shareable) -> Shareable:
        reply = serve(line.desks[name], request)
        if request["call"] == ASK and msgpack.unpackb(request["data"])["kind"] == "hello" and reply["state"] == DONE:
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
