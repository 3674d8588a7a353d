"""What the sums of all sites prove, where every site has stated its share (`shares.py`).

The totals' two limbs take the place of the claims of two sites: the same walk over boxes and leaves as for claims, with
no rows at hand, and no number of the certificate but the shape of its proof. The bound holds if every site's share is
true of its rows; that is what the sites sign.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..certificate.document import Certificate, LeafProof
from ..core.arrays import Array
from ..core.errors import CertificateInvalid
from .arithmetic import rounded_up
from .cells import check_cover
from .checking import COARSE, LIMIT, Check, Report, SiteCheck
from .limbs import Limbs, from_limbs
from .shares import Doubt, read_moments, slots, wanted

LIMBS = ("high", "low")


def verify_sums(certificate: Certificate, total: Limbs, quanta: NDArray[np.int64]) -> Report:
    """`total`: the sites' shares added up. Raises `CertificateInvalid` where they do not prove what is stated."""
    started = time.perf_counter()
    check = Check(certificate, lambda: None)
    form = slots(certificate)
    if total.shape != (len(form.kinds), 2):
        raise CertificateInvalid(f"{len(total)} sums are given, the proof has {len(form.kinds)}")
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise", under="ignore"):
            check.statements()
            check_cover(certificate, check.tick)
            numbers = from_limbs(total, quanta[form.kinds], len(certificate.sites))
            claims, doubt = _as_claims(certificate, numbers, quanta)
            inner = Check(claims, lambda: None)
            inner.norm, inner.doubt = check.norm, doubt
            inner.bounds()
            upper = rounded_up(_sum(numbers[0]))
    except (FloatingPointError, OverflowError):
        raise CertificateInvalid("nothing is proven: numbers overflow") from None
    if not upper * (1.0 - LIMIT) <= certificate.upper <= upper * (1.0 + COARSE):
        raise CertificateInvalid(f"upper: {certificate.upper!r} is stated, the centroids cost {upper!r}")
    if inner.bound is None or not inner.bound <= upper:
        raise CertificateInvalid(f"lower: {inner.bound!r} exceeds the cost {upper!r}, which cannot be")
    return Report(
        fingerprint=certificate.fingerprint,
        n_clusters=certificate.n_clusters,
        lower_bound=inner.bound,
        conditional_bound=None,
        upper_bound=upper,
        stated_lower=certificate.lower,
        stated_upper=certificate.upper,
        finished=True,
        n_leaves=len(certificate.leaves),
        n_boxes=inner.n_boxes,
        sites=tuple(SiteCheck(name, None, None, True, 0.0) for name in certificate.sites),
        seconds=time.perf_counter() - started,
    )


def _as_claims(certificate: Certificate, numbers: Array, quanta: NDArray[np.int64]) -> tuple[Certificate, Doubt]:
    """The same proof with the limbs of all totals as the claims of two sites, and what moments can be off by."""
    n_leaves, d = len(certificate.leaves), len(certificate.features)
    rest, pairs, doubt, first = certificate.rest, certificate.pairs, (0.0, 0.0, 0.0), 2
    if pairs is not None:
        pairs = replace(pairs, bounds=numbers[2])
        first += 1
    if rest is not None:
        first += 4 + d + d * d
        moments, doubt = read_moments(numbers[2:first], d, quanta)
        rest = replace(rest, moments=moments)
    at = first + n_leaves
    leaves: list[LeafProof] = []
    for leaf, total in zip(certificate.leaves, numbers[first:at], strict=True):
        cells = []
        for cell in leaf.cells:
            if cell.proof is not None:
                used = wanted(cell.proof, len(certificate.features))
                n = int(used.sum())
                claims = np.zeros((*used.shape, 2))
                claims[used] = numbers[at : at + n]
                at += n
                cell = replace(cell, proof=replace(cell.proof, claims=np.ascontiguousarray(claims.transpose(0, 2, 1))))
            cells.append(cell)
        leaves.append(replace(leaf, totals=total, cells=tuple(cells)))
    as_claims = replace(
        certificate, sites=LIMBS, site_costs=None, scatter_errors=numbers[1], leaves=tuple(leaves), price_files={},
        rest=rest, pairs=pairs,
    )  # fmt: skip
    return as_claims, doubt


def _sum(limbs: Array) -> Fraction:
    return Fraction(float(limbs[0])) + Fraction(float(limbs[1]))
