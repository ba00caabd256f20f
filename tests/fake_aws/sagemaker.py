"""SageMaker's training jobs, which run as processes of this machine."""

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

from .protocol import AwsFault, Params
from .training import TrainingJob

ACCOUNT = "123456789012"
REGION = "eu-west-1"
_NOT_FOUND = "Requested resource not found."


class SageMaker:
    """The service ``sagemaker``."""

    name = "sagemaker"

    def __init__(self, services: dict[str, Any]) -> None:
        self._services = services
        self.jobs: dict[str, TrainingJob] = {}
        self.grace_s = 1.0
        """From SIGTERM to SIGKILL; two minutes at AWS."""
        self._go = asyncio.Event()
        self._go.set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what tests do ----------------------------------------------------------------------

    def admin_hold(self, body: Params) -> Params:
        """``{"on": true}``: jobs wait for instances, until it is off."""
        (self._go.clear if body["on"] else self._go.set)()
        return {}

    def admin_ended(self, body: Params) -> Params:
        """Makes so many jobs that have ended: ``{"count": 1000, "like": <request>}``."""
        began = datetime.now(timezone.utc) - timedelta(days=1)
        for i in range(body["count"]):
            request = {**body["like"], "TrainingJobName": f"{body['like']['TrainingJobName']}-{i}"}
            job = self._make(request)
            job.created = began + timedelta(seconds=i)
            job.status = "Completed"
            job.step("Completed", "Training job completed")
        return {}

    def admin_live(self, _: Params) -> list[str]:
        """Names of the jobs that have not ended."""
        return [name for name, job in self.jobs.items() if not job.final]

    def admin_request(self, body: Params) -> Params:
        """What created a job: ``{"name": ...}``."""
        return self.jobs[body["name"]].request

    def admin_set(self, body: Params) -> Params:
        """Lets a job have a status: ``{"name", "status", "secondary", "failure"}``."""
        job = self.jobs[body["name"]]
        job.step(body["secondary"], body.get("message", ""))
        job.status, job.failure = body["status"], body.get("failure", "")
        return {}

    # -- operations -------------------------------------------------------------------------

    def CreateTrainingJob(self, params: Params) -> Params:
        name = params["TrainingJobName"]
        if name in self.jobs:
            msg = (
                "Training job names must be unique within an AWS account and region, and a"
                f" training job with this name already exists ({self.jobs[name].arn})"
            )
            raise AwsFault("ResourceInUse", msg)
        self._check(params)
        job = self._make(params)
        task = asyncio.get_running_loop().create_task(job.run(self._go))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return {"TrainingJobArn": job.arn}

    def _check(self, params: Params) -> None:
        iam = self._services.get("iam")
        if iam is not None and params["RoleArn"] not in iam.roles.values():
            msg = (
                f"Could not assume role {params['RoleArn']}. Please ensure that the role exists and"
                " allows principal 'sagemaker.amazonaws.com' to assume the role."
            )
            raise AwsFault("ValidationException", msg)

    def _make(self, params: Params) -> TrainingJob:
        name = params["TrainingJobName"]
        arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{name}"
        s3 = self._services.get("s3")
        fetch = s3.fetch if s3 is not None else _nothing
        self.jobs[name] = TrainingJob(params, arn, self._services["logs"], fetch, self.grace_s)
        return self.jobs[name]

    def DescribeTrainingJob(self, params: Params) -> Params:
        return _described(self._job(params))

    def StopTrainingJob(self, params: Params) -> Params:
        job = self._job(params)
        if job.final:
            msg = f"The request was rejected because the training job is in status {job.status}."
            raise AwsFault("ValidationException", msg)
        job.stop()
        return {}

    def ListTags(self, params: Params) -> Params:
        for job in self.jobs.values():
            if job.arn == params["ResourceArn"]:
                return {"Tags": job.request.get("Tags", [])}
        raise AwsFault("ValidationException", _NOT_FOUND)

    def Search(self, params: Params) -> Params:
        wanted = [f["Name"] for f in params["SearchExpression"]["Filters"]]
        keys = {name.removeprefix("Tags.") for name in wanted}
        found = [j for j in self.jobs.values() if keys <= {t["Key"] for t in j.request["Tags"]}]
        found.sort(key=lambda job: job.created, reverse=params.get("SortOrder") != "Ascending")
        at = int(params.get("NextToken", "0"))
        end = at + params.get("MaxResults", 100)
        results = [
            {"TrainingJob": {**_described(job), "Tags": job.request["Tags"]}}
            for job in found[at:end]
        ]
        return {"Results": results, **({"NextToken": str(end)} if end < len(found) else {})}

    def ListTrainingJobs(self, params: Params) -> Params:
        since = params.get("LastModifiedTimeAfter")
        found = [j for j in self.jobs.values() if since is None or j.changed > since]
        found.sort(key=lambda job: job.created, reverse=True)
        at = int(params.get("NextToken", "0"))
        end = at + params.get("MaxResults", 10)
        same = (
            "TrainingJobName",
            "TrainingJobArn",
            "CreationTime",
            "LastModifiedTime",
            "TrainingJobStatus",
        )
        summaries = [
            {name: value for name, value in _described(job).items() if name in same}
            for job in found[at:end]
        ]
        more = {"NextToken": str(end)} if end < len(found) else {}
        return {"TrainingJobSummaries": summaries, **more}

    def _job(self, params: Params) -> TrainingJob:
        job = self.jobs.get(params["TrainingJobName"])
        if job is None:
            raise AwsFault("ValidationException", _NOT_FOUND)
        return job

    async def close(self) -> None:
        """Ends all that runs."""
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _described(job: TrainingJob) -> Params:
    request = job.request
    output = request["OutputDataConfig"]["S3OutputPath"].rstrip("/")
    told: Params = {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "ModelArtifacts": {"S3ModelArtifacts": f"{output}/{job.name}/output/model.tar.gz"},
        "TrainingJobStatus": job.status,
        "SecondaryStatus": job.secondary,
        "SecondaryStatusTransitions": job.steps,
        "CreationTime": job.created,
        "LastModifiedTime": job.changed,
        "EnableManagedSpotTraining": request.get("EnableManagedSpotTraining", False),
    }
    same = ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition", "OutputDataConfig")
    more = ("RoleArn", "Environment", "HyperParameters", "VpcConfig", "CheckpointConfig")
    told |= {name: request[name] for name in (*same, *more) if name in request}
    if job.started is not None:
        told["TrainingStartTime"] = job.started
    if job.ended is not None:
        told["TrainingEndTime"] = job.ended
    if job.failure:
        told["FailureReason"] = job.failure[:1024]
    return told


def _nothing(uri: str) -> bytes:
    raise KeyError(uri)
