"""`consentroid federation …`: the commands of a real federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ..certificate.signatures import ROOT_FILE, common_name
from ..core.errors import NodeFailed
from ..federation.administrator import Federation, Patience, new_run
from ..federation.authority import DAYS, Authority
from ..federation.controls import check_server
from ..federation.display import follow
from ..federation.hardening import locate_storage
from ..federation.job import ROW_PRICES, SECURE_FROM, JobArguments, RunSettings, write_job
from ..federation.keys import PEM, key_fingerprint, read_request
from ..federation.kit import admin_name, check_node_names, known_nodes, provision
from ..federation.process import Member, ended_by_signal
from ..federation.verifying import ask_for_statements
from ..report.terminal import show_result
from .choices import Method, Scale, Solver, SymmetryRule, TopologyName
from .inputs import parse_domain
from .verify import judge_statements

federation_app = typer.Typer(
    help="Nodes and coordinator on separate machines, on NVIDIA FLARE.", no_args_is_help=True, add_completion=False
)
console = Console()

Kit = Annotated[Path, typer.Argument(help="A kit made by `consentroid federation init`.")]
AuthorityFolder = Annotated[Path, typer.Argument(help="The folder `authority` from `consentroid federation init`.")]
Clusters = Annotated[int, typer.Option("-k", "--clusters", help="Number of clusters.")]
Nodes = Annotated[str | None, typer.Option(help="Comma-separated nodes; default: all that the kit was made for.")]
DomainOption = Annotated[
    str | None, typer.Option(help="Known range of each feature, as in 0:100,18:99; sites require it by default.")
]
Features = Annotated[str | None, typer.Option(help="Comma-separated columns that every node must have, in this order.")]
Secure = Annotated[
    bool | None,
    typer.Option("--secure/--open", help="Masked sums: the server learns totals only. Default from three sites on."),
]
ScaleChoice = Annotated[Scale, typer.Option(help="Bring features to one scale first: standard or minmax.")]
Impute = Annotated[bool, typer.Option("--impute", help="Replace missing values by the mean over all sites.")]
Gap = Annotated[float, typer.Option(help="Stop when this relative gap is proven.")]
TimeLimit = Annotated[float, typer.Option(help="Stop after so many seconds with what is proven by then.")]
Seed = Annotated[int, typer.Option(help="Seed of the starts; never affects the truth of the bound.")]
Silence = Annotated[float | None, typer.Option(help="Seconds without a sign of life after which a node is lost.")]
MethodChoice = Annotated[Method, typer.Option(help="row-prices, or one of the paper for research, with --open.")]
SolverChoice = Annotated[Solver, typer.Option(help="Node solver of the paper's methods.")]
SymmetryChoice = Annotated[SymmetryRule, typer.Option(help="Rule of the paper's methods.")]
TopologyChoice = Annotated[TopologyName, typer.Option(help="Graph of the paper's methods.")]
MaxRounds = Annotated[int | None, typer.Option(help="Stop the paper's methods after so many rounds.")]
NodeSeconds = Annotated[float | None, typer.Option(help="Longest solve of the paper's methods in one round.")]


@federation_app.command("init")
def init(
    directory: Annotated[Path, typer.Argument(help="New folder for the kits.")],
    nodes: Annotated[str, typer.Option(help="Comma-separated names of the nodes.")],
    server: Annotated[str, typer.Option(help="HOST or HOST:PORT at which the nodes reach the server.")] = "localhost",
    request: Annotated[
        list[Path] | None, typer.Option(help="NAME.csr of a node that made its own key (`node keys`). Repeat.")
    ] = None,
) -> None:
    """Make keys, certificates and hardened kits for a server, an administrator and each node."""
    names = split(nodes)
    requests = [read_request(path) for path in request or []]
    kits = provision(names, server, directory, request or [])
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
    console.print(f"  {kits.authority}  →  a safe place: signs, renews and revokes certificates", highlight=False)
    for one in requests:
        show_key(common_name(one.subject), key_fingerprint(one), "compare with its owner; the kit has no key")
    console.print("Each other kit holds a private key: hand it to its owner over a safe channel, and delete it here.")


def show_key(name: str, fingerprint: str, remark: str) -> None:
    console.print(f"  key of '{name}' (SHA-256) {fingerprint}: {remark}", highlight=False, markup=False, soft_wrap=True)


@federation_app.command("sign")
def sign(
    authority: AuthorityFolder,
    request: Annotated[Path, typer.Argument(help="A signing request: NAME.csr from `consentroid node keys`.")],
    out: Annotated[Path | None, typer.Option(help="File for the certificate; default: NAME.crt here.")] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it is valid.")] = DAYS,
    replace: Annotated[bool, typer.Option("--replace", help="Revoke the sender's earlier certificates.")] = False,
) -> None:
    """Sign a request of a server, administrator or node of this federation: a new key, or a renewal."""
    root, asked = Authority(authority), read_request(request)
    name = common_name(asked.subject)
    earlier = root.issued_to(name)
    made = root.issue(asked, days)
    place = out or Path(f"{name}.crt")
    place.write_bytes(made.public_bytes(PEM))
    show_key(name, key_fingerprint(made), "compare with its owner before you hand the certificate out")
    until = made.not_valid_after_utc.strftime("%Y-%m-%d")
    console.print(f"Written: {place}, valid until {until}; `consentroid node certify KIT --certificate {place}` there.")
    if replace:
        _tell_revoked(root.revoke(earlier), len(earlier), name)


@federation_app.command("revoke")
def revoke(
    authority: AuthorityFolder,
    name: Annotated[str, typer.Argument(help="A server, administrator or node: all certificates issued to it.")],
) -> None:
    """Revoke certificates: what they sign counts no more, at every kit that has the new list."""
    root = Authority(authority)
    certificates = root.issued_to(name)
    _tell_revoked(root.revoke(certificates), len(certificates), name)


def _tell_revoked(path: Path, number: int, name: str) -> None:
    console.print(
        f"Revoked: {number} certificate(s) of '{name}'. Hand {path} to everybody; it counts once it is in the kit: "
        "`consentroid node certify KIT --revoked revoked.pem`.",
        highlight=False,
        markup=False,
    )


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
    domain: DomainOption = None,
    features: Features = None,
    secure: Secure = None,
    scale: ScaleChoice = Scale.NONE,
    impute: Impute = False,
    gap: Gap = 1e-4,
    time_limit: TimeLimit = 600.0,
    seed: Seed = 0,
    silence: Silence = None,
    method: MethodChoice = Method.ROW_PRICES,
    solver: SolverChoice = Solver.EXACT,
    symmetry: SymmetryChoice = SymmetryRule.ORDER,
    topology: TopologyChoice = TopologyName.LINE,
    max_rounds: MaxRounds = None,
    node_seconds: NodeSeconds = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for nodes that are not connected.")] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json at the end, and nothing else.")] = False,
) -> None:
    """Cluster the rows of all nodes. Called again with the same folder and options, it resumes."""
    arguments = job_arguments(
        kit, k, nodes, domain, features, secure, silence,
        scale=scale.value, impute=impute, gap=gap, time_limit=time_limit, seed=seed, method=method.value,
        solver=solver.value, symmetry=symmetry.value, topology=topology.value, max_rounds=max_rounds,
        node_seconds=node_seconds,
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


@federation_app.command("verify")
def verify(
    kit: Kit,
    certificate: Annotated[Path, typer.Option(help="The certificate.json of a run of this federation.")] = Path(
        "run/certificate.json"
    ),
    silence: Silence = None,
    patience: Annotated[float, typer.Option(help="Seconds to wait for nodes that are not connected.")] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Have every site check a certificate on its own rows and sign the outcome; rows stay where they are.

    The statements go to statements.json beside the certificate; `consentroid verify --root` checks them later, offline.
    Exit codes: 0 verified by all sites, 1 refuted or refused, 4 a statement does not count.
    """
    admin_name(kit)
    limits = {} if silence is None else {"silence": silence}
    try:
        with Federation(kit, Patience(nodes=patience)) as federation, follow(as_json) as show:
            statements = ask_for_statements(federation, certificate, show, limits)
    except NodeFailed as error:
        raise NodeFailed(error.node, f"{error.reason}; nothing is verified") from None
    startup = kit / "startup"
    judge_statements(certificate, startup / ROOT_FILE, statements, None, as_json)


