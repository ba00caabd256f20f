"""A small LSF: its programs as one script, for machines without the real one.

Jobs are processes of this machine, and what is known of them lies in the directory that
``FAKE_LSF_DIR`` names. A process for each job runs its elements, as ``sbatchd`` does. Files in the
directory change how it behaves: ``hold`` keeps jobs from starting, ``down`` lets every program
wait, ``answer-late`` and ``lose-answers`` are about bsub's, ``forget`` lets bjobs forget what has
ended.

``FAKE_LSF_VERSION`` is ``10.1`` or ``9.1``, ``FAKE_LSF_KILL_S`` the time between the signals of
bkill, ``FAKE_LSF_MINUTE_S`` how long a minute of a run limit is, ``FAKE_LSF_SLOW_S`` how long an
answer takes, ``FAKE_LSF_ARRAY`` the size that arrays may have.
"""

import fnmatch
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

PROGRAMS = ["bsub", "bjobs", "bkill", "bhist", "bqueues", "blaunch"]
QUEUES = ("normal", "gpu")
DOWN = "LSF is down. Please wait ..."
LIVE = ("PEND", "RUN", "PSUSP", "USUSP", "SSUSP")
WAITING = "New job is waiting for scheduling;"
HELD = "Not enough job slots: 2 hosts;"
VALUED = frozenset(
    "-J -Jd -cwd -outdir -o -oo -e -eo -q -P -W -app -sla -U -m -w -b -n -R -gpu -Q".split()  # noqa: SIM905 - a list is three times as long
)


def home(*names):
    return os.path.join(os.environ["FAKE_LSF_DIR"], *names)


def fail(words, code=255):
    sys.stderr.write(f"{words}\n")
    sys.exit(code)


def say(line):
    sys.stdout.write(f"{line}\n")


