"""`rainbow account`, `rainbow qos` and `rainbow usage`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import click

from rainbow.cli.input.job_options import duration
from rainbow.cli.output import printer
from rainbow.cli.session import with_tokens
from rainbow.client import Client, Problem
from rainbow.errors import Conflict

ABSENT = 404
LOOKED_AT, NAMED = 500, 5  # of the last jobs, and of those who submitted them


@click.group()
def account() -> None:
    """Accounts: who may use how much over all clusters."""


def _changes(command: Any) -> Any:
    for option in reversed(
        [
            click.option("--parent", help="Account above; root for none."),
            click.option("--shares", type=click.IntRange(0), help="Shares among its siblings; 1 for a new account."),
            click.option("--user", "users", multiple=True, metavar="USER[=SHARES]", help="User in it. Repeatable."),
            click.option("--default-of", multiple=True, metavar="USER", help="User whose jobs it pays. Repeatable."),
            click.option("--remove-user", multiple=True, metavar="USER", help="User to take out. Repeatable."),
            click.option(
                "--limit",
                "limits",
                multiple=True,
                metavar="[CLUSTER:]KEY=N",
                help="Limit: active_jobs, running_cores, user_running_cores (of each user), guaranteed_cores (what "
                "siblings borrow of it comes back), or duration in seconds. "
                "Replaces all limits. Repeatable.",
            ),
            click.option(
                "--budget", type=click.FloatRange(0), help="Budget of a period: hours, or money; 0 for none."
            ),
            click.option(
                "--budget-of",
                metavar="cost|TYPE=WEIGHT[,TYPE=WEIGHT]",
                help="What a budget counts; core=1 by default.",
            ),
            click.option(
                "--period", type=click.Choice(["month", "quarter", "year", "always"]), help="Budget's period."
            ),
            click.option("--over", type=click.Choice(["refuse", "lowest"]), help="Jobs beyond the budget; refused."),
            click.option(
                "--half-life", callback=duration, help="Of root: time until half of the usage is forgotten."
            ),
            click.option("--weight", multiple=True, metavar="TYPE=N", help="Of root: how usage counts. Repeatable."),
        ]
    ):
        command = option(command)
    return command


def _body(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change that options ask for."""
    body: dict[str, Any] = {
        key: options[key] for key in ("parent", "shares", "half_life") if options[key] is not None
    }
    users: dict[str, Any] = {}
    for name, _, shares in (text.partition("=") for text in options["users"]):
        users[name] = {"shares": int(_number(shares))} if shares else {}
    for name in options["default_of"]:
        users[name] = {**users.get(name, {}), "default": True}
    users |= dict.fromkeys(options["remove_user"])
    budget = {"amount": options["budget"], "period": options["period"], "over": options["over"]}
    if options["budget_of"]:
        of = options["budget_of"]
        budget["of"] = "cost" if of == "cost" else _pairs(of.split(","))
    body |= {"users": users} if users else {}
    body |= {"limits": limits_of(options["limits"])} if options["limits"] else {}
    body |= {"weights": _pairs(options["weight"])} if options["weight"] else {}
    if options["budget"] is not None:
        body["budget"] = (
            {key: value for key, value in budget.items() if value is not None} if options["budget"] else {}
        )
    elif any(value is not None for value in budget.values()):
        raise click.UsageError("--budget-of, --period and --over go with --budget")
    return body


def _pairs(texts: Iterable[str]) -> dict[str, float]:
    return {key: _number(value) for key, _, value in (text.partition("=") for text in texts)}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"expected KEY=NUMBER, got {text[:40]!r}") from None


def limits_of(texts: Iterable[str]) -> dict[str, Any]:
    """Read limits as options give them: [CLUSTER:]KEY=N."""
    limits: dict[str, Any] = {}
    for text in texts:
        where, _, limit = text.rpartition(":")
        into = limits.setdefault("clusters", {}).setdefault(where, {}) if where else limits
        into |= _pairs([limit])
    return limits


@account.command()
@click.argument("name")
@_changes
@printer.output_option
@with_tokens
def create(client: Client, name: str, output: str, **options: Any) -> None:
    """Create an account: rainbow account create bio --shares 50 --user ann --budget 1000."""
    try:
        client.account(name)
    except Problem as problem:
        if problem.status != ABSENT:
            raise
    else:
        raise Conflict(f"account {name} already exists; change it with rainbow account set")
    first = not client.accounts()
    made = client.put_account(name, _body(options))
    _show(made, output)
    if first:
        _warn_of_first(client, made)


