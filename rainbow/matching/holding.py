"""What one job holds of a cluster under occupancy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.lazy import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rainbow.matching.stand import Part
    from rainbow.matching.strict_traversal import Found
    from rainbow.matching.verdict import Take


@dataclass(eq=False)
class Holding:
    """What is taken, and `say`, which works it out in words of the cluster when that is looked at.

    parts      of workers: (worker, part)
    blocked    workers inside something that is taken whole, with all of them as their part
    elsewhere  of what lies in no worker: (position, base units, whole)
    found      under strict levels, what the traversal found
    """

    parts: Sequence[tuple[int, Part]]
    say: Callable[[], Take]
    blocked: Sequence[tuple[int, Part]] = ()
    elsewhere: Sequence[tuple[int, int, bool]] = ()
    found: tuple[Found, ...] = ()
    number: int = 0

    @cached_property
    def take(self) -> Take:
        """What is held by slot and worker, and by vertex."""
        return self.say()

    @property
    def vertices(self) -> Mapping[str, int]:
        """{vertex: amount}, whole subtrees by their top."""
        return self.take.vertices
