"""All that ever crosses between coordinator and sites. Rows and their prices are not among it.

Coordinator → site: `Describe` once, then one `PriceQuery` (our proof) or `Query` (the paper) per exchange. Site →
coordinator: `Description`, `PriceReply`, `Reply`, or a `Failure` (a value, not a crash). A query may ask for several
kinds of work at once, done in the order of its fields, so that one exchange serves a step. Every array of a
`PriceReply` is a sum over the site's rows: what all sites hold together is the sum of their replies.

`docs/disclosure.md` says what each field reveals. Letters of shapes: B boxes, C candidates, D features, K clusters,
P points, Q new columns, S columns, T cuts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.symmetry import Rule


@dataclass(frozen=True)
class Describe:
    """Ask a node who it is; with a domain it checks its rows against it, without one it reports its extremes."""

    n_clusters: int
    lower: Array | None = None  # (D,)
    upper: Array | None = None  # (D,)
    features: tuple[str, ...] = ()  # expected names and order; empty: not checked


@dataclass(frozen=True)
class Solve:
    boxes: Array  # (B, 2, K, D)
    prices: Array  # (B, K, D)
    seconds: float = float("inf")  # budget for the whole batch
    gap: float = 1e-9  # relative gap at which a node problem counts as solved
    search_nodes: int = 2**60  # most search nodes for each box; 1 asks for the root bound only


@dataclass(frozen=True)
class Evaluate:
    """With a stride only every so many rows are looked at, for guesses where rows are many."""

    candidates: Array  # (C, K, D)
    stride: int = 1


@dataclass(frozen=True)
class Query:
    round: int
    solver: str = "exact"
    rule: Rule = "none"
    references: Array | None = None  # (K, D)
    solve: Solve | None = None
    evaluate: Evaluate | None = None


@dataclass(frozen=True)
class Description:
    node: str
    n_points: int
    n_features: int
    n_distinct: int  # min(K, distinct rows): enough to reject K larger than the rows of all nodes
    weight: float
    features: tuple[str, ...] = ()
    lower: Array | None = None  # only if no domain was given
    upper: Array | None = None
    allowed: Array | None = None  # (3,) questions, boxes and points that the site still answers in this run; None: any


@dataclass(frozen=True)
class Solved:
    bounds: Array  # (B,) proven: never above the node's optimum
    values: Array  # (B,) attained by the centroids
    centroids: Array  # (B, K, D)
    optimal: NDArray[np.bool_]  # (B,) whether the gap asked for was reached


@dataclass(frozen=True)
class Evaluated:
    costs: Array  # (C,)
    counts: Array  # (C, K)
    offsets: Array  # (C, K, D) Σ w (x − m_k) over the rows of cluster k
    spreads: Array  # (C, K) Σ w |x − m_k|² over the rows of cluster k


@dataclass(frozen=True)
class Reply:
    round: int
    node: str
    solved: Solved | None = None
    evaluated: Evaluated | None = None
    seconds: float = 0.0


# ---------------------------------------------------------------- row prices: what the coordinator asks


@dataclass(frozen=True)
class Moments:
    """Weight, sum and products of the rows about a reference point: for axes and scale."""

    reference: Array  # (D,)


@dataclass(frozen=True)
class Coordinates:
    """From now on y = (x − origin) · basis · scale. Prices and columns of earlier coordinates are forgotten."""

    origin: Array  # (D,)
    basis: Array  # (D, D), orthogonal up to rounding
    scale: float  # a power of two
    stride: int = 1  # so many neighbours are looked at as one row, until prices are carried over to all rows


@dataclass(frozen=True)
class StartPrices:
    """λ_j halfway between the least and the second least squared distance to the centroids (one: 1.5 times it); or,
    where `learnt` is a slot of prices learnt on groups of rows, that plus what the row's group has gained over it."""

    slot: int
    centroids: Array  # (K, D), as y
    learnt: int = -1


@dataclass(frozen=True)
class MovePrices:
    """λ_j = max(0, λ̂_j + τ (1 − Σ_{c∋j} z_c)) into `slot`, from the prices λ̂ in `centre` and all columns."""

    slot: int
    centre: int
    tau: float
    z: Array  # (S,)


@dataclass(frozen=True)
class MakeColumns:
    """Keep some columns and add one per point m: S = {j : |y_j − m|² < λ_j} under the prices in `slot`."""

    slot: int
    centre: int
    kept: NDArray[np.bool_]  # (S,)
    points: Array  # (Q, D)


@dataclass(frozen=True)
class FindTriples:
    """Look for triples of the site's own rows of which the columns, mixed by z, serve two or more together more than
    once. From then on each is one more row, that a column serves with two or more of them, at a price of its own."""

    z: Array  # (S,)
    most: int


@dataclass(frozen=True)
class Trim:
    """One step of trimmed Lloyd from each point: value of f, weight and offset of the rows with d < λ."""

    slot: int
    points: Array  # (P, D)
    stride: int = 1  # look at every so many rows only: guesses for where rows are many


@dataclass(frozen=True)
class Examine:
    """Boxes of centroids: what the rows say about f there (`site/kernels/boxes.py`)."""

    slot: int
    lower: Array  # (B, D)
    upper: Array  # (B, D)
    held: NDArray[np.bool_]  # (B, D) coordinates in which the box touches a face of its cell: no shift there
    steepness: Array  # (B,) μ of the cuts is a few multiples of this times the width
    keys: NDArray[np.int64]  # (B,) names of the boxes, for children to refer to
    parents: NDArray[np.int64]  # (B,) −1: none; only a short cut, a site that forgot the parent looks at all rows
    any_set: bool = False  # bound all sets of rows with their mean in the box, not only those that f chooses


