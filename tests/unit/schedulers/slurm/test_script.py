"""The generated script, run for real with programs that stand in for those of Slurm."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchx.errors import InvalidInput
from torchx.schedulers.slurm_scheduler import SlurmBatchRequest, SlurmReplicaRequest
from torchx.schedulers.slurm_scheduler._request import Facts, build_request
from torchx.schedulers.slurm_scheduler._script import _SHELL_OWN
from torchx.specs import AppDef, Role, macros

from .fakes import CANNED, SRUN

DUMP = """
import json, os, sys
path, names, *args = [os.fsencode(a) for a in sys.argv[1:]]
wanted = json.loads(names)
env = [os.environb.get(name.encode()) for name in wanted]
with open(path, "w") as f:
    json.dump([[a.hex() for a in args], [None if v is None else v.hex() for v in env]], f)
"""


def run_script(
    text: str, folder: Path, tasks: int = 1, code: int | None = None, **env: str
) -> "subprocess.CompletedProcess[bytes]":
    """Runs a batch script as slurmd would."""
    script = folder / "job.sh"
    script.write_bytes(os.fsencode(text))
    known = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "localhost", "FAKE_TASKS": str(tasks)}
    done = subprocess.run(
        ["bash", str(script), "torchx:tok:app"],
        env={**os.environ, **known, **env},
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=60,
    )
    if code is not None:
        assert done.returncode == code, (done.stdout, done.stderr)
    return done


def script_of(*roles: Role, **cfg: object) -> str:
    return build_request(AppDef("app", [*roles]), cfg, Facts()).materialize()


@pytest.fixture
def srun(fake_slurm, tmp_path):
    """A folder to run in, with a srun that runs tasks here and a scontrol that does nothing."""
    fake_slurm.program("srun", SRUN)
    fake_slurm.program("scontrol", CANNED)
    fake_slurm.answer("scancel", code=1)
    folder = tmp_path / "work dir"
    folder.mkdir()
    return folder


# -- what arrives -------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)
nasty = st.sampled_from(
    ["", "'", '"', "`id`", "$(id)", "$HOME", "${HOME}", "a,b;c=d", "\n", "\r\n", "\\", "\\n", "!!",
     "TORCHX_ROLE_0", "\nTORCHX_ROLE_0\n", "#SBATCH --wrap", "%j", "*", "~", "ü火\U0001f525", "-n"]
)  # fmt: skip
values = st.one_of(texts, nasty, st.builds("".join, st.lists(st.one_of(nasty, texts), max_size=4)))
names = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True).filter(
        lambda n: not n.startswith(("LD_", "SLURM", "PYTHON", "FAKE", "TORCHX", "TEST_RUN", "LC_"))
        and n not in ("PATH", "_", "BASH_ENV", "ENV", "LANG", "LANGUAGE", "TZ", "HOME")
    ),
    st.sampled_from(["IFS", "PS4", "UID", "RANDOM", "SECONDS", "PWD", "SHLVL", "A1", "HF_TOKEN"]),
    st.sampled_from(["PIPESTATUS", "BASH_SOURCE", "BASH_VERSINFO", "FUNCNAME"]),
)


def escaped(text: str) -> str:
    """The text as a component writes it, so that no macro is meant."""
    return text.replace("$", "$$")


@pytest.fixture(params=["sh", "bash"])
def shell(request, fake_slurm):
    """Which shell is `sh` on the nodes: that of this machine, or bash as on most clusters."""
    path = shutil.which(request.param)
    assert path is not None
    (fake_slurm.folder / "sh").symlink_to(path)
    return request.param


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(args=st.lists(values, max_size=6), env=st.dictionaries(names, values, max_size=6))
def test_every_value_arrives_byte_for_byte(srun, shell, args, env):
    out = srun / "out.json"
    out.unlink(missing_ok=True)
    role = Role(
        "r",
        "",
        entrypoint=sys.executable,
        args=["-c", escaped(DUMP), str(out), json.dumps([*env]), *map(escaped, args)],
        env={name: escaped(value) for name, value in env.items()},
    )
    run_script(script_of(role), srun, code=0)
    found_args, found_env = json.loads(out.read_text())
    assert [bytes.fromhex(a) for a in found_args] == [a.encode() for a in args]
    assert dict(zip(env, found_env, strict=True)) == {k: v.encode().hex() for k, v in env.items()}


def test_variables_that_a_shell_keeps_for_itself_arrive(srun, shell):
    bash = subprocess.run(["bash", "-c", "compgen -v"], capture_output=True, text=True, check=True)
    own = {*bash.stdout.split(), *_SHELL_OWN, "BASH_LINENO", "BASH_ARGV", "BASH_REMATCH", "MAPFILE"}
    keep = ("LD_", "SLURM", "FAKE", "TORCHX", "PYTHON", "LC_", "LANG", "PATH", "BASH_ENV", "ENV")
    names = sorted(name for name in own if not name.startswith(keep))
    out = srun / "out.json"
    role = Role("r", "", entrypoint=sys.executable)
    role.args = ["-c", escaped(DUMP), str(out), json.dumps(names)]
    role.env = {name: f"1 of {name}" for name in names}
    run_script(script_of(role), srun, code=0)
    found = json.loads(out.read_text())[1]
    lost = [
        name for name, v in zip(names, found, strict=True) if v != role.env[name].encode().hex()
    ]
    assert lost == []


def test_bytes_that_are_no_text_arrive_as_well(srun):
    out = srun / "out.json"
    odd = os.fsdecode(b"\xff\xfe ok")
    role = Role("r", "", entrypoint=sys.executable, args=["-c", DUMP, str(out), '["V"]', odd])
    role.env["V"] = odd
    run_script(script_of(role), srun, code=0)
    args, env = json.loads(out.read_text())
    assert args == env == [b"\xff\xfe ok".hex()]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hello slurm", "'hello slurm'"),
        ("run_${app_id}_x", 'run_"$SLURM_JOB_ID"_x'),
        ("hi ${app_id}", "'hi '\"$SLURM_JOB_ID\"''"),
        ("$HOME", "'$HOME'"),
    ],
)
def test_only_macros_are_live_in_what_the_shell_sees(text, shown):
    request = SlurmReplicaRequest("r-0", text, [text], {}, {}, {})
    assert request.materialize()[1] == ["--export=ALL", shown, shown]


def test_macros_are_resolved_where_the_replica_runs(srun):
    args = ["${app_id}", "x${replica_id}y", "$${app_id}", "$$$${replica_id}", "${img_root}"]
    args += [f"$${macros.app_id}", "${rank0_env}", "$HOME", "$$"]
    role = Role("r", "/img $x", entrypoint="sh", args=["-c", 'printf "%s|" "$$@"', "sh", *args])
    role.num_replicas = 3
    role.args.append('"$$V"')
    role.env["V"] = "k=${replica_id}"
    run_script(script_of(role), srun, tasks=3, code=0)
    for k in range(3):
        found = (srun / f"slurm-77-r-{k}.out").read_text().split("|")
        assert found[:5] == ["77", f"x{k}y", "${app_id}", "$${replica_id}", "/img $x"]
        assert found[5:9] == ["$77", "TORCHX_RANK0_HOST", "$HOME", "$"]


def test_the_values_of_a_replica_do_not_change_what_macros_mean(srun):
    role = Role("r", "", entrypoint="sh", args=["-c", 'echo "$$V" ${replica_id}'])
    role.env = {"SLURM_PROCID": "9", "SLURM_JOB_ID": "1", "V": "${app_id}/${replica_id}"}
    run_script(script_of(role), srun, code=0)
    assert (srun / "slurm-77-r-0.out").read_text() == "77/0 0\n"


def test_secrets_are_neither_printed_nor_arguments_of_a_program(srun, fake_slurm):
    role = Role("r", "", entrypoint="sh", args=["-c", "tr '\\0' ' ' </proc/$$PPID/cmdline"])
    role.env["HF_TOKEN"] = "s3cr3t"
    done = run_script(script_of(role), srun, code=0)
    assert b"s3cr3t" not in done.stdout + done.stderr
    assert "s3cr3t" not in fake_slurm.calls_file.read_text()
    shown = (srun / "slurm-77-r-0.out").read_text()
    assert "sh -s" in shown
    assert "s3cr3t" not in shown


def test_the_entrypoint_may_have_spaces_and_quotes(srun):
    program = srun / "it's a program"
    program.write_text("#!/bin/sh\necho ran $0\n")
    program.chmod(0o700)
    run_script(script_of(Role("r", "", entrypoint=str(program))), srun, code=0)
    assert (srun / "slurm-77-r-0.out").read_text() == f"ran {program}\n"


def test_the_replica_reads_no_input_and_gets_the_umask_of_the_user(srun):
    role = Role("r", "", entrypoint="sh", args=["-c", "cat; umask"])
    run_script(script_of(role), srun, code=0)
    mask = os.umask(0)
    os.umask(mask)
    assert int((srun / "slurm-77-r-0.out").read_text(), 8) == mask


def test_values_that_no_process_can_have_are_refused(scheduler):
    def refuse(role: Role, words: str) -> None:
        with pytest.raises(InvalidInput, match=words):
            scheduler.submit_dryrun(AppDef("app", [role]), {})

    for role in (
        Role("r", "", entrypoint="a\0b"),
        Role("r", "", entrypoint="a", args=["\0"]),
        Role("r", "", entrypoint="a", env={"A": "x\0"}),
        Role("r", "/\0", entrypoint="${img_root}/a"),
    ):
        refuse(role, "NUL")
    for role in (
        Role("r", "", entrypoint="\ud83d"),
        Role("r", "", entrypoint="a", args=["half \ud83d of a pair"]),
        Role("r", "", entrypoint="a", env={"A": "\ud83d"}),
        Role("r", "/\ud83d", entrypoint="${img_root}/a"),
    ):
        refuse(role, "surrogate")
    for name in ("A-B", "1A", "A B", "A\nB"):
        refuse(Role("r", "", entrypoint="a", env={name: "x"}), "name of a variable")
    for name in ("", "A=B"):
        refuse(Role("r", "", entrypoint="a", env={name: "x"}), "name of an environment variable")


CRLF = "-----BEGIN CERTIFICATE-----\r\nMIIB\r\n\r'$x'\r\n"


def test_line_breaks_of_dos_arrive_and_are_in_no_script(srun, shell):
    """``sbatch`` refuses a script that holds some."""
    out = srun / "out.json"
    args = ["-c", escaped(DUMP), str(out), '["CERT", "UID"]', escaped(CRLF)]
    role = Role("r", "", entrypoint=sys.executable, args=args)
    role.env = {"CERT": escaped(CRLF), "UID": escaped(CRLF)}
    text = script_of(role, srun_args="'--prolog=a\r\nb'")
    assert "\r" not in text
    run_script(text, srun, code=0)
    found_args, found_env = json.loads(out.read_text())
    assert found_args == [CRLF.encode().hex()]
    assert found_env == [CRLF.encode().hex()] * 2


def test_a_comment_with_line_breaks_stays_a_comment(srun):
    """The command line is shown in one; a program may have added to it."""
    request = build_request(AppDef("app", [Role("r", "", entrypoint="true")]), {}, Facts())
    request.cmd.append("--comment=x\ntouch pwned\n#SBATCH --hold\r")
    text = request.materialize()
    run_script(text, srun, code=0)
    assert not (srun / "pwned").exists()
    assert "\n#SBATCH --hold" not in text


def test_a_role_runs_in_its_own_directory_and_its_files_stay_with_the_job(srun):
    own = srun / "it's own"
    own.mkdir()
    (own / "run.sh").write_text("#!/bin/sh\npwd\necho $PWD\n")
    (own / "run.sh").chmod(0o755)
    role = Role("r", "", entrypoint="./run.sh")
    work_dirs = {"r": str(own)}
    request = build_request(AppDef("app", [role]), {}, Facts(), work_dirs=work_dirs)
    run_script(request.materialize(), srun, code=0)
    assert (srun / "slurm-77-r-0.out").read_text() == f"{own}\n{own}\n"
    assert [p.name for p in own.iterdir()] == ["run.sh"]
    (own / "run.sh").unlink()
    own.rmdir()
    assert run_script(request.materialize(), srun).returncode != 0
    assert "it's own" in (srun / "slurm-77-r-0.err").read_text()


# -- how it ends --------------------------------------------------------------------------------


def test_success_is_exit_code_0_without_a_requeue(srun, fake_slurm):
    run_script(script_of(Role("r", "", entrypoint="true", max_retries=3)), srun, code=0)
    assert fake_slurm.calls("scontrol") == []


def test_a_failure_is_the_exit_code_of_the_job(srun, fake_slurm):
    role = Role("r", "", entrypoint="sh", args=["-c", "exit 7"])
    done = run_script(script_of(role), srun, code=7)
    assert b"job exited with code 7" in done.stdout
    assert fake_slurm.calls("scontrol") == []


@pytest.mark.parametrize(
    ("restarts", "requeued"), [("", True), ("0", True), ("1", True), ("2", False), ("5", False)]
)
def test_a_failure_is_requeued_while_retries_are_left(srun, fake_slurm, restarts, requeued):
    role = Role("r", "", entrypoint="sh", args=["-c", "exit 7"], max_retries=2)
    run_script(script_of(role), srun, code=7, SLURM_RESTART_COUNT=restarts)
    assert fake_slurm.calls("scontrol") == ([["scontrol", "requeue", "77"]] if requeued else [])
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    attempt = restarts or "0"
    assert (notes / f"requeue-{attempt}").exists() is requeued
    assert (notes / f"end-{attempt}-7").exists() is not requeued


def test_a_requeue_that_is_refused_is_the_end_of_the_job(srun, fake_slurm):
    fake_slurm.answer("scontrol", err="no", code=4)
    role = Role("r", "", entrypoint="false", max_retries=2)
    run_script(script_of(role), srun, code=4)
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    assert (notes / "end-0-4").exists()


def test_a_failing_role_fails_the_job_though_others_succeed(srun):
    roles = [
        Role("a", "", entrypoint="sh", args=["-c", "exit 5"]),
        Role("b", "", entrypoint="true"),
    ]
    done = run_script(script_of(*roles), srun, code=5)
    assert b"role a failed with code 5" in done.stderr
    roles.reverse()
    run_script(script_of(*roles), srun, code=5)


def test_a_failing_role_ends_the_others(srun):
    roles = [
        Role("a", "", entrypoint="sh", args=["-c", "sleep 0.2; exit 5"]),
        Role("b", "", entrypoint="sleep", args=["600"]),
    ]
    # the stand-in for srun does not end its task, as the real one does
    text = script_of(*roles).replace("sleep 600", "sleep 3")
    run_script(text, srun, code=5)


def test_other_roles_go_on_if_the_option_says_so(srun, fake_slurm):
    roles = [
        Role("a", "", entrypoint="sh", args=["-c", "exit 5"]),
        Role("b", "", entrypoint="sh", args=["-c", "sleep 1; echo done"]),
    ]
    text = script_of(*roles, on_failure="wait")
    assert "srun --het-group=0 --wait=0 --kill-on-bad-exit=0 " in text
    run_script(text, srun, code=5)
    assert (srun / "slurm-77-b-0.out").read_text() == "done\n"
    assert fake_slurm.calls("scancel") == []
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    assert json.loads((notes / "job.json").read_text())["end_on_failure"] is False


@pytest.mark.parametrize(("failures", "code"), [(0, 0), (1, 0), (2, 0), (3, 3)])
def test_as_many_replicas_may_fail_as_there_are_more_than_are_needed(srun, failures, code):
    script = f"[ ${{replica_id}} -ge {failures} ] || exit 3"
    role = Role("r", "", entrypoint="sh", args=["-c", script], num_replicas=12, min_replicas=10)
    text = script_of(role)
    assert "--wait=0 --kill-on-bad-exit=1 " in text
    more = {"SLURM_STEP_NUM_TASKS": "12", "SLURM_STEP_NUM_NODES": "12"}
    run_script(text, srun, tasks=12, code=code, **more)
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    assert len([*notes.glob("exit-0-0-*-3")]) == failures


def test_a_hundred_roles_are_a_hundred_steps(srun, fake_slurm):
    roles = [Role(f"r{i}", "", entrypoint="echo", args=[str(i)]) for i in range(30)]
    run_script(script_of(*roles), srun, code=0)
    calls = fake_slurm.calls_file.read_text().splitlines()
    assert sorted(int(c.split("--het-group=")[1].split()[0]) for c in calls) == [*range(30)]
    assert (srun / "slurm-77-r29-0.out").read_text() == "29\n"


def test_attempts_have_log_files_of_their_own(srun):
    role = Role("r/ x", "", entrypoint="sh", args=["-c", 'echo "$$TORCHX_ATTEMPT"; echo e >&2'])
    text = script_of(role)
    for attempt in ("", "1", "2"):
        run_script(text, srun, code=0, SLURM_RESTART_COUNT=attempt)
    assert sorted(p.name for p in srun.glob("slurm-*")) == [
        f"slurm-77-r__x-0{again}.{suffix}"
        for again in ("", ".r1", ".r2")
        for suffix in ("err", "out")
    ]
    assert (srun / "slurm-77-r__x-0.r2.out").read_text() == "2\n"


def test_notes_tell_how_each_replica_ended(srun):
    role = Role("r", "", entrypoint="sh", args=["-c", "exit ${replica_id}"], num_replicas=3)
    run_script(script_of(role), srun, tasks=3, code=2)
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    assert notes.name == "77-tok"
    assert notes.stat().st_mode & 0o77 == 0
    names = sorted(p.name for p in notes.iterdir())
    assert [n for n in names if n.startswith("exit")] == [f"exit-0-0-{k}-{k}" for k in range(3)]
    assert json.loads((notes / "job.json").read_text())["roles"][0]["replicas"] == 3


def test_a_replica_that_is_sent_a_signal_notes_that(srun):
    script = "[ ${replica_id} = 1 ] || exit 2; trap '' TERM; kill -TERM $$PPID; exit 5"
    role = Role("r", "", entrypoint="sh", args=["-c", script], num_replicas=2)
    run_script(script_of(role), srun, tasks=2, code=5)
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    assert sorted(p.name for p in notes.glob("e*-0-0-*")) == [
        "ended-0-0-1", "exit-0-0-0-2", "exit-0-0-1-5",
    ]  # fmt: skip


# -- hosts --------------------------------------------------------------------------------------

RANK0 = Role("r", "", entrypoint="sh", args=["-c", "echo $${${rank0_env}}"])


def test_a_single_host_needs_no_question(srun, fake_slurm):
    run_script(script_of(RANK0), srun, code=0)
    assert (srun / "slurm-77-r-0.out").read_text() == "localhost\n"
    assert fake_slurm.calls("scontrol") == []


def test_an_expression_of_hosts_is_expanded_by_slurm(srun, fake_slurm):
    fake_slurm.answer("scontrol", "localhost\nn2\n")
    run_script(script_of(RANK0), srun, code=0, SLURM_JOB_NODELIST="n[1-2]")
    assert (srun / "slurm-77-r-0.out").read_text() == "localhost\n"
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    assert (notes / "hosts-0-0").read_text() == "localhost\nn2\n"


def test_a_node_whose_name_does_not_resolve_is_told_by_its_address(srun, fake_slurm):
    fake_slurm.answer("scontrol", "NodeName=no-such-host Arch=x NodeAddr=10.1.2.3 X=1\n")
    run_script(script_of(RANK0), srun, code=0, SLURM_JOB_NODELIST="no-such-host.invalid")
    assert (srun / "slurm-77-r-0.out").read_text() == "10.1.2.3\n"


def test_the_first_role_has_the_first_host(srun):
    hosts = {"SLURM_JOB_NODELIST_HET_GROUP_0": "localhost"}
    hosts["SLURM_JOB_NODELIST_HET_GROUP_1"] = "other.invalid"
    other = Role("other", "", entrypoint="sh", args=RANK0.args)
    run_script(script_of(RANK0, other), srun, code=0, **hosts)
    assert (srun / "slurm-77-other-0.out").read_text() == "localhost\n"


def test_the_first_role_has_the_first_host_wherever_its_component_is(srun):
    hosts = {"SLURM_JOB_NODELIST_HET_GROUP_1": "localhost"}
    hosts["SLURM_JOB_NODELIST_HET_GROUP_0"] = "other.invalid"
    first = Role("r", "", entrypoint="sh", args=RANK0.args, num_replicas=2, min_replicas=1)
    other = Role("other", "", entrypoint="sh", args=RANK0.args)
    run_script(script_of(first, other), srun, code=0, **hosts)
    for role in ("r", "other"):
        assert (srun / f"slurm-77-{role}-0.out").read_text() == "localhost\n"
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    assert (notes / "hosts-0-1").read_text() == "other.invalid\n"


def test_replicas_that_share_nodes_tell_which_is_theirs(srun):
    text = script_of(Role("r", "", entrypoint="true", num_replicas=2))
    told = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2", "SLURMD_NODENAME": "n-1"}
    run_script(text, srun, tasks=2, code=0, **told)
    (notes,) = (srun / f".torchx-slurm-{os.getuid()}").iterdir()
    assert [*notes.glob("host-*")] == []
    run_script(text, srun, tasks=2, code=0, **{**told, "SLURM_STEP_NUM_NODES": "1"})
    assert sorted(p.name for p in notes.glob("host-*")) == ["host-0-0-0-n-1", "host-0-0-1-n-1"]


# -- the text -----------------------------------------------------------------------------------


def test_a_request_made_by_hand_becomes_a_script():
    replica = SlurmReplicaRequest(
        "w-0", "echo", ["hi"], {"mpi": "pmix"}, {"requeue": None, "mem": "5"}, {"A": "1"}
    )
    request = SlurmBatchRequest(["sbatch", "--parsable"], {"w-0": replica}, None, 0)
    text = request.materialize()
    assert text.startswith("#!/bin/bash\n#\n# Generated by TorchX ")
    assert "# Run with: sbatch --parsable\n" in text
    assert "#SBATCH --job-name=w-0 --requeue --mem=5\n" in text
    assert "srun --mpi=pmix --export=ALL " in text
    assert "set -x" not in text
    assert "hetjob" not in text
    first = repr(request).split("\n")[:5]
    assert first == [
        "sbatch --parsable $SBATCH_SCRIPT",
        "",
        "#----------------",
        "# SBATCH_SCRIPT",
        "#----------------",
    ]


def test_sizes_of_tasks_are_told_to_each_step():
    """Since 22.05 srun does not take them from the allocation, nor those of its own component."""
    replica = SlurmReplicaRequest(
        "w-0", "echo", [], {}, {"cpus-per-task": "3", "gpus-per-node": "2"}, {}
    )
    text = SlurmBatchRequest(["sbatch"], {"w-0": replica}, None, 0).materialize()
    assert "srun --cpus-per-task=3 --gpus-per-node=2 --export=ALL " in text


def test_a_container_sees_the_directory_of_the_logs():
    role = Role("r", "img", entrypoint="true")
    text = script_of(role, container_image="nvcr.io#x/y:1", container_mounts="/d a:/d")
    assert "'--container-image=nvcr.io#x/y:1'" in text
    assert """--container-mounts="$PWD:$PWD"',/d a:/d'""" in text


def test_a_container_starts_in_the_directory_of_the_job():
    text = script_of(Role("r", "img", entrypoint="true"), container_image="nvcr.io#x/y:1")
    assert ' --container-workdir="$PWD" ' in text
    given = {"container_image": "i", "srun_args": "--container-workdir=/w"}
    text = script_of(Role("r", "img", entrypoint="true"), **given)
    assert " --container-workdir=/w " in text
    assert text.count("workdir") == 1


def test_a_container_starts_in_the_directory_of_its_role():
    request = build_request(
        AppDef("app", [Role("r", "/j d/r", entrypoint="true")]),
        {"container_image": "i"},
        Facts(),
        work_dirs={"r": "/j d/r"},
    )
    assert " --container-workdir='/j d/r' " in request.materialize()
    assert "cd --" not in request.materialize()


def test_an_image_with_the_workspace_in_it_says_where_its_container_starts():
    role = Role("r", "img", entrypoint="true")
    text = build_request(AppDef("app", [role]), {}, Facts(), builder="docker").materialize()
    assert "--container-image=img" in text
    assert "workdir" not in text
