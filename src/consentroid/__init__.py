"""consentroid: federated K-means with a proof."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .certification import Certification, certify
    from .comparison import compare
    from .core.errors import ConsentroidError
    from .core.problem import Domain
    from .data.preprocessing import prepare
    from .data.tables import read_table
    from .estimator import FederatedKMeans
    from .fitting import FitResult, fit
    from .report.html import write_report
    from .selection import select_k

__version__ = "0.2.0"

# Imported on first use: `consentroid --help` need not wait for scikit-learn.
_HOME = {
    "Certification": "certification",
    "ConsentroidError": "core.errors",
    "Domain": "core.problem",
    "FederatedKMeans": "estimator",
    "FitResult": "fitting",
    "certify": "certification",
    "compare": "comparison",
    "fit": "fitting",
    "prepare": "data.preprocessing",
    "read_table": "data.tables",
    "select_k": "selection",
    "write_report": "report.html",
}

__all__ = [
    "Certification",
    "ConsentroidError",
    "Domain",
    "FederatedKMeans",
    "FitResult",
    "certify",
    "compare",
    "fit",
    "prepare",
    "read_table",
    "select_k",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            return getattr(import_module(f".{_HOME[name]}", __name__), name)
        except ModuleNotFoundError as error:
            from .core.extras import remedy

            raise ModuleNotFoundError(remedy(error) or error.msg, name=error.name) from error
    raise AttributeError(f"module 'consentroid' has no attribute '{name}'")
