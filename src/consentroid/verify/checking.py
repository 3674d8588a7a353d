"""`verify`: everything a certificate states, re-checked from rows where they are given; and what was not.

With the rows and prices of all sites nothing is taken from the certificate but the shape of the proof (boxes, cuts,
cells, prices): every number is computed again, and what is stated as proven is the checker's own number. With the rows
of some sites their claims are checked, the others' are taken as they stand and the bound is conditional on them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..certificate.document import Certificate, LeafProof, PairsProof
from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput
from .arithmetic import basis_norm, bound_on_rows, exact_sum, relative_gap, rounded_down, rounded_up
from .boxes import CellCheck, CheckScales, PriceVector, Rows
from .cells import check_cover
from .rows import SiteRows, site_rows
from .spectrum import RowMoments, added, rest_bound
from .stored_prices import PriceSource

LIMIT = 1e-9  # of the cost: a bound that falls short of what is stated by more refutes the statement
COARSE = 2.0**-12 * (1.0 + 1e-6)  # sites may round a cost up by so much of it


class CheckOutOfTime(Exception):
    """The time limit struck; what is left is not checked."""


@dataclass(frozen=True)
class SiteCheck:
    """What was re-checked on one site's rows."""

    name: str
    n_rows: int | None  # None: the rows were not given
    cost: float | None  # of the centroids on its rows, rounded up
    checked: bool  # all its claims, or its rows took part in a bound that needs no claims
    loss: float  # relative: by how much its claims exceed the checker's own numbers at most; rounding
    reason: str = ""  # why it was not checked


@dataclass(frozen=True)
class Report:
    """The outcome for a certificate that was not refuted. Bounds are the checker's own numbers."""

    fingerprint: str
    n_clusters: int
    lower_bound: float | None  # proven; None unless everything was checked
    conditional_bound: float | None  # what holds if the claims of the sites not checked do; None: nothing to say
    upper_bound: float | None  # cost of the centroids on the rows; None unless all rows were given
    stated_lower: float
    stated_upper: float
    finished: bool  # False: the time limit struck
    n_leaves: int
    n_boxes: int
    sites: tuple[SiteCheck, ...]
    seconds: float

    @property
    def verified(self) -> bool:
        """Whether everything was checked and holds."""
        return self.finished and self.lower_bound is not None and self.upper_bound is not None

    @property
    def gap(self) -> float:
        """From the checker's own bounds; infinite unless verified."""
        if self.lower_bound is None or self.upper_bound is None:
            return math.inf
        return relative_gap(self.lower_bound, self.upper_bound)

    @property
    def unchecked(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites if not site.checked)


def verify(
    certificate: Path | str | dict[str, Any] | Certificate,
    rows: Mapping[str, ArrayLike] | None = None,
    prices: Mapping[str, PriceSource] | None = None,
    weights: Mapping[str, ArrayLike] | None = None,
    *,
    time_limit: float = math.inf,
    require_all: bool = False,
) -> Report:
    """Check a certificate, and the numbers of every site whose rows and prices (file or array) are given.

    Raises `CertificateInvalid`, with the place, where the certificate does not prove what it states.
    """
    started = time.perf_counter()
    document = _read(certificate)
    rows, prices, weights = rows or {}, prices or {}, weights or {}
    if not time_limit >= 0.0:
        raise InvalidInput(f"the time limit {time_limit} is not a number of seconds")
    for name in (*rows, *prices, *weights):
        if name not in document.sites:
            raise InvalidInput(f"the certificate knows no site '{name}'; its sites are {', '.join(document.sites)}")
    missing = [name for name in document.sites if name not in rows]
    if require_all and missing:
        raise InvalidInput(f"rows of all sites are required; give those of {', '.join(missing)}")

    def tick() -> None:
        if time.perf_counter() - started > time_limit:
            raise CheckOutOfTime

    check = Check(document, tick)
    finished = True
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise", under="ignore"):
            check.statements()
            check_cover(document, tick)
            for name, table in rows.items():
                tick()
                check.add_site(site_rows(document, name, table, weights.get(name), prices.get(name)))
            if require_all:
                for site in check.given.values():
                    if site.prices is None and site.pairs_bound is None:
                        raise InvalidInput(f"site '{site.name}': {site.reason}")
            check.bounds()
    except CheckOutOfTime:
        finished = False
    except (FloatingPointError, OverflowError):
        raise CertificateInvalid("nothing is proven: numbers overflow") from None
    return replace(check.report(finished), seconds=time.perf_counter() - started)


