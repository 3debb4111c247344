"""Idsets (RFC 22) and host lists (RFC 29): short forms of many numbers and many names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby

_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_HOST = re.compile(r"([^,\[\]\s]*)(?:\[([^\[\]]*)\]([^,\[\]\s]*))?(?:,|$)")


def expand_ids(text: str, most: int) -> list[int] | None:
    """Expand an idset in order; None if it is none, or names more than `most`.

    >>> expand_ids("0-3,7", 100), expand_ids("3-1", 100)
    ([0, 1, 2, 3, 7], None)
    """
    spans = _spans(text.strip().removeprefix("[").removesuffix("]"))
    if spans is None or sum(map(len, spans)) > most:
        return None
    return list(chain.from_iterable(spans))


def _spans(text: str, least: int = 2) -> list[range] | None:
    """Read ranges; an idset's (RFC 22) name `least` 2 numbers, those of a hostlist (RFC 29) may name one."""
    spans: list[range] = []
    for part in text.split(","):
        result = _RANGE.fullmatch(part.strip())
        low, high = (int(result[1]), int(result[2] or result[1])) if result else (1, 0)
        if high < low or (result and result[2] and high - low + 1 < least):
            return None
        spans.append(range(low, high + 1))
    return spans


def count_ids(text: str) -> int | None:
    """Count what an idset names without writing it out; None if it is none.

    >>> count_ids("0-3,7"), count_ids("0-999999999"), count_ids("a")
    (5, 1000000000, None)
    """
    spans = _spans(text.strip().removeprefix("[").removesuffix("]"))
    return None if spans is None else sum(len(span) for span in spans)


def count_hosts(text: str) -> int | None:
    """Count what a hostlist names without writing it out; None if it is none.

    >>> count_hosts("node[08-10,12],login"), count_hosts("node[")
    (5, None)
    """
    count = at = 0
    while at < len(text):
        result = _HOST.match(text, at)
        spans = _spans(result[2], least=1) if result and result[2] is not None else [range(1)]
        if result is None or result.end() == at or spans is None:
            return None
        at = result.end()
        count += sum(map(len, spans))
    return count


def expand_hosts(text: str, most: int) -> list[str] | None:
    """Expand a hostlist with one pair of brackets a name; zeros at the front are kept.

    >>> expand_hosts("node[08-10,12],login", 100)
    ['node08', 'node09', 'node10', 'node12', 'login']
    """
    names: list[str] = []
    at = 0
    while at < len(text):
        result = _HOST.match(text, at)
        if result is None or result.end() == at:
            return None
        at = result.end()
        numbers = [""] if result[2] is None else _padded(result[2], most)
        if numbers is None or len(names) + len(numbers) > most:
            return None
        names.extend(f"{result[1]}{number}{result[3] or ''}" for number in numbers)
    return names


def _padded(text: str, most: int) -> list[str] | None:
    numbers: list[str] = []
    for part in text.split(","):
        spans = _spans(part, least=1)
        if spans is None or len(spans[0]) > most:
            return None
        width = len(part.partition("-")[0].strip())
        numbers.extend(f"{number:0{width}d}" for number in spans[0])
    return numbers


def fold_ids(ids: Iterable[int]) -> str:
    """Write numbers as an idset, in ascending order.

    >>> fold_ids([7, 0, 1, 3, 2])
    '0-3,7'
    """
    return ",".join(_runs((str(number), number) for number in sorted(set(ids))))


def _runs(numbers: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield numbers that follow one another as a range; each comes as text and value."""
    for _, run in groupby(enumerate(numbers), key=lambda numbered: numbered[1][1] - numbered[0]):
        texts = [text for _, (text, _) in run]
        yield texts[0] if len(texts) == 1 else f"{texts[0]}-{texts[-1]}"


_NUMBERED = re.compile(r"(.*?)(\d{1,18})?")


def fold_hosts(names: Iterable[str]) -> str:
    """Write names as a hostlist, in the order given.

    >>> fold_hosts(["node08", "node09", "node10", "login", "node1"])
    'node[08-10],login,node1'
    """
    parts = [(result[1], result[2] or "") for name in names if (result := _NUMBERED.fullmatch(name))]
    folded = []
    for (prefix, width), run in groupby(parts, key=lambda part: (part[0], len(part[1]))):
        numbers = [number for _, number in run]
        if not width or len(numbers) == 1:
            folded += [f"{prefix}{number}" for number in numbers]
        else:
            folded.append(f"{prefix}[{','.join(_runs((number, int(number)) for number in numbers))}]")
    return ",".join(folded)
