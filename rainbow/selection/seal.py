"""The seal of a choice: a digest by which one that is taken again is known to be the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from rainbow.selection.choice import Choice, Scalar
from rainbow.selection.expression.columnar import read_column
from rainbow.selection.named_rows import ByRow, NamedRows, digests_of


def seal_of(choice: Choice) -> str:
    """Return a digest of what comes of each step, reasons left out: another choice has another one."""
    told = sha256(repr((choice.cluster, choice.selector, choice.reason, choice.warnings)).encode())
    last: Any = None
    for step in choice.steps:
        told.update(repr((step.priority, step.step, step.argument, step.note, len(step.values))).encode())
        told.update(_names(step.dropped))
        told.update(_numbers(step.values))
        if step.survivors is not last:
            last = step.survivors
            told.update(_names(last))
    return told.hexdigest()


def is_sealed_by(choice: Choice, seal: str) -> bool:
    """Return whether this is the choice that a digest was made of, now or by a version before."""
    return seal in (seal_of(choice), _former_seal(choice))


def _former_seal(choice: Choice) -> str:
    told = sha256(repr((choice.cluster, choice.selector, choice.reason, choice.warnings)).encode())
    last: Any = None
    for step in choice.steps:
        same = step.survivors == last
        about = (step.priority, step.step, step.argument, step.note, same, [*step.dropped.items()])
        told.update(repr((*about, [*step.values], [*step.values.values()])).encode())
        if not same:
            last = step.survivors
            told.update(repr(tuple(last)).encode())
    return told.hexdigest()


def _names(names: Collection[str]) -> bytes:
    """Return bytes that stand for names in their order."""
    return names.digests() if isinstance(names, NamedRows | ByRow) else digests_of([*names]).tobytes()


def _numbers(values: Mapping[str, Scalar]) -> bytes:
    """Return bytes that stand for values in their order: numbers as they are, all else in words."""
    if not values:
        return b""
    listed = values.listed() if isinstance(values, ByRow) else [*values.values()]
    column = read_column(listed)
    others = [listed[at] for at in np.flatnonzero(column.doubt).tolist()]
    numbers = np.where(column.doubt, 0.0, column.value)
    return numbers.tobytes() + np.packbits(column.whole).tobytes() + column.doubt.tobytes() + repr(others).encode()
