"""Contract suites for authors of plug-ins, to be run by pytest.

Subclass the contract of the plug-in point in a test file and name the installed plug-in:

    from rainbow.testing import SelectorContract

    class TestCheapest(SelectorContract):
        name = "cheapest"
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{suite}"
        for suite in ("backends", "executors", "graph_sources", "matchers", "policies", "selectors")
    )
)

from rainbow.testing.backends import BackendContract  # noqa: E402 - its asserts are rewritten from here on
from rainbow.testing.executors import ExecutorContract  # noqa: E402
from rainbow.testing.graph_sources import GraphSourceContract  # noqa: E402
from rainbow.testing.matchers import MatcherContract  # noqa: E402
from rainbow.testing.policies import PolicyContract  # noqa: E402
from rainbow.testing.selectors import SelectorContract  # noqa: E402

__all__ = [
    "BackendContract",
    "ExecutorContract",
    "GraphSourceContract",
    "MatcherContract",
    "PolicyContract",
    "SelectorContract",
]
