"""Names of the published packages: what clients import, replace or reach into."""

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
    """A new name, by the function that clients may have put into the package."""
    import torchx.schedulers.aws_sagemaker_scheduler as package

    return package.make_unique(name)


class PublishedMethods:
    """Methods that clients of the published packages call."""

    def _api(self, app_id: str | None = None) -> "Api":
        raise NotImplementedError

    @property
    def _client(self) -> Any:
        """The client of boto3."""
        return self._api().jobs.client()

    def _local_session(self) -> Any:
        """This thread's session of boto3."""
        from torchx._aws.session import local_session

        return local_session()

    def _get_job(self, app_id: str) -> dict[str, Any] | None:
        """What AWS says of a job."""
        return self._api(app_id).describe(app_id)

    def _parse_args(self, args: Sequence[str]) -> tuple[str, dict[str, str]]:
        """The script of a role, and its named arguments."""
        return parse_args(args)

    def _job_ui_url(self, job_arn: str) -> str | None:
        """The page of a job in the console."""
        return job_ui_url(job_arn)
