"""Environment and command of a container, with references expanded.

https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
"""

import re
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


def expanded(text: str, env: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced where the name is known, ``$$`` by ``$``."""

    def replaced(found: "re.Match[str]") -> str:
        if found[0] == "$$":
            return "$"
        return env.get(found[1], found[0])

    return _REFERENCE.sub(replaced, text)


def environment(
    container: Object, pod: Object, sources: Mapping[tuple[str, str], Object]
) -> dict[str, str]:
    """The variables of a container, each of which may refer to those before it.

    Args:
        sources: Secrets and ConfigMaps by kind and name.
    """
    env: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for field, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            found = sources.get((kind, (source.get(field) or {}).get("name", "")), {})
            env |= {source.get("prefix", "") + k: v for k, v in (found.get("data") or {}).items()}
    for variable in container.get("env") or ():
        if origin := variable.get("valueFrom"):
            env[variable["name"]] = _from_origin(origin, container, pod, sources)
        else:
            env[variable["name"]] = expanded(variable.get("value") or "", env)
    return env


def _from_origin(
    origin: Object, container: Object, pod: Object, sources: Mapping[tuple[str, str], Object]
) -> str:
    if field := origin.get("fieldRef"):
        return field_value(pod, field["fieldPath"])
    if resource := origin.get("resourceFieldRef"):
        kind, _, name = resource["resource"].partition(".")
        return str(((container.get("resources") or {}).get(kind) or {}).get(name, "0"))
    for field_name, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if ref := origin.get(field_name):
            return str((sources.get((kind, ref["name"]), {}).get("data") or {}).get(ref["key"], ""))
    return ""


def field_value(pod: Object, path: str) -> str:
    """A field of the pod, as the downward API has it."""
    if found := _KEYED.fullmatch(path):
        return str((pod["metadata"].get(found[1]) or {}).get(found[2], ""))
    value: Any = pod
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def command_line(container: Object, env: Mapping[str, str]) -> list[str]:
    """The words to run; images have no entry points here."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expanded(word, env) for word in words]
