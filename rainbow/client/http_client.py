"""The client: a method for every verb of the API.

Every method raises Problem if the server refuses and Unavailable if it cannot be reached; responses.py describes the
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from rainbow.client import responses
from rainbow.client.figures import Figures
from rainbow.client.job_verbs import JobVerbs
from rainbow.client.transport import Calls, Problem, document_of, given, named, names, of_cluster, path
from rainbow.client.wait import WaitVerbs
from rainbow.errors import RequestError, TryLater
from rainbow.idempotency import new_key

if TYPE_CHECKING:
    import networkx as nx

    from rainbow.graph import Cluster
    from rainbow.jobspec import Request

    Graph = nx.DiGraph[Any] | Cluster | Mapping[str, Any] | str | bytes | PathLike[str]


Document = Mapping[str, Any]


def _pages(what: str, page: Callable[[str | None], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the entries of all pages; `page` fetches one by the cursor of the page before."""
    cursor: str | None = None
    while True:
        answer = page(cursor)
        yield from answer[what]
        cursor = answer.get("next")
        if not cursor:
            return


class Client(WaitVerbs, JobVerbs, Figures):
    """A Rainbow server, as seen with some credentials.

    `token` is one token or secret, or several: the clusters of all of them are considered together. `timeout`
    is in seconds, per try. `options` are those of calls.Calls.
    """

    def __init__(
        self, url: str, token: str | Sequence[str] | None = None, timeout: float = 30.0, **options: Any
    ) -> None:
        tokens = [token] if isinstance(token, str) else list(token or ())
        self.has_credentials = bool(tokens)
        self._calls = Calls(url, tokens, timeout, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._calls.url

    @property
    def away(self) -> Mapping[str, str]:
        """The servers behind a router that lists of this client were without, and why: such a list is not whole."""
        return self._calls.away

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    # ── clusters ────────────────────────────────────────────────────────────────────────────────────────────

    def register_cluster(
        self,
        name: str,
        graph: Graph,
        subsystems: Mapping[str, Graph] | None = None,
        state: Document | None = None,
        levels: str = "any",
        policy: Document | None = None,
        visibility: str | None = None,
    ) -> responses.Registration:
        """Register a cluster; the only answer that ever shows its token and secret.

        A graph (each subsystem, too) is a DiGraph, a `Cluster`, a document (JGF, R, or what NetworkX's
        node_link_data, adjacency_data and cytoscape_data return), its JSON as text, or the path of a file with it.
        """
        hung = {key: document_of(value) for key, value in subsystems.items()} if subsystems else None
        body = {"name": name, "graph": document_of(graph), "levels": levels}
        body |= given(subsystems=hung, state=state, policy=policy, visibility=visibility)
        return cast("responses.Registration", self._calls.call("POST", "/v1/clusters", body, keyed=True))

    def clusters(self) -> list[dict[str, Any]]:
        """List the clusters these credentials may see, by name."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", "/v1/clusters")["clusters"])

    def cluster(self, name: str) -> dict[str, Any]:
        """Show one cluster: totals, subsystems, revision."""
        return self._object("GET", of_cluster(name))

    def move_cluster(self, name: str, verb: str) -> dict[str, Any]:
        """Let a cluster take nothing new (`drain`), or take tasks again (`reinstate`)."""
        return self._object("POST", of_cluster(name) + f":{verb}")

    def delete_cluster(self, name: str, *, drain: bool = False) -> dict[str, Any]:
        """Delete a cluster; with live jobs only if `drain` says so. The answer is empty unless jobs still run."""
        return self._object("DELETE", of_cluster(name), query=given(drain="true" if drain else None), keyed=True)

    def graph(self, name: str) -> dict[str, Any]:
        """Fetch the cluster's graph as it was given."""
        return self._object("GET", of_cluster(name, "graph"))

    def put_graph(self, name: str, graph: Graph) -> dict[str, Any]:
        """Replace the cluster's graph."""
        return self._object("PUT", of_cluster(name, "graph"), document_of(graph))

    def patch_graph(
        self, cluster: str, changes: Sequence[Mapping[str, Any]], *, revision: int | None = None
    ) -> dict[str, Any]:
        """Change a cluster's graph: add, remove, set, resize; all of it or nothing; only that of a revision."""
        headers = None if revision is None else {"If-Match": f'"{revision}"'}
        body = {"changes": list(changes)}
        return self._object("PATCH", of_cluster(cluster, "graph"), body, headers=headers, keyed=True)

    def put_subsystem(self, name: str, subsystem: str, graph: Graph) -> dict[str, Any]:
        """Hang a subsystem graph on the cluster, in place of one of the same name."""
        return self._object("PUT", of_cluster(name, "subsystems", subsystem), document_of(graph))

    def delete_subsystem(self, name: str, subsystem: str) -> None:
        """Take a subsystem and its edges away."""
        self._calls.call("DELETE", of_cluster(name, "subsystems", subsystem))

    def put_state(self, name: str, state: Document) -> dict[str, Any]:
        """Replace the cluster's flat state."""
        return self._object("PUT", of_cluster(name, "state"), state)

    def change_state(self, name: str, state: Document) -> dict[str, Any]:
        """Replace some variables of the cluster's state, remove those that are None; the others stay."""
        return self._object("PATCH", of_cluster(name, "state"), state)

    def state(self, name: str) -> dict[str, Any]:
        """Show the cluster's state."""
        return self._object("GET", of_cluster(name, "state"))

    def move_worker(self, name: str, worker: str, verb: str) -> dict[str, Any]:
        """Take a worker away (`offline`), let it finish its tasks (`drain`), or bring it back (`reinstate`)."""
        return self._object("POST", of_cluster(name, "workers", worker) + f":{verb}")

    def scheduler(self, name: str) -> dict[str, Any]:
        """Show the cluster's policy, its settings and figures."""
        return self._object("GET", of_cluster(name, "scheduler"))

    def set_scheduler(self, name: str, change: Document) -> dict[str, Any]:
        """Change the cluster's policy, settings, limits or visibility, key by key; null brings a default back."""
        return self._object("PATCH", of_cluster(name, "scheduler"), change)

    def scheduler_changes(self, name: str) -> list[dict[str, Any]]:
        """List the changes of the scheduling with user, time, old and new value; the newest first."""
        answer = self._calls.call("GET", of_cluster(name, "scheduler", "changes"))
        return cast("list[dict[str, Any]]", answer["changes"])

    def step(self, name: str) -> dict[str, Any]:
        """Take one step of the cluster's scheduling now."""
        return self._object("POST", of_cluster(name, "step"))

    def plan(self, name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of the next step, with other `jobs`, `settings` and `workers` if they are given."""
        return self._object("POST", of_cluster(name, "plan"), options)

    # ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        jobspec: str | Document | Request,
        name: str | None = None,
        requestor: str | None = None,
        selector: Document | None = None,
        clusters: Sequence[str | Document] | None = None,
        idempotency_key: str | None = None,
        basis: str | None = None,
        tag: str | None = None,
        *,
        queue: bool | None = None,
        backend: str | None = None,
        login: str | None = None,
        account: str | None = None,
    ) -> responses.Submission:
        """Submit a jobspec (YAML or JSON text, a mapping, or a Request); sent twice under one key, it is one job.

        A job with a basis takes the place of the requestor's live jobs of that basis with another tag.

        `login`: whom the job is for where neither `requestor` nor the token says it; nobody: "anonymous".

        `account`: who pays for it; None: as the jobspec says, else the requestor's default.

        `queue`: let it wait, UNPLACED, where clusters match and none takes it now; None: as the server is set.

        Without a key one is made for this call, so that a try repeated over a broken connection is harmless.
        """
        body: dict[str, Any] = {"jobspec": jobspec}
        body |= given(name=name, requestor=requestor, selector=selector, clusters=named(clusters))
        body |= given(basis=basis, tag=tag, queue=queue, backend=backend, login=login, account=account)
        headers = {"Idempotency-Key": idempotency_key or new_key()}
        return cast("responses.Submission", self._calls.call("POST", "/v1/jobs", body, headers=headers))

    def submit_batch(
        self,
        jobs: Sequence[Document],
        minimise: str | None = None,
        selector: Document | None = None,
        time_limit: float | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Submit many jobs ({"jobspec", ...} each): {"answers", "assign"}; each has its own answer with a `status`.

        `minimise` names a variable of the priorities: the jobs are placed so that it sums to the least.
        """
        if isinstance(jobs, str | Mapping) or not isinstance(jobs, Sequence):
            raise RequestError(f"jobs is a list of {{jobspec, ...}}, got {jobs!r:.80}")
        body: dict[str, Any] = {"jobs": list(jobs), "assign": "optimal" if minimise else "greedy"}
        body |= given(minimise=minimise, selector=selector, time_limit=time_limit)
        headers = {"Idempotency-Key": idempotency_key or new_key()}
        return self._object("POST", "/v1/jobs:batch", body, headers=headers, patience=time_limit or 2.0)

    def match(
        self,
        jobspec: str | Document | Request,
        selector: Document | None = None,
        clusters: Sequence[str | Document] | None = None,
        *,
        explain: bool = False,
        certificate: bool = False,
        backend: str | None = None,
        login: str | None = None,
    ) -> responses.Match:
        """Ask which clusters could run a jobspec; nothing is stored. `login`: whose it would be, for sites.

        `explain`: each with an `explanation`; `certificate`: each yes with its rows, each no with its refutation.
        """
        body: dict[str, Any] = {"jobspec": jobspec} | given(selector=selector, clusters=named(clusters), login=login)
        body |= given(explain=explain or None, certificate=certificate or None, backend=backend)
        return cast("responses.Match", self._calls.call("POST", "/v1/match", body))

    def jobs(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        summary: bool = False,
        tasks: bool = False,
        **where: Any,
    ) -> dict[str, Any]:
        """Return one page of jobs, the newest first: {"jobs", "next"}; `next` is the cursor of the page after.

        `where` are filters, joined by "and", each one text or several: number, id, site, name (with * and ?), user,
        state, cluster, account, reason, since, until. `summary`: each with how far its tasks have come: {"counts",
        "started_at", "exit_code", "workers"}; `tasks`: each with its tasks.
        """
        query: dict[str, Any] = {**where, "limit": limit, "cursor": cursor}
        query |= given(summary="true" if summary else None, tasks="true" if tasks else None)
        return self._object("GET", "/v1/jobs", query=query)

    def all_jobs(self, *, summary: bool = False, tasks: bool = False, **where: Any) -> Iterator[dict[str, Any]]:
        """Yield all jobs, page after page, the newest first; `where` as of `jobs`, `state` may have commas."""
        yield from _pages("jobs", lambda cursor: self.jobs(cursor=cursor, summary=summary, tasks=tasks, **where))

    def job(self, job_id: str, *, limit: int | None = None, after: int | None = None) -> dict[str, Any]:
        """Show a job and its tasks: all of them, read page by page, or `limit` tasks after an index.

        `counts` says how many tasks are in which state; `next`, if not None, is the index after which there are more.
        """
        results = self._object("GET", self._job(job_id), query=given(limit=limit, after=after))
        return results if limit is not None or after is not None else self._whole(results)

    def eta(self, job_id: str) -> dict[str, Any]:
        """Return a job's expected start and end with a band, and the jobs ahead of it."""
        return self._object("GET", self._job(job_id, "eta"))

    def eta_of(
        self,
        jobspec: str | Document | Request,
        *,
        name: str | None = None,
        requestor: str | None = None,
        clusters: Sequence[str | Document] | None = None,
        login: str | None = None,
    ) -> dict[str, Any]:
        """Say when a jobspec would start and end on each cluster that could run it; nothing is submitted."""
        body = {"jobspec": jobspec} | given(name=name, requestor=requestor, clusters=named(clusters), login=login)
        return self._object("POST", "/v1/eta", body)

    def certificate(self, job_id: str, task: int | None = None) -> dict[str, Any]:
        """Show the rows that prove a start, of this task or of the first; NotFound where there are none."""
        return self._object("GET", path("jobs", job_id, "certificate"), query=given(task=task))

    def why(self, job_id: str, *, verify: bool = False) -> dict[str, Any]:
        """Show the whole decision: match, selection steps, why it waits; `verify`: can it ever run, and now."""
        return self._object("GET", self._job(job_id, "why"), query=given(verify="true" if verify else None))

    def replay(self, job_id: str) -> dict[str, Any]:
        """Have a job's selection taken again: {"equal", "selection", "replayed", "digests", ...}."""
        return self._object("GET", self._job(job_id, "replay"))

    def all_decisions(self, *, cluster: str | None = None, matched: Collection[str] = ()) -> Iterator[dict[str, Any]]:
        """Yield the inputs of recorded decisions, the newest first; for the admin.

        `matched`: variables of a match (`fits`, `nodes`) worked out again where a decision has not read them.
        """
        query = {"cluster": cluster, "matched": ",".join(matched) or None}
        yield from self._listed("decisions", query)

    def all_audit(self, **chosen: str | None) -> Iterator[dict[str, Any]]:
        """Yield changes with their callers, the newest first; for the admin, and for owners of their clusters.

        `chosen`: `job`, `credential`, and `since` and `until`, times as 2030-01-31T12:00:00Z.
        """
        yield from self._listed("audit", given(**chosen))

    def _listed(self, what: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        return _pages(what, lambda cursor: self._object("GET", f"/v1/{what}", query={**query, "cursor": cursor}))

    def reserve(
        self,
        cluster: str,
        jobspec: str | Mapping[str, Any],
        *,
        start: str | None = None,
        end: str | None = None,
        duration: float | None = None,
        requestor: str | None = None,
        requestors: Sequence[str] | None = None,
        name: str | None = None,
        login: str | None = None,
    ) -> dict[str, Any]:
        """Keep space for a jobspec's resources from `start` (RFC 3339) or soon after; `login` as of `submit`."""
        body = {"jobspec": jobspec} | given(start=start, end=end, duration=duration, requestor=requestor, name=name)
        body |= given(requestors=names(requestors), login=login)
        return self._object("POST", of_cluster(cluster, "reservations"), body, keyed=True)

    def maintain(
        self, cluster: str, workers: str | Sequence[str], *, preview: bool = False, **when: str | float | None
    ) -> dict[str, Any]:
        """Keep workers free for a time; `when` is as in `reserve`; `preview` lists the jobs in the way.

        `at_begin="requeue"` or `"cancel"` ends what still runs there then; without it, tasks run on.
        """
        body = {"workers": workers if isinstance(workers, str) else list(workers)} | given(**when)
        query = given(preview="true" if preview else None)
        return self._object("POST", of_cluster(cluster, "reservations"), body, query=query, keyed=not preview)

    def reservations(self, cluster: str, *, over: bool = False) -> list[dict[str, Any]]:
        """List a cluster's reservations one may see, the first to start first; `over`: those that are over too."""
        query = given(over="true" if over else None)
        result = self._calls.call("GET", of_cluster(cluster, "reservations"), query=query)
        return cast("list[dict[str, Any]]", result["reservations"])

    def reservation(self, cluster: str, reservation_id: str) -> dict[str, Any]:
        """Show one."""
        return self._object("GET", of_cluster(cluster, "reservations", reservation_id))

    def delete_reservation(self, cluster: str, reservation_id: str) -> None:
        """End one now; the jobs that name it end with it."""
        self._calls.call("DELETE", of_cluster(cluster, "reservations", reservation_id))

    def mint_token(
        self,
        clusters: Sequence[str] = (),
        *,
        requestors: Sequence[str] | None = None,
        accounts: Sequence[str] | None = None,
        expires_at: str | None = None,
        name: str | None = None,
        monitor: bool = False,
    ) -> dict[str, Any]:
        """Mint a submit token, or (monitor) one that reads /metrics; the only answer that ever shows it."""
        good_for = {"monitor": True} if monitor else {"clusters": names(clusters)}
        body = {**good_for, "requestors": names(requestors), "expires_at": expires_at, "name": name}
        body |= given(accounts=names(accounts))
        return self._object("POST", path("tokens"), body, keyed=True)

    def accounts(self) -> list[dict[str, Any]]:
        """List the accounts in the order of the tree, with shares, usage, factors and budgets."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", path("accounts"))["accounts"])

    def account(self, name: str) -> dict[str, Any]:
        """Show an account with its users."""
        return self._object("GET", path("accounts", name))

    def put_account(self, name: str, body: Document) -> dict[str, Any]:
        """Create an account, or change the named fields: parent, shares, limits, budget, users; of root rules."""
        return self._object("PUT", path("accounts", name), body)

    def delete_account(self, name: str) -> None:
        """Delete an account without active jobs."""
        self._calls.call("DELETE", path("accounts", name))

    def qos(self) -> list[dict[str, Any]]:
        """List the qualities of service."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", path("qos"))["qos"])

    def put_qos(self, name: str, body: Document) -> dict[str, Any]:
        """Create a quality of service, or change the fields that are named."""
        return self._object("PUT", path("qos", name), body)

    def delete_qos(self, name: str) -> None:
        """Delete a quality of service without active jobs."""
        self._calls.call("DELETE", path("qos", name))

    def usage(self, *, by: str = "account", since: str | None = None, until: str | None = None) -> dict[str, Any]:
        """Sum usage by these columns, in hours of each type; days are such as 2030-01-31."""
        return cast(
            "dict[str, Any]",
            self._calls.call("GET", path("usage"), query=given(by=by, since=since, until=until)),
        )

    def tokens(self) -> list[dict[str, Any]]:
        """List the tokens and secrets of one's clusters, the oldest first."""
        return cast("list[dict[str, Any]]", self._calls.call("GET", path("tokens"))["tokens"])

    def rotate_token(self, token_id: str) -> dict[str, Any]:
        """Give a token or secret a new value; the only answer that ever shows it."""
        return self._object("POST", path("tokens", token_id) + ":rotate", keyed=True)

    def revoke_token(self, token_id: str) -> None:
        """End a token now."""
        self._calls.call("DELETE", path("tokens", token_id))

    # ── what an agent says and hears ────────────────────────────────────────────────────────────────────────
    def receive(self, name: str, agent: str, max: int = 16, wait: float = 20.0) -> responses.Received:
        """Wait up to `wait` seconds for tasks to run, at most `max` of them, or to stop."""
        body = {"agent": agent, "max": max, "wait": wait}
        return cast("responses.Received", self._calls.call("POST", of_cluster(name, "receive"), body, patience=wait))

    def accept(
        self, name: str, agent: str, tasks: Sequence[responses.RunRef], *, seq: int | None = None
    ) -> responses.Accepted:
        """Accept offered tasks; only those answered as accepted may be started."""
        body = {"agent": agent, "tasks": tasks} | given(seq=seq)
        return cast("responses.Accepted", self._calls.call("POST", of_cluster(name, "accept"), body))

    def events(
        self, name: str, agent: str, events: Sequence[responses.Event], *, seq: int | None = None
    ) -> responses.Recorded:
        """Report the events of tasks, in order."""
        body = {"agent": agent, "events": events} | given(seq=seq)
        return cast("responses.Recorded", self._calls.call("POST", of_cluster(name, "events"), body))

    def heartbeat(
        self,
        name: str,
        agent: str,
        running: Sequence[responses.RunRef] = (),
        workers: Sequence[str] | None = None,
        *,
        seq: int | None = None,
        load: Mapping[str, float] | None = None,
        on_lost_server: str | None = None,
        checks: bool | None = None,
    ) -> responses.Beat:
        """Report that the agent lives, its runs, the workers that are up (None: all), and their load if measured.

        `on_lost_server`: "keep" if its tasks continue when it loses the server. `checks`: it asks its site.
        """
        body = {"agent": agent, "workers": workers, "running": list(running)}
        body |= given(seq=seq, load=load, on_lost_server=on_lost_server, checks=checks)
        return cast("responses.Beat", self._calls.call("POST", of_cluster(name, "heartbeat"), body))

    def ready(self) -> bool:
        """Return whether the server is there and can serve."""
        try:
            self._calls.call("GET", "/readyz", tries=1)
        except (TryLater, Problem):
            return False
        return True

    def version(self) -> dict[str, Any]:
        """Show the versions of the server, its API and the schema of its store: {"server", "api", "schema"}."""
        return self._object("GET", path("version"))

    def reload_config(self) -> dict[str, Any]:
        """Let the server check its configuration file and take it over; needs the admin token."""
        return self._object("POST", path("config") + ":reload")

    def _object(self, verb: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        return cast("dict[str, Any]", self._calls.call(verb, path, body, **more) or {})
