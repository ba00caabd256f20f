"""Events: what they hold, who reads them, and that they never break a call."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.runner.fakes import BuildingScheduler, an_app, runner_of
from torchx.runner import events
from torchx.runner.events import log_event, record
from torchx.runner.events.api import SourceType, TorchxEvent
from torchx.runner.events.handlers import get_logging_handler


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[TorchxEvent]:
    seen: list[TorchxEvent] = []
    monkeypatch.setattr("torchx.runner.events.record", seen.append)
    return seen


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_an_event_is_json_of_all_fields_in_order() -> None:
    event = TorchxEvent("s", "sched", "run", "id", source=SourceType.EXTERNAL)
    data = json.loads(str(event))
    assert event.serialize() == str(event)
    assert list(data) == [
        "session",
        "scheduler",
        "api",
        "app_id",
        "app_image",
        "app_metadata",
        "runcfg",
        "raw_exception",
        "source",
        "cpu_time_usec",
        "wall_time_usec",
        "start_epoch_time_usec",
        "workspace",
        "exception_type",
        "exception_message",
        "exception_source_location",
    ]
    assert data["source"] == "EXTERNAL"
    assert TorchxEvent.deserialize(str(event)) == event
    assert TorchxEvent.deserialize(event) is event


def test_what_is_no_event_is_refused() -> None:
    unknown = '{"session":"s","scheduler":"x","api":"run","source":"MARTIAN"}'
    assert TorchxEvent.deserialize(unknown).source is SourceType.UNKNOWN
    with pytest.raises(TypeError):
        TorchxEvent.deserialize('{"session":"s","scheduler":"x","api":"run","new":1}')
    message = "expected a serialized TorchxEvent .str. or a TorchxEvent, got <class 'int'>"
    with pytest.raises(TypeError, match=message):
        TorchxEvent.deserialize(3)  # type: ignore[arg-type]  # the mistake under test


def test_a_call_is_measured(recorded: list[TorchxEvent]) -> None:
    with log_event("api", "sched", app_id="id") as log:
        log._torchx_event.app_image = "img"
        assert recorded == []
    (event,) = recorded
    assert (event.api, event.scheduler, event.app_id, event.app_image) == (
        "api",
        "sched",
        "id",
        "img",
    )
    assert event.start_epoch_time_usec is not None
    assert event.start_epoch_time_usec > 1_600_000_000_000_000
    assert event.cpu_time_usec is not None
    assert event.wall_time_usec is not None
    assert event.exception_type is None
    assert event.raw_exception is None


def test_no_scheduler_is_an_empty_one() -> None:
    assert log_event("api")._torchx_event.scheduler == ""


def test_an_exception_is_described_and_goes_on(recorded: list[TorchxEvent]) -> None:
    def inner() -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"), log_event("api"):
        inner()
    (event,) = recorded
    assert event.exception_type == "ValueError"
    assert event.exception_message == "bad"
    assert event.raw_exception is not None
    assert event.raw_exception.startswith("Traceback")
    assert event.exception_source_location is not None
    where = json.loads(event.exception_source_location)
    assert where["name"] == "inner"
    assert where["filename"] == __file__
    assert isinstance(where["lineno"], int)


def test_clients_may_replace_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchx.runner.events.get_session_id_or_create_new", lambda: "mine")
    assert log_event("api")._torchx_event.session == "mine"


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """What the destination `client` writes to."""
    lines = Lines()
    made = []

    def make(destination: str) -> Lines:
        made.append(destination)
        return lines

    monkeypatch.setattr("torchx.runner.events.get_logging_handler", make)
    yield lines
    assert made == ["client"]
    del events._destinations["client"]


def test_events_go_to_one_handler_of_a_logger_of_their_own(
    handler: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    event = TorchxEvent("s", "x", "100%s")
    record(event, "client")
    record(event, "client")
    assert handler.lines == [str(event)] * 2
    logger = logging.getLogger("torchx-events-client")
    assert (logger.level, logger.propagate, logger.handlers) == (logging.INFO, False, [handler])
    assert caplog.records == []


def test_an_event_that_cannot_be_written_breaks_nothing(
    handler: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    metadata: Any = {"x": object()}
    record(TorchxEvent("s", "x", "run", app_metadata=metadata), "client")
    assert handler.lines == []
    assert "could not record the event of `run`" in caplog.text


def test_a_handler_that_cannot_be_made_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(destination: str) -> logging.Handler:
        raise OSError("no disk")

    monkeypatch.setattr("torchx.runner.events.get_logging_handler", broken)
    record(TorchxEvent("s", "x", "run"), "broken-one")
    assert "its handler cannot be made" in caplog.text


def test_destinations_that_exist() -> None:
    assert type(get_logging_handler()) is logging.NullHandler
    console = get_logging_handler("console")
    assert isinstance(console, logging.StreamHandler)
    assert console.stream is sys.stderr
    with pytest.raises(KeyError):
        get_logging_handler("nowhere")
    with pytest.raises(KeyError):
        record(TorchxEvent("s", "x", "run"), "nowhere")


def test_a_plugin_may_handle_a_destination(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, group, value = "null", "torchx.event_handlers", "mod:attr"

        def load(self) -> type[Lines]:
            return Lines

    monkeypatch.setattr(
        "torchx.util.entrypoints.metadata.entry_points",
        lambda group: [Point()] if group == Point.group else [],
    )
    assert type(get_logging_handler("null")) is Lines


def test_nothing_is_serialized_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loud(TorchxEvent):
        def serialize(self) -> str:
            raise AssertionError

    record(Loud("s", "x", "run"))


def api_names(recorded: list[TorchxEvent]) -> list[str]:
    names = [event.api for event in recorded]
    recorded.clear()
    return names


def test_the_runner_records_inner_calls_first(recorded: list[TorchxEvent]) -> None:
    runner, _ = runner_of()
    handle = runner.run(an_app(), "fake")
    assert api_names(recorded) == ["dryrun", "schedule", "run"]
    runner.wait(handle)
    assert api_names(recorded) == ["status", "wait"]
    runner.cancel(handle)
    assert api_names(recorded) == ["status", "cancel"]
    runner.log_lines(handle, "worker")
    assert api_names(recorded) == ["status", "log_lines"]
    runner.describe(handle)
    runner.describe_native(handle)
    runner.list("fake")
    assert api_names(recorded) == ["describe", "describe_native", "list"]
    runner.delete(handle)
    assert api_names(recorded) == ["status", "delete"]
    runner.build_workspace(an_app(), "fake")
    assert api_names(recorded) == ["build_workspace"]


def test_the_events_of_a_run_say_what_ran(recorded: list[TorchxEvent]) -> None:
    runner, _ = runner_of(BuildingScheduler)
    app = an_app()
    app.metadata["k"] = "v"
    runner.run(app, "fake", {"queue": "q"}, workspace="/w")
    dryrun, schedule, run = recorded
    for event in recorded:
        assert event.scheduler == "fake"
        assert event.app_image == "img+/w"
        assert event.app_metadata == {"k": "v"}
    assert dryrun.app_id == "app"
    assert run.app_id == schedule.app_id == "app-0"
    assert dryrun.runcfg == run.runcfg == '{"queue": "q"}'
    assert schedule.runcfg == '{"queue": "q", "tags": null, "image_repo": null}'
    assert run.workspace == "/w"
    assert len({event.session for event in recorded}) == 1
    recorded.clear()
    runner.run(an_app(), "fake")
    assert recorded[-1].workspace == "None"
    assert recorded[-1].runcfg is None


def test_events_hold_no_secrets(recorded: list[TorchxEvent]) -> None:
    runner, _ = runner_of(BuildingScheduler)
    app = an_app()
    app.metadata["my_token"] = "hush"
    runner.run(app, "fake", {"queue": "redis://u:hush@h"}, workspace="https://u:hush@h/w")
    with pytest.raises(ValueError, match="Unknown run option"):
        runner.run(app, "fake", {"GH_PAT": "hush"})
    texts = [event.serialize() for event in recorded]
    assert len(texts) == 5
    assert [text for text in texts if "hush" in text] == []
    assert "redis://u:***@h" in texts[0]
    assert "https://u:***@h/w" in texts[2]


def test_a_failed_run_says_why(recorded: list[TorchxEvent]) -> None:
    runner, _ = runner_of()
    with pytest.raises(ValueError, match="Unknown run option"):
        runner.run(an_app(), "fake", {"x": "y"})
    assert [event.api for event in recorded] == ["dryrun", "run"]
    assert {event.exception_type for event in recorded} == {"InvalidRunConfigException"}


def test_values_that_are_no_json_do_not_break_a_run(recorded: list[TorchxEvent]) -> None:
    runner, _ = runner_of()
    app = an_app()
    with pytest.raises(ValueError, match="must be of type"):
        runner.run(app, "fake", {"queue": object()})  # type: ignore[dict-item]  # the mistake
    assert recorded[-1].runcfg is not None


def test_events_can_be_seen_on_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    record(TorchxEvent("s", "x", "seen"), "console")
    assert '"api": "seen"' in stream.getvalue()
    del events._destinations["console"]
