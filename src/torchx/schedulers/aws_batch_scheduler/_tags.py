"""Tags of a job and of its definition. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.specs.api import AppDef
from torchx.version import __version__

from ._options import Opts

TAG_TORCHX_VER = "torchx.pytorch.org/version"
TAG_TORCHX_APPNAME = "torchx.pytorch.org/app-name"
TAG_TORCHX_USER = "torchx.pytorch.org/user"
TAG_ON_FAILURE = "torchx.pytorch.org/on-failure"
TAG_KEY_CHARS = 128
TAG_VALUE_CHARS = 256
MOST_TAGS = 50
_NOT_IN_TAG = re.compile(r"[^\w\s+=.:/@-]")

logger = get_logger(__name__)


@dataclass(frozen=True)
class Facts:
    """Inputs of the request that are neither in the app nor in the options.

    Args:
        user: user of this machine.
    """

    user: str = ""


def build_tags(app: AppDef, opts: Opts, facts: Facts) -> dict[str, str]:
    """Builds the tags of the job and its definition; those of the app win."""
    tags = {
        TAG_TORCHX_VER: __version__,
        TAG_TORCHX_APPNAME: app.name,
        TAG_TORCHX_USER: opts.user or facts.user,
        **(opts.tags or {}),
        **app.metadata,
    }
    if opts.on_failure == "wait":
        tags[TAG_ON_FAILURE] = opts.on_failure
    cleaned = {
        _tag(key, TAG_KEY_CHARS): _tag(value, TAG_VALUE_CHARS) for key, value in tags.items()
    }
    changed = [key for key, value in tags.items() if cleaned.get(key) != str(value)]
    if changed:
        logger.warning(
            "tags of AWS hold letters, digits, spaces and + - = . _ : / @ only, up to %d "
            "characters; changed to fit: %s",
            TAG_VALUE_CHARS,
            ", ".join(f"`{key}`" for key in changed),
        )
    _check_tags(cleaned)
    return cleaned


def _check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > MOST_TAGS:
        msg = (
            f"a job of AWS Batch has {MOST_TAGS} tags at most, {len(tags)} are given by "
            "TorchX, the option `tags` and the metadata of the app"
        )
        raise InvalidInput(msg)
    for key in tags:
        if key.lower().startswith("aws:"):
            raise InvalidInput(f"tags that begin with aws: are AWS's own, given: `{key}`")
        if not key:
            raise InvalidInput("the name of a tag must not be empty")


def _tag(text: object, chars: int) -> str:
    return _NOT_IN_TAG.sub("_", str(text))[:chars]
