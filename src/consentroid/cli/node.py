"""`consentroid node …`: what runs on a data holder's machine."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..certificate.signatures import common_name
from ..core.errors import InvalidInput
from ..federation.approval import APPROVED, REFUSED, Approvals
from ..federation.controls import check_site
from ..federation.keys import (
    install,
    install_revoked,
    key_fingerprint,
    new_key,
    read_certificate,
    read_request,
    request_for,
    stem_of,
)
from ..federation.kit import check_node_names, set_private_table, site_name
from ..federation.private_table import forget_prices, read_rows
from ..federation.process import Member, ended_by_signal
from ..federation.screen import SiteScreen, decide, log_table
from ..federation.site_log import LOG_FILE, SiteLog
from ..site.policy import Policy
from ..warmup import prepare_solver
from .federation import Kit, console, show_key, split

node_app = typer.Typer(help="What runs on a data holder's machine.", no_args_is_help=True, add_completion=False)
Job = Annotated[str | None, typer.Argument(help="The job; default: the only one that waits.")]


@node_app.command("start")
def node_start(
    kit: Kit,
    data: Annotated[str, typer.Option(help="The node's private table: a file, or URL#TABLE of a database.")],
    columns: Annotated[str | None, typer.Option(help="Comma-separated columns to cluster; default: all.")] = None,
    weights: Annotated[str | None, typer.Option(help="Column that holds the weight of each row.")] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Approve each job by hand.")] = False,
) -> None:
    """Offer a private table to the federation. Rows stay on this machine."""
    name = site_name(kit)
    check_site(kit)
    policy = Policy.read(kit / "local")
    if approve and policy.approval != "hand":
        policy = replace(policy, approval="hand")
        policy.write(kit / "local")
    chosen = split(columns) if columns else None
    names, rows, _ = read_rows(data, chosen, weights)
    set_private_table(kit, data, chosen, weights)
    where = "a database" if "://" in data else data
    console.print(
        f"Node '{name}' offers {len(rows)} rows with {', '.join(names)} from {where}; rows stay here.",
        highlight=False,
        markup=False,
    )
    console.print(f"Its policy ({kit / 'local' / 'policy.json'}):", highlight=False, markup=False)
    for line in policy.in_words():
        console.print(f"  {line}", highlight=False, markup=False)
    book, approvals = SiteLog(kit / LOG_FILE), Approvals(kit)
    book.forget(policy.keep_days)
    approvals.forget(policy.keep_days)
    forget_prices(kit, policy.keep_days)
    console.print("Preparing the solver; the first time on a machine this compiles it and can take minutes.")
    prepare_solver()
    _serve(kit, name, book, approvals if policy.approval == "hand" else None)


def _serve(kit: Path, name: str, book: SiteLog, approvals: Approvals | None) -> None:
    """Until Ctrl-C or SIGTERM; the screen shows what is asked."""
    with ended_by_signal() as ended, Member(kit) as member:
        console.print(
            f"The node '{name}' runs; requests are logged in {book.path}, the engine's words in {kit / 'process.log'}. "
            "Press Ctrl-C to stop.",
            highlight=False,
            markup=False,
        )
        screen = SiteScreen(book, console)
        with screen:
            while member.running and not ended.wait(0.25):
                screen.update()
                pending = approvals.pending() if approvals is not None else []
                if pending and approvals is not None and console.is_terminal:
                    screen.pause()
                    decide(approvals, console, pending[0])
                    screen.__enter__()
        if ended.is_set():
            console.print(f"Stopping the node '{name}'.", markup=False)
            return
    raise typer.Exit(member.wait())


@node_app.command("keys")
def node_keys(
    folder: Annotated[Path, typer.Argument(help="A new folder, or a kit whose key is to be renewed.")],
    name: Annotated[str | None, typer.Option(help="The node's name; not needed for a kit.")] = None,
) -> None:
    """Make a private key and a request to sign it; only the request leaves this machine."""
    if (folder / "startup").is_dir():
        stem = stem_of(folder)
        name = common_name(read_certificate(folder / "startup" / f"{stem}.crt").subject)
        place, remedy = (
            folder / "startup" / f"{stem}.key.new",
            f"`consentroid node certify {folder} --certificate FILE`",
        )
    else:
        if name is None:
            raise InvalidInput("the new key needs the node's name; give --name")
        check_node_names([name])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        place, remedy = folder / "client.key", f"`consentroid node certify KIT --key {folder / 'client.key'}`"
    if place.exists():
        raise InvalidInput(f"{place} exists; it may be the key of a request that was sent: remove it to make another")
    request = folder / f"{name}.csr"
    request.write_bytes(request_for(name, new_key(place)))
    show_key(name, key_fingerprint(read_request(request)), "tell it to who signs, by another way than the request")
    console.print(f"Send {request} to who signs; {place} stays here. Then: {remedy}", highlight=False, markup=False)


@node_app.command("certify")
def node_certify(
    kit: Kit,
    certificate: Annotated[Path | None, typer.Option(help="The certificate that was signed.")] = None,
    key: Annotated[Path | None, typer.Option(help="The private key it belongs to, if you made it elsewhere.")] = None,
    revoked: Annotated[Path | None, typer.Option(help="The federation's new list of revoked certificates.")] = None,
) -> None:
    """Put a certificate, a key or a list of revoked certificates into a kit, also the server's or administrator's."""
    if certificate is None and key is None and revoked is None:
        raise InvalidInput("nothing to put in; give --certificate, --key or --revoked")
    if revoked is not None:
        console.print(f"{install_revoked(kit, revoked)} certificate(s) are revoked; from the next job on.")
    if certificate is not None or key is not None:
        made = install(kit, certificate, key)
        until = made.not_valid_after_utc.strftime("%Y-%m-%d")
        console.print(
            f"The kit is that of '{common_name(made.subject)}', valid until {until}; restart what runs with it.",
            highlight=False,
            markup=False,
        )


@node_app.command("log")
def node_log(
    kit: Kit,
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    last: Annotated[int, typer.Option(help="At most so many lines.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show what was asked of this site: who, when, how much, and the smallest group of rows in an answer."""
    site_name(kit)
    entries = [entry for entry in SiteLog(kit / LOG_FILE).entries() if run is None or entry.run == run]
    entries = entries[-last:] if last else entries
    if as_json:
        for entry in entries:
            typer.echo(json.dumps(asdict(entry)))
    else:
        wide = None if console.is_terminal else 200  # in a file or a pipe nothing is cut off
        Console(width=wide).print(log_table(entries))


@node_app.command("approve")
def node_approve(kit: Kit, job: Job = None) -> None:
    """Approve a job that waits for it; without a name, list those that wait or approve the only one."""
    _decide(kit, job, APPROVED)


@node_app.command("refuse")
def node_refuse(kit: Kit, job: Job = None) -> None:
    """Refuse a job that waits for approval."""
    _decide(kit, job, REFUSED)


def _decide(kit: Path, job: str | None, word: str) -> None:
    site_name(kit)
    approvals = Approvals(kit)
    pending = approvals.pending()
    if job is None and len(pending) != 1:
        console.print("No job waits." if not pending else "Several jobs wait; name one:")
        for asked in pending:
            console.print(f"  {asked.in_words()}", highlight=False, markup=False)
        return
    chosen = job or pending[0].job
    approvals.decide(chosen, word)
    console.print(f"Job {chosen} is {word}.", highlight=False, markup=False)
