"""Core types: what to run, what it needs, how it is doing.

>>> import torchx.specs as specs
>>> specs.AppDef("echo", roles=[specs.Role("worker", "/tmp", entrypoint="/bin/echo")]).name
'echo'
"""

from typing import TYPE_CHECKING

from torchx._startup import late_names
from torchx.specs._constants import GiB as GiB
from torchx.specs._mounts import parse_mounts
from torchx.specs._named_resources import (
    ResourceFactory as ResourceFactory,
)
from torchx.specs._named_resources import (
    get_named_resources,
    named_resources,
    resource,
)
from torchx.specs.api import (
    ALL,
    MISSING,
    NONE,
    NULL_RESOURCE,
    TORCHX_HOME,
    UNKNOWN,
    AppDef,
    AppDryRunInfo,
    AppHandle,
    AppState,
    AppStatus,
    BindMount,
    CfgVal,
    DeviceMount,
    InvalidRunConfigException,
    MalformedAppHandleException,
    ParsedAppHandle,
    ReplicaState,
    ReplicaStatus,
    Resource,
    RetryPolicy,
    Role,
    RoleStatus,
    UnknownAppException,
    UnknownSchedulerException,
    VolumeMount,
    Workspace,
    cases,
    get_type_name,
    is_terminal,
    macros,
    make_app_handle,
    parse_app_handle,
    runopt,
    runopts,
)
from torchx.specs.builders import materialize_appdef
from torchx.specs.metadata_keys import NA, TORCHX_CONTEXT_NAME, app_metadata

__all__ = [
    "ALL",
    "MISSING",
    "NA",
    "NONE",
    "NULL_RESOURCE",
    "TORCHX_CONTEXT_NAME",
    "TORCHX_HOME",
    "UNKNOWN",
    "AppDef",
    "AppDryRunInfo",
    "AppHandle",
    "AppState",
    "AppStatus",
    "BindMount",
    "CapabilityKey",
    "CfgVal",
    "DeviceMount",
    "InvalidRunConfigException",
    "MalformedAppHandleException",
    "ParsedAppHandle",
    "ReplicaState",
    "ReplicaStatus",
    "Resource",
    "RetryPolicy",
    "Role",
    "RoleStatus",
    "UnknownAppException",
    "UnknownSchedulerException",
    "VolumeMount",
    "Workspace",
    "app_metadata",
    "cases",
    "get_named_resources",
    "get_type_name",
    "is_terminal",
    "macros",
    "make_app_handle",
    "materialize_appdef",
    "named_resources",
    "parse_app_handle",
    "parse_mounts",
    "resource",
    "runopt",
    "runopts",
]

if TYPE_CHECKING:
    from torchx.specs import file_linter as file_linter
    from torchx.specs.capabilities import CapabilityKey
else:
    # published as loaded, and needed by few
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "CapabilityKey": "torchx.specs.capabilities:CapabilityKey",
            "capabilities": "torchx.specs.capabilities",
            "file_linter": "torchx.specs.file_linter",
        },
    )
