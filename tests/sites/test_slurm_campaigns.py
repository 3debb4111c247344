"""A Slurm that others use, for minutes: as fast as by sbatch, the same in its records, nothing lost in a storm."""

from __future__ import annotations

import json
import os
import random
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rainbow.client import Client
from rainbow.errors import TryLater
from rainbow.jobspec.sbatch import Surroundings, jobspec_of_call, read_call
from tests.scenarios.test_end_to_end import Processes, until
from tests.support.killed import Killed
from tests.support.ports import free_ports
from tests.support.registering import agent, processes_of
from tests.support.slurm import Slurm, slurm
from tests.support.slurm_accounting import accounted

pytestmark = pytest.mark.soak
JOBS = int(os.environ.get("RAINBOW_CAMPAIGN_JOBS", "200"))
SEED = int(os.environ.get("RAINBOW_CAMPAIGN_SEED", "7"))
STORM = float(os.environ.get("RAINBOW_STORM_SECONDS", "600"))  # seconds
STORM_JOBS = int(os.environ.get("RAINBOW_STORM_JOBS", "300"))
CALM = 600.0  # seconds after the storm until everything must have ended
SHAPES = ("-n1", "-n4 -c2", "-N1 -n3", "-N2 --ntasks-per-node=2", "-n6", "-N1 --exclusive", "-N1-2 -c3", "-n2 -c4")
COLUMNS = "JobName,User,State,ExitCode,ElapsedRaw,Start,Submit,Comment"
LATE = 5.0  # seconds that a job may be in Rainbow's hands before Slurm has it


@dataclass(frozen=True)
class Planned:
    """A job of the campaign: its number, when it comes, what it asks for, how long it runs and how it ends."""

    number: int
    at: float
    words: str
    seconds: float
    code: int

    def call(self, way: str) -> list[str]:
        """Return the options of sbatch."""
        text = f"--job-name={way}-{self.number:03} --time=1 --comment=about-{self.number} --output=/dev/null"
        return [*self.words.split(), *text.split()]

    @property
    def script(self) -> str:
        """Its batch script."""
        return f"#!/bin/sh\nsleep {self.seconds:.1f}\nexit {self.code}\n"


def planned() -> list[Planned]:
    chance = random.Random(SEED)
    return [
        Planned(k, 0.5 * k, chance.choice(SHAPES), chance.uniform(1, 6), chance.choice((0, 0, 0, 3)))
        for k in range(JOBS)
    ]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Slurm, Client]]:
    with accounted() as made, processes_of(tmp_path) as processes:
        monkeypatch.setenv("SLURM_CONF", str(made.conf))
        yield made, joined(tmp_path, processes)


def joined(folder: Path, processes: Processes) -> Client:
    """Start a server and an agent of the Slurm; return a user's client."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    processes.start("serve", "--port", str(port), "--database", str(folder / "rainbow.db"))
    until(Client(url).ready)
    agent(processes, url, "oak", "--executor", "slurm", "--identity", "service", "--quiet")
    until((folder / "credentials.json").exists)
    saved = json.loads((folder / "credentials.json").read_text())["clusters"]["oak"]
    return Client(url, saved["token"])


def others(site: Slurm, over: threading.Event) -> None:
    """Take 30 % of the cores at random, as somebody else."""
    chance = random.Random(SEED + 1)
    while not over.is_set():
        words = f"--ntasks={chance.randint(1, 5)} --time=1 --uid=nobody --gid=65534 --chdir=/ --output=/dev/null"
        site.run("sbatch", *words.split(), "--job-name=other", f"--wrap=sleep {chance.randint(4, 10)}")
        over.wait(2)


def sent(site: Slurm, jobs: list[Planned], way: str, send: Callable[[Planned], None]) -> dict[str, list[str]]:
    """Send every job at its time, beside others'; return Slurm's records by the jobs' numbers, and when they came."""
    over = threading.Event()
    beside = threading.Thread(target=others, args=(site, over))
    beside.start()
    time.sleep(8)
    begun, came = time.time(), {}
    with ThreadPoolExecutor(16) as pool:
        for job in jobs:
            time.sleep(max(0.0, begun + job.at - time.time()))
            came[job.number] = time.time()
            pool.submit(send, job)
    until(lambda: len(records(site, way)) == len(jobs), 300)
    over.set()
    beside.join()
    site.run("scancel", "--name=other")
    until(lambda: not site.run("squeue", "-h").strip(), 60)
    return {name: [*row, str(came[int(name)])] for name, row in records(site, way).items()}


