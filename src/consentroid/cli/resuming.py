"""`consentroid fit --out DIR --resume`: go on from what an earlier run left in its folder, and lose nothing of it.

What is taken: the centroids, as the first incumbent; the sites' prices, from which the new prices begin; and the proof.
Nothing is believed, least of all what result.json says was proven: the earlier certificate is re-checked on today's
rows by the independent checker, which refuses it if the rows are others. The search itself begins afresh, so the new
bound can be the lower one: then the earlier proof stays, with the better centroids of the two runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..certificate.document import Certificate
from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput, NodeFailed
from ..core.result import FitResult, StopReason, relative_gap
from ..report.files import CERTIFICATE, RESULT, SCRATCH, read_result
from ..rowprices.attempts import source_of
from ..verify import verify

if TYPE_CHECKING:
    from ..data.preprocessing import Prepared

AGAIN = "leave --resume out to start again, or choose another --out"


@dataclass(frozen=True)
class EarlierRun:
    centroids: Array  # in the units that are clustered
    certificate: Certificate | None
    lower: float  # re-checked on the rows
    first_prices: dict[str, Array]


def earlier_run(
    folder: Path, prepared: Prepared, weights: Mapping[str, Array] | None, n_clusters: int
) -> EarlierRun | None:
    """The run in the folder, re-checked; None if there is none. One sentence if it is about something else."""
    if not (folder / RESULT).exists():
        return None
    result = read_result(folder)
    _check_same(folder, result, prepared, n_clusters)
    pooled = np.concatenate(list(prepared.rows.values()))
    centroids = prepared.transform.transform(np.array(result["centroids"], dtype=float))
    centroids = np.clip(centroids, pooled.min(axis=0), pooled.max(axis=0))  # rounding may have put them just outside
    if not (folder / CERTIFICATE).exists():
        return EarlierRun(centroids, None, 0.0, {})
    files = {name: price_file(folder, name) for name in prepared.rows}
    try:
        certificate = Certificate.read(folder / CERTIFICATE)
        report = verify(certificate, prepared.rows, files, weights, require_all=True)
    except (CertificateInvalid, InvalidInput) as error:
        raise InvalidInput(f"cannot resume from '{folder}': its proof fails on these rows ({error}); {AGAIN}") from None
    if report.lower_bound is None:
        raise InvalidInput(f"cannot resume from '{folder}': its proof was not checked in full; {AGAIN}")
    first = {}
    for name, file in files.items() if certificate.pairs is None else ():  # prices on pairs are not those of rows
        with np.load(file, allow_pickle=False) as stored:
            # Several vectors, one for each leaf: their mean is worth at least the least of them, the bound is concave.
            first[name] = stored["prices"].mean(axis=0) / certificate.scale**2
    return EarlierRun(centroids, certificate, min(report.lower_bound, certificate.lower), first)


def _check_same(folder: Path, result: dict[str, Any], prepared: Prepared, n_clusters: int) -> None:
    """Clusters, features, sites and scaling are those of the earlier run."""
    plain = prepared.recipe.scale == "none" and prepared.recipe.fill is None
    now = {
        "clusters": (result["n_clusters"], n_clusters),
        "features": (result["features"], list(prepared.names)),
        "rows": ({s["name"]: s["n_rows"] for s in result["sites"]}, {n: len(t) for n, t in prepared.rows.items()}),
        "scaling": (result["scaling"], None if plain else prepared.recipe.as_dict()),
    }
    for what, (before, asked) in now.items():
        if before != asked:
            raise InvalidInput(f"cannot resume from '{folder}': its {what} were {before}, now {asked}; {AGAIN}")


def joined(earlier: EarlierRun, result: FitResult) -> tuple[FitResult, bool]:
    """The better bound of the two runs, with the certificate that proves it, and the better centroids; and whether the
    earlier proof is kept, and its price files with it."""
    result = replace(result, settings={**result.settings, "resumed": True})
    if earlier.certificate is None or earlier.lower <= result.lower_bound:
        return result, False
    if earlier.lower > result.upper_bound:
        reason = f"the bound {earlier.lower:.6g}, proven before, exceeds the cost {result.upper_bound:.6g}"
        raise NodeFailed("all", reason)
    gap = relative_gap(earlier.lower, result.upper_bound)
    costs = [site.cost for site in result.sites]
    certificate = replace(
        earlier.certificate,
        centroids=result.centroids,
        site_costs=np.array(costs, dtype=float) if None not in costs else None,
        lower=earlier.lower,
        upper=result.upper_bound,
        gap=min(gap, 1.0),
    )
    stopped = StopReason.GAP if gap <= result.gap_asked else result.stop_reason
    changes: dict[str, Any] = {"lower_bound": earlier.lower, "certificate": certificate, "stop_reason": stopped}
    return replace(result, **changes, bound_from=source_of(certificate)), True


def price_file(folder: Path, site: str) -> Path:
    return folder / f"prices-{site}.npz"


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Where a run leaves its price files until they are known to be the better ones; only its owner looks in."""
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as name:
        yield Path(name)


def take_over_prices(scratch: Path, folder: Path) -> None:
    """The new run's price files in place of the earlier one's."""
    for file in scratch.glob("prices-*.npz"):
        os.replace(file, folder / file.name)
