"""The verbs of accounts and qualities of service: list, show, create or change, delete, and what was used."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from math import isinf
from typing import TYPE_CHECKING, Any

from rainbow.accounts.budget import GUARANTEED, HOUR, read_budget, read_limits
from rainbow.accounts.tree import ROOT, Account, Member, Tree
from rainbow.accounts.usage import COST, DAY
from rainbow.errors import BY_FILE, ConfigError, Conflict, Forbidden, LimitError, NotFound, PolicyError, RequestError
from rainbow.outcome import note_object
from rainbow.scheduling.qos import DEFAULT, Qos, check_qos, read_qos
from rainbow.service.accounts.account_cache import accounts_change, qos_table, standings_of, tree_of
from rainbow.store.accounts import charges, registry
from rainbow.store.accounts.charges import BY
from rainbow.text import some

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.accounts.fair_tree import Key, Standing
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service

ROOT_NAME = "root"  # as people call the account that has no name
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LONGEST = 3_660  # days of usage in one answer


def listing(service: Service, who: Caller) -> dict[str, Any]:
    """List the accounts that the caller sees in the order of the tree, with where each is, and the rules of usage."""
    with service.store.read() as connection:
        tree, results = tree_of(service, connection), standings_of(service, connection)
        seen = _seen(tree, who)
        accounts = [
            _account(service, connection, tree, one, results, depth, who)
            for depth, one in tree.walk()
            if one.name in seen
        ]
        rules = registry.rules(connection)
    return {"accounts": accounts, "rules": {"half_life": rules.half_life, "weights": dict(rules.weights)}}


def show(service: Service, who: Caller, name: str) -> dict[str, Any]:
    """Show an account with its users, budget and standing."""
    with service.store.read() as connection:
        tree, results = tree_of(service, connection), standings_of(service, connection)
        if name not in tree.accounts or name not in _seen(tree, who):
            raise NotFound(f"account {name} not found")
        depth = len(tree.line(name)) - 1
        return _account(service, connection, tree, tree.accounts[name], results, depth, who)


def put(service: Service, who: Caller, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Create or change an account by what the body names; return it.

    Of the root: the rules of usage, {"half_life": seconds, "weights": {type: weight}}.
    """
    check_admin(who)
    if not NAME.fullmatch(name):
        raise RequestError(f"an account is named by letters, digits, '.', '_' and '-', got {name!r:.60}", pointer="")
    if name == ROOT_NAME:
        return _put_rules(service, who, body)
    with service.store.write() as connection:
        note_object(f"account {name}")
        tree = registry.tree(connection)
        changed = _changed(tree.accounts.get(name) or Account(name), body)
        Tree({**tree.accounts, name: changed}, tree.members).check()
        registry.put(connection, changed)
        _put_users(connection, tree, name, body.get("users") or {})
        accounts_change(service, connection)
    return show(service, who, name)


def _changed(account: Account, body: Mapping[str, Any]) -> Account:
    if body.keys() & {"half_life", "weights"}:
        raise ConfigError("half_life and weights are of the account root", pointer="/half_life")
    changes = {key: body[key] for key in ("parent", "shares", "limits", "budget") if key in body}
    if changes.get("parent") in (None, ROOT_NAME) and "parent" in changes:
        changes["parent"] = ROOT
    read_limits(changes.get("limits") or {})
    read_budget(changes.get("budget") or {})
    for key in ("limits", "budget"):
        if changes.get(key, 0) is None:
            changes[key] = {}
    return replace(account, **changes)


def _put_users(connection: sa.Connection, tree: Tree, name: str, users: Mapping[str, Any]) -> None:
    for user, options in users.items():
        if options is None:
            registry.remove_member(connection, name, user)
            continue
        known = tree.members.get((name, user)) or Member(name, user)
        registry.put_member(connection, replace(known, **options))


