"""What accounts allow a new job: which account pays, its limits, and what its budgets hold for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from rainbow.accounts.budget import HOUR, LOWEST, Budget, limit_of, read_budget
from rainbow.accounts.tree import Account, Tree
from rainbow.accounts.usage import NODE, used
from rainbow.errors import Forbidden, JobspecError, OverBudget, TooMany
from rainbow.scheduling.qos import BUDGETS, LIMITS, Qos
from rainbow.scheduling.snapshot import BEHIND_ALL
from rainbow.service.accounts.account_cache import qos_of, qos_table, tree_of
from rainbow.service.core.memory import Table, age
from rainbow.store import cluster_states
from rainbow.store.accounts import charges
from rainbow.store.accounts.charges import Balance

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching import Verdict
    from rainbow.service.core.access import Caller
    from rainbow.service.core.service import Service
    from rainbow.service.jobs.jobspecs import Reading
    from rainbow.store.jobs import JobRecord

PRICE = "cost_per_node_hour"
READ = 60.0  # seconds until a price is read again
AT = "/attributes/system/account"


def asked_account(request: Request) -> str | None:
    """Return the account a jobspec names: `account`, Flux's `bank`, or the one for a Slurm."""
    system, site = request.attributes.get("system") or {}, request.attributes.get("site") or {}
    slurm = site.get("slurm") or {}
    result = system.get("account") or system.get("bank") or slurm.get("account")
    if result is not None and not isinstance(result, str):
        raise JobspecError(f"account must be a name, got {result!r:.40}", pointer=AT)
    return result or None


def account_of(
    service: Service, connection: sa.Connection, who: Caller, requestor: str, request: Request, named: str | None
) -> str:
    """Return the account that pays for a job, "" where there are no accounts; Forbidden says which ones may."""
    tree = tree_of(service, connection)
    if not tree.accounts:
        return ""
    result = tree.account_of(requestor, named or asked_account(request))
    if who.accounts is not None and result not in who.accounts:
        allowed = ", ".join(sorted(who.accounts)) or "none"
        raise Forbidden(f"this token does not allow account {result}; it allows: {allowed}")
    return result


def rights_of(
    service: Service, connection: sa.Connection, who: Caller, requestor: str, request: Request, named: str | None
) -> dict[str, Any]:
    """Return the account, quality of service and priority of a new job."""
    account = account_of(service, connection, who, requestor, request, named)
    qos = qos_of(service, connection, requestor, account, request)
    return {"account": account, "qos": qos.name if qos else "", "priority": qos.priority if qos else 0}


class Matched(Protocol):
    """What matching found."""

    @property
    def reach(self) -> Any:
        """The compiled clusters."""

    def verdict(self, cluster: str) -> Verdict:
        """Return what it found of one."""


def admit(
    service: Service,
    connection: sa.Connection,
    record: JobRecord,
    reading: Reading,
    result: Matched,
    retries: int,
) -> tuple[JobRecord, Holding | None]:
    """Check the limits of a job's account; return the job, perhaps behind all others, and what is held for it."""
    qos = qos_table(service, connection).get(record.qos)
    if qos is not None:
        _check_qos(connection, qos, record, reading.request)
    if not record.account:
        return record, None
    totals, cluster = result.verdict(record.cluster).totals, result.reach.entry(record.cluster).cluster
    tree = tree_of(service, connection)
    line = tree.line(record.account)
    for account in () if qos and LIMITS in qos.exempt else line:
        _check_limits(connection, tree, account, record, reading.request)
    record = replace(record, rate=_rate(service, connection, record, cluster))
    budgets = {one.name: budget for one in line if (budget := read_budget(one.budget))}
    if not budgets or (qos and BUDGETS in qos.exempt):
        return record, None
    tasks, now = sum(len(gang.tasks) for gang in reading.gangs), service.clock()
    most = most_used(reading, totals, record, retries, budgets)
    held = {name: (budget, budget.at(now), budget.spent(most)) for name, budget in budgets.items()}
    holding = Holding(held, tasks)
    return (record, holding) if holding.take(connection) else (replace(record, priority=BEHIND_ALL), None)


