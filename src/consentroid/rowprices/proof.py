"""From finished searches to a certificate: every box on which something was claimed is asked about once more.

The search itself need not be trusted: what is written, and what the run then states, is the least of the bounds that
these last answers give. A stationarity cut holds for every t ≤ inside − γ/μ, a cost cut for every t up to the least of
the minorant on its slab, a closed box for every t up to the least of its minorant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..certificate.document import BoxTree, CellProof, Certificate, LeafProof, RestProof
from ..core.arrays import Array
from ..core.errors import NodeFailed
from ..core.result import relative_gap
from ..core.search import SHIFT
from ..protocol.messages import Claim, ClaimSums, KeepPrices, Moments, PriceQuery
from .cells import Cell, Node, frontier
from .judge import EPS, least_target
from .session import Session
from .totals import total
from .tree import Preorder, SearchTree

BOXES_PER_EXCHANGE = 2048
ROUNDING = 1e-11  # relative: the stated target is this much lower, so that a checker with margins of its own agrees


def certify_tree(
    session: Session, root: Node, root_cell: Cell, sites: Sequence[str], features: Sequence[str]
) -> Certificate:
    """The certificate of a proof."""
    session.enter("certificate")
    leaves = frontier(root)
    slots = np.array([leaf.slot for leaf in leaves], dtype=np.int64)
    kept = session.totals.ask_each(PriceQuery(0, keep=KeepPrices(slots)))
    totals = np.array([reply.kept.totals for reply in kept if reply.kept])  # (N, leaves)
    proofs = [_leaf(session, leaf, root_cell, i, totals[:, i]) for i, leaf in enumerate(leaves)]
    axes = session.axes
    located = session.site_errors
    lower = axes.bound_on_rows(min(proof.bound for proof in proofs))
    if not lower <= session.upper:  # sums that contradict each other: nothing is believed
        raise NodeFailed("all", f"the sums prove a bound of {lower:.6g} above the cost {session.upper:.6g}")
    assert session.centroids is not None
    return Certificate(
        n_clusters=session.n_clusters,
        sites=tuple(sites),
        features=tuple(features),
        domain=np.stack([session.domain.lower, session.domain.upper]),
        origin=axes.coordinates.origin,
        basis=axes.coordinates.basis,
        scale=axes.coordinates.scale,
        root=np.stack([root_cell.lower, root_cell.upper]),
        shift=SHIFT,
        centroids=session.centroids,
        site_costs=session.site_costs,
        scatter_errors=located,
        total_scatter_error=axes.scatter_error,
        leaves=tuple(proofs),
        price_files={name: reply.kept.digest for name, reply in zip(sites, kept, strict=True) if reply.kept},
        lower=lower,
        upper=session.upper,
        gap=min(relative_gap(lower, session.upper), 1.0),
        rest=_rest(session),
    )


def with_incumbent(session: Session, certificate: Certificate) -> Certificate:
    """The same proof beside the best centroids, which may have been found later."""
    assert session.centroids is not None
    gap = min(relative_gap(certificate.lower, session.upper), 1.0)
    return replace(
        certificate, centroids=session.centroids, site_costs=session.site_costs, upper=session.upper, gap=gap
    )


def _rest(session: Session) -> RestProof | None:
    """The moments that bound what the axes leave out, of each site where sites answer in the open."""
    axes = session.axes
    if axes.rest <= 0.0:
        return None
    replies = session.totals.ask_each(PriceQuery(0, moments=Moments(axes.coordinates.origin)))
    told = [reply.moments for reply in replies if reply.moments]
    rows = [np.concatenate([[part.weight], part.sums, part.products.ravel()]) for part in told]
    return RestProof(axes.rest, np.array(rows) if len(rows) > 1 else None)


def _leaf(session: Session, leaf: Node, root_cell: Cell, index: int, totals: Array) -> LeafProof:
    cells = []
    for i, cell in enumerate(leaf.cells):
        tree = leaf.trees[i] if leaf.trees else None
        if cell.count == 0:
            cells.append(CellProof(cell.lower, cell.upper, 0, 0.0, None))
            continue
        if tree is None:  # never searched: the cell as one box
            tree = SearchTree()
            tree.add(cell.lower, cell.upper)
        cells.append(_cell(session, leaf.slot, cell, root_cell, tree))
    total_price = float(totals.sum() - len(totals) * EPS * np.abs(totals).sum())
    bound = total_price + math.fsum(cell.count * cell.target for cell in cells)
    bound -= 16 * EPS * (abs(total_price) + sum(cell.count * abs(cell.target) for cell in cells))
    return LeafProof(leaf.path, index, totals, total_price, bound, tuple(cells))


def _cell(session: Session, slot: int, cell: Cell, root_cell: Cell, tree: SearchTree) -> CellProof:
    """Ask for all claims of one search, and find the t that they prove."""
    order = tree.preorder()
    low, high = cell.faces(root_cell)
    held = (low & (order.lower == cell.lower)) | (high & (order.upper == cell.upper))
    held &= order.upper > order.lower
    bounds, parts = [], []
    for first in range(0, len(order.lower), BOXES_PER_EXCHANGE):
        claim = _claim(order, slot, held, first, min(first + BOXES_PER_EXCHANGE, len(order.lower)))
        query = PriceQuery(0, claim=claim)
        replies = session.totals.ask_each(query)
        claimed = [reply.claimed for reply in replies if reply.claimed]
        sums = total(query, replies).claimed
        assert sums is not None
        bounds.append(_least(order, claim, first, sums))
        parts.append(claimed)
    least = min(bounds)
    target = min(least - ROUNDING * abs(least), 0.0) if math.isfinite(least) or least > 0 else -1e300
    several = len(parts[0]) > 1
    claims = _layout(order, parts) if several else None
    records = order.records
    kind, axis, side = (part.astype(np.int32) for part in (records.kind, records.axis, records.side))
    return CellProof(
        cell.lower, cell.upper, cell.count, target, BoxTree(kind, axis, side, records.at, records.mu, claims)
    )


def _claim(order: Preorder, slot: int, held: np.ndarray, first: int, last: int) -> Claim:
    here = slice(*np.searchsorted(order.cut_box, [first, last]))
    cuts = order.cuts
    return Claim(
        slot, order.lower[first:last], order.upper[first:last], held[first:last], order.cut_box[here] - first,
        cuts.axis[here], cuts.side[here], cuts.at[here], cuts.mu[here],
    )  # fmt: skip


def _least(order: Preorder, claim: Claim, first: int, sums: ClaimSums) -> float:
    """The greatest t for which all claims of these boxes hold."""
    last = first + len(claim.lower)
    here = slice(*np.searchsorted(order.slab_box, [first, last]))
    slabs = order.slabs
    least = least_target(
        claim.lower, claim.upper, claim.held, order.closed[first:last], sums.minorants, sums.insides, SHIFT,
        claim.cut_box, claim.cut_mu, sums.cuts, order.slab_box[here] - first, slabs.axis[here], slabs.side[here],
        slabs.at[here],
    )  # fmt: skip
    return float(least)


def _layout(order: Preorder, parts: list[list[ClaimSums]]) -> Array:
    """Claims as the certificate holds them: (boxes, sites, minorant · in-rows · stationarity sums)."""
    n_boxes, n_features = order.lower.shape
    n_sites, width = len(parts[0]), n_features + 2
    counts = np.bincount(order.cut_box, minlength=n_boxes)
    claims = np.zeros((n_boxes, n_sites, 2 * width + int(counts.max(initial=0))))
    place = np.arange(len(order.cut_box)) - np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(int)[order.cut_box]
    for site in range(n_sites):
        claims[:, site, :width] = np.concatenate([part[site].minorants for part in parts])
        claims[:, site, width : 2 * width] = np.concatenate([part[site].insides for part in parts])
        sums = np.concatenate([part[site].cuts for part in parts])
        claims[order.cut_box, site, 2 * width + place] = sums
    return claims
