"""`rainbow cluster`: register, import, list, show, drain, reinstate, delete."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from rainbow.cli import session
from rainbow.cli.input import settings_file
from rainbow.cli.input.files import FILE, json_of, named_file, naming, sent_from, text_of, yaml_of
from rainbow.cli.output import printer, progress
from rainbow.cli.output.printer import one_line
from rainbow.cli.session import credentials_used, with_registration, with_secret, with_tokens
from rainbow.client import Client, responses
from rainbow.errors import InputError
from rainbow.graph import Cluster, read_cluster
from rainbow.graph.site import Queue
from rainbow.graph.sources import graph_sources
from rainbow.jobspec.yaml_reader import step
from rainbow.text import in_time, some


@click.group()
def cluster() -> None:
    """Clusters: import, register, list, show, drain, reinstate, delete."""


@cluster.command()
@click.argument("graph", type=FILE)
@click.option("--name", required=True, help="Name of the cluster.")
@click.option(
    "--subsystem", "subsystems", multiple=True, metavar="NAME=FILE", help="Attach a subsystem graph. Repeatable."
)
@click.option(
    "--state",
    type=FILE,
    help="YAML or JSON file with the cluster's initial state (flat key-value pairs used by selection).",
)
@click.option("--levels", type=click.Choice(["any", "strict"]), default="any", show_default=True)
@click.option("--policy", help="Scheduling policy. Default: the server's default policy.")
@click.option(
    "--policy-settings", type=FILE, help="YAML or JSON file with the policy's settings, or with {policy, settings}."
)
@click.option(
    "--visibility",
    type=click.Choice(["all", "own"]),
    help="Jobs that a token of some users sees: all of the cluster, or their own. Default: all.",
)
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Save the token and secret to this file."
)
@printer.output_option
@with_registration
def register(
    client: Client,
    url: str,
    graph: Path,
    name: str,
    subsystems: tuple[str, ...],
    state: Path | None,
    levels: str,
    policy: str | None,
    policy_settings: Path | None,
    visibility: str | None,
    save: Path | None,
    output: str,
) -> None:
    """Register a cluster from GRAPH, a JSON resource graph. Prints the cluster's token and secret; they cannot be
    shown again.
    """
    if save:
        session.read(save)  # a file that cannot be added to is better known before than after
    own = dict(map(named_file, subsystems))
    sent = {"/graph": graph, **{f"/subsystems/{step(called)}": path for called, path in own.items()}}
    with sent_from(sent | ({"/state": state} if state else {})):
        document = json_of(graph)
        made = client.register_cluster(
            name,
            document,
            {called: json_of(path) for called, path in own.items()} or None,
            yaml_of(state) if state else None,
            levels,
            _policy(policy, policy_settings),
            visibility,
        )
    try:
        if save:
            session.save(save, url, name, made["token"], made["secret"])
    except OSError:  # they are shown this once: nobody else knows them
        printer.show(output, made, _registered(made, None))
        raise
    printer.show(output, made, _registered(made, save))
    for note in _about_unavailable(document, name):
        click.echo(f"rainbow: warning: {one_line(note)}", err=True)


def _about_unavailable(document: Any, cluster: str) -> list[str]:
    """Return a note if an importer found nodes down: only an agent that reports them, or a drain, keeps jobs away."""
    graph = document.get("graph")
    vertices = graph.get("nodes") if isinstance(graph, dict) else None  # other forms come from no importer
    results = [one.get("metadata") or {} for one in vertices.values()] if isinstance(vertices, dict) else []
    down = [str(one.get("name")) for one in results if "unavailable" in one]
    text = f"{some(len(down), 'node')} unavailable when imported: {', '.join(down[:5])}{', ...' * (len(down) > 5)}"
    return [f"{text}; until drained they take jobs (rainbow worker drain NODE --cluster {cluster})"] if down else []


def _policy(name: str | None, file: Path | None) -> dict[str, Any] | None:
    written = settings_file.read(file, name) if file else None
    options = {"name": written.policy, "settings": dict(written.settings)} if written else {"name": name}
    return {key: value for key, value in options.items() if value is not None} or None


def _registered(made: responses.Registration, save: Path | None) -> Any:
    shown: dict[str, Any] = {"cluster": made["name"], "totals": printer.totals(made)}
    if save:
        shown["token, secret"] = f"saved in {save}"
    else:
        shown |= {"token": made["token"], "secret": f"{made['secret']}  (shown only once; save it now)"}
    return printer.facts(shown)


@cluster.command(name="list")
@printer.output_option
@with_tokens
def list_clusters(client: Client, output: str) -> None:
    """List the clusters you have access to."""
    result = client.clusters()
    rows = [(one["name"], _state(one), _ready(one), one["subsystems"], printer.totals(one)) for one in result]
    titles = ["CLUSTER", "STATE", "READY", "SUBSYSTEMS", "TOTALS"]
    printer.show(output, result, printer.table(titles, rows))


@cluster.command()
@click.argument("cluster")
@printer.output_option
@with_tokens
def show(client: Client, cluster: str, output: str) -> None:
    """Show a cluster's state, resource totals, subsystems and policy."""
    result = client.cluster(cluster)
    printer.show(output, result, printer.facts(_facts(result)))


