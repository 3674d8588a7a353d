"""`verify` accepts what runs write, and refuses whatever was altered, forged or is about other rows."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from consentroid.cli.main import app
from consentroid.core.errors import CertificateInvalid, InvalidInput
from consentroid.fitting import FitResult, fit
from consentroid.legacy.verify import verify
from consentroid.legacy.verify.digests import digests_of
from consentroid.paper.instances import load_folder

Rows = dict[str, np.ndarray]


def random_rows(seed: int, n_nodes: int, n_rows: int, n_features: int) -> Rows:
    rng = np.random.default_rng(seed)
    scale, shift = 10.0 ** rng.integers(-3, 4), rng.choice([0.0, 1e3])
    return {f"node{i}": shift + scale * rng.normal(size=(n_rows, n_features)) for i in range(n_nodes)}


def written(result: FitResult) -> dict[str, Any]:
    """As a reader sees it."""
    return json.loads(json.dumps(result.certificate.as_dict(), allow_nan=False))


def forged(document: dict[str, Any]) -> dict[str, Any]:
    """With the digests that belong to the altered numbers."""
    return document | {"digests": digests_of(document)}


@pytest.fixture(scope="module")
def rows() -> Rows:
    return random_rows(5, n_nodes=2, n_rows=7, n_features=2)


@pytest.fixture(scope="module")
def document(rows: Rows) -> dict[str, Any]:
    """A certificate with a tree of some size."""
    result = written(fit(rows, 2, gap=1e-6))
    assert len(result["leaves"]) > 3
    return result


# ---------------------------------------------------------------------- what runs write


@pytest.mark.parametrize(
    ("seed", "n_nodes", "n_rows", "n_features", "n_clusters", "method", "gap"),
    [
        (0, 2, 6, 1, 2, "proximal", 1e-6),
        (1, 3, 6, 2, 3, "proximal", 1e-6),
        (2, 2, 8, 3, 2, "proximal", 1e-6),
        (3, 3, 5, 2, 2, "btm", 1e-6),
        (4, 2, 7, 1, 4, "btm", 1e-6),
        (5, 2, 9, 2, 3, "proximal", 0.2),
        (6, 1, 8, 2, 3, "proximal", 1e-4),
        (7, 3, 6, 2, 1, "proximal", 1e-6),
    ],
)
def test_accepts_what_a_run_writes(
    seed: int, n_nodes: int, n_rows: int, n_features: int, n_clusters: int, method: str, gap: float
) -> None:
    rows = random_rows(seed, n_nodes, n_rows, n_features)
    result = fit(rows, n_clusters, method=method, gap=gap, max_rounds=100, time_limit=5)
    report = verify(written(result), rows)
    assert report.verified
    assert (report.lower_bound, report.upper_bound) == (result.lower_bound, result.upper_bound)
    assert report.tolerance <= 1e-7 * result.upper_bound


def test_accepts_a_run_that_was_stopped(rows: Rows) -> None:
    for max_rounds in (1, 3, 8, 20):
        assert verify(written(fit(rows, 3, gap=0.0, max_rounds=max_rounds)), rows).verified


def test_accepts_rows_that_occur_twice_and_weights() -> None:
    rows = {"a": np.array([[0.0], [0.0], [1.0], [5.0]]), "b": np.array([[4.0], [1.0], [1.0], [9.0]])}
    assert verify(written(fit(rows, 2, gap=1e-6)), rows).verified
    weights = {"a": np.array([2.0, 0.0, 1.5, 1.0]), "b": np.array([1.0, 1.0, 3.0, 0.25])}
    weighted = written(fit(rows, 2, weights=weights, gap=1e-6))
    assert verify(weighted, rows, weights).verified
    with pytest.raises(CertificateInvalid, match="node 'a'"):
        verify(weighted, rows)


def test_accepts_a_cost_of_zero() -> None:
    rows = {"a": [[0.0], [1.0]], "b": [[1.0], [0.0]]}
    assert verify(written(fit(rows, 2)), rows).verified


@pytest.mark.instances
@pytest.mark.parametrize("name", ["2N2D3K_2", "3N2D3K_3", "4N2D4K_3"])
def test_accepts_the_proof_of_a_published_instance(name: str, instances_dir: Path, optima: dict[str, float]) -> None:
    problem = next(instance.problem for instance in load_folder(instances_dir) if instance.name == name)
    rows = {node.name: node.points for node in problem.nodes}
    result = fit(rows, problem.n_clusters, gap=1e-6, time_limit=30)
    report = verify(written(result), rows)
    assert report.verified
    assert report.lower_bound - report.tolerance <= optima[name] * (1 + 1e-9)


# ---------------------------------------------------------------------- alterations


def numbers_in(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all numbers of a JSON value."""
    if isinstance(part, dict):
        return [p for key, value in part.items() for p in numbers_in(value, (*path, key))]
    if isinstance(part, list):
        return [p for i, value in enumerate(part) for p in numbers_in(value, (*path, i))]
    return [path] if isinstance(part, int | float) else []


