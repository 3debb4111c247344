"""The contract of a matcher: one condition, asked of one subsystem vertex."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from rainbow.graph import Cluster, read_cluster
from rainbow.jobspec import parse_jobspec
from rainbow.matching import Verdict, match, matchers
from rainbow.matching.needs import Matcher

VERTEX = {"type": "package", "name": "it", "size": 1, "unit": "", "properties": frozenset[str]()}


class MatcherContract:
    """Tests of the matcher called `name`.

    `options` are those of one requirement; `met` and `unmet` are metadata of a subsystem vertex that meets it and of
    one that does not.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, Any]]
    met: ClassVar[Mapping[str, Any]]
    unmet: ClassVar[Mapping[str, Any]]

    @pytest.fixture
    def matcher(self) -> Matcher:
        """Return the matcher."""
        return matchers.get(self.name)

    def ask(self, matcher: Matcher, metadata: Mapping[str, Any]) -> str | None:
        """Return the answer for a vertex with this metadata."""
        return matcher(self.options, {**VERTEX, "metadata": metadata}, None)

    def cluster(self, metadata: Mapping[str, Any]) -> Cluster:
        """Return a cluster of one node with a subsystem `sub` of one vertex, attached to the node."""
        nodes = {"n": {"metadata": {"type": "node"}}, "c": {"metadata": {"type": "core"}}}
        built = read_cluster({"graph": {"nodes": nodes, "edges": [{"source": "n", "target": "c"}]}}, name="oak")
        vertex = {"v": {"metadata": {"type": "package", **metadata}}}
        return built.with_subsystem("sub", {"graph": {"nodes": vertex, "edges": [{"source": "n", "target": "v"}]}})

    def verdict(self, metadata: Mapping[str, Any]) -> Verdict:
        """Match a node that has the requirement against that cluster."""
        work = {"type": "node", "requires": [{"name": "sub", self.name: [dict(self.options)]}]}
        return match(parse_jobspec({"version": 1, "resources": {"work": work}}), [self.cluster(metadata)])[0]

    def test_matcher_answers_none_where_met_and_a_reason_where_not(self, matcher: Matcher) -> None:
        assert self.ask(matcher, self.met) is None
        reason = self.ask(matcher, self.unmet)
        assert reason
        assert isinstance(reason, str)

    def test_matcher_without_the_field_gives_a_reason_and_no_exception(self, matcher: Matcher) -> None:
        assert self.ask(matcher, {})

    def test_matcher_of_equal_input_answers_equally_and_changes_none(self, matcher: Matcher) -> None:
        options, met = copy.deepcopy(dict(self.options)), copy.deepcopy(dict(self.met))
        assert [self.ask(matcher, self.met) for _ in range(3)] == [None] * 3
        assert self.ask(matcher, self.unmet) == self.ask(matcher, self.unmet)
        assert (self.options, self.met) == (options, met)

    def test_matcher_is_asked_by_a_jobspec(self) -> None:
        assert self.verdict(self.met).matched
        refused = self.verdict(self.unmet)
        assert not refused.matched
        assert refused.reason
        assert "sub" in refused.reason.text

    def test_matcher_options_are_json(self) -> None:
        assert json.loads(json.dumps(dict(self.options))) == self.options
