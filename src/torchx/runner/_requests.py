"""Records launched requests, and reads them back."""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx._home import home_dir
from torchx._startup.dataclass import light_dataclass
from torchx.errors import InvalidInput, UnknownName
from torchx.schedulers._core import records
from torchx.settings import (
    ENV_TORCHX_INTERNAL_SESSION_ID,
    ENV_TORCHX_JOB_ID,
    ENV_TORCHX_PARENT_RUN_ID,
)
from torchx.specs._serialize import app_from_json, app_to_json
from torchx.specs.api import AppDef, AppHandle, CfgVal

if TYPE_CHECKING:
    from torchx.specs.api import AppDryRunInfo

VERSION = 1
KEPT = 1000
"""Number of latest requests kept for each scheduler."""
_SPARE = 100
_YOUNG_S = 86400.0
_OURS = (ENV_TORCHX_JOB_ID, ENV_TORCHX_INTERNAL_SESSION_ID, ENV_TORCHX_PARENT_RUN_ID)
"""Variables that every launch sets again."""


@light_dataclass(frozen=True)
class RecordedRequest:
    """The record of a launch: enough to launch it again."""

    scheduler: str
    app: AppDef
    """The app with its built images; workspaces are not built again."""
    cfg: Mapping[str, CfgVal]


def read(scheduler: object, backend: str, app_id: str, app_handle: AppHandle) -> RecordedRequest:
    """Returns the recorded request of an app; see ``Runner.recorded``."""
    hook = getattr(scheduler, "recorded_request", None)
    data = hook(app_id) if hook is not None else None
    if data is None:
        data = records.recall(_folder(backend), app_id)
    if data is None:
        msg = (
            f"there is no record of the request of `{app_handle}`: it was launched elsewhere,"
            " by an older version, or too long ago"
        )
        raise UnknownName(msg)
    return _parse(data, backend, app_handle)


def note(backend: str, app_id: str, info: "AppDryRunInfo[Any]") -> None:
    """Records a launched request."""
    if info.app is None:
        return
    cfg = info.cfg if isinstance(info.cfg, Mapping) else {}
    data = {
        "version": VERSION,
        "app": app_to_json(info.app),
        "cfg": {str(k): _plain(v) for k, v in cfg.items() if v is not None},
    }
    records.remember(_folder(backend), app_id, data)
    _keep_to_limit(_folder(backend))


def _folder(backend: str) -> str:
    return os.path.join("requests", backend)


def _plain(value: object) -> object:
    """Converts the value of an option to plain JSON data."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _parse(data: Mapping[str, Any], backend: str, handle: str) -> RecordedRequest:
    version = data.get("version")
    if isinstance(version, int) and version > VERSION:
        msg = (
            f"the record of `{handle}` has format {version}, this version of TorchX reads up to"
            f" {VERSION}: use the one that launched it, or a newer one"
        )
        raise InvalidInput(msg)
    try:
        app = app_from_json(data["app"])
        cfg = dict(data["cfg"])
    except (KeyError, TypeError, ValueError, AttributeError):
        msg = (
            f"the record of `{handle}` is damaged, or does not hold an app: it was written by hand"
        )
        raise InvalidInput(msg) from None
    for role in app.roles:
        role.workspace = None
        for name in _OURS:
            role.env.pop(name, None)
    return RecordedRequest(backend, app, {k: v for k, v in cfg.items() if v is not None})


def _keep_to_limit(folder: str) -> None:
    """Removes the oldest records beyond the limit, but none less than a day old."""
    top = os.path.join(home_dir(), folder)
    try:
        names = os.listdir(top)
        if len(names) <= KEPT + _SPARE:
            return
        aged = sorted((os.stat(os.path.join(top, name)).st_mtime, name) for name in names)
        young_s = time.time() - _YOUNG_S
        for made_s, name in aged[: len(names) - KEPT]:
            if made_s < young_s:
                os.unlink(os.path.join(top, name))
    except OSError:  # another process is removing them, too
        return
