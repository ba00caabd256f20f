"""Calls of AWS: jobs are made once, the source is sent once, and errors are AWS's own words."""

import json
import threading
import time
from unittest.mock import MagicMock

import boto3
import botocore.exceptions
import pytest

import torchx.schedulers.aws_sagemaker_scheduler as package
from tests.unit.workspace.fake_daemon import BUILT_ID, FakeDaemon, running
from torchx.errors import BackendUnavailable, InvalidInput, JobStartError
from torchx.schedulers.aws_sagemaker_scheduler import create_scheduler
from torchx.schedulers.checkups import Configured, Verdict
from torchx.specs import AppDef, AppState, Resource, Role, Workspace, is_terminal, macros

ARN = "arn:aws:iam::123456789012:role/service-role/Trainer"
CREATE = "sagemaker:CreateTrainingJob"


@pytest.fixture
def scheduler(aws):
    scheduler = create_scheduler("test")
    yield scheduler
    scheduler.close()


def app(*args, name="app", entrypoint="sh", **more):
    more.setdefault("resource", Resource(1, 0, 64))
    return AppDef(name, [Role("w", "i:1", entrypoint=entrypoint, args=[*args], **more)])


def cfg(**more):
    return {"role": ARN, "launch": "container", "output_path": "s3://results/out", **more}


def script_cfg(folder, **more):
    return {"role": "Trainer", "source_dir": str(folder), **more}


def end(scheduler, app_id):
    deadline = time.monotonic() + 60
    while not is_terminal((found := scheduler.describe(app_id)).state):
        assert time.monotonic() < deadline
        scheduler.wait_for_change(app_id, 0.05)
    return found


def puts(aws):
    return [r["params"]["Key"] for r in aws.requests() if r["call"] == "s3:PutObject"]


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "code"
    (place / "pkg").mkdir(parents=True)
    (place / "train.py").write_text(
        "import sys, helper; print(helper.WORD, sys.argv[1:])\n",
    )
    (place / "helper.py").write_text("WORD = 'hello'\n")
    (place / "pkg" / "__init__.py").write_text("")
    (place / "pkg" / "job.py").write_text("import sys; print(__name__, sys.argv[1:])\n")
    (place / "data.bin").write_text("left out")
    (place / ".torchxignore").write_text("data.bin\n")
    return place


# -- scripts -------------------------------------------------------------------------------------


def test_a_script_runs_with_its_source_and_arguments(aws, scheduler, folder):
    app_id = scheduler.submit(app("train.py", "--lr=1e-3", "--b", "x y"), script_cfg(folder))
    assert end(scheduler, app_id).state is AppState.SUCCEEDED
    assert [*scheduler.log_iter(app_id, "w")] == ["hello ['--b', 'x y', '--lr', '1e-3']\n"]
    request = aws.admin("sagemaker/request", {"name": app_id})
    assert request["RoleArn"] == ARN
    bucket = "s3://sagemaker-eu-west-1-123456789012/"
    assert request["OutputDataConfig"]["S3OutputPath"] == bucket
    parameters = {k: json.loads(v) for k, v in request["HyperParameters"].items()}
    assert parameters["sagemaker_region"] == "eu-west-1"
    assert parameters["sagemaker_submit_directory"].startswith(f"{bucket}torchx-source/")
    assert parameters["sagemaker_job_name"] == app_id


@pytest.mark.parametrize("isolated", [False, True])
def test_a_module_runs(aws, scheduler, folder, isolated):
    more = {"enable_network_isolation": isolated}
    app_id = scheduler.submit(app("-m", "pkg.job", "--a", "1"), script_cfg(folder, **more))
    assert end(scheduler, app_id).state is AppState.SUCCEEDED
    assert [*scheduler.log_iter(app_id, "w")] == ["__main__ ['--a', '1']\n"]


