"""A plugin that was written for the published package works with every command as it is; one that
uses what has moved is told so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENTRY_POINTS = """\
[torchx.schedulers]
published = published_plugin:create_scheduler
moved = moved_names:create_scheduler
gone = moved_module:create_scheduler
"""
HANDLE = "published://torchx/app-1"


@pytest.fixture
def torchx(tmp_path):
    """Runs a command where the plugin is installed."""
    info = tmp_path / "site" / "published_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: published-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    files = {
        "published_plugin": Path(__file__).with_name("published_plugin.py").read_text(),
        "moved_names": "from torchx.schedulers.slurm_scheduler import _moved_elsewhere\n",
        "moved_module": "from torchx.schedulers.slurm_scheduler._moved import name\n",
    }
    for name, text in files.items():
        (info.parent / f"{name}.py").write_text(text)
    env = {"PYTHONPATH": str(info.parent), "PUBLISHED_DIR": str(tmp_path)}

    def run(*argv: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "torchx.cli.main", *argv],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_every_command_works_with_it(torchx):
    done = torchx("run", "-s", "published", "-cfg", "queue=long", "utils.echo", "--num_replicas=2")
    assert (done.returncode, done.stdout) == (0, f"{HANDLE}\n"), done.stderr
    expected = {
        ("status", HANDLE): "RUNNING",
        ("status", "--json", HANDLE): '"state": "RUNNING"',
        ("describe", HANDLE): "'num_replicas': 2",
        ("list", "-s", "published"): "RUNNING",
        ("log", HANDLE): "echo/1 one of 1\n",
        ("log", "--tail-lines", "1", f"{HANDLE}/echo/0"): "echo/0 two\n",
        ("log", "--regex", "one", f"{HANDLE}/echo"): "echo/0 one of 0\n",
        ("why", HANDLE): "RUNNING",
        ("cancel", HANDLE): "",
        ("status", "--wait", HANDLE): "CANCELLED",
        ("status", "--watch", HANDLE): "CANCELLED",
        ("delete", HANDLE): "",
    }
    for argv, printed in expected.items():
        done = torchx(*argv)
        assert done.returncode == 0, (argv, done.stderr)
        assert printed in done.stdout, argv
    assert "queue=QUEUE (str, main)" in torchx("runopts", "published").stdout


def test_what_it_does_not_tell_is_refused_in_one_line(torchx):
    torchx("run", "-s", "published", "utils.echo")
    for argv in (("exec", HANDLE, "--", "true"), ("status", "published://torchx/nope")):
        done = torchx(*argv)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "`published`" in done.stderr


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("moved", "cannot import name '_moved_elsewhere' from 'torchx.schedulers.slurm_scheduler'"),
        ("gone", "No module named 'torchx.schedulers.slurm_scheduler._moved'"),
    ],
)
def test_a_plugin_that_uses_a_private_name_that_moved_is_told(torchx, name, missing):
    done = torchx("run", "-s", name, "utils.echo")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert missing in line
    assert line.endswith("made for another release of torchx: install one made for this")
    left_out = json.loads(torchx("plugins", "--json").stdout)["errors"]
    assert missing in {e["name"]: e["error"] for e in left_out}[name]
