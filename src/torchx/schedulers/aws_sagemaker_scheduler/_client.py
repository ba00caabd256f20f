"""The calls of AWS's services."""

import functools
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from torchx._aws.errors import AwsRefused, NoCredentials, NotThere
from torchx._aws.once import exactly_once
from torchx._aws.session import AwsService
from torchx._startup.dataclass import replace
from torchx._startup.lazy_logger import get_logger
from torchx.errors import JobStartError, TorchXError

from ._names import TAG_JOB, TAG_MARK, is_job_name
from ._placeholders import ACCOUNT, DEFAULT_OUTPUT, DIGEST, REGION, fill_in
from ._request import AWSSageMakerJob
from ._source import send_source
from ._watch import Watch

_NOT_FOUND = ("not found", "could not find")
"""Part of the message for a missing job, whose error has no code of its own."""
_PAGE_JOBS = 100
_OURS = {
    "Filters": [{"Name": f"Tags.{TAG_MARK}", "Operator": "Exists"}],
}

logger = get_logger(__name__)


class Api:
    """All calls for one region and profile.

    Args:
        client: boto3's client for ``sagemaker``, which replaces ours.
    """

    def __init__(
        self, region: str | None = None, profile: str | None = None, client: Any = None
    ) -> None:
        if client is not None and region is None:
            given = getattr(getattr(client, "meta", None), "region_name", None)
            region = given if isinstance(given, str) else None
        self._home = (region, profile)
        self.jobs = AwsService("sagemaker", region, profile, client)
        self._watch = Watch()

    @functools.cached_property
    def logs(self) -> AwsService:
        """CloudWatch's logs."""
        return self._service("logs")

    def _service(self, name: str) -> AwsService:
        return AwsService(name, *self._home)

    # -- submitting -------------------------------------------------------------------------

    def submit(self, job: AWSSageMakerJob) -> None:
        """Creates the training job once, after everything it needs.

        Raises:
            JobStartError: if another job has the name.
            AwsRefused: if AWS refuses.
            BackendUnavailable: if it cannot be reached.
        """
        request, source_uri = self._resolved(job)
        try:
            exactly_once(
                lambda: self._create(request),
                lambda: self._find(job.job_name),
                f"training job `{job.job_name}`",
            )
        except TorchXError:
            if source_uri:
                words = "the source stays at `%s`, for a later job with the same code"
                logger.warning(words, source_uri)
            raise

    def _create(self, request: Mapping[str, Any]) -> str:
        name = request["TrainingJobName"]
        try:
            answer = self.jobs.call_once("create_training_job", **request) or {}
        except AwsRefused as err:
            if err.code != "ResourceInUse":
                raise
            found = self._find(name)  # an earlier attempt whose response was lost
            if found is None:
                msg = f"another training job has the name `{name}`: submit again; AWS says: {err}"
                raise JobStartError(msg) from err
            return found
        return str(answer.get("TrainingJobArn") or name)

    def _find(self, name: str) -> str | None:
        """Returns the ARN of our job of that name; ``None`` if there is none, or it is not ours."""
        record = self.describe(name)
        if record is None:
            return None
        arn = str(record.get("TrainingJobArn") or "")
        tags = self.jobs.items("list_tags", "Tags", ResourceArn=arn)
        ours = any(tag == {"Key": TAG_JOB, "Value": name} for tag in tags)
        return arn if ours else None

    def _resolved(self, job: AWSSageMakerJob) -> tuple[dict[str, Any], str | None]:
        """Returns the request with values that only AWS knows, and the source's location."""
        values: dict[str, str] = {}
        needed = str(job.job_def)
        if REGION in needed:
            values[REGION] = self.jobs.region
        role_arn = str(job.job_def["RoleArn"])
        if ACCOUNT in role_arn:
            role_arn = self._role_arn(role_arn.rpartition("/")[2])
        if DEFAULT_OUTPUT in needed:
            values[ACCOUNT] = self._account()
            self._make_bucket(values[ACCOUNT])
            values[REGION] = self.jobs.region
        source_uri = None
        if job.source is not None:
            location = job.source.location
            for placeholder, value in values.items():
                location = location.replace(placeholder, value)
            source = replace(job.source, location=location)
            values[DIGEST] = send_source(self._service("s3"), source)
            source_uri = f"{location.rstrip('/')}/{values[DIGEST]}.tar.gz"
        return {**fill_in(job.job_def, values), "RoleArn": role_arn}, source_uri

    def _role_arn(self, name: str) -> str:
        answer = self._service("iam").call("get_role", RoleName=name)
        return str(answer["Role"]["Arn"])

    def _account(self) -> str:
        return str(self._service("sts").call("get_caller_identity")["Account"])

    def _make_bucket(self, account: str) -> None:
        """Creates the default bucket of SageMaker's tools if it does not exist."""
        s3 = self._service("s3")
        region = self.jobs.region
        name = f"sagemaker-{region}-{account}"
        try:
            # the name can be guessed, so somebody else may own the bucket
            s3.call("head_bucket", Bucket=name, ExpectedBucketOwner=account)
        except NoCredentials:
            raise
        except AwsRefused as err:
            if err.code not in ("404", "NoSuchBucket", "NotFound"):
                msg = f"the bucket `{name}` cannot be used, so give `output_path`: {err}"
                raise AwsRefused(msg, err.code, err.request_id) from err
        else:
            return
        where: dict[str, Any] = {}
        if region != "us-east-1":  # the default region must not be named
            where["CreateBucketConfiguration"] = {"LocationConstraint": region}
        s3.call("create_bucket", Bucket=name, **where)
        logger.info("created the bucket `%s` for results, because no `output_path` was given", name)

    # -- looking ----------------------------------------------------------------------------

    def describe(self, name: str) -> dict[str, Any] | None:
        """Returns AWS's record of a job; ``None`` if there is none of that name."""
        if not is_job_name(name):
            return None
        record = self._watch.take_fresh(name)
        if record is None:
            record = self._described(name)
            self._watch.note(name, record)
        return record

    def wait(self, name: str, timeout_s: float) -> None:
        """Waits; if there are other waits, jobs that did not change are not described again."""
        self._watch.wait(name, timeout_s, self.modified_after)

    def _described(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] | None = self.jobs.call(
                "describe_training_job", TrainingJobName=name
            )
        except NotThere:
            return None
        except AwsRefused as err:
            words = str(err).lower()
            if err.code == "ValidationException" and any(said in words for said in _NOT_FOUND):
                return None
            raise
        return found

    def search(self) -> Iterator[dict[str, Any]]:
        """Yields all jobs of TorchX, latest first."""
        found = self.jobs.items(
            "search",
            "Results",
            Resource="TrainingJob",
            SearchExpression=_OURS,
            SortBy="CreationTime",
            SortOrder="Descending",
            PaginationConfig={"PageSize": _PAGE_JOBS},
        )
        for result in found:
            yield result.get("TrainingJob") or {}

    def modified_after(self, moment: datetime) -> dict[str, datetime] | None:
        """Returns the jobs modified after a time, with their times; ``None`` if unavailable."""
        try:
            found = self.jobs.items(
                "list_training_jobs",
                "TrainingJobSummaries",
                LastModifiedTimeAfter=moment,
                PaginationConfig={"PageSize": _PAGE_JOBS},
            )
            return {str(job["TrainingJobName"]): job["LastModifiedTime"] for job in found}
        except TorchXError as err:  # the next query reports it, or succeeds
            logger.debug("querying jobs one by one: %s", err)
            return None

    # -- ending -----------------------------------------------------------------------------

    def stop(self, name: str) -> None:
        """Requests the end of a job; ignores one that has ended meanwhile."""
        self._watch.forget(name)
        try:
            self.jobs.call("stop_training_job", TrainingJobName=name)
        except AwsRefused as err:
            record = self.describe(name) if err.code == "ValidationException" else {}
            over = record is None or record.get("TrainingJobStatus") in _OVER
            if not over:
                raise


_OVER = ("Completed", "Failed", "Stopped", "Stopping", "Deleting")
