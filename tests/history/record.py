"""Record a history of Rainbow while things go wrong, and judge it.

`python -m tests.history.record --store sqlite --seconds 60 --seed 7 --nemesis kill,pause,cut,clock,neighbors`

It ends as `tests.history.check` does: 0 where all rules hold, 1 where one is broken, 2 where it cannot be judged.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import ADMIN, REGISTRATION, grid
from tests.history import clients, nemeses
from tests.history.check import FEWEST, judge, report
from tests.history.clients import CORES, RETRIES, Follower, Notebook, World
from tests.history.model import History
from tests.history.nemeses import Refused, check_nemesis
from tests.history.places import ROOT, TOPOLOGIES, Place, place_of, until_ready
from tests.support import services

DEFAULT = "kill,pause,cut,clock,neighbors"
CLUSTERS = ("oak", "elm")
IDLE = "idle"  # the neighbors' cluster, which no agent serves
PATIENCE = 180.0  # seconds for jobs to end and followers to be told
FOLLOWERS = 2  # of each stream
LONG, AT_LENGTH = 0.4, 20.0  # the part of tasks that run for seconds, in histories of so many seconds


def call(url: str, verb: str, path: str, body: Any = None, *, token: str = ADMIN, **headers: str) -> Any:
    """Ask what must be answered: in quiet."""
    sent = {"Authorization": f"Bearer {token}", **headers}
    answer = httpx.request(verb, f"{url}{path}", json=body, headers=sent, timeout=60)
    answer.raise_for_status()
    return answer.json() if answer.content else None


def set_up(place: Place, world: World) -> list[str]:
    """Register the clusters, make accounts and tokens, start the agents; return a token of each cluster."""
    url = next(iter(place.readers.values()))
    at = dict(zip(CLUSTERS, place.shards * len(CLUSTERS), strict=False))
    tokens = []
    for shard in place.shards:
        call(shard, "PUT", "/v1/accounts/bio", {"users": {"ann": {}}})
        call(shard, "PUT", "/v1/accounts/hog", {"users": {"zoe": {}}})
    for cluster in (*CLUSTERS, IDLE):
        shard = at.get(cluster, place.shards[0])
        made = call(
            shard, "POST", "/v1/clusters", {"name": cluster, "graph": grid(4, CORES // 4)}, token=REGISTRATION
        )
        world.secrets[cluster] = made["secret"]
        rights = {"clusters": [cluster]} | (
            {"accounts": ["hog"], "requestors": ["zoe"]}
            if cluster == IDLE
            else {"accounts": ["bio"], "requestors": ["ann"]}
        )
        tokens.append(call(shard, "POST", "/v1/tokens", rights)["token"])
    world.token = ", Bearer ".join(tokens[:2])
    for cluster in CLUSTERS:
        place.start_agent(cluster, world.secrets[cluster])
    wait(
        lambda: all(_ready(url, cluster, world.secrets[cluster]) for cluster in CLUSTERS),
        "the agents did not come up",
    )
    return tokens


def _ready(url: str, cluster: str, secret: str) -> bool:
    workers = call(url, "GET", f"/v1/clusters/{cluster}/workers", token=secret)["workers"]
    return all(worker["state"] == "READY" for worker in workers)


def wait(holds: Callable[[], bool], otherwise: str, seconds: float = PATIENCE) -> bool:
    """Wait until something holds; say otherwise what did not come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if holds():
                return True
        except httpx.HTTPError:
            pass
        time.sleep(0.3)
    print(otherwise, file=sys.stderr)
    return False


def calm(place: Place) -> None:
    """Put everything right: sound lines, right clocks, all processes at work."""
    for line in place.lines:
        line.bad = 0.0
    if place.patroni is not None:
        place.patroni.start()
    for member in place.members:
        with member.lock:
            member.set_clock(0.0)
            if not member.running():
                member.start()
    until_ready([*place.readers.values(), *place.shards])