def records(site: Slurm, way: str) -> dict[str, list[str]]:
    """Return sacct's rows of what has ended, by the jobs' numbers."""
    said = site.run("sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o", COLUMNS)
    rows = [line.split("|") for line in said.splitlines() if line.startswith(f"{way}-")]
    return {
        row[0].partition("-")[2]: row for row in rows if row[5] != "Unknown" and row[2] in ("COMPLETED", "FAILED")
    }


def wait_of(row: list[str]) -> float:
    return max(0.0, datetime.fromisoformat(row[5]).timestamp() - float(row[8]))


@pytest.mark.timeout(900)
def test_a_shared_slurm_serves_our_jobs_as_it_serves_sbatch(
    site: tuple[Slurm, Client], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mean wait at most 1.05 times that of sbatch; the same rows of sacct; nothing waits in Rainbow."""
    slurm, user = site
    jobs = planned()

    def direct(job: Planned) -> None:
        script = tmp_path / f"{job.number}.sh"
        script.write_text(job.script)
        slurm.run("sbatch", *job.call("d"), str(script))

    def ours(job: Planned) -> None:
        call = read_call(job.script, [*job.call("r"), "job.sh"], {}, "job.sh")
        user.submit(
            jobspec_of_call(call, Surroundings(datetime.now().astimezone(), str(tmp_path)))[0], requestor="ann"
        )

    by_sbatch, by_us = sent(slurm, jobs, "d", direct), sent(slurm, jobs, "r", ours)
    (tmp_path / "rows.json").write_text(json.dumps([by_sbatch, by_us]))
    waits = [sum(map(wait_of, rows.values())) / len(jobs) for rows in (by_sbatch, by_us)]
    late = [datetime.fromisoformat(row[6]).timestamp() - float(row[8]) for row in by_us.values()]
    with capsys.disabled():
        print(f"\n{len(jobs)} jobs, mean wait: sbatch {waits[0]:.2f} s, Rainbow {waits[1]:.2f} s, ", end="")
        held = f"in Rainbow's hands {sum(late) / len(late):.2f} s, at most {max(late):.2f} s"
        print(f"ratio {waits[1] / waits[0]:.3f}; {held}")
    differing = {}
    longer = [int(row[4]) - int(by_sbatch[number][4]) for number, row in by_us.items()]
    for number, row in by_us.items():
        plain = by_sbatch[number]
        if row[1:4] != plain[1:4] or row[7].partition(" for=ann rainbow=")[0] != plain[7]:
            differing[number] = f"{plain[1:5]} {plain[7]}, {row[1:5]} {row[7]}"
    assert not differing, "\n".join(differing.values())
    # sacct cuts a begin and an end to seconds, so that a job may differ from its equal by one second either way; over
    # all jobs that levels out, and a tenth of a second more for each would show
    assert max(map(abs, longer)) <= 2, Counter(longer)
    assert abs(sum(longer) / len(jobs)) <= 0.3, Counter(longer)
    assert max(late) < LATE
    assert waits[1] <= 1.05 * waits[0]


class Weather(Killed):
    """A server, an agent and a slurmctld that are killed at random and come back."""

    def __init__(self, folder: Path, processes: Processes, site: Slurm) -> None:
        self.folder, self.processes, self.site, self.port = folder, processes, site, free_ports(1)[0]
        self.count: Counter[str] = Counter()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start_server()
        until(Client(self.url).ready)
        self.start_agent()
        until((folder / "credentials.json").exists)
        saved = json.loads((folder / "credentials.json").read_text())["clusters"]["oak"]
        self.user = Client(self.url, saved["token"])

    def start_server(self) -> None:
        where = ("--port", str(self.port), "--database", str(self.folder / "rainbow.db"))
        self.server = self.processes.start("serve", *where)

    def start_agent(self) -> None:
        self.agent = agent(self.processes, self.url, "oak", "--executor", "slurm", "--identity", "service", "--quiet")

    def end_controller(self, seconds: float) -> None:
        self.site.restart_controller(seconds, kill=False)

    def storm(self, over: threading.Event) -> None:
        chance = random.Random(SEED)
        while not over.is_set():
            wrong = chance.choice([self.kill_server, self.kill_agent, self.kill_agent, self.end_controller])
            self.count[wrong.__name__] += 1
            wrong(chance.uniform(0, 10))
            self.mind(over, chance.uniform(5, 15))
        self.mind(threading.Event(), 10)

    def mind(self, over: threading.Event, seconds: float) -> None:
        """Start again what has ended by itself, as a service manager does."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not over.wait(0.5):
            if self.server.poll() is not None:
                self.start_server()
            elif self.agent.poll() is not None and Client(self.url, tries=1).ready():
                self.start_agent()


def patiently(call: Callable[[], Any]) -> Any:
    end = time.monotonic() + 120
    while True:
        try:
            return call()
        except TryLater:
            assert time.monotonic() < end
            time.sleep(0.3)


def storm_job(number: int, lines: Path, chance: random.Random) -> dict[str, Any]:
    """Return a job that notes its start and ends in its own way: every other one is a script."""
    code, seconds = number % 4, chance.uniform(0.5, 12)
    body = f"echo {number} >> {shlex.quote(str(lines))}; sleep {seconds:.1f}; exit {code}"
    if number % 2:
        call = read_call(f"#!/bin/sh\n{body}\n", ["-n1", "-t5", "-o/dev/null", "job.sh"], {}, "job.sh")
        return jobspec_of_call(call, Surroundings(datetime.now().astimezone(), str(lines.parent)))[0]
    task = {"command": ["sh", "-c", body], "resources": "w"}
    return {"resources": {"w": {"type": "core", "replicas": 1}}, "tasks": [task]}


@pytest.mark.timeout(1_500)
def test_in_a_storm_no_job_is_lost_or_doubled_and_every_state_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, over, chance = tmp_path / "lines", threading.Event(), random.Random(SEED)
    lines.touch()
    with slurm() as site, processes_of(tmp_path) as processes:
        monkeypatch.setenv("SLURM_CONF", str(site.conf))
        weather = Weather(tmp_path, processes, site)
        trouble = threading.Thread(target=weather.storm, args=(over,))
        begun, jobs = time.monotonic(), dict[str, int]()
        trouble.start()
        try:
            for number in range(STORM_JOBS):
                spec, key = storm_job(number, lines, chance), f"storm {number}"
                made = patiently(lambda spec=spec, key=key: weather.user.submit(spec, idempotency_key=key))
                jobs[made["id"]] = number
                time.sleep(max(0.0, begun + STORM * 0.9 * number / STORM_JOBS - time.monotonic()))
            time.sleep(max(0.0, begun + STORM - time.monotonic()))
        finally:
            over.set()
            trouble.join()
        site.restart_controller(0, kill=False)  # it ends with the thread that has started it
        ended = patiently(lambda: [weather.user.wait(job, CALM) for job in jobs])
        happened = Counter(map(int, lines.read_text().split()))
        wrong = [
            (jobs[job["id"]], task["state"], task["exit_code"], task["attempt"], task["detail"], task.get("losses"))
            for job in ended
            for task in job["tasks"]
            if (task["state"], task["exit_code"]) != told(jobs[job["id"]]) or happened[jobs[job["id"]]] != 1
        ]
        starts = Counter(happened[number] for number in jobs.values())
        with capsys.disabled():
            seconds = time.monotonic() - begun
            print(f"\n{len(jobs)} jobs in {seconds:.0f} s, seed {SEED}; went wrong: {dict(weather.count)}")
            print(f"starts: {dict(sorted(starts.items()))}; not as told: {wrong}")
        assert len(jobs) == STORM_JOBS
        assert wrong == []


def told(number: int) -> tuple[str, int]:
    return ("FAILED" if number % 4 else "COMPLETED", number % 4)


FILLED = "--nodes=4 --exclusive --time=20 --output=/dev/null --wrap=true --job-name=full"
SORTED = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "expected_wait"}, {"select": "first"}]}]}


