"""Waiting for ends and events, through outages.

A server that restarts is asked again after longer and longer pauses. A server that has never answered may be a
mistyped address, and is reported at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from rainbow.client.job_verbs import JobVerbs
from rainbow.client.transport import Problem
from rainbow.errors import RainbowError, TryLater, Unavailable

if TYPE_CHECKING:
    from rainbow.client.transport import Calls


SILENCE_LIMIT = 600.0  # seconds without any answer
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
PASSING = frozenset({429, 502, 503, 504})  # of ours, and of a proxy whose server is away


class Outage:
    """One server's absences, each from the first call that failed to the first that did not.

    `until`: when the caller stops waiting, by the calls' clock; else each may last SILENCE_LIMIT seconds.
    """

    def __init__(self, calls: Calls, until: float | None = None) -> None:
        self._calls = calls
        self._until = until
        self.over()

    def over(self) -> None:
        """Note that the server has answered."""
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    def endure(self, fault: RainbowError, advice: str) -> None:
        """Pause before the next try; raise the fault if it will not pass, Unavailable with advice if it did not."""
        if not self._calls.answered or not passes(fault):
            raise fault
        now = self._calls.clock()
        self._since = now if self._since is None else self._since
        remaining = (self._since + SILENCE_LIMIT if self._until is None else self._until) - now
        if remaining <= 0:
            _give_up(fault, now - self._since, advice)
        request = getattr(fault, "retry_after", None) or 0.0
        self._calls.sleep(min(max(self._pause, request), LONGEST_PAUSE, remaining))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def passes(fault: RainbowError) -> bool:
    """Return whether a call may succeed if it is repeated later."""
    return fault.status in PASSING if isinstance(fault, Problem) else isinstance(fault, TryLater)


def _give_up(fault: RainbowError, seconds: float, advice: str) -> NoReturn:
    raise Unavailable(f"{fault}; gave up after {seconds:.0f} seconds; {advice}") from fault


ENDED = frozenset({"COMPLETED", "FAILED", "CANCELED"})
ALIVE: dict[str, Any] = {"id": None, "event": "alive", "data": {}}


class WaitVerbs(JobVerbs):
    """Verbs of Client; it has the calls."""

    def _whole(self, job: dict[str, Any]) -> dict[str, Any]:
        """Return a job with the tasks of the pages after its first."""
        if job.get("next") is None:
            return job
        tasks, following = list(job["tasks"]), job["next"]
        while following is not None:
            page = self._calls.call("GET", self._job(job["id"]), query={"after": following})
            tasks += page["tasks"]
            following = page["next"]
        return {**job, "tasks": tasks, "next": None}

    def wait(self, job_id: str, timeout: float | None = None, *, every: float = 0.5) -> dict[str, Any]:
        """Return the job once it has ended, asking `every` seconds; TryLater if `timeout` seconds pass before.

        A server that goes away meanwhile is asked again: until the time is over, or for 10 minutes without one.
        """
        job: dict[str, Any] = {}
        for job in self.follow(job_id, timeout, every=every):  # noqa: B007 - the last one is what was waited for
            pass
        return job

    def follow(self, job_id: str, timeout: float | None = None, *, every: float = 0.5) -> Iterator[dict[str, Any]]:
        """Yield the job as it is every `every` seconds, the last time when it has ended; else as `wait`.

        Of a job with very many tasks the first page is shown until it has ended.
        """
        clock = self._calls.clock
        end = None if timeout is None else clock() + timeout
        outage = Outage(self._calls, end)
        while True:
            job = self._job_in(outage, job_id)
            job_id = job["id"]  # a name is another job's once this one has ended, and so is `last`
            if job["state"] in ENDED:
                yield self._whole(job)
                return
            yield job
            if end is not None and clock() + every > end:
                raise TryLater(f"timed out after {timeout:g} seconds; job {job_id} is still {job['state']}")
            self._calls.sleep(every)

    def _job_in(self, outage: Outage, job_id: str) -> dict[str, Any]:
        advice = f"the job is unaffected; run `rainbow job wait {job_id}` to keep waiting"
        while True:
            try:
                job: dict[str, Any] = self._calls.call("GET", self._job(job_id))
            except (TryLater, Problem) as fault:
                outage.endure(fault, advice)
                continue
            outage.over()
            return job

    def stream(
        self, after: int | None = None, *, follow: bool = True, beats: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield events {"id", "event", "data"}: those to come, or all after one; `beats`: also heartbeats.

        A stream that breaks off is taken up after the last event it told.
        """
        outage = Outage(self._calls)
        query = {"after": after, "follow": None if follow else "false"}
        while True:
            fault: RainbowError = Unavailable("the stream of events has ended")
            try:
                for event in _events(self._calls.lines("/v1/events", query)):
                    outage.over()
                    query["after"] = query["after"] if event["id"] is None else event["id"]
                    if event["event"] == "end":  # revoked, or the store is away: told in full when asked again
                        break
                    if event["data"] or (beats and event["event"] == "alive"):
                        yield event
                else:
                    if not follow:
                        return
            except (TryLater, Problem) as caught:
                fault = caught
            outage.endure(fault, f"run `rainbow events --after {query['after'] or 0}` to resume")


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Read server-sent events. Comments are heartbeats; a number alone is where a stream begins."""
    answer: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            yield ALIVE
        elif line:
            key, _, value = line.partition(": ")
            answer[key] = value
        elif answer:
            number = int(answer["id"]) if "id" in answer else None
            yield {"id": number, "event": answer.get("event", ""), "data": json.loads(answer.get("data", "{}"))}
            answer = {}
