"""All names of environment variables are in one list, and are taken from there."""

import ast
import re
from pathlib import Path

import torchx
from torchx import settings
from torchx.runner._prepare import scheduler_params

SOURCES = Path(torchx.__file__).parent
NO_VARIABLES = {
    "TORCHX_DOCKERFILE",  # constants of Python
    "TORCHX_IGNORE",
    "TORCHX_RECORD",  # ends of here-documents
    "TORCHX_ROLE_",
    "TORCHX_VER",  # ends of names of tags
    "TORCHX_APPNAME",
    "TORCHX_USER",
    "TORCHX_FOO_BAR",  # a parameter in an example
    "TORCHX_",  # prefixes
    "TORCHX_TRACKER_",
    "TORCHX_TRACKER_FSSPEC_CONFIG",  # begin with a prefix
    "TORCHX_TRACKER_TRACKER1_CONFIG",
    "TORCHX_MCAD_",  # is made of the name of a role
    "TORCHX_MCAD_MYTRAINER0_0_HOSTS",
}
SPELLED_ELSEWHERE = {
    "settings.py",
    "schedulers/local_scheduler/_supervise/processes.py",  # runs without TorchX on its path
    "specs/api.py",  # TORCHX_HOME, the function, in lists of public names
    "specs/__init__.py",
    "version.py",  # TORCHX_IMAGE, the attribute
}


def texts() -> dict[str, str]:
    return {
        path.relative_to(SOURCES).as_posix(): path.read_text() for path in SOURCES.rglob("*.py")
    }


def test_every_name_in_the_sources_is_in_the_list() -> None:
    name = re.compile("TORCHX_[A-Z0-9_]*|TORCHXCONFIG")
    found = {found for text in texts().values() for found in name.findall(text)}
    assert found - NO_VARIABLES == settings.NAMES


def test_names_are_spelled_in_the_list_alone() -> None:
    spelled = {file for file, text in texts().items() if strings(text) & settings.NAMES}
    assert spelled == SPELLED_ELSEWHERE


def strings(text: str) -> set[object]:
    return {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}


def test_no_name_stands_for_two_variables() -> None:
    constants = [value for name, value in vars(settings).items() if name.startswith("ENV_")]
    assert len(constants) == len(settings.NAMES)


def test_what_is_in_the_list_is_no_parameter_of_schedulers() -> None:
    environ = dict.fromkeys([*settings.NAMES, "TORCHX_CACHE_SIZE"], "1")
    assert scheduler_params(environ) == {"cache_size": "1"}
