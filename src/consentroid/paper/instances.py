"""Benchmark instances: the published `.jld2` files, our own `.npz`, and the seeded recipe of the paper.

The recipe (section "Numerical analysis"): K centres uniform in (−1, 1)^D, shared by all nodes; every node draws
five points per cluster within a radius of its centre. The paper says radius 0.5; the published points fit 0.25,
the default here. A class such as 3N2D4K names nodes, features (dimensions) and clusters.

A `.jld2` file is HDF5 with one dataset "Node i" per node, features × rows (Julia stores columns first). An `.npz` holds
plain arrays only (never a pickle): names, n_clusters, lower, upper, and rows_i, weights_i for node i = 0, 1, ...
"""

from __future__ import annotations

import re
import zipfile
import zlib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.errors import InvalidInput
from ..core.extras import require
from ..core.problem import Domain, Problem

RADIUS = 0.25
POINTS_PER_CLUSTER = 5
SUFFIXES = (".jld2", ".npz")

_LABEL = re.compile(r"(\d+)N(\d+)D(\d+)K")
_UNREADABLE = (OSError, RuntimeError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class InstanceClass:
    """Size of a benchmark problem; `str()` gives the paper's label."""

    n_nodes: int
    n_features: int
    n_clusters: int

    @classmethod
    def parse(cls, label: str) -> InstanceClass:
        """Read a label such as 4N3D4K."""
        match = _LABEL.fullmatch(label.strip())
        if match is None or "0" in match.groups():
            raise InvalidInput(f"'{label}' is not a class of instances; write nodes, features, clusters as in 4N3D4K")
        return cls(*(int(number) for number in match.groups()))

    def __str__(self) -> str:
        return f"{self.n_nodes}N{self.n_features}D{self.n_clusters}K"


@dataclass(frozen=True)
class Instance:
    name: str
    problem: Problem

    @property
    def size(self) -> InstanceClass:
        return InstanceClass(len(self.problem.nodes), self.problem.n_features, self.problem.n_clusters)

    @property
    def label(self) -> str:
        """Class of the instance, such as 2N2D3K."""
        return str(self.size)


def generate(
    n_nodes: int,
    n_features: int,
    n_clusters: int,
    seed: int,
    points_per_cluster: int = POINTS_PER_CLUSTER,
    radius: float = RADIUS,
) -> Instance:
    """The paper's recipe; points are uniform in the ball around their centre."""
    counts = {
        "n_nodes": n_nodes,
        "n_features": n_features,
        "n_clusters": n_clusters,
        "points_per_cluster": points_per_cluster,
    }
    for argument, count in counts.items():
        if count < 1:
            raise InvalidInput(f"{argument}={count} must be at least 1")
    if not (np.isfinite(radius) and radius > 0):
        raise InvalidInput(f"radius={radius} must be a positive number")
    random = np.random.default_rng(seed)
    centres = random.uniform(-1.0, 1.0, size=(n_clusters, n_features))
    tables = []
    for _ in range(n_nodes):
        shape = (n_clusters, points_per_cluster, n_features)
        direction = random.normal(size=shape)
        direction /= np.linalg.norm(direction, axis=2, keepdims=True)
        distance = radius * random.uniform(size=(*shape[:2], 1)) ** (1.0 / n_features)
        tables.append((centres[:, None, :] + distance * direction).reshape(-1, n_features))
    size = InstanceClass(n_nodes, n_features, n_clusters)
    return Instance(f"{size}_seed{seed}", Problem.checked(tables, n_clusters))


def read_instance(path: Path | str) -> Instance:
    """Read one `.jld2` or `.npz` file."""
    path = Path(path)
    if not path.is_file():
        raise InvalidInput(f"instance file '{path}' does not exist")
    if path.suffix not in SUFFIXES:
        raise InvalidInput(f"instance file '{path}' must end in {' or '.join(SUFFIXES)}")
    return _read_jld2(path) if path.suffix == ".jld2" else _read_npz(path)


def load_folder(folder: Path | str, pattern: str | None = None) -> list[Instance]:
    """All instances of a folder by name; `pattern` selects names, as in '2N2D*' or '3N2D4K_1'."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InvalidInput(f"instance folder '{folder}' does not exist")
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if not paths:
        raise InvalidInput(f"folder '{folder}' holds no {' or '.join(SUFFIXES)} files")
    chosen = [path for path in paths if pattern is None or fnmatch(path.stem, pattern)]
    if not chosen:
        raise InvalidInput(f"none of the {len(paths)} instances in '{folder}' is named like '{pattern}'")
    return [read_instance(path) for path in chosen]


def write_npz(instance: Instance, path: Path | str) -> Path:
    """Write our own format; returns the path with its ending."""
    path = Path(path).with_suffix(".npz")
    problem = instance.problem
    arrays: dict[str, NDArray[np.generic]] = {
        "names": np.array(problem.names),
        "n_clusters": np.array(problem.n_clusters),
        "lower": problem.domain.lower,
        "upper": problem.domain.upper,
    }
    for i, node in enumerate(problem.nodes):
        arrays[f"rows_{i}"] = node.points
        arrays[f"weights_{i}"] = node.weights
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise InvalidInput(f"instance cannot be written to '{path}': {error.strerror or error}") from None
    return path


def _read_npz(path: Path) -> Instance:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            names = [str(name) for name in file["names"]]
            rows = {name: file[f"rows_{i}"] for i, name in enumerate(names)}
            weights = {name: file[f"weights_{i}"] for i, name in enumerate(names)}
            n_clusters, lower, upper = int(file["n_clusters"]), file["lower"], file["upper"]
    except _UNREADABLE as error:
        raise InvalidInput(f"'{path}' is not an instance of ours or is damaged: {_one_line(error)}") from None
    if len(rows) != len(names):
        raise InvalidInput(f"'{path}' names a node twice: {', '.join(names)}")
    try:
        return Instance(path.stem, Problem.checked(rows, n_clusters, Domain(lower, upper), weights))
    except InvalidInput as error:
        raise InvalidInput(f"'{path}': {error}") from None


def _read_jld2(path: Path) -> Instance:
    match = _LABEL.match(path.stem)
    if match is None:
        raise InvalidInput(
            f"'{path}' does not say its number of clusters; name the file after its class, as in 3N2D4K_1{path.suffix}"
        )
    h5py = require("h5py", "paper", "reading the paper's published files (.jld2)")
    try:
        with h5py.File(path, "r") as file:
            tables = {int(key.removeprefix("Node ")): file[key][()] for key in file if re.fullmatch(r"Node \d+", key)}
            found = ", ".join(f"'{key}'" for key in file) or "nothing"
    except _UNREADABLE as error:
        raise InvalidInput(f"'{path}' is not a JLD2 file or is truncated: {_one_line(error)}") from None
    if sorted(tables) != list(range(1, len(tables) + 1)) or not tables:
        raise InvalidInput(f"'{path}' should hold the datasets 'Node 1', 'Node 2', ...; it holds {found}")
    rows = {}
    for i in sorted(tables):
        table = np.asarray(tables[i])
        if table.ndim != 2 or table.dtype.kind not in "fiu":
            raise InvalidInput(f"'{path}': 'Node {i}' is not a table of numbers (shape {table.shape}, {table.dtype})")
        rows[f"node{i}"] = table.T.astype(float)
    expected = InstanceClass.parse(match.group())
    try:
        instance = Instance(path.stem, Problem.checked(rows, expected.n_clusters))
    except InvalidInput as error:
        raise InvalidInput(f"'{path}': {error}") from None
    if instance.size != expected:
        # the published 3D and 4D files are copies of their 2D namesakes and must not pass for what they are called
        raise InvalidInput(f"'{path}' is named {expected} but holds {instance.label}; rename it or generate the class")
    return instance


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
