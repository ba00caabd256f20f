"""Installs the fake scheduler as the plugin of a package of its own."""

from pathlib import Path

import pytest

from tests.lsf_programs import lsf_programs  # noqa: F401 - a fixture
from tests.slurm_cluster import slurm_cluster, slurm_conf  # noqa: F401 - fixtures

ENTRY_POINTS = """\
[torchx.schedulers]
fake = fake_scheduler_plugin:create_scheduler
bare = fake_scheduler_plugin:create_bare_scheduler
"""


@pytest.fixture
def plugin_dir(tmp_path, monkeypatch) -> Path:
    """A directory on ``sys.path`` in which the plugin is installed as pip would do it."""
    folder = tmp_path / "site"
    info = folder / "fake_scheduler_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: fake-scheduler-plugin\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    source = Path(__file__).with_name("fake_plugin.py").read_text()
    (folder / "fake_scheduler_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    return folder
