"""A job of two roles, for a first look. Run it with::

torchx run examples/hello.py:hello
"""

import torchx.specs as specs

WORKER = """
for step in 1 2 3; do
    echo "step $step of {name}"
    sleep 0.3
done
"""


def hello(name: str = "world", workers: int = 2) -> specs.AppDef:
    """Greets from one leader and several workers.

    Args:
        name: who to greet
        workers: number of workers
    """
    return specs.AppDef(
        name="hello",
        roles=[
            specs.Role(
                name="leader",
                image="",
                entrypoint="echo",
                args=[f"hello {name}, this is job", specs.macros.app_id],
                resource=specs.resource(h="cpu.nano"),
            ),
            specs.Role(
                name="worker",
                image="",
                entrypoint="sh",
                args=["-c", WORKER.format(name="worker ${replica_id}")],
                num_replicas=workers,
                resource=specs.resource(h="cpu.nano"),
            ),
        ],
    )
