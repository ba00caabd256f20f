"""Which package may import which: what a drawing of the packages and their imports must show.

Imports inside functions count, those for type checkers alone do not.
"""

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import torchx

SRC = Path(torchx.__file__).parent

PURE = ("_options", "_request", "_states", "_parse", "_script")
IMPURE = {
    *("os", "subprocess", "time", "socket", "tempfile", "shutil", "pathlib", "glob", "random"),
    *("urllib.request", "http", "ssl", "select", "threading", "asyncio", "anyio"),
    *("docker", "kubernetes", "boto3", "botocore", "httpcore"),
}
MAY_ACT = {
    "torchx.schedulers.api": "the interface, with types that requests and snapshots are made of",
    "torchx.schedulers._core.logs": "it takes lines apart; what acts is `pause`",
    "torchx.schedulers.ids": "it makes names fit; random ones are asked for by who submits",
    "torchx.schedulers.local_scheduler._images": "a provider of images is handed in by its type",
}
"""Modules that pure ones import although they act, and what for."""
CORE_MAY_IMPORT = {
    "torchx.errors",
    "torchx.settings",
    "torchx._files",
    "torchx._home",
    "torchx._retry",
    "torchx._words",
    "torchx._startup",
    "torchx.specs",
}


class Import(NamedTuple):
    """One module that another one imports."""

    module: str
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.module} -> {self.target}"


class Modules:
    """The modules of the package, with what each of them imports."""

    def __init__(self, package: Path) -> None:
        found = sorted(package.rglob("*.py"))
        self.files = {self._name(package.parent, path): path for path in found}
        self.imports = [found for name in self.files for found in self._imports(name)]

    @staticmethod
    def _name(src: Path, path: Path) -> str:
        parts = path.relative_to(src).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _imports(self, module: str) -> Iterator[Import]:
        path = self.files[module]
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                targets = self._targets(node, package)
            else:
                continue
            for target in dict.fromkeys(targets):
                yield Import(module, node.lineno, target)

    def _targets(self, node: ast.ImportFrom, package: str) -> list[str]:
        base = node.module or ""
        if node.level:
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [node.module])])
        names = [f"{base}.{alias.name}" for alias in node.names]
        return [name if name in self.files else base for name in names]


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, without what stands under ``if TYPE_CHECKING:``."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            yield from executed(ast.Module(child.orelse, []))
        else:
            yield from executed(child)


MODULES = Modules(SRC)


def unit(module: str) -> str:
    """The room that a module is in: a package below ``torchx``, one scheduler, or one of the parts
    that schedulers share."""
    parts = module.split(".")
    if parts[:2] == ["torchx", "schedulers"] and len(parts) > 2:
        apart = parts[2].endswith("_scheduler") or parts[2] in ("_core", "_kube", "_aws")
        return ".".join(parts[:3]) if apart else "torchx.schedulers"
    return ".".join(parts[:2])


def is_scheduler(module: str) -> bool:
    return module.endswith("_scheduler")


def found_by(rule: Callable[[Import], bool]) -> list[str]:
    return [f"{i} (line {i.line})" for i in MODULES.imports if rule(i)]


def top(module: str) -> str:
    """The module or package right below ``torchx``."""
    return ".".join(module.split(".")[:2])


PROGRAMS = {"torchx.__main__", "torchx.schedulers.local_scheduler._supervise.main"}
"""Modules that are started and not imported."""


def test_every_private_module_is_loaded_by_another_one() -> None:
    """A merge can bring back a module that was split or moved, which nothing else would notice."""
    targets = {i.target for i in MODULES.imports}
    texts = {name: path.read_text(encoding="utf-8") for name, path in MODULES.files.items()}
    unused = {
        name
        for name, path in MODULES.files.items()
        if "._" in name
        and path.name != "__init__.py"
        and name not in targets
        # some are imported by their names
        and not any(name in text for other, text in texts.items() if other != name)
    }
    assert unused == PROGRAMS


@pytest.mark.parametrize("room", [top, unit])
def test_no_circle_between_packages(room: Callable[[str], str]) -> None:
    graph: dict[str, set[str]] = {}
    for found in MODULES.imports:
        if found.target in MODULES.files and room(found.target) != room(found.module):
            graph.setdefault(room(found.module), set()).add(room(found.target))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as err:
        circle = list(reversed(err.args[1]))
        steps = [
            str(i)
            for a, b in itertools.pairwise(circle)
            for i in MODULES.imports
            if (room(i.module), room(i.target)) == (a, b)
        ]
        pytest.fail("\n".join([" -> ".join(circle), *steps]))


