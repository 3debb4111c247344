"""The program that root lets an agent's account start, to call Slurm as the requestor's account.

    rainbow-agent ALL=(root) NOPASSWD: /opt/rainbow/bin/python -I -m rainbow.agent.executors.slurm.helper FILE

FILE is the site's users.yaml, which belongs to root and which only root can change. One question is read from
standard input: {"requestor", "command", "input", "environment"}; one answer is written: {"code", "out", "err"}.
Whom the requestor is, is looked up here: who has taken the agent reaches mapped accounts, and never root.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

from rainbow.agent.executors.local import for_managers
from rainbow.agent.executors.slurm.accounts import account_of, read_users
from rainbow.agent.executors.slurm.commands import FOR_ACCOUNTS, limit_of, run
from rainbow.errors import RainbowError

LONGEST = 64 << 20  # characters of a question


def answer(question: dict[str, Any], users: Path) -> dict[str, Any]:
    """Do what is asked as the requestor's account; what is refused has the code 126."""
    try:
        check_file(users)
        command = [str(word) for word in question["command"]]
        if not command or command[0] not in FOR_ACCOUNTS:
            raise RainbowError(f"{command[:1]} is not called for others; {', '.join(FOR_ACCOUNTS)} are")
        account = account_of(read_users(users), str(question["requestor"]))
        exported = question.get("environment")
        said, environment = str(question.get("input") or ""), for_managers(os.environ)
        where = (str(question.get("folder") or ""), int(question.get("umask", -1)))
        done = run(command, said, exported, environment, account, limit_of(command), where)
    except (RainbowError, OSError, KeyError, TypeError, ValueError) as fault:
        return {"code": 126, "out": "", "err": f"{type(fault).__name__}: {fault}"}
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def check_file(path: Path) -> None:
    """Raise RainbowError unless only root can change the file, and the folder it is in."""
    for each in (path, path.resolve().parent):
        result = each.stat()
        if result.st_uid or (result.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not result.st_mode & stat.S_ISVTX):
            raise RainbowError(f"{each} can be changed by others than root")


def main() -> None:
    """Read one question, write its answer."""
    question = json.loads(sys.stdin.read(LONGEST))
    sys.stdout.write(json.dumps(answer(question, Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
