"""`consentroid verify`: does a certificate prove what it states?"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table as Listing

from ..certificate.document import Certificate
from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput
from ..core.names import visible
from ..data.preprocessing import Recipe, prepare
from ..data.tables import Table, read_table
from ..report.wording import at_least, percent
from ..verify import Report, verify_sums
from ..verify import verify as verify_certificate
from .console import console, notify
from .inputs import node_files, scaling_beside

STATEMENTS_FILE = "statements.json"
RECIPE_LIMIT = 1e-6  # of a feature's scale: sums in another order, or masked, give slightly other means and deviations
INCOMPLETE = 4  # exit code: some sites or some time were missing; nothing was found to be wrong


def verify(
    certificate: Annotated[Path, typer.Argument(help="A certificate.json.")],
    node: Annotated[list[str] | None, typer.Option(help="NAME=FILE: a site's rows. Repeat.")] = None,
    prices: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE: a site's price file; prices-NAME.npz beside the certificate.")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Comma-separated columns to use, as for the run.")] = None,
    weights: Annotated[str | None, typer.Option(help="Column with the rows' weights.")] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="A federation's rootCA.pem: check the sites' signed statements instead of rows."),
    ] = None,
    statements: Annotated[Path | None, typer.Option(help="Default: statements.json beside the certificate.")] = None,
    revoked: Annotated[Path | None, typer.Option(help="Default: revoked.pem beside the root, if it is there.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    require_all: Annotated[bool, typer.Option(help="Missing rows or prices are an error, for scripts.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Re-check a certificate with code that shares nothing with the solvers.

    With the rows and price files of all sites: everything, from the rows. With some: their claims. Without: how the
    stated numbers fit together. With --root: what the sites of a federation have checked and signed. Exit codes: 0
    verified, 1 refuted, 2 bad input, 4 incomplete (sites, statements or time missing).

    Example: consentroid verify run/certificate.json --node a=a.csv --node b=b.csv
    """
    if root is not None:
        if node:
            raise InvalidInput("--root checks the sites' statements, --node their rows; give one of the two")
        judge_statements(certificate, root, statements, revoked, as_json)
        return
    try:
        report, scaled = _checked(certificate, node or [], prices or [], columns, weights, time_limit, require_all)
    except CertificateInvalid as error:
        if not as_json:
            raise CertificateInvalid(visible(str(error))) from None
        typer.echo(json.dumps({"outcome": "refuted", "reason": visible(str(error))}))
        raise typer.Exit(1) from None
    except InvalidInput as error:  # a name or path may hold anything
        raise InvalidInput(visible(str(error))) from None
    if as_json:
        typer.echo(json.dumps({**report_as_dict(report), "scaled": scaled}, allow_nan=False))
    else:
        show(report, scaled)
        if not report.verified and certificate.with_name(STATEMENTS_FILE).exists():
            console.print("The sites' statements lie beside it: give --root rootCA.pem to check them.")
    if not report.verified:
        raise typer.Exit(INCOMPLETE)


def judge_statements(
    path: Path, root: Path, statements: Path | None, revoked: Path | None, as_json: bool = False
) -> None:
    """Judge what the sites signed, against one root certificate; prints the outcome, and exits unless verified."""
    from ..certificate.signatures import REVOKED_FILE, Root
    from ..certificate.statements import NotSigned, Statements

    authority = Root.of_files(root, revoked or root.with_name(REVOKED_FILE))
    if revoked is not None and not revoked.exists():
        raise InvalidInput(f"there is no list of revoked certificates at '{revoked}'")
    told = {"root": authority.fingerprint, "fingerprint": None}
    try:
        certificate = Certificate.read(path)
        told["fingerprint"] = certificate.fingerprint
        signed = Statements.read(statements or path.with_name(STATEMENTS_FILE))
        total = signed.total(certificate, authority.check_site(""))
        report = verify_sums(certificate, total, np.array(signed.subject.quanta, dtype=np.int64))
    except (CertificateInvalid, InvalidInput) as error:
        missing, reason = isinstance(error, NotSigned | InvalidInput), visible(str(error))
        if as_json:
            typer.echo(json.dumps({"outcome": "incomplete" if missing else "refuted", "reason": reason, **told}))
        elif missing:
            console.print(f"[bold]Not verified: {escape(reason)}.[/bold]", highlight=False)
        else:
            raise CertificateInvalid(reason) from None
        raise typer.Exit(INCOMPLETE if missing else 1) from None
    scaling = signed.subject.scaling
    scaled = None if scaling is None else Recipe.from_dict(scaling).scale
    times = {one.site: one.time for one in signed.of_sites}
    if as_json:
        document = {**report_as_dict(report), **told, "verified_by": list(certificate.sites), "signed": times}
        typer.echo(json.dumps({**document, "scaled": scaled}, allow_nan=False))
    else:
        _show_statements(report, scaled, times, authority.fingerprint)


