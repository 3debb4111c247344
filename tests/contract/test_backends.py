"""The contract of a matcher backend, over every one that is installed."""

import pytest

from rainbow.matching import backends
from rainbow.testing import BackendContract


class TestBackends(BackendContract):
    @pytest.fixture(params=backends.names())
    def backend(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)
