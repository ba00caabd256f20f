"""The cluster that ``scripts/engines/slurm up`` starts, for tests that need a real one."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "engines" / "slurm"
FOLDER = Path(os.environ.get("TORCHX_TEST_SLURM_DIR", "/tmp/torchx-slurm"))
REASON = 'no test cluster of Slurm is up; start it with: eval "$(scripts/engines/slurm up)"'


def engine(*arguments: str) -> None:
    """Runs the script of the cluster."""
    subprocess.run(
        [SCRIPT, *arguments], env=_environ(), check=True, capture_output=True, timeout=100
    )


def _environ() -> dict[str, str]:
    """Without the marks of the test run: the daemons stay when it is over."""
    env = {**os.environ, "TORCHX_TEST_SLURM_DIR": str(FOLDER)}
    for name in ("TEST_RUN_ID", "PYTEST_CURRENT_TEST"):
        env.pop(name, None)
    return env


@pytest.fixture(scope="session")
def slurm_conf() -> str:
    """Path of the cluster's configuration. No other cluster is ever used."""
    conf = FOLDER / "etc" / "slurm.conf"
    if not conf.exists() or "ClusterName=torchx" not in conf.read_text():
        pytest.skip(REASON)
    answer = subprocess.run(
        [SCRIPT, "status"],
        env=_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if answer.returncode:
        pytest.skip(f"{REASON} ({answer.stderr.strip()})")
    return str(conf)


@pytest.fixture
def slurm_cluster(slurm_conf: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Points the programs of Slurm at the cluster."""
    for name in [*os.environ]:
        if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", slurm_conf)
    return slurm_conf
