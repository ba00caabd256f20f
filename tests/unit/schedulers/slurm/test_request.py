"""The native request of slurm: what each option and each field of a role becomes."""

import copy
import subprocess
import sys
import tracemalloc
import warnings

import pytest

import torchx.schedulers.slurm_scheduler as slurm
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers.slurm_scheduler import SlurmOpts, SlurmReplicaRequest, create_scheduler
from torchx.schedulers.slurm_scheduler._parse import parse_memory, parse_version
from torchx.schedulers.slurm_scheduler._request import Facts, build_request
from torchx.schedulers.slurm_scheduler._script import record_of
from torchx.specs import (
    AppDef,
    BindMount,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
)


def role(**more: object) -> Role:
    return Role("r", more.pop("image", ""), entrypoint="true", **more)


NO_FACTS = Facts()


def build(*roles: Role, facts: Facts = NO_FACTS, **cfg: object) -> "slurm.SlurmBatchRequest":
    return build_request(AppDef("app", [*roles]), cfg, facts)


def directives(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.split("\n") if line.startswith("#SB")]


# -- components ---------------------------------------------------------------------------------


def test_each_role_is_one_component_and_one_step():
    p = Role("p", "", entrypoint="python", args=["prep.py"], env={"A": "1"})
    p.resource = Resource(cpu=3, gpu=0, memMB=-1)
    w = Role("w", "", entrypoint="work", num_replicas=1000)
    text = build(p, w, partition="gpu").materialize()
    assert directives(text)[1:] == [
        "--job-name=p-0 --requeue --partition=gpu --ntasks-per-node=1 --cpus-per-task=3",
        "hetjob",
        "--job-name=w-0 --requeue --partition=gpu --nodes=1000 --ntasks-per-node=1",
    ]
    assert text.count("\nsrun ") == 2


def test_the_options_of_a_component_have_their_order():
    request = SlurmReplicaRequest.from_role(
        "r-0",
        role(resource=Resource(cpu=2, gpu=0, memMB=10)),
        {"partition": "p", "time": "5", "constraint": "c", "qos": "q"},
        nomem=False,
    )
    assert request.sbatch_opts == {
        "requeue": None,
        "partition": "p",
        "time": "5",
        "constraint": "c",
        "qos": "q",
        "ntasks-per-node": "1",
        "cpus-per-task": "2",
        "mem": "10",
    }
    assert list(request.sbatch_opts)[:5] == ["requeue", "partition", "time", "constraint", "qos"]
    assert request.srun_opts == {"wait": "60", "kill-on-bad-exit": "1"}


def test_more_options_of_hpc_users():
    request = build(
        role(),
        reservation="res",
        exclusive=True,
        nodelist="n[1-2]",
        exclude="n9",
        dependency="afterok:12",
        begin="now+1hour",
        signal="USR1@120",
        sbatch_args="--nice=5 --switches=1",
        srun_args="--mpi=pmix --wait=0 '--prolog=/a b'",
        account="acc",
        comment="it's",
        **{"mail-user": "me", "mail-type": "END"},
    )
    assert request.cmd == [
        "sbatch",
        "--parsable",
        "--comment=it's",
        "--mail-user=me",
        "--mail-type=END",
        "--account=acc",
    ]
    assert directives(request.materialize())[1] == (
        "--job-name=r-0 --requeue --ntasks-per-node=1 --reservation=res --nodelist=n[1-2] "
        "--exclude=n9 --dependency=afterok:12 --begin=now+1hour --signal=USR1@120 --exclusive "
        "--nice=5 --switches=1"
    )
    assert "srun --wait=0 --kill-on-bad-exit=1 --mpi=pmix '--prolog=/a b' --export=ALL" in (
        request.materialize()
    )


def test_free_arguments_win():
    request = build(role(num_replicas=4), sbatch_args="--nodes=1 --ntasks-per-node=4")
    assert "--nodes=1 --ntasks-per-node=4" in directives(request.materialize())[1]


