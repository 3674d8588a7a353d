"""`consentroid warmup`: compile once what runs need."""

from __future__ import annotations

from typing import Annotated

import typer


def warmup(
    paper: Annotated[bool, typer.Option("--paper", help="Also the paper's methods: some minutes.")] = False,
) -> None:
    """Compile the kernels of proof and checker once on this machine, so that no run has to: some twenty seconds.

    Example: consentroid warmup
    """
    from ..warmup import main

    main(paper)
