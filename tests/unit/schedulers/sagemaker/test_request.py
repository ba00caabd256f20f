"""What would be sent to SageMaker, without SageMaker."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_aws.model import assert_valid, service_model, shape_problems
from torchx.errors import InvalidInput, UnsupportedRequest
from torchx.schedulers.aws_sagemaker_scheduler import Opts, create_scheduler
from torchx.schedulers.aws_sagemaker_scheduler._args import parse_args
from torchx.schedulers.aws_sagemaker_scheduler._command import (
    MOST_WORDS,
    REPLICA_MARK,
    WORD_CHARS,
    build_command,
    cut_script,
)
from torchx.schedulers.aws_sagemaker_scheduler._instances import instance_types
from torchx.schedulers.aws_sagemaker_scheduler._names import build_tags, is_job_name, job_name
from torchx.schedulers.aws_sagemaker_scheduler._placeholders import fill_in
from torchx.schedulers.aws_sagemaker_scheduler._request import build_request
from torchx.specs import AppDef, BindMount, Resource, Role, macros
from torchx.specs.named_resources_aws import NAMED_RESOURCES
from torchx.version import __version__

GOLDEN = Path(__file__).with_name("golden")
ARN = "arn:aws:iam::123456789012:role/Trainer"
MODEL = service_model("sagemaker")


KNOWN = {"<account>": "123456789012", "<region>": "eu-west-1", "<digest>": "d1"}


def checked(job):
    """A request that the service's model accepts."""
    assert_valid("sagemaker", "CreateTrainingJob", fill_in(job.job_def, KNOWN))
    return job


def role(name="trainer", **more):
    more.setdefault("resource", Resource(cpu=2, gpu=0, memMB=4096))
    return Role(name, more.pop("image", "i:1"), entrypoint=more.pop("entrypoint", "run"), **more)


def build(of, app="exp/My_App", metadata=None, **opts):
    opts.setdefault("role", ARN)
    made = AppDef(app, [of], metadata=metadata or {})
    return checked(build_request(made, "My-App-x1", Opts(**opts), {"/src": ""}))


def container(of=None, **opts):
    return build(of or role(), launch="container", **opts)


def script(*args, **opts):
    return build(role(args=list(args or ["train.py"])), **opts)


# -- whole requests ------------------------------------------------------------------------------


def single_script():
    return script("train.py", "--lr=1e-3", "--tag", "a=b", output_path="s3://b/out", region="r-1")


def full_script():
    return build(
        role(
            args=["-m", "pkg.train", "--epochs", "3", "--job", macros.app_id],
            num_replicas=4,
            env={"A": "b", "ID": macros.app_id, "HOST_NAME": macros.rank0_env},
            resource=NAMED_RESOURCES["aws_p4d.24xlarge"](),
        ),
        metadata={"team": "vision", "odd{key}": "a,b", "aws:x": "y"},
        role="Trainer",
        source_dir="src",
        dependencies=["../lib/"],
        code_location="s3://code/here",
        hyperparameters={"epochs": "1", "seed": "7"},
        environment={"A": "a", "C": "c"},
        output_kms_key="k1",
        disable_output_compression=True,
        volume_size=100,
        volume_kms_key="k2",
        keep_alive_period_in_seconds=600,
        max_run=3600,
        use_spot_instances=True,
        max_wait=7200,
        max_retry_attempts=3,
        checkpoint_s3_uri="s3://b/checkpoints",
        checkpoint_local_path="/ckpt",
        subnets=["subnet-1"],
        security_group_ids=["sg-1"],
        enable_network_isolation=True,
        encrypt_inter_container_traffic=True,
        training_repository_access_mode="Vpc",
        training_repository_credentials_provider_arn=(
            "arn:aws:lambda:us-east-1:123456789012:function:f"
        ),
        metric_definitions={"loss": "loss=([0-9.]+)"},
        enable_sagemaker_metrics=True,
        input_mode="FastFile",
        model_uri="s3://b/model",
        tags={"cost center": "1"},
        user="ann",
        enable_infra_check=True,
        debugger_hook_config=True,
        disable_profiler=True,
        container_log_level=10,
    )


def single_container():
    return container(role(args=["--lr", "1e-3", "$$HOME"]), output_path="s3://b/out")


def odd_container():
    args = ["-c", "echo\nof " + macros.replica_id, "it's"]
    of = role(
        entrypoint="sh", args=args, num_replicas=2, env={"ID": f"k={macros.replica_id}", "A": "b"}
    )
    return container(of, output_path="s3://b/out", hyperparameters={"a": "b"})


