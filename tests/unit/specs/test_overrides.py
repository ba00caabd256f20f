"""Deprecated lazy attributes of roles."""

import asyncio
import copy
import dataclasses
import threading
import time

import pytest

from torchx.specs import Role
from torchx.specs._overrides import LOCK_KEY, has_overrides


def test_a_lazy_attribute_is_produced_once():
    calls = []

    def produce() -> str:
        calls.append(1)
        return "late"

    role = Role("r", "early", overrides={"image": produce})
    assert role.image == role.image == "late"
    assert calls == [1]
    assert role.overrides["image"]() == "late"
    assert "late" in repr(role)
    assert dataclasses.asdict(role)["image"] == "late"
    role.image = "assigned"
    assert role.image == "late"
    assert copy.deepcopy(role).image == "late"


def test_a_produced_callable_is_not_called():
    role = Role("r", "i", overrides={"metadata": lambda: len})
    assert role.metadata is len


def test_a_producer_that_raises_is_tried_again():
    answers = iter([ValueError("first"), "second"])

    def produce() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    role = Role("r", "i", overrides={"image": produce})
    with pytest.raises(ValueError, match="first"):
        _ = role.image
    assert role.image == "second"


def test_many_threads_run_a_producer_once():
    calls = []

    def produce() -> str:
        time.sleep(0.05)
        calls.append(1)
        return "x"

    shared = {"image": produce}
    roles = [Role(str(i), "i", overrides=shared) for i in range(8)]
    seen: list[str] = []
    threads = [threading.Thread(target=lambda r=r: seen.append(r.image)) for r in roles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["x"] * 8
    assert calls == [1]


def test_a_producer_may_read_another_lazy_attribute():
    role = Role("r", "i")
    role.overrides = {"image": lambda: role.entrypoint + "!", "entrypoint": lambda: "e"}
    assert role.image == "e!"


async def _late(value: str) -> str:
    await asyncio.sleep(0)
    return value


def test_a_coroutine_is_run_without_and_within_a_loop():
    assert Role("r", "i", overrides={"image": lambda: _late("a")}).image == "a"

    async def main() -> str:
        return Role("r", "i", overrides={"image": lambda: _late("b")}).image

    assert asyncio.run(main()) == "b"


def test_a_future_of_the_running_loop_is_refused_and_kept():
    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        role = Role("r", "i", overrides={"image": lambda: future})
        with pytest.raises(RuntimeError, match="currently running in this thread"):
            _ = role.image
        assert callable(role.overrides["image"])

    asyncio.run(main())


def test_futures_of_other_loops_are_waited_for():
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(_late("idle"))
        assert Role("r", "i", overrides={"image": lambda: task}).image == "idle"
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        running = asyncio.run_coroutine_threadsafe(_make_task(), loop).result()
        assert Role("r", "i", overrides={"image": lambda: running}).image == "running"
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    finally:
        loop.close()


async def _make_task() -> "asyncio.Task[str]":
    return asyncio.get_running_loop().create_task(_late("running"))


def test_any_attribute_can_be_lazy_but_the_overrides_themselves():
    role = Role("r", "i", overrides={"extra": lambda: 1, "overrides": lambda: 2})
    assert role.extra == 1  # type: ignore[attr-defined]  # it exists as an override only
    assert isinstance(role.overrides, dict)


def test_the_lock_in_the_dict_is_no_override():
    role = Role("r", "i", overrides={"image": lambda: "x"})
    assert role.image == "x"
    assert LOCK_KEY in role.overrides
    copied = copy.deepcopy(role)
    assert copied.overrides[LOCK_KEY] is not role.overrides[LOCK_KEY]
    assert copied.image == "x"
    del role.overrides["image"]
    assert not has_overrides(role.overrides)
    assert role.image == "i"


def test_a_slow_producer_delays_no_other_dict_and_no_produced_value():
    started, release = threading.Event(), threading.Event()

    def slow() -> str:
        started.set()
        assert release.wait(30)
        return "slow"

    one = Role("r", "i", overrides={"image": slow, "entrypoint": lambda: "e"})
    assert one.entrypoint == "e"
    thread = threading.Thread(target=lambda: one.image)
    thread.start()
    assert started.wait(30)
    assert Role("s", "i", overrides={"image": lambda: "fast"}).image == "fast"
    assert one.entrypoint == "e"
    release.set()
    thread.join()
    assert one.image == "slow"


def test_a_value_that_is_awaitable_needs_no_producer():
    assert Role("r", "i", overrides={"image": _late("a")}).image == "a"


def test_futures_of_other_loops_are_waited_for_within_a_loop():
    other = asyncio.new_event_loop()
    idle = other.create_task(_late("idle"))

    async def main() -> str:
        return Role("r", "i", overrides={"image": lambda: idle}).image

    try:
        assert asyncio.run(main()) == "idle"
        thread = threading.Thread(target=other.run_forever)
        thread.start()
        running = asyncio.run_coroutine_threadsafe(_make_task(), other).result()

        async def again() -> str:
            return Role("r", "i", overrides={"image": lambda: running}).image

        assert asyncio.run(again()) == "running"
        other.call_soon_threadsafe(other.stop)
        thread.join()
    finally:
        other.close()
