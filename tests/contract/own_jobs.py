"""Fixtures of the contract for schedulers that run apps themselves, on no backend."""

import pytest


class NoBackend:
    """To be put before ``SchedulerContract``: says why rows about a broken backend are left out."""

    no_backend = ""
    """What runs the jobs instead of a backend."""

    @pytest.fixture
    def backend_away(self):
        pytest.skip(f"there is no backend that could be away: {self.no_backend}")

    @pytest.fixture
    def backend_missing(self):
        pytest.skip(f"there is no backend that could be missing: {self.no_backend}")

    @pytest.fixture
    def refuse_end(self):
        pytest.skip(f"there is no backend that could refuse to end a job: {self.no_backend}")
