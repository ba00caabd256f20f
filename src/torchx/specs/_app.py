"""Apps and their roles: the specification of a job."""

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchx._startup.dataclass import field, light_dataclass
from torchx._startup.lazy_logger import get_logger
from torchx.errors import UnknownName
from torchx.specs._constants import MISSING
from torchx.specs._mounts import BindMount, DeviceMount, VolumeMount
from torchx.specs._resource import NULL_RESOURCE, Resource
from torchx.specs._state import RetryPolicy
from torchx.specs._workspace import Workspace

if TYPE_CHECKING:
    from torchx.specs._dryrun import AppDryRunInfo

logger = get_logger("torchx.specs.api")


@light_dataclass
class Role:
    """A set of identical replicas with one task within an app.

    >>> Role("trainer", "my_image", entrypoint="python", args=["-m", "train"]).num_replicas
    1

    Args:
        image: what is installed where the replicas run: a container image, a path, ...
        min_replicas: least number of replicas, for elastic jobs; ``None`` means ``num_replicas``.
        entrypoint: the program.
        args: its arguments; may hold ``macros``.
        env: environment variables; values may hold ``macros``.
        max_retries: number of retries before giving up.
        retry_policy: what a retry restarts.
        resource: requirements of each replica.
        port_map: names of ports.
        metadata: for the scheduler, by ``$scheduler.$key``; may hold ``macros``.
        workspace: local code that is sent along.
        overrides: deprecated; producers of attributes, run when the attribute is first read.
    """

    name: str
    image: str
    min_replicas: int | None = None
    entrypoint: str = MISSING
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    num_replicas: int = 1
    max_retries: int = 0
    retry_policy: RetryPolicy = RetryPolicy.APPLICATION
    resource: Resource = field(default_factory=lambda: NULL_RESOURCE)
    port_map: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    mounts: list[BindMount | VolumeMount | DeviceMount] = field(default_factory=list)
    workspace: Workspace | None = None
    overrides: dict[str, Any] = field(default_factory=dict)

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Any:
            fields = object.__getattribute__(self, "__dict__")
            overrides = fields.get("overrides")
            if overrides and name in overrides and name != "overrides":
                from torchx.specs._overrides import resolve

                return resolve(overrides, name)
            return object.__getattribute__(self, name)

    def pre_proc(self, scheduler: str, dryrun_info: "AppDryRunInfo[Any]") -> "AppDryRunInfo[Any]":
        """Changes the native request of an app for this role; called once for each role.

        Args:
            scheduler: the scheduler's backend.

        Returns:
            The request that the next role receives.
        """
        return dryrun_info


@light_dataclass
class AppDef:
    """A job: a name and one or more roles.

    >>> app = AppDef("train", roles=[Role("trainer", "my_image")])
    >>> app["trainer"].image
    'my_image'

    Args:
        metadata: for the scheduler.
    """

    name: str
    roles: list[Role] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)

    def get_role(self, name: str) -> Role:
        """The role of that name.

        Raises:
            UnknownName: (a ``KeyError``) if there is none; the message lists the existing ones.
        """
        for role in self.roles:
            if role.name == name:
                return role
        names = ", ".join(role.name for role in self.roles) or "none"
        msg = f"app `{self.name}` has no role named `{name}`; available roles: {names}"
        raise UnknownName(msg)

    def __getitem__(self, name: str) -> Role:
        return self.get_role(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(role.name == name for role in self.roles)

    def __iter__(self) -> Iterator[Role]:
        msg = "an AppDef is looked up by role name; iterate over `app.roles`"
        raise TypeError(msg)


def copy_role(role: Role, own: tuple[str, ...] = ()) -> Role:
    """Returns an independent copy of the role; lazy values stay shared.

    Args:
        own: fields that the caller replaces in the copy, so that they are not copied.
    """
    raw = vars(role)
    copied = _same_fields(role, raw)
    fields = vars(copied)
    for name in _CONTAINERS:
        if name not in own:
            fields[name] = raw[name].copy()
    if raw["metadata"] and "metadata" not in own:
        fields["metadata"] = copy.deepcopy(raw["metadata"])
    if raw["resource"] is not NULL_RESOURCE:
        fields["resource"] = _copy_resource(raw["resource"])
    if raw["mounts"]:
        fields["mounts"] = [copy.copy(mount) for mount in raw["mounts"]]
    if raw["workspace"] is not None:
        fields["workspace"] = copy.copy(raw["workspace"])
        fields["workspace"].projects = dict(raw["workspace"].projects)
    if len(raw) > len(_ROLE_FIELDS):
        of_subclass = raw.keys() - _ROLE_FIELDS
        fields.update((name, copy.deepcopy(raw[name])) for name in of_subclass)
    if not _shares_overrides(role):
        fields["overrides"] = {}
    return copied


def _shares_overrides(role: Role) -> bool:
    """Returns True if a copy shares its overrides: values that are still to be produced."""
    if not role.__dict__["overrides"]:
        return False
    from torchx.specs._overrides import has_overrides

    if not has_overrides(role.__dict__["overrides"]):
        return False
    logger.debug("the copy of role `%s` shares its overrides", role.__dict__["name"])
    return True


def _same_fields(role: Role, raw: dict[str, Any]) -> Role:
    """Returns a role with the same fields, faster than `copy.copy` does."""
    if type(role) is not Role:
        return copy.copy(role)
    copied = object.__new__(Role)
    vars(copied).update(raw)
    return copied


def _copy_resource(resource: Resource) -> Resource:
    if type(resource) is not Resource:
        return copy.deepcopy(resource)
    copied = object.__new__(Resource)
    fields = vars(copied)
    fields.update(vars(resource))
    for name in ("capabilities", "devices", "tags"):
        fields[name] = copy.deepcopy(fields[name]) if fields[name] else {}
    return copied


_CONTAINERS = ("args", "mounts", "env", "port_map", "metadata")
_ROLE_FIELDS = frozenset(Role.__dataclass_fields__)


def copy_app(app: AppDef) -> AppDef:
    """Returns an independent copy of the app; lazy values of roles stay shared."""
    copied = copy.copy(app)
    copied.roles = [copy_role(role) for role in app.roles]
    copied.metadata = copy.deepcopy(app.metadata) if app.metadata else {}
    return copied