def changed(document: dict[str, Any], path: tuple[Any, ...], change: Any) -> dict[str, Any]:
    result = copy.deepcopy(document)
    part = result
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = change(part[path[-1]])
    return result


@given(data=st.data())
def test_any_number_that_is_changed_is_found_and_its_place_named(data: st.DataObject, document: dict[str, Any]) -> None:
    path = data.draw(st.sampled_from(numbers_in(document)))
    change = data.draw(
        st.sampled_from(
            [lambda x: x + 1, lambda x: -x - 1, lambda x: float(np.nextafter(x, np.inf)), lambda x: x * 1.0001 + 1e-9]
        )
    )
    with pytest.raises(CertificateInvalid) as refusal:
        verify(changed(document, path, change))
    place = f"leaf {path[1]}:" if path[0] == "leaves" else path[0] if len(path) > 1 else "summary:"
    assert str(refusal.value).startswith((place, "version:"))


def test_an_altered_digest_is_named(document: dict[str, Any]) -> None:
    for name in ("domain", "symmetry", "incumbent", "summary", "all"):
        with pytest.raises(CertificateInvalid, match=name):
            verify(changed(document, ("digests", name), lambda old: old[::-1]))
    with pytest.raises(CertificateInvalid, match="leaf 2: altered"):
        verify(changed(document, ("digests", "leaves", 2), lambda old: old[::-1]))


# ---------------------------------------------------------------------- forgeries with fitting digests


def priced_leaves(document: dict[str, Any]) -> list[int]:
    return [i for i, leaf in enumerate(document["leaves"]) if "prices" in leaf]


def with_bounds_raised(document: dict[str, Any], share: float) -> dict[str, Any]:
    """Claims `share` of the upper bound more, consistently, in the numbers of the first node."""
    result = copy.deepcopy(document)
    more = share * result["upper_bound"]
    for i in priced_leaves(result):
        leaf = result["leaves"][i]
        leaf["node_bounds"][0] += more
        leaf["bound"] = float(np.nextafter(sum(leaf["node_bounds"]), -np.inf))
    least = min(leaf["bound"] for leaf in result["leaves"] if "prices" in leaf)
    result["lower_bound"] = min(least, result["upper_bound"])
    result["gap"] = (result["upper_bound"] - result["lower_bound"]) / result["upper_bound"]
    return forged(result)


@pytest.mark.parametrize("share", [1e-5, 1e-2, 0.5])
def test_a_forged_bound_is_refuted_by_centroids(share: float, document: dict[str, Any], rows: Rows) -> None:
    false = with_bounds_raised(document, share)
    assert not verify(false).verified  # the sums are right: only the rows can tell
    with pytest.raises(CertificateInvalid, match=r"leaf \d+, node 'node0': claims .* but the centroids .* attain"):
        verify(false, rows)


