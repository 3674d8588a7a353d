"""A site's price file as the checker reads it: price vectors, and fees of triples of rows; its size is bounded before
it is read, and anything in it that cannot be so refutes."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..certificate.document import Certificate, pairs_digest, price_digest
from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput
from .pairs import StoredPairs, checked, kinds

HEADER = 4096  # bytes of a numpy header, at most
MOST = 1e300
MOST_TIED, MOST_SHARED = 40, 64  # rows and triples that hang together
# a file, its arrays by their names, or prices alone
PriceSource = Path | str | Mapping[str, ArrayLike] | ArrayLike


class PricesUnknown(Exception):
    """The price file is missing or is not the certificate's: the site's numbers cannot be checked."""


@dataclass(frozen=True)
class StoredPrices:
    rows: Array  # (L, n) λ ≥ 0
    triples: NDArray[np.int64]  # (T, 3) places of rows
    fees: Array  # (L, T) φ ≥ 0


def stored_prices(certificate: Certificate, name: str, source: PriceSource | None, n_rows: int) -> StoredPrices:
    """The site's prices, if they are those that the certificate names; refuted if they can be nobody's."""
    if source is None:
        raise PricesUnknown("no price file was given; it stays with the site that took part in the run")
    triples, fees = np.empty((0, 3), np.int64), np.empty((0, 0))
    if isinstance(source, Mapping):
        prices = np.array(source["prices"], dtype=float)
        if "triples" in source:
            triples, fees = np.array(source["triples"]), np.array(source["fees"], dtype=float)
    elif isinstance(source, (str, Path)):
        # a file may hold vectors that this certificate does not use; never what a leaf's own number says: that would
        # let a file of any size in
        n_vectors = 4 * max(len(certificate.leaves), 1)
        prices = _read(source, "prices", 8 * n_vectors * n_rows, "<f8")
        if _holds(source, "triples"):
            triples = _read(source, "triples", 3 * 8 * n_rows, "<i8")
            fees = _read(source, "fees", 8 * n_vectors * n_rows, "<f8")
    else:
        prices = np.array(source, dtype=float)
    if price_digest(prices, triples, fees) != certificate.price_files[name]:
        raise PricesUnknown("the price file is not the one that the certificate names; give that of the same run")
    if prices.ndim != 2 or prices.shape[1] != n_rows:
        raise InvalidInput(
            f"site '{name}': its price file is for {prices.shape[-1]} rows, {n_rows} of positive weight are given; "
            "give the rows of the run in their order"
        )
    if not np.all((prices >= 0.0) & (prices <= MOST)):
        raise CertificateInvalid(f"site '{name}': a price is negative or no number")
    if len(triples) == 0:
        fees = np.empty((len(prices), 0))
    _check_triples(name, triples, fees, prices.shape)
    return StoredPrices(np.ascontiguousarray(prices), triples, np.ascontiguousarray(fees))


def stored_pairs(
    certificate: Certificate, name: str, source: PriceSource | None, n_rows: int
) -> list[StoredPairs] | None:
    """The same for prices on pairs; None where the site has none, which proves nothing of its rows."""
    if certificate.price_files[name] == pairs_digest([]):
        return None
    if source is None:
        raise PricesUnknown("no price file was given; it stays with the site that took part in the run")
    arrays: dict[str, NDArray[Any]] = {}
    for part, (kind, shape) in kinds(n_rows, len(certificate.features), certificate.n_clusters).items():
        if isinstance(source, Mapping):
            arrays[part] = np.asarray(source[f"pair_{part}"])
        elif isinstance(source, (str, Path)):
            most = math.prod(-size - 1 if size < 0 else size for size in shape) * np.dtype(kind).itemsize
            arrays[part] = _array(source, f"pair_{part}", most, kind)
        else:
            raise PricesUnknown("these are no prices on pairs; give the file of the same run")
    if pairs_digest(list(arrays.values())) != certificate.price_files[name]:
        raise PricesUnknown("the price file is not the one that the certificate names; give that of the same run")
    for part, (kind, shape) in kinds(n_rows, len(certificate.features), certificate.n_clusters).items():
        same = len(shape) == arrays[part].ndim and arrays[part].dtype == np.dtype(kind)
        if not same or any(
            size != there if size >= 0 else there > -size - 1
            for size, there in zip(shape, arrays[part].shape, strict=True)
        ):
            raise InvalidInput(
                f"site '{name}': its price file has '{part}' of {arrays[part].shape}, {n_rows} rows of positive weight "
                "are given; give the rows of the run in their order"
            )
    return checked(arrays, name)


def _check_triples(name: str, triples: NDArray[np.int64], fees: Array, shape: tuple[int, int]) -> None:
    """A fee is paid at most once only for three different rows; each clump decides for itself, over all its subsets,
    so none may be large."""
    n_vectors, n_rows = shape
    whole = triples.dtype.kind == "i" and triples.shape == (len(triples), 3)
    if not whole or fees.shape != (n_vectors, len(triples)):
        raise CertificateInvalid(f"site '{name}': triples of the shape {triples.shape} with fees of {fees.shape}")
    if len(triples) and not (triples.min() >= 0 and triples.max() < n_rows):
        raise CertificateInvalid(f"site '{name}': a triple names a row that is not there")
    if np.any(np.diff(np.sort(triples, axis=1), axis=1) == 0):
        raise CertificateInvalid(f"site '{name}': a row is twice in a triple")
    if not np.all((fees >= 0.0) & (fees <= MOST)):
        raise CertificateInvalid(f"site '{name}': a fee is negative or no number")
    for vector in fees:
        if any(len(numbers) > MOST_SHARED for numbers in clumps_of(triples[vector > 0.0]).values()):
            raise CertificateInvalid(f"site '{name}': more than {MOST_SHARED} triples with a fee hang together")


def clumps_of(triples: NDArray[np.int64]) -> dict[tuple[int, ...], list[int]]:
    """Rows of triples that hang together, with the numbers of these; each row is in one clump. Refuted where it grows
    too large."""
    clump: dict[int, list[int]] = {}
    for three in triples.tolist():
        rows = sorted({row for j in three for row in clump.get(j, [j])})
        if len(rows) > MOST_TIED:
            raise CertificateInvalid(f"more than {MOST_TIED} rows of triples with a fee hang together")
        clump.update(dict.fromkeys(rows, rows))
    found: dict[tuple[int, ...], list[int]] = {}
    for number, three in enumerate(triples.tolist()):
        found.setdefault(tuple(clump[three[0]]), []).append(number)
    return found


def _holds(path: Path | str, name: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{name}.npy" in archive.namelist()
    except Exception:  # `_read` has read from it a moment ago
        raise PricesUnknown("the price file cannot be read") from None


def _read(path: Path | str, name: str, most: int, kind: str) -> NDArray[Any]:
    """A table of an npz file, of at most so many bytes."""
    table = _array(path, name, most, kind)
    if table.ndim != 2:
        raise PricesUnknown("the price file holds no table of numbers")
    return table.astype(np.float64 if kind == "<f8" else np.int64)


def _array(path: Path | str, name: str, most: int, kind: str) -> NDArray[Any]:
    most += HEADER
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as entry:
            raw = entry.read(most + 1)
    except FileNotFoundError:
        raise PricesUnknown("there is no price file; it is written beside the site's rows when the run ends") from None
    except Exception as error:  # of the system, of zipfile, and decompressors have errors of their own
        raise PricesUnknown(f"the price file cannot be read ({type(error).__name__})") from None
    if len(raw) > most:
        raise PricesUnknown("the price file is larger than the rows and the certificate allow")
    file = BytesIO(raw)
    try:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
    except Exception:  # whatever stands there, it is no header
        raise PricesUnknown("the price file holds no plain array") from None
    body = raw[file.tell() :]
    sizes = len(shape) <= 2 and all(type(size) is int and 0 <= size <= most for size in shape)
    if dtype != np.dtype(kind) or (fortran and len(shape) > 1) or not sizes:
        raise PricesUnknown("the price file holds no table of numbers")
    if math.prod(shape) * np.dtype(kind).itemsize != len(body):
        raise PricesUnknown("the price file holds no table of numbers")
    return np.frombuffer(body, dtype=kind).reshape(shape)
