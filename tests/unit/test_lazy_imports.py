"""Imports of our own modules inside functions: only as listed, and only if that saves work.

Every entry says which imports wait, and for what. What a command loads anyway is imported at the
top of the file, where a reader expects it.
"""

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

import pytest

from tests.unit.test_layers import MODULES, Import


class Waits(NamedTuple):
    """Imports that wait until a function is called; ``*`` stands for anything in a name."""

    module: str
    target: str
    reason: str

    def covers(self, found: Import) -> bool:
        return fnmatchcase(found.module, self.module) and fnmatchcase(found.target, self.target)


COMMAND = "each command loads what it needs, the front door nothing of the others"
COMPLETION = "a completion loads what the word at hand needs"
PLUGINS = "plugins are looked for only where a name is not built in"
CLIENT = "dry runs talk to no backend; `run --detach` reads no logs"
FEW = "of few records none is removed"
FAILURE = "loaded to say what went wrong"
TEXT = "loaded to print for people or to show the recorded request"
COMPONENT = "docstrings and sources of components are read for help and for parsing only"
WORKSPACE = "loaded when there is a workspace to build, copy or upload"
RUN = "loaded by jobs that run, which also work where only a part is installed"

LISTED = [
    Waits("torchx.cli.main", "torchx.*", COMMAND),
    Waits("torchx.cli._parser", "torchx.cli._help", COMMAND),
    Waits("torchx.cli._output", "torchx._startup.lazy_logger", COMMAND),
    Waits("torchx.cli.argparse_util", "torchx.runner.config", COMMAND),
    Waits("torchx.cli._output", "torchx.cli._calm", "for records on a terminal"),
    Waits("torchx.cli._output", "torchx.cli._look", "for tables on a terminal"),
    Waits("torchx.cli._output", "torchx.cli._table", "for tables on a terminal"),
    Waits("torchx.cli._help", "torchx.util._terminal", "other commands need no help"),
    Waits("torchx.cli._output", "torchx._passing", "for records, and what they tell of"),
    Waits("torchx.cli.cmd_*", "torchx.cli._*_view", "for terminals alone"),
    Waits("torchx.cli.cmd_*", "torchx.cli._watch", "for `--watch` alone"),
    Waits("torchx.cli._explained", "torchx.schedulers.causes", FAILURE),
    Waits("torchx.cli.cmd_status", "torchx.cli._explained", "of what is fine there is no cause"),
    Waits("torchx.cli.cmd_log", "torchx.cli._handles", "`run` knows its handle"),
    Waits("torchx.cli._run_wait", "torchx.cli._errors", FAILURE),
    Waits("torchx.cli.cmd_base", "torchx.cli._handles", "dry runs name no app"),
    Waits("torchx.schedulers.api", "torchx._outages", FAILURE),
    Waits("torchx.cli.cmd_run", "torchx.cli._errors", FAILURE),
    Waits("torchx.cli.cmd_run", "torchx.cli._run_*", "a dry run launches nothing"),
    Waits("torchx.cli.cmd_run", "torchx.cli._dryrun", "for `--dryrun` alone"),
    Waits("torchx.runner.*", "torchx._launches", "a dry run launches nothing"),
    Waits("torchx.cli._run_wait", "torchx.cli.cmd_log", "a dry run prints no logs"),
    Waits("torchx.cli._run_wait", "torchx._outages", "a dry run waits for nothing"),
    Waits("torchx.cli._run_wait", "torchx.util.log_tee_helpers", "for `--tee_logs` alone"),
    Waits("torchx.cli.cmd_log", "torchx.cli._log_replicas", "for `--by-replica` alone"),
    Waits("torchx.cli.cmd_builtins", "torchx.cli.*", "`run` loads this module as well"),
    Waits("torchx.cli._completion", "torchx.*", COMPLETION),
    Waits("torchx.cli._handles", "torchx.schedulers.local_*", "a whole handle needs no records"),
    Waits("torchx.cli.*", "torchx.errors", FAILURE),
    Waits("torchx.cli._reader", "torchx.cli._errors", FAILURE),
    Waits("torchx.cli._errors", "torchx.cli.cmd_base", FAILURE),
    Waits("torchx.*", "torchx._secrets", "values are masked where they are shown"),
    Waits("torchx._startup.foreign_code", "torchx.errors", FAILURE),
    Waits("torchx._startup.plugin_lookup", "torchx._startup.foreign_code", PLUGINS),
    Waits("torchx.cli.cmd_plugins", "torchx.*", PLUGINS),
    Waits("torchx.plugins._registry", "torchx.*", PLUGINS),
    Waits("torchx.plugins._report", "torchx.util.entrypoints", PLUGINS),
    Waits("torchx.runner.events.handlers", "torchx.plugins", PLUGINS),
    Waits("torchx.schedulers", "torchx.*", PLUGINS),
    Waits("torchx.specs._named_resources", "torchx.*", PLUGINS),
    Waits("torchx.specs.finder", "torchx._startup.foreign_code", PLUGINS),
    Waits("torchx.specs._component_modules", "torchx._startup.foreign_code", PLUGINS),
    Waits("torchx.specs._component_modules", "torchx.util.entrypoints", PLUGINS),
    Waits("torchx.specs.finder", "torchx._component_names", FAILURE),
    Waits("torchx.schedulers._core.snapshot", "torchx.schedulers._core.tracebacks", FAILURE),
    Waits("torchx.util.entrypoints", "torchx.*", PLUGINS),
    Waits("torchx.util.io", "torchx.util.entrypoints", PLUGINS),
    Waits("torchx.version", "torchx.*", "the version alone is asked for most"),
    Waits("torchx.schedulers.api", "torchx.schedulers._core.reading", CLIENT),
    Waits("torchx.schedulers.api", "torchx.schedulers._core.logs", CLIENT),
    Waits("torchx.schedulers.api", "torchx.schedulers._core.snapshot", CLIENT),
    Waits("torchx.schedulers.api", "torchx.schedulers._core.many", "of one app alone"),
    Waits("torchx.schedulers.api", "torchx.schedulers._core.executing", "for `exec` alone"),
    Waits("torchx.schedulers.local_*._scheduler", "torchx.schedulers._core.snapshot", CLIENT),
    Waits("torchx.runner._ending", "torchx.schedulers._core.many", "of one app alone"),
    Waits("torchx.runner._inside", "torchx.schedulers._core.executing", "for `exec` alone"),
    Waits("torchx.schedulers.api", "torchx.schedulers._core.failures", FAILURE),
    Waits("torchx.schedulers.api", "torchx.schedulers._core.explaining", FAILURE),
    Waits("torchx.schedulers.*_scheduler._scheduler", "torchx.schedulers.*_scheduler._*", CLIENT),
    Waits("torchx.schedulers.*_scheduler._*", "torchx.schedulers._kube.*", CLIENT),
    Waits("torchx.schedulers.*_scheduler._*", "torchx._aws.*", CLIENT),
    Waits("torchx.schedulers.local_*._launch", "torchx.schedulers.local_*._prune", FEW),
    Waits("torchx.schedulers.local_*._execute", "torchx.schedulers.local_*._client", CLIENT),
    Waits("torchx.schedulers._kube.*", "torchx.schedulers._kube.*", CLIENT),
    Waits("torchx.schedulers.local_scheduler._compat", "torchx.schedulers.local_*", CLIENT),
    Waits("torchx.runner._calls", "torchx.runner.events", CLIENT),
    Waits("torchx.runner._changes", "torchx._outages", CLIENT),
    Waits("torchx.runner._async_verbs", "torchx.*", "for coroutines alone, which load asyncio"),
    Waits("torchx.runner.api", "torchx.runner._portability", "for `strict` alone"),
    Waits("torchx.cli.cmd_run", "torchx.cli._portability", "for several schedulers alone"),
    Waits("torchx.runner._changes", "torchx.runner._watching", CLIENT),
    Waits("torchx.runner._explaining", "torchx.schedulers.checkups", "for `doctor` alone"),
    Waits("torchx.runner._explaining", "torchx.schedulers._core.refusals", "for errors alone"),
    Waits("torchx.runner._recorded", "torchx.runner._requests", CLIENT),
    Waits("torchx.runner._session", "torchx.runner._resolved", TEXT),
    Waits("torchx.runner._inside", "torchx.schedulers._core.ports", CLIENT),
    Waits("torchx.runner.api", "torchx.runner._watching", CLIENT),
    Waits("torchx.runner.api", "torchx._outages", CLIENT),
    Waits("torchx.runner.api", "torchx.specs.finder", COMPONENT),
    Waits("torchx.specs.finder", "torchx.specs.*", COMPONENT),
    Waits("torchx.specs._component_modules", "torchx.specs.*", COMPONENT),
    Waits("torchx.specs.builders", "torchx.specs._component_parser", COMPONENT),
    Waits("torchx.specs.builders", "torchx._startup.foreign_code", COMPONENT),
    Waits("torchx.specs.file_linter", "torchx.specs._component_parser", COMPONENT),
    Waits("torchx.specs._component_parser", "torchx.specs._docstrings", COMPONENT),
    Waits("torchx.components.utils", "torchx.specs._hydra", "for `utils.hydra` alone"),
    Waits("torchx.specs._app", "torchx.specs._overrides", "for roles with awaitable values"),
    Waits("torchx.specs._options", "torchx.specs._options_text", TEXT),
    Waits("torchx.specs.*", "torchx.specs._status_text", TEXT),
    Waits("torchx.schedulers.local_scheduler._record", "torchx.specs._serialize", TEXT),
    Waits("torchx.runner.api", "torchx.runner._building", WORKSPACE),
    Waits("torchx.schedulers.*_scheduler._scheduler", "torchx.workspace.*", WORKSPACE),
    Waits("torchx.specs._workspace", "torchx._projects.copy", WORKSPACE),
    Waits("torchx.workspace.*", "torchx.workspace.*", WORKSPACE),
    Waits("torchx.workspace.*", "torchx._projects.listing", WORKSPACE),
    Waits("torchx.workspace.*", "torchx._docker", WORKSPACE),
    Waits(
        "torchx.schedulers._image_checkups",
        "torchx.workspace._registry.*",
        "for images that are not on this machine",
    ),
    Waits("torchx.workspace._ecr", "torchx._aws.*", "for registries of AWS alone"),
    Waits("torchx.tracker.mlflow", "torchx.*", RUN),
]

