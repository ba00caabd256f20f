"""An image is made in a registry in one call, as dry run and submission do together."""

from urllib3 import Retry

from torchx._projects.tree import scan
from torchx.specs.api import Workspace
from torchx.workspace._registry._build import find_base, plan_image, push_image


def append_workspace(
    base: str, workspace: Workspace | str, image_repo: str, retries: Retry | None = None
) -> str:
    """The image by digest, ``repo@sha256:…``, that a workspace added to ``base`` makes."""
    plan = plan_image(find_base(base, retries), workspace, scan(workspace), image_repo, retries)
    push_image(plan, retries)
    return plan.image
