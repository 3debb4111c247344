"""Allocation rules of parallel environments: how many slots each worker gives. Workers are asked only while needed.

A rule asks workers in order through `take(worker, low, high)`, which gives between low and high slots of that
worker, or 0. It returns whether the count was met; what was taken in vain is the caller's to forget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Take = Callable[[str, int, int], int]

FILL_UP, ROUND_ROBIN, ONE_WORKER = "fill_up", "round_robin", "pe_slots"
NAMES = (FILL_UP, ROUND_ROBIN, ONE_WORKER)


def allocate(rule: str | int, count: int, workers: Iterable[str], take: Take) -> bool:
    """Take `count` slots by a rule: fill_up, round_robin, pe_slots (all on one worker), or exactly k a worker."""
    if isinstance(rule, int):
        return fixed(rule, count, workers, take)
    return {FILL_UP: fill_up, ROUND_ROBIN: round_robin, ONE_WORKER: one_worker}[rule](count, workers, take)


def fill_up(count: int, workers: Iterable[str], take: Take) -> bool:
    """Use each worker up before the next."""
    for worker in workers:
        if count <= 0:
            break
        count -= take(worker, 1, count)
    return count <= 0


def round_robin(count: int, workers: Iterable[str], take: Take) -> bool:
    """Take one slot of each worker in turn, as evenly as they allow."""
    left: Iterable[str] = workers
    giving = [""]
    while count > 0 and giving:
        giving = []
        for worker in left:
            if count <= 0:
                break
            if take(worker, 1, 1):
                count -= 1
                giving.append(worker)
        left = giving
    return count <= 0


def one_worker(count: int, workers: Iterable[str], take: Take) -> bool:
    """Take all slots of one worker."""
    return any(take(worker, count, count) for worker in workers)


def fixed(each: int, count: int, workers: Iterable[str], take: Take) -> bool:
    """Take exactly `each` slots of every worker used."""
    if count % each:
        return False
    for worker in workers:
        if count <= 0:
            break
        count -= take(worker, each, each)
    return count <= 0


def admissible(rule: str | int, counts: Sequence[int]) -> list[int]:
    """Drop the counts a rule can never meet; among the rest, whoever can have more can have less."""
    return [n for n in counts if not isinstance(rule, int) or n % rule == 0]