REPLACED = {
    "torchx -> torchx.version": "an attribute of the package, computed when asked for",
    "torchx.schedulers.aws_sagemaker_scheduler._compat -> torchx.schedulers.aws_sagemaker_scheduler": "",  # noqa: E501 - one name
    "torchx.schedulers.aws_batch_scheduler._compat -> torchx.schedulers.aws_batch_scheduler": "",
    "torchx.schedulers.docker_scheduler._compat -> torchx.schedulers.docker_scheduler": "",
    "torchx.schedulers.kubernetes_scheduler._compat -> torchx.schedulers.kubernetes_scheduler": "",
    "torchx.schedulers.local_scheduler._scheduler -> torchx.schedulers.local_scheduler": "",
    "torchx.schedulers.slurm_scheduler._compat -> torchx.schedulers.slurm_scheduler": "",
}
"""Modules that look a name up when they are called, since clients replace it in the package."""


def inside_functions() -> list[Import]:
    """All imports of our own modules that stand in a function."""
    return [i for i in MODULES.imports if i.line in LINES[i.module] and is_ours(i)]


def is_ours(found: Import) -> bool:
    return found.target.split(".")[0] == "torchx" and str(found) not in REPLACED


def lines_in_functions(tree: ast.AST, inside: bool = False) -> Iterator[int]:
    for node in ast.iter_child_nodes(tree):
        if inside and isinstance(node, ast.Import | ast.ImportFrom):
            yield node.lineno
        within = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from lines_in_functions(node, inside or within)