def _read(certificate: Path | str | dict[str, Any] | Certificate) -> Certificate:
    if isinstance(certificate, Certificate):  # the same door for all
        return Certificate.from_json(certificate.to_json())
    return Certificate.from_json(certificate) if isinstance(certificate, dict) else Certificate.read(certificate)


class Check:
    """State of one verification."""

    def __init__(self, document: Certificate, tick: Callable[[], None]) -> None:
        self.document, self.tick = document, tick
        self.given: dict[str, SiteRows] = {}
        self.bound: float | None = None  # on the cost in original units
        self.norm = math.inf  # of the basis, rounded up
        self.n_boxes = 0
        self.worst = dict.fromkeys(document.sites, 0.0)
        self.doubt = (0.0, 0.0, 0.0)  # of the moments that are claimed

    def statements(self) -> None:
        """What anybody can check: the stated numbers fit together."""
        document = self.document
        if document.lower > document.upper:
            raise CertificateInvalid(f"lower: {document.lower!r} exceeds upper {document.upper!r}")
        gap = relative_gap(document.lower, document.upper)
        if not math.isclose(document.gap, gap, rel_tol=1e-9, abs_tol=1e-15):
            raise CertificateInvalid(f"gap: {document.gap!r} is stated, lower and upper give {gap!r}")
        if document.site_costs is not None and not _at_least(document.upper, document.site_costs):
            raise CertificateInvalid("upper: is less than the sites' costs together")
        self.norm = basis_norm(document.basis)
        errors = document.scatter_errors
        if errors is not None and not _at_least(document.total_scatter_error, errors):
            raise CertificateInvalid("total_scatter_error: is less than the sites' errors together")

    def add_site(self, site: SiteRows) -> None:
        """The centroids' cost on a site's rows is as stated."""
        stated = self.document.site_costs
        if stated is not None:
            claimed = float(stated[self.document.sites.index(site.name)])
            if not site.least_cost <= claimed <= site.cost * (1.0 + COARSE):
                raise CertificateInvalid(
                    f"site_costs, {site.name}: {claimed!r} is stated, the centroids cost {site.cost!r} on its rows"
                )
        rest = self.document.rest
        if rest is not None and rest.moments is not None and site.moments is not None:
            claim = self._claimed_moments(self.document.sites.index(site.name))
            if not site.moments.near(claim, LIMIT):
                raise CertificateInvalid(f"rest, moments of {site.name}: are not those of its rows")
        self.given[site.name] = site

    # ------------------------------------------------------------------ bounds

    def bounds(self) -> None:
        """The least bound of all leaves, in original units, and the cost."""
        document = self.document
        upper = self._upper()
        if upper is not None and not upper * (1.0 - LIMIT) <= document.upper <= upper * (1.0 + COARSE):
            raise CertificateInvalid(f"upper: {document.upper!r} is stated, the centroids cost {upper!r}")
        if document.pairs is not None:
            proven = self._pairs(document.pairs)
            if proven is not None:
                self._conclude(proven, upper)
            return
        present = [name for name in document.sites if name in self.given and self.given[name].prices is not None]
        if len(present) < len(document.sites) and not self._has_claims():
            return  # only totals are known: nothing can be said about the bound without all rows
        rows = self._pooled(present)
        least = None
        for number, leaf in enumerate(document.leaves):
            bound = max(self._leaf(leaf, f"leaf {number}", rows, present), 0.0)  # a cost is never negative
            if not bound >= leaf.bound - LIMIT * (abs(leaf.bound) + leaf.total):
                raise CertificateInvalid(f"leaf {number}: the bound {leaf.bound!r} is stated, {bound!r} is proven")
            least = bound if least is None else min(least, bound)
        proven = bound_on_rows(0.0 if least is None else least, self._scatter_error(), self.norm, document.scale)
        self._conclude(rounded_down(Fraction(proven) + Fraction(self._rest())), upper)

    def _conclude(self, proven: float, upper: float | None) -> None:
        """What is proven bears out what is stated."""
        document = self.document
        if not proven >= document.lower - LIMIT * document.upper:  # with all rows, upper is about the cost: see above
            raise CertificateInvalid(f"lower: {document.lower!r} is stated, {proven!r} is proven")
        if upper is not None and not proven <= upper:
            raise CertificateInvalid(f"lower: {proven!r} exceeds the cost {upper!r}, which cannot be")
        self.bound = proven

    def _pairs(self, stated: PairsProof) -> float | None:
        """The sum of what prices on pairs prove of each site's rows; of sites without, what they claim."""
        total = Fraction(0)
        for i, name in enumerate(self.document.sites):
            site = self.given.get(name)
            claim = None if stated.bounds is None else float(stated.bounds[i])
            own = None if site is None else site.pairs_bound
            if own is not None and claim is not None and not claim <= own + LIMIT * self.document.upper:
                raise CertificateInvalid(f"pairs, bounds of {name}: {claim!r} is stated, {own!r} is proven")
            proven = claim if own is None else own
            if proven is None:
                return None
            total += Fraction(proven)
        if not stated.bound <= float(total) + LIMIT * self.document.upper:
            raise CertificateInvalid(f"pairs, bound: {stated.bound!r} is stated, {float(total)!r} is proven")
        return rounded_down(total)

    def _rest(self) -> float:
        """The bound on what the searched coordinates leave out, from rows or, for sites without, claimed moments."""
        document = self.document
        if document.rest is None:
            return 0.0
        own = (self.given[name].moments if name in self.given else None for name in document.sites)
        parts = [self._claimed_moments(i) if found is None else found for i, found in enumerate(own)]
        bound = rest_bound(added(parts, self.doubt), document.basis, self.norm, document.n_clusters)
        if not bound >= document.rest.bound - LIMIT * document.upper:
            raise CertificateInvalid(f"rest, bound: {document.rest.bound!r} is stated, {bound!r} is proven")
        return bound

    def _claimed_moments(self, site: int) -> RowMoments:
        rest = self.document.rest
        assert rest is not None
        assert rest.moments is not None
        return RowMoments.read(rest.moments[site], len(self.document.features))

    def _leaf(self, leaf: LeafProof, place: str, rows: Rows, present: list[str]) -> float:
        """Σ w λ + Σ count · t, rounded down."""
        totals = np.array([self.given[name].total(leaf.prices) for name in present])
        claimed = leaf.totals
        if claimed is not None:
            for name, total in zip(present, totals, strict=True):
                stated = float(claimed[self.document.sites.index(name)])
                if not stated <= total + LIMIT * total:
                    raise CertificateInvalid(
                        f"{place}, totals of {name}: {stated!r} is stated, its rows give {total!r}"
                    )
        exact = exact_sum(totals)
        if len(rows.absent):
            assert claimed is not None
            exact += exact_sum(claimed[rows.absent])
        if not leaf.total <= float(exact) * (1.0 + LIMIT):
            raise CertificateInvalid(f"{place}, total: {leaf.total!r} is stated, {float(exact)!r} is right")
        stored = [self.given[name].prices for name in present]
        prices = PriceVector.of([one for one in stored if one is not None], leaf.prices)
        scales = CheckScales.of(rows, prices, totals)
        for i, cell in enumerate(leaf.cells):
            self.tick()
            if cell.proof is None:
                continue
            check = CellCheck(
                cell, cell.proof, self.document.root, self.document.shift, rows, prices, scales,
                f"{place}, cell {i}", self.tick,
            )  # fmt: skip
            t = check.run()
            self.n_boxes += check.n_boxes
            for name, worst in zip(present, check.worst, strict=True):
                self.worst[name] = max(self.worst[name], float(worst))
            if not (math.isfinite(t) and t <= 0.0):
                raise CertificateInvalid(f"{place}, cell {i}: nothing is proven, a bound is no number")
            exact += Fraction(t) * cell.count
        return rounded_down(exact)

    def _pooled(self, present: list[str]) -> Rows:
        sites, d = self.document.sites, len(self.document.features)
        parts = [self.given[name] for name in present]
        return Rows(
            y=np.concatenate([part.y for part in parts] or [np.empty((0, d))]),
            w=np.concatenate([part.w for part in parts] or [np.empty(0)]),
            site=np.repeat(np.arange(len(parts)), [len(part.w) for part in parts]).astype(np.int64),
            sites=np.array([sites.index(name) for name in present], dtype=np.int64),
            absent=np.array([i for i, name in enumerate(sites) if name not in present], dtype=np.int64),
            error=np.concatenate([part.error for part in parts] or [np.empty(0)]),
        )

    def _has_claims(self) -> bool:
        document = self.document
        if document.rest is not None and document.rest.moments is None:
            return False
        return document.scatter_errors is not None and all(
            leaf.totals is not None and all(cell.proof is None or cell.proof.claims is not None for cell in leaf.cells)
            for leaf in document.leaves
        )

    def _scatter_error(self) -> float:
        stated, exact = self.document.scatter_errors, Fraction(0)
        for i, name in enumerate(self.document.sites):
            if name in self.given:
                exact += Fraction(self.given[name].scatter_error)
            elif stated is not None:
                exact += Fraction(float(stated[i]))
            else:
                return math.inf
        return rounded_up(exact)

    def _upper(self) -> float | None:
        """Cost of the centroids, if all rows are given."""
        if len(self.given) < len(self.document.sites):
            return None
        return rounded_up(exact_sum(np.array([site.cost for site in self.given.values()])))

    # ------------------------------------------------------------------ outcome

    def report(self, finished: bool) -> Report:
        document = self.document
        sites = tuple(self._site(name, finished) for name in document.sites)
        complete = finished and all(site.checked for site in sites)
        return Report(
            fingerprint=document.fingerprint,
            n_clusters=document.n_clusters,
            lower_bound=self.bound if complete else None,
            conditional_bound=self.bound if finished and not complete else None,
            upper_bound=self._upper(),
            stated_lower=document.lower,
            stated_upper=document.upper,
            finished=finished,
            n_leaves=len(document.leaves),
            n_boxes=self.n_boxes,
            sites=sites,
            seconds=0.0,
        )

    def _site(self, name: str, finished: bool) -> SiteCheck:
        site = self.given.get(name)
        if site is None:
            return SiteCheck(
                name, None, None, False, 0.0, "its rows were not given" if finished else "not checked in time"
            )
        reason = site.reason
        if not reason and not finished:
            reason = "not checked in time"
        elif not reason and self.bound is None:
            reason = "the certificate has no claims of single sites: give the rows of all of them"
        return SiteCheck(name, site.n_rows, site.cost, not reason, self.worst[name], reason)


def _at_least(total: float, parts: Array) -> bool:
    """Whether a stated total covers its parts, up to the rounding of one sum."""
    return Fraction(total) >= exact_sum(parts) * (1 - Fraction(LIMIT))
