"""The command line: which commands there are, and what happens to errors. One file a command, imported when called.

Exit codes: 0 done, 1 a certificate is refuted, 2 bad input, 3 a node failed, 4 not re-checked in time, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__

# name: (module, attribute, one line of help); nothing of them is imported to list them
COMMANDS = {
    "demo": ("demo", "demo", "Penguins of three islands: find the best clusters and prove it, in seconds."),
    "fit": ("fit", "fit", "Cluster rows that lie at several sites, and prove how good the clusters are."),
    "predict": ("predict", "predict", "Label rows by the centroids of a run."),
    "select-k": ("select_k", "select_k", "Choose the number of clusters: proven costs and indices for each."),
    "compare": ("compare", "compare", "Set consentroid beside other federated methods and pooled scikit-learn."),
    "verify": ("verify", "verify", "Re-check a certificate with code that shares nothing with the solvers."),
    "report": ("report", "report", "Write a run as one self-contained HTML page."),
    "warmup": ("warmup", "warmup", "Compile once what runs need, so that no run has to."),
    "federation": ("federation", "federation_app", "Sites and coordinator on separate machines, on NVIDIA FLARE."),
    "node": ("node", "node_app", "What runs on a data holder's machine."),
    "replay": ("replay", "replay", "Solve the paper's benchmark problems by its methods and ours."),
    "bench": ("bench_paper", "bench_app", "Measure speed, as ratios in one run on the same work."),
}


class LazyGroup(TyperGroup):
    """A group that imports a command when it is called; help and completion of names need none of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self.listing:
            return Listed(COMMANDS[cmd_name][2])
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            module, attribute, _ = COMMANDS[cmd_name]
            self.commands[cmd_name] = _loaded(cmd_name, getattr(import_module(f".{module}", __package__), attribute))
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        self.listing = True
        super().format_commands(ctx, formatter)
        self.listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        self.listing = True
        found = super().shell_complete(ctx, incomplete)
        self.listing = False
        return found


@dataclass(frozen=True)
class Listed:
    """What a list shows of a command that is not imported."""

    words: str
    hidden: bool = False

    def get_short_help_str(self, limit: int = 0) -> str:
        return self.words


def _loaded(name: str, target: Any) -> Any:
    if not isinstance(target, typer.Typer):
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name)(target)
        return typer.main.get_command(single)
    command = typer.main.get_command(target)
    command.name = name
    return _without_markup(command)


def _without_markup(command: Any) -> Any:
    """The same plain help for all commands."""
    command.rich_markup_mode = None
    for part in getattr(command, "commands", {}).values():
        _without_markup(part)
    return command


app = typer.Typer(
    name="consentroid",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 certificate refuted, 2 bad input, 3 a node failed, 4 not re-checked in time, "
    "130 interrupted.",
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"consentroid {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Federated K-means with a proof: rows stay at their sites, the answer comes with a certified lower bound."""


def main() -> None:
    """Errors raised on purpose are one sentence, without a traceback."""
    from ..core.errors import CertificateInvalid, ConsentroidError, NodeFailed

    try:
        app(prog_name="consentroid")
    except ConsentroidError as error:
        _say("error:", str(error))
        sys.exit(1 if isinstance(error, CertificateInvalid) else 3 if isinstance(error, NodeFailed) else 2)
    except ModuleNotFoundError as error:
        from ..core.extras import remedy

        if (said := remedy(error)) is None:
            raise
        _say("error:", said)
        sys.exit(2)
    except KeyboardInterrupt:
        _say("", "Interrupted before the first result; nothing was written.")
        _leave_at_once(130)
    except BrokenPipeError:  # the reader of our output left, as `head` does
        sys.stdout = None  # type: ignore[assignment]
        sys.exit(0)
    except SystemExit as leaving:
        if leaving.code == 130:
            _leave_at_once(130)
        raise


def _say(heading: str, text: str) -> None:
    from ..core.names import visible

    bold = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    head = f"\x1b[1;31m{heading}\x1b[0m" if bold and heading else heading
    print(f"{head} {visible(text)}".strip(), file=sys.stderr)


def _leave_at_once(code: int) -> None:
    """All is written; do not wait for sites that are still solving in their threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
