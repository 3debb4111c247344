"""Calendars: when a queue is on, suspended or off, by the wall clock of a zone.

Times that are asked for are seconds since 1970. Entries speak of local seconds (time_zones.py). So an hour that the
clocks leave out has no effect, and one that comes twice has its state twice, as in Grid Engine.

    year   day.month.year[-day.month.year][=time-time,...][=state] ...   or a state, or NONE
    week   day[-day],...[=time-time,...][=state] ...                     or times and a state, or NONE

A state is on, suspended or off (the default). A range of days goes around the end of the week, a range of times
around midnight: 18:0-9:0 continues until nine of the day after. Where the year part speaks of a
time, the week part does not count. Where several entries of a part do, on wins over suspended, suspended over off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import inf

from rainbow.scheduling.priority.config.time_zones import FixedOffset, Zone
from rainbow.text import LATEST

UTC_ZONE = FixedOffset()
DAY = 86_400
ON, SUSPENDED, OFF = "on", "suspended", "off"
STATES = {ON: ON, "enabled": ON, SUSPENDED: SUSPENDED, "suspend": SUSPENDED, OFF: OFF, "disabled": OFF}
RANK = {OFF: 0, SUSPENDED: 1, ON: 2}
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FAR = 30  # days: a time later than that is said with its date
YEARS = 20  # a change later than this is as good as none

EVER = 2**40  # days

Times = tuple[tuple[int, int], ...]  # [start, end) in seconds of a day; an end after midnight is on the next one


@dataclass(frozen=True, slots=True)
class YearEntry:
    """Days [first, last] since 1970."""

    first: int
    last: int
    times: Times
    state: str

    def on(self, day: int) -> bool:
        """Return whether it is for a day."""
        return self.first <= day <= self.last


@dataclass(frozen=True, slots=True)
class WeekEntry:
    """Days of the week, Monday 0."""

    days: frozenset[int]
    times: Times
    state: str

    def on(self, day: int) -> bool:
        """Return whether it is for a day; 1.1.1970 was a Thursday."""
        return (day + 3) % 7 in self.days


@dataclass(frozen=True, slots=True)
class Calendar:
    """A queue's calendar."""

    year: tuple[YearEntry, ...] = ()
    week: tuple[WeekEntry, ...] = ()

    def state(self, time: float, zone: Zone = UTC_ZONE) -> str:
        """Return the state at a time."""
        day, second = divmod(time + zone.offset(time), DAY)
        return next(state for start, end, state in self._day(int(day)) if start <= second < end)

    def changes(self, start: float, zone: Zone = UTC_ZONE) -> Iterator[tuple[float, str]]:
        """Yield (time, state from then on), first at `start`; ends when nothing changes any more."""
        begin, last_day, before = start, self._last_day(int(start // DAY)), ""
        while begin // DAY <= last_day:
            offset, until = zone.offset(begin), zone.next_change(begin)
            for local, state in self._local_changes(begin + offset, last_day):
                if local - offset >= until:
                    break
                if state != before:
                    before = state
                    yield local - offset, state
            begin = until  # from there on the wall clock shows other times

    def _last_day(self, first: int) -> int:
        """Return the day after which nothing changes, or is as good as none."""
        dated = [entry.last for entry in self.year if entry.last < EVER]
        return first + 366 * YEARS if self._recurs() else max([first, *dated]) + 8

    def _local_changes(self, start: float, last_day: int) -> Iterator[tuple[float, str]]:
        """Yield (local time, state from then on), first at `start`."""
        day, second = divmod(start, DAY)
        state = next(state for begin, end, state in self._day(int(day)) if begin <= second < end)
        yield start, state
        for later in range(int(day), last_day + 1):
            for begin, _, then in self._day(later):
                if later * DAY + begin > start and then != state:
                    state = then
                    yield later * DAY + begin, state

    def closed(self, start: float, most: int = 64, zone: Zone = UTC_ZONE) -> list[tuple[float, float]]:
        """Return the intervals from `start` on in which it is not on; the last is open if there are more."""
        results: list[tuple[float, float]] = []
        begin: float | None = None
        for time, state in self.changes(start, zone):
            if state != ON and begin is None:
                begin = time
                if len(results) == most:
                    break
            elif state == ON and begin is not None:
                results.append((begin, time))
                begin = None
        return [*results, (begin, inf)] if begin is not None else results

    def open(self, start: float, duration: float) -> bool:
        """Return whether it is on for the whole of [start, start + duration], both ends included."""
        return all(end < start or begin > start + duration for begin, end in self.closed(start - 1, most=2))

    def _recurs(self) -> bool:
        """Return whether the week part changes state forever."""
        week = Calendar((), self.week)
        return len({state for day in range(7) for _, _, state in week._day(day)}) > 1

    def _day(self, day: int) -> list[tuple[int, int, str]]:
        """Return the parts of one day with their states; hours around midnight come from the day before too."""
        year = [span for entry in self.year for span in _of_day(entry.times, entry.state, day, entry.on)]
        week = [span for entry in self.week for span in _of_day(entry.times, entry.state, day, entry.on)]
        cuts = sorted({0, DAY, *(cut for start, end, _ in (*year, *week) for cut in (start, end))})
        return [(start, end, _speak(start, year) or _speak(start, week) or ON) for start, end in pairwise(cuts)]


Span = tuple[int, int, str]  # (start, end, state) in seconds of one day


def _of_day(times: Times, state: str, day: int, on: Callable[[int], bool]) -> Iterator[Span]:
    """Yield what an entry says of one day."""
    if on(day):
        yield from ((start, min(end, DAY), state) for start, end in times)
    if on(day - 1):
        yield from ((0, end - DAY, state) for _, end in times if end > DAY)


def _speak(second: int, spans: Sequence[Span]) -> str:
    """Return the state of what is said of a second of a day, "" if nothing is."""
    return max((state for start, end, state in spans if start <= second < end), key=RANK.__getitem__, default="")


def clock(time: float, now: float, zone: Zone) -> str:
    """Write a time of day in a zone, how many days later if it is not today; the date if that is far off.

    The zone is named, because other times are shown by the reader's.

    >>> clock(51_600, 0, UTC_ZONE), clock(2 * DAY + 60, DAY - 1, UTC_ZONE), clock(365 * DAY, 0, FixedOffset(5400))
    ('14:20 UTC', '00:01 UTC in 2 days', '1971-01-01 01:30 UTC+1.5')
    """
    day, second = divmod(int(time + zone.offset(time)), DAY)
    later = day - int((now + zone.offset(now)) // DAY)
    written = f"{second // 3600:02}:{second // 60 % 60:02} {zone.name(time)}"
    if later > FAR and time < LATEST:
        return f"{datetime.fromtimestamp(day * DAY, UTC):%Y-%m-%d} {written}"
    return written + (f" in {later} day{'s' if later > 1 else ''}" if later > 0 else "")


# ── reading ──


class CalendarFault(ValueError):
    """The text is not a calendar."""


def read_calendar(year: str = "NONE", week: str = "NONE") -> Calendar:
    """Read a calendar; CalendarFault says what is wrong.

    >>> read_calendar(week="Mon-Fri=9:0-17:30=off").state(9 * 3600)
    'off'
    """
    return Calendar(
        tuple(_year_entry(part) for part in _parts(year)), tuple(_week_entry(part) for part in _parts(week))
    )


def _parts(text: str) -> list[str]:
    return [] if text.strip().lower() in ("none", "") else text.split()


def _year_entry(text: str) -> YearEntry:
    days, times, state = _pieces(text)
    if not days:
        return YearEntry(-EVER, EVER, times, state)
    first, _, last = days.partition("-")
    begin, end = _date(first), _date(last or first)
    if end < begin:
        raise CalendarFault(f"{text!r} ends before it begins")
    return YearEntry(begin, end, times, state)


def _week_entry(text: str) -> WeekEntry:
    days, times, state = _pieces(text)
    results: set[int] = set()
    for span in days.lower().split(",") if days else ["mon-sun"]:
        first, _, last = span.partition("-")
        begin, end = _weekday(first), _weekday(last or first)
        results.update((begin + k) % 7 for k in range((end - begin) % 7 + 1))
    return WeekEntry(frozenset(results), times, state)


def _pieces(text: str) -> tuple[str, Times, str]:
    """Divide an entry at its "=": days, times, state; each may be missing."""
    days, times, state = "", "", ""
    for piece in text.split("="):
        if piece.lower() in STATES and not state:
            state = STATES[piece.lower()]
        elif ":" in piece and not times:
            times = piece
        elif not days and not times and not state:
            days = piece
        else:
            raise CalendarFault(f"cannot read {piece!r} in {text!r}")
    return days, _times(times) if times else ((0, DAY),), state or OFF


def _times(text: str) -> Times:
    spans: list[tuple[int, int]] = []
    for span in text.split(","):
        first, dash, last = span.partition("-")
        if not dash:
            raise CalendarFault(f"{span!r} is no range of times")
        start, end = _clock(first), _clock(last)
        spans.append((start, end if start < end else end + DAY))
    return tuple(spans)


def _clock(text: str) -> int:
    result = re.fullmatch(r"(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}))?", text, re.ASCII)
    hour, minute, second = (int(part or 0) for part in result.groups()) if result else (25, 0, 0)
    if hour * 3600 + minute * 60 + second > DAY or minute > 59 or second > 59:
        raise CalendarFault(f"{text!r} is no time of a day")
    return hour * 3600 + minute * 60 + second


def _weekday(text: str) -> int:
    if text[:3] not in DAYS:
        raise CalendarFault(f"{text!r} is no day of the week")
    return DAYS.index(text[:3])


def _date(text: str) -> int:
    """Return the days since 1970 of day.month.year."""
    result = re.fullmatch(r"(\d{1,2})\.(\d{1,2}|[a-z]{3})\.(\d{4})", text.lower(), re.ASCII)
    if not result:
        raise CalendarFault(f"{text!r} is no date")
    day, month, year = int(result[1]), result[2], int(result[3])
    number = MONTHS.index(month) + 1 if month in MONTHS else int(month) if month.isdigit() else 0
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not 1 <= number <= 12 or not 1 <= day <= lengths[number - 1]:
        raise CalendarFault(f"{text!r} is no date")
    before = year - 1
    since = before * 365 + before // 4 - before // 100 + before // 400
    return since + sum(lengths[: number - 1]) + day - 1 - 719_162
