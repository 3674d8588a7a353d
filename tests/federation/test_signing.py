"""A site answers who is the coordinator of its kit, for this site, in this job, once; nobody else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

pytest.importorskip("nvflare")

from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.errors import NodeRefused
from consentroid.federation.desk import Desk
from consentroid.federation.protocol import DONE, REFUSED, UNKNOWN
from consentroid.federation.signing import REQUEST, Gate, Question, Signer, identifier_of
from keys import SERVER, startup

QUESTION = Question("run-1", "job-1", "north", 3, 1, REQUEST, b"what?")


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer.of_server(startup(tmp_path_factory.mktemp("server"), SERVER))


@pytest.fixture(scope="module")
def north(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return startup(tmp_path_factory.mktemp("north"), "north")


def gate(north: Path, job: str = "job-1") -> Gate:
    return Gate.of_site(north, "north", job)


def changed(sealed: bytes, **changes: Any) -> bytes:
    return bytes(msgpack.packb(msgpack.unpackb(sealed) | changes))


def test_what_the_coordinator_signed_is_let_through(coordinator: Signer, north: Path) -> None:
    assert gate(north).open(coordinator.seal(QUESTION)) == QUESTION


def test_each_request_is_let_through_once_and_in_order(coordinator: Signer, north: Path) -> None:
    one = gate(north)
    sealed = [coordinator.seal(replace(QUESTION, number=number)) for number in (1, 2, 3)]
    one.open(sealed[0])
    one.open(sealed[2])
    for again in sealed:
        with pytest.raises(NodeRefused, match="made before"):
            one.open(again)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (replace(QUESTION, site="south"), "another site"),
        (replace(QUESTION, job="job-0"), "another run"),
        (replace(QUESTION, number=0), "made before"),
        (replace(QUESTION, number=-1), "made before"),
    ],
)
def test_what_was_signed_for_others_is_refused(other: Question, reason: str, coordinator: Signer, north: Path) -> None:
    with pytest.raises(NodeRefused, match=reason):
        gate(north).open(coordinator.seal(other))


def test_another_run_in_the_same_job_is_refused(coordinator: Signer, north: Path) -> None:
    one = gate(north)
    one.open(coordinator.seal(QUESTION))
    with pytest.raises(NodeRefused, match="another run"):
        one.open(coordinator.seal(replace(QUESTION, run="run-2", number=2)))


def test_a_recorded_request_is_worth_nothing_in_the_next_job(coordinator: Signer, north: Path) -> None:
    with pytest.raises(NodeRefused, match="another run"):
        gate(north, job="job-2").open(coordinator.seal(QUESTION))


@pytest.mark.parametrize(
    ("name", "root", "days", "reason"),
    [
        ("south", "root", (-1, 30), f"not signed by '{SERVER}'"),  # another site of the federation
        ("north", "root", (-1, 30), f"not signed by '{SERVER}'"),  # the site itself
        (SERVER, "another root", (-1, 30), "no certificate of this federation"),
        (SERVER, SERVER, (-1, 30), "no certificate of this federation"),
        (SERVER, "root", (-30, -1), "not valid today"),
        (SERVER, "root", (1, 30), "not valid today"),
    ],
)
def test_other_keys_are_refused(
    name: str, root: str, days: tuple[int, int], reason: str, north: Path, tmp_path: Path
) -> None:
    folder = startup(tmp_path / "other", name, root, days)
    other = Signer.of_server(folder) if name == SERVER else Signer.of_site(folder)
    with pytest.raises(NodeRefused, match=reason):
        gate(north).open(other.seal(QUESTION))


def test_a_certificate_without_its_key_is_refused(coordinator: Signer, north: Path, tmp_path: Path) -> None:
    """A site that shows the coordinator's certificate and signs by itself."""
    forger = Signer.of_site(startup(tmp_path / "south", "south"))
    forged = changed(forger.seal(QUESTION), certificate=coordinator.certificate)
    with pytest.raises(NodeRefused, match="signature does not fit"):
        gate(north).open(forged)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", "run-2"), ("job", "job-2"), ("site", "south"), ("n_sites", 2), ("number", 9), ("content", b"all"),
        ("kind", "hello"),
    ],
)  # fmt: skip
def test_every_field_is_signed(field: str, value: Any, coordinator: Signer, north: Path) -> None:
    with pytest.raises(NodeRefused, match="signature does not fit"):
        gate(north).open(changed(coordinator.seal(QUESTION), **{field: value}))


def test_a_site_whose_kit_names_no_server_has_no_gate(north: Path, tmp_path: Path) -> None:
    from consentroid.core.errors import InvalidInput

    folder = startup(tmp_path / "kit", "north")
    (folder / "fed_client.json").write_text("{}")
    with pytest.raises(InvalidInput, match="nobody may ask"):
        Gate.of_site(folder, "north", "job-1")


@given(st.binary(max_size=200), st.integers(0, 10**6), st.integers(0, 7))
def test_no_bytes_open_the_gate(junk: bytes, place: int, bit: int) -> None:
    sealed, one = _sealed()
    for attempt in (junk, sealed[: place % len(sealed)], _flipped(sealed, place % len(sealed), bit)):
        with pytest.raises(NodeRefused):
            one.open(attempt)


_KEPT: list[tuple[bytes, Gate]] = []


@pytest.fixture(autouse=True)
def _keep(coordinator: Signer, north: Path) -> None:
    _KEPT[:] = [(coordinator.seal(QUESTION), gate(north))]


def _sealed() -> tuple[bytes, Gate]:
    return _KEPT[0]


def _flipped(data: bytes, place: int, bit: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def test_an_answer_is_given_to_who_holds_the_request(coordinator: Signer, north: Path) -> None:
    asked: list[Question] = []

    def answer(question: Question) -> bytes:
        asked.append(question)
        return b"an answer"

    desk = Desk(gate(north), answer, poll=5.0)
    sealed = coordinator.seal(QUESTION)
    identifier = identifier_of(sealed)
    try:
        assert desk.collect(identifier) == (UNKNOWN, b"")
        assert desk.ask("0" * 64, sealed) == (REFUSED, b"")
        assert desk.ask(identifier, b"something else") == (REFUSED, b"")
        assert desk.ask(identifier, sealed) == (DONE, b"an answer")
        assert desk.ask(identifier, sealed) == (DONE, b"an answer")  # the reply was lost: kept, not made again
        assert desk.collect(identifier) == (DONE, b"an answer")
        again = coordinator.seal(QUESTION)  # the same question under a new signature is a replay
        assert desk.ask(identifier_of(again), again) == (REFUSED, b"")
    finally:
        desk.close()
    assert len(asked) == 1
