"""Checks that all schedulers share, with the same error messages."""

from typing import TYPE_CHECKING

from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.specs.api import AppDef, BindMount, RetryPolicy, Role

from .responses import SchedulerFeatures, Stream

if TYPE_CHECKING:
    from .log_query import LogQuery

MOST_REPLICAS = 1_000_000
"""Most replicas of a role. No backend starts more, and planning them would fill the memory."""


def check_app(app: AppDef, features: SchedulerFeatures, scheduler: str) -> None:
    """Refuses an app with fields that the scheduler does not support, or invalid values.

    Raises:
        UnsupportedRequest: for a feature that is not declared.
        InvalidInput: for a value that cannot be passed to any process, and for two roles that
            cannot be told apart.
    """
    if len(app.roles) > 1 and not features.multi_role:
        names = ", ".join(role.name for role in app.roles)
        msg = f"`{scheduler}` runs apps of one role, given: {names}"
        raise UnsupportedRequest(msg)
    _check_role_names(app)
    for role in app.roles:
        _check_values(role)
        _check_features(role, features, scheduler)


def _check_role_names(app: AppDef) -> None:
    """Raises ``InvalidInput`` if two roles share a name, by which replicas and logs are found."""
    seen = set()
    for role in app.roles:
        if role.name in seen:
            msg = f"two roles are named `{role.name}`; give each role of an app its own name"
            raise InvalidInput(msg)
        seen.add(role.name)


def _check_features(role: Role, features: SchedulerFeatures, scheduler: str) -> None:
    if role.mounts and not features.mounts and "mounts" not in features.left_out:
        msg = f"role `{role.name}` has `mounts`, which `{scheduler}` does not support"
        raise UnsupportedRequest(f"{msg}: leave them out")
    if features.mounts:
        _check_mounts(role)
    policy = role.retry_policy
    # APPLICATION is the default of a role, accepted everywhere
    accepted = policy in features.retries or policy is RetryPolicy.APPLICATION
    if role.max_retries > 0 and not accepted:
        known = ", ".join(p.name for p in RetryPolicy if p in features.retries) or "none"
        msg = (
            f"role `{role.name}`: `{scheduler}` cannot retry by policy {policy.name}, "
            f"it knows: {known}"
        )
        raise UnsupportedRequest(msg)


def _check_mounts(role: Role) -> None:
    """Refuses relative paths as sources of bind mounts."""
    for mount in role.mounts:
        if isinstance(mount, BindMount) and not mount.src_path.startswith(("/", "$")):
            msg = (
                f"role `{role.name}`: the source `{mount.src_path}` of a bind mount must be an"
                " absolute path, as there is no directory that it could be relative to"
            )
            raise InvalidInput(msg)


def _check_values(role: Role) -> None:
    if role.num_replicas > MOST_REPLICAS:
        msg = f"role `{role.name}` has {role.num_replicas} replicas, the most is {MOST_REPLICAS}"
        raise InvalidInput(msg)
    if role.max_retries < 0:
        msg = f"role `{role.name}`: `max_retries` must not be negative, given: {role.max_retries}"
        raise InvalidInput(msg)
    _check_text(role, "entrypoint", role.entrypoint)
    for i, arg in enumerate(role.args):
        _check_text(role, f"args[{i}]", arg)
    for name, value in role.env.items():
        if not name or "=" in name:
            msg = (
                f"role `{role.name}`: `{name}` cannot be the name of an environment variable: "
                "it must not be empty or hold `=`"
            )
            raise InvalidInput(msg)
        _check_text(role, f"env name {name!r}", name)
        _check_text(role, f"env {name}", value)


def _check_text(role: Role, where: str, value: object) -> None:
    """Refuses text that no process can receive; does not show the value, which may be a secret."""
    if not isinstance(value, str):
        msg = f"role `{role.name}`: {where} must be a text, given: {type(value).__name__}"
        raise InvalidInput(msg)
    if "\0" in value:
        msg = f"role `{role.name}`: {where} holds a NUL character, which no process can receive"
        raise InvalidInput(msg)
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as err:
        msg = (
            f"role `{role.name}`: {where} holds a lone surrogate at character {err.start}, "
            "which cannot be encoded"
        )
        raise InvalidInput(msg) from None


def check_min_replicas(role: Role) -> None:
    """Refuses a least number of replicas that there cannot be."""
    least = role.min_replicas
    if least is not None and not 1 <= least <= role.num_replicas:
        msg = (
            f"`min_replicas` of role `{role.name}` must be from 1 to `num_replicas` "
            f"({role.num_replicas}), given: {least}"
        )
        raise InvalidInput(msg)


def fields_left_out(app: AppDef, features: SchedulerFeatures) -> list[str]:
    """Returns the fields of the app that the scheduler ignores, as text: ``mounts of role worker``.

    ``min_replicas`` only allows fewer replicas, so every scheduler may ignore it.
    """
    found = []
    for role in app.roles:
        if role.mounts and "mounts" in features.left_out:
            found.append(f"`mounts` of role `{role.name}`")
        if role.resource.devices and "devices" in features.left_out:
            found.append(f"`devices` of role `{role.name}`")
        elastic = role.min_replicas is not None and role.min_replicas != role.num_replicas
        if elastic and not features.min_replicas:
            found.append(f"`min_replicas` of role `{role.name}`")
    return found


def ends_on_failure(value: object) -> bool:
    """Parses the option ``on_failure``: True for ``end``.

    >>> ends_on_failure("end"), ends_on_failure("wait"), ends_on_failure(None)
    (True, False, True)

    Raises:
        InvalidInput: for anything but ``end`` and ``wait``.
    """
    if value not in (None, "end", "wait"):
        msg = f"option `on_failure` is `end` or `wait`, given: `{value}`"
        raise InvalidInput(msg)
    return value != "wait"


def check_query(query: "LogQuery", features: SchedulerFeatures, scheduler: str) -> None:
    """Refuses a query that the scheduler's logs do not support.

    Raises:
        UnsupportedRequest: naming what to leave out.
    """
    if not features.logs:
        msg = f"`{scheduler}` has no logs"
        raise UnsupportedRequest(msg)
    if query.follow and not features.tail:
        msg = f"`{scheduler}` cannot follow logs: leave out `--tail`"
        raise UnsupportedRequest(msg)
    if query.stream is not Stream.COMBINED and not features.separate_streams:
        msg = f"`{scheduler}` keeps stdout and stderr as one: leave out `{query.stream.value}`"
        raise UnsupportedRequest(msg)
    if (query.since_ns, query.until_ns) != (None, None) and not features.log_time_range:
        msg = f"`{scheduler}` keeps no times of log lines: leave out `since` and `until`"
        raise UnsupportedRequest(msg)
    if query.attempt is not None and not features.attempts:
        msg = f"`{scheduler}` keeps the logs of all attempts as one: leave out `attempt`"
        raise UnsupportedRequest(msg)
