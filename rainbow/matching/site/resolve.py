"""A request on one cluster → the plain requests to try there in order, or why not.

admissions   the queues that may have it (queues.py)
known        licenses, accounts, hosts, models: what the site lists is held against the request
unknown      words that the graph does not have: without them a yes is undecided
spread       what nodes give together (spread.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rainbow.jobspec import Constraint
from rainbow.jobspec.handover import model_of
from rainbow.jobspec.request import CONTAINMENT
from rainbow.matching.equivalence.cluster_class import ClusterClass, cluster_class_of
from rainbow.matching.equivalence.query import names_in
from rainbow.matching.equivalence.subtree_classes import SubtreeClass, classify, root_of
from rainbow.matching.model.conditions import OF_CHOICE, Rule, conjuncts, in_words
from rainbow.matching.model.verdict import Reason, Why
from rainbow.matching.site.capacity import Capacity, NodeRequest
from rainbow.matching.site.queues import Admission, admissions, called
from rainbow.matching.site.spread import TooManyWaysError, at_least, spread
from rainbow.text import in_time, meant, some

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.graph.site import Site
    from rainbow.jobspec import Request, Resource
    from rainbow.matching.model.layout import Pools

MOST_WAYS = 64


@dataclass(frozen=True)
class Way:
    """A plain request to try; `unknown` says what would make its yes undecided."""

    request: Request | None  # None: too little for it, `reason` says why
    queue: str = ""
    shown: str = ""  # the queue as people see it
    unknown: tuple[str, ...] = ()
    reason: Reason | None = None
    least: Request | None = None  # of what is too little: a plain request for less than was asked


def is_plain(request: Request, cluster: Cluster) -> bool:
    """Return whether a cluster answers a request as it is: neither says anything of the other's words."""
    return request.settled or (cluster.site is None and not asks_site(request))


def asks_site(request: Request) -> bool:
    """Return whether a request says something that is settled for each cluster."""
    words = request.queues or request.licenses or request.clusters or request.account or request.qos
    return bool(
        words or request.reservation or request.is_spread or _asks_model(request) or _asks_nodes(request.constraint)
    )


def _asks_model(request: Request) -> bool:
    return any(
        need.subsystem == CONTAINMENT
        for forest in request.variants
        for tree in forest
        for part in tree.walk()
        for need in part.needs
    )


def _asks_nodes(constraint: Constraint | None) -> bool:
    """Return whether a constraint says something of amounts, or of the chosen nodes together."""
    if constraint is None:
        return False
    own = constraint.operator in ("at_least", *OF_CHOICE)
    return own or any(map(_asks_nodes, constraint.operands))


def resolve(request: Request, cluster: Cluster, *, own_queues: bool = False) -> tuple[Way, ...]:
    """Return the ways in which a cluster may run a request, the first choice first.

    Each is a request without words of sites; at least one is returned, with a reason where the site refuses the job.
    `own_queues`: the cluster's policy has queues of its own, and judges what the graph does not name.
    """
    site = cluster.site
    if own_queues:
        listed = (site.queues if site else None) or {}
        request = replace(request, queues=tuple(name for name in request.queues if name in listed))
    if refusal := _refusal(request, cluster):
        return (Way(None, reason=refusal),)
    results = admissions(request, site, cluster.worker_type)
    if isinstance(results, Reason):
        return (Way(None, reason=results),)
    rooted = cluster_class_of(cluster, root_of(cluster))
    if refusal := _of_models(request, rooted):
        return (Way(None, reason=refusal),)
    request, unknown = _with_known(request, rooted, site)
    unknown = (*unknown, *_unknown(request, site))
    ways = [_way(one, admission, unknown, cluster, rooted) for admission in results for one in _of_same(request)]
    return tuple(ways[:MOST_WAYS])


def _way(
    request: Request, admission: Admission, unknown: tuple[str, ...], cluster: Cluster, rooted: ClusterClass
) -> Way:
    queue = admission.queue
    shown = called(queue, cluster.site) if queue and cluster.site else ""
    name = queue.name if queue else ""
    unknown = (*admission.unknown, *unknown)
    constraint, counts = _without_choice(_and(request.constraint, admission.requires))
    bare = replace(
        request,
        constraint=constraint,
        queues=(),
        licenses={},
        clusters=(),
        account="",
        qos="",
        reservation="",
        settled=True,
    )
    most = queue.nodes[1] if queue else None
    whole = bool(queue and queue.whole_nodes)
    if not (request.is_spread or counts or most is not None or whole):
        return Way(bare, name, shown, unknown)
    workers = _eligible(constraint, cluster, rooted)
    try:
        made = (spread(forest, rooted, workers, counts, most) for forest in bare.variants)
        variants = tuple(forest for forest in made if forest is not None)
    except TooManyWaysError:
        text = "the ways to spread the job over nodes are more than are tried"
        return Way(None, name, shown, unknown, Reason(Why.UNDECIDED, text))
    if not variants:
        least = replace(bare, variants=tuple(at_least(forest, rooted, workers) for forest in bare.variants))
        return Way(None, name, shown, unknown, _too_few(bare, constraint, workers, cluster, rooted, most), least)
    return Way(replace(bare, variants=variants), name, shown, unknown)


