"""Fills the macros of a role in, as it is done for every replica."""

import time

from _shared import report

from torchx.specs import Resource, Role, macros

TIMES = 2_000


def main() -> None:
    role = Role(
        "trainer",
        image="example.com/image:1",
        entrypoint="python",
        args=["-m", "train", "--id", macros.replica_id, "--app", macros.app_id, "--lr", "0.1"],
        env={f"VAR_{i}": f"value {macros.app_id} {i}" for i in range(10)},
        num_replicas=8,
        resource=Resource(cpu=1, gpu=0, memMB=1),
        metadata={"kubernetes": {"note": macros.app_id}},
    )
    values = [
        macros.Values(
            img_root="/root", app_id="app-x1", replica_id=str(i), rank0_env="TORCHX_RANK0_HOST"
        )
        for i in range(TIMES)
    ]
    started = time.perf_counter()
    for value in values:
        applied = value.apply(role)
    took_s = time.perf_counter() - started
    assert applied.args[3] == str(TIMES - 1)
    report(apply_us=1e6 * took_s / TIMES)


main()
