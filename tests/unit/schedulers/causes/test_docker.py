"""The cause of a failure of a container, from Docker's records."""

import pytest

from tests.unit.schedulers.causes.corpus import CASES_AT_LEAST, INVENTED, Case, check
from tests.unit.schedulers.docker.fake_daemon import row
from torchx.schedulers._core.snapshot import AppSnapshot
from torchx.schedulers.docker_scheduler._causes import RULES
from torchx.schedulers.docker_scheduler._states import (
    Ended,
    build_snapshot,
    parse_container,
    parse_details,
)

REAL = "recorded, Docker 20.10.24"
EXIT = "https://manpages.debian.org/experimental/docker-cli/docker-container-exec.1.en.html"
CODES = "src/torchx/schedulers/_core/exits.py"
STATES = "src/torchx/schedulers/docker_scheduler/_states.py"
SHIM = (
    "failed to create shim task: OCI runtime create failed: runc create failed:"
    " unable to start container process: "
)
TRACE = 'Traceback (most recent call last):\n  File "/app/train.py", line 41, in step\n'


def ended(code: int, error: str = "", **more: object) -> tuple[str, dict[str, object]]:
    return f"Exited ({code}) now", {"ExitCode": code, "Error": error, **more}


CASES = [
    Case("launch-failed", REAL,
         ended(127, SHIM + 'exec: "no-such-command": executable file not found in $PATH: unknown')),
    Case("launch-failed", REAL, ended(126, SHIM + 'exec: "/etc": permission denied: unknown')),
    Case("launch-failed", REAL,
         ended(127, SHIM + 'exec: "/nope/x.sh": stat /nope/x.sh: no such file or directory: unknown')),
    Case("unschedulable", REAL, ended(128, 'could not select device driver "" with capabilities: [[gpu]]')),
    Case("unschedulable", REAL,
         ended(128, 'error gathering device information while adding custom device "/dev/nope":'
               " no such file or directory")),
    Case("unschedulable", "https://github.com/NVIDIA/nvidia-container-toolkit/issues/154",
         ended(128, SHIM + "error during container init: error running hook #0: error running hook: exit status 1, stdout: ,"
               " stderr: Auto-detected mode as 'legacy' nvidia-container-cli: initialization error: load library failed:"
               " libnvidia-ml.so.1: cannot open shared object file: no such file or directory: unknown")),
    Case("unschedulable", "https://github.com/NVIDIA-NeMo/labs-molt/issues/88",
         ended(128, "unknown or invalid runtime name: nvidia")),
    Case("bad-option", "https://github.com/docker/for-mac/issues/1114",
         ended(128, "driver failed programming external connectivity on endpoint quota (08bb): Error starting userland proxy:"
               " Bind for 0.0.0.0:49161 failed: port is already allocated")),
    Case("out-of-memory", REAL, ended(137, OOMKilled=True)),
    Case("mount", REAL,
         ended(128, 'invalid mount config for type "bind": bind source path does not exist: /nope/x')),
    Case("mount", REAL,
         ended(127, SHIM + 'error during container init: error mounting "/etc/hostname" to rootfs at'
               ' "/etc": mount /etc/hostname:/etc (via /proc/self/fd/6), flags: 0x5000: not a directory:'
               " unknown: Are you trying to mount a directory onto a file (or vice-versa)? Check if the"
               " specified host path exists and is the expected type")),
    Case("bad-option", REAL, ended(128, "unable to find user nosuch: no matching entries in passwd file")),
    Case("bad-option", REAL, ended(128, "network nosuchnet not found")),
    Case("launch-failed", REAL, ended(127), "sh: 1: nope: not found\n"),
    Case("app-error", EXIT, ended(127), "cannot reach the database\n"),
    Case("killed", CODES, ended(137)),
    Case("killed", CODES, ended(143)),
    Case("app-error", CODES, ended(3)),
    Case("app-error", CODES, ended(139)),
    Case("app-error", REAL, ended(1), TRACE + "ValueError: loss is NaN\n"),
    Case("out-of-memory", "https://github.com/pytorch/pytorch/issues/16417", ended(1),
         TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n"),
    Case("held", STATES, ("paused", {})),
    Case("starting", STATES, ("created", {})),
    Case("none", CODES, ended(0)),
    Case("unknown", INVENTED, ended(128, "a message of tomorrow")),
    Case("unknown", INVENTED, ended(128, 'the container "no such image" of `pull access denied` does not start')),
    Case("unknown", INVENTED, ended(128, "container quota-oom-mount is no-such-device-like")),
    Case("app-error", INVENTED, ended(1), "no such image: retrying\npull access denied for oom\n"),
    Case("killed", INVENTED, ended(137), "OOM: 0, out of memory: never\n"),
]  # fmt: skip


def make(native: tuple[str, dict[str, object]]) -> AppSnapshot:
    text, state = native
    status = "exited" if text.startswith("Exited") else text
    container = parse_container(row(status, text))
    assert container is not None
    details = {container.id: parse_details({"State": state})} if state else {}
    return build_snapshot("job-x1", [container], details, {}, Ended(), abandoned=False)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= CASES_AT_LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.native[0]}-{case.cause}")
def test_what_docker_says(case: Case) -> None:
    check(case, make, RULES)
