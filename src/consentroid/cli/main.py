"""The command line.

Exit codes: 0 done, 1 a certificate is refuted, 2 bad input, 3 a node failed, 4 not re-checked in time, 130 interrupted.
"""

from __future__ import annotations

import os
import sys

import typer
from rich.console import Console
from rich.markup import escape

from ..core.errors import CertificateInvalid, ConsentroidError, NodeFailed
from .bench import bench_app
from .compare import compare
from .demo import demo
from .federation import federation_app
from .fit import fit
from .node import node_app
from .replay import replay
from .report import report
from .verify import verify

app = typer.Typer(
    name="consentroid",
    help="Federated K-means with a proof: rows stay at their nodes, the answer comes with a certified lower bound.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 certificate refuted, 2 bad input, 3 a node failed, 4 not re-checked in time, "
    "130 interrupted.",
)
app.command()(demo)
app.command()(fit)
app.command()(replay)
app.command()(compare)
app.command()(report)
app.command()(verify)
app.add_typer(bench_app, name="bench")
app.add_typer(federation_app, name="federation")
app.add_typer(node_app, name="node")


def main() -> None:
    """Errors raised on purpose are one sentence, without a traceback."""
    try:
        app()
    except ConsentroidError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1 if isinstance(error, CertificateInvalid) else 3 if isinstance(error, NodeFailed) else 2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Interrupted before the first result; nothing was written.")
        _leave_at_once(130)
    except SystemExit as leaving:
        if leaving.code == 130:
            _leave_at_once(130)
        raise


def _leave_at_once(code: int) -> None:
    """All is written; do not wait for nodes that are still solving in their threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
