"""Rows of sites from the options of a command: NAME=FILE or NAME=DATABASE, read, checked, brought to one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import InvalidInput
from ..core.names import check_name, visible
from .choices import DecimalSign, Scale, Separator

if TYPE_CHECKING:
    from ..core.arrays import Array
    from ..core.problem import Domain
    from ..data.preprocessing import Prepared, Recipe
    from ..data.tables import Table

NodeOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME=SOURCE",
        help="NAME=FILE: a site and its rows (.csv, .csv.gz, .tsv, .parquet, .feather, .npy, .npz); NAME=FOLDER or "
        "NAME='rows/*.parquet' for many files; NAME=URL#TABLE or NAME='URL#SELECT ...' for a database. Repeat.",
    ),
]
ClustersOption = Annotated[int, typer.Option("-k", "--clusters", help="Number of clusters.")]
ColumnsOption = Annotated[str | None, typer.Option(help="Comma-separated columns to use, in this order.")]
WeightsOption = Annotated[str | None, typer.Option(help="Column that holds the weight of each row.")]
ScaleOption = Annotated[
    Scale | None, typer.Option(help="Bring features to one scale first: standard (variance 1) or minmax (0 to 1).")
]
ImputeOption = Annotated[bool, typer.Option("--impute", help="Replace missing values by the mean over all sites.")]
SeparatorOption = Annotated[Separator | None, typer.Option(help="Of text files; found unless given.")]
DecimalOption = Annotated[DecimalSign | None, typer.Option(help="Decimal sign of text files; found unless given.")]
GapOption = Annotated[float, typer.Option(help="Stop when this relative gap is proven.")]
TimeLimitOption = Annotated[float, typer.Option(help="Stop after so many seconds with what is proven by then.")]
SeedOption = Annotated[int, typer.Option(help="Seed of the starts; never affects the truth of the bound.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]


@dataclass(frozen=True)
class SiteInputs:
    """Tables with the same columns in the same order, and the weights of their rows."""

    tables: dict[str, Table]
    weights: dict[str, Array] | None
    notices: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        return next(iter(self.tables.values())).names

    def prepared(self, scale: Scale | None, impute: bool) -> tuple[Prepared, tuple[str, ...]]:
        """Rows ready to cluster, and what is to be told about them."""
        from ..data.preprocessing import prepare, scale_notice

        made = prepare(self.tables, scale=scale or Scale.NONE, imputation=impute, weights=self.weights)
        warning = scale_notice(made.names, made.moments) if scale is None else None
        return made, self.notices + (() if warning is None else (warning,))


def node_files(nodes: Sequence[str]) -> dict[str, str]:
    """NAME=SOURCE options as a mapping; an address may hold a password and is not repeated in an error."""
    files: dict[str, str] = {}
    for option in nodes:
        name, separator, source = option.partition("=")
        if "://" in name:
            raise InvalidInput("--node begins with an address; give the site a name, as in --node berlin=URL#TABLE")
        if not separator or not name or not source:
            shown = visible(option) if "://" not in option else "…"
            raise InvalidInput(f"--node '{shown}' must have the form NAME=FILE, as in --node berlin=berlin.csv")
        check_name(name, "site", "--node")
        if name in files:
            raise InvalidInput(f"two files are given for site '{name}'; every site needs a name of its own")
        files[name] = source
    return files


def read_sites(
    nodes: Sequence[str],
    columns: str | Sequence[str] | None = None,
    *,
    weights: str | None = None,
    separator: Separator | None = None,
    decimal: DecimalSign | None = None,
    missing: bool = False,
) -> SiteInputs:
    """All tables, with one schema."""
    from ..data.preprocessing import aligned
    from ..data.tables import read_table

    chosen = listed(columns) if columns is None or isinstance(columns, str) else list(columns)
    asked = chosen if chosen is None or weights is None or weights in chosen else [*chosen, weights]
    tables = {
        name: read_table(source, asked, missing=missing, separator=separator, decimal=decimal)
        for name, source in node_files(nodes).items()
    }
    if not tables:
        raise InvalidInput("there are no sites; give at least one with --node NAME=FILE")
    tables = aligned(tables)
    notices = tuple(notice for table in tables.values() for notice in table.notices)
    if weights is None:
        return SiteInputs(tables, None, notices)
    mass = {name: table.select([weights], f"site '{name}'").rows[:, 0] for name, table in tables.items()}
    others = [name for name in next(iter(tables.values())).names if name != weights]
    if not others:
        raise InvalidInput(f"column '{weights}' holds the weights and there is no other; give features, too")
    return SiteInputs({name: table.select(others, name) for name, table in tables.items()}, mass, notices)


def read_nodes(files: Mapping[str, object], columns: str | None = None) -> tuple[dict[str, object], tuple[str, ...]]:
    """The rows of each site and their common columns."""
    sites = read_sites([f"{name}={source}" for name, source in files.items()], columns)
    return {name: table.rows for name, table in sites.tables.items()}, sites.features


def scaling_beside(certificate: Path) -> Recipe | None:
    """How the rows of a run were scaled before they were clustered, from the result.json beside its certificate."""
    from ..data.preprocessing import Recipe
    from ..report.files import RESULT, read_result

    result = certificate.parent / RESULT
    scaling = read_result(result).get("scaling") if result.is_file() else None
    return None if scaling is None else Recipe.from_dict(scaling)


def listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def parse_domain(text: str | None) -> Domain | None:
    """0:100,18:99 → one range a feature."""
    if text is None:
        return None
    import numpy as np

    from ..core.problem import Domain

    try:
        sides = [tuple(float(side) for side in part.split(":")) for part in text.split(",")]
        lower, upper = zip(*sides, strict=True)
    except ValueError:
        shown = visible(text)
        raise InvalidInput(f"--domain '{shown}' must give LOWER:UPPER for each feature, as in 0:100,18:99") from None
    return Domain(np.array(lower), np.array(upper))