def _warn_of_first(client: Client, made: Mapping[str, Any]) -> None:
    """Say what the first account changes, and who of those that have submitted is in none."""
    inside = {one["user"] for one in made["users"]}
    others = sorted({job["requestor"] for job in client.jobs(limit=LOOKED_AT)["jobs"]} - inside)
    named = ", ".join(others[:NAMED]) + (f" and {len(others) - NAMED} more" if len(others) > NAMED else "")
    text = (
        "this is the first account: from now on the server refuses submits of users who are in no account"
        f"{f', such as {named}' if named else ''}; admit each with rainbow account set {made['name']} --user USER; "
        "jobs that were accepted before continue"
    )
    click.echo(f"rainbow: warning: {printer.one_line(text)}", err=True)


@account.command(name="set")
@click.argument("name")
@_changes
@printer.output_option
@with_tokens
def change(client: Client, name: str, output: str, **options: Any) -> None:
    """Change what the options name of an account; of root, how usage counts."""
    if name != "root":
        client.account(name)
    _show(client.put_account(name, _body(options)), output)


@account.command()
@click.argument("name")
@printer.output_option
@with_tokens
def show(client: Client, name: str, output: str) -> None:
    """Show an account: users, limits, budget and standing."""
    _show(client.account(name), output)


@account.command()
@click.argument("name")
@with_tokens
def delete(client: Client, name: str) -> None:
    """Delete an account without active jobs; its usage stays in the record."""
    client.delete_account(name)
    click.echo(f"deleted account {name}")


@account.command(name="list")
@printer.output_option
@with_tokens
def list_accounts(client: Client, output: str) -> None:
    """List the accounts with their budgets and users."""
    result = client.accounts()
    titles = ["NAME", "PARENT", "SHARES", "BUDGET", "LEFT", "PERIOD", "USERS"]
    rows = [
        [one["name"], one["parent"], _shares(one), *_budget(one), [u["user"] for u in one["users"]]] for one in result
    ]
    printer.show(output, result, printer.table(titles, rows))


@account.command()
@printer.output_option
@with_tokens
def tree(client: Client, output: str) -> None:
    """Show the tree with shares, used parts and factors: who comes first has the highest factor."""
    result = client.accounts()
    titles = ["ACCOUNT", "USER", "SHARES", "SHARE", "USED", "HOURS", "FACTOR"]
    rows = [row for one in result for row in _branch(one)]
    printer.show(output, result, printer.table(titles, rows))


def _branch(one: Mapping[str, Any]) -> Iterable[list[Any]]:
    name = "  " * one["depth"] + one["name"]
    yield [name, "", _shares(one), *_standing(one)]
    yield from ([name, user["user"], _shares(user), *_standing(user)] for user in one["users"])


def _standing(one: Mapping[str, Any]) -> list[Any]:
    return [f"{one['share']:.1%}", f"{one['used']:.1%}", f"{one['used_hours']:.2f}", f"{one['factor']:.6f}"]


def _shares(one: Mapping[str, Any]) -> Any:
    return "parent" if one["shares"] is None else one["shares"]


def _budget(one: Mapping[str, Any]) -> list[Any]:
    budget = one["budget"]
    return [f"{budget['amount']:g}", f"{budget['left']:g}", budget["period"]] if budget else ["", "", ""]


def _show(results: Mapping[str, Any], output: str) -> None:
    hidden = ("users", "depth", "budget", "limits", "cores", "level")
    answer = {key: value for key, value in results.items() if key not in hidden}
    for part in ("budget", "limits", "cores"):
        answer |= {f"{part}.{key}": value for key, value in (results.get(part) or {}).items()}
    answer |= {f"user {one['user']}": f"factor {one['factor']:.6f}" for one in results.get("users", [])}
    printer.show(output, dict(results), printer.facts(answer))


def _rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    kinds = sorted({kind for row in results["rows"] for kind in row["hours"]})
    rows = [
        [*(row[k] for k in results["by"]), *(f"{row['hours'].get(k, 0.0):.4f}" for k in kinds)]
        for row in results["rows"]
    ]
    return [name.upper() for name in (*results["by"], *kinds)], rows


