"""Components that hand trained models to servers of inference."""

import re

import torchx.specs as specs
from torchx import IMAGE
from torchx.errors import InvalidInput


def torchserve(
    model_path: str,
    management_api: str,
    image: str = IMAGE,
    params: dict[str, str] | None = None,
    dryrun: bool = False,
) -> specs.AppDef:
    """Registers a model with a TorchServe that is running

    The job downloads the model archive and serves it over HTTP, on port 8222 unless the
    parameter `port` names another, for as long as the server takes to fetch it. The server must
    be able to reach that port. The image needs torchx, fsspec and what fsspec needs for the path.

    Args:
        model_path: path or fsspec URL of the model archive
        management_api: URL of the server's management API, http://torchserve:8081 for example
        image: image to use
        params: parameters of the registration, as `model_name=tiny,initial_workers=1`
        dryrun: whether to start the job but register nothing, to try out the image
    """
    params = params or {}
    args = [
        "-m",
        "torchx.apps.serve.serve",
        "--model_path",
        model_path,
        "--management_api",
        management_api,
    ]
    for name, value in params.items():
        if not re.fullmatch(r"[A-Za-z]\w*", name):
            msg = f"`{name}` is not the name of a parameter, give one such as `model_name`"
            raise InvalidInput(msg)
        args += [f"--{name}", str(value)]
    if dryrun:
        args.append("--dryrun")
    port = str(params.get("port", 8222))
    if not re.fullmatch(r"[0-9]+", port):
        msg = f"`{port}` is no port, give a number"
        raise InvalidInput(msg)
    return specs.AppDef(
        name="torchx-torchserve",
        roles=[
            specs.Role(
                name="worker",
                image=image,
                entrypoint="python",
                args=args,
                port_map={"model-download": int(port)},
                resource=specs.Resource(cpu=1, gpu=0, memMB=1024),
            )
        ],
    )