def note_end(
    place: Place, world: World, notebook: Notebook, followers: Sequence[Follower], tokens: list[str]
) -> None:
    """Wait until all has ended, and note what every reader is told."""
    everything = ", Bearer ".join(tokens)
    url = next(iter(place.readers.values()))
    live = "/v1/jobs?state=UNPLACED,WAITING,RUNNING&limit=1"
    wait(lambda: not call(url, "GET", live, token=world.token)["jobs"], "some jobs did not end")
    wait(lambda: _all_free(place, world), "not all is free", 30)
    for name, url in place.readers.items():
        jobs = [job for page in _pages(url, everything) for job in page]
        results = [{key: job[key] for key in ("id", "name", "state", "cluster", "account")} for job in jobs]
        for job in results:
            if job["cluster"] != IDLE:
                job |= {"cores": 1, "retries": RETRIES, "lost": _losses(url, job["id"], world.token)}
        notebook.line("final-jobs", client=name, answer=results)
    _note_events(place, world, notebook, followers)
    notebook.line("runs", answer=read_signs(world.signs))
    url = next(iter(place.readers.values()))
    free = {cluster: [_idle(url, cluster, world.secrets[cluster]), CORES] for cluster in CLUSTERS}
    notebook.line("final-free", answer=free)
    for name, url in place.readers.items():
        there = {each["name"] for each in call(url, "GET", "/v1/clusters")["clusters"]}
        opens = {cluster: _opens(url, cluster, secret) for cluster, secret in world.registered.items()}
        notebook.line("final-clusters", client=name, answer={each: opens.get(each, True) for each in there})
    used: dict[str, float] = defaultdict(float)
    for shard in place.shards:
        for row in call(shard, "GET", "/v1/usage?by=account")["rows"]:
            used[row["account"]] += row["hours"].get("core", 0.0) * 3_600
    notebook.line("final-usage", answer=used)


def _losses(url: str, job: str, token: str) -> dict[str, int]:
    """Return how many attempts of each of its tasks were lost, of those that lost any."""
    tasks = call(url, "GET", f"/v1/jobs/{job}", token=token)["tasks"]
    return {task["id"]: len(task["losses"]) for task in tasks if task["losses"]}


def _idle(url: str, cluster: str, secret: str) -> Any:
    return call(url, "GET", f"/v1/clusters/{cluster}/scheduler", token=secret)["figures"]["idle"]


def _all_free(place: Place, world: World) -> bool:
    url = next(iter(place.readers.values()))
    return all(_idle(url, cluster, world.secrets[cluster]) == CORES for cluster in CLUSTERS)


def _opens(url: str, cluster: str, secret: str) -> bool:
    try:
        call(url, "GET", f"/v1/clusters/{cluster}/state", token=secret)
    except httpx.HTTPStatusError:
        return False
    return True


def _pages(url: str, token: str) -> Iterator[list[Any]]:
    cursor = ""
    while cursor is not None:
        page = call(url, "GET", f"/v1/jobs?limit=1000{cursor}", token=token)
        yield page["jobs"]
        cursor = page["next"] and f"&cursor={page['next']}"


def _note_events(place: Place, world: World, notebook: Notebook, followers: Sequence[Follower]) -> None:
    for stream, query in place.streams.items():
        last = None
        for name, url in place.readers.items():
            at = next((shard for shard in place.shards if query and _has(shard, stream)), url)
            results = read_events(at, world.token, query)
            notebook.line("final-events", client=name, ask={"stream": stream}, answer=results)
            last = results[-1]["id"] if results else None
        mine = [each for each in followers if each.stream == stream]
        wait(partial(_are_told, mine, last), f"followers of {stream} lag", 30)
        for each in mine:
            each.over.set()
            notebook.line("followed", client=each.name, ask={"stream": stream, "after": 0}, answer=list(each.numbers))


def _are_told(followers: Sequence[Follower], last: int | None) -> bool:
    return all(each.numbers[-1:] == [last] for each in followers)


def _has(shard: str, cluster: str) -> bool:
    return any(each["name"] == cluster for each in call(shard, "GET", "/v1/clusters")["clusters"])


def read_events(url: str, token: str, query: str) -> list[dict[str, Any]]:
    """Return all events, their times in seconds."""
    headers = {"Authorization": f"Bearer {token}"}
    text = httpx.get(f"{url}/v1/events?follow=false&after=0{query}", headers=headers, timeout=120).text
    results = []
    for block in text.split("\n\n"):
        rows = dict(row.split(": ", 1) for row in block.splitlines() if ": " in row)
        if "data" in rows and "id" in rows:
            data = json.loads(rows["data"])
            data["at"] = datetime.fromisoformat(data["at"]).timestamp()
            results.append({"id": int(rows["id"]), "kind": rows["event"], "data": data})
    return results


