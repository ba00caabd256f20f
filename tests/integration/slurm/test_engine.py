"""The script that starts the cluster: what its documented first command does."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.slurm_cluster import SCRIPT

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(200)]


def test_up_returns_to_a_shell_that_reads_its_output(slurm_cluster, tmp_path_factory) -> None:
    """On a fresh machine, where the database is started too."""
    folder = tmp_path_factory.mktemp("engine")
    env = {
        **os.environ,
        "TORCHX_TEST_SLURM_DIR": str(folder),
        "TORCHX_TEST_SLURM_PORT": six_ports(),
    }
    try:
        done = subprocess.run(
            ["bash", "-c", f'eval "$({SCRIPT} up)"; echo "$SLURM_CONF"'],
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (done.stdout, done.returncode) == (f"{folder}/etc/slurm.conf\n", 0), done.stderr
        assert Path(done.stdout.strip()).exists()
    finally:
        subprocess.run([SCRIPT, "down"], env=env, check=True, capture_output=True, timeout=90)


def six_ports() -> str:
    """The first of six neighbouring ports that nobody uses."""
    for first in range(19817, 29817, 10):
        try:
            for port in range(first, first + 6):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return str(first)
    pytest.fail("there are no six free ports")