@federation_app.command("job")
def job(
    directory: Annotated[Path, typer.Argument(help="New folder for the job.")],
    nodes: Annotated[str, typer.Option(help="Comma-separated sites that take part.")],
    k: Clusters,
    domain: DomainOption = None,
    features: Features = None,
    secure: Secure = None,
    scale: ScaleChoice = Scale.NONE,
    impute: Impute = False,
    gap: Gap = 1e-4,
    time_limit: TimeLimit = 600.0,
    seed: Seed = 0,
    silence: Silence = None,
) -> None:
    """Write a FLARE job for an existing deployment, to be submitted by FLARE's own means."""
    arguments = job_arguments(
        None, k, nodes, domain, features, secure, silence,
        scale=scale.value, impute=impute, gap=gap, time_limit=time_limit, seed=seed,
    )  # fmt: skip
    write_job(directory, arguments)
    console.print(f"Written: {directory}; submit it with `nvflare job submit -j {directory}`.", highlight=False)


def job_arguments(
    kit: Path | None,
    k: int,
    nodes: str | None,
    domain: str | None,
    features: str | None,
    secure: bool | None,
    silence: float | None,
    **settings: Any,
) -> JobArguments:
    """The options of `fit` and `job` as a checked job."""
    names = check_node_names(split(nodes) if nodes else known_nodes(kit) if kit is not None else ())
    if secure is None:
        secure = len(names) >= SECURE_FROM and settings.get("method", ROW_PRICES) == ROW_PRICES
    made = JobArguments(
        run=new_run(),
        nodes=names,
        settings=RunSettings(k, secure=secure, **settings),
        domain=parse_domain(domain),
        features=tuple(split(features or "")),
        limits={} if silence is None else {"silence": silence},
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
