"""Reading, writing and generating benchmark instances; damaged files are named, never guessed at."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.errors import InvalidInput
from consentroid.core.problem import Domain, Problem, clustering_cost
from consentroid.paper.instances import Instance, InstanceClass, generate, load_folder, read_instance, write_npz


def write_jld2(path: Path, tables: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, table in tables.items():
            file[name] = table
    return path


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30))
def test_a_class_label_reads_back(nodes: int, features: int, clusters: int) -> None:
    size = InstanceClass(nodes, features, clusters)
    assert InstanceClass.parse(str(size)) == size


@pytest.mark.parametrize("label", ["", "2N2D", "2n2d3k", "0N2D3K", "2N2D3K_1", "-1N2D3K"])
def test_a_wrong_label_is_named(label: str) -> None:
    with pytest.raises(InvalidInput, match="4N3D4K"):
        InstanceClass.parse(label)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32), st.floats(1e-3, 10))
def test_generated_points_lie_within_the_radius(n: int, d: int, k: int, seed: int, radius: float) -> None:
    problem = generate(n, d, k, seed, points_per_cluster=4, radius=radius).problem
    assert len(problem.nodes) == n
    for node in problem.nodes:
        assert node.points.shape == (4 * k, d)
        # every group of one cluster has diameter at most 2 radius, across nodes as well: the centre is shared
    groups = np.concatenate([node.points.reshape(k, 4, d) for node in problem.nodes], axis=1)
    spread = np.linalg.norm(groups[:, :, None] - groups[:, None, :], axis=3)
    assert spread.max() <= 2 * radius * (1 + 1e-12)


def test_a_seed_repeats_and_another_differs() -> None:
    first, again, other = (generate(2, 3, 4, seed).problem.pooled.points for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("argument", ["n_nodes", "n_features", "n_clusters", "points_per_cluster"])
def test_the_generator_names_a_count_below_one(argument: str) -> None:
    arguments = {"n_nodes": 2, "n_features": 2, "n_clusters": 2, argument: 0}
    with pytest.raises(InvalidInput, match=f"{argument}=0"):
        generate(seed=1, **arguments)


def test_our_own_format_keeps_every_bit(tmp_path: Path) -> None:
    problem = Problem.checked(
        {"north": [[0.1, 1.0], [2.0, 3.0]], "south": [[5.0, 0.3]]},
        2,
        Domain(np.zeros(2), np.full(2, 9.0)),
        {"south": [2.5]},
    )
    path = write_npz(Instance("mine", problem), tmp_path / "deep" / "mine")
    read = read_instance(path)
    assert read.name == "mine"
    assert read.label == "2N2D2K"
    assert read.problem.names == problem.names
    assert np.array_equal(read.problem.domain.upper, problem.domain.upper)
    for ours, theirs in zip(read.problem.nodes, problem.nodes, strict=True):
        assert np.array_equal(ours.points, theirs.points)
        assert np.array_equal(ours.weights, theirs.weights)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
def test_a_truncated_npz_is_named(tmp_path: Path, kept: float) -> None:
    path = write_npz(generate(2, 2, 3, 1), tmp_path / "cut")
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(InvalidInput, match=r"cut\.npz"):
        read_instance(path)


def test_another_numpy_file_is_named(tmp_path: Path) -> None:
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.eye(2))
    with pytest.raises(InvalidInput, match=r"array\.npz"):
        read_instance(tmp_path / "array.npz")


def test_a_pickle_in_an_npz_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", names=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InvalidInput, match=r"evil\.npz"):
        read_instance(tmp_path / "evil.npz")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_npz(generate(1, 1, 1, 1), tmp_path / "file" / "x")


def test_a_jld2_is_read_column_by_column(tmp_path: Path) -> None:
    tables = {"Node 1": np.arange(8.0).reshape(2, 4), "Node 2": np.arange(6.0).reshape(2, 3)}
    problem = read_instance(write_jld2(tmp_path / "2N2D3K_1.jld2", tables)).problem
    assert problem.n_clusters == 3
    assert np.array_equal(problem.nodes[0].points, tables["Node 1"].T)
    assert problem.names == ("node1", "node2")


@pytest.mark.parametrize(
    ("name", "tables", "message"),
    [
        ("2N3D3K_1.jld2", {"Node 1": np.eye(2, 4), "Node 2": np.eye(2, 4)}, "named 2N3D3K but holds 2N2D3K"),
        ("3N2D3K_1.jld2", {"Node 1": np.eye(2, 4), "Node 2": np.eye(2, 4)}, "holds 2N2D3K"),
        ("1N2D3K_1.jld2", {"Other": np.eye(2, 4)}, "it holds 'Other'"),
        ("1N2D3K_1.jld2", {}, "it holds nothing"),
        ("1N2D3K_1.jld2", {"Node 2": np.eye(2, 4)}, "'Node 1'"),
        ("1N2D3K_1.jld2", {"Node 1": np.arange(4.0)}, "not a table of numbers"),
        ("1N2D3K_1.jld2", {"Node 1": np.full((2, 4), np.nan)}, "not finite"),
        ("1N2D9K_1.jld2", {"Node 1": np.eye(2, 4)}, "n_clusters=9"),
        ("unnamed.jld2", {"Node 1": np.eye(2, 4)}, "number of clusters"),
    ],
)
def test_a_wrong_jld2_is_named(tmp_path: Path, name: str, tables: dict[str, np.ndarray], message: str) -> None:
    path = write_jld2(tmp_path / name, tables)
    with pytest.raises(InvalidInput, match=message) as caught:
        read_instance(path)
    assert name in str(caught.value)


def test_a_group_in_place_of_a_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "1N2D3K_1.jld2"
    with h5py.File(path, "w") as file:
        file.create_group("Node 1")
    with pytest.raises(InvalidInput, match=r"1N2D3K_1\.jld2"):
        read_instance(path)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        read_instance(tmp_path / "2N2D3K_1.jld2")
    with pytest.raises(InvalidInput, match="does not exist"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="holds no"):
        load_folder(tmp_path)
    (tmp_path / "a.csv").touch()
    with pytest.raises(InvalidInput, match=r"must end in \.jld2"):
        read_instance(tmp_path / "a.csv")


def test_published_files_reach_their_proven_optimum(instances_dir: Path, optima: dict[str, float]) -> None:
    instances = load_folder(instances_dir)
    assert {instance.name for instance in instances} == set(optima)
    for instance in instances:
        assert instance.name.startswith(instance.label)
        groups = [
            np.concatenate([node.points[5 * k : 5 * k + 5] for node in instance.problem.nodes])
            for k in range(instance.problem.n_clusters)
        ]
        centroids = np.array([group.mean(axis=0) for group in groups])
        pooled = instance.problem.pooled
        # the generating clusters are a feasible answer: wrongly read rows would fall below the optimum or far above
        cost = clustering_cost(pooled.points, pooled.weights, centroids)
        assert optima[instance.name] * (1 - 1e-9) <= cost <= 1.5 * optima[instance.name]


@pytest.mark.parametrize("kept", [0, 100, 700, 1200])
def test_a_truncated_published_file_is_named(instances_dir: Path, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "2N2D3K_1.jld2"
    path.write_bytes((instances_dir / path.name).read_bytes()[:kept])
    with pytest.raises(InvalidInput, match=r"2N2D3K_1\.jld2"):
        read_instance(path)


def test_a_pattern_selects(instances_dir: Path, tmp_path: Path) -> None:
    assert [instance.label for instance in load_folder(instances_dir, "2N2D3K_*")] == ["2N2D3K"] * 4
    with pytest.raises(InvalidInput, match="9N"):
        load_folder(instances_dir, "9N*")
    shutil.copy(instances_dir / "2N2D3K_1.jld2", tmp_path / "2N2D3K_1.jld2")
    write_npz(generate(2, 2, 3, 1), tmp_path / "ours")
    assert [instance.name for instance in load_folder(tmp_path)] == ["2N2D3K_1", "ours"]
