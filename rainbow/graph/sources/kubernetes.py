"""Graphs from Kubernetes' nodes, as `kubectl get nodes -o json` prints them.

cluster > zone (label topology.kubernetes.io/zone, where a node has it) > node > core, memory, ssd, gpu and every
other extended resource. Amounts are what pods may use (`allocatable`), whole cores and whole MiB, rounded down.
Labels are properties: `key=value`, or `key` where the value is empty; the host's own name is none.
Nodes tainted as control plane are left out: no job runs there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rainbow.errors import GraphError
from rainbow.graph.document import LARGEST, LIMITS, Limits, given, mapping, sequence, step, text
from rainbow.graph.sources.node_list import Node, Part, amount, decode, lay_out

_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_OWN_NAME = "kubernetes.io/hostname"  # as a property it would make every node one of a kind
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_MODELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
_TAINT = ("key", "value", "effect")
_MEBIBYTE = 2**20


def read_kubernetes(text: str, limits: Limits = LIMITS) -> dict[str, Any]:
    """Turn a list of nodes (or one node) into a document."""
    nodes: list[Node] = []
    left_out: dict[str, str] = {}
    for item, at in _items(decode(text)):
        name, taints = _name(item, at), _taints(item, f"{at}/spec")
        if any(key in _CONTROL_PLANE and effect in ("NoSchedule", "NoExecute") for key, _, effect in taints):
            left_out[name] = "it is tainted as control plane"
        elif why := _runs_nothing(item, at):
            left_out[name] = why
        else:
            nodes.append(_node(name, item, taints, at))
    if left_out and not nodes:
        name, why = next(iter(left_out.items()))
        raise GraphError(f"no node is left for jobs: {name} is left out because {why}", pointer="")
    answer = {"import": {"left_out": [{"what": f"node {name}", "why": why} for name, why in left_out.items()]}}
    return lay_out(nodes, limits, left_out=list(left_out), metadata={"queues": {}, **(answer if left_out else {})})


def _runs_nothing(item: Mapping[str, Any], at: str) -> str:
    """Return why no job can run on a node, "" if one may."""
    status = item.get("status")
    if status is None:
        return "it has no status"
    status = mapping(status, f"{at}/status", "the status of a node")
    key = "allocatable" if "allocatable" in status else "capacity"
    if status.get(key) is None:
        return "it has neither allocatable nor capacity"
    offered = mapping(status[key], f"{at}/status/{key}", key)
    cores = quantity(offered.get("cpu"), f"{at}/status/{key}/cpu")
    return "" if cores >= 1 else f"its cpu is {offered.get('cpu')}, less than a core"


def _items(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    if document.get("kind") == "Node":
        yield document, ""
        return
    for place, item in enumerate(sequence(document.get("items"), "/items", "the items of a list of nodes")):
        at = f"/items/{place}"
        item = mapping(item, at, "a node")
        if given(item, "kind", "Node") != "Node":
            raise GraphError("this is no node", pointer=f"{at}/kind")
        yield item, at


def _name(item: Mapping[str, Any], at: str) -> str:
    metadata = mapping(item.get("metadata"), f"{at}/metadata", "the metadata of a node")
    name = text(metadata.get("name"), f"{at}/metadata/name", "the name of a node")
    if not name:
        raise GraphError("the name of a node must not be empty", pointer=f"{at}/metadata/name")
    return name


def _node(name: str, item: Mapping[str, Any], taints: Sequence[tuple[str, str, str]], at: str) -> Node:
    labels = _labels(item, f"{at}/metadata/labels")
    zone = next((labels[key] for key in _ZONES if labels.get(key)), "")
    fields: dict[str, Any] = {}
    if taints:
        fields["taints"] = [
            f"{key}={value}:{effect}" if value else f"{key}:{effect}" for key, value, effect in taints
        ]
    if reason := _unavailable(item, at):
        fields["unavailable"] = reason
    model = next((labels[key] for key in _MODELS if labels.get(key)), "")
    properties = tuple(sorted(f"{k}={v}" if v else k for k, v in labels.items() if k != _OWN_NAME))
    above = (("zone", zone),) if zone else ()
    return Node(name, _parts(item, model, at), at, properties, metadata=fields, above=above)


def _labels(item: Mapping[str, Any], at: str) -> dict[str, str]:
    listed = mapping(given(item["metadata"], "labels", {}), at, "labels")
    return {text(k, at, "a label"): text(v, step(at, k), "the value of a label") for k, v in listed.items()}


def _taints(item: Mapping[str, Any], at: str) -> list[tuple[str, str, str]]:
    spec = mapping(given(item, "spec", {}), at, "the spec of a node")
    result = []
    for place, taint in enumerate(sequence(given(spec, "taints", ()), f"{at}/taints", "taints")):
        here = f"{at}/taints/{place}"
        taint = mapping(taint, here, "a taint")
        key, value, effect = (text(given(taint, k, ""), f"{here}/{k}", f"the {k} of a taint") for k in _TAINT)
        result.append((key, value, effect))
    return result


def _unavailable(item: Mapping[str, Any], at: str) -> str:
    """Say why pods cannot start on a node now; "" if they can, or if nothing is said."""
    cordoned = mapping(given(item, "spec", {}), f"{at}/spec", "the spec of a node").get("unschedulable") is True
    status = mapping(item.get("status"), f"{at}/status", "the status of a node")
    here = f"{at}/status/conditions"
    for place, condition in enumerate(sequence(given(status, "conditions", ()), here, "conditions")):
        condition = mapping(condition, f"{here}/{place}", "a condition")
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            why = text(given(condition, "reason", ""), f"{here}/{place}/reason", "a reason")
            return f"not ready: {why}" if why else "not ready"
    return "cordoned" if cordoned else ""


def _parts(item: Mapping[str, Any], model: str, at: str) -> tuple[Part, ...]:
    status = mapping(item.get("status"), f"{at}/status", "the status of a node")
    key = "allocatable" if "allocatable" in status else "capacity"
    here = f"{at}/status/{key}"
    offered = mapping(status.get(key), here, key)
    cores = int(quantity(offered.get("cpu"), f"{here}/cpu"))
    parts = [Part("core", count=cores)]
    gpus = 0
    for name, given_amount in offered.items():
        count = int(quantity(given_amount, step(here, name)))
        if name in ("memory", "ephemeral-storage"):
            parts += amount("memory" if name == "memory" else "ssd", count // _MEBIBYTE, "MiB")
        elif name.startswith("hugepages-"):
            parts += amount(text(name, here, "a resource"), count // _MEBIBYTE, "MiB")
        elif name.endswith("/gpu") and count:
            parts.append(Part("gpu", count, gpus, metadata={"model": model} if model else {}))
            gpus += count
        elif "/" in name or name == "pods":
            parts += amount(text(name, here, "a resource"), count, "")
    return tuple(parts)


_FORM = re.compile(r"\+?([0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?")
_SUFFIXES = {
    **{letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)},
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}


def quantity(value: Any, pointer: str) -> Fraction:
    """Return a quantity exactly; GraphError if it is none, is negative or is more than 2**53.

    >>> quantity("7910m", ""), quantity("32Gi", "") == 32 * 2**30, quantity(8, "")
    (Fraction(791, 100), True, Fraction(8, 1))
    """
    raw = str(value) if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else value
    result = _FORM.fullmatch(raw) if isinstance(raw, str) else None
    if result is None:
        raise GraphError('a quantity reads like "8", "7910m" or "32Gi"', pointer=pointer)
    amount = Fraction(result[1]) * _factor(result[2] or "")
    if amount > LARGEST:
        raise GraphError(f"a quantity must not be more than {LARGEST}", pointer=pointer)
    return amount


def _factor(suffix: str) -> Fraction:
    return _SUFFIXES[suffix] if suffix in _SUFFIXES else Fraction(10) ** int(suffix[1:] or 0)