def _show_statements(report: Report, scaled: str | None, times: dict[str, int], root: str) -> None:
    listing = Listing(title="statements")
    for heading in ("site", "signed"):
        listing.add_column(heading)
    for name, seconds in times.items():
        listing.add_row(escape(visible(name)), time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)))
    console.print(listing)
    console.print(f"leaves, boxes  {report.n_leaves}, {report.n_boxes}")
    console.print(f"certificate    {report.fingerprint}", highlight=False)
    console.print(f"root           {root}", highlight=False)
    console.print(f"[bold]{escape(visible(signed_sentence(report, scaled)))}[/bold]", highlight=False)


def signed_sentence(report: Report, scaled: str | None = None) -> str:
    """Who verified, what is proven by it, and on whose word."""
    assert report.lower_bound is not None
    rows = "their rows" if scaled is None else f"their rows, scaled ({scaled}),"
    names = ", ".join(site.name for site in report.sites)
    return (
        f"Verified by {names}: no clustering of {rows} into {report.n_clusters} clusters costs less than "
        f"{at_least(report.lower_bound)}; the centroids given are at most {percent(report.gap)} away from it. "
        "Signed under the root certificate above: compare it with the one that your federation handed out."
    )


def _checked(
    path: Path, nodes: list[str], prices: list[str], columns: str | None, weights: str | None,
    time_limit: float | None, require_all: bool,
) -> tuple[Report, str | None]:  # fmt: skip
    """The report, and how the rows were scaled before: what is proven is about the scaled rows."""
    began = time.perf_counter()
    certificate = Certificate.read(path)
    files, price_files = node_files(nodes), _files(prices, "--prices")
    raw, tables, masses = {}, {}, {}
    recipe = scaling_beside(path) if files else None
    if recipe is not None:
        if len(recipe.transform.offset) != len(certificate.features):
            raise InvalidInput("the scaling in result.json is not for the certificate's features")
        notify([f"rows are scaled as in the run ({recipe.scale}, from result.json); costs are in these units"])
    filled = recipe is not None and recipe.fill is not None
    for name, file in files.items():
        table = _table(file, certificate.features, columns, weights, filled)
        raw[name] = table.rows[:, : len(certificate.features)]
        tables[name] = raw[name] if recipe is None else recipe.apply(raw[name])
        if weights is not None:
            masses[name] = table.rows[:, -1]
        price_files.setdefault(name, path.parent / f"prices-{name}.npz")
    if recipe is not None and set(raw) == set(certificate.sites):
        check_recipe(recipe, raw, masses or None)
    limit = math.inf if time_limit is None else time_limit
    if limit > 0.0:  # reading counts, too: a certificate may be long
        limit = max(limit - (time.perf_counter() - began), 0.0)
    report = verify_certificate(
        certificate, tables, price_files, masses, time_limit=limit, require_all=require_all
    )  # fmt: skip
    return report, None if recipe is None else recipe.scale


def check_recipe(recipe: Recipe, rows: Mapping[str, Array], weights: Mapping[str, Array] | None) -> None:
    """The scaling beside the certificate is no part of its fingerprint: with all rows it is computed again."""
    own = prepare(rows, scale=recipe.scale, imputation=recipe.fill is not None, weights=weights).recipe
    pairs = [(recipe.transform.scale, own.transform.scale), (recipe.transform.offset, own.transform.offset)]
    if recipe.fill is not None and own.fill is not None:
        pairs.append((recipe.fill, own.fill))
    for stated, right in pairs:
        rounding = np.maximum(RECIPE_LIMIT * own.transform.scale, 1e-12 * np.abs(right))
        if not np.all(np.abs(stated - right) <= rounding):
            raise CertificateInvalid(f"result.json: the scaling {recipe.scale} is stated, these rows have another one")


