"""The agent's loop: receive, accept, start, report.

One thread owns all state of the agent. It has two lines to the server (background_call.py): `ears` waits for work;
`voice` sends what changes the server's records, one message after the other: accept, then events, then heartbeat.
While the server is away tasks continue, and their events are sent in order when it is back. The journal holds what
must outlive the agent: restarted on the same folder, it is the same agent and resumes where it was killed.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rainbow.agent.background_call import BackgroundCall
from rainbow.agent.executors import lease
from rainbow.agent.executors.interface import (
    Checks,
    Executor,
    Explains,
    Gives,
    Leased,
    Names,
    Sees,
    Withdraws,
    Writes,
)
from rainbow.agent.executors.run import Ended, Pending, Result, Run, RunId
from rainbow.agent.journal import Journal
from rainbow.agent.messages import (
    at_site,
    batch,
    checked,
    end,
    ended,
    happened,
    hold,
    in_words,
    placed,
    refs,
    run_id,
    run_of,
    stale_runs,
    waits,
    wrote,
)
from rainbow.client import Client, Problem, responses
from rainbow.text import some

HELD_THERE = "held at its site"
MAX_TASKS = 64  # at once
PROCESSES = 1  # of a task for each core it holds; 0: no limit

STOP, KEEP = "stop", "keep"  # what becomes of tasks when the server has not answered for a lease
OVER = "its agent had no word from the server for a lease"
POLL_TIMEOUT = 20.0  # seconds the server may let us wait for work
TICK = 0.05  # seconds between two looks at what runs
IDLE_TICK = 0.5  # and when nothing runs
FULL_BEAT = 5.0  # seconds: an agent that is full does not receive, and hears of stops by its heartbeat alone
REPEAT_PAUSE = 0.5  # seconds to let pass when the server only repeats itself
LAST_WORDS = 15.0  # seconds to end tasks and say so after being told to stop
OFFERS = 256  # in one answer: what is offered is accepted in one message
EVENTS = 256  # in one message
REPEATED = ("stop", "suspend", "resume", "withdraw", "tasks", "checks")  # what is told until it is done


class Agent:
    """Works for one cluster. `workers` are those it serves, None: all; `measure` tells their load, if given.

    Its `id` is that of its journal. An agent without one knows after a crash nothing of what ran, and has another
    id, for it must not be taken for the one that did.
    """

    def __init__(
        self,
        client: Client,
        cluster: str,
        executor: Executor,
        journal: Journal | None = None,
        *,
        max_tasks: int = MAX_TASKS,
        workers: Sequence[str] | None = None,
        wait: float = POLL_TIMEOUT,
        say: Callable[[str], None] = print,
        on_lost_server: str = STOP,
        processes_per_core: int = PROCESSES,
        clock: Callable[[], float] = lease.now,
        measure: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        self._measure = measure
        self._journal = journal or Journal()
        self.id = self._journal.id
        self._client = client
        self._cluster = cluster
        self._executor = executor
        self._max_tasks = max_tasks
        self._workers = self._workers_told = workers
        self._wait = wait
        self._say = say
        self._clock = clock

        self._wake = threading.Event()
        self._ears = BackgroundCall(self._wake, clock, self._note, self._heard)
        self._voice = BackgroundCall(self._wake, clock, self._note, self._heard)
        self._batch = EVENTS
        self._processes_per_core = processes_per_core
        self._keeps = on_lost_server == KEEP
        self._sign: float | None = None  # when the last message that was answered was sent
        self._renewed = -math.inf
        self._fenced: set[RunId] = set()  # what was stopped because the lease was over, and has not ended
        self._grace = 0.0
        self._lease = 0.0  # the first heartbeat is due at once, and its answer says how long the lease is
        self._last_beat = clock()
        self._explained: dict[RunId, Pending] = {}
        self._held: set[RunId] = set()
        self._account: Mapping[RunId, Pending] | None = None  # of what waits, as it was told last
        self._checking: set[str] = set()  # questions about jobs to come that the executor has not answered
        self._has_beaten = False
        self._stop_by: float | None = None
        self._told_to_stop = False
        self._away = False  # the server, as far as we know

    def stop(self) -> None:
        """Ask `run` to end: tasks are stopped and told as stopped. A signal handler may call it."""
        self._told_to_stop = True

    def speak_for(self, workers: Sequence[str]) -> None:
        """Say from now on that these workers are up. Another thread may call it."""
        self._workers = workers

    def run(self) -> None:
        """Work until told to stop; Problem if the server does not take us for the cluster's agent."""
        self._adopt()
        try:
            while not self._is_done():
                self._turn()
                self._wake.wait(TICK if self._executor.running() or self._checking else IDLE_TICK)
                self._wake.clear()
        finally:
            self._executor.close()

    def _adopt(self) -> None:
        """Recover after a crash: adopt runs that are still executing and report the rest as lost."""
        known = set(self._executor.running())
        for run in sorted(known - self._journal.starting):  # disowned, or told as ended
            self._executor.stop(run)
        for run in sorted(self._journal.starting):
            if run in known:
                self._say(f"task {run[0]} was found running, or ended")
            else:
                self._journal.tell(ended(Ended(run, Result.LOST, detail="lost while the agent was down")))

    def _turn(self) -> None:
        # 1. hear answers  2. stop all if the lease is over  3. see what has ended  4. say it  5. ask for more
        self._ears.hear()
        self._voice.hear()
        self._fence()
        self._tell_what_happened()
        if self._told_to_stop and self._stop_by is None:
            self._begin_to_stop()
        self._speak()
        self._listen()

    # ── the lease ───────────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, asked_at: float) -> None:
        """Note that the server has answered what was sent then: from then on, or later, it counts the lease."""
        self._sign = max(self._sign or asked_at, asked_at)

    def _keep_lease(self, answer: responses.Received | responses.Beat) -> None:
        """Let runs continue for what is left of the lease."""
        self._lease, self._grace = answer["lease"], answer.get("grace", 0.0)
        self._renew()

    def _renew(self) -> None:
        until = math.inf if self._keeps else (self._sign or 0.0) + self._lease
        if isinstance(self._executor, Leased) and (until == math.inf or until > self._renewed + self._lease / 50):
            self._executor.renew(until, self._grace / 2)
            self._renewed = until

    def _is_fenced(self) -> bool:
        """Return whether the server may give our tasks to others soon: it has not answered for a lease."""
        if self._keeps or self._sign is None or not self._lease:
            return False
        return self._clock() >= self._sign + self._lease

    def _fence(self) -> None:
        """Stop everything when the lease is over: what the server gives to others must not run here."""
        if not self._is_fenced():
            return
        fresh = set(self._executor.running()) - self._fenced
        if fresh:
            self._say(
                f"no word from the server for {self._lease:g} s: stopping {some(len(fresh), 'task')}, which others "
                "may get"
            )
        for run in fresh:
            self._executor.stop(run)
        self._fenced |= fresh

    # ── stopping ────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_to_stop(self) -> None:
        self._stop_by = self._clock() + LAST_WORDS
        running = self._executor.running()
        self._say(f"shutting down: stopping {some(len(running), 'task')}")
        for run in running:
            self._executor.stop(run)

    def _is_done(self) -> bool:
        if self._stop_by is None:
            return False
        if self._clock() >= self._stop_by:
            return True
        remaining = self._executor.running() or self._journal.has_news or self._journal.offers
        return not remaining and (self._has_signed_off or self._away or self._sign is None)

    @property
    def _has_signed_off(self) -> bool:
        """Return whether the last heartbeat has said that no worker is up: what is offered goes back at once."""
        return self._workers_told is not None and not self._workers_told

    def _note(self, fault: BaseException | None) -> None:
        if fault is not None and not self._away:
            self._say(f"server unreachable: {fault}; tasks keep running, reports are queued")
        elif fault is None and self._away:
            self._say("reconnected to the server")
        self._away = fault is not None

    # ── ears ────────────────────────────────────────────────────────────────────────────────────────────────

    def _listen(self) -> None:
        room = self._max_tasks - len(self._executor.running())
        # what is offered stays offered until it is accepted: asking before would bring it again
        if self._told_to_stop or self._journal.offers or room <= 0 or not self._ears.free:
            return
        if self._workers is not None and not self._has_beaten:  # it would be offered what is for other workers
            return
        ask = partial(self._client.receive, self._cluster, self.id, max=min(room, OFFERS), wait=self._wait)
        self._ears.call(ask, self._received, self._not_received)

    def _received(self, answer: responses.Received) -> None:
        self._keep_lease(answer)
        self._obey(answer)
        if self._has_beaten and self._measure is None and not self._executor.running():
            self._last_beat = self._clock()  # to ask for work is a sign of life, and there is nothing else to say
        has_asked = self._ask_site(answer.get("checks", ()))
        fresh = [offer for offer in answer["tasks"] if run_id(offer) not in self._journal.starting]
        if not self._told_to_stop:
            self._journal.keep(fresh)
        if not (fresh or has_asked) and any(answer.get(key) for key in REPEATED):
            self._ears.rest(REPEAT_PAUSE)

    def _ask_site(self, questions: Sequence[responses.Offer]) -> bool:
        """Begin to ask the site whether it would take jobs to come; return whether one is new."""
        fresh = [one for one in questions if one["id"] not in self._checking]
        if not isinstance(self._executor, Checks):
            return False
        for one in fresh:
            self._checking.add(one["id"])
            self._executor.check(one["id"], run_of(one))
        return bool(fresh)

    def _not_received(self, problem: Problem) -> None:
        self._say(f"server refused to hand out tasks: {problem}")
        self._ears.rest(FULL_BEAT)

    def _obey(self, answer: responses.Received | responses.Beat) -> None:
        running = set(self._executor.running())
        answers = {(event["task"], event["attempt"]) for event in self._journal.outbox}
        for one in answer["stop"]:
            run = run_id(one)
            if run in running:
                end(self._executor, run, one)
            elif run not in answers:  # never started here: its space must not stay booked
                self._journal.tell(ended(Ended(run, Result.STOPPED, detail="it was not running")))
        for run in map(run_id, answer.get("withdraw", ())):
            if run in running and run not in answers and isinstance(self._executor, Withdraws):
                self._executor.withdraw(run)
        for verb, refs_ in (("suspend", answer.get("suspend", ())), ("resume", answer.get("resume", ()))):
            for run in map(run_id, refs_):
                if run in running and run not in answers:
                    self._journal.tell(hold(self._executor, run, verb))

    # ── voice ───────────────────────────────────────────────────────────────────────────────────────────────

    def _speak(self) -> None:
        if not self._voice.free:
            return
        # what starts before the lease is known would have none: offers of before a restart wait for the first beat
        if self._journal.offers and (self._lease or self._told_to_stop):
            self._accept(list(self._journal.offers))
        elif self._journal.has_news:
            self._report(batch(self._journal.outbox, self._batch))
        elif self._stop_by is not None:
            if not self._executor.running() and not self._has_signed_off:
                self._beat((), ())  # what is left behind is adopted, or lost with the lease: no sign-off then
        elif self._beat_is_due():
            self._beat(self._executor.running(), self._workers)

    def _accept(self, runs: list[RunId]) -> None:
        accept = partial(self._client.accept, self._cluster, self.id, refs(runs), seq=self._journal.next_number())
        self._voice.call(accept, partial(self._accepted, runs), partial(self._not_accepted, runs))

    def _accepted(self, runs: list[RunId], answer: responses.Accepted) -> None:
        for refusal in answer["refused"]:
            self._say(f"task {refusal['id']} was not assigned to this agent: {refusal['reason']}")
        for run in runs:
            offer = self._journal.offers.get(run)
            if offer and run[0] in answer["accepted"]:
                self._start(offer)
            else:
                self._journal.drop(run)

    def _not_accepted(self, runs: list[RunId], problem: Problem) -> None:
        self._say(f"server rejected an accept request: {problem}")
        for run in runs:
            self._journal.drop(run)
        self._ears.rest(FULL_BEAT)

    def _report(self, events: list[responses.Event]) -> None:
        report = partial(self._client.events, self._cluster, self.id, events, seq=self._journal.next_number())
        self._voice.call(report, partial(self._reported, events), partial(self._not_reported, events))

    def _reported(self, events: list[responses.Event], answer: responses.Recorded) -> None:
        self._journal.drop_first(len(events))
        self._batch = EVENTS
        self._disown(answer["stale"], [(event["task"], event["attempt"]) for event in events])

    def _not_reported(self, events: list[responses.Event], problem: Problem) -> None:
        if len(events) > 1:
            self._batch = 1  # one of them is at fault: the others must get through
            return
        self._journal.drop_first(1)
        self._say(f"server rejected the report for task {events[0]['task']}: {problem}")

    def _beat(self, running: Sequence[RunId], workers: Sequence[str] | None) -> None:
        ours = [run for run in running if run in self._journal.starting]
        number = self._journal.next_number()
        load = self._measure() if self._measure else None
        keeps = KEEP if self._keeps else None
        beat = partial(
            self._client.heartbeat,
            self._cluster,
            self.id,
            refs(ours),
            workers,
            seq=number,
            load=load,
            on_lost_server=keeps,
            checks=isinstance(self._executor, Checks) or None,
        )
        self._voice.call(beat, partial(self._beaten, ours, workers), partial(self._not_beaten, workers))

    def _beaten(self, said: Sequence[RunId], workers: Sequence[str] | None, answer: responses.Beat) -> None:
        self._has_beaten = True
        self._keep_lease(answer)
        self._last_beat, self._workers_told = self._clock(), workers
        self._obey(answer)
        self._disown(answer["stale"], said)

    def _not_beaten(self, workers: Sequence[str] | None, problem: Problem) -> None:
        self._say(f"server rejected a heartbeat: {problem}")
        self._last_beat, self._workers_told = self._clock(), workers

    def _beat_is_due(self) -> bool:
        full = len(self._executor.running()) >= self._max_tasks
        pause = min(self._lease / 3, FULL_BEAT) if full else self._lease / 3
        return self._clock() >= self._last_beat + pause or self._workers != self._workers_told

    def _disown(self, stale: Sequence[str], said: Sequence[RunId]) -> None:
        for run in stale_runs(stale, said):
            if run in self._journal.starting:
                self._say(f"task {run[0]} was reassigned; stopping it here")
                self._journal.drop(run)
                self._executor.stop(run)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, offer: responses.Offer) -> None:
        run = run_of(offer)
        if self._told_to_stop:
            self._journal.tell(ended(Ended(run.id, Result.STOPPED, detail="agent shutting down")))
            return
        if self._is_fenced():  # the answer took longer than the lease
            self._journal.tell(ended(Ended(run.id, Result.LOST, detail=OVER)))
            return
        self._renew()
        if too_many := self._too_many(run):
            self._journal.tell(ended(Ended(run.id, Result.FAILED, detail=too_many)))
            return
        self._journal.start(run.id)
        try:
            self._executor.start(run)
        except Exception as fault:  # an executor may be anybody's; its fault is one task's end, not ours
            self._journal.tell(ended(Ended(run.id, Result.FAILED, detail=f"the executor failed: {fault}")))

    def _too_many(self, run: Run) -> str:
        """Say that a run would start more processes than its cores may have, whatever the server says."""
        if run.request and not run.placement:  # the site gives it cores, and holds it to them
            return ""
        workers = [amounts for name, amounts in run.placement.items() if name]
        cores = sum(amounts.get("core", 0) for amounts in workers)
        # what holds no core is held by its worker's, of which we know this machine's
        most = self._processes_per_core * max(1, cores or (os.cpu_count() or 1) * len(workers))
        if 0 < most < run.processes:
            return f"it starts {run.processes:,} processes, and may start {most:,} here (--processes-per-core)"
        return ""

    def _tell_what_happened(self) -> None:
        """Tell what executors have seen of runs; their ends last, of which the executor is asked first."""
        ends = self._executor.poll()
        self._tell_begun()
        self._tell_given()
        self._tell_site()
        self._tell_waits()
        self._tell_held()
        self._tell_output()
        self._tell_checked()
        for one in ends:
            if one.id in self._journal.starting:  # else disowned, or told before
                self._tell_end(one)

    def _tell_begun(self) -> None:
        for run in self._executor.begun():
            if run in self._journal.starting:
                self._journal.tell(happened(run, "started"))

    def _tell_given(self) -> None:
        """Tell where the site has put runs."""
        if isinstance(self._executor, Gives):
            for run, options in self._executor.given().items():
                if run in self._journal.starting:
                    self._journal.tell(placed(run, options))

    def _tell_site(self) -> None:
        """Tell how the site calls runs."""
        if isinstance(self._executor, Names):
            for run, job in self._executor.site_jobs().items():
                if run in self._journal.starting:
                    self._journal.tell(at_site(run, job))

    def _tell_end(self, one: Ended) -> None:
        if one.id in self._fenced:
            self._fenced.discard(one.id)
            if one.result in (Result.STOPPED, Result.LOST):  # by us: the lease was over
                one = replace(one, result=Result.LOST, detail=OVER)
        self._journal.tell(ended(one))
        self._say(f"task {one.id[0]} {in_words(one)}")

    def _tell_held(self) -> None:
        """Tell what users of the site hold in place, and what they let continue."""
        if not isinstance(self._executor, Sees):
            return
        held = {run for run in self._executor.held() if run in self._journal.starting}
        for run in held - self._held:
            self._journal.tell(happened(run, "suspended", HELD_THERE))
        for run in (self._held - held) & set(self._journal.starting):
            self._journal.tell(happened(run, "resumed"))
        self._held = held

    def _tell_output(self) -> None:
        """Tell what runs write, where their executor sees it and the server has all else: report it again."""
        if isinstance(self._executor, Writes) and not self._journal.has_news:
            for run, written in self._executor.written().items():
                if run in self._journal.starting:
                    self._journal.tell(wrote(run, written))

    def _tell_checked(self) -> None:
        """Tell what the site has said of jobs to come."""
        if isinstance(self._executor, Checks):
            for question, said in self._executor.checked().items():
                self._checking.discard(question)
                if said is not None:
                    self._journal.tell(checked(question, said))

    def _tell_waits(self) -> None:
        """Tell why runs have not begun, where their executor knows, and again when that is another reason."""
        if not isinstance(self._executor, Explains):
            return
        results = self._executor.pending()
        if results is self._account:  # thousands may wait, and this is every turn
            return
        self._account = results
        waiting = {run: why for run, why in results.items() if run in self._journal.starting}
        for run, why in waiting.items():
            if self._explained.get(run) != why:
                self._journal.tell(waits(run, why))
        self._explained = waiting
