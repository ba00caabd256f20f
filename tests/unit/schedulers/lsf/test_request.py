"""The native request: pure, from an app and its options."""

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.errors import InvalidInput, TorchXError, UnsupportedRequest
from torchx.schedulers.lsf_scheduler import Facts, LsfBsub, LsfOpts, create_scheduler
from torchx.schedulers.lsf_scheduler._job import clean_app_id, job_name, parse_job_name, role_stems
from torchx.schedulers.lsf_scheduler._request import build_request
from torchx.specs import AppDef, BindMount, Resource, RetryPolicy, Role, VolumeMount, macros

GOLDEN = Path(__file__).with_name("golden")
VOLUME = VolumeMount("v", "/b")
FACTS = Facts("/work", "/home/ann/.torchx", frozenset({"/images/dir"}))


def build(*roles: Role, **cfg: object) -> LsfBsub:
    opts = LsfOpts(**{"jobdir": "/shared", **cfg})  # type: ignore[arg-type]  # the test's
    return build_request(AppDef("app", [*roles]), "app-x1", opts, FACTS)


def argv(*roles: Role, **cfg: object) -> list[str]:
    return list(build(*roles, **cfg).jobs()[0].argv)


def role(**more: object) -> Role:
    return Role(**{"name": "worker", "image": "", "entrypoint": "main", **more})  # type: ignore[arg-type]  # as above


def golden_app() -> list[Role]:
    return [
        role(
            num_replicas=2,
            args=["--id", macros.replica_id, "it's $HOME"],
            env={"ROOT": macros.img_root, "TOKEN": "a b\nc"},
            resource=Resource(cpu=4, gpu=2, memMB=1024),
            max_retries=1,
            retry_policy=RetryPolicy.REPLICA,
        ),
        role(
            name="reader",
            image="repo/image:1",
            mounts=[BindMount("/data", "/data", read_only=True)],
            port_map={"http": 80},
        ),
    ]


@pytest.mark.parametrize(
    ("name", "cfg"),
    [
        ("arrays", {"queue": "gpu", "walltime": "1:30", "project": "p"}),
        ("apptainer", {"runtime": "apptainer"}),
        ("gang", {"gang": True, "on_failure": "wait"}),
    ],
)
def test_the_whole_request(name, cfg):
    """With ``UPDATE_GOLDEN`` set, the files are written anew."""
    roles = golden_app()
    if cfg.get("runtime"):
        roles[0].image = "image.sif"
    text = repr(build(*roles, **cfg))
    path = GOLDEN / f"{name}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_script_that_is_shown_would_submit_the_same(lsf_programs, tmp_path):
    request = build(role(entrypoint="true"), jobdir=str(tmp_path / "a b"))
    subprocess.run(["bash", "-c", request.materialize()], check=True, capture_output=True)
    (call,) = [call for call in lsf_programs.calls() if call.startswith("bsub")]
    assert call == " ".join(request.jobs()[0].argv)
    (job,) = request.jobs()
    assert Path(request.folder, "role-0.sh").read_text() == job.scripts["role-0.sh"]


def test_the_request_of_the_published_package_can_be_made():
    app = AppDef("app", [role(image="/i", entrypoint="echo", args=["hi", "$$H"])])
    request = LsfBsub(jobdir="/d", app_id="app-1", app=app, cfg={}, cmd=["/bin/bash"])
    text = request.materialize(rank0_host="ignored")
    assert "--entrypoint echo --rm /i hi '$H'" in text
    assert repr(request).startswith("/bin/bash $BSUB_SCRIPT\n\n#------------\n# BSUB_SCRIPT\n")


def test_options_become_arguments_of_bsub():
    found = argv(
        role(resource=Resource(2, 1, 512)),
        lsf_queue="gpu",
        project="p",
        walltime="90",
        app_profile="prof",
        sla="s",
        reservation="r#1",
        hosts="h1 h2",
        dependency='done("a b")',
        begin="20:00",
        exclusive=True,
        notify="end",
        resource_req="select[avx]",
        bsub_args="-sp 10 -u 'a b'",
    )
    pairs = dict(pairwise(found))
    wanted = {"-q": "gpu", "-P": "p", "-W": "90", "-app": "prof", "-sla": "s", "-U": "r#1"}
    wanted |= {"-m": "h1 h2", "-w": 'done("a b")', "-b": "20:00", "-n": "2"}
    wanted |= {"-gpu": "num=1:mode=shared:j_exclusive=yes", "-sp": "10", "-u": "a b"}
    assert wanted.items() <= pairs.items()
    assert {"-x", "-N"} <= {*found}
    requirements = [found[i + 1] for i, word in enumerate(found) if word == "-R"]
    assert requirements == ["span[hosts=1] rusage[mem=512]", "select[avx]"]


def test_what_the_user_requires_is_not_said_twice():
    found = argv(role(resource=Resource(2, 0, 512)), resource_req="span[ptile=2] rusage[mem=1GB]")
    assert [found[i + 1] for i, word in enumerate(found) if word == "-R"] == [
        "span[ptile=2] rusage[mem=1GB]"
    ]


