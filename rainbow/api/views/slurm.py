"""/v1/slurm/NAME: the words of one of Slurm's commands in, what it prints and its exit code out.

What is wrong with a call is no error of HTTP: the command says it, with its exit code. Only who may not ask at all,
or asks for what is no command, is answered with another status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, jsonify

from rainbow.api.wire import read_mapping, service, tokens, who
from rainbow.errors import NotFound
from rainbow.service.slurm import commands
from rainbow.service.slurm.call import Call
from rainbow.store.credentials import digest

slurm = Blueprint("slurm", __name__, url_prefix="/v1")


@slurm.post("/slurm/<id:command>")
def run(command: str) -> Any:
    """Carry out one call of sbatch, squeue, sacct, scancel, scontrol, sinfo, sacctmgr or sshare.

    The caller sends the words, its environment, folder, umask, login and time, and prints `out` and `err`. `read`
    names a file that is to be sent as `script`, `again` the seconds after which to ask again with `waits_for`.
    """
    asking, body = who(), read_mapping("SlurmCall")
    if command not in commands.COMMANDS:
        raise NotFound(f"command {command[:40]} not found; there are: {', '.join(commands.COMMANDS)}")
    answer = commands.run(service(), asking, command, _call(body))
    return jsonify(
        out=answer.out,
        err=answer.err,
        exit=answer.exit,
        read=answer.read,
        again=answer.again,
        waits_for=answer.waits_for or None,
    )


def _call(body: Mapping[str, Any]) -> Call:
    """Read a call; a caller that says no time means now, in Greenwich."""
    return Call(
        words=body["words"],
        environment=body.get("environment") or {},
        folder=body.get("folder") or "",
        user=body.get("user") or "",
        uid=body.get("uid") or 0,
        gid=body.get("gid") or 0,
        umask=body.get("umask"),
        host=body.get("host") or "",
        at=body["at"] if body.get("at") is not None else service().clock(),
        offset=body.get("offset") or 0,
        script=body.get("script"),
        key=body.get("key"),
        waits_for=body.get("waits_for") or "",
        credentials=[digest(token) for token in tokens()],
    )
