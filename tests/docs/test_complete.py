"""Compares the documentation with the code: nothing is left out, nothing is there that is not."""

import argparse
import ast
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import torchx
from torchx.cli._run_args import TorchXRunArgs
from torchx.cli.main import COMMANDS, get_default_sub_cmds
from torchx.plugins import PluginType
from torchx.schedulers import DEFAULT_SCHEDULER_MODULES
from torchx.specs import AppState, is_terminal, macros
from torchx.specs.named_resources_generic import NAMED_RESOURCES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src/torchx"
PAGES = sorted(DOCS.rglob("*.md"))

# what other sites link to
SLUGS = (
    "quickstart",
    "quick_reference",
    "basics",
    "cli",
    "runner.config",
    "advanced",
    "custom_components",
    "tracker",
    "api_reference",
    "specs",
    "runner",
    "plugins",
    "schedulers",
    "workspace",
    "deprecations",
    "components/overview",
    "components/distributed",
    "components/utils",
    "runtime/overview",
    "runtime/tracking",
    "schedulers/local",
    "workspaces/docker",
    "app_best_practices",
    "component_best_practices",
)
LABELS = {
    "implementing-scheduler": "schedulers",
    "registering-custom-trackers": "advanced",
    "registering-custom-cli-commands": "advanced",
    "advanced-overlapping-components": "advanced",
}


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def page_id(path: Path) -> str:
    return str(path.relative_to(DOCS))


def section(name: str, heading: str) -> str:
    """Text below a heading, up to the next one of the same rank or a higher one."""
    text = page(name)
    found = re.search(rf"^(#+) {re.escape(heading)}\n", text, re.MULTILINE)
    assert found, f"`{heading}` is not a heading of {name}.md"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """Cells of the tables in a text, without their headers; backticks are taken off."""
    lines = text.splitlines()
    found = []
    for i, line in enumerate(lines):
        header = i + 1 < len(lines) and lines[i + 1].startswith("|---")
        if line.startswith("|") and not line.startswith("|---") and not header:
            cells = re.split(r"(?<!\\)\|", line.strip("|"))
            found.append([cell.strip() for cell in cells])
    return found


def code(cell: str) -> list[str]:
    """Texts in backticks of a cell."""
    return re.findall(r"`([^`]+)`", cell)


# -- environment variables ----------------------------------------------------------------------

VARIABLE = re.compile(r"TORCHX(CONFIG|_[A-Z0-9_]*[A-Z0-9])")
NOT_VARIABLES = {
    "TORCHX_DOCKERFILE",  # names of Python constants, in `__all__`
    "TORCHX_IGNORE",
    "TORCHX_RECORD",  # marks the end of a text in a script
}


