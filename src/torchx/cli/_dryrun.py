"""The output of ``torchx run --dryrun``."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from torchx.cli import _secrets
from torchx.specs import AppDryRunInfo


def dryrun_text(info: "AppDryRunInfo[Any]", show_secrets: bool) -> str:
    from pprint import pformat

    app: dict[str, Any] = dataclasses.asdict(info.app) if info.app is not None else {}
    request = str(info)
    if not show_secrets:
        request = _secrets.mask_text(request, app, info.request)
        app = _secrets.mask_app(app)
    shown = pformat(app, indent=2, width=80)
    return f"\n=== APPLICATION ===\n{shown}\n\n=== SCHEDULER REQUEST ===\n{request}"


def dryrun_json(
    info: "AppDryRunInfo[Any]", scheduler: str, show_secrets: bool
) -> dict[str, object]:
    app = None if info.app is None else dataclasses.asdict(info.app)
    cfg = dict(info.cfg) if isinstance(info.cfg, Mapping) else str(info.cfg)
    data = _request_data(info)
    request: object = str(info) if data is None else data
    if not show_secrets:
        if isinstance(request, str):
            request = _secrets.mask_text(request, app or {}, info.request)
        else:
            request = _secrets.mask_request(request, app or {})
        cfg = _secrets.mask_data(cfg)
        app = app and _secrets.mask_app(app)
    return {"scheduler": scheduler, "cfg": cfg, "app": app, "request": request}


def _request_data(info: "AppDryRunInfo[Any]") -> "dict[str, Any] | None":
    """Returns the request as plain data if it is a dataclass, else ``None``."""
    if dataclasses.is_dataclass(info.request) and not isinstance(info.request, type):
        return dataclasses.asdict(info.request)
    return None