STATES = {"deleting": "being deleted", "unattended": "no agent"}


def _state(one: Mapping[str, Any]) -> str:
    return STATES.get(one["state"], str(one["state"]))


def _ready(one: Mapping[str, Any]) -> str:
    return f"{one['ready']}/{one['workers']}"


def _facts(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of a cluster: its state in words, with the time from which on it is in it."""
    rest = {key: value for key, value in results.items() if key not in ("draining", "drained_at", "ready", "units")}
    since = f" since {printer.minute(results['drained_at'])}" if results["state"] == "drained" else ""
    answer = {
        "state": _state(results) + since,
        "totals": printer.totals(results),
        "workers": f"{_ready(results)} ready",
    }
    return {**rest, **answer, "created_at": printer.when(results.get("created_at"))}


@cluster.command()
@click.argument("cluster")
@printer.output_option
@with_secret
def drain(client: Client, cluster: str, output: str) -> None:
    """Drain a cluster: accept no new jobs, move pending jobs to other clusters, let running tasks finish."""
    made = client.move_cluster(cluster, "drain")
    printer.show(
        output,
        made,
        f"cluster {cluster} is draining: no new jobs, running tasks continue",
    )


@cluster.command()
@click.argument("cluster")
@printer.output_option
@with_secret
def reinstate(client: Client, cluster: str, output: str) -> None:
    """Return a drained cluster to service."""
    made = client.move_cluster(cluster, "reinstate")
    printer.show(output, made, f"cluster {cluster} accepts jobs again")


@cluster.command()
@click.argument("cluster")
@click.option(
    "--drain",
    is_flag=True,
    help="Delete even if jobs are active: running jobs finish first; pending jobs move to other clusters, or are "
    "canceled if none can run them.",
)
@with_secret
def delete(client: Client, cluster: str, drain: bool) -> None:
    """Delete a cluster and remove its token and secret from the credentials file."""
    if client.delete_cluster(cluster, drain=drain):  # its secret is good, and wanted, until then
        click.echo(f"cluster {cluster} is draining and will be deleted when its running tasks finish")
        return
    click.echo(f"cluster {cluster} deleted")
    file = credentials_used()
    if _is_of(file, client) and session.forget_cluster(file, cluster):
        click.echo(f"removed its token and secret from {file}")


def _is_of(file: Path, client: Client) -> bool:
    return session.read(file).url.rstrip("/") == client.url.rstrip("/")


OUT = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@cluster.command(name="import")
@click.argument("source")
@click.argument("file", type=FILE, required=False)
@click.option("-o", "--out", type=OUT, default="-", help="File to write the graph to. Default: standard output.")
@click.option("--name", default="", help="Name of the cluster. Default: the name found in FILE.")
def import_graph(source: str, file: Path | None, out: Path, name: str) -> None:
    """Convert the output of another resource manager (FILE, or - for stdin) to a JSON resource graph. SOURCE: slurm,
    flux-r, kubernetes, hwloc, or local, which describes this machine and needs no FILE.

    The graph goes to stdout, or to the file of --out; a line on stderr says what is in it.
    """
    read = graph_sources.get(source)
    if file is None and source != "local":
        raise click.UsageError(f"source {source} requires FILE, or - for stdin")
    with progress.going_on(f"reading {file or 'this machine'}") as now, naming(file) if file else nullcontext():
        text = text_of(file) if file else _this_machine()
        if not text.strip():
            raise InputError("nothing to read; look at what the command that prints it says")
        document = read(text)
        if name:
            document = {**document, "name": name}
        now("checking the graph")
        cluster = read_cluster(document)
        text = _written(document)
    with click.open_file(str(out), "w", encoding="utf-8") as stream:
        stream.write(text)
    click.echo(one_line(_summary(cluster, document)), err=True)
    for shown in _of_site(cluster, document):
        click.echo(shown, err=True)


QUEUE_TITLES = ("QUEUE", "DEFAULT", "NODES", "STATE", "MAX TIME", "DEFAULT TIME", "MAX NODES", "ACCESS")


def _of_site(cluster: Cluster, document: dict[str, Any]) -> Iterator[str]:
    """Yield the queues of a site in columns, a line for what else was read of its text, and one for what was not."""
    queues = (cluster.site.queues or {}) if cluster.site else {}
    if cluster.site and cluster.site.default:
        rows = [QUEUE_TITLES, *(_queue_row(queue, cluster) for queue in queues.values())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(one_line(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if cluster.site and (read := ", ".join(_read(cluster))):
        yield f"READ      {one_line(read)}"
    remaining = document["graph"].get("metadata", {}).get("import", {}).get("left_out", ())
    if text := "; ".join(f"{one['what']}: {one['why']}" for one in remaining):
        yield f"LEFT OUT  {one_line(text)}"


COUNTED = {"cluster", "node", "core", "socket", "memory"}  # types of the first line, or that each node has


def _read(cluster: Cluster) -> Iterator[str]:
    """Yield what was read beside nodes and queues: features, devices by model, licenses, switches."""
    outline, models = cluster.outline, dict[str, Counter[str]]()
    levels = {outline.fields[entry].type for entry in outline.parents if entry > 0} - {cluster.worker_type, "socket"}
    features = {name for fields in outline.fields for name in fields.properties if "=" not in name}
    if features:
        yield some(len(features), "feature")
    for fields, many in zip(outline.fields, outline.many, strict=True):
        if fields.type not in COUNTED | levels and not fields.unit:
            model = str(fields.metadata.get("model", ""))
            models.setdefault(fields.type, Counter())[model] += many * fields.size
    for kind, counts in models.items():
        yield f"{kind}: " + ", ".join(f"{count} {model}".strip() for model, count in sorted(counts.items()))
    licenses = (cluster.site.licenses or {}) if cluster.site else {}
    if licenses:
        yield "licenses: " + ", ".join(f"{name} {one.count}" for name, one in licenses.items())
    switches = Counter({kind: count for kind, count in cluster.totals.items() if kind.startswith("switch")})
    yield from (some(cluster.totals[kind], kind) for kind in sorted(levels - switches.keys()))
    if switches:
        yield f"{some(switches.total(), 'switch', 'switches')} in {some(len(switches), 'level')}"


def _queue_row(queue: Queue, cluster: Cluster) -> tuple[str, ...]:
    entries = zip(cluster.outline.fields, cluster.outline.many, strict=True)
    nodes = sum(
        many
        for fields, many in entries
        if fields.type == cluster.worker_type and fields.properties.issuperset(queue.requires)
    )
    times = [in_time(each) if each else "-" for each in (queue.duration, queue.default_duration)]
    access = "; ".join(f"{key.replace('allow-', '')}s: {', '.join(names)}" for key, names in queue.access.items())
    default = "yes" if cluster.site and cluster.site.default == queue.name else ""
    return (queue.name, default, str(nodes), queue.state, *times, str(queue.nodes[1] or "-"), access)


def _this_machine() -> str:
    # the agent's modules are slow to load, and only this needs them
    from rainbow.agent.cluster_survey import describe

    return describe()


def _written(document: dict[str, Any]) -> str:
    try:
        return json.dumps(document, indent=2) + "\n"
    except RecursionError as error:
        raise InputError("vertex metadata is nested too deeply") from error


def _summary(cluster: Cluster, document: dict[str, Any]) -> str:
    """Say what a cluster has: `oak: 2 nodes, 64 cores, 8 gpus, 1024000 MiB memory (1 node unavailable)`."""
    counted = [_many(cluster.totals.get(kind, 0), kind) for kind in ("node", "core", "gpu")]
    counted += [f"{size} {unit} memory".replace("  ", " ") for unit, size in _memory(cluster).items()]
    down = sum("unavailable" in data["metadata"] for _, data in cluster.graph.nodes(data=True))
    left_out = len(document["graph"].get("metadata", {}).get("left_out", ()))
    notes = [f"{_many(down, 'node')} unavailable"] * bool(down) + [f"{_many(left_out, 'node')} left out"] * bool(
        left_out
    )
    return f"{cluster.name}: {', '.join(counted)}" + (f" ({', '.join(notes)})" if notes else "")


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _memory(cluster: Cluster) -> dict[str, int]:
    """Sum the memory by unit."""
    sums: dict[str, int] = {}
    for _, vertex in cluster.graph.nodes(data=True):
        if vertex["type"] == "memory":
            sums[vertex["unit"]] = sums.get(vertex["unit"], 0) + vertex["size"]
    return sums or {"MiB": 0}
