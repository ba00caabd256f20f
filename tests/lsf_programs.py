"""Fixtures of tests that run on programs which stand in for those of LSF."""

from pathlib import Path

import pytest

from tests.contract import fake_lsf
from torchx.testing.programs import Programs


@pytest.fixture
def lsf_programs(tmp_path, monkeypatch):
    """LSF's programs on PATH, each test with a cluster of its own."""
    (tmp_path / "lsf").mkdir()
    monkeypatch.setenv("FAKE_LSF_DIR", str(tmp_path / "lsf"))
    monkeypatch.setenv("LSF_ENVDIR", str(tmp_path / "lsf" / "conf"))
    script = Path(fake_lsf.__file__)
    names = fake_lsf.PROGRAMS
    programs = Programs.of_script(tmp_path / "bin", script, names, patient=["blaunch"])
    with programs.on_path():
        yield programs
