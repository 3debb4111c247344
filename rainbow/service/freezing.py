"""Phase 3 of a step: freeze what a policy may know into a View."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from rainbow.scheduling import View
from rainbow.service.following import follow, mirrored

if TYPE_CHECKING:
    from rainbow.service.mirror import Mirror
    from rainbow.service.service import Entry, Service
    from rainbow.store.clusters import ClusterRecord

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Frozen:
    """A view, and the mirror it is a view of: nobody changes that while a plan is made and carried out."""

    mirror: Mirror
    record: ClusterRecord
    view: View


class Rows(Sequence[Item], Generic[Item]):
    """A row of a view, written out when somebody looks at all of it: who asks the census need not pay for that."""

    def __init__(self, write: Callable[[], Iterable[Item]], length: int) -> None:
        self._write = write
        self._length = length

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        return tuple(self._write())

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    @overload
    def __getitem__(self, k: int) -> Item: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[Item]: ...
    def __getitem__(self, k: int | slice) -> Item | Sequence[Item]:
        return self._items[k]


def freeze(service: Service, entry: Entry, *, quiet: bool = False) -> Frozen | None:
    """Read what has changed and freeze the view; None if nothing waits and nothing is remembered, unless `quiet`."""
    with mirrored(service, entry) as mirror:
        record = follow(service, mirror)
        return frozen(service, mirror, record, quiet=quiet) if record else None


def frozen(service: Service, mirror: Mirror, record: ClusterRecord, *, quiet: bool = False) -> Frozen | None:
    """Freeze a mirror that is up to date."""
    if not (mirror.waiting or record.memory or quiet):
        return None
    mirror.placing.begin()
    census = mirror.census
    view = View(
        now=service.clock(),
        settings=record.settings,
        workers=Rows(census.workers.values, len(census.workers)),
        jobs=Rows(lambda: sorted(census.jobs.values(), key=lambda j: (j.submitted, j.id)), len(census.jobs)),
        runs=Rows(lambda: sorted(census.runs.values(), key=lambda r: (r.job, _index(r.task))), len(census.runs)),
        place=mirror.placing.place,
        hosts=mirror.placing.hosts,
        divide=mirror.placing.divide,
        memory=record.memory,
        consumables=dict(mirror.consumables),
        census=census,
    )
    return Frozen(mirror, record, view)


def _index(task: str) -> int:
    return int(task.rpartition("-")[2])
