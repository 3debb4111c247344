"""What scontrol shows of jobs, partitions, nodes and itself, as of 22.05.8; host lists; its words read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rainbow.jobspec.hostlist import expand_hosts, fold_hosts
from rainbow.slurm.command_line import VERSION, CommandError
from rainbow.slurm.job_rows import JobRow, NodeRow
from rainbow.slurm.squeue import tres_of
from rainbow.slurm.texts import long_duration, moment_text, one_line

MOST_HOSTS = 100_000
NOT_FOUND = "slurm_load_jobs error: Invalid job id specified\n"
CHANGES = {  # what update may change of a job, and how a change of ours is called
    "timelimit": "time_limit",
    "priority": "priority",
    "nice": "nice",
    "jobname": "name",
    "name": "name",
    "comment": "comment",
    "dependency": "dependency",
}


def job_text(rows: Iterable[JobRow], zone: int, *, one: bool, details: bool) -> str:
    """Write what `show job` prints; `one`: a job a line."""
    return "".join(_record(_job(row, zone, details=details), one) for row in rows)


def _record(lines: Sequence[str], one: bool) -> str:
    if one:
        return " ".join(line.strip() for line in lines if line.strip()) + "\n"
    return "".join(f"{line}\n" for line in lines) + "\n"


def _job(row: JobRow, zone: int, *, details: bool) -> list[str]:
    def at(seconds: float | None, none: str = "Unknown") -> str:
        return moment_text(seconds, none, zone)

    limit = long_duration(row.limit) if row.limit else "UNLIMITED"
    end = row.end if row.end is not None else row.start + row.limit if row.start is not None and row.limit else None
    array = f"ArrayJobId={row.array} ArrayTaskId={row.index_text} " if row.index_text != "N/A" else ""
    array += f"ArrayTaskThrottle={row.at_once} " if array and row.at_once else ""
    each = max(1, row.cores // max(1, row.tasks))
    memory = f"MinMemoryNode={row.memory}M" if row.memory else "MinMemoryNode=0"
    lines = [
        f"JobId={row.number} {array}JobName={row.name}",
        f"   UserId={row.user}({row.uid}) GroupId={row.user}({row.gid}) MCS_label=N/A",
        f"   Priority={max(0, row.priority)} Nice={max(0, -row.priority)} Account={row.account or '(null)'} "
        f"QOS={row.qos or 'normal'}",
        f"   JobState={row.state} Reason={row.reason} Dependency={row.dependency or '(null)'}",
        f"   Requeue={int(row.requeue)} Restarts={row.restarts} BatchFlag=1 Reboot=0 "
        f"ExitCode={row.code}:{row.signal}",
        *(["   DerivedExitCode=0:0"] if details else []),
        f"   RunTime={long_duration(row.run)} TimeLimit={limit} TimeMin=N/A",
        f"   SubmitTime={at(row.submit)} EligibleTime={at(row.begin or row.submit)}",
        f"   AccrueTime={at(row.begin or row.submit)}",
        f"   StartTime={at(row.start)} EndTime={at(end)} Deadline=N/A",
        f"   SuspendTime=None SecsPreSuspend=0 LastSchedEval={at(row.submit)} Scheduler=Main",
        f"   Partition={row.partition} AllocNode:Sid={row.cluster or 'rainbow'}:0",
        "   ReqNodeList=(null) ExcNodeList=(null)",
        f"   NodeList={row.node_list}",
        *([f"   BatchHost={row.nodes[0]}"] if row.nodes else []),
        f"   NumNodes={row.node_count} NumCPUs={row.cores} NumTasks={row.tasks} CPUs/Task={each} ReqB:S:C:T=0:0:*:*",
        f"   TRES={tres_of(row)}",
        "   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*",
        *(
            ["   JOB_GRES=(null)", f"     Nodes={row.node_list} CPU_IDs= Mem=0 GRES="]
            if details and row.nodes
            else []
        ),
        f"   MinCPUsNode={each} {memory} MinTmpDiskNode=0",
        "   Features=(null) DelayBoot=00:00:00",
        "   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)",
        f"   Command={row.command or '(null)'}",
        f"   WorkDir={row.folder}",
        *([f"   Comment={row.comment} "] if row.comment else []),
        f"   StdErr={row.error or row.output}",
        f"   StdIn={row.input or '/dev/null'}",
        f"   StdOut={row.output}",
        "   Power=",
        *([f"   TresPerJob=gres:gpu:{row.gpus}"] if row.gpus else []),
        "   ",
    ]
    return [one_line(line) for line in lines]


def config_text(now: float, zone: int, cluster: str) -> str:
    """Write what `show config` prints, as far as it is true here."""
    known = {
        "AccountingStorageType": "accounting_storage/rainbow",
        "ClusterName": cluster,
        "KillWait": "30 sec",
        "MaxArraySize": "1000001",
        "MinJobAge": "300 sec",
        "SLURM_VERSION": VERSION.removeprefix("slurm-wlm "),
        "SlurmctldHost[0]": "rainbow",
    }
    lines = [f"{name:<23} = {value}" for name, value in known.items()]
    return f"Configuration data as of {moment_text(now, '', zone)}\n" + "".join(f"{line}\n" for line in lines)


def partition_text(rows: Sequence[NodeRow], default: str, *, one: bool) -> str:
    """Write what `show partition` prints of these nodes' partitions."""
    results = []
    for name in dict.fromkeys(row.partition for row in rows):
        own = [row for row in rows if row.partition == name]
        nodes = [node for row in own for node in row.names]
        lines = [
            f"PartitionName={name}",
            "   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL",
            f"   AllocNodes=ALL Default={'YES' if name == default else 'NO'} QoS=N/A",
            "   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
            "   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
            f"   Nodes={fold_hosts(nodes)}",
            "   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO",
            "   OverTimeLimit=NONE PreemptMode=OFF",
            f"   State={'UP' if any(row.up for row in own) else 'DOWN'} TotalCPUs={sum(row.total for row in own)} "
            f"TotalNodes={len(nodes)} SelectTypeParameters=NONE",
            "   JobDefaults=(null)",
            "   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        ]
        results.append(_record(lines, one))
    return "".join(results)


def node_text(rows: Sequence[NodeRow], requirements: Sequence[str], *, one: bool) -> str:
    """Write what `show node` prints; of all nodes where none is named."""
    results = []
    for row in rows:
        each = max(1, len(row.names))
        for name in row.names:
            if requirements and name not in requirements:
                continue
            cores, busy = row.total // each, (row.total - row.free) // each if row.state != "idle" else 0
            lines = [
                f"NodeName={name} Arch=x86_64 CoresPerSocket={cores} ",
                f"   CPUAlloc={busy} CPUEfctv={cores} CPUTot={cores} CPULoad=N/A",
                "   AvailableFeatures=(null)",
                "   ActiveFeatures=(null)",
                f"   Gres={f'gpu:{row.gpus}' if row.gpus else '(null)'}",
                f"   NodeAddr={name} NodeHostName={name} Version={VERSION.removeprefix('slurm-wlm ')}",
                f"   RealMemory={row.memory or 1} AllocMem=0 FreeMem=N/A Sockets=1 Boards=1",
                f"   State={NODE_STATES.get(row.state, 'UNKNOWN')} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "
                "MCS_label=N/A",
                f"   Partitions={row.partition} ",
            ]
            results.append(_record(lines, one))
    return "".join(results)


NODE_STATES = {
    "idle": "IDLE",
    "mixed": "MIXED",
    "allocated": "ALLOCATED",
    "maint": "MAINTENANCE",
    "resv": "RESERVED",
    "drained": "IDLE+DRAIN",
    "draining": "MIXED+DRAIN",
    "down": "DOWN",
}


def hostnames_text(words: Sequence[str], environment: str) -> str:
    """Write what `show hostnames` prints: a name a line.

    >>> hostnames_text(["n[1-2],m"], "").split()
    ['n1', 'n2', 'm']
    """
    text = words[0] if words else environment
    if not text:
        raise CommandError("scontrol: error: host list is empty\n")
    names = expand_hosts(text, MOST_HOSTS)
    if names is None:
        raise CommandError(f"scontrol: error: Invalid hostlist: {text[:100]}\n")
    return "".join(f"{name}\n" for name in names)


def hostlist_text(words: Sequence[str]) -> str:
    """Write what `show hostlist` prints: the names folded.

    >>> hostlist_text(["n1,n2,m"])
    'm,n[1-2]\\n'
    """
    if not words:
        raise CommandError("scontrol: error: host list is empty\n")
    return fold_hosts(sorted({one for one in words[0].split(",") if one})) + "\n"


def read_update(words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Read `update JobId=N KEY=VALUE...`; return the job and what changes by our names.

    >>> read_update(["jobid=7", "TimeLimit=10", "name=x"])
    ('7', {'time_limit': '10', 'name': 'x'})
    """
    job, result = "", dict[str, str]()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise CommandError(f"Invalid input: {word[:60]}\nRequest aborted\n")
        if key.lower() in ("jobid", "job"):
            job = value
        elif key.lower() in CHANGES:
            result[CHANGES[key.lower()]] = value
        else:
            raise CommandError(f"scontrol: error: update {key[:60]} is not carried by Rainbow\n")
    if not job:
        raise CommandError('No valid entity in update command\nInput line must include "NodeName", "JobId"\n')
    return job, result
