"""Names of the environment variables that TorchX reads or sets: all of them.

Any other variable that begins with ``PARAM_PREFIX`` is a parameter for schedulers. Two places
repeat names of this list, because they cannot import it: the scripts that ``slurm`` submits,
and the supervisor of local jobs, which runs without TorchX on its path.
"""

PARAM_PREFIX = "TORCHX_"
"""Prefix of parameters for schedulers: ``TORCHX_FOO_BAR=z`` gives ``foo_bar="z"``."""
TRACKER_PREFIX = "TORCHX_TRACKER_"
"""Prefix of variables that pass the settings of one tracker to jobs."""

# Read where TorchX is used. --------------------------------------------------------------------

ENV_TORCHX_HOME = "TORCHX_HOME"
"""Directory that records of jobs, copies of workspaces and caches are kept below."""
ENV_TORCHXCONFIG = "TORCHXCONFIG"
"""The one config file to read."""
ENV_TORCHX_CUSTOM_NAMED_RESOURCES = "TORCHX_CUSTOM_NAMED_RESOURCES"
"""Module or file whose named resources are added."""
ENV_TORCHX_PLUGINS_SOURCE = "TORCHX_PLUGINS_SOURCE"
"""Number that selects where plugins are searched."""
ENV_TORCHX_NO_ENTRYPOINTS = "TORCHX_NO_ENTRYPOINTS"
"""Former name of the switch for plugins."""
ENV_TORCHX_CONTEXT_NAME = "TORCHX_CONTEXT_NAME"
"""Context that a job is launched from, for its metadata."""
ENV_TORCHX_INSECURE_REGISTRIES = "TORCHX_INSECURE_REGISTRIES"
"""Registries that are reached without TLS."""
ENV_TORCHX_KEEP_JOBS = "TORCHX_KEEP_JOBS"
"""Number of local jobs that have ended whose records are kept."""
ENV_TORCHX_DEBUG = "TORCHX_DEBUG"
"""If set, the config composed by hydra is printed."""

# Set for jobs; also read where TorchX is used in a job. ----------------------------------------

ENV_TORCHX_JOB_ID = "TORCHX_JOB_ID"
"""Handle of the job."""
ENV_TORCHX_INTERNAL_SESSION_ID = "TORCHX_INTERNAL_SESSION_ID"
"""Id of the process that launched the job, for its events."""
ENV_TORCHX_PARENT_RUN_ID = "TORCHX_PARENT_RUN_ID"
"""The run that the job belongs to."""
ENV_TORCHX_TRACKERS = "TORCHX_TRACKERS"
"""Names of the trackers of the job, with commas between."""
ENV_TORCHX_TRACKERS_ON_ERROR = "TORCHX_TRACKERS_ON_ERROR"
"""``warn``: a tracker that cannot be made is left out."""
ENV_TORCHX_TRACKING_EXPERIMENT_NAME = "TORCHX_TRACKING_EXPERIMENT_NAME"
"""Experiment to track in."""
ENV_TORCHX_TRACKING_RUN_NAME = "TORCHX_TRACKING_RUN_NAME"
"""Name of the run to track."""
ENV_TORCHX_RANK0_HOST = "TORCHX_RANK0_HOST"
"""Host of the first replica of the first role."""
ENV_TORCHX_ATTEMPT = "TORCHX_ATTEMPT"
"""Number of times that a replica was started before."""
ENV_TORCHX_MAX_RETRIES = "TORCHX_MAX_RETRIES"
"""Number of times that a job of ``slurm`` may be started again."""
ENV_TORCHX_IMAGE = "TORCHX_IMAGE"
"""Image that the replica runs in; where jobs are launched, the image of built-in components."""
ENV_TORCHX_ROLE_IDX = "TORCHX_ROLE_IDX"
"""Place of the replica's role in the app, from 0; set on ``aws_batch``."""
ENV_TORCHX_ROLE_NAME = "TORCHX_ROLE_NAME"
"""Name of the replica's role; set on ``aws_batch`` and ``aws_sagemaker``."""
ENV_TORCHX_LOCAL_JOB = "TORCHX_LOCAL_JOB"
"""App id of a local job, by which its processes are known."""
ENV_TORCHX_EXEC = "TORCHX_EXEC"
"""Mark of a command that `torchx exec` runs in a replica, used to find and signal its processes."""

NAMES = frozenset(value for name, value in list(globals().items()) if name.startswith("ENV_"))
"""All of the above. None of them is a parameter for schedulers."""