@pytest.mark.parametrize(
    ("version", "given", "expected"),
    [
        ((24, 11), "--mem-per-cpu=50", {"mem-per-cpu": "50", "gpus-per-node": "2"}),
        ((24, 11), "--mem-per-gpu=50", {"mem-per-gpu": "50", "gpus-per-node": "2"}),
        ((24, 11), "--mem=50", {"mem": "50", "gpus-per-node": "2"}),
        ((24, 11), "--gres=gpu:1", {"gres": "gpu:1"}),
        ((22, 5), "--gres=shard:1,gpu:a:1", {"gres": "shard:1,gpu:a:1"}),
        ((22, 5), "--gres=nic:1", {"gres": "nic:1", "gpus-per-task": "2", "ntasks": "2"}),
        ((22, 5), "--gpus=4", {"gpus": "4"}),
        ((22, 5), "--gpus-per-node=1", {"gpus-per-node": "1"}),
        ((24, 11), "--gpus-per-task=1", {"gpus-per-task": "1", "ntasks": "2"}),
        ((24, 11), "--cpus-per-gpu=1", {"cpus-per-gpu": "1", "gpus-per-node": "2"}),
    ],
)
def test_free_arguments_replace_what_asks_for_the_same(version, given, expected):
    """Slurm refuses, say, ``--mem`` beside ``--mem-per-cpu``."""
    gpus = role(num_replicas=2, resource=Resource(cpu=1, gpu=2, memMB=64))
    request = build(gpus, facts=Facts(version), sbatch_args=given)
    opts = request.replicas["r-0"].sbatch_opts
    rest = {"requeue": None, "nodes": "2", "ntasks-per-node": "1", "cpus-per-task": "1"}
    if "cpus-per-gpu" in expected:
        del rest["cpus-per-task"]
    if "--mem" not in given:
        rest["mem"] = "64"
    assert opts == {**rest, **expected}


def test_free_arguments_of_srun_replace_sizes_of_the_step():
    gpus = role(resource=Resource(cpu=1, gpu=2, memMB=64))
    text = build(gpus, facts=Facts((24, 11)), srun_args="--gres=gpu:1").materialize()
    assert "srun --cpus-per-task=1 --wait=60 --kill-on-bad-exit=1 --gres=gpu:1 " in text


def test_a_range_of_replicas_is_a_range_of_nodes():
    request = build(role(num_replicas=4, min_replicas=2))
    assert request.replicas["r-0"].sbatch_opts["nodes"] == "2-4"
    with pytest.raises(InvalidInput, match="min_replicas"):
        build(role(num_replicas=2, min_replicas=3))


def test_a_role_with_a_range_is_the_last_component_whatever_its_place(caplog):
    """Slurm lets each component take the nodes that it may have before it looks at the next one."""
    a = Role("a", "", entrypoint="x", num_replicas=4, min_replicas=1)
    b, c = Role("b", "", entrypoint="y"), Role("c", "", entrypoint="z")
    request = build(a, b, c)
    text = request.materialize()
    names = [line.split()[0] for line in directives(text)[1:]]
    assert names == ["--job-name=b-0", "hetjob", "--job-name=c-0", "hetjob", "--job-name=a-0"]
    assert list(request.replicas) == ["a-0", "b-0", "c-0"]
    steps = text.split("\n# role ")[1:]
    groups = [step.split("--het-group=")[1].split()[0] for step in steps]
    assert dict(zip("abc", groups, strict=True)) == {"a": "2", "b": "0", "c": "1"}
    assert 'torchx_at[0]=$(torchx_hosts "${SLURM_JOB_NODELIST_HET_GROUP_2:-' in text
    assert [role["name"] for role in record_of(request)["roles"]] == ["a", "b", "c"]
    assert caplog.messages == []


def test_a_second_range_of_replicas_is_warned_of(caplog):
    ranges = [Role(n, "", entrypoint="x", num_replicas=4, min_replicas=1) for n in "ab"]
    names = [line.split()[0] for line in directives(build(*ranges).materialize())[1:]]
    assert names == ["--job-name=a-0", "hetjob", "--job-name=b-0"]
    assert "`a`, `b`" in caplog.messages[0]


