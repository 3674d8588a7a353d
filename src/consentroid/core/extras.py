"""Optional packages: imported where they are needed; the error names the command that installs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from .errors import InvalidInput

EXTRAS = {
    "sklearn": "sklearn",
    "threadpoolctl": "sklearn",
    "matplotlib": "plots",
    "h5py": "paper",
    "nvflare": "federation",
    "cryptography": "federation",
    "psutil": "federation",
    "pyarrow": "parquet",
    "sqlalchemy": "databases",
    "dask": "dask",
    "distributed": "dask",
}


def remedy(error: ModuleNotFoundError) -> str | None:
    """The same sentence for an import that failed elsewhere, if the package belongs to an extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"this needs {package}; install it with: pip install 'consentroid[{EXTRAS[package]}]'"


def require(module: str, extra: str, what: str | None = None) -> ModuleType:
    """The module, or one sentence that says what needs it and how to install it.

    >>> require("json", "plots").__name__
    'json'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # the package is there and lacks something of its own: hiding that would mislead
        raise InvalidInput(
            f"{what or 'this'} needs {package}; install it with: pip install 'consentroid[{extra}]'"
        ) from None
