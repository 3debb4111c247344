"""/v1/slurm/NAME: the words of one of Slurm's commands in, what it prints and its exit code out."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, jsonify

from rainbow.api.wire import read_mapping, service, tokens, who
from rainbow.errors import NotFound
from rainbow.service.slurm import commands
from rainbow.service.slurm.call import Call
from rainbow.store.credentials import digest

slurm = Blueprint("slurm", __name__, url_prefix="/v1")
_FIELDS = ("folder", "user", "uid", "gid", "umask", "host", "at", "offset", "script", "key", "waits_for")


@slurm.post("/slurm/<id:command>")
def run(command: str) -> Any:
    """Carry out one call of sbatch, squeue, sacct, scancel, scontrol, sinfo, sacctmgr or sshare.

    The caller sends the words, its environment, folder, umask, login and time, and prints `out` and `err`. `read`
    names a file that is to be sent as `script`, `again` the seconds after which to ask again with `waits_for`.
    """
    asking, body = who(), read_mapping("SlurmCall")
    if command not in commands.COMMANDS:
        raise NotFound(f"command {command[:40]} not found; there are: {', '.join(commands.COMMANDS)}")
    given = {name: body[name] for name in _FIELDS if body.get(name) is not None}
    call = Call(
        words=body["words"],
        environment=body.get("environment") or {},
        credentials=[digest(token) for token in tokens()],
        **given,
    )
    answer = commands.run(service(), asking, command, call)
    return jsonify(
        out=answer.out,
        err=answer.err,
        exit=answer.exit,
        read=answer.read,
        again=answer.again,
        waits_for=answer.waits_for or None,
    )
