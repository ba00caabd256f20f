"""Components that show the metrics of jobs.

A job writes its metrics with whatever library it likes, to storage that outlives it. A separate job
displays them, at the same time or later.
"""

import torchx.specs as specs
from torchx import IMAGE


def tensorboard(
    logdir: str,
    image: str = IMAGE,
    timeout: float = 3600,
    port: int = 6006,
    start_on_file: str = "",
    exit_on_file: str = "",
) -> specs.AppDef:
    """Shows logs with TensorBoard, for a limited time

    The image needs torchx, fsspec and tensorboard.

    Args:
        logdir: path or URL of the logs
        image: image to use
        timeout: seconds after which it ends
        port: port of the web page
        start_on_file: path or fsspec URL of a file; it starts once that exists
        exit_on_file: path or fsspec URL of a file; it ends once that exists
    """
    return specs.AppDef(
        name="tensorboard",
        roles=[
            specs.Role(
                name="tensorboard",
                image=image,
                entrypoint="python",
                args=[
                    "-m",
                    "torchx.apps.utils.process_monitor",
                    "--timeout",
                    str(timeout),
                    "--start_on_file",
                    start_on_file,
                    "--exit_on_file",
                    exit_on_file,
                    "--",
                    "tensorboard",
                    "--bind_all",
                    "--port",
                    str(port),
                    "--logdir",
                    logdir,
                ],
                port_map={"http": port},
            )
        ],
    )
