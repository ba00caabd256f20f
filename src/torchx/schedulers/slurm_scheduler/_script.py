"""Renders the batch script, which starts one step for each role and keeps the job's record.

Differences between replicas are resolved on their nodes: each task of a step gets a small POSIX
shell program through srun's input (arguments and environment variables would be visible in ``ps``),
knows its rank, and redirects its output into its own files. Variables whose names begin with
``TORCHX_`` are those of ``torchx.settings``; those in lower case are the script's own.
"""

import json
import re
import shlex
import signal
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from torchx.errors import InvalidInput
from torchx.version import __version__

from ._job import RECORD_DIR, safe_name
from ._macros import quote, quote_line
from ._options import conflicts

if TYPE_CHECKING:
    from ._request import SlurmBatchRequest, SlurmReplicaRequest

_HEAD = """\
export PYTHONUNBUFFERED=1
export SLURM_UNBUFFEREDIO=1
export TORCHX_MAX_RETRIES={max_retries}
{cr}
torchx_mark=${{1-}}
torchx_token=${{torchx_mark#torchx:}}
torchx_token=${{torchx_token%%:*}}
export TORCHX_ATTEMPT=${{SLURM_RESTART_COUNT:-0}}
torchx_dir=$PWD/{record_dir}$UID/${{SLURM_JOB_ID:-0}}-${{torchx_token:-none}}

# what readers of the logs need to know: roles, hosts, and how replicas end
torchx_note() {{ {{ true >"$torchx_dir/$1"; }} 2>/dev/null; }}
(umask 077 && mkdir -p -- "$torchx_dir")
cat >"$torchx_dir/job.$$" <<'{end}' && mv -- "$torchx_dir/job.$$" "$torchx_dir/job.json"
{record}
{end}
torchx_hosts() {{ # the nodes of a list, one a line
    case $1 in
    *[[,]*) scontrol show hostnames "$1" || echo "${{SLURMD_NODENAME:-localhost}}" ;;
    *) echo "${{1:-localhost}}" ;;
    esac
}}
torchx_address() {{ # a name under which the network knows a node
    if [ "$1" = localhost ] || getent hosts "$1" >/dev/null 2>&1; then
        echo "$1"
    else
        torchx_addr=$(scontrol -o show node "$1" 2>/dev/null |
            sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')
        echo "${{torchx_addr:-$1}}"
    fi
}}
"""

_HOSTS = """\
torchx_at[{index}]=$(torchx_hosts \
"${{SLURM_JOB_NODELIST_HET_GROUP_{group}:-${{SLURM_JOB_NODELIST-}}}}")
echo "${{torchx_at[{index}]}}" >"$torchx_dir/hosts-$TORCHX_ATTEMPT-{index}"
"""

_RANK0 = """\
export TORCHX_RANK0_HOST
TORCHX_RANK0_HOST=$(torchx_address "${torchx_at[0]%%[[:space:]]*}")

torchx_killed=''
trap 'torchx_killed=1; torchx_note "killed-$TORCHX_ATTEMPT"' TERM
torchx_pids=()
"""

