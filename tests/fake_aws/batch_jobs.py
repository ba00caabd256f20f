"""Jobs of AWS Batch and their nodes, which run commands as processes."""

import asyncio
import fnmatch
import os
import shutil
import signal
import tempfile
import time
import uuid
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec
from dataclasses import dataclass, field
from typing import Any

from .logs import LINE_BYTES
from .protocol import Params

MAIN_NODE = 0
TIMED_OUT = "Job attempt duration exceeded timeout"
EXITED = "Essential container in task exited"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Job:
    """A job, which runs its attempts one after the other."""

    service: Any
    id: str
    arn: str
    name: str
    queue: str
    queue_arn: str
    definition: Params
    tags: dict[str, str]
    share_id: str | None
    created_ms: int
    status: str = "SUBMITTED"
    status_reason: str | None = None
    started_ms: int | None = None
    stopped_ms: int | None = None
    terminated: bool = False
    attempts: list[Params] = field(default_factory=list)
    nodes: "list[Node]" = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None
    ending: "asyncio.Task[None] | None" = None

    @property
    def multinode(self) -> bool:
        return bool(self.definition["type"] == "multinode")

    @property
    def over(self) -> bool:
        return self.status in ("SUCCEEDED", "FAILED")

    async def run(self) -> None:
        """All attempts."""
        self.nodes = [Node(self, i, container) for i, container in self._containers()]
        most = self.definition.get("retryStrategy", {}).get("attempts", 1)
        for attempt in range(1, most + 1):
            self.status = "RUNNABLE"
            while self.service.hold and not self.terminated:
                await asyncio.sleep(0.01)
            if self.terminated:
                break
            self.status = "STARTING"
            await self._attempt(attempt)
            main = self.nodes[MAIN_NODE]
            if main.exit_code == 0 or self.terminated or not self._again(main):
                break
        self.stopped_ms = now_ms()
        main = self.nodes[MAIN_NODE]
        if not self.terminated:
            self.status_reason = main.status_reason
        well = main.started and main.exit_code == 0 and not self.terminated
        self.status = "SUCCEEDED" if well else "FAILED"

    def _containers(self) -> list[tuple[int, Params]]:
        if not self.multinode:
            return [(0, self.definition["containerProperties"])]
        found = []
        for group in self.definition["nodeProperties"]["nodeRangeProperties"]:
            first, last = map(int, group["targetNodes"].split(":"))
            found += [(i, group["container"]) for i in range(first, last + 1)]
        return sorted(found, key=lambda item: item[0])

    async def _attempt(self, attempt: int) -> None:
        main, *others = self.nodes
        await main.start(attempt)
        if self.terminated:  # between the two
            main.kill(signal.SIGKILL)
        self.status = "RUNNING"
        self.started_ms = self.started_ms or now_ms()
        main_ends = asyncio.ensure_future(main.wait())
        others_end = []
        for node in others:
            await node.start(attempt)
            others_end.append(asyncio.ensure_future(node.wait()))
        timer = asyncio.ensure_future(self._time_out())
        try:
            await main_ends
            if others_end:
                await asyncio.wait(others_end, timeout=self.service.end_children_after_s)
                for node in others:
                    node.kill(signal.SIGKILL)
                await asyncio.gather(*others_end)
        finally:
            timer.cancel()
        final = main.exit_code == 0 or attempt == self.definition.get("retryStrategy", {}).get(
            "attempts", 1
        )
        for node in self.nodes:
            node.close_attempt(final)
        self.attempts.append(main.attempts[-1])

    async def _time_out(self) -> None:
        limit_s = self.definition.get("timeout", {}).get("attemptDurationSeconds")
        if limit_s is None:
            return
        await asyncio.sleep(limit_s * self.service.second_s)
        for node in self.nodes:
            node.timed_out = True
            node.kill(signal.SIGKILL)

    def _again(self, main: "Node") -> bool:
        """What the rules of the retry strategy say; without a match it is tried again."""
        for rule in self.definition.get("retryStrategy", {}).get("evaluateOnExit", ()):
            told = {
                "onExitCode": str(main.shell_code) if main.shell_code is not None else "",
                "onStatusReason": main.status_reason or "",
                "onReason": main.container_reason or "",
            }
            if all(fnmatch.fnmatch(told[key], rule[key]) for key in told if key in rule):
                return bool(rule["action"].upper() == "RETRY")
        return True

    async def end(self, reason: str, grace_s: float) -> None:
        """Ends all nodes: asks them, and kills them after a while."""
        if self.over:
            return
        self.terminated = True
        self.status_reason = reason
        for node in self.nodes:
            node.ended_for = reason
            node.kill(signal.SIGTERM)
        if grace_s and self.task is not None:
            await asyncio.wait([self.task], timeout=grace_s)
        for node in self.nodes:
            node.kill(signal.SIGKILL)
        if self.task is not None:
            await asyncio.wait([self.task])

    # -- what is told -----------------------------------------------------------------------

    def _common(self) -> Params:
        found: Params = {
            "jobArn": self.arn,
            "jobId": self.id,
            "jobName": self.name,
            "createdAt": self.created_ms,
            "status": self.status,
            "startedAt": self.started_ms,
            "stoppedAt": self.stopped_ms,
            "jobDefinition": self.definition["jobDefinitionArn"],
        }
        if self.status_reason and (self.over or not self.terminated):
            found["statusReason"] = self.status_reason
        return {key: value for key, value in found.items() if value is not None}

    def summary(self) -> Params:
        return self._common()

    def record(self) -> Params:
        found = {
            **self._common(),
            "jobQueue": self.queue_arn,
            "startedAt": self.started_ms or 0,
            **({"tags": self.tags} if self.tags else {}),
            "isTerminated": self.terminated,
            "attempts": self.attempts,
        }
        if self.share_id:
            found["shareIdentifier"] = self.share_id
        for key in ("retryStrategy", "timeout", "nodeProperties"):
            if key in self.definition:
                found[key] = self.definition[key]
        if not self.multinode:
            container = dict(self.definition["containerProperties"])
            if self.nodes and self.nodes[0].started:
                container |= self.nodes[0].told_container()
            found["container"] = container
        return found


