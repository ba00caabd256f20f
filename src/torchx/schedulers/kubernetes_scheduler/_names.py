"""Names of objects, and labels: what a cluster accepts as such, whatever the app and its roles are
called. Pure.

A Job makes pods ``<job>-<index>-<5 symbols>`` with the host name ``<job>-<index>``, which must be a
DNS label.
"""

import re
from collections.abc import Sequence

LABEL_CHARS = 63
"""Length of a DNS label, and of the value of a label of Kubernetes."""
APP_CHARS = 40
"""Length of the name of an app; the rest is for the role and the number of the replica."""

_RANDOM_END = re.compile("-[a-z0-9]+$")
_NOT_IN_LABEL = re.compile("[^A-Za-z0-9._-]")
_ENDS = re.compile("^[^A-Za-z0-9]+|[^A-Za-z0-9]+$")


def app_name(unique: str) -> str:
    """Name of an app, which is the name of its Service, from one that ends with a random id.

    >>> app_name("My_App.v2-x7c2"), app_name("9-x7c2")
    ('my-app-v2-x7c2', 'a9-x7c2')
    """
    name = _label(unique)
    if not name[:1].isalpha():
        name = f"a{name}"
    if len(name) <= APP_CHARS:
        return name
    found = _RANDOM_END.search(name)
    end = found[0][-APP_CHARS // 2 :] if found else ""
    return name[: APP_CHARS - len(end)].rstrip("-") + end


def job_names(app: str, roles: Sequence[tuple[str, int]]) -> list[str]:
    """Names of the Jobs of an app, one for each role, all different.

    >>> job_names("app-x1", [("trainer", 2), ("Trainer", 1)])
    ['app-x1-trainer', 'app-x1-trainer-r1']

    Args:
        app: as ``app_name`` gives it.
        roles: name and number of replicas of each.
    """
    names: list[str] = []
    for i, (role, replicas) in enumerate(roles):
        room = LABEL_CHARS - len(app) - len(f"--{max(replicas - 1, 0)}")
        name = _label(role)[:room].strip("-") or "role"
        if f"{app}-{name}" in names:
            end = f"-r{i}"
            name = name[: room - len(end)].rstrip("-") + end
        while f"{app}-{name}" in names:  # a role may be called like that
            name = f"{name[:-1].rstrip('-')}x" if len(name) >= room else f"{name}x"
        names.append(f"{app}-{name}")
    return names


def container_name(role: str) -> str:
    """Name of the container of a role's program.

    >>> container_name("My_Role")
    'my-role'
    """
    return _label(role)[:LABEL_CHARS].strip("-") or "main"


def label_value(text: str) -> str:
    """The text as the value of a label.

    >>> label_value("a/b+c"), label_value("-x-")
    ('a.b.c', 'x')
    """
    return _ENDS.sub("", _ENDS.sub("", _NOT_IN_LABEL.sub(".", text))[:LABEL_CHARS])


def _label(text: str) -> str:
    """Small letters, digits and dashes, at the ends no dash."""
    return re.sub("-{2,}", "-", re.sub("[^a-z0-9]", "-", text.lower())).strip("-")
