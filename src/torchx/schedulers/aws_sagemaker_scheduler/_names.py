"""Converts names of apps and metadata to names and tags that SageMaker accepts. Pure."""

import re
from collections.abc import Mapping

from torchx.errors import InvalidInput

NAME_CHARS = 63
TAG_MARK = "torchx"
"""Key of the tag that identifies jobs of TorchX. No dots: a search reads them as paths."""
TAG_APP = "torchx.pytorch.org/app-name"
TAG_ROLE = "torchx.pytorch.org/role-name"
TAG_JOB = "torchx.pytorch.org/job-name"
TAG_USER = "torchx.pytorch.org/user"
_MOST_TAGS = 50
_KEY_CHARS = 128
_VALUE_CHARS = 256
_NOT_IN_TAG = re.compile(r"[^\w .:/=+\-@]")  # letters and digits of all scripts are allowed
_RANDOM_END = re.compile("-[a-z0-9]+$")


def run_name(app_name: str, program: str) -> str:
    """Returns the part of the app's name that names the job.

    >>> run_name("exp/run", ""), run_name("/run", ""), run_name("exp/", "pkg/train.py")
    ('run', 'run', 'train')

    Args:
        program: a script or ``-m module``, for an app without a name of its own.
    """
    name = app_name.rpartition("/")[2]
    if name:
        return name
    if program.startswith("-m "):
        return program.rpartition(".")[2].removeprefix("-m ")
    return program.rpartition("/")[2].partition(".")[0] or "job"


def job_name(unique: str) -> str:
    """Converts a name that ends with a random id to the name of a training job.

    >>> job_name("My_App.v2-x7c2"), job_name("_-x7c2")
    ('My-App-v2-x7c2', 'x7c2')
    """
    name = re.sub("-{2,}", "-", re.sub("[^A-Za-z0-9]", "-", unique)).strip("-")
    if len(name) > NAME_CHARS:
        found = _RANDOM_END.search(name)
        end = found[0][-NAME_CHARS // 2 :] if found else ""
        name = name[: NAME_CHARS - len(end)].rstrip("-") + end
    return name or "job"


def is_job_name(text: str) -> bool:
    """Returns True if a training job can have that name.

    >>> is_job_name("a-1"), is_job_name("a_1")
    (True, False)
    """
    return len(text) <= NAME_CHARS and bool(re.fullmatch("[a-zA-Z0-9](-*[a-zA-Z0-9])*", text))


def build_tags(
    own: Mapping[str, str], given: Mapping[str, str], metadata: Mapping[str, str]
) -> list[dict[str, str]]:
    """Builds the tags of a job.

    Args:
        own: tags that identify the job for TorchX; they win.
        given: tags of the option ``tags``, which must be valid.
        metadata: metadata of the app; characters that tags cannot have become ``_``.

    Raises:
        InvalidInput: for invalid or too many tags.
    """
    for key, value in given.items():
        _check_tag(key, value)
    tags = {_fitting(k, _KEY_CHARS): _fitting(v, _VALUE_CHARS) for k, v in metadata.items()}
    tags = {k: v for k, v in tags.items() if k and not k.lower().startswith("aws:")}
    tags |= given
    tags |= {key: _fitting(value, _VALUE_CHARS) for key, value in own.items()}
    if len(tags) > _MOST_TAGS:
        msg = (
            f"a training job has at most {_MOST_TAGS} tags, and these are {len(tags)} with the"
            f" {len(own)} of TorchX: leave out some of option `tags` or of the app's metadata"
        )
        raise InvalidInput(msg)
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _fitting(text: object, most: int) -> str:
    return _NOT_IN_TAG.sub("_", str(text))[:most]


def _check_tag(key: str, value: str) -> None:
    for text, most in ((key, _KEY_CHARS), (value, _VALUE_CHARS)):
        if len(text) > most or _NOT_IN_TAG.search(text):
            msg = (
                f"option `tags`: {text!r} cannot be in a tag, which takes letters, digits, spaces"
                f" and _.:/=+-@, a key {_KEY_CHARS} of them and a value {_VALUE_CHARS}"
            )
            raise InvalidInput(msg)
    if not key or key.lower().startswith("aws:"):
        msg = f"option `tags`: `{key}` cannot be the key of a tag; `aws:` is kept for AWS"
        raise InvalidInput(msg)
