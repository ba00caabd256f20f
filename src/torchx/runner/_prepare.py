"""Steps of a dry run before the scheduler builds its request."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchx import settings
from torchx._startup import signatures
from torchx._tracker_environment import exportable
from torchx._words import did_you_mean
from torchx.errors import InvalidInput, SchedulerNotInstalled, TorchXError
from torchx.settings import (
    ENV_TORCHX_INTERNAL_SESSION_ID,
    ENV_TORCHX_JOB_ID,
    ENV_TORCHX_PARENT_RUN_ID,
    ENV_TORCHX_TRACKERS,
    PARAM_PREFIX,
    TRACKER_PREFIX,
)
from torchx.specs._app import copy_app, copy_role
from torchx.specs.api import MISSING, AppDef, Role, UnknownSchedulerException
from torchx.util.entrypoints import EntryPointLoader

if TYPE_CHECKING:
    from torchx.schedulers.api import Scheduler


def scheduler_params(environ: Mapping[str, str]) -> dict[str, object]:
    """``TORCHX_FOO_BAR=z`` as ``{"foo_bar": "z"}``.

    >>> scheduler_params({"TORCHX_FOO_BAR": "z", "TORCHX_HOME": "/h", "PATH": "/bin"})
    {'foo_bar': 'z'}
    """
    params: dict[str, object] = {}
    for name, value in environ.items():
        upper = name.upper()
        if not upper.startswith(PARAM_PREFIX) or upper in settings.NAMES:
            continue
        if not upper.startswith(TRACKER_PREFIX):
            params[name[len(PARAM_PREFIX) :].lower()] = value
    return params


def unknown_scheduler(name: str, known: list[str]) -> UnknownSchedulerException:
    """Builds the error for an unknown scheduler: names the known ones, and suggests one."""
    err = UnknownSchedulerException(name)
    err.args = (f"{err}, which are: {', '.join(known) or 'none'}.{did_you_mean(name, known)}",)
    return err


def own_copy(app: AppDef) -> AppDef:
    """Copies an app for a dry run to change. Lazy values are shared, each produced once."""
    copied = copy_app(app)
    for role, original in zip(copied.roles, app.roles, strict=True):
        _share_overrides(role, original)
    return copied


def own_role(role: Role) -> Role:
    """Like ``own_copy``, for one role."""
    copied = copy_role(role)
    _share_overrides(copied, role)
    return copied


def _share_overrides(role: Role, original: Role) -> None:
    vars(role)["overrides"] = vars(original)["overrides"]


def check_has_roles(app: AppDef) -> None:
    """Refuses an app without roles."""
    if not app.roles:
        msg = f"No roles for app: {app.name}. Did you forget to add roles to AppDef?"
        raise InvalidInput(msg)


def check_role(role: Role) -> None:
    """Refuses a role that cannot be run anywhere."""
    if not role.entrypoint or role.entrypoint == MISSING:
        msg = (
            f"No entrypoint for role: {role.name}."
            " Did you forget to call role.runs(entrypoint, args, env)?"
        )
        raise InvalidInput(msg)
    if role.num_replicas <= 0:
        msg = (
            f"Non-positive replicas for role: {role.name}. Did you forget to set role.num_replicas?"
        )
        raise InvalidInput(msg)


def replica_env(
    job_id: str,
    session_id: str,
    parent_run_id: str | None,
    trackers: Mapping[str, str | None],
    factories: Mapping[str, str],
) -> dict[str, str]:
    """Returns the variables that every replica gets about its job and trackers.

    Raises:
        ValueError: if two trackers with different settings have the same variable for them.
    """
    _check_tracker_names(trackers, factories)
    env = {ENV_TORCHX_JOB_ID: job_id, ENV_TORCHX_INTERNAL_SESSION_ID: session_id}
    if parent_run_id:
        env[ENV_TORCHX_PARENT_RUN_ID] = parent_run_id
    if trackers:
        env[ENV_TORCHX_TRACKERS] = ",".join(trackers)
    for name, config in trackers.items():
        if config:
            env[exportable(name)] = config
        if name in factories:
            env[exportable(name, "FACTORY")] = factories[name]
    return env


def _check_tracker_names(trackers: Mapping[str, str | None], factories: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for name, config in trackers.items():
        variable = exportable(name)
        other = seen.setdefault(variable, name)
        same = (config or "", factories.get(name)) == (
            trackers[other] or "",
            factories.get(other),
        )
        if not same:
            msg = (
                f"trackers `{other}` and `{name}` cannot be told apart in the job, where the"
                f" configuration of both is in {variable}; rename one so that the names differ in"
                " letters or digits, whatever their case"
            )
            raise InvalidInput(msg)


def takes_args(method: Callable[..., Any], *args: object, **kwargs: object) -> bool:
    """Returns True if the method accepts these arguments; older schedulers take fewer."""
    try:
        return signatures.takes_args(method, *args, **kwargs)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True


def validate(scheduler: "Scheduler[Any]", app: AppDef, backend: str, cfg: object) -> None:
    """Has the scheduler refuse an app that cannot run there with these options."""
    # release 0.7 had no third parameter (NeMo-Run's schedulers)
    if takes_args(scheduler._validate, app, backend, cfg):
        scheduler._validate(app, backend, cfg)
    else:
        scheduler._validate(app, backend)


def known_params(factory: Callable[..., Any], params: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the parameters that a scheduler's factory accepts; plugins may lack ``**kwargs``."""
    target = _target(factory) if isinstance(factory, EntryPointLoader) else factory
    if not params:
        return params
    try:
        declared = signatures.parameters(target)
    except (TypeError, ValueError):  # it has no signature
        return params
    if any(p.kind == "var_keyword" for p in declared):
        return params
    names = {p.name for p in declared if p.kind in ("keyword_only", "positional")}
    return {name: value for name, value in params.items() if name in names}


def check_made(made: object, name: str, factory: Callable[..., Any]) -> None:
    """Refuses an object that is not a scheduler; it need not derive from ``Scheduler``."""
    if not callable(getattr(made, "submit_dryrun", None)):
        origin = factory.origin if isinstance(factory, EntryPointLoader) else repr(factory)
        msg = (
            f"scheduler `{name}` cannot be used: {origin} makes a `{type(made).__name__}`, it must"
            " make a `torchx.schedulers.api.Scheduler`"
        )
        raise TorchXError(msg)


def _target(factory: EntryPointLoader) -> Callable[..., Any]:
    try:
        target: Callable[..., Any] = factory.target()
    except Exception as err:
        msg = factory.failure("scheduler", err)
        raise SchedulerNotInstalled(msg, name=getattr(err, "name", None)) from err
    return target
