"""Fair tree factors as a real Slurm computes them: trees generated here, usage written into its state.

`python -m tests.sites.slurm_fair_tree tests/cases/fair_tree.json` records them anew.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.slurm_accounting import Accounted, accounted

VERSION = 9728  # SLURM_22_05_PROTOCOL_VERSION
FAIR = "PriorityType=priority/multifactor\nPriorityDecayHalfLife=20000-0\nPriorityWeightFairshare=10000\n"
TREES = 20


def generated(seed: int) -> dict[str, Any]:
    """Make a tree with usage: ties, users without usage, accounts without shares, `parent` on some."""
    chance = random.Random(seed)
    accounts: list[dict[str, Any]] = []
    for k in range(chance.randint(2, 9)):
        parent = chance.choice(["", "", *[one["name"] for one in accounts]])
        accounts.append({"name": f"a{k}", "parent": parent, "shares": chance.choice([1, 1, 2, 3, 10, 50])})
    if seed % 4 == 0:
        chance.choice(accounts)["shares"] = 0
    members: list[dict[str, Any]] = [{"account": "", "user": "root", "shares": 1, "usage": 0}]
    for one in accounts:
        for name in chance.sample("pqrstuvw", chance.randint(0, 5)):
            usage = chance.choice([0, 100, 100, 1_000, chance.randint(1, 10**7)])
            shares = chance.choice([1, 1, 1, 2, 5])
            members.append({"account": one["name"], "user": name, "shares": shares, "usage": usage})
    if seed % 3 == 0 and len(members) > 1:
        chance.choice(members[1:])["shares"] = None
    if seed % 5 == 0:
        chance.choice(accounts)["shares"] = None
    return {"seed": seed, "accounts": accounts, "members": members}


def measured(slurm: Accounted, tree: dict[str, Any]) -> dict[str, Any]:
    """Return a tree with what Slurm says of it."""
    _clear(slurm)
    flat = slurm.folder / "tree.cfg"
    flat.write_text(_flat(tree))
    slurm.run("sacctmgr", "-i", "load", str(flat))
    ids = _ids(slurm)
    slurm.restart(_state([(ids[m["account"] or "root", m["user"]], m["usage"]) for m in tree["members"]]))
    rows = _shares(slurm, len(tree["members"]))
    for member in tree["members"]:
        member |= rows[member["account"] or "root", member["user"]]
    for account in tree["accounts"]:
        account |= rows[account["name"], ""]
    return tree


def _flat(tree: dict[str, Any]) -> str:
    def shares(one: dict[str, Any]) -> str:
        return f"Fairshare={'parent' if one['shares'] is None else one['shares']}"

    lines = ["Cluster - 'emulated'", "Parent - 'root'"]
    for parent in ["", *(one["name"] for one in tree["accounts"])]:
        lines.append(f"Parent - '{parent or 'root'}'")
        lines += [f"Account - '{one['name']}':{shares(one)}" for one in tree["accounts"] if one["parent"] == parent]
        lines += [f"User - '{m['user']}':{shares(m)}" for m in tree["members"] if m["account"] == parent and parent]
    return "\n".join(lines) + "\n"


def _clear(slurm: Accounted) -> None:
    names = slurm.run("sacctmgr", "-nP", "list", "user", "format=user").split()
    if gone := [name for name in names if name != "root"]:
        slurm.run("sacctmgr", "-i", "delete", "user", ",".join(gone))
    for _ in range(10):
        remaining = [
            n for n in slurm.run("sacctmgr", "-nP", "list", "account", "format=account").split() if n != "root"
        ]
        for name in remaining:
            slurm.run("sacctmgr", "-i", "delete", "account", name)


def _ids(slurm: Accounted) -> dict[tuple[str, str], int]:
    rows = slurm.run("sacctmgr", "-nP", "list", "assoc", "format=account,user,id").split()
    return {(account, user): int(number) for account, user, number in (row.split("|") for row in rows)}


def _state(usage: list[tuple[int, float]]) -> bytes:
    """Return the state file assoc_usage of Slurm 22.05."""
    body = struct.pack(">HQ", VERSION, int(time.time()))
    for number, amount in usage:
        text = b"%.6f\0" % amount
        body += struct.pack(">I", number) + struct.pack(">I", len(text)) + text
        body += struct.pack(">I", 0) + struct.pack(">I", 0)
    return body


def _shares(slurm: Accounted, users: int) -> dict[tuple[str, str], dict[str, Any]]:
    columns = "Account,User,NormShares,RawUsage,EffectvUsage,LevelFS,FairShare"
    for _ in range(40):
        rows = [row.split("|") for row in slurm.run("sshare", "-nPa", f"--format={columns}").splitlines()]
        if sum(bool(row[1]) and bool(row[6]) for row in rows) == users and any(float(row[6] or 0) for row in rows):
            break
        time.sleep(0.25)
    return {
        (row[0].strip(), row[1]): {
            "norm_shares": float(row[2] or 0),
            "used": float(row[4] or 0),
            "level": row[5],
            "factor": float(row[6]) if row[6] else None,
        }
        for row in rows
    }


def record(path: Path) -> None:
    """Ask Slurm about every tree and write what it says."""
    with fair() as slurm:
        lines = [json.dumps(measured(slurm, generated(seed))) for seed in range(TREES)]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def fair() -> Any:
    """Run a Slurm with accounting whose priority is the fair tree."""
    return accounted(Fair)


class Fair(Accounted):
    """A Slurm with the fair tree."""

    def _configure(self, ports: list[int]) -> None:
        super()._configure(ports)
        with self.conf.open("a") as conf:
            conf.write(FAIR)

    def restart(self, state: bytes) -> None:
        """Let the controller begin with this usage."""
        [controller] = [one for one in self._daemons if any("slurmctld" in word for word in one.args)]
        self._daemons.remove(controller)
        controller.terminate()
        controller.wait(30)
        (self.folder / "state" / "assoc_usage").write_bytes(state)
        self._daemon("slurmctld", "-D", "-f", str(self.conf))
        self._patiently(["sinfo"])


if __name__ == "__main__":
    record(Path(sys.argv[1]))