def string_constants(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def variables_in_source() -> set[str]:
    """Names of environment variables: texts of our prefix, and what the environment is asked."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        if "testing" in path.parts:
            continue
        for text in string_constants(path):
            found.update([text] if VARIABLE.fullmatch(text) else [])
            found.update(re.findall(r"^export (TORCHX_\w+)=", text, re.MULTILINE))
        asked = re.findall(r"environ(?:\.get\(|\[)\"([A-Z0-9_]+)\"", path.read_text())
        found.update(name for name in asked if name not in FOREIGN)
    return found - NOT_VARIABLES


FOREIGN = {
    # set by PyTorch, Slurm, Docker, conda and shells: read by us, explained by them
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("PATH", "HOME", "USER", "TERM", "COLUMNS", "PWD", "VIRTUAL_ENV", "COMP_LINE", "COMP_POINT"),
}


def documented_variables() -> set[str]:
    return {
        name for row in rows(section("reference", "Environment variables")) for name in code(row[0])
    }


def test_every_environment_variable_is_in_the_table() -> None:
    missing = {
        name
        for name in variables_in_source() - documented_variables()
        if not name.startswith(("SLURM", "LSF", "DOCKER", "_ARGCOMPLETE", "_"))
    }
    assert not missing


def test_what_is_taken_for_no_variable_is_in_the_source() -> None:
    texts = {text for path in SOURCE.rglob("*.py") for text in string_constants(path)}
    assert texts >= NOT_VARIABLES


def test_every_variable_in_the_table_is_in_the_source() -> None:
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    patterns = {name for name in documented_variables() if "<" in name}
    assert patterns == {
        "TORCHX_TRACKER_<NAME>_CONFIG",
        "TORCHX_TRACKER_<NAME>_FACTORY",
        "TORCHX_<NAME>",
    }
    unknown = {name for name in documented_variables() - patterns if name not in source}
    assert not unknown


# -- entry points, commands, config ---------------------------------------------------------------


def test_every_entry_point_group_is_in_the_table() -> None:
    source = {text for path in SOURCE.rglob("*.py") for text in string_constants(path)}
    table = rows(section("reference", "Entry points"))
    documented = {code(row[0])[0] for row in table if len(row) == 4}
    assert documented >= {kind.value for kind in PluginType}
    assert documented <= source
    loaded = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        loaded.update(re.findall(r"(?:load|load_group)\(\s*\"(torchx\.[\w.]+)\"", text))
        loaded.update(re.findall(r"^_?GROUP = \"(torchx\.[\w.]+)\"", text, re.MULTILINE))
    assert loaded <= documented


@pytest.mark.parametrize("kind", PluginType)
def test_the_decorator_of_each_kind_is_in_the_tables(kind: PluginType) -> None:
    for name in ("reference", "plugins"):
        assert f"@register.{kind.label}()" in page(name)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def flags(command: str) -> set[str]:
    """Options of a command and of what is below it."""
    root = argparse.ArgumentParser()
    get_default_sub_cmds()[command].add_arguments(root)
    return {
        option
        for parser in parsers(root)
        for action in parser._actions
        if action.dest != "help"
        for option in action.option_strings
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_every_option_is_on_the_page_of_commands(command: str) -> None:
    text = page("cli")
    assert command in [name for row in rows(text)[: len(COMMANDS)] for name in code(row[0])]
    missing = {
        option
        for option in flags(command)
        if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text)
    }
    assert not missing


def test_no_option_is_on_the_page_that_no_command_has() -> None:
    known = {option for command in COMMANDS for option in flags(command)}
    known |= {"--log_level", "--color", "-v", "-V", "--version", "--help"}
    table_options = {
        word
        for row in rows(page("cli"))
        for text in code(row[0])
        for word in text.split()
        if word.startswith("-")
    }
    assert table_options - known == set()


def test_the_command_table_names_the_commands_that_there_are() -> None:
    table = page("cli").partition("| command | what it does |")[2].partition("\n\n")[0]
    assert {name for row in rows("| |\n|---|" + table) for name in code(row[0])} >= set(COMMANDS)


def test_the_config_sections_are_in_the_table() -> None:
    table = {code(row[0])[0] for row in rows(section("reference", "Sections of `.torchxconfig`"))}
    assert table == {
        "[<scheduler>]",
        "[component:<name>]",
        "[cli:<command>]",
        "[cli:run]",
        "[torchx:tracker]",
        "[tracker:<name>]",
        "[DEFAULT]",
    }


# -- components --------------------------------------------------------------------------------


def builtins() -> dict[str, set[str]]:
    """Built-in components, with their options."""
    from torchx.specs.finder import get_components

    return {
        name: {f"{'-' if len(p) == 1 else '--'}{p}" for p in parameters(component.fn)}
        for name, component in get_components().items()
    }


def parameters(fn: Callable[..., object]) -> Iterator[str]:
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            yield name


def test_every_component_is_in_the_overview() -> None:
    table = {
        name
        for row in rows(section("components/overview", "Built-in components"))
        for name in code(row[0])
    }
    assert table == set(builtins())


@pytest.mark.parametrize(
    ("component", "name"),
    [
        ("dist.ddp", "distributed"),
        ("serve.torchserve", "serve"),
        ("metrics.tensorboard", "metrics"),
    ],
)
def test_the_options_of_a_component_are_on_its_page(component: str, name: str) -> None:
    text = page(f"components/{name}")
    missing = {o for o in builtins()[component] if not re.search(rf"`[^`\n]*{o}\b[^`]*`", text)}
    assert missing - {"--cpu", "--gpu", "--memMB"} == set()


def test_every_component_for_everyday_use_is_launched_on_its_page() -> None:
    text = page("components/utils")
    for name in builtins():
        assert not name.startswith("utils.") or f"torchx run {name} " in text


# -- JSON ----------------------------------------------------------------------------------------


def torchx_json(*args: str, stdin: str | None = None) -> object:
    done = subprocess.run(
        [sys.executable, "-m", "torchx.cli.main", *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return json.loads(done.stdout)


def keys_of(heading: str) -> set[str]:
    return {name for row in rows(section("reference", heading)) for name in code(row[0])}


def test_the_keys_of_json_are_those_in_the_tables() -> None:
    run = torchx_json("run", "--json", "utils.echo")
    assert isinstance(run, dict)
    assert run.keys() == keys_of("torchx run")
    dryrun = torchx_json("run", "--dryrun", "--json", "utils.echo")
    assert isinstance(dryrun, dict)
    assert dryrun.keys() == keys_of("torchx run --dryrun")
    status = torchx_json("status", "--json", run["handle"])
    assert isinstance(status, dict)
    assert status.keys() == keys_of("torchx status")
    (role,) = status["roles"]
    documented = code(section("reference", "torchx status"))
    assert {*role, *role["replicas"][0]} <= {*documented}
    assert {field.name for field in fields(TorchXRunArgs)} == keys_of("torchx run --stdin")


def test_the_keys_of_other_commands_are_in_their_rows() -> None:
    handle = torchx_json("run", "--json", "utils.echo")["handle"]  # type: ignore[index]  # an object
    table = {
        code(row[0])[0]: set(code(row[1]))
        for row in rows(section("reference", "Other commands"))[:-1]
    }
    (listed,) = torchx_json("list", "--json")  # type: ignore[misc]  # a list
    assert listed.keys() == table["list"]
    assert torchx_json("log", "--json", handle).keys() == table["log"]  # type: ignore[attr-defined]
    reports = torchx_json("log", "--verify", "--json", handle)
    assert isinstance(reports, list)
    assert reports[0].keys() == table["log --verify"]
    options = torchx_json("runopts", "--json", "local_cwd")["local_cwd"]["options"]  # type: ignore[index]
    assert {*options[0]} <= table["runopts"]
    plugins = torchx_json("plugins", "--json")
    assert isinstance(plugins, dict)
    assert {*plugins["tracker"][0], "errors"} == table["plugins"]
    assert torchx_json("cancel", "--json", handle).keys() == table["cancel"]  # type: ignore[attr-defined]
    error = torchx_json("status", "--json", "local_cwd://torchx/no-such-app")
    assert isinstance(error, dict)
    text = rows(section("reference", "Other commands"))[-1]
    assert {"error", *error["error"]} <= {*code(text[1])}


# -- types ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reference", "quick_reference"])
def test_the_states_are_in_the_tables(name: str) -> None:
    found = {row[0].strip("`"): row for row in rows(page(name)) if row[0].strip("`").isupper()}
    for state in AppState:
        row = found[state.name]
        if name == "reference":
            assert row[1] == str(state.value)
        assert ("yes" if is_terminal(state) else "no") in row[1:3]


def test_the_generic_resources_are_in_the_quick_reference() -> None:
    table = {
        row[0].strip("`"): row[1:] for row in rows(section("quick_reference", "Named resources"))
    }
    assert table.keys() == NAMED_RESOURCES.keys()
    for name, factory in NAMED_RESOURCES.items():
        made = factory()
        gib, rest = divmod(made.memMB, 1024)
        memory = f"{made.memMB} MiB" if rest else f"{gib} GiB"
        assert table[name] == [str(made.cpu), str(made.gpu), memory]


def test_the_macros_are_in_the_tables() -> None:
    names = {name for name in vars(macros) if name.islower() and not name.startswith("_")}
    for name in ("basics", "quick_reference"):
        for macro in names - {"base_img_root"}:
            if isinstance(getattr(macros, macro), str):
                assert f"| `macros.{macro}` |" in page(name)


@pytest.mark.parametrize("name", ["schedulers", "quick_reference"])
def test_the_schedulers_are_in_the_tables(name: str) -> None:
    first = {text for row in rows(page(name)) for text in code(row[0])}
    assert first >= set(DEFAULT_SCHEDULER_MODULES)


@pytest.mark.parametrize("scheduler", DEFAULT_SCHEDULER_MODULES)
def test_every_scheduler_that_is_there_has_a_page_with_both_tables(scheduler: str) -> None:
    if importlib.util.find_spec(DEFAULT_SCHEDULER_MODULES[scheduler]) is None:
        assert f"| `{scheduler}` |" in page("schedulers"), "a name without a link: it has no page"
        return
    text = page(f"schedulers/{'local' if scheduler == 'local_cwd' else scheduler}")
    for directive in ("runopts", "compatibility"):
        found = re.search(rf"```{{{directive}}}\n:class: (\S+)\n", text)
        assert found, directive
        assert found[1].startswith(DEFAULT_SCHEDULER_MODULES[scheduler])


@pytest.mark.parametrize("scheduler", DEFAULT_SCHEDULER_MODULES)
def test_the_page_of_a_scheduler_says_what_a_failed_replica_does_to_the_others(
    scheduler: str,
) -> None:
    text = page(f"schedulers/{'local' if scheduler == 'local_cwd' else scheduler}")
    told = [part for part in re.split(r"\n\n|\n- ", text) if "on_failure" in part]
    for words in ("`dist.ddp` ", "--detach`"):
        assert any(words in part for part in told), words


def public_modules() -> Iterator[str]:
    """Modules and packages with no underscore in their path."""
    yield "torchx"
    for info in pkgutil.walk_packages(torchx.__path__, "torchx."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            yield info.name


NOT_ON_A_PAGE = {
    "torchx": "has a version and the name of an image",
    "torchx.specs": "facade of what `torchx.specs.api` and its neighbours describe",
    "torchx.specs.named_resources_aws": "a table is made of it",
    "torchx.specs.named_resources_generic": "a table is made of it",
    "torchx.runner": "facade of `torchx.runner.api`",
    "torchx.runner.events.api": "shown by `torchx.runner.events`",
    "torchx.runner.events.handlers": "used by `torchx.runner.events`",
    "torchx.workspace": "facade of `torchx.workspace.api`",
    "torchx.tracker": "facade of `torchx.tracker.api`",
    "torchx.tracker.backend": "empty",
    "torchx.runtime": "empty",
    "torchx.runtime.tracking": "facade of `torchx.runtime.tracking.api`",
    "torchx.components": "empty",
    "torchx.components.train": "empty, and has a page",
    "torchx.components.interpret": "empty, and has a page",
    "torchx.apps": "empty",
    "torchx.pipelines": "empty",
    "torchx.apps.utils": "empty",
    "torchx.apps.serve": "empty",
    "torchx.testing": "its modules are on the page",
    "torchx.test": "old path of `torchx.testing`",
    "torchx.test.fixtures": "old path of `torchx.testing.fixtures`",
    "torchx.cli": "the page of commands",
    "torchx.cli.main": "the page of commands",
    "torchx.cli.argparse_util": "inner parts that clients import",
    "torchx.cli.colors": "old path of `torchx.util.colors`",
    "torchx.util": "empty",
    "torchx.util.colors": "constants",
    "torchx.util.shlex": "old path of the standard library's",
    "torchx.version": "has a version and the name of an image",
}


def test_every_public_module_is_on_a_page() -> None:
    text = "\n".join(path.read_text() for path in PAGES)
    documented = set(re.findall(r"\.\. automodule:: (\S+)", text))
    modules = set(public_modules())
    commands = {name for name in modules if name.startswith("torchx.cli.cmd_")}
    assert modules - documented - NOT_ON_A_PAGE.keys() - commands == set()
    assert NOT_ON_A_PAGE.keys() <= modules - documented


# -- pages and links -------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", SLUGS)
def test_the_page_that_others_link_to_is_there(slug: str) -> None:
    assert (DOCS / f"{slug}.md").is_file()


@pytest.mark.parametrize("label", LABELS)
def test_the_label_that_others_link_to_is_there(label: str) -> None:
    assert f"\n({label})=\n#" in page(LABELS[label])


def test_messages_link_to_no_pages_of_another_project() -> None:
    foreign = re.compile(r"https?://[\w.-]*(pytorch|torchx)[\w.-]*/")
    texts = [(path, text) for path in SOURCE.rglob("*.py") for text in string_constants(path)]
    assert len(texts) > 1000
    assert [(path, text) for path, text in texts if foreign.search(text)] == []


@pytest.mark.parametrize("path", PAGES, ids=page_id)
def test_every_page_begins_with_its_purpose_and_ends_with_what_to_see_also(path: Path) -> None:
    if path.name == "index.md":
        return
    text = path.read_text()
    title, purpose = text.split("\n\n")[:2]
    assert re.fullmatch(r"(\([\w-]+\)=\n)?# .+", title)
    assert purpose[0].isalpha() or purpose[0] in "`*", purpose
    assert re.search(r"^Prerequisites: ", text, re.MULTILINE)
    assert re.search(r"\n\nSee also: ", text[-800:])


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "examples").rglob("*.md")),
        *PAGES,
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http", "#", "mailto:")):
            file = target.partition("#")[0]
            assert os.path.exists(path.parent / file), target


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda path: path.name)
def test_code_can_be_copied_and_pasted(path: Path) -> None:
    for block in re.findall(r"^```.*?^```$", path.read_text(), re.MULTILINE | re.DOTALL):
        if not block.startswith("```text"):
            assert not re.search("[\u2010-\u2015\u2018-\u201f\u00a0]", block), block


def test_the_navigation_has_every_page() -> None:
    trees = re.findall(r"```{toctree}\n(.*?)```", page("index") + page("api_reference"), re.DOTALL)
    entries = {line for tree in trees for line in tree.splitlines() if line and line[0] != ":"}
    for path in PAGES:
        name = page_id(path).removesuffix(".md")
        folder = f"{name.rpartition('/')[0]}/*"
        assert name == "index" or name in entries or folder in entries, name
