"""Batch scripts: read as sbatch reads them, and the same asked for after script -> jobspec -> script."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rainbow.cli.input.job_options import caller
from rainbow.cli.input.job_options import moment as local_time
from rainbow.errors import JobspecError
from rainbow.jobspec import parse_jobspec
from rainbow.jobspec.batch import index_at, loader, read_array
from rainbow.jobspec.sbatch import GivenOptions, Surroundings, call_of, jobspec_of_call, read_call
from rainbow.jobspec.sbatch.options import OPTIONS, WHY_NOT, Place, Takes
from rainbow.jobspec.times import moment
from tests.conftest import examples

ROOT = Path(__file__).parents[3]
NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
NOBODY: Any = None
CALLER = Surroundings(NOW, "/home/ann", {"HOME": "/home/ann", "RAINBOW_TOKEN": "rbt_secret", "A": "1"})
CASES = yaml.load((ROOT / "tests" / "cases" / "sbatch.yaml").read_text(), yaml.CSafeLoader)


def script(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *lines, ""])


def asked(text: str, *words: str, **variables: str) -> dict[str, Any]:
    document, _ = jobspec_of_call(read_call(text, words, variables), CALLER)
    return document


# ── reading ──


@pytest.mark.parametrize("case", CASES["reading"], ids=lambda case: case["case"])
def test_scripts_are_read_as_sbatch_reads_them(case: dict[str, Any]) -> None:
    text = case["script"]
    if "error" in case:
        with pytest.raises(JobspecError, match=case["error"]):
            read_call(text, case.get("words", ()), case.get("variables"))
        return
    options = read_call(text, case.get("words", ()), case.get("variables"))
    assert [dict(one) for one in options.components] == case["components"]
    assert [note for note in options.notes if not any(part in note for part in case.get("notes", []))] == []
    assert len(options.notes) >= len(case.get("notes", []))


def test_every_option_of_the_contract_has_its_place() -> None:
    """A site carries it, a jobspec has it, or it is refused with words: no option is dropped silently."""
    for name, option in OPTIONS.items():
        value = CASES["values"].get(name, "3")
        line = f"#SBATCH --{name}" + ("" if option.takes is Takes.NOTHING else f"={value}")
        if option.place is Place.REFUSED:
            with pytest.raises(JobspecError, match="cannot be carried"):
                read_call(script(line))
            continue
        if option.place is Place.CALL:
            continue
        needed = {"dependency": "-J hello", "gpus-per-task": "-n 2"}
        before = [f"#SBATCH {needed[name]}"] if name in needed else []
        text = script(*before, line, "hostname")
        document, notes = jobspec_of_call(read_call(text), CALLER)
        document["attributes"]["system"].pop("script")
        plain = asked(script(*before, "hostname"))
        plain["attributes"]["system"].pop("script")
        assert document != plain or any(f"--{name}" in note for note in notes) or name in CASES["defaults"], name


def test_refused_options_are_refused_in_words() -> None:
    for name, why in WHY_NOT.items():
        value = {"reboot": ""}.get(name, "=1")
        with pytest.raises(JobspecError) as caught:
            read_call(script(f"#SBATCH --{name}{value}"))
        assert why in caught.value.message
        assert caught.value.line == 2


def test_a_script_with_dos_line_ends_is_refused_as_sbatch_refuses_it() -> None:
    with pytest.raises(JobspecError, match="tr -d"):
        read_call("#!/bin/bash\r\n#SBATCH -n 4\r\nhostname\r\n")


# ── to a jobspec ──


@pytest.mark.parametrize("case", CASES["documents"], ids=lambda case: case["case"])
def test_options_become_a_jobspec(case: dict[str, Any]) -> None:
    result, notes = jobspec_of_call(read_call(script("hostname"), case["words"]), CALLER)
    if "resources" in case:
        assert result["resources"]["job"] == case["resources"]
        assert result["resources"].get("gpus") == case.get("together")
    system = result["attributes"]["system"]
    assert {key: system.get(key) for key in case.get("system", {})} == case.get("system", {})
    assert result["attributes"].get("site", {}).get("slurm", {}) == case.get("slurm", {})
    assert len(notes) == case.get("notes", 0), notes
    assert parse_jobspec(result).script == script("hostname")


@pytest.mark.parametrize(("words", "told"), [case.values() for case in CASES["wrong"]])
def test_what_cannot_be_carried_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(JobspecError, match=told):
        jobspec_of_call(read_call(script(), words), CALLER)


def test_no_secret_of_the_caller_is_sent() -> None:
    assert "environment" not in asked(script())["attributes"]["system"]
    sent = asked(script(), "--export=ALL,B=2")["attributes"]["system"]["environment"]
    assert sent == {"HOME": "/home/ann", "A": "1", "B": "2"}
    assert asked(script(), "--export=A,NOPE")["attributes"]["system"]["environment"] == {"A": "1"}


# ── there and back ──

NUMBER = st.integers(1, 64).map(str)
NAME = st.text("abcdefgh0123", min_size=1, max_size=8).map(lambda text: f"n{text}")
SIZE = st.builds("{}{}".format, st.integers(1, 5_000), st.sampled_from(["", "M", "G"]))
TIME = st.one_of(NUMBER, st.builds("{:02}:{:02}".format, st.integers(0, 99), st.integers(0, 59)), st.just("1-12:30"))
VALUES: dict[str, st.SearchStrategy[str]] = {
    "nodes": st.one_of(NUMBER, st.builds(lambda a, b: f"{a}-{a + b}", st.integers(1, 9), st.integers(0, 9))),
    **dict.fromkeys(("ntasks", "ntasks-per-node", "cpus-per-task"), NUMBER),
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task"), st.one_of(NUMBER, NUMBER.map("a100:{}".format))),
    "gres": st.one_of(NUMBER.map("gpu:{}".format), NUMBER.map("gpu:a100:{},nvme:1".format)),
    **dict.fromkeys(("mem", "mem-per-cpu"), SIZE),
    "time": TIME,
    "array": st.builds("{}-{}%{}".format, st.integers(0, 3), st.integers(4, 9), NUMBER),
    "exclusive": st.sampled_from(["", "user"]),
    "constraint": st.sampled_from(["a", "a&b", "a|b", "[a|b]*2"]),
    "exclude": NAME,
    "nodelist": NAME,
    "dependency": st.builds("afterok:{}:{},afterany:{}".format, NAME, NAME, NAME),
    "begin": st.just("2030-02-01T12:30:00"),
    "deadline": st.just("2030-03-01T12:30:00"),
    "hold": st.just(""),
    "requeue": st.just(""),
    "nice": st.integers(1, 1000).map(str),
    **dict.fromkeys(("job-name", "comment", "partition", "qos", "account", "licenses"), NAME),
    **dict.fromkeys(("chdir", "output", "error", "input"), NAME.map("/home/{}".format)),
    "mail-type": st.just("END"),
    "signal": st.just("B:USR1@60"),
    "contiguous": st.just(""),
    "tmp": SIZE,
    "export": st.sampled_from(["NONE", "NIL"]),
}
OPTION = st.sampled_from(sorted(VALUES)).flatmap(lambda name: st.tuples(st.just(name), VALUES[name]))
COUNTED = {"ntasks", "gpus", "ntasks-per-node"}  # one of them goes with --gpus-per-task


def is_taken(results: dict[str, str]) -> bool:
    """Return whether sbatch takes these options together."""
    counted = "gpus-per-task" not in results or COUNTED & results.keys() or results.get("nodes", "-").isdecimal()
    return not {"mem", "mem-per-cpu"} <= results.keys() and bool(counted)


CALLS = st.lists(OPTION, max_size=8).map(dict).filter(is_taken)


def there(options: dict[str, str]) -> dict[str, Any]:
    """Return the jobspec of a script with these options, without the script's own lines."""
    document, _ = jobspec_of_call(
        read_call("#!/bin/sh\n" + GivenOptions((options,)).directives() + "hostname\n"), CALLER
    )
    document["attributes"]["system"].pop("script")
    return document


