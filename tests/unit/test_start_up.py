"""What importing the public modules leaves unloaded, untouched and undone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PUBLIC = [
    "torchx",
    "torchx.cli.main",
    "torchx.errors",
    "torchx.runner",
    "torchx.schedulers",
    "torchx.schedulers.api",
    "torchx.settings",
    "torchx.specs",
    "torchx.specs.api",
    "torchx.version",
]

SLOW = {
    "asyncio",
    "concurrent.futures",
    "configparser",
    "difflib",
    "docstring_parser",
    "fsspec",
    "importlib.metadata",
    "pprint",
    "socket",
    "subprocess",
    "tempfile",
    "urllib.request",
    "uuid",
    "yaml",
}
if sys.version_info < (3, 14):  # where `dataclasses` needs some of them
    SLOW |= {"ast", "inspect", "tokenize"}
SDKS = {"boto3", "docker", "hydra", "IPython", "kubernetes", "sagemaker", "torch"}


def run(script: str, *flags: str, env: dict[str, str] | None = None) -> str:
    # -S: a site package may load anything on its own account; the path is handed on instead
    script = f"import sys; sys.path[:] = {sys.path!r}\n{script}"
    command = [sys.executable, "-S", *flags, "-c", script]
    environ = {**os.environ, **(env or {})}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout


def loaded_by(module: str) -> set[str]:
    return set(run(f"import {module}\nprint(*sys.modules)").split())


@pytest.mark.parametrize("module", PUBLIC)
def test_importing_loads_no_scheduler_no_sdk_no_plugin_and_nothing_slow(module: str) -> None:
    loaded = loaded_by(module)
    assert module in loaded
    assert loaded.isdisjoint(SLOW | SDKS)
    schedulers = [m for m in loaded if m.startswith("torchx.schedulers.") and "_scheduler" in m]
    assert schedulers == []
    assert not [m for m in loaded if m.startswith(("torchx_plugins", "torchx.components"))]
    assert not [m for m in loaded if m.startswith("torchx.specs.named_resources")]


def test_the_package_alone_loads_its_version_and_nothing_else() -> None:
    before = set(run("print(*sys.modules)").split())
    assert loaded_by("torchx") - before == {"torchx", "torchx.version"}


def test_a_runner_comes_without_events_and_what_is_for_logs_and_failures() -> None:
    loaded = loaded_by("torchx.runner")
    unused = {"torchx.runner.events", "torchx.runner._watching"}
    unused |= {f"torchx.schedulers._core.{name}" for name in ("failures", "reading")}
    assert loaded.isdisjoint(unused | {"logging", "threading"})


def test_the_types_come_with_builders_and_linter_and_without_the_finder() -> None:
    loaded = loaded_by("torchx.specs")
    wanted = ("api", "builders", "metadata_keys")
    assert {f"torchx.specs.{name}" for name in wanted} <= loaded
    assert "torchx.specs.finder" not in loaded
    linter = run("import torchx.specs as specs\nprint(specs.file_linter.validate.__name__)")
    assert linter.split() == ["validate"]
    key = run("import torchx.specs as specs\nprint(specs.capabilities.CapabilityKey.__name__)")
    assert key.split() == ["CapabilityKey"]


@pytest.mark.parametrize("module", PUBLIC)
def test_importing_asks_neither_environment_nor_disk(module: str, tmp_path: Path) -> None:
    (tmp_path / ".torchxconfig").write_text("[not a config\n")
    script = f"""
import os, {module.split(".", maxsplit=1)[0]}, argparse, ast, inspect, typing, dataclasses, logging
seen = []
def watch(event, args):
    if event == "open" and not str(args[0]).endswith((".py", ".pyc")):
        seen.append(str(args[0]))
    if event in ("os.listdir", "os.scandir") and "dist-info" in str(args[0]):
        seen.append(str(args[0]))
class Environment(dict):
    def get(self, name, default=None):
        if name.startswith("TORCHX"):
            seen.append(name)
        return super().get(name, default)
    __getitem__ = get
os.environ = Environment(os.environ)
os.getenv = os.environ.get
sys.addaudithook(watch)
import {module}
print(*seen)
"""
    home = tmp_path / "home"
    env = {"TORCHX_HOME": str(home), "TORCHXCONFIG": str(tmp_path / ".torchxconfig")}
    assert run(script, env=env).split() == []
    assert not home.exists()


@pytest.mark.parametrize("module", [*PUBLIC, "torchx.cli.cmd_run", "torchx.cli.cmd_list"])
def test_importing_compiles_no_text_of_a_type(module: str) -> None:
    """The first one takes half a millisecond: leave the quotes out, or import for types only."""
    script = f"""
import sys
import dataclasses, argparse
seen = []
def watch(event, args):
    made = (b"lambda ", b"def ")  # by named tuples and dataclasses
    if event == "compile" and args[1] == "<string>" and not args[0].startswith(made):
        seen.append(args[0])
sys.addaudithook(watch)
import {module}
print(seen)
"""
    assert run(script).strip() == "[]"


def test_importing_warns_about_nothing() -> None:
    for module in PUBLIC:
        run(f"import {module}", "-W", "error")


def test_a_plugin_is_not_imported_before_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "my_resources.py").write_text("raise SystemExit('imported')\n")
    info = tmp_path / "my_resources-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_resources\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torchx.named_resources]\nmine = my_resources:make\n")
    imports = "\n".join(f"import {module}" for module in PUBLIC)
    script = f"sys.path.insert(0, {str(tmp_path)!r})\n{imports}\n"
    script += "from torchx.specs import named_resources\nprint('mine' in named_resources)"
    assert run(script).split() == ["True"]
