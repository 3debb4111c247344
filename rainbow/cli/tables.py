"""Tables that fit the terminal: words stay whole, and what the next command is called with is never cut.

Columns that are too wide give way in this order: the last one wraps; free text in the middle is cut with an ellipsis;
the last one goes below its row; times, states and numbers are cut. Ids, and the first column, never are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

GAP, INDENT = 2, 4  # columns between two cells, and before what stands below its row
FREE, KEPT, WHOLE = range(3)  # is cut soon; late; never
ID = re.compile(r"[0-9a-f]{12,}|-")
PLAIN = re.compile(
    r"[A-Z_]+|\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?|[\d.]+/?\d*|up|drained|being deleted|no agent seen|-"
)


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows under titles. `right` are the columns of numbers; `wraps`: no text is cut but for single words."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Text]]
    right: frozenset[int]
    wraps: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw it as wide as it may be."""
        ranks = [self._rank(column) for column in range(len(self.titles))]
        natural = [max(cell_len(line) for line in self._lines(column)) for column in range(len(self.titles))]
        words = [self._longest_word(column) if self.wraps else 0 for column in range(len(self.titles))]
        widths = fitted(natural, ranks, options.max_width, words)
        head = [Text(title, style="bold") for title in self.titles]
        if len(widths) < len(head) and not any(row[-1].plain for row in self.rows):
            head[-1] = Text()  # nothing stands below any row
        yield from self._drawn(head, widths, console, options)
        for row in self.rows:
            yield from self._drawn(row, widths, console, options)

    def _lines(self, column: int) -> Iterator[str]:
        yield self.titles[column]
        for row in self.rows:
            yield from row[column].plain.splitlines()

    def _longest_word(self, column: int) -> int:
        return max((cell_len(word) for line in self._lines(column) for word in line.split()), default=0)

    def _rank(self, column: int) -> int:
        texts = [row[column].plain for row in self.rows]
        if column == 0 or all(map(ID.fullmatch, texts)):
            return WHOLE
        return KEPT if all(map(PLAIN.fullmatch, texts)) else FREE

    def _drawn(
        self, row: Sequence[Text], widths: Sequence[int], console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        """Draw one row: a line, more where a cell wraps, and the last cell below if there is no room beside."""
        beside = len(widths) == len(row)
        columns = [self._cell(row[k], k, width, console) for k, width in enumerate(widths)]
        for k in range(max(map(len, columns))):
            line = [column[k] if k < len(column) else Text(" " * widths[j]) for j, column in enumerate(columns)]
            yield _stripped(Text(" " * GAP).join(line))
        below = [] if beside else _wrapped(row[-1], max(options.max_width - INDENT, 1), console)
        for under in below:
            if under.plain:
                yield _stripped(Text(" " * INDENT) + under)

    def _cell(self, cell: Text, column: int, width: int, console: Console) -> list[Text]:
        if column == len(self.titles) - 1 or (self.wraps and self._rank(column) == FREE):
            return [self._aligned(line, column, width) for line in _wrapped(cell, width, console)]
        return [self._cut(cell, column, width)]

    def _cut(self, cell: Text, column: int, width: int) -> Text:
        cut = Text(" ".join(cell.plain.splitlines()), style=cell.style)
        cut.truncate(width, overflow="ellipsis")
        return self._aligned(cut, column, width)

    def _aligned(self, cell: Text, column: int, width: int) -> Text:
        cell.align("right" if column in self.right else "left", width)
        return cell


def fitted(natural: Sequence[int], ranks: Sequence[int], room: int, words: Sequence[int] = ()) -> list[int]:
    """Return the widths of the columns; without one for the last if that is to stand below its row.

    `words`: what the columns have at least while there is room for it.

    >>> fitted([24, 10, 60], [WHOLE, FREE, FREE], 80)
    [24, 10, 42]
    >>> fitted([24, 20, 9, 19, 60], [WHOLE, FREE, KEPT, KEPT, FREE], 80)
    [24, 20, 9, 19]
    """
    widths, last = list(natural), len(natural) - 1
    middle = {column for column in range(last) if ranks[column] == FREE}
    own = {last} if ranks[last] == FREE else set()
    for columns, least in ((own, 30), (middle, 12), (own, 16)):
        _narrow(widths, columns, least, room, words)
    if own and last and _total(widths) > room:
        widths = list(natural[:-1])
        _narrow(widths, middle, 12, room, words)
    kept = {column for column in range(len(widths)) if ranks[column] == KEPT}
    for columns, least in ((middle, 6), (kept, 10), (middle | kept, 2)):
        _narrow(widths, columns, least, room)
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _narrow(widths: list[int], columns: set[int], least: int, room: int, words: Sequence[int] = ()) -> None:
    """Narrow the widest of some columns until all fit, or they have no more than `least` and their longest word."""
    floors = {column: max(least, words[column] if words else 0) for column in columns}
    while _total(widths) > room and (wide := [column for column in columns if widths[column] > floors[column]]):
        widths[max(wide, key=lambda column: widths[column])] -= 1


def _wrapped(cell: Text, width: int, console: Console) -> list[Text]:
    return list(cell.wrap(console, width, overflow="ellipsis")) or [Text()]


def _stripped(line: Text) -> Text:
    line.rstrip()
    line.no_wrap, line.overflow = True, "ignore"  # an id is whole even where the terminal is narrower
    return line