def test_the_source_is_sent_again_only_when_it_changed(aws, scheduler, folder):
    for _ in range(2):
        end(scheduler, scheduler.submit(app("train.py"), script_cfg(folder)))
    assert len(puts(aws)) == 1
    (folder / "data.bin").write_text("it is ignored")
    end(scheduler, scheduler.submit(app("train.py"), script_cfg(folder)))
    assert len(puts(aws)) == 1
    (folder / "helper.py").write_text("WORD = 'changed'\n")
    app_id = scheduler.submit(app("train.py"), script_cfg(folder))
    end(scheduler, app_id)
    assert [*scheduler.log_iter(app_id, "w")] == ["changed []\n"]
    assert len(set(puts(aws))) == 2


def test_a_workspace_goes_along_as_the_source(aws, scheduler, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of = app("lib/train.py", workspace=Workspace({str(folder): "lib"}))
    app_id = scheduler.submit(of, {"role": "Trainer"}, workspace=None)
    assert end(scheduler, app_id).state is AppState.SUCCEEDED
    assert [*scheduler.log_iter(app_id, "w")] == ["hello []\n"]
    with pytest.raises(InvalidInput, match=r"no script `train.py` in the source"):
        scheduler.submit_dryrun(
            app("train.py", workspace=Workspace({str(folder): "lib"})), {"role": "Trainer"}
        )


def test_without_a_workspace_the_source_is_the_current_directory(scheduler, folder, monkeypatch):
    monkeypatch.chdir(folder)
    job = scheduler.submit_dryrun(app("train.py"), {"role": "Trainer"}).request
    assert job.source.projects == {str(folder): ""}


def test_further_directories_go_along(aws, scheduler, folder, tmp_path):
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "more.py").write_text("print('more')\n")
    more = {"dependencies": [str(tmp_path / "extra")], "code_location": "s3://results/code/"}
    app_id = scheduler.submit(app("-m", "extra.more"), script_cfg(folder, **more))
    end(scheduler, app_id)
    assert [*scheduler.log_iter(app_id, "w")] == ["more\n"]
    (key,) = puts(aws)
    assert key.startswith("code/")


@pytest.mark.parametrize(
    ("args", "source", "words"),
    [
        (["missing.py"], "", "no script `missing.py`"),
        (["train.py"], "/nowhere", "`/no-such/nowhere`"),
    ],
)
def test_a_source_that_is_not_there_is_refused(scheduler, folder, args, source, words):
    place = f"/no-such{source}" if source else folder
    with pytest.raises(InvalidInput, match=words):
        scheduler.submit_dryrun(app(*args), script_cfg(place))


# -- once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["lose", "drop", "server_error", "throttle"])
def test_a_job_is_made_once_whatever_becomes_of_the_answer(aws, scheduler, fault):
    aws.fault(fault, CREATE)
    app_id = scheduler.submit(app("-c", "true"), cfg())
    aws.no_faults()
    assert end(scheduler, app_id).state is AppState.SUCCEEDED
    assert [row.app_id for row in scheduler.list()] == [app_id]


def test_the_same_request_twice_is_one_job(aws, scheduler):
    info = scheduler.submit_dryrun(app("-c", "true"), cfg())
    assert scheduler.schedule(info) == scheduler.schedule(info)
    assert len(scheduler.list()) == 1


def test_a_name_that_another_job_has_is_an_error(aws, scheduler):
    info = scheduler.submit_dryrun(app("-c", "true"), cfg())
    foreign = {**info.request.job_def, "Tags": []}
    boto3.client("sagemaker").create_training_job(**foreign)
    with pytest.raises(JobStartError, match=r"another training job has the name.*request id fake"):
        scheduler.schedule(info)


