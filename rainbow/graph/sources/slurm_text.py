"""`scontrol show node`, in lines or one line a node: Key=value, where a value may hold blanks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rainbow.errors import GraphError
from rainbow.graph.sources.slurm_fields import Record

_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_FIELD = re.compile(r"(?<!\S)([A-Za-z_]{1,40})=(\S*)")
# free text, printed after all that is read here: what stands in it is not the node's
_FREE = re.compile(r"(?<!\S)(?:Reason|Comment|Extra)=")
_REASON = re.compile(r"(?<!\S)Reason=(.*?)(?= \[[^\[\]\n]*\]|$)", re.MULTILINE)
_KEYS = {
    "NodeName": "name",
    "CPUTot": "cpus",
    "CPUEfctv": "effective_cpus",
    "Sockets": "sockets",
    "CoresPerSocket": "cores",
    "ThreadsPerCore": "threads",
    "RealMemory": "real_memory",
    "TmpDisk": "temporary_disk",
    "MemSpecLimit": "specialized_memory",
    "CoreSpecCount": "specialized_cores",
    "CPUSpecList": "specialized_cpus",
    "AvailableFeatures": "features",
    "ActiveFeatures": "active_features",
    "Partitions": "partitions",
    "Gres": "gres",
    "State": "state",
}


def records_of_text(text: str) -> Iterator[tuple[int, Record]]:
    """Yield every node's record and the line it begins in."""
    starts = [found.start() for found in _RECORD.finditer(text)]
    if not starts:
        raise GraphError("this is no output of Slurm: no line begins with NodeName=", line=1, column=1)
    line, counted = 1, 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line, counted = line + text.count("\n", counted, start), start
        yield line, _record(text[start:end])


def _record(given: str) -> Record:
    free = _FREE.search(given)
    fields: dict[str, str] = {}
    for found in _FIELD.finditer(given, 0, free.start() if free else len(given)):
        if found[1] in _KEYS:
            fields.setdefault(_KEYS[found[1]], found[2])
    reason = _REASON.search(given)
    if reason:
        fields["reason"] = reason[1]
    return Record(fields, "", [fields["name"]])
