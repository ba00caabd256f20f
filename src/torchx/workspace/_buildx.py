"""Builds with `docker buildx` if the daemon's own builder does not support the Dockerfile."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from threading import Thread
from typing import IO

from torchx._startup.lazy_logger import get_logger
from torchx.errors import InvalidInput, TorchXError
from torchx.workspace._tar import CHUNK_BYTES, TarStream

logger = get_logger("torchx.workspace.docker_workspace")

_INSTRUCTION = re.compile(
    r"(?P<what>(?:RUN|COPY|ADD)(?=\s))(?P<rest>(?:[^\\\n]|\\\s*\n|\\.)*)", re.IGNORECASE
)
_FLAGS = {
    "RUN": ("mount", "network", "security"),
    "COPY": ("link", "parents", "exclude", "chmod"),
    "ADD": ("link", "keep-git-dir", "checksum", "exclude", "chmod"),
}
_HEREDOC = re.compile(r"<<-?([\"']?)[A-Za-z_]\w*\1")
_LAST_LINES = 15


def feature_of_buildkit(dockerfile: str) -> str | None:
    """Returns the first BuildKit feature in a Dockerfile, with its line; ``None`` if there is none.

    >>> feature_of_buildkit("FROM a\\nRUN --mount=type=cache,target=/x pip install y")
    '`RUN --mount` in line 2'
    >>> feature_of_buildkit("FROM a\\nCOPY . .")
    """
    at = 0
    for start in re.finditer(r"^[ \t]*(?=\S)", dockerfile, re.MULTILINE):
        found = _INSTRUCTION.match(dockerfile, start.end()) if start.end() >= at else None
        if found is None:
            continue
        at = found.end()
        what, rest = found["what"].upper(), found["rest"]
        used = [flag for flag in _FLAGS[what] if re.search(rf"(?<=\s)--{flag}(?=[=\s])", rest)]
        # in a continued line it belongs to the shell
        if not used and _HEREDOC.search(rest.rpartition("\n")[2]) is None:
            continue
        line = dockerfile.count("\n", 0, start.end()) + 1
        return f"`{what} --{used[0]}` in line {line}" if used else f"`{what} <<` in line {line}"
    return None


def check_available(feature: str) -> None:
    """Refuses a Dockerfile that needs BuildKit if `docker buildx` is not installed."""
    docker = shutil.which("docker")
    if docker is not None:
        probe = subprocess.run([docker, "buildx", "version"], capture_output=True, check=False)
        if probe.returncode == 0:
            return
    msg = (
        f"{feature} of `Dockerfile.torchx` needs BuildKit, and `docker buildx` is not installed:"
        " install it, write the step without, or build the image yourself and give its name"
    )
    raise InvalidInput(msg)


def build(
    context: TarStream,
    *,
    dockerfile: str,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
    quiet: bool,
) -> str:
    """Sends a build context to `docker buildx` and returns the id of the image, ``sha256:…``.

    Raises:
        InvalidInput: if the build fails, with its last lines.
    """
    with tempfile.TemporaryDirectory(prefix="torchx-buildx-") as folder:
        id_file = os.path.join(folder, "id")
        command = ["docker", "buildx", "build", "--load", "--progress=plain"]
        command += [f"--iidfile={id_file}", f"--file={dockerfile}"]
        command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
        command += [f"--label={name}={value}" for name, value in labels.items()]
        lines = _run([*command, "-"], context, quiet)
        try:
            with open(id_file, encoding="utf-8") as f:
                return f.read().strip()
        except FileNotFoundError:
            raise InvalidInput("\n".join(["the image could not be built:", *lines])) from None


def _run(command: list[str], context: TarStream, quiet: bool) -> list[str]:
    """Runs the program and returns its last output lines; its result counts, not its exit code."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    sender = Thread(target=_send, args=(context, process.stdin), daemon=True)
    last: list[str] = []
    try:
        sender.start()
        for data in process.stdout:
            line = data.decode("utf-8", "replace").rstrip()
            if line and not quiet:
                logger.info("%s", line)
            last = [*last, line][-_LAST_LINES:]
        process.wait()
        sender.join()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        context.close()
    if context.failure is not None:
        raise context.failure
    return last


def _send(context: TarStream, pipe: IO[bytes]) -> None:
    try:
        with pipe:
            while chunk := context.read(CHUNK_BYTES):
                pipe.write(chunk)
    except (OSError, TorchXError):
        return  # the program has ended, or the context holds the error
