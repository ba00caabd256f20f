"""Plugins as their users have them: packages installed into a virtual environment.

One is a wheel, one is editable, both share namespaces; a third is broken in every way.
"""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import packages

pytest.importorskip("hatchling", reason="hatchling, which builds the packages, is not installed")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.xdist_group("packages"),  # all in one worker: they are installed once
]


@dataclass
class Environment:
    """A virtual environment that also sees what the tests run in."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def pip(self, *args: str) -> None:
        command = [self.python, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
        env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}
        subprocess.run([*command, *args], env=env, check=True, capture_output=True, text=True)

    def torchx(self, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.python, "-m", "torchx.cli.main", *args],
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def run(self, code: str) -> str:
        done = subprocess.run(
            [self.python, "-c", code], capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout


def make_environment(folder: Path) -> Environment:
    venv.create(folder, with_pip=False)
    env = Environment(folder)
    site = env.run("import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    ours = sysconfig.get_path("purelib")
    # a plain path would leave out the .pth files there, by which editable packages are found
    line = f"import site; site.addsitedir({ours!r})\n"
    Path(site, "tests.pth").write_text(line)
    return env


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A wheel and an editable package, which share namespaces."""
    base = tmp_path_factory.mktemp("installed")
    env = make_environment(base / "venv")
    one = packages.one(base / "one")
    wheels = base / "wheels"
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-q", "-w", str(wheels), str(one)], check=True)
    (wheel,) = wheels.glob("*.whl")
    env.pip(str(wheel))
    env.pip("-e", str(packages.two(base / "two")))
    return env


