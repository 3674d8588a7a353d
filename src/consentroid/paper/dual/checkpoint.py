"""A rule's state as named arrays and back: what a checkpoint of the dual phase stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_arrays(state: Any) -> dict[str, NDArray[Any]]:
    """Every field of the state as an array, ready for `numpy.savez`."""
    return {field.name: np.asarray(getattr(state, field.name)) for field in fields(state)}


def from_arrays(like: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """A state of the type of `like` (say, a fresh `rule.init(lam)`) from what `to_arrays` returned."""
    values = {}
    for field in fields(like):
        template, stored = getattr(like, field.name), np.asarray(arrays[field.name])
        values[field.name] = stored if isinstance(template, np.ndarray) else type(template)(stored[()])
    return type(like)(**values)
