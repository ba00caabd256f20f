"""Training jobs on moto's server, which is not ours: it keeps jobs, sources, roles, and runs none.

A job is Completed at once there. moto can neither stop nor search jobs, takes a name twice, and
keeps no environment of a job.
"""

import os
import tarfile
import urllib.error
import urllib.request

import pytest

from torchx.errors import InvalidInput
from torchx.schedulers.aws_sagemaker_scheduler import create_scheduler
from torchx.schedulers.ids import random_id
from torchx.specs import AppDef, AppState, Resource, Role

boto3 = pytest.importorskip("boto3", reason="needs boto3: pip install 'torchx[aws]'")

pytestmark = pytest.mark.aws
PORT = os.environ.get("TORCHX_MOTO_PORT", "5556")  # tests do not see such variables
BUCKET = "sagemaker-eu-west-1-123456789012"


@pytest.fixture(scope="module")
def server():
    url = f"http://127.0.0.1:{PORT}"
    try:
        urllib.request.urlopen(f"{url}/moto-api/", timeout=10).close()
    except (urllib.error.URLError, ConnectionError) as err:
        pytest.skip(f"moto does not answer at {url}: {err} (scripts/engines/aws up)")
    return url


@pytest.fixture
def moto(server, monkeypatch):
    settings = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "moto",
        "AWS_SECRET_ACCESS_KEY": "moto",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    iam = boto3.client("iam")
    try:
        iam.create_role(RoleName="Trainer", Path="/service-role/", AssumeRolePolicyDocument="{}")
    except iam.exceptions.EntityAlreadyExistsException:
        return  # others use the server as well


@pytest.fixture
def scheduler(moto):
    scheduler = create_scheduler("test")
    yield scheduler
    scheduler.close()


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "code"
    (place / "pkg").mkdir(parents=True)
    (place / "train.py").write_text(f"print('{random_id()}')\n")  # no other run has sent it
    (place / "pkg" / "run.sh").write_text("#!/bin/sh\n")
    (place / "pkg" / "run.sh").chmod(0o755)
    return place


def app(*args):
    return AppDef("app", [Role("w", "i:1", entrypoint="x", args=[*args], resource=R)])


R = Resource(1, 0, 64)


def cfg(folder, **more):
    return {"role": "Trainer", "source_dir": str(folder), **more}


def test_a_job_is_made_with_its_role_bucket_source_and_tags(scheduler, folder, tmp_path):
    app_id = scheduler.submit(app("train.py", "--lr", "1"), cfg(folder))
    found = scheduler.describe(app_id)
    assert found.state is AppState.SUCCEEDED
    assert found.ui_url.endswith(f"region=eu-west-1#jobs/{app_id}")
    job = boto3.client("sagemaker").describe_training_job(TrainingJobName=app_id)
    assert job["RoleArn"] == "arn:aws:iam::123456789012:role/service-role/Trainer"
    assert job["OutputDataConfig"]["S3OutputPath"] == f"s3://{BUCKET}/"
    tags = boto3.client("sagemaker").list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]
    assert {"Key": "torchx.pytorch.org/job-name", "Value": app_id} in tags
    uri = job["HyperParameters"]["sagemaker_submit_directory"].strip('"')
    archive = tmp_path / "source.tar.gz"
    boto3.client("s3").download_file(BUCKET, uri.partition(f"{BUCKET}/")[2], str(archive))
    with tarfile.open(archive) as opened:
        modes = {entry.name: entry.mode & 0o777 for entry in opened if entry.isfile()}
    assert set(modes) == {"train.py", "pkg/run.sh"}
    assert modes["pkg/run.sh"] == 0o755


def test_the_source_is_kept_once(scheduler, folder, caplog):
    caplog.set_level("INFO")
    for _ in range(2):
        scheduler.submit(app("train.py"), cfg(folder))
    assert caplog.text.count("sent the source to") == 1
    assert caplog.text.count("the source has not changed") == 1


def test_what_is_not_there_is_told_in_the_words_of_aws(scheduler, folder):
    assert scheduler.describe("no-such-job") is None
    scheduler.cancel("no-such-job")
    with pytest.raises(InvalidInput, match=r"NoRole.*\(NoSuchEntity, request id"):
        scheduler.submit(app("train.py"), cfg(folder, role="NoRole"))
    with pytest.raises(InvalidInput, match=r"s3:PutObject.*\(NoSuchBucket, request id"):
        scheduler.submit(app("train.py"), cfg(folder, output_path="s3://no-such-bucket/x"))


def test_a_job_that_has_ended_can_be_cancelled_and_deleted(scheduler, folder):
    app_id = scheduler.submit(app("train.py"), cfg(folder))
    scheduler.cancel(app_id)
    scheduler.delete(app_id)
    assert scheduler.exists(app_id)