@settings(max_examples=examples(150), deadline=None)
@given(CALLS)
def test_script_to_jobspec_to_script_keeps_what_is_asked(options: dict[str, str]) -> None:
    """The specification: each option is in the jobspec as written, or the jobspec of the way back is the same."""
    document = there(options)
    again = call_of(parse_jobspec({**document, "attributes": with_script(document)}))
    assert there(dict(again.options)) == document
    site = document["attributes"].get("site", {}).get("slurm", {})
    assert {name: again.options[name] for name in site} == site
    for name, value in options.items():
        if OPTIONS[name].place is Place.SITE:
            assert site[name] == value
        elif name in ("job-name", "comment", "array", "exclude", "dependency", "begin", "chdir", "output", "hold"):
            assert again.options[name] == value


def with_script(document: dict[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = document["attributes"]
    return {**attributes, "system": {**attributes["system"], "script": "#!/bin/sh\nhostname\n"}}


@settings(max_examples=60, deadline=None)
@given(CALLS, CALLS)
def test_components_of_a_hetjob_come_back(first: dict[str, str], second: dict[str, str]) -> None:
    own = ("nodes", "ntasks", "cpus-per-task", "partition")
    one, two = ({name: value for name, value in each.items() if name in own} for each in (first, second))
    text = "#!/bin/sh\n" + GivenOptions((one, two)).directives() + "hostname\n"
    document, _ = jobspec_of_call(read_call(text), CALLER)
    again = call_of(parse_jobspec(document))
    back, _ = jobspec_of_call(read_call("#!/bin/sh\n" + again.directives() + "hostname\n"), CALLER)
    for each in (document, back):
        each["attributes"]["system"].pop("script")
        each.pop("name", None)
    assert back == document


@pytest.mark.parametrize("case", CASES["calls"], ids=lambda case: case["case"])
def test_jobspecs_become_calls(case: dict[str, Any]) -> None:
    """The rows of the table of the contract, from every kind of request to sbatch."""
    document = {"tasks": [{"command": ["x"], "resources": "work"}], **case["jobspec"]}
    if "refused" in case:
        with pytest.raises(JobspecError, match=case["refused"]):
            call_of(parse_jobspec(document))
        return
    result = call_of(parse_jobspec(document))
    assert result.argv() == case["argv"]


# ── arrays, scripts, moments ──


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 20), st.integers(1, 5)), min_size=1, max_size=4))
def test_arrays_name_the_ids_that_are_written(parts: list[tuple[int, int, int]]) -> None:
    requirements = sorted({one for low, more, step in parts for one in range(low, low + more + 1, step)})
    array = read_array(",".join(f"{low}-{low + more}:{step}" for low, more, step in parts) + "%4", "")
    assert [index_at(array, k) for k in range(len(array.ids))] == list(array.ids) == requirements
    assert array.at_once == 4