def _files(options: list[str], option: str) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for text in options:
        name, separator, file = text.partition("=")
        if not (separator and name and file) or name in files:
            raise InvalidInput(f"{option} '{text}' must have the form NAME=FILE, once for each site")
        files[name] = Path(file)
    return files


def _table(
    file: str, features: tuple[str, ...], columns: str | None, weights: str | None, missing: bool = False
) -> Table:
    """The certificate's features (or the columns asked for), the weights last."""
    chosen = list(features) if columns is None else [column.strip() for column in columns.split(",")]
    if len(chosen) != len(features):
        raise InvalidInput(f"{len(chosen)} columns are chosen, the certificate is about {len(features)} features")
    more = [] if weights is None else [weights]
    try:
        return read_table(file, chosen + more, missing=missing)
    except InvalidInput:
        nameless = all(name in (f"x{d}", f"feature {d}") for d, name in enumerate(features))
        if columns is None and weights is None and nameless:  # the run was given arrays: any names will do
            table = read_table(file)
            if len(table.names) == len(features):
                return table
        raise


def outcome(report: Report) -> str:
    return "verified" if report.verified else "incomplete"


def report_as_dict(report: Report) -> dict[str, Any]:
    return {
        "outcome": outcome(report),
        "fingerprint": report.fingerprint,
        "lower_bound": report.lower_bound,
        "lower_bound_if_unchecked_claims_hold": report.conditional_bound,
        "upper_bound": report.upper_bound,
        "gap": report.gap if math.isfinite(report.gap) else None,
        "finished": report.finished,
        "leaves": report.n_leaves,
        "boxes": report.n_boxes,
        "sites": [
            {
                "name": site.name,
                "rows": site.n_rows,
                "cost": site.cost,
                "checked": site.checked,
                "loss": max(site.loss, 0.0),
                "reason": site.reason,
            }
            for site in report.sites
        ],
        "seconds": report.seconds,
    }


def sentence(report: Report, scaled: str | None = None) -> str:
    """The outcome in words, nothing more than was checked."""
    these = "these rows" if scaled is None else f"these rows, scaled ({scaled}),"
    if report.lower_bound is not None and report.upper_bound is not None and report.verified:
        return (
            f"Verified: no clustering of {these} into {report.n_clusters} clusters costs less than "
            f"{at_least(report.lower_bound)}; the centroids given are at most {percent(report.gap)} away from it."
        )
    if not report.finished:
        return "Not checked in time, nothing found to be wrong; allow more with --time-limit."
    checked = [site.name for site in report.sites if site.checked]
    reasons = "; ".join(f"{site.name}: {site.reason}" for site in report.sites if not site.checked)
    held = f" The claims of {', '.join(checked)} hold on the rows given." if checked else ""
    rest = (
        f" If the claims of {', '.join(report.unchecked)} hold as well, no clustering costs less than "
        f"{at_least(report.conditional_bound)}."
        if report.conditional_bound is not None
        else ""
    )
    return f"Incomplete, not verified. The stated numbers fit together.{held}{rest} Not checked: {reasons}."


def show(report: Report, scaled: str | None = None) -> None:
    listing = Listing(title="re-checked")
    listing.add_column("site")
    for heading in ("rows", "cost", "checked"):
        listing.add_column(heading, justify="right")
    for site in report.sites:
        rows = "not given" if site.n_rows is None else str(site.n_rows)
        cost = "–" if site.cost is None else f"{site.cost:.10g}"
        listing.add_row(escape(visible(site.name)), rows, cost, "yes" if site.checked else "no")
    console.print(listing)
    console.print(f"leaves, boxes  {report.n_leaves}, {report.n_boxes}")
    console.print(f"fingerprint    {report.fingerprint}", highlight=False)
    console.print(f"[bold]{escape(visible(sentence(report, scaled)))}[/bold]", highlight=False)
