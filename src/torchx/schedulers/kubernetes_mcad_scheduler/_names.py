"""Names of the AppWrapper and of the wrapped objects. Pure."""

import re
from collections.abc import Sequence

from torchx._startup.lazy_logger import get_logger
from torchx.schedulers.ids import make_unique
from torchx.specs.api import AppDef

_LABEL_CHARS = 63
_SUFFIX_CHARS = 14

logger = get_logger(__name__)


def cleanup_str(text: str) -> str:
    """Converts to lower-case letters, digits and dashes, without leading digits.

    >>> cleanup_str("-/_a/b/CD!123!"), cleanup_str("1234abcd1234"), cleanup_str("!!!")
    ('abcd123', 'abcd1234', '')
    """
    kept = re.sub("[^a-z0-9-]", "", text.removeprefix("-").lower())
    return kept.lstrip("0123456789")


def get_unique_truncated_appid(app: AppDef) -> str:
    """Returns a new name for an app, short enough for suffixes; does not change the app."""
    group_chars = 3 + len(app.roles)
    room = _LABEL_CHARS - (len(app.name) + 4 + group_chars)
    suffix_chars = min(room, _SUFFIX_CHARS)
    name = app.name
    if suffix_chars <= 3:
        name = name[: _LABEL_CHARS - 4 - group_chars]
        logger.warning("the name of app `%s` is too long and is cut to `%s`", app.name, name)
        suffix_chars = 3
    return cleanup_str(make_unique(name, suffix_chars))


def fitting_name(unique: str, roles: Sequence[int]) -> str:
    """Shortens a name so that its Service and the host names of all pods are valid.

    >>> fitting_name("-x1", [1]), fitting_name("a" * 60 + "-x1", [1000, 1])
    ('a-x1', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-x1')

    Args:
        roles: number of replicas of each.
    """
    name = unique if unique[:1].isalpha() else f"a{unique}"
    longest = max(len(pod_name("", i, len(roles), n - 1)) for i, n in enumerate(roles))
    room = _LABEL_CHARS - longest
    if len(name) > room:
        start, dash, end = name.rpartition("-")
        name = f"{start[: room - len(dash) - len(end)].rstrip('-')}{dash}{end}"[:room]
    return name.rstrip("-")


def pod_name(app: str, role: int, roles: int, replica: int) -> str:
    """Returns the host name of a pod, which is its name without a Job; includes the role if
    several.

    >>> pod_name("app-x1", 0, 1, 3), pod_name("app-x1", 1, 2, 3)
    ('app-x1-3', 'app-x1-1-3')
    """
    return f"{job_name(app, role, roles)}-{replica}"


def job_name(app: str, role: int, roles: int) -> str:
    """Returns the name of a role's Job; the host names of its pods are those of ``pod_name``."""
    return f"{app}-{role}" if roles > 1 else app


def host_variable(role: str) -> str:
    """Returns the variable with the host of a role's first replica.

    >>> host_variable("My-Trainer_0")
    'TORCHX_MCAD_MYTRAINER0_0_HOSTS'
    """
    return f"TORCHX_MCAD_{cleanup_str(role).upper().replace('-', '')}_0_HOSTS"
