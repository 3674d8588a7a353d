"""A site as a sum of parts: each part holds some of its rows and answers as a site does; the sums are added here.

All that a site answers is a sum over its rows, so nothing else changes: the coordinator cannot tell. Sums are rounded
to the safe side as those of sites are (`rowprices/totals.py`). Prices stay with the parts until the certificate
is made; then they come together, in the order of the rows, in the site's one private file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import NodeRefused
from ..core.problem import count_distinct
from ..protocol.messages import (
    Describe,
    Description,
    Failure,
    PairBound,
    PriceQuery,
    PriceReply,
    PricesKept,
    Request,
    Response,
)
from ..rowprices.totals import total
from ..site.pairs.site import NO_FILE
from ..site.price_files import SitePrices
from ..site.worker import SiteWorker
from .files import Portion


class AskablePart(Protocol):
    """A part somewhere: a question is put at once, its answer is waited for when it is called for."""

    def ask(self, request: Request) -> Callable[[], Response]: ...

    def prices(self, slots: NDArray[np.int64]) -> SitePrices:
        """In the order of its rows."""
        ...

    def distinct(self, most: int) -> Array:
        """Distinct rows, as many as there are up to `most`."""
        ...


class Part:
    """Rows of one part, where they are; on a cluster this is what lives on a worker."""

    def __init__(self, portion: Portion, threads: int | None = None) -> None:
        data, features = portion.read()
        self._worker = SiteWorker(data, features, threads=threads)

    def answer(self, request: Request) -> Response:
        return self._worker.answered(request)

    def ask(self, request: Request) -> Callable[[], Response]:
        response = self.answer(request)
        return lambda: response

    def prices(self, slots: NDArray[np.int64]) -> SitePrices:
        return self._worker.prices(slots)

    def distinct(self, most: int) -> Array:
        return self._worker.distinct(most)


@dataclass
class SiteOfParts:
    """Answers for one data holder; `parts` are in the order of its rows."""

    name: str
    parts: Sequence[AskablePart]
    price_file: Path | None = None

    def answered(self, request: Request) -> Response:
        asked = replace(request, pairs=None) if isinstance(request, PriceQuery) else request
        responses = [wait() for wait in [part.ask(asked) for part in self.parts]]
        failure = next((one for one in responses if isinstance(one, Failure)), None)
        if failure is not None:
            return replace(failure, node=self.name)
        if isinstance(request, Describe):
            try:
                return self._describe(request, [one for one in responses if isinstance(one, Description)])
            except NodeRefused as error:
                return Failure(self.name, str(error), final=True)
        if not isinstance(request, PriceQuery):
            return Failure(self.name, "rows in parts answer about row prices only", request.round, final=True)
        replies = [one for one in responses if isinstance(one, PriceReply)]
        if len(replies) < len(self.parts):  # a sum with a missing part is not a number
            return Failure(self.name, "a part of its rows answered out of turn", request.round)
        kept = None if request.keep is None else self._keep(request.keep.slots, replies)
        # a pair of rows in two parts has no price: nothing is proven that way
        pairs = None if request.pairs is None else PairBound(0.0, NO_FILE if request.pairs.keep else "")
        return replace(total(request, replies), node=self.name, kept=kept, pairs=pairs)

    def _describe(self, request: Describe, parts: list[Description]) -> Description:
        first = parts[0]
        for other in parts[1:]:
            if (other.n_features, other.features) != (first.n_features, first.features):
                here, there = list(first.features), list(other.features)
                raise NodeRefused(f"some of its files have columns {here}, others {there}; name those to use")
        some = np.concatenate([part.distinct(request.n_clusters) for part in self.parts])
        return replace(
            first,
            node=self.name,
            n_points=sum(part.n_points for part in parts),
            weight=sum(part.weight for part in parts),
            n_distinct=count_distinct(some, request.n_clusters),
            lower=None if first.lower is None else np.min([part.lower for part in parts if part.lower is not None], 0),
            upper=None if first.upper is None else np.max([part.upper for part in parts if part.upper is not None], 0),
        )

    def _keep(self, slots: NDArray[np.int64], replies: Sequence[PriceReply]) -> PricesKept:
        """The parts' prices side by side, as one process would have written them."""
        prices = SitePrices.together([part.prices(slots) for part in self.parts])
        prices.write(self.price_file)
        together = total(PriceQuery(0), replies).kept
        assert together is not None
        return PricesKept(prices.digest, together.totals)