# -- what AWS refuses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opts", "words"),
    [
        ({"role": "NoRole"}, "NoRole cannot be found"),
        ({"role": "arn:aws:iam::123456789012:role/NoRole"}, "Could not assume role"),
        ({"instance_type": "ml.none.large"}, "'ml.none.large' is none of"),
    ],
)
def test_bad_input_is_one_line_in_the_words_of_aws(aws, scheduler, opts, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        scheduler.submit(app("-c", "true"), cfg(**opts))
    assert "request id fake-" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert aws.admin("sagemaker/live", {}) == []


def test_a_source_that_stays_behind_is_noted(aws, scheduler, folder, caplog):
    caplog.set_level("INFO")
    more = {"role": "arn:aws:iam::123456789012:role/NoRole"}
    with pytest.raises(InvalidInput, match="Could not assume role"):
        scheduler.submit(app("train.py"), script_cfg(folder, **more))
    assert "the source stays at `s3://sagemaker-eu-west-1" in caplog.text
    assert "created the bucket `sagemaker-eu-west-1-123456789012`" in caplog.text


def test_a_bucket_of_somebody_else_is_not_used(aws, scheduler, folder):
    refused = pytest.raises(InvalidInput, match=r"sagemaker-eu-west-1-123456789012.*`output_path`")
    with aws.faulty("denied", "s3:HeadBucket"), refused:
        scheduler.submit(app("train.py"), script_cfg(folder))
    assert puts(aws) == []


def test_an_image_that_is_pushed_is_submitted_by_its_digest(aws, scheduler, monkeypatch):
    daemon = FakeDaemon()
    digest = "sha256:" + "f" * 64
    daemon.images[BUILT_ID] = BUILT_ID
    daemon.pushes = [[{"aux": {"Tag": "t", "Digest": digest, "Size": 1}}]]
    of = app("-c", "true")
    of.roles[0].image = BUILT_ID
    with running(daemon) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        info = scheduler.submit_dryrun(of, cfg(image_repo="example.com/team/img"))
        tag = f"example.com/team/img:{BUILT_ID.removeprefix('sha256:')}"
        assert info.request.job_def["AlgorithmSpecification"]["TrainingImage"] == tag
        app_id = scheduler.schedule(info)
    sent = aws.admin("sagemaker/request", {"name": app_id})["AlgorithmSpecification"]
    assert sent["TrainingImage"] == f"example.com/team/img@{digest}"
    assert of.roles[0].image == BUILT_ID


@pytest.mark.parametrize(
    ("fault", "words"), [("expired", "have expired.*aws sso login"), ("denied", "not authorized")]
)
def test_credentials_that_are_not_good_are_told(aws, scheduler, fault, words):
    with aws.faulty(fault, times=-1):
        with pytest.raises(InvalidInput, match=words):
            scheduler.submit(app("-c", "true"), cfg())
        with pytest.raises(InvalidInput, match=words):
            scheduler.describe("app-x1")


def test_without_credentials_or_region_there_is_one_line(aws, scheduler, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(InvalidInput, match="no credentials for AWS"):
        scheduler.submit(app("-c", "true"), cfg())
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(InvalidInput, match="give the option `region`"):
        scheduler.submit(app("-c", "true"), cfg())
    with pytest.raises(InvalidInput, match="nobody"):
        scheduler.submit(app("-c", "true"), cfg(profile="nobody"))


def test_a_service_that_is_busy_for_long_is_told(aws, scheduler, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    busy = pytest.raises(BackendUnavailable, match="no more requests for now")
    with aws.faulty("throttle", times=-1), busy:
        scheduler.describe("app-x1")


# -- looking and ending --------------------------------------------------------------------------


def test_a_job_that_waits_for_instances_is_pending_and_can_be_cancelled(aws, scheduler):
    aws.admin("sagemaker/hold", {"on": True})
    app_id = scheduler.submit(app("-c", "true"), cfg())
    found = scheduler.describe(app_id)
    while "Pending" not in found.msg:
        found = scheduler.describe(app_id)
    assert found.state is AppState.PENDING
    assert found.msg == "Pending: Training job waiting for capacity"
    scheduler.cancel(app_id)
    assert end(scheduler, app_id).state is AppState.CANCELLED


def test_the_exit_code_of_a_single_instance_is_told(aws, scheduler):
    app_id = scheduler.submit(app("-c", "echo last words; kill -9 $$$$"), cfg())
    found = end(scheduler, app_id)
    assert "replica w/0 killed by SIGKILL" in found.msg
    (failed,) = scheduler.failed_replicas(app_id)
    assert (failed.exit_code, failed.last_lines) == (-9, ["last words"])


def test_of_several_instances_the_one_that_printed_an_exception_is_named(aws, scheduler):
    code = "import sys; sys.argv[1] == '1' and 1/0; import time; time.sleep(100)"
    args = ["-c", code, macros.replica_id]
    app_id = scheduler.submit(app(*args, entrypoint="python3", num_replicas=3), cfg())
    end(scheduler, app_id)
    found = scheduler.describe(app_id)
    assert "replica w/1 failed, or another one did" in found.msg
    message = json.loads(found.structured_error_msg)["message"]
    assert message["message"] == "ZeroDivisionError: division by zero"


def test_a_job_that_ran_too_long_has_failed(aws, scheduler):
    app_id = scheduler.submit(app("-c", "exec sleep 100"), cfg(max_run=1))
    found = end(scheduler, app_id)
    assert found.state is AppState.FAILED
    assert "longer than max_run allows" in found.msg


def test_names_that_no_job_can_have_are_unknown_without_a_call(aws, scheduler):
    assert scheduler.describe("no_such job") is None
    assert aws.calls() == []


def test_a_list_of_many_jobs_takes_a_call_for_each_hundred(aws, scheduler):
    like = scheduler.submit_dryrun(app("-c", "true"), cfg()).request.job_def
    like["TrainingJobName"] = "old"
    aws.admin("sagemaker/ended", {"count": 250, "like": like})
    aws.requests(forget=True)
    rows = scheduler.list()
    assert [row.app_id for row in rows[:2]] == ["old-249", "old-248"]
    assert len(rows) == 250
    assert {(row.name, row.state) for row in rows} == {("app", AppState.SUCCEEDED)}
    assert aws.calls() == ["sagemaker:Search"] * 3


def test_a_job_of_another_region_is_found_again(aws, scheduler):
    app_id = scheduler.submit(app("-c", "true"), cfg(region="us-west-2"))
    end(scheduler, app_id)
    other = create_scheduler("other")
    aws.requests(forget=True)
    assert other.describe(app_id) is not None
    assert [*other.log_iter(app_id, "w")] == []
    assert {request["region"] for request in aws.requests()} == {"us-west-2"}
    other.close()


def test_waiting_for_many_jobs_takes_one_call_an_interval(aws, scheduler):
    aws.admin("sagemaker/hold", {"on": True})
    count, intervals = 20, 4
    names = [scheduler.submit(app("-c", "true"), cfg()) for _ in range(count)]
    ready = threading.Barrier(count)
    ends = {}

    def wait(name):
        scheduler.describe(name)
        ready.wait()
        while not is_terminal((found := scheduler.describe(name)).state):
            scheduler.wait_for_change(name, 0.5)
        ends[name] = found.state

    threads = [threading.Thread(target=wait, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while aws.calls().count("sagemaker:ListTrainingJobs") < intervals:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    waiting = aws.calls().count("sagemaker:DescribeTrainingJob")
    # each is described when it is waited for, and again when it is first seen to wait
    assert waiting <= 3 * count
    aws.admin("sagemaker/hold", {"on": False})
    for thread in threads:
        thread.join(60)
    assert ends == dict.fromkeys(names, AppState.SUCCEEDED)


def test_waiting_goes_on_where_jobs_may_not_be_listed(aws, scheduler):
    names = [scheduler.submit(app("-c", "sleep 1"), cfg()) for _ in range(2)]
    with aws.faulty("denied", "ListTrainingJobs", times=-1):
        threads = [threading.Thread(target=end, args=(scheduler, name)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [scheduler.describe(name).state for name in names] == [AppState.SUCCEEDED] * 2


def test_no_line_of_a_hundred_instances_is_lost(aws, scheduler):
    like = scheduler.submit_dryrun(app("-c", "true", num_replicas=100), cfg()).request.job_def
    like["TrainingJobName"] = "wide"
    aws.admin("sagemaker/ended", {"count": 1, "like": like})
    began_ms = time.time_ns() // 1_000_000 - 600_000
    for k in range(100):
        lines = [[began_ms + 100 * i + k, f"{k}:{i}"] for i in range(200)]
        stream = f"wide-0/algo-{k + 1}-1700000000"
        body = {"group": "/aws/sagemaker/TrainingJobs", "stream": stream, "lines": lines}
        aws.admin("logs/write", body)
    aws.requests(forget=True)
    text = "".join(block.text for block in scheduler.log_blocks("wide-0"))
    # in the order of time, which goes from instance to instance
    assert text.splitlines() == [f"{k}:{i}" for i in range(200) for k in range(100)]
    assert len(aws.calls()) <= 6
    assert [*scheduler.log_iter("wide-0", "w", 42)] == [f"42:{i}\n" for i in range(200)]


def test_an_end_that_comes_too_late_is_no_error(aws, scheduler):
    app_id = scheduler.submit(app("-c", "true"), cfg())
    end(scheduler, app_id)
    scheduler._api().stop(app_id)
    scheduler.cancel(app_id)


def findings(scheduler, **cfg):
    return {check.name: check.check() for check in scheduler.checkups(Configured(cfg))}


def test_a_checkup_asks_sagemaker_itself(aws, scheduler, monkeypatch):
    found = findings(scheduler)
    assert [*found] == ["credentials", "clock", "training jobs", "role", "registry"]
    jobs = found["training jobs"]
    assert (jobs.verdict, jobs.text) == (Verdict.OK, "SageMaker answers in eu-west-1")
    for fault in ("denied", "expired", "drop"):
        with aws.faulty(fault, times=-1):
            assert findings(scheduler)["training jobs"].verdict is Verdict.BROKEN
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (absent,) = findings(scheduler).values()
    assert (absent.verdict, absent.fix) == (Verdict.NEUTRAL, "aws configure")


def test_a_checkup_looks_for_the_role_that_is_configured(aws, scheduler):
    assert findings(scheduler)["role"].verdict is Verdict.NEUTRAL
    found = findings(scheduler, role="Trainer")["role"]
    assert (found.verdict, found.text) == (Verdict.OK, ARN)
    assert findings(scheduler, role=ARN)["role"].verdict is Verdict.OK
    found = findings(scheduler, role="Trianer")["role"]
    assert found.verdict is Verdict.BROKEN
    assert "Trianer cannot be found" in found.text
    with aws.faulty("denied", "iam", times=-1):
        assert findings(scheduler, role="Trainer")["role"].verdict is Verdict.NEUTRAL


# -- clients of the published packages -----------------------------------------------------------


def test_a_client_that_is_given_is_used_for_all_calls(monkeypatch):
    client = MagicMock()
    client.create_training_job.return_value = {"TrainingJobArn": "arn"}
    monkeypatch.setattr(package, "make_unique", lambda name: f"{name}-fixed")
    scheduler = create_scheduler("s", client=client, docker_client=MagicMock(), unknown=1)
    assert scheduler._client is client
    app_id = scheduler.submit(app("-c", "true"), cfg())
    assert app_id == "app-fixed"
    (call,) = client.create_training_job.call_args_list
    assert call.kwargs["TrainingJobName"] == "app-fixed"
    client.describe_training_job.return_value = {"TrainingJobStatus": "Completed"}
    assert scheduler.describe(app_id).state is AppState.SUCCEEDED
    assert scheduler._get_job(app_id) == {"TrainingJobStatus": "Completed"}
    client.describe_training_job.return_value = {"TrainingJobStatus": "InProgress"}
    scheduler.cancel(app_id)
    client.stop_training_job.assert_called_once_with(TrainingJobName=app_id)
    client.describe_training_job.return_value = None
    assert scheduler.describe(app_id) is None


def test_an_unknown_job_is_none_in_either_wording():
    client = MagicMock()
    for code, words in (
        ("ValidationException", "Requested resource not found."),
        ("ValidationException", "Could not find training job 'arn'."),
        ("ResourceNotFound", "gone"),
    ):
        error = {"Error": {"Code": code, "Message": words}}
        client.describe_training_job.side_effect = botocore.exceptions.ClientError(error, "x")
        assert create_scheduler("s", client=client).describe("app-x1") is None
    error = {"Error": {"Code": "ValidationException", "Message": "something else"}}
    client.describe_training_job.side_effect = botocore.exceptions.ClientError(error, "x")
    with pytest.raises(InvalidInput, match="something else"):
        create_scheduler("s", client=client).describe("app-x1")