@pytest.mark.parametrize(
    ("version", "more", "expected"),
    [
        ((24, 11), {}, {"gpus-per-node": "8"}),
        ((25, 5), {}, {"gpus-per-node": "8"}),
        ((24, 5), {}, {"gpus-per-task": "8", "ntasks": "2"}),
        ((22, 5), {"min_replicas": 1}, {"ntasks": "2", "gpus-per-node": "8"}),
    ],
)
def test_gpus_are_asked_for_as_the_version_wants(fake_slurm, scheduler, version, more, expected):
    fake_slurm.answer("sinfo", f"slurm {version[0]}.{version[1]:02d}.0")
    gpus = role(num_replicas=2, resource=Resource(cpu=0, gpu=8, memMB=-1), **more)
    for request in (
        build(gpus, facts=Facts(version)),
        scheduler.submit_dryrun(AppDef("a", [gpus]), {}).request,
    ):
        opts = request.replicas["r-0"].sbatch_opts
        assert {k: v for k, v in opts.items() if "gpu" in k or k == "ntasks"} == expected
    assert fake_slurm.calls() == [["sinfo", "--version"]]


def test_no_gpu_means_no_flag_and_no_question(fake_slurm, scheduler):
    fake_slurm.answer("sinfo", "slurm 24.11.0")
    none = role(num_replicas=2, resource=Resource(cpu=1, gpu=0, memMB=-1))
    scheduler.submit_dryrun(AppDef("a", [none]), {})
    assert fake_slurm.calls() == []


@pytest.mark.parametrize(
    ("name", "replacement", "flag"),
    [
        ("version", lambda: (22, 5), "gpus-per-task"),
        ("version", lambda: (24, 11), "gpus-per-node"),
        ("_should_use_gpus_per_node_from_version", lambda: True, "gpus-per-node"),
        ("_should_use_gpus_per_node_from_version", lambda: False, "gpus-per-task"),
    ],
)
def test_what_clients_replace_is_asked_before_the_request_is_built(
    fake_slurm, scheduler, monkeypatch, name, replacement, flag
):
    monkeypatch.setattr(slurm, name, replacement)
    monkeypatch.setattr(slurm, "_partition_memmb", lambda partition: 1)
    fake_slurm.answer("sinfo", "slurm 20.11.0")
    gpus = role(resource=Resource(cpu=1, gpu=8, memMB=100))
    opts = scheduler.submit_dryrun(AppDef("a", [gpus]), {}).request.replicas["r-0"].sbatch_opts
    assert opts[flag] == "8"
    assert "mem" not in opts
    assert fake_slurm.calls() == []


def test_the_component_of_a_role_is_built_without_a_question(fake_slurm):
    gpus = role(resource=Resource(cpu=1, gpu=8, memMB=100))
    opts = SlurmReplicaRequest.from_role("r-0", gpus, {}, False).sbatch_opts
    assert (opts["gpus-per-task"], opts["mem"]) == ("8", "100")
    assert fake_slurm.calls() == []


# -- where roles go -----------------------------------------------------------------------------


def components(request: "slurm.SlurmBatchRequest") -> list[str]:
    names = [line.split()[0] for line in directives(request.materialize())[1:]]
    return [name.removeprefix("--job-name=") for name in names if name != "hetjob"]


def test_the_role_for_which_the_fewest_nodes_will_do_is_the_first_component():
    """Slurm would place a role without GPUs, were it first, on the nodes that have some."""
    roles = [
        Role("cpu", "", entrypoint="x", resource=Resource(cpu=2, gpu=0, memMB=-1)),
        Role("big", "", entrypoint="x", resource=Resource(cpu=2, gpu=0, memMB=9000)),
        Role("one", "", entrypoint="x", resource=Resource(cpu=2, gpu=1, memMB=-1)),
        Role("two", "", entrypoint="x", resource=Resource(cpu=2, gpu=2, memMB=-1)),
        Role("any", "", entrypoint="x", num_replicas=2, min_replicas=1),
        Role("gres", "", entrypoint="x"),
        Role("named", "", entrypoint="x"),
    ]
    own = "gres: --gres=gpu:a100:4; named: --nodelist=n7"
    for version in ((22, 5), (24, 11)):
        request = build(*roles, facts=Facts(version), role_args=own)
        assert components(request) == [
            f"{name}-0" for name in ("gres", "two", "one", "named", "big", "cpu", "any")
        ]


def test_arguments_of_a_role_are_for_it_alone_and_win():
    roles = [Role(name, "", entrypoint="x") for name in ("a", "b c")]
    request = build(
        *roles,
        constraint="x",
        sbatch_args="--nice=1",
        role_args="a: --constraint=a100 --nice=2; b c: --exclude=n[1-2] ;",
    )
    a, b = (request.replicas[name].sbatch_opts for name in ("a-0", "b_c-0"))
    assert (a["constraint"], a["nice"], a.get("exclude")) == ("a100", "2", None)
    assert (b["constraint"], b["nice"], b.get("exclude")) == ("x", "1", "n[1-2]")