_TAIL = """\

# the first role that fails ends the others, which have some seconds for it, if that is wanted
exitcode=0
torchx_timer=''
torchx_left=${#torchx_pids[@]}
while [ "$torchx_left" -gt 0 ]; do
    if [ "${#torchx_pids[@]}" = 1 ]; then
        wait ${torchx_pids[*]}
    elif [ "${BASH_VERSINFO[0]}" -ge 5 ]; then
        wait -n ${torchx_pids[*]} $torchx_timer # without those that have ended
    else
        sleep 1
    fi
    if [ -n "$torchx_timer" ] && ! kill -0 "$torchx_timer" 2>/dev/null; then
        torchx_timer=''
        kill ${torchx_pids[*]} 2>/dev/null
    fi
    for torchx_i in "${!torchx_pids[@]}"; do
        torchx_pid=${torchx_pids[torchx_i]}
        if [ -z "$torchx_pid" ] || kill -0 "$torchx_pid" 2>/dev/null; then
            continue
        fi
        wait "$torchx_pid"
        torchx_code=$?
        torchx_pids[torchx_i]=''
        torchx_left=$((torchx_left - 1))
        torchx_note "role-$TORCHX_ATTEMPT-$torchx_i-$torchx_code"
        if [ "$torchx_code" != 0 ] && [ "$exitcode" = 0 ]; then
            exitcode=$torchx_code
            echo "role ${torchx_roles[torchx_i]} failed with code $torchx_code" >&2
            # srun itself knows only how to kill its tasks
            if [ "$torchx_left" = 0 ] || [ "$torchx_on_failure" = wait ]; then
                :
            elif scancel --quiet --signal=TERM "$SLURM_JOB_ID" 2>/dev/null; then
                sleep 10 &
                torchx_timer=$!
            else
                kill ${torchx_pids[*]} 2>/dev/null
            fi
        fi
    done
done
if [ -n "$torchx_timer" ]; then
    disown "$torchx_timer" # or its end would be reported
    kill "$torchx_timer" 2>/dev/null
fi

echo "job exited with code $exitcode"
if [ "$exitcode" != 0 ] && [ -z "$torchx_killed" ] &&
    [ "$TORCHX_MAX_RETRIES" -gt "${SLURM_RESTART_COUNT:-0}" ]; then
    trap : TERM # the requeue ends this script
    torchx_note "requeue-$TORCHX_ATTEMPT"
    scontrol requeue "$SLURM_JOB_ID" && exit "$exitcode"
    exitcode=$?
    rm -f -- "$torchx_dir/requeue-$TORCHX_ATTEMPT"
fi
if [ -z "$torchx_killed" ]; then
    torchx_note "end-$TORCHX_ATTEMPT-$exitcode"
else # whether this attempt was the last one, only Slurm knows
    torchx_note "over-$TORCHX_ATTEMPT"
fi
exit "$exitcode"
"""

_TASK = """\
torchx_log=$1/slurm-$2-{stem}-${{SLURM_PROCID:=0}}
torchx_exit=$3/exit-$4-{index}-$SLURM_PROCID
torchx_error=$3/error-$4-{index}-$SLURM_PROCID.json
SLURM_JOB_ID=$2
[ "$4" = 0 ] || torchx_log=$torchx_log.r$4
if [ "${{SLURM_STEP_NUM_TASKS-}}" != "${{SLURM_STEP_NUM_NODES-}}" ]; then # they share nodes
    {{ true >"$3/host-$4-{index}-$SLURM_PROCID-$SLURMD_NODENAME"; }} 2>/dev/null
fi
torchx_ended=''
trap : HUP INT QUIT USR1 USR2 ALRM{signal}
trap 'torchx_ended=1' TERM # all processes of a step get it
{cr}(
{cd}set -- {command}
export TORCHELASTIC_ERROR_FILE="$torchx_error"
{exports}exec{env} "$@"
) </dev/null >"$torchx_log.out" 2>"$torchx_log.err"
torchx_code=$?
[ -z "$torchx_ended" ] || {{ true >"$3/ended-$4-{index}-$SLURM_PROCID"; }} 2>/dev/null
{{ true >"$torchx_exit-$torchx_code"; }} 2>/dev/null
{spare}exit $torchx_code
"""

_SPARE = """\
if [ $torchx_code != 0 ]; then # as many may fail as there are more than are needed
    set -- "$3/exit-$4-{index}-"*-[1-9]*
    [ $# -gt $((SLURM_STEP_NUM_TASKS - {least})) ] || exit 0
fi
"""
_CR = "torchx_cr=$(printf '\\r')\n"
"""Slurm refuses scripts with a carriage return before a newline."""

_SHELL_NAMES = """
    _ BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND
    BASH_LINENO BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG BASH_VERSINFO
    COLUMNS COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD
    HISTSIZE HISTFILESIZE IFS LANG LANGUAGE LINENO LINES OLDPWD OPTIND OPTERR PIPESTATUS
    POSIXLY_CORRECT PPID PS1 PS2 PS4 PWD RANDOM SECONDS SHELLOPTS SHLVL SRANDOM TIMEFORMAT
    TMOUT UID
"""
_SHELL_OWN = frozenset(_SHELL_NAMES.split())
"""Variables with a special meaning or value in a shell when they are assigned."""