def test_without_sizes_the_cluster_decides():
    found = argv(role())
    assert "-n" not in found
    assert found[found.index("-R") + 1] == "span[hosts=1]"
    assert "-Q" not in found


@pytest.mark.parametrize(
    ("image", "cfg", "program"),
    [
        ("", {}, "exec env"),
        ("/images/dir", {}, "cd -- /images/dir"),
        ("repo/image:1", {}, "docker run"),
        ("repo/image:1", {"runtime": "none"}, "cd -- /work"),
        ("image.sif", {"runtime": "apptainer"}, "apptainer exec"),
    ],
)
def test_the_runtime_follows_from_the_image(image, cfg, program):
    assert program in build(role(image=image), **cfg).materialize()


def test_without_jobdir_the_folder_is_in_the_home():
    assert build(role(), jobdir=None).folder == "/home/ann/.torchx/lsf/app-x1"
    assert build(role(), jobdir="rel/dir").folder == "/work/rel/dir/app-x1"


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        ({"walltime": "1h"}, "walltime.*hours:minutes.*1h"),
        ({"walltime": "1:75"}, "walltime"),
        ({"begin": "tomorrow"}, "begin.*tomorrow"),
        ({"runtime": "podman"}, "runtime.*docker, apptainer, none.*podman"),
        ({"queue": "a", "lsf_queue": "b"}, "queue.*lsf_queue"),
        ({"queue": "-P x"}, "queue.*begin with `-`"),
        ({"project": "a\nb"}, "project.*one line"),
        ({"project": " "}, "project.*one line"),
        ({"notify": "always"}, "notify.*always"),
        ({"on_failure": "x"}, "on_failure"),
        ({"bsub_args": "-J mine"}, "bsub_args.*-J"),
        ({"bsub_args": "'open"}, "bsub_args.*open quote"),
        ({"jobdir": "/a%J"}, "jobdir.*'%'"),
        ({"jobdir": "/a b", "gang": True}, "jobdir.*' '"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(cfg, words):
    with pytest.raises(InvalidInput, match=words):
        build(role(), **cfg)


@pytest.mark.parametrize(
    ("more", "cfg", "words"),
    [
        ({"mounts": [BindMount("/a", "/b")]}, {}, "worker.*runtime"),
        ({"name": "a\nb"}, {}, "role name"),
        ({"image": "i", "mounts": [VOLUME]}, {"runtime": "apptainer"}, "bind mount"),
        ({"image": "i", "mounts": [BindMount("/a:b", "/b")]}, {"runtime": "docker"}, "':'"),
        ({}, {"runtime": "docker"}, "no image"),
        ({"entrypoint": "a=b"}, {}, "a=b"),
        ({"env": {"-i": "x"}}, {}, "-i"),
        ({"num_replicas": 2, "min_replicas": 3}, {}, "min_replicas"),
        ({"num_replicas": 0}, {}, "at least one"),
    ],
)
def test_roles_that_cannot_run_are_refused(more, cfg, words):
    with pytest.raises((InvalidInput, UnsupportedRequest), match=words):
        build(role(**more), **cfg)


def test_the_app_and_its_later_changes_are_no_part_of_the_request():
    one = role(args=["a"])
    request = build(one)
    one.args.append("later")
    assert "later" not in request.materialize()


def test_10000_replicas_are_one_call_of_bsub():
    request = build(role(num_replicas=10_000))
    (job,) = request.jobs()
    assert "app-x1.0.worker[1-10000]" in job.argv
    assert len(request.materialize()) < 5000


def test_a_policy_that_cannot_be_is_refused():
    scheduler = create_scheduler("test")
    again = role(max_retries=1, retry_policy=RetryPolicy.REPLICA)
    with pytest.raises(TorchXError, match="REPLICA"):
        scheduler.submit_dryrun(AppDef("app", [again]), {"gang": True})
    again.retry_policy = RetryPolicy.ROLE
    with pytest.raises(TorchXError, match="ROLE"):
        scheduler.submit_dryrun(AppDef("app", [again]), {})


# -- names --------------------------------------------------------------------------------------

odd_names = st.one_of(
    st.text(min_size=1, max_size=90),
    st.sampled_from(["a.b", "a-b", "A_B", "a_b", "x" * 70 + "1", "x" * 70 + "2", "..", "-", "/"]),
)


@given(st.lists(odd_names, min_size=1, max_size=8, unique=True))
def test_names_of_files_and_jobs_stay_apart(names):
    stems = role_stems(names)
    assert len({stem.lower() for stem in stems}) == len(names)
    for i, stem in enumerate(stems):
        assert stem.isascii()
        assert len(stem) < 80
        assert not set(stem) & set("/.[]*%\n ")
        assert parse_job_name(f"{job_name('app-x', i, stem)}[7]") == ("app-x", i)


@given(st.text(max_size=200))
def test_ids_are_ids_whatever_the_name(name):
    app_id = clean_app_id(f"{name}-abc123")
    assert app_id.endswith("abc123")
    assert not app_id.startswith("-")
    assert parse_job_name(job_name(app_id, None)) == (app_id, None)