@pytest.mark.parametrize("given", ["c: --x", "--x", "a", "a: x", "a: --wrap=x", "a: --x='1 2'"])
def test_arguments_of_no_role_or_of_another_form_are_refused(given):
    with pytest.raises(InvalidInput, match="role_args"):
        build(Role("a", "", entrypoint="x"), role_args=given)


def test_the_option_can_be_given_on_the_command_line():
    text = 'role_args="a: --nodelist=n1; b: --exclude=n2",partition=x'
    cfg = SlurmOpts.as_runopts().cfg_from_str(text)
    assert cfg == {"role_args": "a: --nodelist=n1; b: --exclude=n2", "partition": "x"}


def test_retries_are_the_least_of_all_roles():
    a, b = (
        Role("a", "", entrypoint="x", max_retries=3),
        Role("b", "", entrypoint="x", max_retries=1),
    )
    assert build(a, b).max_retries == 1
    assert "export TORCHX_MAX_RETRIES=1\n" in build(a, b).materialize()


def test_a_role_without_macros_keeps_its_image_root():
    assert build(role(image="/img", args=["${img_root}/a"])).replicas["r-0"].args == ["/img/a"]
    request = build(role(image="/img", args=["${img_root}/a"]), container_image="i")
    assert request.replicas["r-0"].args == ["/a"]


def test_names_are_made_fit_for_slurm():
    assert [*build(Role("a b/ü", "", entrypoint="x")).replicas] == ["a_b__-0"]
    with pytest.raises(InvalidInput, match="nearly so"):
        build(Role("a b", "", entrypoint="x"), Role("a_b", "", entrypoint="x"))
    for name in ("", "a\nb", "x" * 200):
        with pytest.raises(InvalidInput, match="role name"):
            build(Role(name, "", entrypoint="x"))


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [RetryPolicy.ROLE, RetryPolicy.REPLICA])
def test_only_whole_jobs_are_retried(scheduler, policy):
    with pytest.raises(UnsupportedRequest, match=policy.name):
        scheduler.submit_dryrun(AppDef("a", [role(max_retries=1, retry_policy=policy)]), {})
    scheduler.submit_dryrun(AppDef("a", [role(max_retries=0, retry_policy=policy)]), {})


def test_mounts_of_a_container_pass_all_checks(scheduler):
    app = AppDef("a", [role(mounts=[BindMount("/a", "/b")])])
    info = scheduler.submit_dryrun(app, {"container_image": "img"})
    assert info.request.replicas["r-0"].srun_opts["container-mounts"] == "/a:/b"
    with pytest.raises(UnsupportedRequest, match=r"mounts.*container_image"):
        scheduler.submit_dryrun(app, {})


def test_mounts_need_a_container():
    mounts = [BindMount("/a", "/b", read_only=True), BindMount("/c", "/d")]
    with pytest.raises(UnsupportedRequest, match="container_image"):
        build(role(mounts=mounts))
    request = build(role(mounts=mounts), container_image="img", container_mounts="/e:/e")
    assert request.replicas["r-0"].srun_opts["container-mounts"] == "/a:/b:ro,/c:/d,/e:/e"
    with pytest.raises(UnsupportedRequest, match="VolumeMount"):
        build(role(mounts=[VolumeMount("v", "/b")]), container_image="img")
    for path in ("/a:b", "/a,b", "/a\0", "/\ud83d"):
        with pytest.raises(InvalidInput, match="must not hold"):
            build(role(mounts=[BindMount(path, "/b")]), container_image="img")


@pytest.mark.parametrize(
    "time",
    ["5", "5:30", "1:05:30", "1-2", "1-2:30", "1-2:30:10", "0", "infinite", "UNLIMITED"],
)
def test_times_that_slurm_reads(time):
    assert build(role(), time=time).replicas["r-0"].sbatch_opts["time"] == time


@pytest.mark.parametrize("time", ["", "1h", "1:2:3:4", "1-", "-5", "5 ", "1-2:3:4:5", "a", "1.5"])
def test_other_times_are_refused_with_what_is_allowed(time):
    with pytest.raises(InvalidInput, match="d-h:m:s"):
        build(role(), time=time)