@pytest.mark.parametrize(
    "make", [single_script, full_script, single_container, odd_container], ids=lambda f: f.__name__
)
def test_whole_requests(make, request):
    text = str(make()).replace(__version__, "VERSION")
    golden = GOLDEN / f"{make.__name__}.yaml"
    assert text == golden.read_text()


def test_the_dry_run_needs_no_boto3(tmp_path):
    code = """
import sys
for name in ("boto3", "botocore", "docker"):
    sys.modules[name] = None
from torchx.runner import get_runner
from torchx.specs import AppDef, Resource, Role
role = Role("w", "i:1", entrypoint="run", resource=Resource(2, 0, 1024), num_replicas=10000)
cfg = {"role": "Trainer", "launch": "container"}
print(get_runner().dryrun(AppDef("app", [role]), "aws_sagemaker", cfg))
"""
    env = {"PATH": "/bin:/usr/bin", "HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert "InstanceCount: 10000" in done.stdout


def test_building_leaves_the_app_alone():
    of = role(args=["train.py"], env={"A": macros.app_id})
    before = repr(of)
    build(of, environment={"B": "1"})
    assert repr(of) == before


# -- scripts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-m", "pkg.train", "--lr=1e-3", "--tag", "a=b"], ("-m pkg.train", ["lr", "tag"])),
        (["--", "--x", "1"], ("--", ["x"])),
        (["t.py", "--a=b=c", "--b", "--c"], ("t.py", ["a", "b"])),
    ],
)
def test_args_of_a_script(args, expected):
    entry, named = parse_args(args)
    assert (entry, list(named)) == expected
    scheduler = create_scheduler("s")
    assert scheduler._parse_args(args) == (entry, named)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "no args"),
        (["-m"], "name of a module"),
        (["t.py", "x"], "given: `x`"),
        (["t.py", "--x"], "`--x` needs a value"),
        (["-c", "echo 1"], "launch=container"),
    ],
)
def test_args_that_are_no_script_are_refused(args, words):
    with pytest.raises(ValueError, match=words):
        parse_args(args)


def test_what_differs_between_instances_cannot_be_an_argument_of_a_script():
    for of in (
        role(args=["t.py", "--k", macros.replica_id]),
        role(args=["t.py"], env={"K": macros.replica_id}),
    ):
        with pytest.raises(InvalidInput, match=r"replica_id.*launch=container"):
            build(of)


def test_hyperparameters_have_limits():
    with pytest.raises(InvalidInput, match="2500"):
        script("t.py", "--x", "y" * 2499)
    script("t.py", "--x", "y" * 2498)
    with pytest.raises(InvalidInput, match="at most 94"):
        script("t.py", hyperparameters={f"k{i}": "1" for i in range(95)})


# -- commands ------------------------------------------------------------------------------------


def run_command(command, tmp_path, host=1, hosts=2):
    """What a container prints whose command this is."""
    (tmp_path / "resourceconfig.json").write_text(
        json.dumps(
            {
                "current_host": f"algo-{host}",
                "hosts": [f"algo-{i + 1}" for i in range(hosts)],
                "network_interface_name": "eth0",
            }
        )
    )
    done = subprocess.run(
        [*command.entrypoint, *command.arguments],
        capture_output=True,
        env={"PATH": "/bin:/usr/bin", "SM_INPUT_CONFIG_DIR": str(tmp_path)},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def printed(words, tmp_path, env=None, host=1):
    code, out, err = run_command(
        build_command("w", ["printf", "%s\\0", *words], env or {}), tmp_path, host
    )
    assert (code, err) == (0, b"")
    return out.decode().split("\0")[:-1]


def test_a_command_without_odd_words_has_no_shell():
    command = build_command("w", ["python", "-m", "train", "", "it's", "$HOME"], {})
    assert command.entrypoint == ["python"]
    assert command.arguments == ["-m", "train", "", "it's", "$HOME"]


ODD = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=0, max_size=40
)


@given(words=st.lists(ODD, min_size=1, max_size=6), long=st.integers(0, 3000))
def test_words_arrive_whatever_they_hold(words, long, tmp_path_factory):
    given_words = [*words, "x" * long, "line\nbreak\r\u2028 'quoted' \\n $(id)"]
    command = build_command("w", ["printf", "%s\\0", *given_words], {})
    assert all(len(word) <= WORD_CHARS for word in command.arguments)
    assert not any(char in word for word in command.arguments for char in "\n\r\u2028\x85")
    folder = tmp_path_factory.mktemp("container")
    assert printed(given_words, folder) == given_words


def test_many_words_are_put_together_by_the_shell(tmp_path):
    words = [str(i) for i in range(MOST_WORDS * 5)]
    assert printed(words, tmp_path) == words


