"""Every state and reason of Slurm that can be provoked here, live, and what is told of it (contract 12.3, 12.4)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rainbow.agent import Result, Run
from rainbow.agent.executors.run import Ended
from rainbow.agent.executors.slurm.executor import SlurmExecutor
from rainbow.testing.executors import until
from tests.support.slurm import Slurm, be_lively, slurm
from tests.support.slurm_accounting import Accounted, accounted

SLOT = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}
VARIED = """
Licenses=matlab:1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
OverTimeLimit=0
SchedulerParameters=bf_interval=2,default_queue_depth=10000,batch_sched_delay=0,requeue_delay=1
PartitionName=scavenge Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=brief Nodes=ALL PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=urgent Nodes=ALL PriorityTier=20 PreemptMode=OFF State=UP
"""


class Varied(Accounted):
    """A Slurm with accounts, licences, preemption, and limits of memory."""

    def _configure(self, ports: list[int]) -> None:
        super()._configure(ports)
        with self.conf.open("a") as conf:
            conf.write(VARIED)


Steps = Iterator[Callable[[], object]]  # what is waited for between two steps: all deeds of a test take their turns
CONFINED = """
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
"""


class Confined(Slurm):
    """A Slurm that holds jobs to their memory by control groups."""

    def _configure(self, ports: list[int]) -> None:
        super()._configure(ports)
        text = self.conf.read_text().replace("proctrack/linuxproc", "proctrack/cgroup")
        text = text.replace("task/none", "task/cgroup").replace("=CR_Core\n", "=CR_Core_Memory\n")
        self.conf.write_text(text)
        (self.folder / "cgroup.conf").write_text(CONFINED)


Deed = Callable[["Site", str], Steps]


@dataclass(frozen=True)
class Case:
    """A job, what somebody does to it once it runs (or waits, if its `site` holds it), and how it must end."""

    result: Result
    code: int | None = None
    said: str = ""
    command: tuple[str, ...] = ("sleep", "600")
    script: str = ""
    site: Mapping[str, Any] = field(default_factory=dict)
    system: Mapping[str, Any] = field(default_factory=dict)
    deed: Deed | None = None
    cause: str = ""
    runs_first: bool = True


@dataclass
class Site:
    """The executor, its Slurm, and what the executor has told."""

    slurm: Slurm
    executor: SlurmExecutor
    ends: dict[str, Ended] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    shown: tuple[float, str] = (0.0, "")

    def look(self) -> bool:
        """Take in what the executor tells."""
        for end in self.executor.poll():
            assert end.id[0] not in self.ends, "told twice"
            self.ends[end.id[0]] = end
        self.begun += [task for task, _ in self.executor.begun()]
        return True

    def until(self, true: Callable[[], object], seconds: float = 60) -> None:
        try:
            until(lambda: self.look() and true(), seconds)
        except AssertionError:
            queue = self.slurm.run("squeue", "-t", "all", "-o", "%i %j %P %T %N %r")
            raise AssertionError(f"begun {self.begun}\nended {self.ends}\n{queue}") from None

    def native(self, task: str) -> str:
        return str(self.executor._active[(task, 1)].native or "")

    def start(self, task: str, case: Case) -> None:
        request = {"name": task, "resources": [SLOT], "system": dict(case.system), "gang": 1}
        request |= {"site": {"slurm": {"partition": "batch", **case.site}}, "script": case.script}
        self.executor.start(Run((task, 1), task, case.command, request=request))

    def reasons(self) -> str:
        """Return what squeue shows of each name, at most three times a second."""
        if time.monotonic() > self.shown[0] + 0.3:
            self.shown = time.monotonic(), self.slurm.run("squeue", "-h", "-o", "%j %r")
        return self.shown[1]

    def why(self, task: str) -> Any:
        result = self.executor.pending().get((task, 1))
        return result.facts.get("reason") if result else None

    def waits_again(self, task: str) -> bool:
        """Return whether it is told that the run is in the queue again."""
        why = self.executor.pending().get((task, 1))
        return bool(why and why.facts.get("requeued"))

    def together(self, deeds: Iterable[Steps], seconds: float) -> None:
        """Do all deeds, each as far as it comes: what Slurm takes seconds for, it does for all at once."""
        waiting = {deed: next(deed) for deed in deeds}

        def all_done() -> bool:
            for deed in [deed for deed, true in waiting.items() if true()]:
                if (then := next(deed, None)) is None:
                    del waiting[deed]
                else:
                    waiting[deed] = then
            return not waiting

        self.until(all_done, seconds)


def canceled(site: Site, task: str) -> Steps:
    site.slurm.run("scancel", site.native(task))
    yield from ()


def stopped(site: Site, task: str) -> Steps:
    site.executor.stop((task, 1))
    yield from ()


def requeued(*words: str) -> Deed:
    """Put a run back into the queue, where it is held, and let it go: it runs a second time and is ended there."""

    def done(site: Site, task: str) -> Steps:
        job, before, at = site.native(task), site.begun.count(task), time.monotonic()
        # one that was put back as soon as it had begun has ended FAILED there, and was not in the queue again
        yield lambda: time.monotonic() > at + 2
        site.slurm.run("scontrol", *words, job)
        yield lambda: site.waits_again(task)
        if words[0] == "requeuehold":
            yield lambda: "held state" in str(site.why(task)) or "Held" in str(site.why(task))
            site.slurm.run("scontrol", "release", job)
        site.slurm.run("scontrol", "update", f"jobid={job}", "starttime=now")
        yield lambda: site.begun.count(task) == before + 1
        site.slurm.run("scancel", job)

    return done


def suspended(site: Site, task: str) -> Steps:
    job = site.native(task)
    site.slurm.run("scontrol", "suspend", job)
    yield lambda: (task, 1) in site.executor.held()
    site.slurm.run("scontrol", "resume", job)
    yield lambda: (task, 1) not in site.executor.held()
    site.slurm.run("scancel", job)


def preempted(site: Site, task: str) -> Steps:
    """Take the whole of its node for a job of a higher tier."""
    node = site.slurm.run("squeue", "-h", "-j", site.native(task), "-o", "%N").strip()
    words = ("-p", "urgent", f"-w{node}", "--exclusive", "-t1", "-o/dev/null", "--wrap=sleep 5")
    other = site.slurm.run("sbatch", "--parsable", *words).strip()
    yield lambda: site.slurm.run("squeue", "-h", "-j", other, "-t", "R,CG,CD", "-o", "%i")


def preempted_and_again(site: Site, task: str) -> Steps:
    before = site.begun.count(task)
    yield from preempted(site, task)
    yield lambda: site.waits_again(task)
    site.slurm.run("scontrol", "update", f"jobid={site.native(task)}", "starttime=now")
    yield lambda: site.begun.count(task) == before + 1
    site.slurm.run("scancel", site.native(task))


def node_lost(site: Site, task: str) -> Steps:
    job = site.native(task)
    node = site.slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
    site.slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=a fan is broken")
    yield lambda: site.slurm.run("squeue", "-h", "-j", job, "-t", "NF", "-o", "%i")  # its node may be back by now
    site.slurm.run("scontrol", "update", f"nodename={node}", "state=resume")


E_OF = {"output": "/nowhere/at/all"}
AWAY = "#!/bin/sh\nsleep 600\n"
QUICK: dict[str, Case] = {
    "completed": Case(Result.EXITED, 0, command=("true",)),
    "failed": Case(Result.EXITED, 3, command=("sh", "-c", "exit 3")),
    "killed-by-itself": Case(Result.EXITED, 139, "killed by SIGSEGV", script="#!/bin/sh\nkill -11 $$\n"),
    "no-output-file": Case(Result.FAILED, None, "could not be opened", script="#!/bin/sh\ntrue\n", system=E_OF),
    "canceled-command": Case(Result.CANCELED, None, "canceled at the site", deed=canceled),
    "canceled-script": Case(Result.CANCELED, None, "canceled at the site", script=AWAY, deed=canceled),
    "canceled-waiting": Case(
        Result.CANCELED, None, "canceled at the site", site={"hold": True}, deed=canceled, runs_first=False
    ),
    "canceled-by-us": Case(Result.STOPPED, deed=stopped),
    "suspended": Case(Result.CANCELED, None, "canceled at the site", script=AWAY, deed=suspended),
    "requeued-held": Case(Result.CANCELED, None, "canceled at the site", deed=requeued("requeuehold")),
}
LONG: dict[str, Case] = {
    "special-exit": Case(Result.CANCELED, script=AWAY, deed=requeued("requeuehold", "state=SpecialExit")),
    "requeued": Case(Result.CANCELED, script=AWAY, deed=requeued("requeue")),
    "timeout-script": Case(Result.TIMED_OUT, None, "longer than its limit", script=AWAY, site={"time": "1"}),
    "timeout-command": Case(Result.TIMED_OUT, None, site={"time": "1"}),
    "deadline": Case(
        Result.FAILED,
        None,
        "met its deadline",
        site={"time": "1", "deadline": "now+65", "licenses": "matlab:1"},
        cause="deadline",
        runs_first=False,
        command=("true",),
    ),
}


def alone(node: str, **more: Any) -> dict[str, Any]:
    return {"nodelist": node, "exclusive": True, **more}


EATS = f"{sys.executable} -c 'len(bytearray(400 << 20))'"
SMALL = {"mem": "200"}
HUNGRY: dict[str, Case] = {
    "hungry-script": Case(
        Result.EXITED, 137, "more memory", script=f"#!/bin/sh\nexec {EATS}\n", site=SMALL, cause="memory"
    ),
    "hungry-step": Case(  # Slurm keeps no code of such a script
        Result.EXITED, 137, "more memory", script=f"#!/bin/sh\n{EATS}\nexit 1\n", site=SMALL, cause="memory"
    ),
    "hungry-command": Case(
        Result.EXITED, 137, "memory", command=("sh", "-c", f"exec {EATS}"), site=SMALL, cause="memory"
    ),
    "hungry-child": Case(
        Result.EXITED, 1, "memory", command=("sh", "-c", f"{EATS}; exit 1"), site=SMALL, cause="memory"
    ),
    "enough": Case(Result.EXITED, 3, command=("sh", "-c", "exit 3"), site=SMALL),
}
# each has its own node, for all that is on it shares what happens to it
ALONE: dict[str, Case] = {
    "node-failed": Case(
        Result.FAILED,
        None,
        "a node of",
        script=AWAY,
        site=alone("n0001", **{"no-requeue": True}),
        deed=node_lost,
        cause="node",
    ),
    "preempted-for-good": Case(Result.STOPPED, script=AWAY, site=alone("n0002", partition="brief"), deed=preempted),
    "preempted-requeued": Case(Result.CANCELED, site=alone("n0003", partition="scavenge"), deed=preempted_and_again),
}


def beside(case: Case) -> Case:
    return replace(case, site={**case.site, "nodelist": "n0004"})


def opened(slurm: Slurm, folder: Path) -> Iterator[Site]:
    executor = SlurmExecutor("shared", {"PATH": os.environ["PATH"], "HOME": str(folder)}, folder / "state")
    yield Site(slurm, executor)
    executor.close()


@pytest.fixture
def site(on_slurm: Slurm, tmp_path: Path) -> Iterator[Site]:
    yield from opened(on_slurm, tmp_path)


@pytest.fixture
def varied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    be_lively(monkeypatch)
    with accounted(Varied) as slurm:
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        yield from opened(slurm, tmp_path)


def deed_of(site: Site, task: str, case: Case) -> Steps:
    """Do what is to be done to a run, once it runs or waits."""
    assert case.deed
    yield lambda: task in site.begun if case.runs_first else site.why(task)
    yield from case.deed(site, task)


def provoked(site: Site, cases: Mapping[str, Case]) -> None:
    """Start all, do to each what is to be done, and compare how each is told to have ended."""
    for task, case in cases.items():
        site.start(task, case)
    site.together([deed_of(site, task, case) for task, case in cases.items() if case.deed], 300)
    site.until(lambda: len(site.ends) == len(cases), 180)
    coded = {task: end.exit_code if end.result is Result.EXITED else None for task, end in site.ends.items()}
    answer = {task: (end.result, coded[task], end.cause) for task, end in site.ends.items()}
    assert answer == {task: (case.result, case.code, case.cause) for task, case in cases.items()}, site.ends
    assert [task for task, case in cases.items() if case.said not in site.ends[task].detail] == [], site.ends


def test_each_state_of_slurm_is_told_as_it_is(site: Site) -> None:
    provoked(site, QUICK)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_state_that_a_slurm_with_accounts_and_preemption_has_is_told_as_it_is(varied: Site) -> None:
    taken = ("sbatch", "--parsable", "-Lmatlab:1", "-wn0004", "-t30", "-o/dev/null", "--wrap=sleep 1800")
    other = varied.slurm.run(*taken).strip()
    failed = varied.slurm.run("sbatch", "--parsable", "-o/dev/null", "--wrap=false").strip()
    provoked(varied, {**{name: beside(case) for name, case in {**QUICK, **LONG}.items()}, **ALONE})
    varied.slurm.run("scontrol", "update", "nodename=n0003", "state=drain", "reason=a fan is broken")
    explained(varied, MORE, failed=failed)
    varied.slurm.run("scancel", other)
    assert varied.executor.odd == 0


@pytest.mark.soak
@pytest.mark.skipif(not os.access("/sys/fs/cgroup/memory", os.W_OK), reason="control groups (version 1) take root")
def test_job_that_needs_more_memory_than_it_asked_for_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_lively(monkeypatch)
    with slurm(Confined) as confined:
        monkeypatch.setenv("SLURM_CONF", str(confined.conf))
        for site in opened(confined, tmp_path):
            provoked(site, HUNGRY)
            assert confined.run("squeue", "-h", "-t", "all", "-o", "%T").count("OUT_OF_MEMORY") == len(HUNGRY) - 1


# ── why jobs wait ──

REASONS: dict[str, tuple[Mapping[str, Any], str, str]] = {
    "Resources": ({"nodes": "4", "exclusive": True}, "room", "planned for"),
    "Priority": ({"nodes": "4", "exclusive": True, "nice": "100"}, "turn", "planned for"),
    "BeginTime": ({"begin": "now+1hour"}, "time", "planned for"),
    "Dependency": ({"dependency": "afterok:{busy}"}, "dependency", ""),
    "JobHeldUser": ({"hold": True}, "held", ""),
    "PartitionTimeLimit": ({"partition": "short", "time": "60"}, "stuck", ""),
    "PartitionNodeLimit": ({"partition": "short", "nodes": "4"}, "stuck", ""),
}
MORE: dict[str, tuple[Mapping[str, Any], str, str]] = {
    "Licenses": ({"licenses": "matlab:1"}, "limit", ""),
    "DependencyNeverSatisfied": ({"dependency": "afterok:{failed}"}, "stuck", ""),
    "ReqNodeNotAvail": ({"nodelist": "n0003"}, "room", ""),
}


def explained(site: Site, reasons: Mapping[str, tuple[Mapping[str, Any], str, str]], **known: str) -> None:
    """Start a job for each reason; each is told within a tick of squeue showing it."""
    for reason, (request, _, _) in reasons.items():
        words = {"time": "5"} | {
            key: value.format(**known) if isinstance(value, str) else value for key, value in request.items()
        }
        site.start(reason, Case(Result.STOPPED, site=words))
    site.together([explained_as(site, reason, kind, said) for reason, (_, kind, said) in reasons.items()], 90)


def explained_as(site: Site, reason: str, kind: str, said: str) -> Steps:
    yield lambda: f"{reason} {reason}" in site.reasons()
    begun = time.monotonic()
    yield lambda: str(site.why(reason)).startswith(reason)
    why = site.executor.pending()[(reason, 1)]
    assert time.monotonic() < begun + 20, reason
    assert why.facts["class"] == kind, (reason, why)
    yield lambda: said in site.executor.pending()[(reason, 1)].text


def busy(site: Site) -> str:
    """Fill a node with somebody else's job."""
    words = ("-wn0001", "--exclusive", "-t5", "-o/dev/null", "--wrap=sleep 300")
    job = site.slurm.run("sbatch", "--parsable", *words).strip()
    site.until(lambda: site.slurm.run("squeue", "-h", "-j", job, "-t", "R", "-o", "%i"))
    return job


def test_each_reason_to_wait_is_told_within_a_tick_with_its_rank_and_planned_start(site: Site) -> None:
    other = busy(site)
    site.slurm.run("scontrol", "update", "partitionname=short", "maxnodes=2")
    try:
        explained(site, REASONS, busy=other)
    finally:
        site.slurm.run("scontrol", "update", "partitionname=short", "maxnodes=UNLIMITED")
        site.slurm.run("scancel", other)