def render_script(request: "SlurmBatchRequest") -> str:
    """Renders the batch script; its only argument is the result of ``mark``."""
    replicas = list(request.replicas.values())
    # a comment must stay one, whatever the options are
    command = shlex.join(request.cmd).replace("\\", "\\\\").replace("\n", "\\n")
    command = command.replace("\r", "\\r")
    lines = ["#!/bin/bash", "#", f"# Generated by TorchX {__version__}"]
    lines += [f"# Run with: {command}", "#", "#SBATCH --open-mode=append"]
    groups = het_groups(replicas)
    for i in sorted(range(len(replicas)), key=groups.__getitem__):
        if groups[i]:
            lines.append("#SBATCH hetjob")
        lines.append("#SBATCH " + " ".join(replicas[i].materialize_sbatch()))
    record = json.dumps(record_of(request))
    head = _HEAD.format(
        max_retries=int(request.max_retries),
        record_dir=RECORD_DIR,
        record=record,
        end=_delimiter(record, "TORCHX_RECORD"),
        cr=_CR,
    )
    parts = ["\n".join(lines), "\n\n", head]
    parts += [_HOSTS.format(index=i, group=group) for i, group in enumerate(groups)]
    roles = " ".join(shlex.quote(replica.role_name) for replica in replicas)
    on_failure = "end" if request.end_on_failure else "wait"
    parts += [_RANK0, f"torchx_on_failure={on_failure}\ntorchx_roles=({roles})\n"]
    het = len(replicas) > 1
    parts += [_step(i, replica, groups[i] if het else None) for i, replica in enumerate(replicas)]
    parts.append(_TAIL)
    return "".join(parts)


def het_groups(replicas: "Sequence[SlurmReplicaRequest]") -> list[int]:
    """Orders the roles as components of the job: first those that fit on the fewest nodes.

    Slurm allocates one component after the other, each with the first nodes that fit and as many as
    allowed: a role without GPUs would take the nodes that have some, one with a range of replicas
    would leave too few for later ones, and the job would wait forever.
    """
    if len(replicas) == 1:
        return [0]
    order = sorted(range(len(replicas)), key=lambda i: _abundance(replicas[i]))
    groups = [0] * len(replicas)
    for group, i in enumerate(order):
        groups[i] = group
    return groups


def _abundance(replica: "SlurmReplicaRequest") -> tuple[bool, int, bool, int, int]:
    """Returns a sort key: roles that fit on few nodes come before those that fit on many."""
    opts = replica.sbatch_opts
    gpus = max(_last_number(opts.get(n)) for n in ("gpus-per-node", "gpus-per-task", "gpus"))
    if "gpu" in (opts.get("gres") or ""):
        gpus = max(gpus, _last_number(opts["gres"]), 1)
    picky = any(opts.get(name) for name in ("constraint", "nodelist", "exclude"))
    mem, cpus = (_last_number(opts.get(name)) for name in ("mem", "cpus-per-task"))
    return replica.elastic, -gpus, not picky, -mem, -cpus


def _last_number(text: str | None) -> int:
    digits = re.findall(r"\d+", text) if text else ()
    return int(digits[-1]) if digits else 0


def record_of(request: "SlurmBatchRequest") -> dict[str, object]:
    """Returns the record for readers of a job, without arguments and environment."""
    roles = [
        {
            "name": replica.role_name,
            "stem": safe_name(replica.role_name),
            "replicas": replica.num_replicas,
            "image": replica.image,
            "entrypoint": replica.entrypoint,
            "min_replicas": replica.min_replicas,
        }
        for replica in request.replicas.values()
    ]
    return {
        "version": 1,
        "app": request.app_name,
        "roles": roles,
        "max_retries": int(request.max_retries),
        "end_on_failure": request.end_on_failure,
    }


