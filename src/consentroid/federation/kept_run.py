"""What a site keeps of a run for itself: the claims that it made, so that it can stand by them later.

`prices/RUN.claims` in the kit, beside the prices: msgpack records, the first about the run (digest of the price file
and of the rows, scale, coordinates), then one for each request for claims with its answer. Written before the answer
leaves; a job that resumes the run appends. In a verification nothing else is told, so that no certificate, however it
was made, gets an answer that the run did not get.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from ..core.arrays import Array
from ..core.errors import NodeRefused
from ..core.problem import NodeData
from ..protocol.messages import Claim, ClaimSums, Coordinates

SUFFIX = ".claims"
Box = tuple[int, bytes, bytes]  # slot, lower, upper
CutKey = tuple[int, int, float, float]


@dataclass(frozen=True)
class RunNotes:
    """What the claims are about."""

    prices: str  # digest of the price file
    slots: tuple[int, ...]  # by row of the price file
    rows: str  # digest of rows and weights, as they were clustered
    scaling: dict[str, Any] | None
    coordinates: dict[str, Any] | None

    def packed(self) -> bytes:
        return bytes(msgpack.packb([self.prices, self.slots, self.rows, self.scaling, self.coordinates]))


@dataclass(frozen=True)
class KeptRun:
    path: Path

    @property
    def prices(self) -> Path:
        return self.path.with_suffix(".npz")

    def begin(self, notes: RunNotes) -> None:
        """Prices were kept: claims from now on are about these."""
        self._write(notes.packed(), os.O_TRUNC)

    def add(self, claim: Claim, sums: ClaimSums) -> None:
        cuts = [claim.cut_box, claim.cut_axis, claim.cut_side, claim.cut_at, claim.cut_mu, sums.cuts]
        record = [
            int(claim.slot),
            list(claim.lower.shape),
            *(np.ascontiguousarray(part, "<f8").tobytes() for part in (claim.lower, claim.upper)),
            *(np.ascontiguousarray(part, "<f8").tobytes() for part in (sums.minorants, sums.insides)),
            np.stack([np.asarray(part, dtype="<f8") for part in cuts]).tobytes(),
        ]
        self._write(bytes(msgpack.packb(record)), os.O_APPEND)

    def notes(self) -> RunNotes:
        with self.path.open("rb") as file:
            prices, slots, rows, scaling, coordinates = next(_records(file))
        return RunNotes(prices, tuple(slots), rows, scaling, coordinates)

    def claims(self) -> KeptClaims:
        made: dict[Box, Array] = {}
        cuts: dict[tuple[Box, CutKey], float] = {}
        with self.path.open("rb") as file:
            records = _records(file)
            next(records)
            for slot, shape, lower, upper, minorants, insides, cut in records:
                n, width = shape[0], shape[1] + 2
                keys = _keys(slot, shape, lower, upper)
                numbers = np.concatenate([_array(minorants, (n, width)), _array(insides, (n, width))], axis=1)
                made.update(zip(keys, numbers, strict=True))
                for box, axis, side, at, mu, value in _array(cut, (6, -1)).T.tolist():
                    cuts[keys[int(box)], (int(axis), int(side), at, mu)] = value
        return KeptClaims(self.notes().slots, made, cuts)

    def _write(self, data: bytes, how: int) -> None:
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | how, 0o600), "wb") as file:
            file.write(data)


@dataclass(frozen=True)
class KeptClaims:
    """Looks up what was claimed for a box under a row of the price file (`verify/shares.py: ClaimsOf`)."""

    slots: tuple[int, ...]
    made: dict[Box, Array]
    cuts: dict[tuple[Box, CutKey], float]

    def __call__(self, row: int, lower: Array, upper: Array, cuts: list[CutKey]) -> Array:
        try:
            box = (self.slots[row], _bytes(lower), _bytes(upper))
            return np.concatenate([self.made[box], [self.cuts[box, cut] for cut in cuts]])
        except (KeyError, IndexError):
            raise NodeRefused("the certificate rests on a box or cut that this site was not asked about") from None


def find_run(folder: Path, prices: str) -> KeptRun:
    """The run whose price file has this digest."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            if KeptRun(path).notes().prices == prices:
                return KeptRun(path)
        except (OSError, ValueError, TypeError, StopIteration, msgpack.UnpackException):
            continue  # torn, or of another kind
    raise NodeRefused("this site keeps no prices and claims of this certificate; they may be older than it keeps them")


def digest_of_rows(data: NodeData) -> str:
    points = np.ascontiguousarray(data.points, "<f8")
    shape = np.array(points.shape, "<i8").tobytes()
    return hashlib.sha256(shape + points.tobytes() + np.ascontiguousarray(data.weights, "<f8").tobytes()).hexdigest()


def coordinates_as_dict(at: Coordinates) -> dict[str, Any]:
    return {"origin": at.origin.tolist(), "basis": at.basis.tolist(), "scale": float(at.scale)}


def _records(file: Any) -> Any:
    return iter(msgpack.Unpacker(file, raw=False, max_buffer_size=2**31 - 1))


def _keys(slot: int, shape: list[int], lower: bytes, upper: bytes) -> list[Box]:
    size = 8 * shape[1]
    low, high = _bytes(_array(lower, shape)), _bytes(_array(upper, shape))
    return [(slot, low[i : i + size], high[i : i + size]) for i in range(0, size * shape[0], size)]


def _array(data: bytes, shape: Any) -> Array:
    return np.frombuffer(data, "<f8").reshape(shape)


def _bytes(box: Array) -> bytes:
    return np.asarray(box + 0.0, dtype="<f8").tobytes()  # one zero: −0.0 is 0.0