@pytest.mark.parametrize("text", ["", "1-", "a", "3-1", "1-9%0", "1-9:0", "0-9999999", True, None, [], "1-9%"])
def test_arrays_of_another_form_are_refused(text: Any) -> None:
    with pytest.raises(JobspecError):
        read_array(text, "/array")


def test_a_long_script_is_handed_over_in_pieces_that_the_kernel_takes() -> None:
    text = script("echo é" * 40_000)
    words = loader(text, ["job.sh", "a b"])
    assert max(len(word.encode()) for word in words) < 128 * 1024
    assert words[-1] == "a b"


def test_local_moments_mind_daylight_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        winter = datetime(2027, 3, 27, 12)
        requirements = {
            "2027-07-01T08:00": datetime(2027, 7, 1, 6, tzinfo=UTC),
            "tomorrow 08:00": datetime(2027, 3, 28, 6, tzinfo=UTC),  # the clocks have gone forward
            "2027-03-28T02:30": datetime(2027, 3, 28, 1, 30, tzinfo=UTC),  # which no clock shows
            "11:00": datetime(2027, 3, 28, 9, tzinfo=UTC),
            "now+1day": datetime(2027, 3, 28, 11, tzinfo=UTC),
        }
        assert {text: moment(text, winter) for text in requirements} == {
            text: at.timestamp() for text, at in requirements.items()
        }
        assert caller().now.tzinfo is None
        options = {
            text: local_time(NOBODY, NOBODY, text)
            for text in ("2027-07-01T08:00", "2027-07-01T08:00:60Z", "2027-03-27", "2027-03-28T02:30")
        }
        assert [*options.values()] == [
            "2027-07-01T08:00:00+02:00",
            "2027-07-01T08:00:60Z",
            "2027-03-27T00:00:00+01:00",
            "2027-03-28T03:30:00+02:00",  # as --begin
        ]
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["never", "25:00", "2030-13-01", "now+1fortnight", "", "12:00 xm", "02/30"])
def test_moments_of_another_form_are_none(text: str) -> None:
    assert moment(text, NOW) is None
