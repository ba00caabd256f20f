"""The core types, under the module path that clients import them from."""

from typing import TypeVar

from torchx._home import TORCHX_HOME
from torchx._startup.lazy_logger import get_logger
from torchx.errors import (
    AppStatusError,
    InvalidRunConfigException,
    MalformedAppHandleException,
    UnknownAppException,
    UnknownSchedulerException,
)
from torchx.specs._app import AppDef, Role
from torchx.specs._constants import ALL, MISSING, NONE, UNKNOWN
from torchx.specs._dryrun import AppDryRunInfo
from torchx.specs._handle import AppHandle, ParsedAppHandle, make_app_handle, parse_app_handle
from torchx.specs._macros import macros
from torchx.specs._mounts import BindMount, DeviceMount, MountType, VolumeMount
from torchx.specs._options import CfgVal, cases, get_type_name, runopt, runopts
from torchx.specs._resource import NULL_RESOURCE, Resource
from torchx.specs._state import AppState, ReplicaState, RetryPolicy, is_started, is_terminal
from torchx.specs._status import AppStatus, ReplicaStatus, RoleStatus
from torchx.specs._workspace import Workspace

T = TypeVar("T")
CfgT = TypeVar("CfgT")
logger = get_logger(__name__)


def _format_error_message(msg: str, header: str, width: int = 80) -> str:
    """Wraps the text of an error; clients use this name."""
    from torchx.specs._status_text import wrap_error

    return wrap_error(msg, header, width)


__all__ = [
    "ALL",
    "MISSING",
    "NONE",
    "NULL_RESOURCE",
    "TORCHX_HOME",
    "UNKNOWN",
    "AppDef",
    "AppDryRunInfo",
    "AppHandle",
    "AppState",
    "AppStatus",
    "AppStatusError",
    "BindMount",
    "CfgT",
    "CfgVal",
    "DeviceMount",
    "InvalidRunConfigException",
    "MalformedAppHandleException",
    "MountType",
    "ParsedAppHandle",
    "ReplicaState",
    "ReplicaStatus",
    "Resource",
    "RetryPolicy",
    "Role",
    "RoleStatus",
    "T",
    "UnknownAppException",
    "UnknownSchedulerException",
    "VolumeMount",
    "Workspace",
    "_format_error_message",
    "cases",
    "get_type_name",
    "is_started",
    "is_terminal",
    "logger",
    "macros",
    "make_app_handle",
    "parse_app_handle",
    "runopt",
    "runopts",
]
