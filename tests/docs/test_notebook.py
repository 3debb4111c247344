"""docs/tutorial.ipynb is stored without outputs, and its cells run one after the other."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.services import package

NOTEBOOK = json.loads((Path(__file__).parents[2] / "docs" / "tutorial.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def shown(cell: Any, names: dict[str, Any]) -> Any:
    """Run a cell; return what its last expression is."""
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, cell["id"], "exec"), names)  # noqa: S102 - a file of ours
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)  # noqa: S307 - the same


def test_stored_without_outputs() -> None:
    assert [cell["id"] for cell in CODE if cell["outputs"] or cell["execution_count"]] == []


def test_cells_build_match_explain_choose_and_draw(capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib = package("matplotlib")
    package("pandas")
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    results = [shown(cell, names) for cell in CODE]
    cluster, nodes, verdicts, _, choice, _, held = results
    assert cluster._repr_html_().startswith("<table><caption>cluster heron")
    assert nodes.index.tolist() == ["willow0", "willow1", "willow2"]
    assert verdicts["matched"].tolist() == [False, True]
    assert "requested 5 cores per node, the largest node has 4" in capsys.readouterr().out
    assert choice[choice["chosen"]].index.tolist() == ["willow"]
    assert held == [f"willow1-core{k}" for k in range(6)]
    assert len(names["plt"].gca().texts) == len(names["held"])
    names["plt"].close()