@settings(max_examples=15)
@given(leaf=st.integers(0, 10**6), node=st.integers(0, 1))
def test_one_forged_bound_in_any_leaf_is_refuted(leaf: int, node: int, document: dict[str, Any], rows: Rows) -> None:
    """The claim is raised above the cost, with price, of every centroid of the leaf that the corners attain."""
    priced = priced_leaves(document)
    i = priced[leaf % len(priced)]
    false = copy.deepcopy(document)
    part = false["leaves"][i]
    part["node_bounds"][node] += 10.0 * (abs(part["node_bounds"][node]) + false["upper_bound"])
    part["bound"] = float(np.nextafter(sum(part["node_bounds"]), -np.inf))
    false["lower_bound"] = min(*(x["bound"] for x in false["leaves"] if "prices" in x), false["upper_bound"])
    false["gap"] = (false["upper_bound"] - false["lower_bound"]) / false["upper_bound"]
    with pytest.raises(CertificateInvalid, match=f"leaf {i}, node 'node{node}'"):
        verify(forged(false), rows)


def test_a_hole_between_the_leaves_is_named(document: dict[str, Any]) -> None:
    for i in range(len(document["leaves"])):
        holed = copy.deepcopy(document)
        del holed["leaves"][i]
        with pytest.raises(CertificateInvalid, match=r"leaves: none covers|lower_bound"):
            verify(forged(holed))


def test_leaves_may_overlap(document: dict[str, Any], rows: Rows) -> None:
    doubled = copy.deepcopy(document)
    doubled["leaves"].append(copy.deepcopy(doubled["leaves"][0]))
    assert verify(forged(doubled), rows).verified


def test_prices_that_do_not_cancel_are_named(document: dict[str, Any]) -> None:
    i = priced_leaves(document)[-1]
    false = changed(document, ("leaves", i, "prices", 0, 1, 0), lambda x: float(np.nextafter(x, np.inf)))
    with pytest.raises(CertificateInvalid, match=f"leaf {i}, prices: they sum to"):
        verify(forged(false))


def test_a_leaf_is_not_excluded_for_the_asking(document: dict[str, Any]) -> None:
    references = np.array(document["symmetry"]["references"])
    for i in priced_leaves(document):
        lower, upper = np.array(document["leaves"][i]["boxes"])
        if np.all((lower <= references) & (references <= upper)):
            break
    else:
        pytest.fail("some leaf holds the references, which obey the rule")
    false = copy.deepcopy(document)
    false["leaves"][i] = {"boxes": false["leaves"][i]["boxes"], "excluded_by": "order"}
    upper = false["upper_bound"]  # the forger also tells the bound that the other leaves would give
    false["lower_bound"] = min(upper, *(leaf["bound"] for leaf in false["leaves"] if "bound" in leaf))
    false["gap"] = (upper - false["lower_bound"]) / upper
    with pytest.raises(CertificateInvalid, match=f"leaf {i}: not excluded"):
        verify(forged(false | {"lower_bound": min(x["bound"] for x in false["leaves"] if "prices" in x)}))


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        (("lower_bound",), lambda x: x * 1.001, "lower_bound: claims"),
        (("lower_bound",), lambda x: x * 0.9, "lower_bound: claims"),
        (("upper_bound",), lambda x: x * 0.999, "upper_bound: claims"),
        (("upper_bound",), lambda x: x * 1.001, "upper_bound: claims"),
        (("gap",), lambda x: x / 2, "gap: claims"),
        (("gap",), lambda x: 0.0, "gap: claims"),
        (("symmetry", "rule"), lambda x: "nearest", "symmetry.rule"),
        (("n_clusters",), lambda x: 3, r"symmetry\.references: 2 entries|incumbent"),
        (("domain", "lower", 0), lambda x: x - 1.0, "leaves: none covers"),
        (("domain", "upper", 0), lambda x: x - 1e-3, "outside the domain"),
        (("nodes", 1), lambda x: "node0", "nodes: a name occurs twice"),
        (("format",), lambda x: "another", "format"),
        (("leaves", 0, "boxes"), lambda x: [x[1], x[0]], "leaf 0, boxes: lower"),
        (("leaves", 0, "boxes", 0), lambda x: x[:1], r"leaf 0, boxes\[0\]: 1 entries"),
        (("incumbent", "node_costs", 0), lambda x: "1.0", "incumbent.node_costs"),
        (("incumbent", "node_costs", 0), lambda x: True, "incumbent.node_costs"),
    ],
)
def test_forged_totals_and_structure_are_named(
    path: tuple[Any, ...], change: Any, message: str, document: dict[str, Any]
) -> None:
    with pytest.raises(CertificateInvalid, match=message):
        verify(forged(changed(document, path, change)))


