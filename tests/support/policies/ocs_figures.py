"""Figures of Open Cluster Scheduler's own unit tests: diagram, calendars, quota filters, load formulas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import Any

from rainbow.scheduling.priority.config.calendar import Calendar, read_calendar
from rainbow.scheduling.priority.config.load_formulas import FormulaFault, evaluate, read_formula
from rainbow.scheduling.priority.config.quotas import Sets, rule_matches
from rainbow.scheduling.resource_timeline import Profile
from tests.conformance import Comparison

STATES = {"on": "open", "suspended": "suspended", "off": "off"}
SETS = Sets(users={"userset1": ["user1"], "userset2": ["@staff"]}, hosts={"hgrp1": ["host1"], "hgrp2": ["host2"]})


def figures(recorded: dict[str, Any]) -> Iterator[Comparison]:
    """Yield one comparison for every figure."""
    yield from _diagrams(recorded["utilization_diagram"]["cases"])
    calendars = [read_calendar(c["year"], c["week"]) for c in recorded["calendars"]]
    for k, case in enumerate(recorded["calendar_states"]):
        ours = _states(calendars[case["calendar"]], case["now"])
        theirs = (case["state_now"], case["until"], case["then"], case["then_until"])
        yield Comparison(f"calendar {case['calendar']} state {k}", ours == theirs, f"{ours}, recorded {theirs}")
    for k, case in enumerate(recorded["calendar_frames"]):
        open_ = calendars[case["calendar"]].open(seconds(case["start"]), case["duration"])
        yield Comparison(f"calendar {case['calendar']} frame {k}", open_ == case["open"], f"open {open_}")
    for expected, name in ((True, "rqs_filter_match"), (False, "rqs_filter_no_match")):
        for case in recorded[name]:
            yield _quota(case, expected)
    yield from _formulas(recorded["load_formula"])


def _diagrams(cases: list[dict[str, Any]]) -> Iterator[Comparison]:
    done: dict[str, list[list[Any]]] = {}
    for case in cases:
        done[case["name"]] = [*done.get(case.get("after", ""), []), *case["ops"]]
        use = Profile()
        for start, duration, amount in done[case["name"]]:
            use.add(start, start + _number(duration), amount)
        for start, duration, expected in case["queries"]:
            most = use.most(start, start + _number(duration))
            yield Comparison(f"diagram {case['name']} {start} {duration}", most == expected, f"{most} not {expected}")
        if case["event_times_desc"] is not None:
            times = [time for time, _ in use][::-1]
            theirs = [_number(time) for time in case["event_times_desc"]]
            yield Comparison(f"diagram {case['name']} events", times == theirs, f"{times} not {theirs}")


def _number(value: Any) -> float:
    return inf if value == "inf" else value


def seconds(text: str) -> int:
    """Return local seconds since 1970 of "2004-02-01T09:00:00"."""
    date, _, clock = text.partition("T")
    year, month, day = date.split("-")
    hour, minute, second = map(int, clock.split(":"))
    first = read_calendar(f"{day}.{month}.{year}").year[0].first
    return first * 86_400 + hour * 3600 + minute * 60 + second


def _states(calendar: Calendar, now: str) -> tuple[str | None, ...]:
    changes = list(islice(calendar.changes(seconds(now)), 3))
    shown = [(_shown(time), STATES[state]) for time, state in changes] + [(None, None)] * (3 - len(changes))
    return shown[0][1], shown[1][0], shown[1][1], shown[2][0]


def _shown(time: float) -> str:
    day, second = divmod(int(time), 86_400)
    year = 1970 + day // 366
    while seconds(f"{year + 1}-01-01T00:00:00") <= day * 86_400:
        year += 1
    month = max(m for m in range(1, 13) if seconds(f"{year}-{m:02}-01T00:00:00") <= day * 86_400)
    date = day - seconds(f"{year}-{month:02}-01T00:00:00") // 86_400 + 1
    return f"{year}-{month:02}-{date:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def _quota(case: dict[str, Any], expected: bool) -> Comparison:
    query = case["query"]
    result = rule_matches(case["rule"], {k: v for k, v in query.items() if k != "group"}, query["group"], SETS)
    return Comparison(f"quota filter: {case['label']}", result == expected, f"matches {result}")


def _formulas(recorded: dict[str, Any]) -> Iterator[Comparison]:
    for text in (*recorded["valid"], *recorded["invalid"]):
        try:
            readable = {name for name, _ in read_formula(text)} <= {"", "num_proc"}
        except FormulaFault:
            readable = False
        yield Comparison(f"formula {text}", readable == (text in recorded["valid"]), f"readable {readable}")
    for text, expected in recorded["eval_with_num_proc_4"].items():
        value = evaluate(read_formula(text), {"num_proc": 4})
        yield Comparison(f"formula {text} of 4", abs(value - expected) < 1e-9, f"{value} not {expected}")
