"""Verbs for coroutines: many apps wait in a few threads."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from torchx.components.utils import sh
from torchx.errors import BackendUnavailable, UnknownAppException
from torchx.runner import Runner, get_runner
from torchx.schedulers.api import AppSnapshot, ReplicaSnapshot, Scheduler
from torchx.specs import AppDef, AppDryRunInfo, AppState
from torchx.testing.fixtures import IS_MACOS


class Counting(Scheduler[Mapping[str, Any]]):
    """Ends its apps when it is told, and counts its looks."""

    def __init__(self, session_name: str) -> None:
        super().__init__("counting", session_name)
        self.started = 0
        self.over = False
        self.away = 0
        self.looks = 0

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        return AppDryRunInfo({}, str)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        self.started += 1
        return f"app-{self.started}"

    def look(self, app_id: str) -> AppSnapshot | None:
        if int(app_id.rpartition("-")[2]) > self.started:
            return None
        state = AppState.SUCCEEDED if self.over else AppState.RUNNING
        return AppSnapshot(app_id, (ReplicaSnapshot("r", 0, state),))

    def look_many(self, app_ids: Any) -> Mapping[str, AppSnapshot]:
        self.looks += 1
        if self.away:
            self.away -= 1
            raise BackendUnavailable("away")
        return super().look_many(app_ids)


@pytest.fixture
def counting() -> Counting:
    return Counting("s")


@pytest.fixture
def runner(counting: Counting) -> Any:
    with Runner("s", {"counting": lambda session_name, **_: counting}) as runner:
        yield runner


def test_a_thousand_apps_are_awaited_in_a_few_threads(runner: Runner, counting: Counting) -> None:
    counting.started = 1000
    most = 0

    async def main() -> list[Any]:
        nonlocal most
        waits = [
            asyncio.create_task(runner.wait_async(f"counting://s/app-{i + 1}", 0.1))
            for i in range(1000)
        ]
        while counting.looks < 3:
            most = max(most, threading.active_count())
            await asyncio.sleep(0.01)
        counting.over = True
        done = await asyncio.gather(*waits)
        most = max(most, threading.active_count())
        return done

    statuses = asyncio.run(main())
    assert {status.state for status in statuses} == {AppState.SUCCEEDED}
    assert most <= 64
    assert counting.looks < 50  # each is about all of them


def test_an_app_that_is_unknown_gives_none(runner: Runner, counting: Counting) -> None:
    assert asyncio.run(runner.wait_async("counting://s/app-7")) is None
    assert asyncio.run(runner.status_async("counting://s/app-7")) is None


def test_a_backend_that_is_away_for_a_moment_is_waited_for(
    runner: Runner, counting: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    counting.started, counting.away, counting.over = 1, 2, True
    status = asyncio.run(runner.wait_async("counting://s/app-1", 0.05))
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert "`counting` cannot be reached" in caplog.text


def test_a_wait_can_be_cancelled_and_others_go_on(runner: Runner, counting: Counting) -> None:
    counting.started = 2

    async def main() -> Any:
        first = asyncio.create_task(runner.wait_async("counting://s/app-1", 0.05))
        second = asyncio.create_task(runner.wait_async("counting://s/app-2", 0.05))
        while counting.looks < 2:
            await asyncio.sleep(0.01)
        first.cancel()
        counting.over = True
        return await second

    assert asyncio.run(main()).state is AppState.SUCCEEDED


def test_local_jobs_end_with_their_status(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def main(runner: Runner) -> Any:
        script = f"until [ -e {gate} ]; do sleep 0.05; done; exit 3"
        handle = runner.run(sh("sh", "-c", script), "local_cwd")
        wait = asyncio.create_task(runner.wait_async(handle, 3600))  # changes are told of
        assert (await runner.status_async(handle)).state is AppState.RUNNING
        gate.touch()
        return await wait

    with get_runner() as runner:
        status = asyncio.run(main(runner))
    assert status.state is AppState.FAILED
    assert "replica sh/0 exited with code 3" in status.msg


def test_lines_are_followed_as_they_are_written(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def main(runner: Runner) -> list[str]:
        script = (
            f"echo one; printf two; until [ -e {gate} ]; do sleep 0.05; done; echo; printf three"
        )
        handle = runner.run(sh("sh", "-c", script), "local_cwd")
        lines = []
        async for line in runner.log_lines_async(handle, "sh", should_tail=True):
            lines.append(line)
            gate.touch()
        again = [line async for line in runner.log_lines_async(handle, "sh")]
        assert again == lines
        found = [line async for line in runner.log_lines_async(handle, "sh", regex="t[wh]")]
        assert found == lines[1:]
        return lines

    with get_runner() as runner:
        assert asyncio.run(main(runner)) == ["one\n", "two\n", "three"]


@pytest.mark.skipif(IS_MACOS, reason="counts threads of a Linux process")
def test_many_followers_share_the_threads(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def follow(runner: Runner, handle: str, k: int) -> list[str]:
        lines = runner.log_lines_async(handle, "sh", k, should_tail=True)
        return [line async for line in lines]

    async def main(runner: Runner) -> tuple[list[list[str]], int]:
        script = f"echo a; until [ -e {gate} ]; do sleep 0.1; done; echo b"
        handle = runner.run(sh("sh", "-c", script, num_replicas=60), "local_cwd")
        tasks = [asyncio.create_task(follow(runner, handle, k)) for k in range(60)]
        await asyncio.sleep(0)
        gate.touch()
        done = await asyncio.gather(*tasks)
        return done, threading.active_count()

    with get_runner() as runner:
        lines, threads = asyncio.run(main(runner))
    assert lines == [["a\n", "b\n"]] * 60
    assert threads < 40


def test_logs_of_an_unknown_app(tmp_path: Path) -> None:
    async def main(runner: Runner) -> None:
        async for _ in runner.log_lines_async("local_cwd://torchx/nosuch-x1", "sh"):
            pass

    with get_runner() as runner, pytest.raises(UnknownAppException):
        asyncio.run(main(runner))