def test_a_false_cost_is_refuted_by_its_node(document: dict[str, Any], rows: Rows) -> None:
    false = copy.deepcopy(document)
    cost = false["incumbent"]["node_costs"]
    cost[1] *= 1.0 - 1e-9
    false["upper_bound"] = float(np.nextafter(sum(cost), np.inf))
    false["lower_bound"] = min(false["lower_bound"], false["upper_bound"])
    false["gap"] = (false["upper_bound"] - false["lower_bound"]) / false["upper_bound"]
    with pytest.raises(CertificateInvalid, match="incumbent, node 'node1': claims the cost"):
        verify(forged(false), rows)


def test_other_rows_are_refuted(document: dict[str, Any], rows: Rows) -> None:
    one_less = {name: table[:-1] for name, table in rows.items()}
    with pytest.raises(CertificateInvalid, match="incumbent, node 'node0'"):
        verify(document, one_less)
    outside = {"node1": rows["node1"] * 3.0}
    with pytest.raises(CertificateInvalid, match=r"node 'node1': row \d+ .* outside the domain"):
        verify(document, outside)
    with pytest.raises(InvalidInput, match="knows no node 'berlin'"):
        verify(document, {"berlin": rows["node0"]})
    with pytest.raises(InvalidInput, match="2 features"):
        verify(document, {"node0": rows["node0"][:, :1]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "one JSON object"),
        ("{}", "'format' is missing"),
        ('{"gap": NaN}', "NaN is not a finite number"),
        ('{"gap": 1, "gap": 2}', "'gap' is given twice"),
    ],
)
def test_files_that_are_no_certificates(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(text)
    with pytest.raises(CertificateInvalid, match=message):
        verify(path)


def test_processes_find_the_same(document: dict[str, Any], rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consentroid.legacy.verify.checking.WORTH_A_PROCESS", 1)
    assert verify(document, rows, workers=2).verified
    with pytest.raises(CertificateInvalid, match="node 'node0': claims"):
        verify(with_bounds_raised(document, 1e-2), rows, workers=2)


# ---------------------------------------------------------------------- the command


@pytest.fixture
def files(document: dict[str, Any], rows: Rows, tmp_path: Path) -> list[str]:
    (tmp_path / "certificate.json").write_text(json.dumps(document))
    for name, table in rows.items():
        np.save(tmp_path / f"{name}.npy", table)
    nodes = [part for name in rows for part in ("--node", f"{name}={tmp_path / name}.npy")]
    return [str(tmp_path / "certificate.json"), *nodes]


def test_command_verifies_and_says_what_it_did_not(files: list[str]) -> None:
    run = CliRunner().invoke(app, ["verify", *files])
    assert (run.exit_code, "Verified: no clustering" in run.output) == (0, True)
    alone = CliRunner().invoke(app, ["verify", *files[:3], "--json"])
    told = json.loads(alone.output)
    assert (alone.exit_code, told["outcome"]) == (0, "verified in part")
    assert [node["complete"] for node in told["nodes"]] == [True, False]
    nobody = CliRunner().invoke(app, ["verify", files[0]])
    assert nobody.exit_code == 0
    assert "Not re-checked" in nobody.output.replace("\n", " ")


def test_command_without_time_never_says_verified(files: list[str]) -> None:
    run = CliRunner().invoke(app, ["verify", *files, "--time-limit", "0"])
    assert run.exit_code == 4
    assert "Not re-checked in time: 0 of" in run.output
    assert "Verified" not in run.output


def test_command_refutes(files: list[str], document: dict[str, Any]) -> None:
    Path(files[0]).write_text(json.dumps(with_bounds_raised(document, 0.1)))
    run = CliRunner().invoke(app, ["verify", *files, "--json"])
    told = json.loads(run.output)
    assert (run.exit_code, told["outcome"]) == (1, "refuted")
    assert "node 'node0'" in told["reason"]
