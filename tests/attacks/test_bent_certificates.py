"""Thousands of forgeries: numbers of honest certificates bent, resealed, bounds raised; none may be believed.

A forgery succeeds if the checker states a bound above the true optimum, accepts a file that does, or fails in any way
but by saying why. The base certificates are tight to 1e-4, so nearly everything that raises a bound makes it false.
"""

from __future__ import annotations

import base64
import copy
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from consentroid.certificate.document import Certificate, fingerprint_of, price_digest
from consentroid.core.errors import CertificateInvalid, InvalidInput
from consentroid.verify import verify
from draws import draws
from reference_prover import without_claims
from small_problems import Small, tight_problem

EXTREMES = (0.0, -0.0, 5e-324, -5e-324, 1e-300, 1.0, -1.0, 1e30, -1e30, 1e149, -1e149, 1e299, -1e299, 1e308, -1e308)
FACTORS = (-1.0, 2.0, 0.5, 1.0 + 1e-6, 1.0 - 1e-6, 1.0 + 1e-3, 1e3, 1e-3)
TRIES = draws(2000)


def numbers_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all numbers; packed arrays count as one entry each."""
    if isinstance(value, dict):
        if "shape" in value:
            return [path]
        return [p for key, part in value.items() for p in numbers_of(part, (*path, key))]
    if isinstance(value, list):
        return [p for i, part in enumerate(value) for p in numbers_of(part, (*path, i))]
    return [path] if type(value) in (int, float) else []


def bent(value: float, dice: random.Random) -> float:
    if dice.random() < 0.5:
        return dice.choice(EXTREMES)
    return value * dice.choice(FACTORS) + dice.choice((0.0, 0.0, 1.0, -1e-9))


def bend_array(array: np.ndarray, dice: random.Random) -> np.ndarray:
    """One or all entries bent, two swapped, or all permuted."""
    array = array.copy()
    flat = array.reshape(-1)
    how = dice.random()
    i, j = dice.randrange(len(flat)), dice.randrange(len(flat))
    if how < 0.6 and array.dtype.kind == "f":
        flat[i] = bent(float(flat[i]), dice)
    elif how < 0.6:
        flat[i] = dice.choice((0, 1, 2, 3, 4, 5, 6, -1, 2**31 - 1, -(2**31)))
    elif how < 0.7:
        flat[i], flat[j] = flat[j], flat[i]
    elif how < 0.8:
        flat[:] = flat[list(np.random.default_rng(dice.randrange(2**32)).permutation(len(flat)))]
    elif how < 0.9 and array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            flat *= dice.choice(FACTORS)
    else:
        flat[:] = flat[::-1].copy()
    return array


def bend(document: dict[str, Any], dice: random.Random) -> None:
    section = dice.choice(("leaves", "leaves", "leaves", *document))  # most numbers that matter are there
    path = dice.choice([p for p in numbers_of(document) if p[0] == section] or numbers_of(document))
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    value = at[path[-1]]
    if isinstance(value, dict):
        name = "f8" if "f8" in value else "i4"
        array = np.frombuffer(base64.b64decode(value[name]), dtype=f"<{name}").reshape(value["shape"])
        value[name] = base64.b64encode(bend_array(array, dice).tobytes()).decode()
    elif type(value) is int:
        at[path[-1]] = dice.choice((value + 1, value - 1, 0, 10**6, value * 2))
    else:
        at[path[-1]] = bent(value, dice)


def shuffle(document: dict[str, Any], dice: random.Random) -> None:
    """Whole parts swapped, doubled or left out."""
    leaves = document["leaves"]
    i, j = dice.randrange(len(leaves)), dice.randrange(len(leaves))
    how = dice.randrange(6)
    if how == 0:
        leaves[i], leaves[j] = leaves[j], leaves[i]
    elif how == 1:
        leaves.append(copy.deepcopy(leaves[i]))
    elif how == 2 and len(leaves) > 1:
        del leaves[i]
    elif how == 3:
        one, other = (dice.choice([c for c in leaves[k]["cells"] if c["proof"]]) for k in (i, j))
        one["proof"], other["proof"] = other["proof"], one["proof"]
    elif how == 4:
        document["root"], document["domain"] = document["domain"], document["root"]
    else:
        dice.shuffle(document["coordinates"]["basis"])


def raise_bounds(document: dict[str, Any], optimum: float, dice: random.Random) -> None:
    """State more than is true, in all places where it is stated."""
    lower = optimum * dice.choice((1.0 + 1e-6, 1.01, 1.2))
    lift = 0.25 * optimum * dice.choice((1e-3, 0.02, 0.3))  # the bases have scale 1/2
    document["lower"] = lower
    document["upper"] = max(document["upper"], lower)
    document["gap"] = (document["upper"] - lower) / document["upper"]
    for leaf in document["leaves"]:
        leaf["bound"] += lift
        how = dice.randrange(4)
        if how == 1:
            leaf["total"] += lift
            leaf["totals"] = leaf["totals"] and [leaf["totals"][0] + lift, *leaf["totals"][1:]]
        elif how == 2:
            for cell in leaf["cells"]:
                cell["target"] = min(cell["target"] + lift / max(document["n_clusters"], 1), 0.0)
        elif how == 3:
            for cell in leaf["cells"]:
                cell["target"] = 0.0


def bend_prices(small: Small, document: dict[str, Any], dice: random.Random) -> dict[str, np.ndarray]:
    """A site's private prices bent as well, with the digest that belongs to them."""
    prices = dict(small.prices)
    name = dice.choice(list(prices))
    prices[name] = bend_array(prices[name], dice)
    document["price_files"][name] = price_digest(prices[name])
    return prices


