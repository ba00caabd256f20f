"""Formats the definition of an app for a terminal."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from torchx.cli._look import Look

_LABEL = 11
"""Width of the names of fields, in columns."""
_LEAST = 20
"""Columns of their values, however narrow the terminal is."""


def describe_text(app: Mapping[str, Any]) -> str:
    """Formats the ``dataclasses.asdict`` of an app, with its secrets masked already."""
    look = Look()
    lines = [look.bold(str(app["name"]))]
    for role in app["roles"]:
        count = role["num_replicas"]
        least = role.get("min_replicas")
        many = f"{count} replica{'s' if count != 1 else ''}"
        many += f", at least {least}" if least is not None else ""
        lines += ["", f"{look.bold(role['name'])}  {look.dim(many)}"]
        for label, values in _fields(role):
            lines += _field(look, label, values)
    if app.get("metadata"):
        lines += ["", look.bold("metadata")]
        lines += _field(look, "", [f"{k}={v}" for k, v in app["metadata"].items()])
    return "\n".join(lines)


def _fields(role: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    command = shlex.join([str(role["entrypoint"]), *map(str, role["args"])])
    retries = role["max_retries"]
    policy = getattr(role["retry_policy"], "value", role["retry_policy"])
    return [
        ("image", [str(role["image"])] if role["image"] else []),
        ("runs", [command]),
        ("resource", [_resource(role["resource"])]),
        ("retries", [f"{retries}, of the {str(policy).lower()}"] if retries else []),
        ("env", [f"{key}={value}" for key, value in role["env"].items()]),
        ("ports", [f"{name}: {port}" for name, port in role["port_map"].items()]),
        ("mounts", [_mount(mount) for mount in role["mounts"]]),
        ("workspace", [str(role["workspace"])] if role.get("workspace") else []),
    ]


def _field(look: Look, label: str, values: Sequence[str]) -> list[str]:
    lines = []
    for value in values:
        width = max(look.width - _LABEL - 2, _LEAST)
        first, *rest = [part for line in value.split("\n") for part in look.wrap(line, "  ", width)]
        lines.append(f"  {look.dim(label.ljust(_LABEL))}{first}")
        lines += [" " * (_LABEL + 2) + line for line in rest]
        label = ""
    return lines


def _resource(resource: Mapping[str, Any]) -> str:
    """``2 CPUs, 1 GPU, 4.0 GB``; parts that are unknown or not requested are left out."""
    parts = []
    for key, word in (("cpu", "CPU"), ("gpu", "GPU")):
        count = resource[key]
        if count > 0:
            parts.append(f"{count} {word}{'s' if count != 1 else ''}")
    if resource["memMB"] > 0:
        memory = resource["memMB"]
        parts.append(f"{memory / 1024:.1f} GB" if memory >= 1024 else f"{memory} MB")
    parts += [f"{key}={value}" for key, value in resource.get("capabilities", {}).items()]
    parts += [f"{count} {name}" for name, count in resource.get("devices", {}).items()]
    return ", ".join(parts) or "not known"


def _mount(mount: Mapping[str, Any]) -> str:
    source = mount.get("src_path") or mount.get("src") or ""
    target = mount.get("dst_path") or ""
    read_only = " (read-only)" if mount.get("read_only") else ""
    return f"{source} -> {target}{read_only}"
