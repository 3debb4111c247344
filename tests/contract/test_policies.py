"""The contract of a scheduling policy, over every one that is installed."""

import pytest

from rainbow.scheduling import Policy, policies
from rainbow.testing import PolicyContract


class TestPolicies(PolicyContract):
    @pytest.fixture(params=list(policies))
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        return policies.get(str(request.param))