def read_signs(folder: Path) -> dict[str, list[list[Any]]]:
    """Return each task's runs by their signs: start, last sign, whether they reached their end, exit code."""
    results = {}
    for file in folder.iterdir():
        runs: dict[str, list[Any]] = {}
        for row in file.read_text().splitlines():
            run, at, sign, *code = row.split()
            one = runs.setdefault(run, [float(at), float(at), False, None])
            one[1] = max(one[1], float(at))
            if sign == "end":
                one[2:] = [True, int(code[0])]
        results[file.name] = list(runs.values())
    return results


def operate(notebook: Notebook, seconds: float, kinds: Sequence[str]) -> None:
    """Let clients and nemeses act for so long, and on until what they did can be judged, within PATIENCE."""
    began = time.monotonic()
    time.sleep(seconds)
    while time.monotonic() < began + seconds + PATIENCE:
        if notebook.is_enough(FEWEST, (*clients.NEEDED, *kinds)):
            return
        time.sleep(0.1)


def record(topology: str, seconds: float, seed: int, kinds: Sequence[str], file: Path, acts: float = inf) -> Path:
    """Record one history, in which each nemesis acts at most `acts` times."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rainbow-history-") as made, file.open("w") as out:
        folder = Path(made)
        (folder / "signs").mkdir()
        notebook = Notebook(out)
        setup = {"topology": topology, "seconds": seconds, "seed": seed, "nemeses": list(kinds), "unserved": [IDLE]}
        notebook.line("setup", ask=setup)
        with place_of(topology, folder) as place:
            world = World(place.doors, folder / "signs", long_tasks=LONG if seconds >= AT_LENGTH else 0.0)
            tokens = set_up(place, world)
            followers = [
                Follower(world, f"follower{k}-{stream[0]}", stream, random.Random(f"{seed} {k}"))
                for stream in place.streams.items()
                for k in range(FOLLOWERS)
            ]
            world.began = time.monotonic()
            threads = clients.start(world, notebook, seed)
            bad = [kind for kind in kinds if kind != "neighbors"]
            threads += nemeses.start(bad, place, world, notebook, seed, seconds, acts)
            if "neighbors" in kinds:
                sound = World(list(place.readers.values()), world.signs, over=world.over)
                threads += nemeses.neighbors(sound, tokens[-1], notebook, seed, max(8, int(seconds / 2)))
            operate(notebook, seconds, kinds)
            world.over.set()
            for thread in threads:
                thread.join(90)
            calm(place)
            note_end(place, world, notebook, followers, tokens)
            logs = file.with_suffix(".log")
            logs.write_text("".join(f"== {log.name}\n{log.read_text()}" for log in sorted(folder.glob("*.log"))))
    return file


def main(arguments: Sequence[str] | None = None) -> int:
    """Record and judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.history.record", description=main.__doc__)
    parser.add_argument("--store", default="all", help=f"{', '.join(TOPOLOGIES)} or all")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--nemesis", default=DEFAULT)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "history")
    options = parser.parse_args(arguments)
    stores = all_there() if options.store == "all" else options.store.split(",")
    kinds = [kind for kind in options.nemesis.split(",") if kind]
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    try:
        for store in stores:
            if store not in TOPOLOGIES:
                raise Refused(f"store {store} not found; there are {', '.join(TOPOLOGIES)}, all")
            for kind in kinds:
                check_nemesis(kind, store)
    except Refused as fault:
        print(fault, file=sys.stderr)
        return 2
    codes = []
    for store in stores:
        print(f"{store}: STORE={store} SECONDS={options.seconds:g} SEED={seed} NEMESIS={','.join(kinds)}", flush=True)
        code, text = judged(record(store, options.seconds, seed, kinds, _file(options.folder, store)))
        print(text, flush=True)
        codes.append(code)
    return 1 if 1 in codes else max(codes)


def all_there() -> list[str]:
    """Return the topologies that can be had here; say why the others cannot."""
    reason = services.missing("Patroni") or ("" if os.getuid() == 0 else "it is started by root")
    if reason:
        print(f"patroni is left out: {reason}", file=sys.stderr)
    return [each for each in TOPOLOGIES if not (reason and each == "patroni")]


def judged(file: Path) -> tuple[int, str]:
    """Judge a recorded history."""
    history = History.read(file.read_text())
    return report(history, judge(history), str(file))


def _file(folder: Path, store: str) -> Path:
    """Return where the next history of today goes."""
    day = f"{datetime.now():%Y%m%d}"
    number = 1 + sum(1 for _ in folder.glob(f"{day}-*-{store}.jsonl"))
    return folder / f"{day}-{number}-{store}.jsonl"


if __name__ == "__main__":
    sys.exit(main())