def _too_few(
    request: Request,
    constraint: Constraint | None,
    workers: Mapping[SubtreeClass, int],
    cluster: Cluster,
    rooted: ClusterClass,
    most: int | None,
) -> Reason:
    """Say what no node has of what is asked, or else that the nodes do not have it together."""
    passing, every = sum(workers.values()), some(cluster.worker_count, cluster.worker_type)
    if constraint and not passing:
        text = f"none of {every} satisfies the constraint: {in_words(constraint)}"
        return Reason(Why.VERTEX_TOO_SMALL, text[:LONGEST], cluster.worker_type, None, 0)
    among = every if passing == cluster.worker_count else f"the {passing} of {every} that satisfy the constraint"
    parts = list(
        {_in_words(part): part for tree in request.resources for part in tree.walk() if not part.children}.items()
    )
    for words, part in parts:
        if part.within != "job" and not any(_has(kind, part, rooted.pools) for kind in workers):
            text = f"0 of {some(passing, cluster.worker_type)} have {words}"
            return Reason(Why.VERTEX_TOO_SMALL, text[:LONGEST], part.type, part.count.min, 0)
    limit = f" ({most} at most for a job)" if most is not None else ""
    query = ", ".join(words for words, _ in parts) + " together" * (len(parts) > 1)
    text = f"{among}{limit} cannot give {query} as often as requested"
    return Reason(Why.VERTEX_TOO_SMALL, text[:LONGEST], cluster.worker_type, None, passing)


def _has(kind: SubtreeClass, part: Resource, pools: Pools) -> bool:
    """Return whether a node of a kind has what one slot, or the node, is asked for of one part."""
    return Capacity(NodeRequest(part, None, 0, (part,), ()), kind, pools).fits((0,))


LONGEST = 300  # characters of a reason


def _in_words(part: Resource) -> str:
    model = model_of(part)
    model = f" with model {model}" if model else ""
    unit = f" ({part.unit})" if part.unit else ""
    return f"{part.count.min} {'cpu' if part.cpus else part.type}{unit}{model}"


def _and(constraint: Constraint | None, properties: tuple[str, ...]) -> Constraint | None:
    if not properties:
        return constraint
    own = Constraint("properties", properties)
    return own if constraint is None else Constraint("and", operands=(own, constraint))


def _without_choice(constraint: Constraint | None) -> tuple[Constraint | None, dict[str, int]]:
    """Return a constraint on single nodes, and how many of the chosen ones must have which property."""
    if constraint is None:
        return None, {}
    parts = list(conjuncts(constraint))
    counts = [part for part in parts if part.operator == "counts"]
    if not counts:
        return constraint, {}
    rest = tuple(part for part in parts if part.operator != "counts")
    least = {}
    for text in (text for part in counts for text in part.values):
        name, _, number = text.rpartition("=")
        least[name] = int(number)
    return (None if not rest else rest[0] if len(rest) == 1 else Constraint("and", operands=rest)), least


def _of_same(request: Request) -> Iterator[Request]:
    """Yield the request once for each property that all its nodes may have alike."""
    parts = list(conjuncts(request.constraint)) if request.constraint else []
    same = next((part for part in parts if part.operator == "same"), None)
    if same is None:
        yield request
        return
    rest = [part for part in parts if part is not same]
    for value in same.values:
        own = Constraint("properties", (value,))
        yield replace(request, constraint=Constraint("and", operands=(own, *rest)) if rest else own)


def _eligible(constraint: Constraint | None, cluster: Cluster, rooted: ClusterClass) -> dict[SubtreeClass, int]:
    """Return how many workers of each kind pass, those with most cores first."""
    rule = Rule(constraint) if constraint else None
    workers = {kind: many for kind, many in rooted.many.items() if rooted.is_worker(kind)}
    if rule is None:
        results = workers
    elif not rule.named:
        results = {kind: many for kind, many in workers.items() if rule.passes(kind.facts)}
    else:
        kinds, names = classify(cluster)[0], names_in(cluster)
        results = {}
        for (entry, _), facts in names.facts.items():
            if rule.passes(facts):
                results[kinds[entry]] = results.get(kinds[entry], 0) + 1
    return dict(sorted(results.items(), key=lambda item: item[0].number))


# ── what a site lists ──


def _refusal(request: Request, cluster: Cluster) -> Reason | None:
    """Return why a site refuses a request whatever its nodes are, None if it does not."""
    site = cluster.site
    if request.clusters and cluster.name not in request.clusters:
        return Reason(Why.NOT_AMONG, f"only {', '.join(request.clusters)[:200]} may have the job", "cluster")
    if site is None:
        return None
    if site.accounts is not None and request.account and request.account not in site.accounts:
        return Reason(Why.QUEUE_UNMET, f"the cluster has no account {request.account:.60}", "account")
    of_hosts = _of_hosts(request, cluster) if site.queues is not None and request.constraint else None
    return _of_licenses(request, site) or _of_qos(request, site) or of_hosts


