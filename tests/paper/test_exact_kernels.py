"""Promises about the kernels themselves."""

from __future__ import annotations

import importlib
import pkgutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.dispatcher import Dispatcher

import consentroid
from consentroid.core import kernel_cache
from consentroid.core.compile import entry_points
from consentroid.paper.node._batch import solve_batch
from consentroid.paper.node._kernels import inner_sign, value_above


def kernels() -> dict[str, Dispatcher]:
    found = {}
    for module in pkgutil.walk_packages(consentroid.__path__, "consentroid."):
        private = module.name.rsplit(".", 1)[-1].startswith("_") and not module.name.endswith("__")
        if private or module.name.startswith("consentroid.site.kernels."):
            for name, member in vars(importlib.import_module(module.name)).items():
                if isinstance(member, Dispatcher):
                    found[f"{module.name}.{name}"] = member
    return found


def test_no_kernel_uses_fastmath() -> None:
    found = kernels()
    assert len(found) > 30
    assert [name for name, kernel in found.items() if kernel.targetoptions.get("fastmath")] == []
    sources = Path(consentroid.__file__).parent.rglob("*.py")
    assert [source.name for source in sources if "fastmath=" in source.read_text()] == []


@given(
    st.lists(st.tuples(*[st.floats(-1e6, 1e6, allow_subnormal=False)] * 3), min_size=1, max_size=4),
    st.sampled_from([1.0, 1e-9, 1e-30]),
)
def test_signs_of_inner_products_are_exact(rows: list[tuple[float, float, float]], closeness: float) -> None:
    normal, left, delta = (np.array(column) for column in zip(*rows))
    right = left + closeness * delta
    truth = sum(Fraction(float(n)) * (Fraction(float(a)) - Fraction(float(b))) for n, a, b in zip(normal, left, right))
    assert inner_sign(normal, left, right) == (truth > 0) - (truth < 0)


def test_a_cancelling_inner_product_is_told_apart_from_zero() -> None:
    normal, right = np.array([1.0, -1.0]), np.zeros(2)
    assert inner_sign(normal, np.array([0.1, 0.1]), right) == 0
    assert inner_sign(normal, np.array([np.nextafter(0.1, 1), 0.1]), right) == 1
    assert inner_sign(np.array([0.1, -0.3]), np.array([0.3, 0.1]), right) == 0


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1.0, 1e-160, 1e-170, 1e120, 1e6]))
def test_values_are_rounded_up(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    points, m, price = rng.normal(size=(5, 2)) * scale, rng.normal(size=(2, 2)) * scale, rng.normal(size=(2, 2)) * scale
    weights, labels = rng.uniform(0, 2, 5), np.zeros(5, np.int64)
    value, cost = value_above(points, weights, price, m, labels)
    squared = [
        min(sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(y, c)) for c in m) for y in points
    ]
    true_cost = sum(Fraction(float(w)) * s for w, s in zip(weights, squared))
    paid = sum(Fraction(float(p)) * Fraction(float(x)) for p, x in zip(price.ravel(), m.ravel()))
    assert true_cost <= Fraction(cost)
    assert true_cost + paid <= Fraction(value)


def test_a_changed_kernel_file_drops_what_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        py_func = solve_batch.py_func

        class stats:
            cache_path = str(tmp_path)

    monkeypatch.setattr(kernel_cache, "entry_points", [Point])
    index, foreign = tmp_path / "_batch.solve_batch-1.py311.nbi", tmp_path / "other.f-1.py311.nbi"
    index.touch()
    foreign.touch()
    kernel_cache.drop_stale()
    assert not index.exists()
    assert foreign.exists()
    index.touch()
    kernel_cache.drop_stale()
    assert index.exists()  # sources unchanged since the last import


def test_every_folder_of_kernels_is_stamped() -> None:
    """Where kernels are imported, stale ones were dropped: no folder is forgotten."""
    kernels()
    folders = {Path(point.stats.cache_path) for point in entry_points}
    assert [folder for folder in folders if folder.exists() and not (folder / kernel_cache.STAMP).exists()] == []
