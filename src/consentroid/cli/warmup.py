"""`consentroid warmup`: compile everything once."""

from __future__ import annotations


def warmup() -> None:
    """Compile everything once on this machine, so that no run has to: about a minute, then never again.

    Example: consentroid warmup
    """
    from ..warmup import main

    main()