def _step(index: int, replica: "SlurmReplicaRequest", group: int | None) -> str:
    arguments = _step_arguments(replica)
    if group is not None:
        arguments.insert(0, f"--het-group={group}")
    contained = ""
    if "container-image" in replica.srun_opts:  # the logs are written from inside
        given = replica.srun_opts.get("container-mounts")
        arguments = [a for a in arguments if not a.startswith("--container-mounts=")]
        contained = ' --container-mounts="$PWD:$PWD"' + (quote(f",{given}") if given else "")
        if replica.work_dir is not None and "container-workdir" not in replica.srun_opts:
            where = quote(replica.work_dir) if replica.work_dir else '"$PWD"'
            contained += f" --container-workdir={where}"
    options = " ".join(map(quote, arguments)) + contained
    if replica.elastic:
        count = f'$(echo "${{torchx_at[{index}]}}" | grep -c .)'
        options = f'--ntasks="{count}" --ntasks-per-node=1 {options}'
    program = _task(index, replica)
    end = _delimiter(program, f"TORCHX_ROLE_{index}")
    return (
        f"\n# role {safe_name(replica.role_name)}: {replica.num_replicas} replicas\n"
        f"srun {options} \\\n"
        f"""     sh -s -- "$PWD" "$SLURM_JOB_ID" "$torchx_dir" "$TORCHX_ATTEMPT" <<'{end}' &\n"""
        f"{program}{end}\n"
        f"torchx_pids[{index}]=$!\n"
    )


def _step_arguments(replica: "SlurmReplicaRequest") -> list[str]:
    """Returns the arguments of a step. Sizes are repeated: steps do not inherit all of them."""
    sizes = [
        f"--{name}={value}"
        for name in ("cpus-per-task", "gpus-per-node", "gpus-per-task")
        if (value := replica.sbatch_opts.get(name)) is not None
        and name not in replica.srun_opts
        and not conflicts(name, replica.srun_opts)
    ]
    return [*sizes, *replica.srun_arguments()]


def _task(index: int, replica: "SlurmReplicaRequest") -> str:
    command = " ".join(quote_line(word) for word in (replica.entrypoint, *replica.args))
    # these determine the values of macros, so they come last
    names = sorted(replica.env, key=lambda name: name in ("SLURM_JOB_ID", "SLURM_PROCID"))
    exports, assigned = [], []
    for name in names:
        word = f"{name}={quote_line(replica.env[name])}"
        if name in _SHELL_OWN or name.startswith("LC_"):
            assigned.append(word)
        else:
            exports.append(f"export {word}\n")
    if assigned and "=" in replica.entrypoint:
        msg = (
            f"the program `{replica.entrypoint}` of role `{replica.role_name}` has a `=` in its "
            f"name and cannot be started with `{assigned[0].partition('=')[0]}` in its environment"
        )
        raise InvalidInput(msg)
    env = f" env {' '.join(assigned)}" if assigned else ""
    # into a container, srun places its tasks itself
    cd = replica.work_dir if "container-image" not in replica.srun_opts else None
    cd = f"cd -- {quote(cd)} || exit\n" if cd else ""
    return _TASK.format(
        stem=safe_name(replica.role_name),
        index=index,
        cr=_CR if "$torchx_cr" in "".join([cd, command, env, *exports]) else "",
        cd=cd,
        command=command,
        exports="".join(exports),
        env=env,
        signal=_signal_of(replica),
        spare=_SPARE.format(index=index, least=replica.min_replicas) if replica.elastic else "",
    )


def _signal_of(replica: "SlurmReplicaRequest") -> str:
    """Returns the signal of ``--signal``, which must end the replica but not its waiting shell."""
    given = (replica.sbatch_opts.get("signal") or "").rpartition(":")[2].partition("@")[0].upper()
    found = getattr(signal, f"SIG{given.removeprefix('SIG')}", None)
    number = int(given) if given.isdecimal() else found
    never = (signal.SIGKILL, signal.SIGSTOP)
    return f" {int(number)}" if isinstance(number, int) and number not in never else ""


def _delimiter(text: str, wanted: str) -> str:
    """Returns a line that does not occur in the text."""
    lines: Iterable[str] = frozenset(text.split("\n"))
    while wanted in lines:
        wanted += "_"
    return wanted