@pytest.fixture(scope="module")
def half_broken(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The same, and a third package that fails in every way."""
    base = tmp_path_factory.mktemp("broken")
    env = make_environment(base / "venv")
    line = f"import site; site.addsitedir({site_of(installed)!r})\n"
    Path(site_of(env), "more.pth").write_text(line)
    env.pip(str(packages.broken(base / "broken")))
    return env


def site_of(env: Environment) -> str:
    return env.run("import sysconfig; print(sysconfig.get_path('purelib'))").strip()


Tables = Callable[[Environment], dict[str, list[dict[str, object]]]]


def tables(env: Environment) -> dict[str, list[dict[str, object]]]:
    done = env.torchx("plugins", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return found


def test_everything_is_found_with_its_distribution(installed: Environment) -> None:
    found = tables(installed)
    origin = {
        (kind, item["name"]): item["distribution"]
        for kind, items in found.items()
        if kind != "errors"
        for item in items
    }
    for key in [
        ("scheduler", "acme"),
        ("named_resource", "acme_h100"),
        ("component", "acme"),
        ("cli_command", "qtop"),
        ("cli_command", "qmade"),
    ]:
        assert origin[key] == "acme-one 1.0"
    for key in [
        ("named_resource", "acme_cpu"),
        ("tracker", "two"),
        ("event_handler", "null"),
    ]:
        assert origin[key] == "acme-two 2.5"
    h100 = next(i for i in found["named_resource"] if i["name"] == "acme_h100")
    assert h100["aliases"] == ["h100"]
    assert sorted(h100["fractionals"]) == [f"acme_h100_{n}" for n in (1, 2, 4, 8)]
    assert found["errors"] == []


def test_the_table_names_them_too(installed: Environment) -> None:
    lines = installed.torchx("plugins", "--check").stdout.splitlines()
    assert ["scheduler", "acme", "torchx_plugins.schedulers.acme", "acme-one", "1.0"] in [
        line.split() for line in lines
    ]


def test_a_scheduler_of_a_wheel_runs_apps(installed: Environment) -> None:
    done = installed.torchx("run", "-s", "acme", "acme.first.hello", TORCHX_CONTEXT_NAME="x")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "acme://torchx/acme-1\n"


def test_the_default_scheduler_stays_local(installed: Environment) -> None:
    done = installed.torchx("run", "acme.first.hello", "--who", "all")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("local_cwd://torchx/hello-")
    assert "hello all" in done.stderr


def test_named_resources_of_both_are_known(installed: Environment) -> None:
    out = installed.run(
        "from torchx.specs import resource\n"
        "r = resource(h='acme_h100_4'); print(r.gpu, r.is_fractional())\n"
        "r = resource(h='h100'); print(r.get_resource_name(), resource(h='ACME_CPU_32').cpu)\n"
    )
    assert out.splitlines() == ["4 True", "acme_h100 16"]


def test_only_the_module_of_the_component_is_imported(
    installed: Environment, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    installed.torchx("run", "--dryrun", "acme.second.hello", ACME_MARK=str(mark))
    assert mark.read_text().splitlines() == [
        "acme_one.components.second imported",
        "scheduler imported",
    ] or mark.read_text().splitlines() == [
        "scheduler imported",
        "acme_one.components.second imported",
    ]


def test_commands_that_need_no_plugin_import_none(installed: Environment, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for args in (["--version"], ["--help"], ["completion", "bash"], ["qtop"], ["tracker"]):
        installed.torchx(*args, ACME_MARK=str(mark))
    assert not mark.exists()


def test_components_of_packages_stand_beside_the_built_in_ones(installed: Environment) -> None:
    listed = json.loads(installed.torchx("builtins", "--json").stdout)["components"]
    names = [item["name"] for item in listed]
    assert {"acme.first.hello", "acme.second.hello", "utils.echo", "dist.ddp"} <= {*names}
    assert installed.torchx("run", "--dryrun", "utils.echo").returncode == 0


def test_commands_of_packages_are_commands(installed: Environment) -> None:
    assert installed.torchx("qtop", "--limit", "3").stdout == "top 3\n"
    assert installed.torchx("qmade").stdout == "top 10\n"
    assert "qtop" in installed.torchx("--help").stdout
    assert installed.torchx("qtop", "--nope").returncode == 2


def test_events_go_to_the_handler_of_a_package(installed: Environment, tmp_path: Path) -> None:
    events = tmp_path / "events"
    done = installed.torchx("run", "acme.first.hello", ACME_EVENTS=str(events))
    assert done.returncode == 0, done.stderr
    apis = [json.loads(line)["api"] for line in events.read_text().splitlines()]
    assert "schedule" in apis


def test_a_tracker_of_an_editable_package_tracks(installed: Environment, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "from torchx.tracker import app_run_from_env\napp_run_from_env().add_metadata(lr=0.1)\n"
    )
    component = tmp_path / "comp.py"
    component.write_text(
        "from torchx.specs import AppDef, Resource, Role\n"
        "def job() -> AppDef:\n"
        f"    role = Role('r', image='', entrypoint={installed.python!r},\n"
        f"                args=[{str(script)!r}], resource=Resource(1, 0, 10))\n"
        "    return AppDef('job', [role])\n"
    )
    settings = {
        "TORCHX_TRACKERS": "two",
        "TORCHX_TRACKER_TWO_CONFIG": str(tmp_path / "runs"),
    }
    done = installed.torchx("run", f"{component}:job", **settings)
    assert done.returncode == 0, done.stderr
    handle = done.stdout.strip()
    listed = installed.torchx("tracker", "list", "metadata", handle, "--json", **settings)
    assert json.loads(listed.stdout) == {"lr": 0.1}


def test_the_source_of_plugins_can_be_chosen(installed: Environment) -> None:
    code = (
        "from torchx.schedulers import get_scheduler_factories as f; "
        "print('acme' in f(), list(f(skip_defaults=True)))"
    )
    assert installed.run(code) == "True ['acme']\n"
    os.environ["TORCHX_PLUGINS_SOURCE"] = "2"
    try:
        assert installed.run(code) == "False []\n"
    finally:
        del os.environ["TORCHX_PLUGINS_SOURCE"]
    bad = installed.torchx("list", TORCHX_PLUGINS_SOURCE="9")
    assert bad.returncode == 2  # wrong as written
    assert "TORCHX_PLUGINS_SOURCE='9'" in bad.stderr
    assert "Traceback" not in bad.stderr


# -- with the broken package --------------------------------------------------------------------


def test_every_failure_is_shown_with_its_reason(half_broken: Environment) -> None:
    errors = tables(half_broken)["errors"]
    told = {(e["kind"], e["name"], e["module"]): e["error"] for e in errors}
    missing = "ModuleNotFoundError: No module named 'no_such_dependency'"
    assert told == {
        (None, None, "torchx_plugins.schedulers.lacks"): missing,
        (None, None, "torchx_plugins.named_resources.raises"): "RuntimeError: on import",
        ("scheduler", "lost", "torchx_plugins.tracker.misplaced"): told[
            ("scheduler", "lost", "torchx_plugins.tracker.misplaced")
        ],
        ("scheduler", "schedbroken", "acme_broken"): missing,
        ("tracker", "trkbroken", "acme_broken"): missing,
        ("component", "brokencomps", "acme_broken"): missing,
        ("cli_command", "qbroken", "acme_broken"): missing,
    }
    assert half_broken.torchx("plugins", "--check").returncode == 1


def test_commands_that_need_nothing_broken_work(half_broken: Environment) -> None:
    for args in (["--version"], ["qtop"]):
        done = half_broken.torchx(*args)
        assert (done.returncode, done.stderr) == (0, "")
    done = half_broken.torchx("--help")
    assert done.returncode == 0
    assert "qtop" in done.stdout
    assert "qbroken" not in done.stdout
    assert done.stderr.count("of acme-broken 1.0 cannot be loaded") == 1
    for args in (["run", "acme.first.hello"], ["run", "-s", "acme", "acme.first.hello"], ["list"]):
        done = half_broken.torchx(*args)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("torchx_plugins.schedulers.lacks") == 1
        assert "Traceback" not in done.stderr


def test_what_needs_the_broken_part_says_so_in_one_line(half_broken: Environment) -> None:
    for args, code, said in [
        (["qbroken"], 1, "the command `qbroken` of acme-broken 1.0 cannot be loaded"),
        (["run", "-s", "schedbroken", "acme.first.hello"], 1, "cannot be loaded"),
        (["run", "brokencomps.x"], 2, "which cannot be imported"),  # no component has that name
    ]:
        done = half_broken.torchx(*args)
        assert done.returncode == code
        assert said in done.stderr
        assert "no_such_dependency" in done.stderr
        assert "Traceback" not in done.stderr


def test_builtins_leave_the_broken_package_out(half_broken: Environment) -> None:
    done = half_broken.torchx("builtins", "--json")
    names = [item["name"] for item in json.loads(done.stdout)["components"]]
    assert [name for name in names if "acme" in name] == ["acme.first.hello", "acme.second.hello"]
    assert "utils.echo" in names
    assert done.stderr.count("brokencomps") == 1


def test_two_at_once_are_two(installed: Environment) -> None:
    code = "from torchx.plugins import registry; print(len(registry().info()))"
    processes = [
        subprocess.Popen([installed.python, "-c", code], stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert [p.communicate()[0] for p in processes] == [b"4\n"] * 4
