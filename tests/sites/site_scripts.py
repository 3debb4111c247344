"""Batch scripts against real Slurm controllers: what Rainbow answers beside what `sbatch --test-only` says.

    python -m tests.sites.site_scripts [SEED] [COUNT]

starts a controller for each of tests/cases/scripts/sites/*.conf (loopback, no node daemons: all nodes are
`State=CLOUD`), asks them about COUNT generated scripts and prints one line of counts, and every row that differs.
It needs root and Debian's packages slurmctld, slurm-client and munge; without them it uses the recorded answers.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rainbow.errors import RainbowError
from rainbow.graph import Cluster, read_cluster
from rainbow.graph.sources.slurm import read_slurm
from rainbow.jobspec import Request, parse_jobspec
from rainbow.jobspec.sbatch import Surroundings, jobspec_of_call, read_call
from rainbow.matching import match

CASES = Path(__file__).parent.parent / "cases" / "scripts"
SITES = ("ash", "elm", "fir", "oak")
CALLER = Surroundings(datetime(2030, 1, 1, tzinfo=UTC))
Answer = tuple[bool, str]  # whether sbatch takes the script, and the first line that it says


@dataclass(frozen=True)
class Row:
    """One script on one site: what was said, and what Rainbow says."""

    name: str
    site: str
    script: str
    taken: bool
    said: str
    kind: str  # right or wrong yes or no, undecided, refused
    why: str


def recorded() -> Iterator[tuple[str, str, Mapping[str, Answer]]]:
    """Yield scripts with what real controllers of Slurm 22.05.8 answered, by site."""
    for one in json.loads((CASES / "recorded.json").read_text()):
        yield one["name"], one["script"], {site: tuple(answer) for site, answer in one["answers"].items()}


def clusters() -> dict[str, Cluster]:
    """Return the sites as they are imported."""
    return {site: read_cluster(read_slurm((CASES / "sites" / f"{site}.txt").read_text()), site) for site in SITES}


def read(name: str, script: str) -> Request | RainbowError:
    """Return the request of a script, or why it is refused."""
    try:
        return parse_jobspec(jobspec_of_call(read_call(script, name=name), CALLER)[0])
    except RainbowError as fault:
        return fault


def judge(name: str, script: str, answers: Mapping[str, Answer], sites: Mapping[str, Cluster]) -> Iterator[Row]:
    """Yield what Rainbow says of a script on each site, beside what Slurm said."""
    request = read(name, script)
    for site, (taken, said) in answers.items():
        if isinstance(request, RainbowError):
            kind, why = ("refused, Slurm takes it" if taken else "refused by both"), str(request)
        else:
            [verdict] = match(request, [sites[site]])
            why = verdict.reason.text if verdict.reason else ""
            word = {True: "yes", False: "no", None: "undecided"}[verdict.matched]
            kind = word if verdict.matched is None else f"{'right' if verdict.matched == taken else 'wrong'} {word}"
        yield Row(name, site, script, taken, said, kind, why)


# ── scripts ──

WORDS = {  # of the four sites, so that answers differ between them
    "partition": (
        *("batch", "long", "gpu", "debug", "old", "staff", "short", "gpu-h100", "whole", "all", "main"),
        *("batch,long", "gpu,batch", "short,long", "nosuch"),
    ),
    "gpu": ("", "", "", "", "", "a100:", "v100:", "h100:", "turing:", "ampere:", "1g.10gb:"),
    "constraint": (
        *("ib", "rack1", "rack2", "bigmem", "a100", "v100", "zen3", "hsw", "rack1|rack2", "std&ib", "cpu|skl"),
        *("[rack1|rack2]", "[rack1*2&rack2*2]", "(rack1|rack2)&std", "[ib*1&rack1*2]", "mixed", "nosuch"),
    ),
    "licenses": ("matlab:2", "matlab:9", "ansys", "ansys:4,matlab:1", "nosuch"),
    "nodelist": ("a0", "a[0-1]", "g0", "c[0-2]", "s1", "q0", "a0,g0"),
    "time": ("24:00:00", "00:30:00", "48:00:00", "01:00:00", "12:00:00", "10", "7-00:00:00", "00:90:00", "1-12"),
    "nodes": (*["1"] * 16, "2", "2", "4", "3", "8", "2-4", "1-2"),
    "memory": ("32G", "0", "64G", "93G", "16G", "64GB", "20000", "10G", "8G", "200G", "500G", "1T"),
}
# options with the share of 22,590 published scripts that have them, and their values
RARE = (
    (0.014, "ntasks-per-socket", (16, 16, 2, 1, 8, 12)),
    (0.006, "threads-per-core", (1, 1, 2)),
    (0.005, "licenses", WORDS["licenses"]),
    (0.004, "tmp", ("64000M", "150G", "4000", "500G", "2T", "100T")),
    (0.002, "mincpus", (24, 40, 64, 128, 32)),
    (0.003, "cores-per-socket", (12, 16, 24, 32)),
    (0.002, "sockets-per-node", (1, 2, 2, 4)),
    (0.025, "nodelist", WORDS["nodelist"]),
    (0.024, "exclude", ("a[0-3]", "c0", "v0", "q[1-2]")),
    (0.090, "constraint", WORDS["constraint"]),
)


def generated(rng: random.Random) -> str:
    """Return a batch script with options as frequent as in published ones."""
    pick, share, options = rng.choice, rng.random, list[str]()
    options += [f"time={pick(WORDS['time'])}"] if share() < 0.66 else []
    options += [f"partition={pick(WORDS['partition'])}"] if share() < 0.62 else []
    options += [f"nodes={pick(WORDS['nodes'])}"] if share() < 0.61 else []
    options += [f"cpus-per-task={pick((1, 1, 8, 4, 16, 10, 2, 12, 6, 32, 40, 3, 64))}"] if share() < 0.48 else []
    memory, tasks, gpus = share(), share(), share()
    if memory < 0.55:
        own = f"mem={pick(WORDS['memory'])}" if memory < 0.41 else f"mem-per-cpu={pick(('4G', '2000', '1G', '16G'))}"
        options.append(own)
    options += [f"ntasks={pick((1, 1, 1, 4, 16, 8, 2, 32, 24, 64, 15, 128))}"] if tasks < 0.40 else []
    if share() < (0.30 if tasks > 0.4 else 0.1):
        options.append(f"ntasks-per-node={pick((1, 1, 1, 4, 8, 16, 2, 32, 24, 6))}")
    if gpus < 0.44:
        model, count = pick(WORDS["gpu"]), pick((1, 1, 1, 1, 4, 2, 2, 8, 3))
        kind = next(
            k
            for k, most in zip(("gres", "gpus", "gpus-per-node", "gpus-per-task"), (0.35, 0.40, 0.43, 1), strict=True)
            if gpus < most
        )
        options.append(f"{kind}={'gpu:' if kind == 'gres' else ''}{model}{count}")
        options += [f"cpus-per-gpu={pick((4, 6, 8, 12, 32))}"] if share() < 0.03 else []
    options += ["exclusive"] if share() < 0.07 else []
    options += [f"{name}='{pick(values)}'" for often, name, values in RARE if share() < often]
    rng.shuffle(options)
    return "#!/bin/bash\n" + "".join(f"#SBATCH --{option}\n" for option in options) + "srun ./a.out\n"


# ── controllers ──

COMMON = """\
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
EnforcePartLimits=ANY
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=3600
ResumeTimeout=600
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SlurmdParameters=config_overrides
PrivateData=cloud
"""


def has_slurm() -> bool:
    """Return whether controllers can be started here."""
    return os.geteuid() == 0 and all(shutil.which(name) for name in ("slurmctld", "sbatch", "munged", "runuser"))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def controllers(names: tuple[str, ...] = SITES) -> Iterator[dict[str, Path]]:
    """Start a munge and a controller for each site; yield their slurm.conf by site."""
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="rainbow-sites-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        munge = folder / "munge"
        munge.mkdir(mode=0o755)
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        for path in (munge, munge / "key"):
            shutil.chown(path, "munge")
        files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        words = [f"--{option}={munge / name}" for option, name in files.items()]
        call = ["runuser", "-u", "munge", "--", shutil.which("munged") or "munged", "--force", "--foreground", *words]
        try:
            processes.append(subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            results = {name: _configured(folder, name, munge / "sock") for name in names}
            for path in results.values():
                with (path.parent / "out").open("wb") as out:
                    words = ["slurmctld", "-D", "-c", "-f", str(path)]
                    environment = {**os.environ, "SLURM_CONF": str(path)}
                    processes.append(subprocess.Popen(words, stdout=out, stderr=out, env=environment))
            for path in results.values():
                _wait_for(path)
            yield results
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait()


def _configured(folder: Path, name: str, munge: Path) -> Path:
    own = folder / name
    (own / "state").mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    lines = {
        "ClusterName": name,
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "AuthInfo": f"socket={munge}",
        "SlurmctldPort": str(_free_port()),
        "StateSaveLocation": str(own / "state"),
        "SlurmctldPidFile": str(own / "pid"),
        "SlurmctldLogFile": str(own / "log"),
    }
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    (own / "slurm.conf").write_text(text + COMMON + (CASES / "sites" / f"{name}.conf").read_text())
    for more in ("gres", "topology"):
        if (path := CASES / "sites" / f"{name}.{more}.conf").exists():
            (own / f"{more}.conf").write_text(path.read_text())
    return own / "slurm.conf"


def _wait_for(path: Path) -> None:
    for _ in range(120):
        words = ["timeout", "5", "scontrol", "ping"]
        environment = {**os.environ, "SLURM_CONF": str(path)}
        if b"UP" in subprocess.run(words, capture_output=True, env=environment, check=False).stdout:
            return
        time.sleep(0.25)
    raise RuntimeError(
        f"the controller of {path.parent.name} did not start: {(path.parent / 'log').read_text()[-500:]}"
    )


def ask(script: str, conf: Path) -> Answer:
    """Return what a controller says of a script."""
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    call = subprocess.run(
        ["sbatch", "--test-only"], input=script, capture_output=True, text=True, env=environment, check=False
    )
    return call.returncode == 0, next(iter((call.stderr + call.stdout).splitlines()), "")


def asked(seed: int, count: int) -> Iterator[tuple[str, str, Mapping[str, Answer]]]:
    """Yield generated scripts with what controllers that are started here answer."""
    rng = random.Random(seed)
    scripts = [(f"s{k:04}.sh", generated(rng)) for k in range(count)]
    with controllers() as confs, ThreadPoolExecutor(2) as pool:
        for name, script in scripts:
            answers = pool.map(lambda site, script=script: ask(script, confs[site]), SITES)
            yield name, script, dict(zip(SITES, answers, strict=True))


def line(rows: Counter[str]) -> str:
    """Write counts in one line."""
    total = sum(rows.values()) or 1
    counts = ", ".join(f"{kind} {n} ({100 * n / total:.1f} %)" for kind, n in sorted(rows.items()))
    return f"{total} answers: {counts}"


def main(seed: int, count: int) -> None:
    """Print every row that differs, then the counts."""
    sites = clusters()
    source = asked(seed, count) if has_slurm() else recorded()
    counts: Counter[str] = Counter()
    for name, script, answers in source:
        for row in judge(name, script, answers, sites):
            counts[row.kind] += 1
            if not row.kind.startswith(("right", "refused by both")):
                options = " ".join(text[8:] for text in row.script.splitlines() if text.startswith("#SBATCH"))
                print(f"{row.kind}: {row.site} {options}\n    Slurm: {row.said}\n    Rainbow: {row.why}")
    print(line(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1, int(sys.argv[2]) if len(sys.argv) > 2 else 250)