@click.command()
@click.option("--by", default="account", help="Columns: account, user, cluster, day; several with commas.")
@click.option("--since", metavar="DAY", help="First day, such as 2030-01-31; 30 days ago by default.")
@click.option("--until", metavar="DAY", help="Day after the last one.")
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV.")
@printer.output_option
@with_tokens
def usage(client: Client, by: str, since: str | None, until: str | None, as_csv: bool, output: str) -> None:
    """Show what accounts used, in hours of each type: rainbow usage --by account,user,cluster --since 2030-01-01."""
    result = client.usage(by=by, since=since, until=until)
    titles, rows = _rows(result)
    if as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([[title.lower() for title in titles], *rows])
    else:
        entries = [dict(zip(map(str.lower, titles), row, strict=True)) for row in rows]
        printer.show(output, result, printer.table(titles, rows), entries)


# ── qualities of service ──


@click.group()
def qos() -> None:
    """Qualities of service: priority, limits, exemptions, and what jobs may preempt."""


@qos.command(name="list")
@printer.output_option
@with_tokens
def list_qos(client: Client, output: str) -> None:
    """List the qualities of service."""
    result = client.qos()
    titles = ["NAME", "PRIORITY", "PREEMPTS", "HOW", "EXEMPT", "LIMITS", "USERS", "ACCOUNTS"]
    printer.show(output, result, printer.table(titles, [_quality(one) for one in result]))


def _quality(one: Mapping[str, Any]) -> list[Any]:
    how = f"{one['how']} {one['signal']} {one['grace']:g}s" if one["preempts"] else ""
    limits = [f"{key}={value}" for key, value in one["limits"].items() if key != "clusters"]
    limits += [
        f"{name}:{key}={value}"
        for name, own in one["limits"].get("clusters", {}).items()
        for key, value in own.items()
    ]
    lists = (one["preempts"], one["exempt"], limits, one["users"], one["accounts"])
    preempts, exempt, limited, users, accounts = (", ".join(values) for values in lists)
    return [one["name"], one["priority"], preempts, how, exempt, limited, users, accounts]


@qos.command(name="set")
@click.argument("name")
@click.option("--priority", type=int, help="Added to the priority of its jobs; -1023 to 1024.")
@click.option(
    "--user", "users", multiple=True, metavar="USER", help="User who may use it. Repeatable. Default: every user."
)
@click.option("--account", "accounts", multiple=True, metavar="NAME", help="Account that may use it. Repeatable.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="[CLUSTER:]KEY=N",
    help="Limit, as of rainbow account set. Replaces all limits. Repeatable.",
)
@click.option(
    "--exempt",
    multiple=True,
    type=click.Choice(["preemption", "limits", "budgets"]),
    help="What its jobs are exempt from. Repeatable.",
)
@click.option("--exempt-time", callback=duration, help="Time after its start in which a task is not preempted.")
@click.option("--preempt", "preempts", multiple=True, metavar="QOS", help="Quality it may preempt. Repeatable.")
@click.option("--how", type=click.Choice(["requeue", "cancel"]), help="What becomes of preempted jobs; requeue.")
@click.option("--signal", metavar="NAME", help="Signal that preempted tasks get first, such as USR1; TERM.")
@click.option("--grace", callback=duration, help="Time from the signal until tasks are ended; 30 s.")
@printer.output_option
@with_tokens
def change_qos(client: Client, name: str, output: str, **options: Any) -> None:
    """Create or change a quality of service: rainbow qos set urgent --priority 100 --preempt default."""
    body: dict[str, Any] = {key: list(value) for key, value in options.items() if isinstance(value, tuple) and value}
    body |= {key: value for key, value in options.items() if value is not None and not isinstance(value, tuple)}
    if "exempt_time" in body:
        body["exempt_seconds"] = body.pop("exempt_time")
    if "limits" in body:
        body["limits"] = limits_of(options["limits"])
    result = client.put_qos(name, body)
    answer = {key: ", ".join(value) if isinstance(value, list) else value for key, value in result.items()}
    printer.show(output, result, printer.facts(answer))


@qos.command(name="delete")
@click.argument("name")
@with_tokens
def delete_qos(client: Client, name: str) -> None:
    """Delete a quality of service without active jobs."""
    client.delete_qos(name)
    click.echo(f"deleted qos {name}")
