"""Names of components in a file, found in its text: nothing is imported."""

import os
import re

_COMPONENT = re.compile(
    r"^(?:async )?def ([A-Za-z]\w*)\((?:[^()]|\([^()]*\))*\)\s*->\s*[\"']?[\w.]*\bAppDef\b",
    re.MULTILINE,
)


def components_in(path: str) -> list[str]:
    """Returns the names of functions annotated to return an ``AppDef``; empty if not text."""
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
    except (OSError, UnicodeError):
        return []
    return _COMPONENT.findall(text) if "AppDef" in text else []


def how_to_run(path: str) -> str:
    """Returns the advice for a user who named a file where a component is expected."""
    if not os.path.isfile(path):
        return f"there is no file `{path}`; a component in one is named `path/to/file.py:function`"
    run_it = f"run it with `torchx run utils.python --script {path}`"
    found = components_in(path)
    if found:
        named = " or ".join(f"`torchx run {path}:{name}`" for name in found)
        return f"`{path}` is a file, name a component in it: {named}; or {run_it}"
    return (
        f"`{path}` is a file and no component: {run_it}, under torchrun with"
        f" `torchx run dist.ddp -j 1x1 --script {path}`, or name a function in it that returns an"
        f" `AppDef`: `{path}:function`"
    )
