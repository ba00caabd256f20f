"""Tests that use an engine run only if they are told to, and the closing lines say so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.left_out import ENGINES, NEEDS, describe, named_in, untold

CONFTEST = """\
from tests.left_out import NEEDS, LeftOut

def pytest_configure(config):
    for name in NEEDS:
        config.addinivalue_line("markers", name)
    config.pluginmanager.register(LeftOut(config))
"""
TESTS = """\
import pytest

def test_plain(): pass

@pytest.mark.docker
def test_docker(): pass

@pytest.mark.docker
@pytest.mark.registry
def test_both(): pass
"""


@pytest.fixture
def outer(tmp_path: Path):
    """Runs a pytest of its own on three tests; gives its code and what it printed."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_three.py").write_text(TESTS)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def run(*args: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *args]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_uses_an_engine_is_left_out_and_told(outer, workers) -> None:
    code, out = outer("-n", workers)
    assert code == 0
    assert "1 passed" in out
    assert "1 test needs a Docker daemon: " in out
    assert "python -m pytest -m docker\n" in out
    assert "1 test needs a Docker daemon and a registry: " in out
    assert "python -m pytest -m 'docker or registry'\n" in out


def test_what_is_told_runs_and_nothing_else(outer) -> None:
    code, out = outer("-n", "0", "-m", "docker")
    assert code == 0
    assert "test_docker PASSED" in out
    assert "1 passed" in out
    assert "a Docker daemon: " not in out
    assert "1 test needs a Docker daemon and a registry: " in out
    code, out = outer("-n", "0", "-m", "docker or registry")
    assert code == 0
    assert "2 passed" in out
    assert "left out" not in out


def test_names_in_an_expression_are_whole_words() -> None:
    assert named_in("docker or (slurm and not torch)") == {"docker", "slurm", "torch"}
    assert named_in("dockerfile or not my_slurm") == frozenset()


def test_an_engine_is_used_only_if_named_and_a_package_if_installed() -> None:
    assert untold({"docker", "timeout"}, frozenset()) == ("docker",)
    assert untold({"docker"}, frozenset({"docker"})) == ()
    assert untold({"docker", "registry"}, frozenset({"docker"})) == ("docker", "registry")
    assert untold({"timeout"}, frozenset()) == ()
    assert set(ENGINES) == {"aws", "docker", "kubernetes", "registry", "slurm"}
    assert all(NEEDS[name].get in describe((name,), 2) for name in NEEDS)


def test_other_tests_cannot_reach_an_engine() -> None:
    assert os.environ["DOCKER_HOST"] == "unix:///nonexistent/docker.sock"
    assert os.environ["SLURM_CONF"] == os.devnull
    assert os.environ["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
