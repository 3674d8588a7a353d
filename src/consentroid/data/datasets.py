"""Real data with natural sites: the penguins come with this package, the others are read from packages that ship them.

=========  ==============  ======  ===================  ================================================
loader     package         rows    nodes                licence of the data
=========  ==============  ======  ===================  ================================================
penguins   this one        342     3 islands            CC0 (Horst, Hill, Gorman 2020)
rand_hie   statsmodels     20,190  6 sites              public domain (RAND Health Insurance Experiment)
lung       lifelines       227     18 institutions      as the package, MIT (Loprinzi et al. 1994)
grunfeld   statsmodels     220     11 firms             public domain (Grunfeld 1950)
states     statsmodels     51      4 regions of the US  public domain (Statistical Abstracts of 2009)
=========  ==============  ======  ===================  ================================================
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from .tables import Table
from .text_files import MISSING

PENGUINS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
RAND_HIE = ("xage", "linc", "disea", "mdvis")
LUNG = ("age", "ph.karno", "pat.karno", "meal.cal", "wt.loss")
GRUNFELD = ("invest", "value", "capital")
STATES = ("violent", "poverty", "hs_grad")
REGIONS = {  # of the Census Bureau; the South has the others
    "Midwest": "Illinois,Indiana,Iowa,Kansas,Michigan,Minnesota,Missouri,Nebraska,North Dakota,Ohio,South Dakota,"
    "Wisconsin",
    "Northeast": "Connecticut,Maine,Massachusetts,New Hampshire,New Jersey,New York,Pennsylvania,Rhode Island,Vermont",
    "West": "Alaska,Arizona,California,Colorado,Hawaii,Idaho,Montana,Nevada,New Mexico,Oregon,Utah,Washington,Wyoming",
}


@dataclass(frozen=True)
class Sites:
    """One table a node; missing values are NaN where the source has them."""

    tables: dict[str, Table]
    about: str

    @property
    def features(self) -> tuple[str, ...]:
        return next(iter(self.tables.values())).names

    @property
    def rows(self) -> dict[str, Array]:
        return {node: table.rows for node, table in self.tables.items()}


def penguins(features: Sequence[str] = PENGUINS) -> Sites:
    """Body measures of penguins by island; the two birds without any measure are left out."""
    path = Path(__file__).with_name("penguins.csv")
    return _by_site(path, "island", features, drop_missing=True, about="Palmer penguins by island")


def rand_hie(features: Sequence[str] = RAND_HIE, year: int | None = None) -> Sites:
    """People of the RAND Health Insurance Experiment by site; `year` (1 to 5) keeps one year of each person."""
    path = _file("statsmodels", "datasets/randhie/src/randhie.csv", "statsmodels")
    only = {} if year is None else {"year": str(year)}
    return _by_site(path, "site", features, only=only, prefix="site ", about="RAND Health Insurance Experiment by site")


def lung(features: Sequence[str] = LUNG) -> Sites:
    """Patients with advanced lung cancer by institution, some values missing; one without institution is left out."""
    path = _file("lifelines", "datasets/lung.csv", "lifelines")
    return _by_site(path, "inst", features, prefix="institution ", about="Lung cancer patients by institution")


def grunfeld(features: Sequence[str] = GRUNFELD) -> Sites:
    """Investment, value and capital of eleven American firms, in millions of dollars; a row is a year, 1935 to 1954."""
    path = _file("statsmodels", "datasets/grunfeld/grunfeld.csv", "statsmodels")
    return _by_site(path, "firm", features, about="Accounts of eleven firms")


def states(features: Sequence[str] = STATES) -> tuple[Sites, dict[str, list[str]]]:
    """States of the US in 2009 by region, and their names: violent crimes per 100,000 people, poverty in per cent, and
    per cent of adults that finished high school."""
    path = _file("statsmodels", "datasets/statecrime/statecrime.csv", "statsmodels")
    with path.open(newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    region = {state: name for name, listed in REGIONS.items() for state in listed.split(",")}
    names: dict[str, list[str]] = {name: [] for name in ("Midwest", "Northeast", "South", "West")}
    rows: dict[str, list[list[float]]] = {name: [] for name in names}
    about = "States of the US by region"
    for record in records:
        state = record["state"].strip()
        own = region.get(state, "South")
        names[own].append(state)
        rows[own].append([_number(record[feature], feature, about) for feature in features])
    return Sites({name: Table(tuple(features), np.array(table)) for name, table in rows.items()}, about), names


def _file(package: str, inside: str, distribution: str) -> Path:
    # The package is found but not imported: its data needs none of its code.
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / inside).is_file():
            return Path(folder) / inside
    raise InvalidInput(
        f"this data set ships in the package {distribution}; install it with: pip install {distribution}"
    )


def _by_site(
    path: Path,
    site: str,
    features: Sequence[str],
    *,
    about: str,
    prefix: str = "",
    only: dict[str, str] | None = None,
    drop_missing: bool = False,
) -> Sites:
    with path.open(newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    for feature in features:
        if feature not in records[0]:
            raise InvalidInput(f"{about} has no column '{feature}'; it has {', '.join(records[0])}")
    chosen: dict[str, list[list[float]]] = {}
    for record in records:
        if record[site].lower() in MISSING or any(record[key] != value for key, value in (only or {}).items()):
            continue
        cells = [_number(record[feature], feature, about) for feature in features]
        if not (drop_missing and np.isnan(cells).any()):
            chosen.setdefault(record[site], []).append(cells)
    if not chosen:
        raise InvalidInput(f"{about} has no rows with {only}")
    return Sites(
        {_site_name(key, prefix): Table(tuple(features), np.array(chosen[key])) for key in _sorted(chosen)}, about
    )


def _sorted(keys: dict[str, list[list[float]]]) -> list[str]:
    return sorted(keys, key=lambda key: (0, float(key), "") if key.replace(".", "").isdigit() else (1, 0.0, key))


def _site_name(key: str, prefix: str) -> str:
    return f"{prefix}{int(float(key))}" if prefix else key


def _number(cell: str, feature: str, about: str) -> float:
    if cell.strip().lower() in MISSING:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        raise InvalidInput(f"column '{feature}' of {about} is not numeric ('{cell}'); choose another") from None