def believed(small: Small, document: dict[str, Any], prices: dict[str, np.ndarray]) -> str:
    """Seal a forgery and have it checked with all rows, then with one site's."""
    try:
        document["fingerprint"] = fingerprint_of(document)
    except ValueError:
        return "refused"
    try:
        report = verify(document, small.rows, prices, small.weights)
    except (CertificateInvalid, InvalidInput) as error:
        if not str(error).isprintable():
            raise AssertionError("control characters in a message") from error
        return "disproved" if "is proven" in str(error) or "not hold" in str(error) else "refused"
    if not report.verified:
        assert report.lower_bound is None
        return "incomplete"
    assert report.lower_bound is not None
    assert report.upper_bound is not None
    if report.n_clusters == small.certificate.n_clusters:
        assert Fraction(report.lower_bound) <= small.optimum <= Fraction(report.upper_bound)
        assert report.stated_lower <= float(small.optimum) * (1 + 2e-9)
    return "believed, and true"


@pytest.mark.parametrize("base", range(4))
def test_no_forgery_is_believed(base: int) -> None:
    small = tight_problem(base, branches=base % 3)
    honest = small.certificate.to_json()
    if base == 3:
        honest = without_claims(small.certificate).to_json()
    dice = random.Random(base)
    outcomes: dict[str, int] = {}
    raised = 0
    for _ in range(TRIES):
        document, prices = copy.deepcopy(honest), small.prices
        for _ in range(dice.choice((0, 1, 1, 1, 2))):
            bend(document, dice)
        if dice.random() < 0.15:
            shuffle(document, dice)
        if dice.random() < 0.25:
            prices = bend_prices(small, document, dice)
        if dice.random() < 0.6:
            raised += 1
            raise_bounds(document, float(small.optimum), dice)
            outcome = believed(small, document, prices)
            assert outcome != "believed, and true" or document["n_clusters"] != small.certificate.n_clusters
        else:
            outcome = believed(small, document, prices)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert raised > TRIES // 3
    assert outcomes["refused"] > TRIES // 2
    assert (
        outcomes.get("believed, and true", 0) > 10
    )  # some alterations are harmless: the checker is not merely stubborn


def test_claims_of_a_present_site_cannot_be_raised() -> None:
    """One site checks alone: whatever is raised in its own claims is found, or harmless."""
    small = tight_problem(2)
    dice = random.Random(7)
    refused = 0
    for _ in range(300):
        document = small.certificate.to_json()
        proof = document["leaves"][0]["cells"][0]["proof"]["claims"]
        claims = np.frombuffer(base64.b64decode(proof["f8"])).reshape(proof["shape"]).copy()
        box, width = dice.randrange(len(claims)), claims.shape[2]
        column = dice.randrange(width)
        claims[box, 0, column] += dice.choice((1.0, -1.0)) * dice.choice((1e-3, 1.0, 1e6))
        proof["f8"] = base64.b64encode(claims.tobytes()).decode()
        document["fingerprint"] = fingerprint_of(document)
        try:
            report = verify(document, {"a": small.rows["a"]}, small.prices, {"a": small.weights["a"]})
        except CertificateInvalid:
            refused += 1
            continue
        assert not report.verified
        assert report.conditional_bound is not None
        assert Fraction(report.conditional_bound) <= small.optimum
    assert refused > 100


def test_an_absent_sites_forged_claims_prove_nothing() -> None:
    small = tight_problem(0)
    honest = small.certificate
    proof = honest.leaves[0].cells[0].proof
    assert proof is not None
    assert proof.claims is not None
    document = honest.to_json()
    claims = proof.claims.copy()
    claims[:, 1, 3] += 1e6  # constants of b's minorants
    packed = document["leaves"][0]["cells"][0]["proof"]["claims"]
    packed["f8"] = base64.b64encode(claims.tobytes()).decode()
    document["leaves"][0]["totals"][1] *= 100.0
    document["fingerprint"] = fingerprint_of(document)
    report = verify(document, {"a": small.rows["a"]}, small.prices, {"a": small.weights["a"]})
    assert not report.verified
    assert report.lower_bound is None
    assert report.unchecked == ("b",)
    with pytest.raises(CertificateInvalid):
        verify(document, small.rows, small.prices, small.weights)
    with pytest.raises(CertificateInvalid):
        verify(document, {"b": small.rows["b"]}, small.prices, {"b": small.weights["b"]})


def test_honest_bases_are_believed() -> None:
    for base in range(4):
        small = tight_problem(base, branches=base % 3)
        assert believed(small, small.certificate.to_json(), small.prices) == "believed, and true"
        assert Certificate.from_json(small.certificate.to_json()).lower > 0.99 * float(small.optimum)
