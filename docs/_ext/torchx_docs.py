"""Directives that write tables from the code, so that pages cannot say anything else.

``runopts`` lists the options of a scheduler, ``compatibility`` what it can do, ``named-resources``
the resources of a module. All three take the full name of a class or module in ``:class:`` or as
their argument. The quick reference is copied to ``llms.txt`` at the root of the site.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from pygments.lexers.python import PythonLexer
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

COMPATIBILITY = {
    "logs": "Fetch logs",
    "distributed": "Distributed jobs",
    "cancel": "Cancel job",
    "describe": "Describe job",
    "workspaces": "Workspaces / patching",
    "mounts": "Mounts",
    "elasticity": "Elasticity",
}
"""Rows of the feature table: all of them, on the page of every scheduler."""

ANSWERS = ("yes", "no", "partly")


class WrongTable(ExtensionError):
    """A directive does not say what it must, or not what the code says; ends the build."""


class Table(SphinxDirective):
    """Writes rows as a Markdown table in place of the directive."""

    def table(self, header: list[str], rows: list[list[str]]) -> list[nodes.Node]:
        lines = [header, ["---"] * len(header), *rows]
        text = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in x)} |" for x in lines]
        container = nodes.container()
        self.state.nested_parse(StringList(text, source=self.env.docname), 0, container)
        return container.children

    def fail(self, message: str) -> WrongTable:
        return WrongTable(f"{self.env.docname}, line {self.lineno}: {message}")

    def load(self, name: str) -> Any:
        """The class of a full name."""
        module, _, attribute = name.rpartition(".")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as err:
            raise self.fail(f"there is no `{name}`: {err}") from err


class RunOpts(Table):
    """Options of the scheduler ``:class:``, the required ones first."""

    option_spec: ClassVar[Any] = {"class": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        if "class" not in self.options:
            raise self.fail("`:class:` must name a scheduler")
        name = self.options["class"]
        scheduler = self.load(name)
        # a scheduler can be made where its backend is not, as `torchx runopts` does
        module = import_module(name.rpartition(".")[0])
        opts = getattr(module, "create_scheduler", scheduler)(session_name="docs").run_opts()
        items = sorted(opts, key=lambda item: not item[1].is_required)
        if not items:
            return [nodes.paragraph(text="This scheduler has no options.")]
        rows = []
        for key, opt in items:
            default = "required" if opt.is_required else f"`{opt.default}`"
            text = " ".join(opt.help.split())
            rows.append([f"`{key}`", f"`{type_text(opt.opt_type)}`", default, text])
        return self.table(["option", "type", "default", "meaning"], rows)


def type_text(kind: Any) -> str:
    """``list[str]`` in full, ``int`` by its name."""
    return str(kind).replace("typing.", "") if getattr(kind, "__args__", ()) else kind.__name__


class Compatibility(Table):
    """What a scheduler can do: a line ``key: yes``, ``no`` or ``partly``, perhaps with a note.

    With ``:class:`` the answers must agree with the features that the scheduler declares.
    """

    has_content = True
    option_spec: ClassVar[Any] = {"class": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        given = {}
        for line in filter(None, map(str.strip, self.content)):
            key, colon, value = line.partition(":")
            if not colon or key.strip() in given:
                raise self.fail(f"`{line}` is not `key: answer`, or is there twice")
            given[key.strip()] = value.strip()
        if given.keys() != COMPATIBILITY.keys():
            missing = sorted(COMPATIBILITY.keys() - given.keys())
            extra = sorted(given.keys() - COMPATIBILITY.keys())
            raise self.fail(f"`compatibility` lacks {missing} and has {extra} too much")
        declared = self.declared()
        for key, value in given.items():
            answer = re.split(r"\W", value, maxsplit=1)[0]
            if answer not in ANSWERS:
                raise self.fail(f"`{key}` must begin with one of {ANSWERS}, it is `{value}`")
            if key in declared and answer != "partly" and declared[key] != (answer == "yes"):
                raise self.fail(f"`{key}` is `{value}`, the scheduler declares {declared[key]}")
        rows = [[title, given[key]] for key, title in COMPATIBILITY.items()]
        return self.table(["feature", "supported"], rows)

    def declared(self) -> dict[str, bool]:
        if "class" not in self.options:
            return {}
        from torchx.workspace.api import WorkspaceMixin

        scheduler = self.load(self.options["class"])
        return {
            "logs": scheduler.features.logs,
            "mounts": scheduler.features.mounts,
            "workspaces": issubclass(scheduler, WorkspaceMixin),
            "elasticity": scheduler.features.min_replicas,
        }


class NamedResources(Table):
    """The named resources of a module."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        factories = import_module(self.arguments[0]).NAMED_RESOURCES
        rows = []
        for name, factory in factories.items():
            made = factory()
            rows.append([f"`{name}`", str(made.cpu), str(made.gpu), memory(made.memMB)])
        return self.table(["name", "CPU", "GPU", "memory"], rows)


def memory(mem_mb: int) -> str:
    """In the largest unit that divides it."""
    return f"{mem_mb // 1024} GiB" if mem_mb % 1024 == 0 else f"{mem_mb} MiB"


def write_llms_txt(app: Sphinx, exception: Exception | None) -> None:
    """Copies the quick reference as it is, but for its links, which lead to the pages."""
    page = Path(app.srcdir, "quick_reference.md")
    if exception is None and app.builder.name == "html" and page.exists():
        text = re.sub(r"(\]\((?!http)[^)\s]*?)\.md\b", r"\1.html", page.read_text())
        Path(app.outdir, "llms.txt").write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("runopts", RunOpts)
    app.add_directive("compatibility", Compatibility)
    app.add_directive("named-resources", NamedResources)
    app.add_lexer("ipython", PythonLexer)  # cells of notebooks, with their magics
    app.connect("build-finished", write_llms_txt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
