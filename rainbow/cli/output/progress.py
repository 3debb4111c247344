"""Progress bars for long operations, on stderr and on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress


LARGE = 1 << 20  # bytes: less is sent before a bar is seen
T = TypeVar("T")


def _bars(column: str = "") -> Progress:
    from rich import progress  # most commands draw no bar: they need not wait for it
    from rich.console import Console

    counted = [getattr(progress, column)()] if column else []
    words = progress.TextColumn("{task.description}", markup=False)
    shown = (words, progress.BarColumn(), *counted, progress.TimeElapsedColumn())
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    return progress.Progress(*shown, console=console, transient=True, disable=not sys.stderr.isatty())


def counted(what: str, items: Sequence[T], size: Callable[[T], int] = lambda _: 1) -> Iterator[T]:
    """Yield the items, counting those that are done."""
    with _bars("MofNCompleteColumn") as bars:
        task = bars.add_task(what, total=sum(map(size, items)))
        for item in items:
            yield item
            bars.advance(task, size(item))


@contextmanager
def going_on(what: str) -> Iterator[Callable[[str], None]]:
    """Show that something continues with an unknown end; what is given says what it does now."""
    with _bars() as bars:
        task = bars.add_task(what, total=None)
        yield lambda now: bars.update(task, description=now)


class Upload:
    """A bar for a large body, from its first part to its last."""

    def __init__(self) -> None:
        self._bars: Progress | None = None

    def __call__(self, sent: int, total: int) -> None:
        """Note that so many bytes of so many are sent."""
        if total < LARGE:
            return
        if self._bars is None:
            self._bars = _bars("DownloadColumn")
            self._bars.add_task("sending", total=total)
            self._bars.start()
        self._bars.update(self._bars.task_ids[0], completed=sent)
        if sent >= total:
            self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
