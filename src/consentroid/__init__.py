"""consentroid: federated K-means with a proof."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import FitResult, fit
    from .baselines import compare
    from .certification import Certification, certify
    from .errors import ConsentroidError
    from .estimator import FederatedKMeans
    from .preprocessing import prepare
    from .problem import Domain
    from .quality import select_k
    from .report import write_report
    from .tables import read_table

__version__ = "0.1.0"

# Imported on first use: `consentroid --help` need not wait for scikit-learn.
_HOME = {
    "Certification": "certification",
    "ConsentroidError": "errors",
    "Domain": "problem",
    "FederatedKMeans": "estimator",
    "FitResult": "api",
    "certify": "certification",
    "compare": "baselines",
    "fit": "api",
    "prepare": "preprocessing",
    "read_table": "tables",
    "select_k": "quality",
    "write_report": "report",
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
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'consentroid' has no attribute '{name}'")