def _put_rules(service: Service, who: Caller, body: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(body.keys() - {"half_life", "weights"})
    if unknown:
        raise ConfigError("root has only half_life and weights", pointer=f"/{unknown[0]}")
    with service.store.write() as connection:
        rules = registry.rules(connection)
        registry.put_rules(connection, {"half_life": rules.half_life, "weights": dict(rules.weights), **body})
        accounts_change(service, connection)
    result: dict[str, Any] = listing(service, who)["rules"]
    return result


def delete(service: Service, who: Caller, name: str) -> None:
    """Delete an account that has no accounts below it and no active jobs; its usage stays in the record."""
    check_admin(who)
    with service.store.write() as connection:
        note_object(f"account {name}")
        tree = registry.tree(connection)
        if name not in tree.accounts:
            raise NotFound(f"account {name} not found")
        if below := [one.name for one in tree.below(name)]:
            raise Conflict(f"account {name} has accounts below it: {', '.join(below[:5])}; delete these first")
        if there := charges.active_jobs(connection, [name]):
            raise Conflict(f"account {name} has {some(there, 'active job')}; cancel them or wait until they end")
        registry.remove(connection, name)
        accounts_change(service, connection)


def check_admin(who: Caller) -> None:
    """Raise Forbidden unless the caller is the administrator."""
    if not who.admin:
        raise Forbidden(f"the admin token is required to change accounts; {BY_FILE}")


def _users(who: Caller) -> Collection[str] | None:
    """Return the users whose usage the caller sees; None: all."""
    if who.admin or None in who.submits.values():
        return None
    return {name for names in who.submits.values() for name in names or ()}


def _counted(service: Service, who: Caller) -> dict[Collection[str] | None, list[str]] | None:
    """Return {users: clusters} whose usage the caller sees, None for all users: everywhere of those they act for."""
    if who.admin:
        return None
    result: dict[Collection[str] | None, list[str]] = {}
    for entry in service.catalogue.values():
        if who.sees(entry.id):
            requestors = None if entry.id in who.secrets else who.submits[entry.id]
            result.setdefault(None if requestors is None else tuple(requestors), []).append(entry.id)
    return result


def _seen(tree: Tree, who: Caller) -> Collection[str]:
    """Return the accounts a caller sees: all, or those of the users they act for and above."""
    users = _users(who)
    if users is None:
        return tree.accounts
    own = {one.account for one in tree.members.values() if one.user in users}
    return {above.name for name in own for above in tree.line(name)}


def _account(
    service: Service,
    connection: sa.Connection,
    tree: Tree,
    account: Account,
    results: Mapping[Key, Standing],
    depth: int,
    who: Caller,
) -> dict[str, Any]:
    users = _users(who)
    own = [
        one for one in tree.members.values() if one.account == account.name and (users is None or one.user in users)
    ]
    return {
        "name": account.name,
        "parent": account.parent or ROOT_NAME,
        "depth": depth,
        "shares": account.shares,
        **_standing(results.get(account.name)),
        "limits": dict(account.limits),
        "budget": _budget(service, connection, account),
        **({"cores": _cores(service, connection, tree, account)} if GUARANTEED in account.limits else {}),
        "users": [
            {"user": one.user, "shares": one.shares, "default": one.default, **_standing(results.get(one.key))}
            for one in own
        ],
    }


def _standing(result: Standing | None) -> dict[str, Any]:
    if result is None:
        return {"share": 0.0, "used_hours": 0.0, "used": 0.0, "level": None, "factor": 0.0, "ahead": 0}
    return {
        "share": result.shares,
        "used_hours": result.usage / HOUR,
        "used": result.used,
        "level": None if isinf(result.level) else result.level,
        "factor": result.factor,
        "ahead": result.ahead,
    }


def _cores(service: Service, connection: sa.Connection, tree: Tree, account: Account) -> dict[str, float]:
    """Return what an account is guaranteed and runs, what it borrows, and what its siblings borrow of it."""
    running: Counter[str] = Counter()
    for run in charges.running(connection, service.clock()):
        for one in tree.line(run.account):
            running[one.name] += int(run.amounts.get("core", 0))
    beside = [one for one in tree.below(account.parent) if GUARANTEED in one.limits]
    over = {one.name: running[one.name] - float(one.limits[GUARANTEED]) for one in beside}
    borrowed = sum(more for more in over.values() if more > 0)
    unused = -sum(less for less in over.values() if less < 0)
    own = over[account.name]
    lent = min(-own, borrowed * -own / unused) if own < 0 else 0.0
    whole = float(account.limits[GUARANTEED])
    return {"guaranteed": whole, "running": running[account.name], "borrowed": max(0.0, own), "lent": lent}


def _budget(service: Service, connection: sa.Connection, account: Account) -> dict[str, Any] | None:
    budget = read_budget(account.budget)
    if budget is None:
        return None
    period = budget.at(service.clock())
    there = charges.balance(connection, account.name, period)
    remaining = budget.amount - there.held - there.charged
    answer = {"amount": budget.amount, "of": dict(budget.of), "over": budget.over, "period": period}
    return {**answer, "held": there.held, "charged": there.charged, "left": remaining}


# ── usage ──


def usage(
    service: Service, who: Caller, by: str | None = None, since: str | None = None, until: str | None = None
) -> dict[str, Any]:
    """Return what was used by account, user, cluster or day, in hours of each type, from a day until before another.

    Tasks that run now are not in it: each counts when it gives its space back.
    """
    columns = [name.strip() for name in ("account" if by is None else by).split(",")]
    for name in columns:
        if name not in BY:
            raise RequestError(f"by must be of {', '.join(BY)}, got {name:.40}", pointer="/by")
    columns = list(dict.fromkeys(columns))
    now = service.clock()
    first = day_of(since, "/since") if since is not None else int(now // DAY) - 30
    last = day_of(until, "/until") if until is not None else None
    if (int(now // DAY) if last is None else last) - first > LONGEST:
        raise LimitError(f"at most {LONGEST} days in one answer", limit="days")
    with service.store.read() as connection:
        rows = charges.totals(connection, columns, first, last, _counted(service, who))
    return {"by": columns, "since": _date(first), "until": last and _date(last), "rows": list(map(_row, rows))}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    used = {kind: amount if kind == COST else amount / HOUR for kind, amount in sorted(row["used"].items())}
    keys = {key: _date(value) if key == "day" else value for key, value in row.items() if key != "used"}
    return {**keys, "hours": used}


def day_of(text: str, pointer: str) -> int:
    """Return the number of a day since 1970; RequestError where the text is none."""
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() // DAY)
    except (ValueError, OverflowError):
        raise RequestError(f"expected a day such as 2030-01-31, got {text:.40}", pointer=pointer) from None


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY, UTC):%Y-%m-%d}"


def csv_of(results: Mapping[str, Any]) -> str:
    """Write usage as CSV: the columns asked for, then hours of each type.

    >>> print(csv_of({"by": ["account"], "rows": [{"account": "bio", "hours": {"core": 2.5}}]}), end="")
    account,core
    bio,2.5
    """
    kinds = sorted({kind for row in results["rows"] for kind in row["hours"]})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*results["by"], *kinds])
    writer.writerows(
        [*(row[key] for key in results["by"]), *(row["hours"].get(k, 0.0) for k in kinds)] for row in results["rows"]
    )
    return out.getvalue()


