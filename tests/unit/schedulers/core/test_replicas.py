"""Replicas with their macros filled in."""

from torchx.schedulers._core.replicas import expand
from torchx.specs import Role, macros


def test_each_replica_has_its_own_values_and_containers():
    role = Role(
        "w",
        "i",
        args=["--id", macros.replica_id, macros.app_id, macros.rank0_env, macros.img_root],
        env={"ID": macros.replica_id, "A": "b"},
        metadata={"note": macros.replica_id},
        num_replicas=2,
    )
    first, second = expand(role, "job-1", rank0_env="R0", img_root="/img")
    assert (first.k, first.args) == (0, ["--id", "0", "job-1", "R0", "/img"])
    assert (second.k, second.env) == (1, {"ID": "1", "A": "b"})
    assert second.values.apply(role).metadata == {"note": "1"}
    first.args.clear()
    first.env.clear()
    assert (len(second.args), len(second.env), len(role.args), len(role.env)) == (5, 2, 5, 2)


def test_a_role_without_replicas_has_none():
    assert [*expand(Role("w", "i", num_replicas=0), "job-1")] == []
