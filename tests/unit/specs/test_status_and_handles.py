"""Status of apps as text and data, handles, dry-run information, named resources."""

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import torchx.specs as specs
from torchx.errors import TorchXError
from torchx.specs import (
    AppDryRunInfo,
    AppState,
    AppStatus,
    MalformedAppHandleException,
    ReplicaStatus,
    RoleStatus,
    make_app_handle,
    parse_app_handle,
)
from torchx.specs.api import AppStatusError, _format_error_message


def replica(id_: int, state: AppState, error: str = specs.NONE) -> ReplicaStatus:
    return ReplicaStatus(id_, state, "w", "h", error)


# -- status -------------------------------------------------------------------------------------


def test_the_address_defaults_to_the_name():
    assert replica(0, AppState.RUNNING).hostaddr == "h"
    assert ReplicaStatus(0, AppState.RUNNING, "w", "h", hostaddr="1.2.3.4").hostaddr == "1.2.3.4"


def test_status_as_data():
    status = AppStatus(
        AppState.FAILED,
        1,
        "m",
        '{"a": 1}',
        "u",
        [RoleStatus("w", [replica(0, AppState.FAILED)]), RoleStatus("v", [])],
    )
    data = status.to_json(["w"])
    assert list(data) == ["state", "num_restarts", "roles", "msg", "structured_error_msg", "url"]
    assert data["state"] == "FAILED"
    assert json.loads(json.dumps(data))["roles"][0]["replicas"][0]["state"] == 5
    assert [r["role"] for r in status.to_json([])["roles"]] == ["w", "v"]


def test_raising_for_a_status():
    AppStatus(AppState.SUCCEEDED).raise_for_status()
    for state in (AppState.FAILED, AppState.RUNNING):
        status = AppStatus(state)
        with pytest.raises(AppStatusError, match="job did not succeed") as caught:
            status.raise_for_status()
        assert caught.value.status is status


def test_the_yaml_form():
    status = AppStatus(AppState.FAILED, structured_error_msg='{"message": "test error"}')
    assert repr(status) == (
        "AppStatus:\n"
        "  msg: ''\n"
        "  num_restarts: 0\n"
        "  roles: []\n"
        "  state: FAILED (5)\n"
        "  structured_error_msg:\n"
        "    message: test error\n"
        "  ui_url: null\n"
    )
    status.roles = [RoleStatus("w", [replica(0, AppState.CANCELLED)])]
    loaded = yaml.safe_load(repr(status))["AppStatus"]
    assert loaded["roles"][0]["replicas"][0]["state"] == "CANCELLED (6)"
    assert "<NONE>" in repr(AppStatus(AppState.FAILED))
    assert "not json" in repr(AppStatus(AppState.FAILED, structured_error_msg="not json"))


def test_the_text_form(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    nested = {"message": {"message": "boom", "errorCode": 3, "extraInfo": {"timestamp": "100"}}}
    flat = {"message": "bang", "errorCode": -1, "timestamp": None}
    replicas = [
        replica(4, AppState.FAILED, json.dumps({"message": None})),
        replica(3, AppState.FAILED, json.dumps(flat)),
        replica(2, AppState.RUNNING),
        replica(1, AppState.FAILED),
        replica(0, AppState.FAILED, json.dumps(nested)),
    ]
    status = AppStatus(AppState.FAILED, roles=[RoleStatus("w", replicas)])
    assert status.format() == (
        "AppStatus:\n"
        "    State: FAILED\n"
        "    Num Restarts: 0\n"
        "    Roles: \n"
        " *w[0]:FAILED (exitcode: 3)\n"
        "        timestamp: 1970-01-01 00:01:40\n"
        "        hostname: h\n"
        "        error_msg: boom\n"
        "  w[1]:FAILED (no reply file)\n"
        "  w[2]:RUNNING\n"
        "  w[3]:FAILED (exitcode: -1)\n"
        "        timestamp: <N/A>\n"
        "        hostname: h\n"
        "        error_msg: bang\n"
        '  w[4]:{"message": null}\n'
        "    Msg: \n"
        "    Structured Error Msg: <NONE>\n"
        "    UI URL: None\n"
        "    "
    )
    assert "w[0]" not in status.format(["other"])


def test_long_error_texts_are_shaped():
    assert _format_error_message("aaa bbb ccc ddd", "H: ", 5) == "H: aaa bbb\n    ccc ddd"
    assert _format_error_message("", "H: ", 5) == "H: "
    text = "noise\nlast line before\nException: x\nmore"
    assert _format_error_message(text, "H: ") == "H: last line before"
    span = "RuntimeError('On WorkerInfo(id=1, name=t):\nboom\n')"
    assert _format_error_message(f"before {span} after", "H: ") == f"H: {span}"
    for text in ("('On WorkerInfo(x):\nboom\n')", "E('On WorkerInfo(x):\n')", "E('On WorkerInfo("):
        assert _format_error_message(text, "H: ") == f"H: {text}"
    with pytest.raises(AssertionError, match=r"header 'long header' \(len 11\) must be shorter"):
        _format_error_message("x", "long header", 5)


@given(st.text(), st.integers(4, 40))
def test_shaping_loses_no_words(text, width):
    shaped = _format_error_message(text.replace("\n", ""), "H: ", width)
    assert "".join(shaped.split()) == "".join(("H: " + text.replace("\n", "")).split())


# -- handles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handle", "parts"),
    [
        ("k8s://default/foo_bar", ("k8s", "default", "foo_bar")),
        ("k8s:///foo_bar", ("k8s", "", "foo_bar")),
        ("a://b/c/d", ("a", "b/c", "d")),
    ],
)
def test_handles_are_parsed(handle, parts):
    assert parse_app_handle(handle) == parts
    assert make_app_handle(*parts) == handle