# ── qualities of service ──


def list_qos(service: Service, who: Caller) -> list[dict[str, Any]]:
    """List the qualities of service by name."""
    with service.store.read() as connection:
        return [_qos_document(one) for _, one in sorted(qos_table(service, connection).items())]


def put_qos(service: Service, who: Caller, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Create a quality of service, or change what the body names of it."""
    check_admin(who)
    if not NAME.fullmatch(name):
        raise RequestError(f"a qos is named by letters, digits, '.', '_' and '-', got {name!r:.60}", pointer="")
    with service.store.write() as connection:
        note_object(f"qos {name}")
        known = registry.qos(connection)
        options = check_qos({**known.get(name, {}), **body})
        for k, other in enumerate(options["preempts"]):
            if other not in {*known, name, DEFAULT}:
                raise PolicyError(f"qos {other:.40} not found", pointer=f"/preempts/{k}")
        accounts = registry.tree(connection).accounts
        for k, account in enumerate(options["accounts"]):
            if account not in accounts:
                raise PolicyError(f"account {account:.40} not found", pointer=f"/accounts/{k}")
        registry.put_qos(connection, name, options)
        accounts_change(service, connection)
    return _qos_document(read_qos(name, options))


def delete_qos(service: Service, who: Caller, name: str) -> None:
    """Delete a quality of service that no active job has."""
    check_admin(who)
    with service.store.write() as connection:
        note_object(f"qos {name}")
        if name not in registry.qos(connection):
            raise NotFound(f"qos {name} not found")
        if there := charges.active_of_qos(connection, name):
            raise Conflict(f"qos {name} has {some(there, 'active job')}; cancel them or wait until they end")
        registry.remove_qos(connection, name)
        accounts_change(service, connection)


def _qos_document(one: Qos) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(one).items()}