@pytest.mark.parametrize(
    "name",
    [
        "account",
        "partition",
        "constraint",
        "qos",
        "reservation",
        "nodelist",
        "exclude",
        "dependency",
        "begin",
        "signal",
        "mail-user",
        "mail-type",
    ],
)
@pytest.mark.parametrize("value", ["a b", "a\n#SBATCH --wrap", "", "a\t", 'a"', "a'", "a\\", "a#b"])
def test_a_value_that_is_no_word_is_refused_by_the_name_of_its_option(name, value):
    with pytest.raises(InvalidInput, match=name):
        build(role(), **{name: value})


@pytest.mark.parametrize("name", ["comment", "job_dir"])
@pytest.mark.parametrize("value", ["a\nb", "a\r", "a\x1fb"])
def test_a_value_that_would_split_the_row_of_a_job_is_refused(name, value):
    with pytest.raises(InvalidInput, match=f"`{name}` must be one line"):
        build(role(), **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("comment", "\ud83d"),
        ("account", "\ud83d"),
        ("job_dir", "/\ud83d"),
        ("container_image", "\ud83d"),
        ("container_mounts", "/\ud83d:/x"),
        ("sbatch_args", "--x=\ud83d"),
        ("srun_args", "--x=\ud83d"),
    ],
)
def test_half_of_a_surrogate_pair_in_an_option_is_refused(name, value):
    with pytest.raises(InvalidInput, match=f"{name}.*ud83d"):
        build(role(), **{name: value})


@pytest.mark.parametrize("constraint", ["gpu&mem", "[rack1|rack2]", "a*2&b", "(a|b)"])
def test_expressions_of_features_are_words(constraint):
    assert build(role(), constraint=constraint)


@pytest.mark.parametrize(
    "signal", ["USR1", "SIGUSR1@60", "B:USR1@60", "10@5", "R:TERM", "BR:USR2@9"]
)
def test_signals_that_slurm_reads(signal):
    assert build(role(), signal=signal)


@pytest.mark.parametrize(
    ("signal", "asked"),
    [
        ("USR1@60", "USR1@60"),
        ("B:USR1@60", "USR1@60"),
        ("b:SIGUSR1", "SIGUSR1"),
        ("RB:USR1@60", "R:USR1@60"),
        ("R:TERM", "R:TERM"),
    ],
)
def test_a_signal_is_for_the_replicas_and_not_for_the_batch_script(signal, asked):
    for cfg in ({"signal": signal}, {"sbatch_args": f"--signal={signal}"}):
        assert build(role(), **cfg).replicas["r-0"].sbatch_opts["signal"] == asked


@pytest.mark.parametrize("signal", ["USR1@", "@60", "USR1@x", "X:USR1", "USR1;x"])
def test_other_signals_are_refused(signal):
    with pytest.raises(InvalidInput, match="USR1@120"):
        build(role(), signal=signal)


@pytest.mark.parametrize(
    ("tool", "text", "words"),
    [
        ("sbatch", "-N2", "--name=value"),
        ("sbatch", "nodes=2", "--name=value"),
        ("sbatch", "--wrap=x", "must not hold"),
        ("sbatch", "--array=1-3", "must not hold"),
        ("sbatch", "--comment='a b'", "one word"),
        ("sbatch", "--x='", "split into words"),
        ("srun", "--export=NONE", "must not hold"),
        ("srun", "--het-group=1", "must not hold"),
        ("srun", "--version", "with which srun runs nothing"),
        ("srun", "--test-only", "with which srun runs nothing"),
        ("sbatch", "--help", "with which sbatch runs nothing"),
    ],
)
def test_free_arguments_that_would_break_the_script_are_refused(tool, text, words):
    with pytest.raises(InvalidInput, match=words):
        build(role(), **{f"{tool}_args": text})


def test_free_arguments_of_srun_are_quoted_for_the_shell():
    text = build(role(), srun_args="'--prolog=a; touch x $HOME'").materialize()
    assert "'--prolog=a; touch x $HOME'" in text


# -- the cluster --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slurm 24.11.0 rev1", (24, 11)),
        ("slurm 20.11.9", (20, 11)),
        ("slurm-wlm 22.05.8", (22, 5)),
        ("slurm", None),
        ("", None),
        ("slurm x.y", None),
    ],
)
def test_versions(text, expected):
    assert parse_version(text) == expected


