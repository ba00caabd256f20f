"""Fixtures of the tests of slurm without a cluster."""

import pytest

from torchx.schedulers.slurm_scheduler import create_scheduler, version

from .fakes import FakeSlurm


@pytest.fixture
def fake_slurm(tmp_path, monkeypatch) -> FakeSlurm:
    """Programs of Slurm in a directory in front of PATH; none is there yet."""
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    version.cache_clear()
    yield FakeSlurm(tmp_path / "bin", monkeypatch)
    version.cache_clear()


@pytest.fixture
def scheduler(fake_slurm):
    """A scheduler that sees only the programs of the test."""
    return create_scheduler("test")
