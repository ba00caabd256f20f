"""Source trees of packages that extend TorchX."""

import textwrap
from pathlib import Path

_PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"

[tool.hatch.build]
dev-mode-dirs = ["."]

[tool.hatch.build.targets.wheel]
packages = [{include}]
{entry_points}
"""

SCHEDULER = '''
"""Notes what it is told in a file."""

import os

from torchx.plugins import register
from torchx.schedulers.api import DescribeAppResponse, Scheduler
from torchx.specs import AppDryRunInfo, AppState

if os.environ.get("ACME_MARK"):
    with open(os.environ["ACME_MARK"], "a") as f:
        f.write("scheduler imported\\n")


class Acme(Scheduler):
    def _submit_dryrun(self, app, cfg):
        return AppDryRunInfo(app, lambda app: f"acme request for {app.name}")

    def schedule(self, dryrun_info):
        return "acme-1"

    def describe(self, app_id):
        return DescribeAppResponse(app_id=app_id, state=AppState.SUCCEEDED)

    def list(self, cfg=None):
        return []

    def _cancel_existing(self, app_id):
        pass


@register.scheduler()
def acme(session_name):
    """Takes no other keywords, although the runner has some to give."""
    return Acme("acme", session_name)
'''

RESOURCES = """
from torchx.plugins import WHOLE, powers_of_two_gpus, register
from torchx.specs import Resource


@register.named_resource(aliases=["h100"], fractionals=powers_of_two_gpus)
def acme_h100(fractional: float = WHOLE) -> Resource:
    return Resource(
        cpu=int(96 * fractional), gpu=int(8 * fractional), memMB=int(1_048_576 * fractional)
    )
"""

MORE_RESOURCES = """
from torchx.plugins import halve_mem_down_to, register
from torchx.specs import Resource


@register.named_resource(fractionals=halve_mem_down_to(minGiB=16))
def acme_cpu(fractional: float = 1.0) -> Resource:
    return Resource(cpu=int(32 * fractional), gpu=0, memMB=int(64 * 1024 * fractional))
"""

TRACKER = """
import json
import os

from torchx.plugins import register
from torchx.tracker.backend.fsspec import FsspecTracker


@register.tracker()
def two(config):
    import fsspec

    os.makedirs(config, exist_ok=True)
    return FsspecTracker(fsspec.filesystem("file"), config)
"""

EVENTS = """
import logging
import os

from torchx.plugins import register


class Handler(logging.Handler):
    def emit(self, record):
        with open(os.environ.get("ACME_EVENTS", os.devnull), "a") as f:
            f.write(record.getMessage() + "\\n")


@register.event_handler(name="null")
def acme_events():
    return Handler()
"""

COMPONENTS = '''
import os

from torchx.specs import AppDef, Resource, Role

if os.environ.get("ACME_MARK"):
    with open(os.environ["ACME_MARK"], "a") as f:
        f.write(f"{__name__} imported\\n")


def hello(who: str = "you") -> AppDef:
    """Says hello.

    Args:
        who: to whom
    """
    role = Role(
        "hello", image="", entrypoint="echo", args=[f"hello {who}"], resource=Resource(1, 0, 10)
    )
    return AppDef("hello", [role])
'''

COMMAND = """
from torchx.cli.cmd_base import SubCommand


class QueueTop(SubCommand):
    def add_arguments(self, subparser):
        subparser.add_argument("--limit", type=int, default=10)

    def run(self, args):
        print(f"top {args.limit}")


def make():
    return QueueTop()
"""


def project(
    folder: Path, name: str, files: dict[str, str], entry_points: str = "", version: str = "1.0"
) -> Path:
    """Writes a project; its packages are the top folders of ``files``."""
    tops = sorted({path.split("/")[0] for path in files})
    folder.mkdir(parents=True)
    text = _PROJECT.format(
        name=name,
        version=version,
        include=", ".join(f'"{top}"' for top in tops),
        entry_points=textwrap.dedent(entry_points),
    )
    (folder / "pyproject.toml").write_text(text)
    for path, source in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return folder


def one(folder: Path) -> Path:
    """Everything that there is to extend: namespace modules, components and commands."""
    return project(
        folder,
        "acme-one",
        {
            "torchx_plugins/schedulers/acme.py": SCHEDULER,
            "torchx_plugins/named_resources/acme.py": RESOURCES,
            "acme_one/__init__.py": "",
            "acme_one/components/__init__.py": "",
            "acme_one/components/first.py": COMPONENTS,
            "acme_one/components/second.py": COMPONENTS,
            "acme_one/cli.py": COMMAND,
        },
        """
        [project.entry-points."torchx.components"]
        acme = "acme_one.components"
        [project.entry-points."torchx.cli.cmds"]
        qtop = "acme_one.cli:QueueTop"
        qmade = "acme_one.cli:make"
        """,
    )


def two(folder: Path) -> Path:
    """The other half of the namespaces."""
    return project(
        folder,
        "acme-two",
        {
            "torchx_plugins/named_resources/two.py": MORE_RESOURCES,
            "torchx_plugins/tracker/two.py": TRACKER,
            "torchx_plugins/event_handlers/two.py": EVENTS,
        },
        version="2.5",
    )


def broken(folder: Path) -> Path:
    """Fails in every way."""
    return project(
        folder,
        "acme-broken",
        {
            "torchx_plugins/schedulers/lacks.py": "import no_such_dependency\n",
            "torchx_plugins/named_resources/raises.py": "raise RuntimeError('on import')\n",
            "torchx_plugins/tracker/misplaced.py": SCHEDULER.replace("def acme(", "def lost("),
            "acme_broken/__init__.py": "import no_such_dependency\n",
        },
        """
        [project.entry-points."torchx.cli.cmds"]
        qbroken = "acme_broken:Cmd"
        [project.entry-points."torchx.tracker"]
        trkbroken = "acme_broken:create"
        [project.entry-points."torchx.schedulers"]
        schedbroken = "acme_broken:create"
        [project.entry-points."torchx.components"]
        brokencomps = "acme_broken"
        """,
    )
