"""What holds for every command, read from the tree of commands: options mean the same everywhere, and whatever is wrong
is said in one sentence. A new command without a line in `WRONG` fails here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from consentroid.cli.main import app, main


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    for name in command.list_commands(None):
        yield from leaves(command.get_command(None, name), (*path, name))


EVERY = dict(leaves(get_command(app)))
# Commands that print no result: nothing to have as JSON.
WITHOUT_JSON = {
    ("warmup",), ("federation", "init"), ("federation", "sign"), ("federation", "revoke"), ("federation", "serve"),
    ("federation", "job"), ("node", "start"), ("node", "keys"), ("node", "certify"), ("node", "approve"),
    ("node", "refuse"),
}  # fmt: skip


def options(command: Any) -> dict[str, Any]:
    return {name: option for option in command.params for name in option.opts}


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_options_mean_the_same_everywhere(path: tuple[str, ...]) -> None:
    command, known = EVERY[path], options(EVERY[path])
    assert command.help
    assert ("--json" in known) == (path not in WITHOUT_JSON)
    for name, option in known.items():
        assert option.help, f"{name} is not explained"
        assert option.help.endswith((".", ")")), f"{name}: {option.help}"
    if "--json" in known:
        assert known["--json"].is_flag
    if "--out" in known:  # a folder for several files, or one file; always a path, never a flag
        assert known["--out"].help.startswith(("Folder for", "File for", "File to write")), known["--out"].help
    if "--resume" in known:
        assert known["--resume"].is_flag
        assert "--out" in known, "there is nothing to resume from"
        assert "--out" in known["--resume"].help
    for gone in ("--limit", "--seconds", "--output", "-o"):
        also = gone == "--limit" and path == ("bench", "published")  # as its users were promised
        assert gone not in known or also, f"{gone}: seconds are --time-limit, results go to --out"
    assert "Example" in command.help or path in WITHOUT_JSON or path[0] in ("federation", "node"), "no example"


def test_an_option_has_one_type_and_one_word() -> None:
    """Whatever `--gap` is, it is that in every command."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for path, command in EVERY.items():
        for name, option in options(command).items():
            if name.startswith("-"):
                kind = "flag" if option.is_flag else "many" if option.multiple else "one"
                kinds.setdefault(name, {}).setdefault(kind, []).append(" ".join(path))
    assert len(kinds["--json"]["flag"]) > 10
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


SECRET_URL = "postgresql+psycopg://me:Kx7@host/db"


