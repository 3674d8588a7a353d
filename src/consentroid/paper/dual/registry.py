"""Update rules by name, with the paper's settings as defaults."""

from __future__ import annotations

from typing import Any

from ...core.errors import InvalidInput
from .base import DualUpdate
from .bundle_trust import BundleTrust
from .proximal_bundle import ProximalBundle
from .quasi_newton import QuasiNewton
from .subgradient import Subgradient

METHODS = ("sg", "btm", "qnda", "qnda-epigraph", "proximal")


def dual_named(name: str, **settings: Any) -> DualUpdate[Any]:
    """The rule called `name`; `proximal` needs the topology, the others take it and do without."""
    topology = settings.pop("topology", None)
    if name == "sg":
        return _built(name, Subgradient, settings)
    if name == "btm":
        return _built(name, BundleTrust, settings)
    if name in ("qnda", "qnda-epigraph"):
        return _built(name, QuasiNewton, {"form": "paper" if name == "qnda" else "epigraph", **settings})
    if name == "proximal":
        if topology is None:
            raise InvalidInput("the method 'proximal' works with the nodes' prices; give it the topology")
        return _built(name, ProximalBundle, {"topology": topology, **settings})
    raise InvalidInput(f"unknown method '{name}'; choose one of {', '.join(METHODS)}")


def _built(name: str, rule: type, settings: dict[str, Any]) -> DualUpdate[Any]:
    try:
        return rule(**settings)  # type: ignore[no-any-return]
    except TypeError:
        known = [field for field in rule.__dataclass_fields__ if field not in ("name", "form", "topology")]  # type: ignore[attr-defined]
        raise InvalidInput(
            f"the method '{name}' does not know all of the settings {sorted(settings)}; it takes {', '.join(known)}"
        ) from None
