"""Handing runs over: each once, and equal tasks of a job together, as one array of Slurm's.

mark   ends each job's comment: rainbow=JOB/TASK/ATTEMPT/KEY, of an array rainbow=JOB/*/ATTEMPT/KEY; the key is
       written down before sbatch starts, with which run is which element, so that a job whose number we never heard
       is found, and none is handed over twice
array  tasks of one job that ask for the same and come within a moment are one call of sbatch: 1,000 of them take it
       no longer than one
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

from rainbow.agent.executors.run import Ended, Result, Run, shares, workers_of
from rainbow.agent.executors.shared_folder import SharedFolder
from rainbow.agent.executors.slurm.accounts import Identity
from rainbow.agent.executors.slurm.call import (
    INDEX,
    CallPlace,
    Element,
    call_of,
    errors_of,
    output_of,
    placed,
    script_of,
)
from rainbow.agent.executors.slurm.commands import Commands, DirectoryError, SilentError, words_of
from rainbow.agent.executors.slurm.job import Active, mark_of, requestor_of
from rainbow.agent.executors.slurm.site import Part, Slurm, number_of
from rainbow.jobspec.sbatch.request import Carried, NotCarriedError, carried, one_line

PARALLEL_CALLS = 8  # calls of sbatch
MOMENT = 0.1  # seconds after a task of a job in which the next one of an array comes
MOST_ELEMENTS = 1_000  # elements of an array; Slurm's own limit is 1,001 where a site has set no other


class Handover:
    """Calls sbatch for runs, in the background. `pinned`: to the nodes that a policy of ours chose."""

    site = Slurm.name

    def __init__(
        self,
        commands: Commands,
        desk: SharedFolder,
        place: CallPlace,
        identity: Identity,
        ask_as: Callable[..., str],
    ) -> None:
        self.pool = ThreadPoolExecutor(PARALLEL_CALLS, "sbatch")
        self.pinned, self.part = False, Part()
        self._commands, self._desk, self._place, self._identity = commands, desk, place, identity
        self._ask_as = ask_as
        self._lock = Lock()
        self._alike: dict[Any, list[Active]] = {}
        self._hosts: list[str] | None = None

    def refusal_of(self, said: str | None) -> str:
        """Return why a call was refused, in one line."""
        return words_of(said)

    def start(self, active: Active) -> None:
        """Hand a run over, with those like it that come within a moment."""
        active.submitting = True
        alike = self._of_an_array(active.run)
        if alike is None:
            self.pool.submit(self._submit, [active])
            return
        with self._lock:
            self._alike.setdefault(alike, []).append(active)
            is_first = len(self._alike[alike]) == 1
        if is_first:
            self.pool.submit(self._collect, alike)

    def again(self, active: Active) -> None:
        """Hand a run over whose job is not there, by the mark that it has."""
        active.submitting = True
        self.pool.submit(self._submit, [active])

    def _of_an_array(self, run: Run) -> Any:
        """Return what runs have in common that could be one array; None: this one is handed over alone."""
        request = run.request or {}
        if run.placement or request.get("tasks", 1) < 2 or request.get("gang", 1) != 1 or run.processes > 1:
            return None
        script = script_of(run)
        if self._identity.is_mapped and not script:
            return None  # the command is the script
        files = (output_of(run, self._place), errors_of(run))
        if not script and any("%j" in path for path in files if run.cwd):
            return None  # the number of an element is not told
        own = sorted(run.environment.items()) if script else ()
        rest = [(name, value) for name, value in own if name != INDEX and not name.startswith("SLURM_ARRAY_")]
        return run.job, run.id[1], run.duration, run.cwd, repr(request), repr(rest), INDEX in run.environment

    def _collect(self, alike: Any) -> None:
        before = 0
        while before < len(self._alike[alike]) < MOST_ELEMENTS:  # more may be on their way
            before = len(self._alike[alike])
            time.sleep(MOMENT)
        with self._lock:
            result = self._alike.pop(alike)
        for k in range(0, len(result), MOST_ELEMENTS):
            self._submit(result[k : k + MOST_ELEMENTS])

    def _submit(self, batch: Sequence[Active]) -> None:
        """Hand over a run, or several as an array."""
        try:
            self._hand_over(batch)
        except (NotCarriedError, DirectoryError) as fault:
            cause = "directory" if isinstance(fault, DirectoryError) else ""
            self._refuse(batch, f"not handed over to {self.site}: {fault}", cause)
        except SilentError:
            for active in batch:
                active.sought = []  # the watcher looks for its mark
        except subprocess.CalledProcessError as fault:
            if self._is_there(batch):
                return
            if len(batch) > 1 and "array" in (fault.output or ""):  # this site takes smaller ones, or none
                for active in batch:
                    active.mark, active.element = "", None
                    self._submit([active])
            else:
                self._refuse(batch, f"{self.site} does not take it: {self.refusal_of(fault.output)}")
        except Exception as fault:  # whatever it is, it is the end of these runs
            self._refuse(batch, f"cannot be handed over: {type(fault).__name__}: {fault}")
        finally:
            for active in batch:
                active.submitting = False

    def _hand_over(self, batch: Sequence[Active]) -> None:
        first = batch[0]
        run, requestor = first.run, requestor_of(first.run)
        account, request = self._identity.account(requestor), self.carried(run)
        for active in batch:
            active.account, active.shares = account, self.shares(active.run, request)
        if not first.mark:
            self._mark(batch)
        answer = requestor and self._identity.how == "service"
        mark = f"for={one_line(requestor)} {first.mark}" if answer else first.mark
        ids = ",".join(active.element.number for active in batch if active.element)
        place = replace(self._place, account=account, bounds=self._identity.bounds())
        call = call_of(run, request, mark, first.shares, place, first.element, ids)
        for active in batch:
            active.asked_at = time.time()
        said = self._commands.sbatch(call, account, requestor)
        if not (number := number_of(said)):
            for active in batch:
                active.unnumbered = f"sbatch has printed no number of a job, but {one_line(said)!r:.100}"
            raise SilentError(first.unnumbered)
        for active in batch:
            active.native, active.numbered_at = active.named(number), time.time()
            self._desk.name(active.run.id, active.native)
        if call.release:
            self._ask_as(first, "scontrol", "release", number)

    def test(self, run: Run) -> str:
        """Let sbatch only try a run; return what it says. NotCarriedError, CalledProcessError: why it is refused."""
        requestor = requestor_of(run)
        account, request = self._identity.account(requestor), self.carried(run)
        place = replace(self._place, account=account, bounds=self._identity.bounds())
        call = call_of(run, request, "", self.shares(run, request), place)
        return self._commands.test(call, account, requestor)

    def _is_there(self, batch: Sequence[Active]) -> bool:
        """Return whether a call has left a job, although it failed; the watcher finds it by its mark."""
        with contextlib.suppress(subprocess.CalledProcessError):
            request = Slurm().jobs([batch[0].account.name] if batch[0].account else [])
            rows, _ = request.read(self._commands.ask(*request.command))
            marks = {active.mark for active in batch if active.mark}
            return any(row.mark in marks for row in rows.values())
        return False

    def _mark(self, batch: Sequence[Active]) -> None:
        """Write down, before Slurm is given them, how the jobs of these runs are distinguished from all others."""
        key, first = secrets.token_hex(4), batch[0]
        if len(batch) == 1:
            first.mark = mark_of(first.run, key)
            self._desk.note(first.run.id, key)
            return
        for place, active in enumerate(batch):
            active.element = Element(key, active.run.environment.get(INDEX) or str(place))
            active.mark = mark_of(active.run, key, of_array=True)
        self._desk.enlist(key, {active.element.number: active.run.id for active in batch if active.element})

    def _refuse(self, batch: Sequence[Active], detail: str, cause: str = "") -> None:
        for active in batch:
            if self._desk.take_back(active.run.id):
                active.end = Ended(active.run.id, Result.FAILED, detail=detail, cause=cause)

    # ── what a run asks for ──

    def carried(self, run: Run) -> Carried:
        """Return what Slurm is asked for; NotCarriedError names what it cannot be told."""
        if run.request and not run.placement:
            return carried(run.request, run.duration, self._all_hosts(run.request))
        first, *more = placed(run, pinned=self.pinned).components
        return Carried(({**first, **self.part.options}, *more), max(1, len(workers_of(run))))

    def _all_hosts(self, request: Mapping[str, object]) -> Sequence[str]:
        """Return the names of all nodes, where a request chooses among some of them."""
        if "hostlist" not in str(request.get("constraint")):
            return ()
        if self._hosts is None:
            query = Slurm().nodes()
            self._hosts = query.read(self._commands.ask(*query.command))
        return self._hosts

    def shares(self, run: Run, request: Carried) -> int:
        """Return how many times our own program starts: once on each node, or for each process of its own slot."""
        if run.request and not run.placement:
            return max(1, min(run.processes, request.tasks))
        return len(shares(run)) if workers_of(run) else 1

    def adopted(self, active: Active) -> None:
        """Find out of a run of an agent that was killed whose it is, and how many shares it has."""
        with contextlib.suppress(NotCarriedError):
            active.account = self._identity.account(requestor_of(active.run))
            active.shares = self.shares(active.run, self.carried(active.run))