def at(folder: Path, processes: Processes, url: str, cluster: str, *more: str, **environment: str) -> str:
    """Start an agent that registers its cluster; return the cluster's token."""
    inputs = ("--url", url, "--state-dir", str(folder / cluster), "--credentials", str(folder / f"{cluster}.json"))
    processes.start("agent", "--cluster", cluster, "--register", *inputs, "--quiet", *more, **environment)
    until((folder / f"{cluster}.json").exists)
    time.sleep(1)
    token: str = json.loads((folder / f"{cluster}.json").read_text())["clusters"][cluster]["token"]
    return token


@pytest.mark.timeout(900)
def test_a_script_goes_where_it_would_start_first_of_two_slurms_and_a_machine(tmp_path: Path) -> None:
    """Both idle: to one of them; one full: to the other; both full: to the machine whose owner says half a minute."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    with slurm() as oak, slurm() as elm, processes_of(tmp_path) as processes:
        processes.start("serve", "--port", str(port), "--database", str(tmp_path / "rainbow.db"))
        until(Client(url).ready)
        service = ("--executor", "slurm", "--identity", "service")
        tokens = [
            at(tmp_path, processes, url, name, *service, SLURM_CONF=str(site.conf))
            for name, site in (("oak", oak), ("elm", elm))
        ]
        tokens.append(at(tmp_path, processes, url, "machine"))
        owner = Client(url, json.loads((tmp_path / "machine.json").read_text())["clusters"]["machine"]["secret"])
        owner.change_state("machine", {"expected_wait": 30})
        user = Client(url, tokens)
        went = []
        for full in ((), ("elm",), ("oak",)):
            for name in full:
                site = {"oak": oak, "elm": elm}[name]
                site.run("sbatch", *FILLED.replace("--wrap=true", "").split(), "--wrap=sleep 900")
                secret = json.loads((tmp_path / f"{name}.json").read_text())["clusters"][name]["secret"]
                until(lambda name=name, secret=secret: waits_at(Client(url, secret), name) > 60, 60)
            script = "#!/bin/sh\n#SBATCH --ntasks=1 --time=5\necho done\n"
            document, _ = jobspec_of_call(
                read_call(script, ["job.sh"]), Surroundings(datetime.now().astimezone(), str(tmp_path))
            )
            made = user.submit(document, selector={"name": "constraint", "options": SORTED})
            ended = user.wait(made["id"], 60)
            assert [task["output"] for task in ended["tasks"]] == ["done\n"]
            went.append(made["cluster"])
        assert went[0] in ("oak", "elm")
        assert went[1:] == ["oak", "machine"]


def waits_at(user: Client, name: str) -> float:
    return float(user.state(name)["effective"].get("expected_wait") or 0.0)


@pytest.mark.timeout(600)
def test_a_job_that_is_stuck_at_one_slurm_ends_at_the_other(tmp_path: Path) -> None:
    """Its partition allows ten minutes at one site and any time at the other; it runs once."""
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    with slurm() as oak, slurm() as elm, processes_of(tmp_path) as processes:
        elm.run("scontrol", "update", "partitionname=short", "maxtime=INFINITE")
        processes.start("serve", "--port", str(port), "--database", str(tmp_path / "rainbow.db"))
        until(Client(url).ready)
        service, tokens = ("--executor", "slurm", "--identity", "service"), []
        for cost, (name, site) in enumerate((("oak", oak), ("elm", elm))):
            tokens.append(at(tmp_path, processes, url, name, *service, SLURM_CONF=str(site.conf)))
            secret = json.loads((tmp_path / f"{name}.json").read_text())["clusters"][name]["secret"]
            Client(url, secret).change_state(name, {"cost": cost})
            Client(url, secret).set_scheduler(name, {"settings": {"stuck_after": 5}})
        cheapest = {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost"}, {"select": "first"}]}]}
        mark, user = tmp_path / "mark", Client(url, tokens)
        script = f"#!/bin/sh\n#SBATCH --ntasks=1 --time=30 --partition=short\necho >> {mark}\n"
        document, _ = jobspec_of_call(
            read_call(script, ["job.sh"]), Surroundings(datetime.now().astimezone(), str(tmp_path))
        )
        made = user.submit(document, selector={"name": "constraint", "options": cheapest})
        assert made["cluster"] == "oak"
        ended = user.wait(made["id"], 120)
        assert (ended["cluster"], ended["state"], mark.read_text()) == ("elm", "COMPLETED", "\n")
        [move] = user.why(made["id"])["decision"]["moves"]
        assert move["why"] == "stuck at oak for 5 s: PartitionTimeLimit"
        assert "CANCELLED" in oak.run("squeue", "-h", "-t", "all", "-o", "%T")
