"""Calendars by the wall clock of a zone, over both clock changes of the year."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from rainbow.errors import PolicyError
from rainbow.scheduling import Start, policies
from rainbow.scheduling.priority.config.calendar import ON, UTC_ZONE, clock, read_calendar
from rainbow.scheduling.priority.config.time_zones import FixedOffset, NoSuchTime, moment_of, named_zone
from tests.support.policies.priority_cases import asking, plan, view, waits

MINUTE, DAY = 60, 86_400
# each with days that are looked at to the minute: both changes of the year, where there are any
ZONES = {
    "Europe/Berlin": ["2026-03-29", "2026-10-25"],
    "America/Sao_Paulo": ["2018-02-18", "2018-11-04"],  # clocks were changed at midnight until 2019
    "Asia/Kolkata": ["2026-03-29", "2026-10-25"],
    "Australia/Lord_Howe": ["2026-04-05", "2026-10-04"],  # by half an hour
    "America/New_York": ["2026-03-08", "2026-11-01"],
}
WEEKS = [
    "Mon-Fri=8:00-18:00=off",
    "Mon-Sun=2:30-3:30=off",
    "Mon-Sun=0:0-0:30=off",
    "Mon-Sun=22:0-6:0=suspended",
    "Sun=off",
    "Mon-Sun=2:0-3:0=off",
]


def at(text, zone="UTC", fold=0):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def by_the_wall(calendar, time, zone):
    """The specification: what a clock on the wall shows decides, and nothing else."""
    local = datetime.fromtimestamp(time, ZoneInfo(zone)).replace(tzinfo=UTC)
    return calendar.state(local.timestamp())


@pytest.mark.parametrize("week", WEEKS)
@pytest.mark.parametrize(("name", "days"), ZONES.items())
def test_states_follow_the_wall_clock_to_the_minute(name, days, week):
    calendar, zone = read_calendar(week=week), named_zone(name)
    for day in days:
        first = at(day) - DAY / 2
        marks = (first + 600 * k for k in range(2 * 24 * 6))  # what happens, happens at tens of minutes
        times = sorted({mark + step for mark in marks for step in (-MINUTE, 0)})
        requirements = [by_the_wall(calendar, time, name) for time in times]
        assert [calendar.state(time, zone) for time in times] == requirements
        changes = [
            times[0],
            *(later for (_, a), (later, b) in pairwise(zip(times, requirements, strict=True)) if a != b),
        ]
        results = [time for time, _ in until_last(calendar.changes(times[0], zone), times[-1])]
        assert results == changes
        closed = calendar.closed(times[0], zone=zone)
        assert [any(a <= t < b for a, b in closed) for t in times] == [state != ON for state in requirements]


def until_last(changes, last):
    for time, state in changes:
        if time > last:
            return
        yield time, state


def test_dates_of_the_year_part_are_local_days():
    calendar, zone = read_calendar(year="29.3.2026=off"), named_zone("Europe/Berlin")
    begin, end = at("2026-03-29T00:00", "Europe/Berlin"), at("2026-03-30T00:00", "Europe/Berlin")
    assert calendar.closed(at("2026-03-01"), zone=zone) == [(begin, end)]
    assert end - begin == 23 * 3600


def test_a_window_stays_at_its_hour_all_year():
    calendar, zone = read_calendar(week="Mon-Sun=8:00-18:00=off"), named_zone("Europe/Berlin")
    starts = [begin for begin, _ in calendar.closed(at("2026-03-20"), most=40, zone=zone)]
    assert {datetime.fromtimestamp(time, ZoneInfo("Europe/Berlin")).hour for time in starts[:40]} == {8}
    assert {datetime.fromtimestamp(time, UTC).hour for time in starts[:40]} == {7, 6}


@pytest.mark.parametrize(
    ("local", "zone", "wanted"),
    [
        ("2026-03-29T02:30", "Europe/Berlin", "2026-03-29 02:30 does not exist there: clocks are put forward"),
        (
            "2026-10-25T02:30",
            "Europe/Berlin",
            "2026-10-25 02:30 comes twice, as CEST or CET: give its offset from UTC",
        ),
        ("2018-11-04T00:30", "America/Sao_Paulo", "2018-11-04 00:30 does not exist there: clocks are put forward"),
        ("2018-02-17T23:30", "America/Sao_Paulo", "2018-02-17 23:30 comes twice, as UTC-2 or UTC-3: give its offset"),
        ("2026-03-29T03:00", "Europe/Berlin", "2026-03-29T01:00"),
        ("2026-03-29T01:59", "Europe/Berlin", "2026-03-29T00:59"),
        ("2026-10-25T03:00", "Europe/Berlin", "2026-10-25T02:00"),
        ("2026-07-01T12:00", "Asia/Kolkata", "2026-07-01T06:30"),
        ("2026-07-01T12:00", "America/Sao_Paulo", "2026-07-01T15:00"),
    ],
)
def test_moments_of_the_wall_clock(local, zone, wanted):
    if " " in wanted:
        with pytest.raises(NoSuchTime) as fault:
            moment_of(datetime.fromisoformat(local), named_zone(zone))
        assert str(fault.value).startswith(wanted)
    else:
        assert moment_of(datetime.fromisoformat(local), named_zone(zone)) == at(wanted)


def test_texts_name_the_hour_that_comes_twice():
    zone, now = named_zone("Europe/Berlin"), at("2026-10-25T00:00")
    first, second = (at("2026-10-25T02:30", "Europe/Berlin", fold) for fold in (0, 1))
    assert (clock(first, now, zone), clock(second, now, zone)) == ("02:30 CEST", "02:30 CET")
    assert clock(at("2026-07-01T06:30"), at("2026-07-01T06:00"), named_zone("Asia/Kolkata")) == "12:00 IST"
    assert clock(at("2026-10-26T01:00"), at("2026-10-25T00:00"), zone) == "02:00 CET in 1 day"


@pytest.mark.parametrize(
    ("settings", "pointer", "text"),
    [
        ({"time_zone": "Europe/Berlim"}, "/time_zone", "did you mean Europe/Berlin?"),
        ({"time_zone": 3600}, "/time_zone", "a text"),
        ({"time_zone": "../etc/passwd"}, "/time_zone", "not found"),
        ({"time_zone": "Europe/Berlin", "utc_offset": 3600}, "/utc_offset", "time_zone says it already"),
    ],
)
def test_zones_that_cannot_be_are_refused(settings, pointer, text):
    with pytest.raises(PolicyError) as fault:
        policies.get("priority").check(settings)
    assert fault.value.pointer == pointer
    assert text in str(fault.value)


def test_utc_offset_stays_what_it_was():
    calendar = read_calendar(week="Mon-Sun=8:00-18:00=off")
    plain = calendar.closed(at("2026-03-28"), most=4)
    moved = calendar.closed(at("2026-03-28"), most=4, zone=FixedOffset(-3600))
    assert moved == [(begin + 3600, end + 3600) for begin, end in plain]
    assert calendar.closed(at("2026-03-28"), most=4, zone=UTC_ZONE) == plain


@pytest.mark.parametrize(
    ("zone", "now", "opens"),
    [
        ("Europe/Berlin", "2026-03-28T16:00", "2026-03-29T18:00"),  # a day of 23 hours
        ("Europe/Berlin", "2026-10-24T16:00", "2026-10-25T18:00"),  # one of 25
        ("America/Sao_Paulo", "2018-11-03T16:00", "2018-11-04T18:00"),
        ("America/Sao_Paulo", "2018-02-17T16:00", "2018-02-18T18:00"),
        ("Asia/Kolkata", "2026-03-28T16:00", "2026-03-29T18:00"),
    ],
)
def test_a_promise_across_a_change_is_the_hour_at_which_the_queue_opens(zone, now, opens):
    begin, end = datetime.fromisoformat(now), datetime.fromisoformat(opens)
    year = f"{begin:%d.%m.%Y}=16:00-24:00=off {end:%d.%m.%Y}=0:00-18:00=off"
    settings = {"queues": {"q": {"calendar": {"year": year}}}, "time_zone": zone}
    moment, requirement = at(now, zone), at(opens, zone)
    made = plan(at_time(moment, settings))
    assert [(order.job, order.at) for order in made.orders] == [("j", requirement)]
    assert f" start 18:00 {named_zone(zone).name(requirement)} in 1 day" in waits(made)["j"].text
    # at that hour it starts, and not a minute before
    for step, starts in ((-MINUTE, []), (0, ["j"])):
        orders = plan(at_time(requirement + step, settings)).orders
        assert [order.task for order in orders if isinstance(order, Start)] == starts


def at_time(now, settings):
    return replace(view([asking("j", walltime=3600.0)], {"n0": {"core": 1}}, **settings), now=now)
