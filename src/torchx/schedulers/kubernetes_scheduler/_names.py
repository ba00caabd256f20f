"""Names of objects, and labels: what a cluster accepts as such, whatever the app and its roles are
called. Pure.

A Job makes pods ``<job>-<index>-<5 symbols>`` with the host name ``<job>-<index>``, which must be a
DNS label.
"""

import re
from collections.abc import Sequence

from torchx.schedulers._kube.apps.labels import LABEL_CHARS, dns_label
from torchx.util.strings import normalize_str

APP_CHARS = 40
"""Length of the name of an app; the rest is for the role and the number of the replica."""

_RANDOM_END = re.compile("-[a-z0-9]+$")


def app_name(unique: str) -> str:
    """Name of an app, which is the name of its Service, from one that ends with a random id.

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
    """Names of the Jobs of an app, one for each role, all different.

    >>> job_names("app-x1", [("trainer", 2), ("Trainer", 1)])
    ['app-x1-trainer', 'app-x1-trainer-r1']

    Args:
        app: as ``app_name`` gives it.
        roles: name and number of replicas of each.
        reserved: characters that come beside such a name and the number of a replica.
    """
    names: list[str] = []
    for i, (role, replicas) in enumerate(roles):
        room = LABEL_CHARS - len(app) - len(f"--{max(replicas - 1, 0)}") - reserved
        name = dns_label(role)[:room].strip("-") or "role"
        if f"{app}-{name}" in names:
            end = f"-r{i}"
            name = name[: room - len(end)].rstrip("-") + end
        while f"{app}-{name}" in names:  # a role may be called like that
            name = f"{name[:-1].rstrip('-')}x" if len(name) >= room else f"{name}x"
        names.append(f"{app}-{name}")
    return names


def volcano_name(unique: str) -> str:
    """Name of a Job of Volcano, as the published package makes it where a cluster accepts that.

    >>> volcano_name("My_App-9-x7c2"), volcano_name("9-x7c2")
    ('myapp-9-x7c2', 'a9-x7c2')
    """
    name = normalize_str(unique)
    fits = name[:1].isalpha() and not name.endswith("-") and len(name) <= APP_CHARS
    return name if fits else app_name(name)


def task_names(app: str, roles: Sequence[tuple[str, int]]) -> list[str]:
    """Names of the roles in those of the tasks of Volcano, ``<name>-<replica>``, all different.

    >>> task_names("app-x1", [("My_Trainer", 2), ("mytrainer", 1)])
    ['mytrainer', 'mytrainer-r1']
    """
    plain = [(normalize_str(role), replicas) for role, replicas in roles]
    return [name.removeprefix(f"{app}-") for name in job_names(app, plain, reserved=len("-0"))]
