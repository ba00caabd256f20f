"""Names of the published packages that clients import, replace or access."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._args import parse_args
from ._options import Opts
from ._states import job_ui_url

if TYPE_CHECKING:
    from ._client import Api

AWSSageMakerOpts = Opts
"""Name of the options in release 0.7."""


def unique_name(name: str) -> str:
    """Returns a new name, from the function that clients may replace."""
    import torchx.schedulers.aws_sagemaker_scheduler as package

    return package.make_unique(name)


class PublishedMethods:
    """Methods that clients of the published packages call."""

    def _api(self, app_id: str | None = None) -> "Api":
        raise NotImplementedError

    @property
    def _client(self) -> Any:
        """Returns boto3's client."""
        return self._api().jobs.client()

    def _local_session(self) -> Any:
        """Returns this thread's boto3 session."""
        from torchx._aws.session import local_session

        return local_session()

    def _get_job(self, app_id: str) -> dict[str, Any] | None:
        """Returns AWS's record of a job."""
        return self._api(app_id).describe(app_id)

    def _parse_args(self, args: Sequence[str]) -> tuple[str, dict[str, str]]:
        """Parses the script of a role, and its named arguments."""
        return parse_args(args)

    def _job_ui_url(self, job_arn: str) -> str | None:
        """Returns the page of a job in the console."""
        return job_ui_url(job_arn)
