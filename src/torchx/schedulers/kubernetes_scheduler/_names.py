"""Converts names of apps and roles to names and labels that a cluster accepts. Pure.

A Job creates pods ``<job>-<index>-<5 symbols>`` with the host name ``<job>-<index>``, which must be
a DNS label.
"""

import re
from collections.abc import Sequence

from torchx.schedulers._kube.apps.labels import LABEL_CHARS, dns_label
from torchx.util.strings import normalize_str

APP_CHARS = 40
"""Most characters of the name of an app; the rest is for the role and the replica's index."""

_RANDOM_END = re.compile("-[a-z0-9]+$")


def app_name(unique: str) -> str:
    """Converts a name that ends with a random id to the name of an app and its Service.

    >>> app_name("My_App.v2-x7c2"), app_name("9-x7c2")
    ('my-app-v2-x7c2', 'a9-x7c2')
    """
    name = dns_label(unique)
    if not name[:1].isalpha():
        name = f"a{name}"
    if len(name) <= APP_CHARS:
        return name
    found = _RANDOM_END.search(name)
    end = found[0][-APP_CHARS // 2 :] if found else ""
    return name[: APP_CHARS - len(end)].rstrip("-") + end


def job_names(app: str, roles: Sequence[tuple[str, int]], reserved: int = 0) -> list[str]:
    """Returns unique names of the Jobs of an app, one for each role.

    >>> job_names("app-x1", [("trainer", 2), ("Trainer", 1)])
    ['app-x1-trainer', 'app-x1-trainer-r1']

    Args:
        app: the result of ``app_name``.
        roles: name and number of replicas of each.
        reserved: characters needed beside such a name and the replica's index.
    """
    names: list[str] = []
    for i, (role, replicas) in enumerate(roles):
        room = LABEL_CHARS - len(app) - len(f"--{max(replicas - 1, 0)}") - reserved
        name = dns_label(role)[:room].strip("-") or "role"
        if f"{app}-{name}" in names:
            end = f"-r{i}"
            name = name[: room - len(end)].rstrip("-") + end
        while f"{app}-{name}" in names:  # a role may have that name
            name = f"{name[:-1].rstrip('-')}x" if len(name) >= room else f"{name}x"
        names.append(f"{app}-{name}")
    return names


def volcano_name(unique: str) -> str:
    """Returns the name of a Volcano Job, as in the published package if a cluster accepts it.

    >>> volcano_name("My_App-9-x7c2"), volcano_name("9-x7c2")
    ('myapp-9-x7c2', 'a9-x7c2')
    """
    name = normalize_str(unique)
    fits = name[:1].isalpha() and not name.endswith("-") and len(name) <= APP_CHARS
    return name if fits else app_name(name)


def task_names(app: str, roles: Sequence[tuple[str, int]]) -> list[str]:
    """Returns unique names of the roles for Volcano's tasks, ``<name>-<replica>``.

    >>> task_names("app-x1", [("My_Trainer", 2), ("mytrainer", 1)])
    ['mytrainer', 'mytrainer-r1']
    """
    plain = [(normalize_str(role), replicas) for role, replicas in roles]
    return [name.removeprefix(f"{app}-") for name in job_names(app, plain, reserved=len("-0"))]
