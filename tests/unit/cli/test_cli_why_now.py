"""The day of a user who waits: why not now, and what would start it, as docs/why.md begins with it."""

from __future__ import annotations

import re
import time
from pathlib import Path

from tests.support.shell import Shell, server, shell

__all__ = ["server", "shell"]  # fixtures
PAGE = Path(__file__).parents[3] / "docs" / "why.md"


def waiting_for(shell: Shell, job: str, reason: str) -> str:
    """Return the sentence of a job once it waits for a reason."""
    until = time.monotonic() + 60
    while (wait := shell.json("job", "show", job)["wait"] or {}).get("reason") != reason:
        assert time.monotonic() < until, wait
        time.sleep(0.05)
    return str(wait["text"])


def running(shell: Shell, job: str) -> None:
    until = time.monotonic() + 60
    while shell.json("job", "show", job)["state"] != "RUNNING":
        assert time.monotonic() < until
        time.sleep(0.05)


def plain(text: str) -> str:
    """Return a text without what differs from run to run: numbers, ids, times and rows of blanks."""
    text = re.sub(r"[0-9a-f]{24}|\b18[0-9a-f]{5}\b", "ID", text)
    text = re.sub(r"\d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d\d:\d\d UTC", "TIME", text)
    text = re.sub(r"\(\w+\)", "(USER)", text)
    text = re.sub(r"\d+ jobs?", "N jobs", text)
    return re.sub(r" {2,}", "  ", re.sub(r"\d+", "N", text))


def test_a_user_who_waits_reads_for_whom_the_cores_are_kept_and_what_would_start_the_job(shell: Shell) -> None:
    jobs = []
    try:
        jobs.append(shell.json("submit", "-N", "1", "--exclusive", "-t", "30m", "--", "sleep", "600")["id"])
        running(shell, jobs[0])
        jobs.append(
            shell.json("submit", "-N", "2", "--exclusive", "-t", "1h", "-J", "genome-align-48", "--", "true")["id"]
        )
        jobs.append(shell.json("submit", "-J", "cleanup", "--", "true")["id"])
        said = waiting_for(shell, jobs[2], "kept")
        assert plain(said) == (
            "N cores are free but kept for genome-align-N (USER) until TIME; a limit of N min or less starts it now"
        )
        listed = next(one for one in shell.json("jobs") if one["id"] == jobs[2])
        why = shell.json("job", "why", jobs[2])
        assert listed["wait"]["text"] == said == why["wait"]["text"] == why["now"]["text"]
        assert [change["change"] for change in why["now"]["changes"]] == ["limit"]
        assert why["now"]["free"]["core"] == 4
        assert [one["for"]["name"] for one in why["now"]["kept"]] == ["genome-align-48"]
        shown = shell("job", "why", jobs[2]).stdout.splitlines()
        page = PAGE.read_text().split("```console\n", 1)[1].split("```", 1)[0].splitlines()
        told = page[page.index("$ rainbow job why cleanup") + 1 :]
        told = told[: next((k for k, line in enumerate(told) if line.startswith("$")), len(told))]
        assert [plain(line) for line in shown[: len(told)]] == [plain(line) for line in told]
    finally:
        for job in jobs:
            shell("job", "cancel", job)
