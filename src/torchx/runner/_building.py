"""Builds the workspaces of roles into images."""

from collections.abc import Mapping, Sequence
from typing import Any

from torchx._startup.lazy_logger import get_logger
from torchx.runner import _prepare
from torchx.specs.api import AppDef, CfgVal, Role, Workspace
from torchx.util.types import none_throws
from torchx.workspace.api import WorkspaceMixin

logger = get_logger("torchx.runner.api")


def build_into(
    scheduler: "WorkspaceMixin[Any]",
    app: AppDef,
    workspace: Workspace | str | None,
    cfg: Mapping[str, CfgVal],
) -> None:
    """Builds the workspaces of all roles, the first role's replaced by ``workspace``."""
    if workspace:
        if isinstance(workspace, str):
            workspace = Workspace.from_str(workspace)
        role = app.roles[0]
        role.workspace = workspace
        text = "role `%s` of app `%s` gets workspace `%s`"
        logger.info(text, role.name, app.name, workspace, extra={"calm_text": ""})
    scheduler.build_workspaces(app.roles, cfg)


def build_images(
    scheduler: "WorkspaceMixin[Any]", roles: Sequence[Role], cfg: Mapping[str, CfgVal]
) -> dict[tuple[str, Workspace], str]:
    """Returns built images by image and workspace, without roles that need more than that."""
    built: dict[tuple[str, Workspace], str] = {}
    partial = set()
    copies = [_prepare.own_role(role) for role in roles if role.workspace]
    before = [_prepare.own_role(role) for role in copies]
    scheduler.build_workspaces(copies, cfg)
    for role, original in zip(copies, before, strict=True):
        key = (original.image, none_throws(original.workspace))
        built[key] = role.image
        if {**vars(role), "image": ""} != {**vars(original), "image": ""}:
            partial.add(key)
            logger.warning(
                "the build of workspace `%s` changes more of role `%s` than its image,"
                " the image alone is not enough and is left out",
                original.workspace,
                role.name,
            )
    return {key: image for key, image in built.items() if key not in partial}
