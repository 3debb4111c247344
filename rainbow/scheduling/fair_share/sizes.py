"""Amounts → orders: by the quantum's type, or by what stands in for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rainbow.scheduling.fair_share.quanta import job_order, machine_order

if TYPE_CHECKING:
    from rainbow.scheduling.policy import WorkerView

FINEST = 4096  # orders index tables; a quantum that would make more of a machine is taken as a larger one
WITHOUT = "core"  # counts where no worker has any of the quantum's type


def counted_type(wanted: str, workers: Sequence[WorkerView]) -> str | None:
    """Choose the type that is counted; None: every worker is one share."""
    return next((kind for kind in (wanted, WITHOUT) if any(w.capacity.get(kind, 0) > 0 for w in workers)), None)


def coarse_enough(quantum: int, amounts: Sequence[int]) -> int:
    """Return the quantum, or the smallest larger one that leaves tables of a bearable length."""
    return max(quantum, -(-max(amounts, default=0) // FINEST))


def order_of_worker(capacity: Mapping[str, int], kind: str | None, quantum: int) -> int:
    """How many quanta a worker can give."""
    return 1 if kind is None else machine_order(capacity.get(kind, 0), quantum)


def order_of_share(amounts: Mapping[str, int], capacity: Mapping[str, int], kind: str | None, quantum: int) -> int:
    """How many quanta a share takes on a worker; one that asks for none of the type takes its part of the worker.

    >>> order_of_share({"memory": 20}, {"memory": 64}, "memory", 15)
    2
    >>> order_of_share({"core": 4}, {"memory": 64, "core": 16}, "memory", 1)
    16
    """
    if kind is None:
        return 1
    if amounts.get(kind, 0) > 0:
        return job_order(amounts[kind], quantum)
    whole = order_of_worker(capacity, kind, quantum)
    parts = [-(-whole * amount // capacity[t]) for t, amount in amounts.items() if capacity.get(t, 0) > 0]
    return max([1, *parts])