@dataclass(frozen=True, slots=True)
class Holding:
    """What is held for a job of some tasks: {account: (budget, period, amount)}."""

    held: Mapping[str, tuple[Budget, str, float]]
    tasks: int

    def take(self, connection: sa.Connection) -> bool:
        """Hold it; return whether every budget has enough left. OverBudget where one that has not refuses the job."""
        taken: list[str] = []
        for name, (budget, period, amount) in self.held.items():
            if charges.take(connection, name, period, amount, budget.amount):
                taken.append(name)
                continue
            if budget.over != LOWEST:  # what was taken before is undone with the job
                raise _over(name, budget, charges.balance(connection, name, period), amount, period)
            for other in taken:
                charges.give_up(connection, other, *self.held[other][1:])
            return False
        return True

    def write(self, connection: sa.Connection, record: JobRecord) -> None:
        """Note it beside the job."""
        charges.keep(connection, record.id, self.tasks, self.held)


def _over(name: str, budget: Budget, there: Balance, wants: float, period: str) -> OverBudget:
    remaining = budget.amount - there.held - there.charged
    active = f", {there.held:g} of it held by active jobs" if there.held else ""
    text = f"account {name} has {max(0.0, remaining):g} of {budget.amount:g} left of {period}{active}"
    return OverBudget(f"{text}; this job can cost {wants:g}", account=name, left=remaining, wanted=wants)


def _check_limits(
    connection: sa.Connection, tree: Tree, account: Account, record: JobRecord, request: Request
) -> None:
    if not account.limits:
        return
    below = [account.name, *(one.name for _, one in tree.walk(account.name))]

    def active(cluster: str | None) -> int:
        return charges.active_jobs(connection, below, cluster)

    _hold_to(account.limits, ("account", account.name), active, record, request)


def _check_qos(connection: sa.Connection, qos: Qos, record: JobRecord, request: Request) -> None:
    def active(cluster: str | None) -> int:
        return charges.active_of_qos(connection, qos.name, cluster)

    _hold_to(qos.limits, ("qos", qos.name), active, record, request)


def _hold_to(
    limits: Mapping[str, Any],
    of: tuple[str, str],
    active: Callable[[str | None], int],
    record: JobRecord,
    request: Request,
) -> None:
    """Refuse a job that is longer than allowed, or one too many; `of`: account or qos, and its name."""
    kind, name = of
    for cluster in (None, record.cluster) if limits else ():
        longest, most = (limit_of(limits, key, cluster) for key in ("duration", "active_jobs"))
        where = f" on {cluster}" if cluster else ""
        if longest is not None and not 0 < request.duration <= longest:
            query = f"asks for {request.duration:g} s" if request.duration else "has no time limit"
            text = f"{kind} {name} allows {longest:g} s a job{where}, and this one {query}; use --time"
            raise OverBudget(text, **{kind: name}, limit="duration")
        if most is not None and (there := active(cluster)) >= most:
            text = f"{kind} {name} has {there} active jobs{where}, the limit is {most:g}"
            raise TooMany(text, retry_after=30, limit="active_jobs", **{kind: name})


class Prices(Table[str, list[Any]], name="prices", most=4_096, valid=age(READ), key="cluster, for a minute"):
    """What an hour of a node costs, by cluster id, as its state says it."""


def _rate(service: Service, connection: sa.Connection, record: JobRecord, cluster: Cluster) -> float:
    """Return the price of a core second: what a node's hour costs, divided by its cores; as of the last minute."""
    known, now = service.state(Prices), service.clock()
    said = known.get(record.cluster_id, now)
    if said is None:
        state = cluster_states.get(connection, [record.cluster_id]).get(record.cluster_id)
        said = known.put(record.cluster_id, [state.values.get(PRICE) if state else None], now)
    [price] = said
    cores, nodes = cluster.totals.get("core", 0), cluster.worker_count
    if not isinstance(price, (int, float)) or isinstance(price, bool) or not cores or not nodes:
        return 0.0
    return float(price) * nodes / cores / HOUR


def most_used(
    reading: Reading, totals: Mapping[str, int], record: JobRecord, retries: int, budgets: Collection[str]
) -> dict[str, float]:
    """Return the most a job can use by type; JobspecError without a time limit: it could be any."""
    request = reading.request
    if not request.duration:
        text = (
            f"account {min(budgets)} has a budget, and a job that has no time limit can cost any amount; use --time"
        )
        raise JobspecError(text, pointer="/attributes/system/duration")
    whole = {**totals, "core": totals.get("cores", 0), "gpu": totals.get("gpus", 0), NODE: totals.get("nodes", 0)}
    seconds = request.duration * (1 + retries) * len(reading.gangs)
    return used({kind: float(amount) for kind, amount in whole.items()}, seconds, record.rate)
