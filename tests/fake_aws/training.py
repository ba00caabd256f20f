"""Training jobs that run for real: a process of this machine for each instance."""

import asyncio
import io
import json
import os
import shutil
import signal
import tarfile
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .protocol import Params

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
FINAL = ("Completed", "Failed", "Stopped")
_TOLD_CHARS = 1024
_LINE_LIMIT = 64 << 20


class TrainingJob:
    """One job, from its start to its end.

    Args:
        request: what created it.
        logs: the service that gets its output.
        fetch: gives what S3 has at a URI.
    """

    def __init__(
        self, request: Params, arn: str, logs: Any, fetch: Callable[[str], bytes], grace_s: float
    ) -> None:
        self.request = request
        self.arn = arn
        self.name: str = request["TrainingJobName"]
        self.status = "InProgress"
        self.created = self.changed = _now()
        self.started: datetime | None = None
        self.ended: datetime | None = None
        self.steps: list[Params] = []
        self.failure = ""
        self.stop_reason = "Stopped"
        self._logs = logs
        self._fetch = fetch
        self._grace_s = grace_s
        self._folder = Path(tempfile.mkdtemp(prefix="training-"))
        self._processes: list[Process] = []
        self._stopping = asyncio.Event()
        self.step("Starting", "Starting the training job")

    @property
    def secondary(self) -> str:
        """``SecondaryStatus``."""
        return str(self.steps[-1]["Status"])

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self.status in FINAL

    def step(self, status: str, message: str) -> None:
        """The next value of ``SecondaryStatus``."""
        self.changed = _now()
        if self.steps:
            self.steps[-1]["EndTime"] = self.changed
        self.steps.append({"Status": status, "StartTime": self.changed, "StatusMessage": message})

    def stop(self, reason: str = "Stopped") -> None:
        """Begins to end it."""
        if not self.final and self.status != "Stopping":
            self.status, self.stop_reason = "Stopping", reason
            self.step("Stopping", "Stopping the training job")
            self._stopping.set()

    async def run(self, hold: asyncio.Event) -> None:
        """Runs it to its end.

        Args:
            hold: it waits for instances until this is set.
        """
        try:
            codes = await self._run(hold)
            self._finish(codes)
        finally:
            self._kill(signal.SIGKILL)
            self.ended = self.changed = _now()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _finish(self, codes: list[int]) -> None:
        if self.status == "Stopping":
            self.status = "Stopped"
            self.step(self.stop_reason, "Training job stopped")
            return
        bad = next((code for code in codes if code), 0)
        if bad:
            told = self._folder / "output" / "failure"
            code = bad if bad > 0 else 128 - bad
            words = told.read_text()[:_TOLD_CHARS] if told.exists() else ""
            self.failure = f"AlgorithmError: {words}, exit code: {code}"
            self.status = "Failed"
            self.step("Failed", "Training job failed")
            return
        self.step("Uploading", "Uploading generated training model")
        self.status = "Completed"
        self.step("Completed", "Training job completed")

    async def _run(self, hold: asyncio.Event) -> list[int]:
        if not hold.is_set():
            self.step("Pending", "Training job waiting for capacity")
        waiting = asyncio.ensure_future(hold.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        stopping.cancel()
        if self._stopping.is_set():
            return []
        self.step("Downloading", "Downloading the training image")
        count = self.request["ResourceConfig"]["InstanceCount"]
        stamp = time.time_ns() // 1_000_000_000
        for k in range(count):
            self._logs.open_stream(LOG_GROUP, f"{self.name}/algo-{k + 1}-{stamp}")
        runs = [asyncio.ensure_future(self._run_host(k, stamp)) for k in range(count)]
        self.step("Training", "Training image download completed. Training in progress.")
        self.started = _now()
        limit = asyncio.ensure_future(self._watch_time())
        ending = asyncio.ensure_future(self._end_when_asked())
        try:
            for finished in asyncio.as_completed(runs):
                if await finished:
                    self._kill(signal.SIGKILL)  # one that fails ends the others
            return [run.result() for run in runs]
        finally:
            for task in (limit, ending, *runs):
                task.cancel()

    async def _watch_time(self) -> None:
        await asyncio.sleep(self.request["StoppingCondition"]["MaxRuntimeInSeconds"])
        self.stop("MaxRuntimeExceeded")

    async def _end_when_asked(self) -> None:
        await self._stopping.wait()
        self._kill(signal.SIGTERM)
        await asyncio.sleep(self._grace_s)
        self._kill(signal.SIGKILL)

    def _kill(self, number: int) -> None:
        for process in self._processes:
            if process.returncode is None:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    pass

    # -- one instance -----------------------------------------------------------------------

    async def _run_host(self, k: int, stamp: int) -> int:
        folder = self._folder / f"algo-{k + 1}"
        code_dir = folder / "code"
        code_dir.mkdir(parents=True)
        self._write_config(folder, k)
        env = {
            "PATH": os.environ["PATH"],
            "TRAINING_JOB_NAME": self.name,
            "TRAINING_JOB_ARN": self.arn,
            "SM_INPUT_CONFIG_DIR": str(folder),
            **self.request.get("Environment", {}),
        }
        words = self._command(code_dir)
        starting = asyncio.ensure_future(
            create_subprocess_exec(
                *words,
                env=env,
                cwd=code_dir,
                stdin=DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                limit=_LINE_LIMIT,
            )
        )
        stream = f"{self.name}/algo-{k + 1}-{stamp}"
        try:
            process = await starting
        except OSError as err:
            self._logs.write(LOG_GROUP, stream, f"{words[0]}: {err.strerror}")
            return 127
        self._processes.append(process)
        if self._stopping.is_set():
            self._kill(signal.SIGKILL)
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._logs.write(LOG_GROUP, stream, line.decode("utf-8", "replace").removesuffix("\n"))
        return await process.wait()

    def _write_config(self, folder: Path, k: int) -> None:
        count = self.request["ResourceConfig"]["InstanceCount"]
        config = {
            "current_host": f"algo-{k + 1}",
            "current_instance_type": self.request["ResourceConfig"]["InstanceType"],
            "hosts": [f"algo-{i + 1}" for i in range(count)],
            "network_interface_name": "eth0",
        }
        (folder / "resourceconfig.json").write_text(json.dumps(config))

    def _command(self, code_dir: Path) -> list[str]:
        algorithm = self.request["AlgorithmSpecification"]
        if "ContainerEntrypoint" in algorithm:
            entrypoint: list[str] = algorithm["ContainerEntrypoint"]
            return [*entrypoint, *algorithm.get("ContainerArguments", [])]
        # as the toolkit in AWS's images does, with one process in place of torchrun's
        given = {k: json.loads(v) for k, v in self.request.get("HyperParameters", {}).items()}
        uri = self._source_uri(given["sagemaker_submit_directory"])
        with tarfile.open(fileobj=io.BytesIO(self._fetch(uri)), mode="r:gz") as archive:
            archive.extractall(code_dir, filter="data")
        named = {k: v for k, v in given.items() if not k.startswith("sagemaker_")}
        options = [word for k in sorted(named) for word in (f"--{k}", str(named[k]))]
        return ["python3", "-u", given["sagemaker_program"], *options]

    def _source_uri(self, place: str) -> str:
        """Where a channel of input that the source comes through is taken from."""
        if not place.startswith("/opt/ml/input/data/"):
            return place
        channel = place.split("/")[5]
        for given in self.request["InputDataConfig"]:
            if given["ChannelName"] == channel:
                return str(given["DataSource"]["S3DataSource"]["S3Uri"])
        raise KeyError(channel)


def _now() -> datetime:
    return datetime.now(timezone.utc)