def read_json(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as f:
        return json.load(f)


def replace_text(path, text):
    """Writes a file that nobody sees in part."""
    new = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    with open(new, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(new, path)


def replace_json(path, data):
    replace_text(path, json.dumps(data))


def all_jobs():
    found = []
    for name in os.listdir(home()):
        if name.endswith(".state"):
            try:
                found.append(read_json(home(name)))
            except FileNotFoundError:
                continue
    return sorted(found, key=lambda job: job["id"])


def elements(job):
    return [(job, element) for element in job["elements"]]


def forgotten(element):
    ended = element.get("ended")
    if ended is None:
        return False
    try:
        return ended <= os.stat(home("forget")).st_mtime
    except FileNotFoundError:
        return False


# -- bsub ---------------------------------------------------------------------------------------


def parse_bsub(arguments):
    options, at = {}, 0
    while at < len(arguments) and arguments[at].startswith("-"):
        flag = arguments[at]
        if flag in VALUED:
            options.setdefault(flag, []).append(arguments[at + 1])
            at += 2
        elif flag in ("-x", "-B", "-N", "-r"):
            options[flag] = True
            at += 1
        else:
            fail(f"{flag}: Illegal option. Job not submitted.")
    return options, " ".join(arguments[at:])


def bsub(arguments):
    options, command = parse_bsub(arguments)
    queue = options.get("-q", ["normal"])[-1]
    if queue.split()[0] not in QUEUES:
        fail(f"{queue}: No such queue. Job not submitted.")
    limit = options.get("-W", [None])[-1]
    if limit is not None and not re.fullmatch(r"\d+(:\d+)?", limit):
        fail(f"{limit}: Bad RUNLIMIT specification. Job not submitted.")
    name, _, inside = options["-J"][-1].partition("[")
    count = int(inside.rstrip("]").rpartition("-")[2]) if inside else 0
    if count > int(os.environ.get("FAKE_LSF_ARRAY", "10000")):
        fail(f"{name}[{inside}: Job array index too large. Job not submitted.")
    job_id = next_id()
    job = {
        "id": job_id,
        "name": name,
        "array": bool(inside),
        "command": command,
        "argv": arguments,
        "options": options,
        "queue": queue,
        "cwd": options.get("-cwd", [os.getcwd()])[-1],
        "elements": [
            {"index": i, "stat": "PEND", "reason": WAITING}
            for i in (range(1, count + 1) if inside else [0])
        ],
    }
    replace_json(home(f"{job_id}.state"), job)
    with open(home(f"{job_id}.log"), "ab") as log:
        subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, "runner", str(job_id)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    kind = "queue" if "-q" in options else "default queue"
    sys.stdout.write(f"Job <{job_id}> is submitted to {kind} <{queue}>.\n")
    if os.path.exists(home("answer-late")):
        sys.stdout.flush()
        time.sleep(10)
    if os.path.exists(home("lose-answers")):
        os.unlink(home("lose-answers"))
        fail(f"Request from a non-LSF host: {DOWN}")


def next_id():
    job_id = max([100, *(job["id"] for job in all_jobs())]) + 1
    while True:
        try:
            os.close(os.open(home(f"{job_id}.taken"), os.O_CREAT | os.O_EXCL))
            return job_id
        except FileExistsError:
            job_id += 1


# -- the process that runs a job ----------------------------------------------------------------


class Runner:
    """Runs the elements of one job and keeps their states in a file."""

    def __init__(self, job_id):
        self.path = home(f"{job_id}.state")
        self.job = read_json(self.path)
        self.running = {}
        self.kills = {}
        self.changed = True
        self.retry_codes = {int(code) for code in self.option("-Q", "").split()}

    def option(self, name, default=None):
        return self.job["options"].get(name, [default])[-1]

    def run(self):
        got, woken = os.pipe()
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        replace_text(home(f"{self.job['id']}.pid"), str(os.getpid()))
        while any(element["stat"] in LIVE for element in self.job["elements"]):
            self.take_kills()
            self.dispatch()
            self.reap()
            self.signal_all()
            self.save()
            if select.select([got], [], [], self.pause_s())[0]:
                os.read(got, 4096)
        self.save()

    def pause_s(self):
        return 0.05 if self.kills or "-W" in self.job["options"] else 0.2

    def save(self):
        if self.changed:
            replace_json(self.path, self.job)
            self.changed = False

    def set(self, element, **values):
        element.update(values)
        self.changed = True

    # -- starting -------------------------------------------------------------------------------

    def dispatch(self):
        reason = self.why_not()
        for element in self.job["elements"]:
            if element["stat"] != "PEND":
                continue
            if reason:
                if element["reason"] != reason:
                    self.set(element, reason=reason)
                continue
            self.start(element)

    def why_not(self):
        if os.path.exists(home("hold")):
            return HELD
        if int(self.option("-n", "1")) > 64:
            return "Not enough hosts to meet the job's spanning requirement;"
        for condition, target in re.findall(r'(\w+)\("?([^")]+)"?\)', self.option("-w", "")):
            if not self.met(condition, target):
                return f"Job dependency condition not satisfied: {condition}({target});"
        return ""

    @staticmethod
    def met(condition, target):
        stats = [
            element["stat"]
            for job in all_jobs()
            if target in (job["name"], str(job["id"]))
            for element in job["elements"]
        ]
        wanted = {"done": ("DONE",), "exit": ("EXIT",), "started": ("RUN", "DONE", "EXIT")}
        return bool(stats) and all(s in wanted.get(condition, ("DONE", "EXIT")) for s in stats)

    def start(self, element):
        slots = self.option("-n", "1")
        index = element["index"]
        env = {
            **os.environ,
            "LSB_JOBID": str(self.job["id"]),
            "LSB_JOBINDEX": str(index),
            "LSB_JOBNAME": self.shown_name(element),
            "LSB_HOSTS": " ".join(["localhost"] * int(slots)),
            "LSB_MCPU_HOSTS": f"localhost {slots}",
            "LSB_QUEUE": self.job["queue"],
        }
        output = open(home(f"{self.job['id']}.{index}.out"), "ab")  # noqa: SIM115 - closed below
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self.job["command"]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                cwd=self.job["cwd"],
                start_new_session=True,
            )
        except OSError:
            self.set(element, stat="EXIT", code=2, term="TERM_CWD_NOTEXIST", ended=time.time())
            return
        finally:
            output.close()
        self.running[process.pid] = (process, element)
        self.set(element, stat="RUN", reason="", host="localhost", started=time.time())

    def shown_name(self, element):
        index = f"[{element['index']}]" if self.job["array"] else ""
        return f"{self.job['name']}{index}"

    # -- ending ---------------------------------------------------------------------------------

    def take_kills(self):
        asked = re.compile(rf"{self.job['id']}\.kill-\d+")
        for path in [home(name) for name in os.listdir(home()) if asked.fullmatch(name)]:
            with open(path) as f:
                wanted = int(f.read())
            os.unlink(path)
            for element in self.job["elements"]:
                if wanted in (element["index"], -1):
                    self.kill(element, "TERM_OWNER")
        self.limit_time()

    def limit_time(self):
        limit = self.option("-W")
        if limit is None:
            return
        hours, _, minutes = f":{limit}".rpartition(":")[0].strip(":"), ":", limit.split(":")[-1]
        minute_s = float(os.environ.get("FAKE_LSF_MINUTE_S", "60"))
        limit_s = (int(hours or 0) * 60 + int(minutes)) * minute_s
        for element in self.job["elements"]:
            if element["stat"] == "RUN" and time.time() > element["started"] + limit_s:
                self.kill(element, "TERM_RUNLIMIT")

    def kill(self, element, term):
        if element["stat"] == "PEND":
            self.set(element, stat="EXIT", reason="", term=term, ended=time.time())
        elif element["stat"] == "RUN" and element["index"] not in self.kills:
            self.set(element, term=term)
            signals = ["INT", "TERM", "KILL"]
            if term == "TERM_RUNLIMIT":
                signals.insert(0, "USR2")
            self.kills[element["index"]] = [time.monotonic(), signals]

    def signal_all(self):
        gap_s = float(os.environ.get("FAKE_LSF_KILL_S", "0.5"))
        for pid, (_, element) in self.running.items():
            plan = self.kills.get(element["index"])
            if plan and plan[1] and time.monotonic() >= plan[0]:
                plan[0] = time.monotonic() + gap_s
                number = getattr(signal, f"SIG{plan[1].pop(0)}")
                self.kill_groups([pid, *self.launched()], number)

    @staticmethod
    def kill_groups(groups, number):
        for group in groups:
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                continue

    def launched(self):
        try:
            with open(home(f"{self.job['id']}.groups")) as f:
                return [int(line) for line in f]
        except FileNotFoundError:
            return []

    def reap(self):
        for pid, (process, element) in list(self.running.items()):
            code = process.poll()
            if code is None:
                continue
            del self.running[pid]
            self.ended(element, 128 - code if code < 0 else code)

    def ended(self, element, code):
        killed = self.kills.pop(element["index"], None)
        if killed is None and code in self.retry_codes:
            self.set(element, stat="PEND", reason="Requeued job is waiting for rescheduling;")
            return
        if killed is not None:
            self.kill_groups(self.launched(), signal.SIGKILL)
        self.write_output(element, code)
        values = {"stat": "EXIT" if code else "DONE", "code": code, "ended": time.time()}
        self.set(element, **values)

    def write_output(self, element, code):
        path = self.option("-o")
        if path is None:
            return
        path = path.replace("%I", str(element["index"])).replace("%J", str(self.job["id"]))
        with open(home(f"{self.job['id']}.{element['index']}.out"), "rb") as f:
            printed = f.read()
        try:
            with open(path, "ab") as f:
                f.write(
                    f"Exited with exit code {code}.\n\nThe output (if any) is below:\n".encode()
                )
                f.write(printed)
        except OSError:
            return  # LSF mails it then


# -- bkill --------------------------------------------------------------------------------------


def bkill(arguments):
    pattern = None
    if arguments[:1] == ["-J"]:
        pattern, arguments = arguments[1], arguments[2:]
    code = 0
    if pattern is not None and arguments == ["0"]:
        jobs = [job for job in all_jobs() if fnmatch.fnmatch(job["name"], pattern)]
        if not jobs:
            fail(f"Job <{pattern}>: No matching job found")
        arguments = [str(job["id"]) for job in jobs]
    known = {str(job["id"]): job for job in all_jobs()}
    for word in arguments:
        job_id, _, index = word.partition("[")
        job = known.get(job_id)
        if job is None:
            sys.stderr.write(f"Job <{word}>: No matching job found\n")
            code = 255
        elif not is_live(job):
            sys.stderr.write(f"Job <{word}>: Job has already finished\n")
            code = 255
        else:
            request_kill(job, int(index.rstrip("]")) if index else -1)
    sys.exit(code)


def is_live(job):
    return any(element["stat"] in LIVE for element in job["elements"])


def request_kill(job, index):
    # a file for each: the job takes it at once, and would miss what comes after that
    replace_text(home(f"{job['id']}.kill-{os.getpid()}{time.monotonic_ns()}"), str(index))
    try:
        with open(home(f"{job['id']}.pid")) as f:
            os.kill(int(f.read()), signal.SIGUSR1)
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has not started yet, or has just ended
    sys.stdout.write(f"Job <{job['id']}> is being terminated\n")


# -- bjobs --------------------------------------------------------------------------------------

COLUMNS = {
    "jobid": lambda job, e: str(job["id"]),
    "jobindex": lambda job, e: str(e["index"]),
    "stat": lambda job, e: e["stat"],
    "job_name": lambda job, e: job["name"] + (f"[{e['index']}]" if job["array"] else ""),
    "exec_host": lambda job, e: e.get("host", ""),
    "exit_code": lambda job, e: str(e["code"]) if e.get("code") and e["stat"] == "EXIT" else "",
    "exit_reason": lambda job, e: exit_reason(e),
    "pend_reason": lambda job, e: e.get("reason", "") if e["stat"] == "PEND" else "",
    "job_description": lambda job, e: job["options"].get("-Jd", [""])[-1],
    "proj_name": lambda job, e: job["options"].get("-P", ["default"])[-1],
    "queue": lambda job, e: job["queue"],
}
NEW_COLUMNS = ("exit_reason", "pend_reason")
REASONS = {
    "TERM_OWNER": "TERM_OWNER: job killed by owner",
    "TERM_RUNLIMIT": "TERM_RUNLIMIT: job killed after reaching LSF run time limit",
    "TERM_CWD_NOTEXIST": "TERM_CWD_NOTEXIST: current working directory is not accessible",
}


def exit_reason(element):
    return REASONS.get(element.get("term"), "") if element["stat"] == "EXIT" else ""


def bjobs(arguments):
    version = os.environ.get("FAKE_LSF_VERSION", "10.1")
    given, ids, at = {}, [], 0
    while at < len(arguments):
        word = arguments[at]
        if word in ("-J", "-Jd", "-u", "-o", "-P"):
            given[word] = arguments[at + 1]
            at += 1
        elif word in ("-a", "-noheader") or (word == "-json" and version != "9.1"):
            given[word] = True
        elif word.startswith("-"):
            fail(f"bjobs: illegal option -- {word[1]}\nUsage: bjobs [-a] [-J name] ...")
        else:
            ids.append(word)
        at += 1
    if "-json" in given and ("-o" not in given or "-noheader" in given):
        fail("-json: Must be used with -o, and not with -noheader.")
    rows = [pair for job in all_jobs() for pair in elements(job) if shown(*pair, given, ids)]
    if not rows and "-json" not in given:
        words = f"Job <{given['-J']}> is not found" if "-J" in given else "No job found"
        fail(words)
    columns, delimiter = parse_columns(given["-o"], version)
    if "-json" in given:
        records = [{name.upper(): COLUMNS[name](*row) for name in columns} for row in rows]
        data = {"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}
        json.dump(data, sys.stdout, indent=2)
        return
    if "-noheader" not in given:
        say(delimiter.join(name.upper() for name in columns))
    for row in rows:
        say(delimiter.join(COLUMNS[name](*row) or "-" for name in columns))


def parse_columns(text, version):
    text, _, delimiter = text.partition(" delimiter=")
    columns = text.split()
    bad = [c for c in columns if c not in COLUMNS or (version == "9.1" and c in NEW_COLUMNS)]
    if bad:
        fail(f"{bad[0]}: Invalid field name for -o.")
    return columns, delimiter.strip("'") or " "


def shown(job, element, given, ids):
    if forgotten(element) or (element["stat"] not in LIVE and "-a" not in given):
        return False
    description = job["options"].get("-Jd", [""])[-1]
    if "-Jd" in given and not fnmatch.fnmatchcase(description, given["-Jd"]):
        return False
    if "-J" in given and not fnmatch.fnmatchcase(job["name"], given["-J"]):
        return False
    return not ids or str(job["id"]) in ids


# -- bhist, bqueues, blaunch --------------------------------------------------------------------


def bhist(arguments):
    pattern = arguments[arguments.index("-J") + 1]
    pairs = [
        pair
        for job in all_jobs()
        if fnmatch.fnmatch(job["name"], pattern)
        for pair in elements(job)
    ]
    if not pairs:
        fail("No matching job found")
    for job, element in pairs:
        say("-" * 78)
        say(wrapped(history_of(job, element)))


def history_of(job, element):
    index = f"[{element['index']}]" if job["array"] else ""
    when = "Thu Nov 19 10:00:00"
    lines = [
        f"Job <{job['id']}{index}>, Job Name <{job['options']['-J'][-1]}>, Job Description "
        f"<{COLUMNS['job_description'](job, element)}>, User <me>, Project <default>, "
        f"Command <{job['command']}>",
        f"{when}: Submitted from host <login>, to Queue <{job['queue']}>, CWD <{job['cwd']}>;",
    ]
    if "started" in element:
        lines.append(f"{when}: Dispatched to <localhost>;")
        lines.append(f"{when}: Starting (Pid 1234);")
    if element["stat"] == "DONE":
        lines.append(f"{when}: Done successfully. The CPU time used is 0.1 seconds;")
    elif element["stat"] == "EXIT":
        term = exit_reason(element)
        code = f" with exit code {element['code']}" if element.get("code") else ""
        lines.append(f"{when}: Exited{code}. The CPU time used is 0.1 seconds;")
        if term:
            lines.append(f"{when}: Completed <exit>; {term};")
    return lines


def wrapped(lines):
    found = []
    for line in lines:
        found.append(line[:79])
        rest = line[79:]
        while rest:
            found.append(" " * 21 + rest[:58])
            rest = rest[58:]
    return "\n".join(found)


def bqueues(arguments):
    say("QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP")
    for name in QUEUES:
        say(f"{name:<15} 30   Open:Active       -    -    -    -     0     0     0     0")


def blaunch(arguments):
    """Runs a task in a process group of its own, and hands signals on to all of it."""
    tasks, early = [], []

    def hand_on(number, _):
        if not tasks:
            early.append(number)
        for task in tasks:
            os.killpg(task.pid, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hand_on)
    task = subprocess.Popen(arguments[1:], start_new_session=True)
    with open(home(f"{os.environ['LSB_JOBID']}.groups"), "a") as f:
        f.write(f"{task.pid}\n")
    tasks.append(task)
    for number in early:
        os.killpg(task.pid, number)
    code = task.wait()
    sys.exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    program, *args = sys.argv[1:]
    if program == "runner":
        Runner(args[0]).run()
    else:
        time.sleep(float(os.environ.get("FAKE_LSF_SLOW_S", "0")))
        while os.path.exists(home("down")) and program != "blaunch":
            sys.stderr.write(f"{DOWN}\n")
            sys.stderr.flush()
            time.sleep(0.2)
        globals()[program](args)
