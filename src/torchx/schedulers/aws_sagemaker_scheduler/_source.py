"""The code sent along with a script: one archive, stored in S3 by its content."""

import gzip
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO

from torchx._aws.errors import AwsRefused, NoCredentials
from torchx._aws.session import AwsService
from torchx._projects.entry import Entry, announce
from torchx._projects.tree import is_local, local_path, not_found, scan
from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput
from torchx.specs.api import Workspace
from torchx.workspace._tar import TarFile, TarStream

from ._args import MODULE_LAUNCHER
from ._request import Source

_LAUNCHER = """\
import runpy

runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
_IN_MEMORY = 16 << 20

logger = get_logger(__name__)


def check_source(source: Source) -> None:
    """Raises if the source, or the script in it, does not exist.

    Raises:
        WorkspaceNotFound: if one of the directories is missing.
        InvalidInput: if the script is missing.
    """
    if not all(map(is_local, source.projects)):
        return  # remote files are checked when they are sent
    for folder in source.projects:
        if not os.path.exists(local_path(folder)):
            raise not_found(folder)
    if source.script is None or any(map(os.path.isfile, _places(source, source.script))):
        return
    where = ", ".join(f"`{os.path.abspath(local_path(folder))}`" for folder in source.projects)
    msg = (
        f"there is no script `{source.script}` in the source {where}: give its path there, or"
        " another `source_dir`; launch=container runs what is in the image"
    )
    raise InvalidInput(msg)


def _places(source: Source, script: str) -> Iterator[str]:
    """Yields the paths of files that may become the script in the archive."""
    for folder, place in source.projects.items():
        prefix = f"{place.strip('/')}/" if place.strip("/.") else ""
        if script.startswith(prefix):
            yield os.path.join(local_path(folder), script.removeprefix(prefix))


def send_source(s3: AwsService, source: Source) -> str:
    """Uploads the source to S3 unless it is there, and returns its digest.

    Raises:
        TorchXError: if it cannot be read or uploaded.
    """
    entries = _entries(source)
    digest = _digest(entries)
    bucket, _, prefix = source.location.removeprefix("s3://").partition("/")
    key = "/".join(filter(None, [prefix.strip("/"), f"{digest}.tar.gz"]))
    if _is_there(s3, bucket, key):
        logger.info("the source has not changed since it was sent to `s3://%s/%s`", bucket, key)
        return digest
    announce(entries, ", ".join(source.projects))
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as packed:
        _pack(entries, packed)
        packed.seek(0)
        s3.call("put_object", Bucket=bucket, Key=key, Body=packed)
    logger.info("sent the source to `s3://%s/%s`", bucket, key)
    return digest


def _entries(source: Source) -> list[Entry]:
    """Returns the entries of the archive, sorted by path."""
    entries = scan(Workspace(dict(source.projects)))
    if source.module is not None:
        content = _LAUNCHER.format(module=source.module).encode()
        launcher = Entry(MODULE_LAUNCHER, "file", 0o644, len(content), content=content)
        entries = [entry for entry in entries if entry.path != MODULE_LAUNCHER]
        entries = sorted([*entries, launcher], key=lambda entry: entry.path)
    return entries


def _digest(entries: list[Entry]) -> str:
    digest = hashlib.sha256()
    for chunk in TarStream(entries):
        digest.update(chunk)
    return digest.hexdigest()


def _pack(entries: list[Entry], target: IO[bytes]) -> None:
    with (
        TarFile(entries) as archive,
        gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as packed,
    ):
        shutil.copyfileobj(archive, packed, 1 << 20)


def _is_there(s3: AwsService, bucket: str, key: str) -> bool:
    try:
        s3.call("head_object", Bucket=bucket, Key=key)
    except NoCredentials:
        raise
    except AwsRefused:  # without the right to list, 404 is reported as 403
        return False
    return True
