"""`consentroid node …`: what runs on a data holder's machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..data.tables import read_table
from ..federation.controls import check_site
from ..federation.kit import set_private_table, site_name
from ..warmup import prepare_solver
from .federation import Kit, console, foreground, split

node_app = typer.Typer(help="What runs on a data holder's machine.", no_args_is_help=True)


@node_app.command("start")
def node_start(
    kit: Kit,
    data: Annotated[Path, typer.Option(help="The node's private table: CSV, Parquet, Feather, npy or npz.")],
    columns: Annotated[str | None, typer.Option(help="Comma-separated columns to cluster; default: all.")] = None,
) -> None:
    """Offer a private table to the federation. Rows stay on this machine."""
    name = site_name(kit)
    check_site(kit)
    table = read_table(data, split(columns) if columns else None)
    set_private_table(kit, data, split(columns) if columns else None)
    console.print(
        f"Node '{name}' offers {table.n_rows} rows with {', '.join(table.names)} from {data}; rows stay here.",
        highlight=False,
    )
    console.print("Preparing the solver; the first time on a machine this compiles it and can take minutes.")
    prepare_solver()
    foreground(kit, f"node '{name}'")
