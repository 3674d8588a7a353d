"""Choices of options: enums, so that help, errors and shell completion know them."""

from __future__ import annotations

from enum import StrEnum


class Method(StrEnum):
    ROW_PRICES = "row-prices"
    PROXIMAL = "proximal"
    BTM = "btm"
    QNDA = "qnda"
    QNDA_EPIGRAPH = "qnda-epigraph"
    SG = "sg"


class Solver(StrEnum):
    EXACT = "exact"
    SCIP = "scip"
    GUROBI = "gurobi"


class SymmetryRule(StrEnum):
    ORDER = "order"
    NONE = "none"
    NEAREST = "nearest"


class TopologyName(StrEnum):
    LINE = "line"
    RING = "ring"
    STAR = "star"
    COMPLETE = "complete"


class Scale(StrEnum):
    NONE = "none"
    STANDARD = "standard"
    MINMAX = "minmax"


class Separator(StrEnum):
    COMMA = "comma"
    SEMICOLON = "semicolon"
    TAB = "tab"
    BAR = "bar"


class DecimalSign(StrEnum):
    POINT = "."
    COMMA = ","