def test_schedulers_are_of_the_shape_that_contributors_are_told() -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| file | or |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines()[2:]]
    always, often = (
        {*re.findall(r"`(\w+)\.py`", " ".join(column))} for column in zip(*rows, strict=True)
    )
    packages = [path for path in (SRC / "schedulers").glob("*_scheduler") if path.is_dir()]
    assert len(packages) >= 8
    files = [{path.stem for path in package.glob("*.py")} for package in packages]
    assert set.intersection(*files) == always
    shared = {name for own in files for name in own if sum(name in other for other in files) > 1}
    assert shared == always | often


def core_imports_too_much(found: Import) -> bool:
    return (
        unit(found.module) == "torchx.schedulers._core"
        and found.target.startswith("torchx")
        and unit(found.target) not in {*CORE_MAY_IMPORT, "torchx.schedulers._core"}
    )


def test_what_schedulers_share_imports_no_scheduler_and_not_their_interface() -> None:
    assert found_by(core_imports_too_much) == []


def imports_another_scheduler(found: Import) -> bool:
    here, there = unit(found.module), unit(found.target)
    above = there in ("torchx.runner", "torchx.cli")
    return is_scheduler(here) and (above or (is_scheduler(there) and there != here))


def test_a_scheduler_imports_no_other_one_nor_what_uses_schedulers() -> None:
    assert found_by(imports_another_scheduler) == []


def is_pure(module: str) -> bool:
    package, _, file = module.rpartition(".")
    return is_scheduler(package) and file in PURE


def acts(found: Import) -> bool:
    return any(f"{found.target}.".startswith(f"{name}.") for name in IMPURE)


def ways_to_the_world(imports: Iterable[Import], start: str) -> list[str]:
    """The ways, by the modules of schedulers that import each other, from one to what acts."""
    by_module: dict[str, list[Import]] = {}
    for found in imports:
        by_module.setdefault(found.module, []).append(found)
    ways, todo, seen = [], [(start,)], set()
    while todo:
        way = todo.pop()
        if way[-1] in seen or way[-1] in MAY_ACT:
            continue
        seen.add(way[-1])
        for found in by_module.get(way[-1], ()):
            if acts(found):
                ways.append(" -> ".join([*way, found.target]))
            todo.append((*way, found.target))
    return ways


def of_schedulers(found: Import) -> bool:
    """Not what stands below schedulers: the ground floor and specs read files and settings."""
    return found.module.startswith("torchx.schedulers.")


def test_what_is_pure_in_a_scheduler_acts_not_even_through_what_it_imports() -> None:
    pure = [module for module in MODULES.files if is_pure(module)]
    assert len(pure) >= 20, "the pure files have other names now"
    imports = [i for i in MODULES.imports if of_schedulers(i)]
    assert [way for module in pure for way in ways_to_the_world(imports, module)] == []


@pytest.mark.parametrize("package", sorted({*filter(is_scheduler, map(unit, MODULES.files))}))
def test_schedulers_have_one_shape(package: str) -> None:
    files = {module.rpartition(".")[2] for module in MODULES.files if unit(module) == package}
    assert files >= {"_options", "_request", "_states", "_client", "_scheduler"}


@pytest.mark.parametrize("module", [m for m in MODULES.files if is_pure(m)])
def test_what_is_pure_opens_nothing(module: str) -> None:
    tree = ast.parse(MODULES.files[module].read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names.isdisjoint({"open", "input", "print", "exec", "eval", "__import__"})


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("import os.path", ["os.path"]),
        ("def f():\n    from . import b", ["p.b"]),
        ("from .b import thing", ["p.b"]),
        ("from p import b, thing", ["p.b", "p"]),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b", ["b"]),
        ("try:\n    import a\nexcept ImportError:\n    pass", ["a"]),
    ],
)
def test_imports_are_found_wherever_they_stand(
    source: str, targets: list[str], tmp_path: Path
) -> None:
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "b.py").write_text("")
    (package / "a.py").write_text(source)
    found = [i.target for i in Modules(package).imports if i.module == "p.a"]
    assert found == targets


# -- private names ------------------------------------------------------------------------------