def test_replicas_know_their_number(tmp_path):
    for host in (1, 12):
        words = printed([f"a{REPLICA_MARK}", REPLICA_MARK], tmp_path, host=host)
        assert words == [f"a{host - 1}", str(host - 1)]
    command = build_command("w", ["printenv", "ID"], {"ID": f"<{REPLICA_MARK}\n>"})
    assert run_command(command, tmp_path, 3, 4)[1] == b"<2\n>\n"


def test_a_container_without_its_number_says_so(tmp_path):
    command = build_command("w", ["echo", REPLICA_MARK], {})
    done = subprocess.run(
        [*command.entrypoint, *command.arguments],
        capture_output=True,
        text=True,
        env={"PATH": "/bin:/usr/bin", "SM_INPUT_CONFIG_DIR": str(tmp_path / "none")},
        check=False,
    )
    assert done.returncode == 1
    assert "no number of this host" in done.stderr


def test_a_command_that_is_too_long_is_refused():
    with pytest.raises(InvalidInput, match=r"role `w` has 30,0.. characters.*25,600"):
        build_command("w", ["x" * 30_000], {})


def test_the_script_of_a_cut_command_can_be_read():
    job = odd_container()
    assert "exec sh -c" in cut_script(job.job_def["AlgorithmSpecification"])
    assert cut_script(single_container().job_def["AlgorithmSpecification"]) is None


# -- instances -----------------------------------------------------------------------------------


def test_all_published_types_that_are_chosen_from_exist():
    known = MODEL.shape_for("TrainingInstanceType").enum
    assert set(instance_types()) - set(known) == set()
    left_out = {f"ml.{n.removeprefix('aws_')}" for n in NAMED_RESOURCES} - set(instance_types())
    assert left_out & set(known) == set()


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        (Resource(1, 0, 64), "ml.t3.medium"),
        (Resource(2, 0, 6000), "ml.m5.large"),
        (Resource(4, 1, 8000), "ml.g4dn.xlarge"),
        (Resource(1, 8, 1024), "ml.p3.16xlarge"),
        (NAMED_RESOURCES["aws_p4d.24xlarge"](), "ml.p4d.24xlarge"),
        (Resource(1, 0, 1, devices={"aws.amazon.com/neurondevice": 1}), "ml.trn1.2xlarge"),
    ],
)
def test_the_smallest_type_that_holds_the_resource(resource, expected):
    job = container(role(resource=resource))
    assert job.job_def["ResourceConfig"]["InstanceType"] == expected


@pytest.mark.parametrize(
    ("resource", "given_type", "words"),
    [
        (Resource(1, 8, 1024), "ml.g5.xlarge", "8 GPUs.*`ml.g5.xlarge` has 4 CPUs, 15 GiB, 1 GPU"),
        (Resource(1, 0, 64), "g5.xlarge", "write `ml.g5.xlarge`"),
        (Resource(1, 64, 64), None, "64 GPUs.*give the option `instance_type`"),
        (Resource(-1, -1, -1), None, "nothing given.*give the option `instance_type`"),
    ],
)
def test_types_that_do_not_fit_are_refused(resource, given_type, words):
    with pytest.raises(InvalidInput, match=words):
        container(role(resource=resource), instance_type=given_type)


def test_a_type_that_is_not_in_the_table_is_left_to_aws():
    job = container(role(resource=Resource(1, 1, 64)), instance_type="ml.g6.xlarge")
    assert job.job_def["ResourceConfig"]["InstanceType"] == "ml.g6.xlarge"


@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        ({}, (86_400, None)),
        ({"max_run": 60}, (60, None)),
        ({"use_spot_instances": True}, (86_400, 172_800)),
        ({"use_spot_instances": True, "max_run": 60}, (60, 120)),
        ({"use_spot_instances": True, "max_wait": 600}, (600, 600)),
        ({"use_spot_instances": True, "max_run": 60, "max_wait": 90}, (60, 90)),
    ],
)
def test_a_job_waits_at_least_as_long_as_it_runs(opts, expected):
    limits = container(**opts).job_def["StoppingCondition"]
    assert (limits["MaxRuntimeInSeconds"], limits.get("MaxWaitTimeInSeconds")) == expected


def test_the_number_of_instances():
    def count(**more):
        return container(role(num_replicas=3), **more).job_def["ResourceConfig"]["InstanceCount"]

    assert (count(), count(instance_count=5)) == (3, 5)