def _of_licenses(request: Request, site: Site) -> Reason | None:
    for name, count in request.licenses.items():
        if site.licenses is None:
            return None
        if name not in site.licenses:
            hint = meant(name, site.licenses)
            text = f"the cluster has no license {name:.60}" + (hint and f"; {hint}")
            return Reason(Why.LICENSE_UNMET, text, name, count, 0)
        if (there := site.licenses[name].count) < count:
            text = f"{some(count, 'license')} {name} requested, the cluster has {there}"
            return Reason(Why.LICENSE_UNMET, text, name, count, there)
    return None


def _of_qos(request: Request, site: Site) -> Reason | None:
    if site.qos is None or not request.qos:
        return None
    if request.qos not in site.qos:
        return Reason(Why.QUEUE_UNMET, f"the cluster has no quality of service {request.qos:.60}", "qos")
    limit, duration = site.qos[request.qos], request.shortest or request.duration
    if limit is None or duration <= limit:
        return None
    text = f"{in_time(duration)} requested, quality of service {request.qos} allows {in_time(limit)}"
    return Reason(Why.QUEUE_UNMET, text, "qos")


def _of_models(request: Request, rooted: ClusterClass) -> Reason | None:
    """Refuse a model that no vertex of a type is of, where the graph names the model of each."""
    reasons = [_of_model(part, rooted) for forest in request.variants for tree in forest for part in tree.walk()]
    return next(filter(None, reasons), None) if len(request.variants) == 1 else None


def _of_model(part: Resource, rooted: ClusterClass) -> Reason | None:
    models = rooted.models.get(part.type)
    if not (model := model_of(part)) or not models or "" in models or model in models:
        return None
    text = f"no {part.type} has model {model:.60}; models here: {', '.join(sorted(models))[:200]}"
    return Reason(Why.TYPE_MISSING, text, part.type, part.count.min, 0)


def _of_hosts(request: Request, cluster: Cluster) -> Reason | None:
    """Refuse the name of a host that a site does not have, as its resource manager does."""
    names = (
        {name for name in Rule(request.constraint).named if isinstance(name, str)} if request.constraint else set()
    )
    if missing := sorted(name for name in names if name not in cluster.workers):
        hint = meant(missing[0], cluster.workers) if len(cluster.workers) < 1_000 else ""
        text = f"the cluster has no node {missing[0]:.60}" + (hint and f"; {hint}")
        return Reason(Why.CONSTRAINT_UNMET, text, "constraint")
    return None


def _unknown(request: Request, site: Site | None) -> Iterator[str]:
    """Yield what a request says and the graph has no word for."""
    if request.licenses and (site is None or site.licenses is None):
        yield f"licenses {', '.join(request.licenses)}: the graph lists no licenses"
    if site is not None and site.queues:
        if request.account and site.accounts is None:
            yield f"account {request.account:.60}: the graph lists no accounts"
        if request.qos and site.qos is None:
            yield f"quality of service {request.qos:.60}: the graph lists none"
        if request.reservation:
            yield f"reservation {request.reservation:.60}: the graph lists none"


def _with_known(request: Request, rooted: ClusterClass, site: Site | None) -> tuple[Request, tuple[str, ...]]:
    """Return a request without what the graph has no word for, and what that is."""
    unknown: dict[str, None] = {}

    def known(part: Resource) -> Resource:
        inside = tuple(map(known, part.children))
        model = model_of(part)
        if model and rooted.models.get(part.type) == {""}:
            unknown[f"{part.type} with model {model:.60}: the graph names no model of a {part.type}"] = None
            return replace(part, children=inside, needs=tuple(n for n in part.needs if n.subsystem != CONTAINMENT))
        return replace(part, children=inside) if inside != part.children else part

    variants = tuple(tuple(map(known, forest)) for forest in request.variants)
    constraint = request.constraint
    if constraint and site is None:
        constraint = _known_facts(constraint, rooted, unknown)
    if not unknown:
        return request, ()
    return replace(request, variants=variants, constraint=constraint), tuple(unknown)


def _known_facts(constraint: Constraint, rooted: ClusterClass, unknown: dict[str, None]) -> Constraint | None:
    """Return the constraint without facts that no node of a graph tells."""
    parts: list[Constraint] = []
    for part in conjuncts(constraint):
        if part.operator != "at_least":
            parts.append(part)
            continue
        values = []
        for text in part.values:
            fact = text.rpartition("=")[0]
            types = [name for name in fact.split("/") if name not in ("cpu", "threads")]
            answer = all(name in rooted.totals for name in types)
            answer = answer and (fact != "threads" or any(k.threads > 1 for k in rooted.closure))
            if answer:
                values.append(text)
            else:
                unknown[f"at least {text.rpartition('=')[2]} {fact}: no node of the graph says how much it has"] = (
                    None
                )
        parts += [replace(part, values=tuple(values))] if values else []
    return None if not parts else parts[0] if len(parts) == 1 else Constraint("and", operands=tuple(parts))
