"""The executor: hands every run to Grid Engine once, and watches all of them as the executor `slurm` does.

Grid Engine alone says how a run goes: commands, too, are scripts of its own, under any identity.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rainbow.agent.executors.gridengine.call import PE, call_of, spread_of, true_code, words_for
from rainbow.agent.executors.gridengine.site import STUCK, GridEngine, number_of, refusal_of
from rainbow.agent.executors.interface import Final, Site
from rainbow.agent.executors.run import Ended, Result, Run
from rainbow.agent.executors.slurm.accounts import Identity
from rainbow.agent.executors.slurm.call import INDEX, script_of
from rainbow.agent.executors.slurm.commands import SilentError
from rainbow.agent.executors.slurm.executor import SlurmExecutor, helper_words
from rainbow.agent.executors.slurm.handover import Handover
from rainbow.agent.executors.slurm.job import Active, requestor_of
from rainbow.agent.executors.slurm.site import Part
from rainbow.jobspec.sbatch.request import Carried, one_line

LONGEST_CONTEXT = 100  # characters of a requestor's name


class GridHandover(Handover):
    """Calls qsub for runs; scripts of one array that are its elements a to b by c are one call."""

    site = GridEngine.name
    pe = PE

    def refusal_of(self, said: str | None) -> str:
        """Return why a call was refused, in one line."""
        return refusal_of(said or "")

    def _of_an_array(self, run: Run) -> Any:
        return super()._of_an_array(run) if script_of(run) and INDEX in run.environment else None

    def _hand_over(self, batch: Sequence[Active]) -> None:
        numbers = [int(one.run.environment.get(INDEX) or 0) for one in batch]
        spread = spread_of(numbers) if INDEX in batch[0].run.environment else ""
        if len(batch) > 1 and not spread:
            for one in batch:
                one.mark, one.element = "", None
                self._submit([one])
            return
        first = batch[0]
        run, requestor = first.run, requestor_of(first.run)
        account = self._identity.account(requestor)
        for one in batch:
            one.account = account
        if not first.mark:
            self._mark(batch)
        place = replace(self._place, account=account, bounds=self._identity.bounds())
        call, _ = call_of(run, first.mark, place, first.element, spread, self.pe)
        answer = requestor and self._identity.how == "service"
        context = ["-ac", f"for={one_line(requestor)[:LONGEST_CONTEXT]}"] if answer else []
        for one in batch:
            one.asked_at = time.time()
        said = self._commands.submit(("qsub", "-terse", *context, *call.words), call, account, requestor)
        if not (number := number_of(said)):
            for one in batch:
                one.unnumbered = f"qsub has printed no number of a job, but {one_line(said)!r:.100}"
            raise SilentError(first.unnumbered)
        for one, index in zip(batch, numbers, strict=True):
            one.native, one.numbered_at = (f"{number}_{index}" if spread else number), time.time()
            self._desk.name(one.run.id, one.native)

    def _is_there(self, batch: Sequence[Active]) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            request = GridEngine().jobs(())
            rows, _ = request.read("\f".join(self._commands.ask(*one) for one in (request.command, *request.also)))
            marks = {active.mark for active in batch if active.mark}
            return any(row.mark in marks for row in rows.values())
        return False

    def test(self, run: Run) -> str:
        """Let qsub only verify a run; NotCarriedError, CalledProcessError: why it is refused."""
        requestor = requestor_of(run)
        account = self._identity.account(requestor)
        place = replace(self._place, account=account, bounds=self._identity.bounds())
        call, _ = call_of(run, "rainbow", place, None, "", self.pe)
        words = [word for at, word in enumerate(call.words) if "-w" not in (word, call.words[at - 1])]
        plain = replace(call, folder="", environment=None)
        return self._commands.submit(("qsub", "-w", "v", *words), plain, account, requestor)

    def carried(self, run: Run) -> Carried:
        """Return what is asked for; NotCarriedError names what Grid Engine cannot be told."""
        _, slots = words_for(run, self.pe)
        return Carried(({"ntasks": str(slots)},), 1)

    def shares(self, run: Run, request: Carried) -> int:
        """Return 1: what starts on several nodes, the job starts itself."""
        return 1


class GridEngineExecutor(SlurmExecutor):
    """Runs tasks as jobs of Grid Engine, whole requests."""

    of_site = True

    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path | None,
        identity: Identity | None = None,
        helper: Sequence[str] = (),
        pe: str = PE,
    ) -> None:
        self._pe = pe
        super().__init__("shared", environment, folder, identity, helper)

    def _opened_site(self, part: Part) -> tuple[Site, Handover]:
        del part
        handover = GridHandover(self._commands, self._desk, self._place, self._identity, self._ask_as)
        handover.pe = self._pe
        return GridEngine(), handover

    def _end_as_said(self, active: Active, final: Final) -> Ended:
        if final.state == STUCK:  # it stays in the queue until somebody deletes it
            self._handover.pool.submit(self._cancel, active)
        end = super()._end_as_said(active, final)
        if end.result is not Result.EXITED:
            return end
        return replace(end, exit_code=true_code(end.exit_code, end.errors, end.output))


def opened(argument: str, environment: Mapping[str, str], folder: Path | None) -> GridEngineExecutor:
    """Open the executor for "PE", "PE,IDENTITY" or "PE,IDENTITY,USERS"; the helper is as of the executor slurm."""
    pe, how, users = [*argument.split(",", 2), "", ""][:3]
    identity = Identity(how or "service", Path(users) if users else None)
    helper = helper_words() if how == "helper" else []
    return GridEngineExecutor(environment, folder, identity, [*helper, users] if helper else (), pe or PE)