# -- what SageMaker does not take ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_retries": 1}, "max_retries=1.*max_retry_attempts"),
        ({"image": ""}, "has no image"),
        ({"env": {"A": "x" * 513}}, "`A` has 513 characters.*512"),
        ({"env": {"a.b": "x"}}, "given: `a.b`"),
        ({"env": {f"A{i}": "x" for i in range(99)}}, "101 environment variables"),
        ({"args": ["\udcff"]}, "not UTF-8"),
    ],
)
def test_roles_that_cannot_be(more, words):
    with pytest.raises((InvalidInput, UnsupportedRequest), match=words):
        container(role(**more))


@pytest.mark.parametrize(
    ("opts", "words"),
    [
        ({"git_config": {"repo": "x"}}, "`source_dir`"),
        ({"launch": "scripts"}, "Did you mean `script`"),
        ({"input_mode": "Fast"}, "File, Pipe, FastFile"),
        ({"max_retry_attempts": 31}, "1 to 30"),
        ({"volume_size": 0}, "at least 1"),
        ({"keep_alive_period_in_seconds": 30_000}, "0 to 21600"),
        ({"output_path": "/tmp/x"}, "s3://bucket/prefix, given: `/tmp/x`"),
        ({"subnets": ["a"]}, "`security_group_ids`: give both"),
        ({"security_group_ids": ["a"]}, "`subnets`: give both"),
        ({"max_wait": 9}, "`use_spot_instances`: give both"),
        ({"max_wait": 9, "max_run": 10, "use_spot_instances": True}, "at least 10, given: 9"),
        ({"launch": "container", "source_dir": "."}, "for launch=script"),
        ({"role": "no role"}, "name or the ARN of an IAM role"),
        ({"tags": {"a{": "b"}}, "cannot be in a tag"),
        ({"tags": {"aws:a": "b"}}, "kept for AWS"),
        ({"tags": {f"k{i}": "v" for i in range(50)}}, "at most 50 tags"),
        ({"tags": [{"Key": "a"}]}, "list of `Key` and `Value`"),
    ],
)
def test_options_that_cannot_be(opts, words):
    with pytest.raises((InvalidInput, UnsupportedRequest), match=words):
        build(role(args=["t.py"]), **opts)


def test_several_roles_and_mounts_are_refused():
    scheduler = create_scheduler("s")
    cfg = {"role": ARN, "launch": "container"}
    two = AppDef("a", [role("a"), role("b")])
    with pytest.raises(UnsupportedRequest, match="apps of one role"):
        scheduler.submit_dryrun(two, cfg)
    with pytest.raises(UnsupportedRequest, match="mounts"):
        scheduler.submit_dryrun(AppDef("a", [role(mounts=[BindMount("/a", "/b")])]), cfg)


def test_lists_of_the_first_generation_are_read():
    job = container(
        tags=[{"Key": "team", "Value": "a"}],
        metric_definitions=[{"Name": "loss", "Regex": "l=(.*)"}],
    )
    assert {"Key": "team", "Value": "a"} in job.job_def["Tags"]
    metrics = job.job_def["AlgorithmSpecification"]["MetricDefinitions"]
    assert metrics == [{"Name": "loss", "Regex": "l=(.*)"}]


# -- names ---------------------------------------------------------------------------------------


@given(st.text(max_size=90), st.from_regex("[a-z][a-z0-9]{0,13}", fullmatch=True))
def test_any_name_becomes_one_of_a_job(name, end):
    made = job_name(f"{name}-{end}")
    assert is_job_name(made)
    assert made.endswith(end)


@given(
    st.dictionaries(st.text(max_size=200), st.text(max_size=400), max_size=5),
)
def test_any_metadata_becomes_tags(metadata):
    tags = build_tags({"torchx": "1"}, {}, metadata)
    assert shape_problems(MODEL.shape_for("TagList"), tags) == []
    assert {"Key": "torchx", "Value": "1"} in tags


# -- what only the submission knows --------------------------------------------------------------


def test_only_our_own_places_are_filled_in():
    job = build(
        role(args=["t.py", "--x", "<account>"], env={"A": "<digest>"}), metadata={"a": "<region>"}
    )
    filled = fill_in(job.job_def, {**KNOWN, "<region>": "r-1"})
    assert filled["OutputDataConfig"]["S3OutputPath"] == "s3://sagemaker-r-1-123456789012/"
    parameters = filled["HyperParameters"]
    assert parameters["x"] == '"<account>"'
    assert parameters["sagemaker_submit_directory"] == (
        '"s3://sagemaker-r-1-123456789012/torchx-source/d1.tar.gz"'
    )
    assert parameters["sagemaker_region"] == '"r-1"'
    assert filled["Environment"]["A"] == "<digest>"
    assert "<account>" in job.job_def["OutputDataConfig"]["S3OutputPath"]
