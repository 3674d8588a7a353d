"""How many random problems a test draws: `make test-long` draws ten times as many as `make test`."""

from __future__ import annotations

import os


def draws(n: int) -> int:
    return n * int(os.environ.get("CONSENTROID_DRAWS", "1"))
