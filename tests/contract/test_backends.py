"""The contract of a matcher backend, over every one that is installed."""

import pytest

from rainbow.testing import BackendContract
from tests.support.oracle_cases import OWN_BACKENDS


class TestBackends(BackendContract):
    @pytest.fixture(params=OWN_BACKENDS)
    def backend(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)
