"""Programs of a small batch system, for the sample scheduler: a folder of jobs that really run.

``spool-submit`` reads a job as JSON and keeps it held, ``spool-release`` starts its tasks,
``spool-show`` prints what is known of one job or of all, ``spool-end`` and ``spool-remove`` do what
they say. ``SPOOL_DIR`` is the folder.
"""

import json
import os
import signal
import subprocess
import sys
import time

PROGRAMS = ["spool-submit", "spool-release", "spool-show", "spool-end", "spool-remove"]


def folder_of(name):
    return os.path.join(os.environ["SPOOL_DIR"], name)


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def replace_json(path, data):
    new = f"{path}.{time.monotonic_ns()}"  # a signal may come in between, whose handler writes too
    with open(new, "w", encoding="utf-8") as f:
        json.dump(data, f)
    os.replace(new, path)


class Runner:
    """Runs the tasks of one job, attempt after attempt, and keeps its state in a file."""

    def __init__(self, folder):
        self.folder = folder
        self.job = read_json(os.path.join(folder, "job.json"))
        self.attempt = 0
        self.cancelled = False
        self.processes = {}
        self.tasks = []

    def run(self):
        signal.signal(signal.SIGTERM, self.on_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        while True:
            self.start()
            failed = self.wait()
            if not failed or self.cancelled or self.attempt >= self.job["retries"]:
                break
            self.attempt += 1
        self.save(over=True)

    def start(self):
        self.tasks = [
            {"name": task["name"], "state": "WAITING", "attempt": self.attempt}
            for task in self.job["tasks"]
        ]
        self.processes = {}
        for shown, task in zip(self.tasks, self.job["tasks"], strict=True):
            log = os.path.join(self.folder, f"{task['name']}.{self.attempt}.out")
            with open(log, "ab") as out:
                env = {**os.environ, **task["env"], "SPOOL_ATTEMPT": str(self.attempt)}
                try:
                    process = subprocess.Popen(
                        task["argv"], stdout=out, stderr=out, env=env, start_new_session=True
                    )
                except OSError as err:
                    out.write(f"spool: cannot start {task['argv'][0]}: {err.strerror}\n".encode())
                    shown.update(state="ENDED", code=127, ended=time.time_ns())
                    continue
            self.processes[process.pid] = (process, shown)
            shown.update(state="RUNNING", started=time.time_ns())
        self.save()
        if self.cancelled:
            self.end_all("TERM")

    def wait(self):
        """Waits for all tasks; says whether one failed."""
        failed = any(task["state"] == "ENDED" for task in self.tasks)
        if failed and self.job["end_on_failure"]:
            self.end_all("TERM")
        running = dict(self.processes)
        while running:
            pid, status = os.waitpid(-1, 0)
            if pid not in running:
                continue
            _, shown = running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            shown.update(state="ENDED", code=code, ended=time.time_ns())
            last = self.attempt >= self.job["retries"]
            if code and not shown.get("told") and not self.cancelled:
                failed = True
                if last and self.job["end_on_failure"]:
                    self.end_all("TERM")
            self.save()
        return failed

    def on_end(self, *_):
        self.cancelled = True
        self.save()
        self.end_all("TERM")

    def end_all(self, name):
        for pid, (_, shown) in self.processes.items():
            if shown["state"] == "RUNNING":
                shown["told"] = True
                number = getattr(signal, f"SIG{name}")
                try:
                    os.killpg(pid, number)
                except ProcessLookupError:
                    pass
        if name == "TERM":
            signal.signal(signal.SIGALRM, lambda *_: self.end_all("KILL"))
            signal.setitimer(signal.ITIMER_REAL, self.job["grace_s"])

    def save(self, over=False):
        save_state(self.folder, self.job, self.tasks, over, self.cancelled, self.attempt)


def save_state(folder, job, tasks, over=False, cancelled=False, attempt=0):
    kept = {key: job[key] for key in ("name", "comment", "retries", "end_on_failure")}
    shown = {"over": over, "cancelled": cancelled, "attempt": attempt, "tasks": tasks}
    replace_json(os.path.join(folder, "state.json"), {**kept, **shown, "folder": folder})


def submit():
    job = json.load(sys.stdin)
    folder = folder_of(job["name"])
    try:
        os.makedirs(folder)
    except FileExistsError:
        sys.exit(f"spool-submit: error: job {job['name']} exists")
    replace_json(os.path.join(folder, "job.json"), job)
    tasks = [{"name": t["name"], "state": "WAITING", "attempt": 0} for t in job["tasks"]]
    save_state(folder, job, tasks)
    sys.stdout.write(f"{job['name']}\n")


def release(name):
    folder = folder_of(name)
    if not os.path.isdir(folder):
        sys.exit(f"spool-release: error: no job {name}")
    replace_json(os.path.join(folder, "runner.json"), None)  # it is held no more
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the runner can take it
    runner = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, "runner", folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=open(os.path.join(folder, "runner.err"), "ab"),  # noqa: SIM115 - for the child
        start_new_session=True,
    )
    replace_json(os.path.join(folder, "runner.json"), runner.pid)


def show(name=None):
    base = os.environ["SPOOL_DIR"]
    names = [name] if name else sorted(os.listdir(base))
    found = []
    for each in names:
        try:
            found.append(read_json(os.path.join(base, each, "state.json")))
        except OSError:
            continue
    json.dump(found, sys.stdout)


def end(name):
    try:
        state = read_json(os.path.join(folder_of(name), "state.json"))
    except OSError:
        sys.exit(f"spool-end: error: no job {name}")
    pid = runner_of(name)
    if pid is None:  # it is held
        job = read_json(os.path.join(folder_of(name), "job.json"))
        save_state(folder_of(name), job, state["tasks"], over=True, cancelled=True)
        return
    if not state["over"]:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it has just ended by itself


def runner_of(name):
    """The process that runs a job, which may be starting; ``None`` if there is none."""
    for _ in range(200):  # a program that was killed has left the job as it was
        try:
            pid = read_json(os.path.join(folder_of(name), "runner.json"))
        except OSError:
            return None
        if pid is not None:
            return pid
        time.sleep(0.02)
    return None


def remove(name):
    folder = folder_of(name)
    try:
        entries = os.listdir(folder)
    except OSError:
        sys.exit(f"spool-remove: error: no job {name}")
    if not read_json(os.path.join(folder, "state.json"))["over"]:
        sys.exit(f"spool-remove: error: job {name} runs")
    for entry in entries:
        os.unlink(os.path.join(folder, entry))
    os.rmdir(folder)


if __name__ == "__main__":
    program, *args = sys.argv[1:]
    if program == "runner":
        Runner(args[0]).run()
    else:
        {
            "spool-submit": submit,
            "spool-release": release,
            "spool-show": show,
            "spool-end": end,
            "spool-remove": remove,
        }[program](*args)
