"""`consentroid federation …`: the commands of a real federation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..federation.administrator import Federation, Patience, new_run
from ..federation.controls import check_server
from ..federation.display import follow, show_result
from ..federation.job import JobArguments, write_job
from ..federation.kit import check_node_names, known_nodes, locate_storage, provision
from ..federation.process import Member, ended_by_signal
from ..paper.settings import Settings
from .fit import parse_domain

federation_app = typer.Typer(help="Nodes and coordinator on separate machines, on NVIDIA FLARE.", no_args_is_help=True)
console = Console()

Kit = Annotated[Path, typer.Argument(help="A kit made by `consentroid federation init`.")]
Clusters = Annotated[int, typer.Option("-k", "--clusters", help="Number of clusters.")]
Nodes = Annotated[str | None, typer.Option(help="Comma-separated nodes; default: all that the kit was made for.")]
Method = Annotated[str, typer.Option(help="How prices are updated.")]
Solver = Annotated[str, typer.Option(help="Solver at the nodes.")]
Symmetry = Annotated[str, typer.Option(help="order, or none; nearest replays the paper.")]
Topology = Annotated[str, typer.Option(help="line, ring, star or complete.")]
Gap = Annotated[float, typer.Option(help="Stop when this relative gap is proven.")]
TimeLimit = Annotated[float | None, typer.Option(help="Stop after so many seconds.")]
MaxRounds = Annotated[int | None, typer.Option(help="Stop after so many rounds.")]
DomainOption = Annotated[
    str | None, typer.Option(help="Known range of each feature, as in 0:100,18:99; else the extremes are shared.")
]
Features = Annotated[str | None, typer.Option(help="Comma-separated columns that every node must have, in this order.")]
Seed = Annotated[int, typer.Option(help="Seed of the starts of the incumbent.")]
NodeSeconds = Annotated[float | None, typer.Option(help="Longest solve at a node in one round.")]
Silence = Annotated[float | None, typer.Option(help="Seconds without a sign of life after which a node is lost.")]


@federation_app.command("init")
def init(
    directory: Annotated[Path, typer.Argument(help="New folder for the kits.")],
    nodes: Annotated[str, typer.Option(help="Comma-separated names of the nodes.")],
    server: Annotated[str, typer.Option(help="HOST or HOST:PORT at which the nodes reach the server.")] = "localhost",
) -> None:
    """Make keys, certificates and hardened kits for a server, an administrator and each node."""
    names = split(nodes)
    kits = provision(names, server, directory)
    console.print(
        f"Kits for {len(names)} nodes, every control read back (mutual TLS, signed jobs, installed classes only):",
        highlight=False,
    )
    console.print(f"  {kits.server}  →  the server's machine:  consentroid federation serve server", highlight=False)
    for name in names:
        console.print(
            f"  {kits.node(name)}  →  machine of '{name}':  consentroid node start {name} --data FILE", highlight=False
        )
    console.print(f"  {kits.admin}  →  yours:  consentroid federation fit admin -k 3 --out run", highlight=False)
    console.print("Each kit holds a private key: hand it to its owner over a safe channel, and delete it here.")


@federation_app.command("serve")
def serve(kit: Kit) -> None:
    """Run the server in the foreground."""
    locate_storage(kit)
    check_server(kit)
    foreground(kit, "server")


@federation_app.command("fit")
def fit(
    kit: Kit,
    k: Clusters,
    out: Annotated[Path, typer.Option(help="Folder for result.json, certificate.json and trace.jsonl.")] = Path("run"),
    nodes: Nodes = None,
    method: Method = "proximal",
    solver: Solver = "exact",
    symmetry: Symmetry = "order",
    topology: Topology = "line",
    gap: Gap = 1e-4,
    time_limit: TimeLimit = None,
    max_rounds: MaxRounds = None,
    domain: DomainOption = None,
    features: Features = None,
    seed: Seed = 0,
    node_seconds: NodeSeconds = None,
    silence: Silence = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for nodes that are not connected.")] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json at the end, and nothing else.")] = False,
) -> None:
    """Cluster the rows of all nodes. Called again with the same folder and options, it resumes."""
    arguments = job_arguments(
        kit, k, nodes, method, solver, symmetry, topology, gap, time_limit, max_rounds, domain, features, seed,
        node_seconds, silence,
    )  # fmt: skip
    try:
        with Federation(kit, Patience(nodes=patience)) as federation, follow(as_json) as show:
            folder = federation.fit(arguments, out, show)
    except KeyboardInterrupt:
        Console(stderr=True).print("The run goes on at the server; the same command follows it again.")
        raise typer.Exit(130) from None
    result = json.loads((folder / "result.json").read_text())
    if as_json:
        typer.echo(json.dumps(result))
    else:
        show_result(result, folder, console)


@federation_app.command("job")
def job(
    directory: Annotated[Path, typer.Argument(help="New folder for the job.")],
    nodes: Annotated[str, typer.Option(help="Comma-separated sites that take part.")],
    k: Clusters,
    method: Method = "proximal",
    solver: Solver = "exact",
    symmetry: Symmetry = "order",
    topology: Topology = "line",
    gap: Gap = 1e-4,
    time_limit: TimeLimit = None,
    max_rounds: MaxRounds = None,
    domain: DomainOption = None,
    features: Features = None,
    seed: Seed = 0,
    node_seconds: NodeSeconds = None,
    silence: Silence = None,
) -> None:
    """Write a FLARE job for an existing deployment, to be submitted by FLARE's own means."""
    arguments = job_arguments(
        None, k, nodes, method, solver, symmetry, topology, gap, time_limit, max_rounds, domain, features, seed,
        node_seconds, silence,
    )  # fmt: skip
    write_job(directory, arguments)
    console.print(f"Written: {directory}; submit it with `nvflare job submit -j {directory}`.", highlight=False)


def job_arguments(
    kit: Path | None,
    k: int,
    nodes: str | None,
    method: str,
    solver: str,
    symmetry: str,
    topology: str,
    gap: float,
    time_limit: float | None,
    max_rounds: int | None,
    domain: str | None,
    features: str | None,
    seed: int,
    node_seconds: float | None,
    silence: float | None,
) -> JobArguments:
    """The options of `fit` and `job` as a checked job."""
    names = split(nodes) if nodes else known_nodes(kit) if kit is not None else ()
    settings = Settings(
        n_clusters=k,
        method=method,
        solver=solver,
        symmetry=symmetry,  # type: ignore[arg-type]
        topology=topology,
        gap=gap,
        time_limit=math.inf if time_limit is None else time_limit,
        max_rounds=max_rounds,
        seed=seed,
        node_seconds=math.inf if node_seconds is None else node_seconds,
    )
    limits = {} if silence is None else {"silence": silence}
    made = JobArguments(
        new_run(), check_node_names(names), settings, parse_domain(domain), tuple(split(features or "")), limits
    )
    return JobArguments.checked(made.as_dict())  # what the server will refuse is refused here


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def foreground(kit: Path, what: str) -> None:
    """Until Ctrl-C or SIGTERM; then all processes are stopped."""
    with ended_by_signal() as ended, Member(kit) as member:
        log = kit / "process.log"
        console.print(f"The {what} runs (log: {log}); press Ctrl-C to stop.", highlight=False, markup=False)
        while member.running and not ended.wait(0.25):
            pass
        if ended.is_set():
            console.print(f"Stopping the {what}.", markup=False)
            return
    raise typer.Exit(member.wait())