@dataclass(frozen=True)
class Claim:
    """The same boxes once more, for the certificate: minorant, in-rows, and the cuts that were used."""

    slot: int
    lower: Array  # (B, D)
    upper: Array  # (B, D)
    held: NDArray[np.bool_]  # (B, D)
    cut_box: NDArray[np.int64]  # (T,) index of the cut's box
    cut_axis: NDArray[np.int64]  # (T,)
    cut_side: NDArray[np.int64]  # (T,) 0: no minimiser at or above the threshold, 1: none at or below
    cut_at: Array  # (T,) threshold
    cut_mu: Array  # (T,)


@dataclass(frozen=True)
class KeepPrices:
    """Write the prices of these slots to the site's private file; only its digest crosses."""

    slots: NDArray[np.int64]  # (L,)


@dataclass(frozen=True)
class ImprovePairs:
    """So many steps towards better prices on pairs and triangles of the site's own rows (`site/pairs/`), and what the
    best so far prove; `keep`: write those to the site's private file. Whoever asks again only gets more steps. Without
    steps before the first, how far they can reach."""

    n_clusters: int
    steps: int
    keep: bool = False
    centroids: Array | None = None  # (K, D): more than `most_rows` rows are dealt into anticlusters that are alike in
    most_rows: int = 0  # every cluster, and only pairs within these have prices; 0: all rows together


@dataclass(frozen=True)
class PriceQuery:
    """`step` numbers the queries that change a site's prices or columns: one that was lost is sent again, one that
    was already done is answered from memory, and a site that restarted is sent all of them."""

    round: int
    step: int = 0
    moments: Moments | None = None
    coordinates: Coordinates | None = None
    start: StartPrices | None = None
    move: MovePrices | None = None
    columns: MakeColumns | None = None
    triples: FindTriples | None = None
    trim: Trim | None = None
    examine: Examine | None = None
    claim: Claim | None = None
    evaluate: Evaluate | None = None
    keep: KeepPrices | None = None
    pairs: ImprovePairs | None = None

    @property
    def changes(self) -> bool:
        """Whether it changes what a site holds: such a query has a step of its own."""
        return any(part is not None for part in (self.coordinates, self.start, self.move, self.columns, self.triples))

    @property
    def change(self) -> PriceQuery:
        """Only the part that changes what a site holds."""
        return replace(self, moments=None, trim=None, examine=None, claim=None, evaluate=None, keep=None, pairs=None)


# ---------------------------------------------------------------- row prices: what a site answers


@dataclass(frozen=True)
class MomentSums:
    weight: float
    sums: Array  # (D,) Σ w (x − reference)
    products: Array  # (D, D) Σ w (x − reference)(x − reference)ᵀ


@dataclass(frozen=True)
class Located:
    """What rounding the coordinates can cost: Σ_j w_j |e_j|², rounded up."""

    scatter_error: float


@dataclass(frozen=True)
class Priced:
    total: float  # Σ w λ − Σ φ, rounded down
    column_prices: Array  # (S,) Σ_{S_c} w λ less the fees φ of the triples that are served


@dataclass(frozen=True)
class ColumnSums:
    costs: Array  # (Q,) Σ_{S_c} w d
    sizes: Array  # (Q,) Σ_{S_c} w; this and what follows with the triples that are served
    overlaps: Array  # (Q, S) Σ_{S_c ∩ S_c'} w with all columns, the new ones last
    prices: Array  # (Q,) Σ_{S_c} w λ
    centre_prices: Array  # (Q,) Σ_{S_c} w λ̂


@dataclass(frozen=True)
class TripleSums:
    found: float  # how many are new
    overlaps: Array  # (S, S) weight of those that both columns serve


@dataclass(frozen=True)
class Trimmed:
    values: Array  # (P,) f(m)
    weights: Array  # (P,)
    offsets: Array  # (P, D) Σ w (y − m) over the rows with d < λ


@dataclass(frozen=True)
class BoxSums:
    minorants: Array  # (B, D+2) W, V, C of the joint minorant, C rounded down
    insides: Array  # (B, D+2) the same of the in-rows alone
    undecided: Array  # (B,) weight of the undecided rows
    worth: Array  # (B,) Σ_und w (λ − a), rounded up
    cuts: Array  # (B, D, 2, 3, 4) stationarity sums for both sides, three thresholds and four μ, rounded up
    scores: Array  # (B, D) where splitting gains most


@dataclass(frozen=True)
class ClaimSums:
    minorants: Array  # (B, D+2)
    insides: Array  # (B, D+2)
    cuts: Array  # (T,) stationarity sums, rounded up


@dataclass(frozen=True)
class PricesKept:
    digest: str  # of the site's private price file
    totals: Array  # (L,) Σ w λ − Σ φ of each slot, rounded down


@dataclass(frozen=True)
class PairBound:
    """No K clusters of the site's rows alone cost less; 0 where they are too many for prices on pairs."""

    bound: float  # rounded down
    digest: str = ""  # of the site's private file, if it was written
    reach: float = 0.0  # about what can come of it at most: a guess from Lloyd's method, never a bound


@dataclass(frozen=True)
class PriceReply:
    round: int
    node: str
    step: int = 0
    moments: MomentSums | None = None
    located: Located | None = None
    priced: Priced | None = None
    columns: ColumnSums | None = None
    triples: TripleSums | None = None
    trimmed: Trimmed | None = None
    boxes: BoxSums | None = None
    claimed: ClaimSums | None = None
    evaluated: Evaluated | None = None
    kept: PricesKept | None = None
    pairs: PairBound | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Failure:
    """Why there is no reply from a node; `final`: asking again cannot help."""

    node: str
    reason: str
    round: int = -1
    final: bool = False


Request = Describe | PriceQuery | Query
Response = Description | PriceReply | Reply | Failure