@pytest.mark.parametrize("handle", ["x://y", "x://s/", "s/a", "://s/a", "x:///", "k://s/a\nb", ""])
def test_malformed_handles_are_refused(handle):
    with pytest.raises(MalformedAppHandleException, match="is not of the form"):
        parse_app_handle(handle)


SAFE = st.text(st.characters(exclude_characters=":/\n\r", codec="utf-8"), min_size=1)


@given(SAFE, st.one_of(st.just(""), SAFE), SAFE)
def test_handles_survive_their_text(scheduler, session, app_id):
    parts = (scheduler, session, app_id)
    assert parse_app_handle(make_app_handle(*parts)) == parts


def test_exceptions_say_what_is_published():
    assert "Scheduler backend: x does not exist" in str(specs.UnknownSchedulerException("x"))
    assert str(specs.UnknownAppException("h")).startswith("Unknown app = h. Did you forget")


# -- dry runs -----------------------------------------------------------------------------------


def test_dry_run_information():
    rendered: list[Any] = []

    def render(request: str) -> str:
        rendered.append(request)
        return f"<{request}>"

    info = AppDryRunInfo("req", render)
    assert (info.app, info.cfg, info._scheduler) == (None, {}, None)
    assert str(info) == "<req>"
    assert rendered == ["req"]
    info._app = "app"  # type: ignore[assignment]  # only identity matters here
    assert info.app == "app"
    info.cfg = {"a": 1}
    assert info._cfg == {"a": 1}
    assert AppDryRunInfo[int]
    assert AppDryRunInfo[int, str]


def test_every_error_is_one_of_torchx():
    for error in (
        specs.InvalidRunConfigException("r", "k", {}),
        MalformedAppHandleException("h"),
        specs.UnknownSchedulerException("x"),
        specs.UnknownAppException("h"),
        AppStatusError(AppStatus(AppState.FAILED), "m"),
    ):
        assert isinstance(error, TorchXError)
    assert str(MalformedAppHandleException("h")) == (
        "h is not of the form: <scheduler_backend>://<session_name>/<app_id>"
    )
    assert str(specs.UnknownSchedulerException("x")) == (
        "Scheduler backend: x does not exist."
        " Use session.scheduler_backends() to see all supported schedulers"
    )
    assert str(specs.UnknownAppException("h")) == (
        "Unknown app = h. Did you forget to call session.run()? Otherwise, the app may have already"
        " finished and purged by the scheduler"
    )


def test_the_first_separator_ends_the_scheduler():
    assert parse_app_handle("a://b/c://d/e") == ("a", "b/c://d", "e")
    assert parse_app_handle("a://b/c").app_id == "c"


@given(st.text(st.sampled_from(":/ab\n")))
def test_any_text_is_a_handle_or_refused(text):
    try:
        parts = parse_app_handle(text)
    except MalformedAppHandleException:
        return
    assert make_app_handle(*parts) == text
    assert parts.scheduler_backend
    assert parts.app_id


@pytest.mark.parametrize(
    "error",
    ["[1]", "{}", '{"message": {"message": 1}}', "not json", "line\nline", '"text"', "null", "3"],
)
def test_errors_of_unknown_shape_are_shown_as_they_are(error):
    status = AppStatus(
        AppState.FAILED,
        roles=[RoleStatus("w", [replica(i, AppState.FAILED, error) for i in (0, 1)])],
    )
    assert f"Roles: \n *w[0]:{error}\n  w[1]:{error}\n" in status.format()


@pytest.mark.parametrize("timestamp", ["soon", None, [], 10**30, float("inf"), {}])
def test_a_time_that_is_none_is_not_available(timestamp):
    error = json.dumps({"message": "m", "errorCode": 0, "timestamp": timestamp})
    status = AppStatus(
        AppState.FAILED, roles=[RoleStatus("w", [replica(0, AppState.FAILED, error)])]
    )
    assert "FAILED (exitcode: <N/A>)\n        timestamp: <N/A>\n" in status.format()


def test_a_cancelled_replica_has_no_reply_file():
    status = AppStatus(
        AppState.CANCELLED, roles=[RoleStatus("w", [replica(0, AppState.CANCELLED)])]
    )
    assert "*w[0]:CANCELLED (no reply file)" in status.format()


def test_a_very_long_error_is_wrapped_in_no_time():
    started = time.monotonic()
    shaped = _format_error_message("x" * 3_000_000 + " y", "H: ")
    assert shaped.endswith("\n    y")
    assert time.monotonic() - started < 5


def test_the_status_of_an_app_says_what_it_waits_for():
    assert AppStatus(AppState.SUCCEEDED).is_terminal()
    assert not AppStatus(AppState.UNKNOWN).is_terminal()
    status = AppStatus(AppState.RUNNING)
    assert (status.num_restarts, status.msg, status.ui_url, status.roles) == (0, "", None, [])
    assert AppStatus(AppState.RUNNING).roles is not status.roles


def test_the_rendering_of_a_dry_run_may_be_replaced():
    info: AppDryRunInfo[str] = AppDryRunInfo("req", str)
    info._fmt = lambda request: f"new {request}"
    info.request = "changed"
    assert f"{info}" == repr(info) == "new changed"
