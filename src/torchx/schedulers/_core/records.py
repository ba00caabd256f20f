"""Records of apps that this user submitted from here, below ``TORCHX_HOME``.

They help if the backend has forgotten an app, or does not report where its files are. Nothing
depends on them: a record that cannot be written or read is ignored.
"""

import json
import os
from collections.abc import Mapping

from torchx._files import replace_file
from torchx._home import home_dir
from torchx.errors import InvalidInput


def remember(scheduler: str, app_id: str, data: Mapping[str, object]) -> None:
    """Records an app; a later record of the same id wins."""
    try:
        path = _path(scheduler, app_id)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        replace_file(path, json.dumps(data).encode(), mode=0o600)
    except (OSError, InvalidInput):  # there may be no home directory
        return


def forget(scheduler: str, app_id: str) -> None:
    """Removes the record of an app, if there is one."""
    try:
        os.unlink(_path(scheduler, app_id))
    except (OSError, InvalidInput):
        return


def recall(scheduler: str, app_id: str) -> dict[str, object] | None:
    """Returns the record of an app; ``None`` if there is none."""
    try:
        with open(_path(scheduler, app_id), encoding="utf-8") as f:
            data = json.load(f)
    except (OSError, ValueError):  # an `InvalidInput` is a `ValueError`
        return None
    return data if isinstance(data, dict) else None


def _path(scheduler: str, app_id: str) -> str:
    if os.sep in app_id or app_id.startswith("."):
        msg = f"`{app_id}` is not the id of an app"
        raise InvalidInput(msg)
    return os.path.join(home_dir(), scheduler, f"{app_id}.json")