WRONG: list[tuple[tuple[object, ...], str]] = [
    (("fit", "--node", "a", "-k", 2), "--node 'a' must have the form NAME=FILE"),
    (("fit", "--node", "a=missing.csv", "-k", 2), "no such file"),
    (("fit", "--node", "a[/b]=x.csv", "-k", 2), "the site name 'a[/b]' has the character '['"),
    (("fit", "--node", "a\x1b=x.csv", "-k", 2), "the site name 'a\\x1b' has"),
    (("fit", "--node", "a=x.csv", "--node", "a=y.csv", "-k", 2), "two files are given for site 'a'"),
    (("fit", "--node", SECRET_URL, "-k", 2), "give the site a name"),
    (("fit", "--node", SECRET_URL + "?a=b#t", "-k", 2), "give the site a name"),
    (("fit", "--node", f"a={SECRET_URL}", "-k", 2), "must end in #TABLE"),
    (("fit", "--node", "a=x.csv", "-k", 2, "--method", "newton"), "'newton' is not one of 'row-prices'"),
    (("fit", "--node", "a=x.csv", "-k", 2, "--scale", "log"), "is not one of 'none', 'standard', 'minmax'"),
    (("predict", "nowhere", "--node", "a=x.csv"), "result.json' is missing; give the folder"),
    (("select-k", "--node", "a=x.csv", "--from", 5, "--to", 2), "must be an increasing range"),
    (("compare", "--node", "a=x.csv", "-k", 2, "--out", "/proc/nowhere"), "cannot write"),
    (("replay",), "--instances DIR or --generate"),
    (("replay", "--instances", "nowhere"), "does not exist"),
    (("replay", "--generate", "3X"), "not a class"),
    (("replay", "--generate", "2N2D2K", "--methods", "newton"), "unknown method 'newton'"),
    (("replay", "--generate", "2N2D2K", "--out", "/proc/nowhere/x.json"), "cannot write"),
    (("report", "nowhere"), "nowhere"),
    (("bench", "solvers", "--instances", "nowhere"), "does not exist"),
    (("verify", "nowhere.json"), "nowhere.json"),
    (("fitt",), "No such command 'fitt'"),
    (("demo", "--out", "/proc/nowhere"), "cannot write to '/proc/nowhere'"),
    (("fit", "--node", "a=x.csv", "-k", 2, "--resume", "--method", "btm"), "--resume goes on with row prices"),
    (("fit", "--node", "a=x.csv", "-k", 2, "--time-limit", "soon"), "Invalid value for '--time-limit'"),
    (("fit", "--node", "a=x.csv"), "Missing option '-k' / '--clusters'"),
    (("compare", "--node", "a", "-k", 2), "must have the form NAME=FILE"),
    (("report", "nowhere", "--least", "few"), "Invalid value for '--least'"),
    (("warmup", "now"), "unexpected extra argument"),
    (("verify", "nowhere.json", "--node", "a"), "nowhere.json"),
    (("federation", "init", "kits", "--nodes", "a,a"), "node names a, a are not distinct"),
    (("federation", "init", "kits", "--nodes", ""), "needs at least one node"),
    (("federation", "sign", "nowhere", "x.csr"), "'x.csr' is not a signing request"),
    (("federation", "revoke", "nowhere", "x"), "no certificate was issued to 'x'"),
    (("federation", "serve", "nowhere"), "not a server's kit"),
    (("federation", "fit", "nowhere", "-k", 3), "nowhere does not say which nodes there are"),
    (("federation", "verify", "nowhere"), "nowhere is not an administrator's kit"),
    (("federation", "job", "job", "--nodes", "a", "-k", 0), "n_clusters=0 must be an integer of at least 1"),
    (("node", "start", "nowhere", "--data", "x.csv"), "not a node's kit"),
    (("node", "keys", "nowhere"), "the new key needs the node's name"),
    (("node", "certify", "nowhere"), "give --certificate, --key or --revoked"),
    (("node", "log", "nowhere"), "not a node's kit"),
    (("node", "approve", "nowhere"), "not a node's kit"),
    (("node", "refuse", "nowhere"), "not a node's kit"),
    (("bench", "figures", "--out", "/proc/nowhere/figures.json"), "cannot write"),
    (("bench", "published", "--data", "nowhere"), "--data 'nowhere' is not a folder"),
    (("bench", "growth", "--curves", "speed"), "choose from rows, features, clusters, sites"),
    (("bench", "growth", "--sizes", 0), "Invalid value for '--sizes'"),
    (("bench", "disclosure", "--data", "moon"), "choose from generated, lung, penguins"),
    (("bench", "profile", "--data", "nowhere"), "--data 'nowhere' is not a folder"),
    (("bench", "rounds", "--instances", "nowhere"), "does not exist"),
    (("bench", "rounds", "--seeds", 0), "Invalid value for '--seeds'"),
]


def test_every_command_has_its_errors_tried() -> None:
    tried = {path for path in EVERY for arguments, _ in WRONG if tuple(arguments[: len(path)]) == path}
    assert tried == set(EVERY)


@pytest.mark.parametrize(("arguments", "says"), WRONG)
def test_bad_input_is_one_sentence_without_a_traceback(
    arguments: tuple[object, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["consentroid", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr()
    assert left.value.code == 2, told.err
    assert says in " ".join(told.err.split())
    assert "Traceback" not in told.err + told.out
    assert "Kx7" not in told.err + told.out
    assert "\x1b" not in told.err
    assert told.out == ""
    assert list(tmp_path.iterdir()) == []