LINES = {
    module: set(lines_in_functions(ast.parse(path.read_text(encoding="utf-8"))))
    for module, path in MODULES.files.items()
}
WAITING = inside_functions()


def loaded_by(module: str) -> set[str]:
    """The modules of ours that are imported by importing one, itself and its packages too."""
    loaded: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if not name or name in loaded:
            continue
        loaded.add(name)
        todo.append(name.rpartition(".")[0])
        todo += [
            i.target
            for i in MODULES.imports
            if i.module == name and i.target in MODULES.files and i.line not in LINES[name]
        ]
    return loaded


@pytest.mark.parametrize("module", sorted({i.module for i in WAITING}))
def test_imports_in_functions_are_listed(module: str) -> None:
    ours = [i for i in WAITING if i.module == module]
    assert [str(i) for i in ours if not any(entry.covers(i) for entry in LISTED)] == []


@pytest.mark.parametrize("module", sorted({i.module for i in WAITING}))
def test_nothing_waits_that_is_loaded_by_then(module: str) -> None:
    loaded = loaded_by(module)
    assert [str(i) for i in WAITING if i.module == module and i.target in loaded] == []


def test_the_list_names_nothing_that_is_gone() -> None:
    unused = [entry for entry in LISTED if not any(entry.covers(i) for i in WAITING)]
    assert unused == []
