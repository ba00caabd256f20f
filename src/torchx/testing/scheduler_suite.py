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
``durable`` is. Fixtures that break the backend, or look into it: ``backend_away``,
``backend_missing``, ``refuse_submission``, ``refuse_end``, ``native_objects``, ``submitted``,
``queries``, ``scheduler_name``; rows without their fixture are skipped and say so. Settings:
``timeout_s``, ``requires_resource``, ``attempt_variable``, ``no_commands``, ``native_states`` with
``state_of``, ``many_replicas``, ``most_queries``, ``trials``,
``can_run``.
"""

from torchx.testing._contract.faults import FaultContract
from torchx.testing._contract.inside import InsideContract
from torchx.testing._contract.interruptions import InterruptionContract
from torchx.testing._contract.jobs import Jobs
from torchx.testing._contract.life import LifeContract
from torchx.testing._contract.logs import LogContract
from torchx.testing._contract.many import ManyContract
from torchx.testing._contract.merged import MergedLogContract
from torchx.testing._contract.requests import RequestContract
from torchx.testing._contract.retries import RetryContract
from torchx.testing._contract.states import StateContract

__all__ = ["Jobs", "SchedulerContract"]


class SchedulerContract(
    RequestContract,
    LifeContract,
    StateContract,
    RetryContract,
    LogContract,
    MergedLogContract,
    InsideContract,
    ManyContract,
    FaultContract,
    InterruptionContract,
):
    """All parts of the suite for one scheduler."""