class Node:
    """A container of a job: its latest attempt, and what is told of earlier ones."""

    def __init__(self, job: Job, index: int, container: Params) -> None:
        self.job = job
        self.index = index
        self.container = container
        self.attempts: list[Params] = []
        self.started = False
        self.ended_for: str | None = None
        self.timed_out = False
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._folder = ""
        self._forget()

    def _forget(self) -> None:
        self.status = "STARTING"
        self.exit_code: int | None = None
        self.status_reason: str | None = None
        self.container_reason: str | None = None
        self.started_ms: int | None = None
        self.stopped_ms: int | None = None
        self.stream: str | None = None
        self.task_id = uuid.uuid4().hex

    @property
    def shell_code(self) -> int | None:
        """As a container tells it: 137 for SIGKILL."""
        if self.exit_code is None or self.exit_code >= 0:
            return self.exit_code
        return 128 - self.exit_code

    async def start(self, attempt: int) -> None:
        self._forget()
        self.started = True
        self._folder = tempfile.mkdtemp(prefix="fake-batch-")
        try:
            self._process = await create_subprocess_exec(
                *self.container["command"],
                env=self._environment(attempt),
                cwd=self._folder,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=LINE_BYTES,
            )
        except OSError as err:
            self._process = None
            self.status_reason = "Task failed to start"
            self.container_reason = f"CannotStartContainerError: {err}"
            self._reading = None
            return
        self.status = "RUNNING"
        self.started_ms = now_ms()
        name = self.job.definition["jobDefinitionName"]
        self.stream = f"{name}/default/{self.task_id}"
        self.job.service.logs.open_stream(self._group, self.stream)
        self._reading = asyncio.ensure_future(self._read(self._process, self.stream))

    def _environment(self, attempt: int) -> dict[str, str]:
        env = {v["name"]: v["value"] for v in self.container.get("environment", ())}
        env = {"PATH": os.environ["PATH"], "HOME": self._folder, **env}
        if "TEST_RUN_ID" in os.environ:
            env["TEST_RUN_ID"] = os.environ["TEST_RUN_ID"]
        env["AWS_BATCH_JOB_ID"] = self.job.id
        env["AWS_BATCH_JOB_ATTEMPT"] = str(attempt)
        env["AWS_BATCH_JQ_NAME"] = self.job.queue
        if self.job.multinode:
            env["AWS_BATCH_JOB_ID"] += f"#{self.index}"
            env["AWS_BATCH_JOB_NODE_INDEX"] = str(self.index)
            env["AWS_BATCH_JOB_NUM_NODES"] = str(len(self.job.nodes))
            env["AWS_BATCH_JOB_MAIN_NODE_INDEX"] = str(MAIN_NODE)
            if self.index != MAIN_NODE:
                env["AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"] = "127.0.0.1"
        return env

    @property
    def _group(self) -> str:
        options = self.container.get("logConfiguration", {}).get("options", {})
        return str(options.get("awslogs-group", "/aws/batch/job"))

    async def _read(self, process: Process, stream: str) -> None:
        """Writes what is printed, line by line."""
        assert process.stdout is not None
        held = b""
        while chunk := await process.stdout.read(65536):
            *lines, held = (held + chunk).split(b"\n")
            for line in lines:
                self._write(stream, line)
        self._write(stream, held)

    def _write(self, stream: str, line: bytes) -> None:
        self.job.service.logs.write(self._group, stream, line.decode("utf-8", "replace"))

    async def wait(self) -> None:
        if self._process is None:
            self.status = "FAILED"
            self.stopped_ms = self.stopped_ms or now_ms()
            return
        code = await self._process.wait()
        self.stopped_ms = self.stopped_ms or now_ms()
        self.kill(signal.SIGKILL)  # what it has left behind
        if self._reading is not None:
            await self._reading
        self.exit_code = code
        self.status_reason = TIMED_OUT if self.timed_out else self.ended_for or EXITED
        self.status = "SUCCEEDED" if code == 0 else "FAILED"
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self, number: int) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                pass

    def close_attempt(self, final: bool) -> None:
        """Notes the attempt; one that may be tried again waits."""
        self.attempts.append(
            {
                "container": self.told_container(),
                "startedAt": self.started_ms or 0,
                "stoppedAt": self.stopped_ms or 0,
                "statusReason": self.status_reason or "",
            }
        )

    def told_container(self) -> Params:
        host = f"10.0.0.{self.index + 10}"
        found: Params = {
            "containerInstanceArn": f"arn:aws:ecs:eu-west-1:1:container-instance/c/{self.index}",
            "taskArn": f"arn:aws:ecs:eu-west-1:1:task/c/{self.task_id}",
            "logStreamName": self.stream,
            "exitCode": self.shell_code,
            "reason": self.container_reason,
            "networkInterfaces": [{"privateIpv4Address": host}] if self.job.multinode else [],
        }
        return {key: value for key, value in found.items() if value is not None}

    def record(self) -> Params:
        status = self.status
        if status == "FAILED" and not self.job.over and len(self.job.attempts) < len(self.attempts):
            status = "RUNNABLE"
        found: Params = {
            "jobArn": f"{self.job.arn}#{self.index}",
            "jobId": f"{self.job.id}#{self.index}",
            "jobName": self.job.name,
            "jobQueue": self.job.queue_arn,
            "jobDefinition": self.job.definition["jobDefinitionArn"],
            "createdAt": self.job.created_ms,
            "startedAt": self.started_ms or 0,
            "stoppedAt": self.stopped_ms,
            "status": status,
            "statusReason": self.status_reason,
            "attempts": self.attempts,
            "container": {**self.container, **self.told_container()},
            "nodeDetails": {"nodeIndex": self.index, "isMainNode": self.index == MAIN_NODE},
        }
        return {key: value for key, value in found.items() if value is not None}