PRIVATE_ELSEWHERE = {
    # the runner copies apps field by field, and schedulers fill macros in for 10,000 replicas: both
    # know how the types of specs are made, which is no promise to anyone else
    "torchx.runner._prepare -> torchx.specs._app",
    "torchx.schedulers._core.replicas -> torchx.specs._macros",
    "torchx.schedulers.local_scheduler._request -> torchx.specs._macros",
    "torchx.schedulers.slurm_scheduler._macros -> torchx.specs._macros",
    "torchx.schedulers.lsf_scheduler._request -> torchx.specs._macros",
    # the records of requests hold apps
    "torchx.runner._requests -> torchx.specs._serialize",
    # the record of a local job holds its app
    "torchx.schedulers.local_scheduler._record -> torchx.specs._serialize",
    "torchx.schedulers.local_scheduler._launch -> torchx.specs._serialize",
    # handles are completed from the records alone: the scheduler takes 20 ms to import
    "torchx.cli._completion -> torchx.schedulers.local_scheduler._store",
    "torchx.cli._handles -> torchx.schedulers.local_scheduler._store",
    # what may go of the records of local jobs, which no other scheduler keeps here
    "torchx.cli.cmd_prune -> torchx.schedulers.local_scheduler._prune",
    "torchx.cli.cmd_prune -> torchx.schedulers.local_scheduler._store",
    # a component of ours whose helper is made of parts of the finder
    "torchx.components.utils -> torchx.specs._hydra",
    # a role runs in the copy of a workspace, if its directory is one
    "torchx.schedulers.slurm_scheduler._scheduler -> torchx.workspace._copies",
    # the source of a job is an archive like the context of an image
    "torchx.schedulers.aws_sagemaker_scheduler._source -> torchx.workspace._tar",
    # `torchx doctor` asks registries as those do that put images there
    "torchx.schedulers._image_checkups -> torchx.workspace._registry._auth",
    "torchx.schedulers._image_checkups -> torchx.workspace._registry._client",
    "torchx.schedulers._image_checkups -> torchx.workspace._registry._reference",
    # rooms of one subject each, that share the width of a terminal
    "torchx.cli._help -> torchx.util._terminal",
    "torchx.cli._look -> torchx.util._terminal",
    "torchx.cli._parser -> torchx.util._terminal",
    "torchx.specs._component_parser -> torchx.util._terminal",
}
"""Private modules that are used outside of the package they are in, each with its reason."""


def owner_of(target: str) -> str | None:
    """The package that a private module belongs to; ``None`` for modules that anyone may use.

    What lies directly below ``torchx`` and what schedulers share is there for the whole project.
    """
    parts = target.split(".")
    shared = ("_core", "_kube", "_aws", "_structured_opts")
    for i, part in enumerate(parts):
        if part.startswith("_") and i > 1 and part not in shared:
            return ".".join(parts[:i])
    return None


def uses_a_private_module(found: Import) -> bool:
    owner = owner_of(found.target) if found.target.startswith("torchx") else None
    return owner is not None and not f"{found.module}.".startswith(f"{owner}.")


def test_private_modules_are_used_in_their_own_package_only() -> None:
    used = {str(i) for i in MODULES.imports if uses_a_private_module(i)}
    assert used == PRIVATE_ELSEWHERE


# -- the rules themselves -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (core_imports_too_much, "torchx.schedulers._core.x -> torchx.runner.api"),
        (core_imports_too_much, "torchx.schedulers._core.x -> torchx.schedulers.api"),
        (imports_another_scheduler, "torchx.schedulers.a_scheduler._x -> torchx.runner"),
        (
            imports_another_scheduler,
            "torchx.schedulers.a_scheduler._x -> torchx.schedulers.b_scheduler._y",
        ),
        (uses_a_private_module, "torchx.cli.main -> torchx.runner._prepare"),
        (uses_a_private_module, "torchx.runner.api -> torchx.schedulers.b_scheduler._y"),
        (acts, "torchx.schedulers.a_scheduler._states -> os.path"),
        (acts, "torchx.schedulers.a_scheduler._request -> urllib.request"),
    ],
)
def test_a_rule_can_be_broken(rule: Callable[[Import], bool], found: str) -> None:
    module, _, target = found.partition(" -> ")
    assert rule(Import(module, 1, target))


def test_a_way_to_the_world_may_be_long() -> None:
    ways = [("a._states", "a._parse"), ("a._parse", "a._client"), ("a._client", "subprocess")]
    imports = [Import(module, 1, target) for module, target in ways]
    assert ways_to_the_world(imports, "a._states") == [
        "a._states -> a._parse -> a._client -> subprocess"
    ]
