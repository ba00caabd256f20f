"""The tests that every scheduler passes. Needs pytest.

Subclass ``SchedulerContract``, name the class ``Test…`` and give it a scheduler::

    class TestMyScheduler(SchedulerContract):
        @pytest.fixture
        def scheduler(self):
            scheduler = create_scheduler("test")
            yield scheduler
            scheduler.close()

What is tested follows ``scheduler.features``: what they declare must work, what they do not must be
refused. Other fixtures to override: ``opts`` (run options of every job), ``image`` (with ``sh`` and
``python3``), ``resource``, ``host_dir`` where ``mounts`` are declared, ``other_scheduler`` where
``durable`` is. Settings: ``timeout_s``, ``requires_resource``, ``attempt_variable``.
"""

from torchx.testing._contract.jobs import Jobs
from torchx.testing._contract.life import LifeContract
from torchx.testing._contract.logs import LogContract
from torchx.testing._contract.merged import MergedLogContract
from torchx.testing._contract.requests import RequestContract
from torchx.testing._contract.retries import RetryContract

__all__ = ["Jobs", "SchedulerContract"]


class SchedulerContract(
    RequestContract, LifeContract, RetryContract, LogContract, MergedLogContract
):
    """All parts of the suite for one scheduler."""