def test_the_version_is_asked_for_once(fake_slurm):
    fake_slurm.answer("sinfo", "slurm 24.11.0 rev1")
    assert slurm.version() == slurm.version() == (24, 11)
    assert fake_slurm.calls() == [["sinfo", "--version"]]


def test_an_unknown_version_is_assumed_with_a_warning(fake_slurm):
    fake_slurm.answer("sinfo", err="no", code=1)
    with pytest.warns(RuntimeWarning, match="sinfo --version"):
        assert slurm.version() == (24, 5)


TABLE = "PARTITION,MEMORY\ndebug*,1\nbig,480000+\nsmall,512M\n"


@pytest.mark.parametrize(
    ("text", "partition", "expected"),
    [
        (TABLE, None, 1),
        (TABLE, "debug", 1),
        (TABLE, "big", 480000),
        (TABLE, "small", 512),
        (TABLE, "none", None),
        ("PARTITION,MEMORY\n", None, None),
        ("", None, None),
        ("PARTITION,MEMORY\nbig,9\n", None, None),
    ],
)
def test_the_memory_of_partitions(text, partition, expected):
    assert parse_memory(text, partition) == expected


def test_memory_is_not_asked_for_where_the_cluster_has_none(fake_slurm, scheduler):
    fake_slurm.answer("sinfo", TABLE)
    app = AppDef("a", [role(resource=Resource(cpu=1, gpu=0, memMB=100))])
    for partition, mem in ((None, None), ("big", "100"), ("big,debug", "100"), ("none", "100")):
        info = scheduler.submit_dryrun(app, {"partition": partition} if partition else {})
        assert info.request.replicas["r-0"].sbatch_opts.get("mem") == mem
    assert fake_slurm.calls()[0] == ["sinfo", "--format", "%P,%m", "--noconvert"]


def test_a_dry_run_needs_no_slurm_and_says_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    app = AppDef("a", [role(resource=Resource(cpu=1, gpu=0, memMB=100))])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = str(create_scheduler("t").submit_dryrun(app, {}))
    assert "--mem=100" in text


# -- typed options ------------------------------------------------------------------------------


def test_mail_options_have_hyphens_outside(scheduler):
    opts = dict(scheduler.run_opts())
    assert {"mail-user", "mail-type", "job_dir", "qos", "workspace_type"} <= set(opts)
    assert "Quality of Service" in opts["qos"].help
    info = scheduler.submit_dryrun(AppDef("a", [role()]), {"mail-user": "me"})
    assert isinstance(info.cfg, SlurmOpts)
    assert info.cfg.mail_user == "me"
    assert "--mail-user=me" in info.request.cmd


def test_the_dry_run_leaves_the_app_alone(scheduler):
    app = AppDef("a", [role(image="img", args=["${app_id}"], env={"A": "${replica_id}"})])
    before = copy.deepcopy(app)
    scheduler.submit_dryrun(app, {})
    assert app == before


def test_bad_options_are_refused_before_a_workspace_is_built(scheduler):
    app = AppDef("a", [role()])
    with pytest.raises(InvalidInput, match="time"):
        scheduler._pre_build_validate(app, "slurm", {"time": "soon"})


# -- cost ---------------------------------------------------------------------------------------


def test_the_dry_run_costs_per_role_and_not_per_replica(scheduler):
    args = ["--id", "${replica_id}"] * 10

    def memory(replicas: int) -> int:
        app = AppDef("a", [role(args=args, num_replicas=replicas)])
        tracemalloc.start()
        try:
            str(scheduler.submit_dryrun(app, {}))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    memory(1)
    assert memory(10_000) < memory(1) + 100_000
    few, many = (
        str(scheduler.submit_dryrun(AppDef("a", [role(args=args, num_replicas=n)]), {}))
        for n in (1000, 9999)
    )
    assert len(few) == len(many)


def test_importing_slurm_needs_no_other_scheduler():
    code = (
        "import sys, torchx.schedulers.slurm_scheduler as s; s.create_scheduler('t').run_opts(); "
        "bad = {'docker', 'yaml', 'fsspec', 'asyncio', 'tempfile', "
        "'torchx.schedulers.local_scheduler'}; print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
