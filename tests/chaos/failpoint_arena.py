"""Where failpoints.py kills a coordinator: one with all its addresses, two workers that outlive it, users with an issuer, a receiver of
webhooks, and clients that note what they were answered.

`begin` starts the coordinator, with a failpoint or without, `died` waits until that has killed it. `close` ends what is left.
"""

import contextlib
import http.server
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

from cluster import BIN, alive, init_model, kill, processes_of, run, train_job, wait_until, write_rows  # noqa: E402
from failpoint_oracle import Oracle, read_journal, read_sqlite  # noqa: E402
from fake_issuer import FakeIssuer  # noqa: E402
from gang import free_port  # noqa: E402
from page_sign_in_test import Visitor  # noqa: E402

SERVES_WITHIN_S, DIES_WITHIN_S, CALL_S, ENDS_WITHIN_S = 60, 20, 60, 60
POLL_S = 0.005
RUNS_JOBS = "runs=jobs"  # the label of the node that the jobs run on
GOES_ON = ("queued", "starting", "running", "recovering", "stopping")
WAITS = re.compile(r'"(begin|hold)":')  # in the file of a job that does not begin
# Each attempt notes that it began, and holds the lock of its job while it runs.
COMMAND = """echo "$MUSTER_JOB_ID $MUSTER_GENERATION" >> started
exec 9> locks/$MUSTER_JOB_ID
flock -n 9 || echo $MUSTER_JOB_ID >> doubled
exec sleep {seconds}"""


class Died(Exception):
    """The coordinator has been killed."""


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class Arena:
    """`kind`: whole; or, without workers and users, bare or journal."""

    def __init__(self, kind="whole", keep=None):
        self.kind, self.keep, self.is_wrong, self._stack = kind, keep, False, contextlib.ExitStack()
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-failpoints."))
        self._stack.callback(shutil.rmtree, self.root, ignore_errors=True)
        self._stack.callback(self._keep_logs)
        self._stack.callback(self._end_processes)
        self.directory, self.database = self.root / "cluster", self.root / "cluster" / "coordinator" / "state.db"
        self.oracle = Oracle(read_journal if kind == "journal" else read_sqlite)
        self.process, self.workers, self.jobs, self.numbers = None, [], {}, 0
        self.joined = []  # credentials that nodes wait for
        self.kept_node, self.steady = None, None
        run("muster", "init", "--dir", self.directory, "--cluster", "lab")
        self.address, self.join, self.page = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.flags = ["--listen", f"unix:{self.root}/socket", "--http", f"127.0.0.1:{free_port()}", "--tls-listen", self.address,
                      "--join-listen", self.join, "--retain", "1s"]
        if kind == "journal":
            self.flags += ["--journal", self.directory / "journal"]
        (self.root / "locks").mkdir()
        if kind == "whole":
            try:
                self._furnish()
            except BaseException:
                self.close()
                raise

    def close(self):
        self._stack.close()

    def _keep_logs(self):
        if self.keep and self.is_wrong:
            shutil.copytree(self.root, self.keep / self.root.name, symlinks=True, ignore_dangling_symlinks=True,
                            ignore=shutil.ignore_patterns("socket", "*.sock", "security", "*.key", "checkpoints", "model"))

    def _end_processes(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait(timeout=60)
        for pid, _ in processes_of(self.root):
            kill(pid)

    def _furnish(self):
        hook = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        self._stack.callback(hook.shutdown)
        self.hook = f"127.0.0.1:{hook.server_port}"
        self.issuer = self._stack.enter_context(FakeIssuer(self.root / "issuer", "ES256"))
        self.flags += ["--tls-http", self.page, "--webhook-hosts", self.hook, "--issuer-ca", self.issuer.ca, "--local-login",
                       self.root / "login.sock"]
        self.begin()
        self.apply("users")
        for node in ("node-1", "node-2"):
            run("muster", "certs", "issue", "--dir", self.directory, "--role", "node", "--name", node, "--out", self.root / f"of-{node}")
            self.start_worker(node, "--tls", self.root / f"of-{node}", "--coordinator", self.address,
                              *(("--label", RUNS_JOBS) if node == "node-1" else ()))
        wait_until(lambda: sum(node["state"] == "ready" for node in self.json("nodes")) == 2, "the nodes are ready")
        self.steady = self.submit(seconds=100_000)
        wait_until(lambda: self.started(self.steady), "the job that outlives every coordinator runs")
        self.steady_pid = self.json("get", self.steady)["ranks"][0]["pid"]
        self.end()

    # --- processes ---

    def begin(self, failpoint="", flags=()):
        """Whether it serves; it does not where the failpoint has killed it."""
        with open(self.root / "coordinator.log", "ab") as log:
            self.process = subprocess.Popen(
                [BIN / "muster-coordinator", "--dir", self.directory, *map(str, (*self.flags, *flags))], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env={**os.environ, "MUSTER_FAILPOINT": failpoint}, start_new_session=True)
        endpoint = self.directory / "coordinator" / "endpoint.json"
        deadline = time.monotonic() + SERVES_WITHIN_S
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, KeyError):
                if json.loads(endpoint.read_text(encoding="utf-8"))["pid"] == self.process.pid:
                    return True
            time.sleep(POLL_S)
        if self.process.poll() is None or not failpoint:
            raise AssertionError(f"the coordinator does not serve: {self.process.poll()}, {self.log_end()}")
        return False

    def died(self, within=DIES_WITHIN_S):
        """Whether the failpoint has killed it; a coordinator that ends otherwise is an error."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within)
        if self.process.poll() not in (None, -signal.SIGKILL):
            raise AssertionError(f"the coordinator ended with {self.process.poll()}: {self.log_end()}")
        return self.process.poll() is not None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.terminate()
        # It is ended by the signal itself until it takes signals, just after it serves.
        if self.process.wait(timeout=30) not in (0, -signal.SIGTERM):
            raise AssertionError(f"the coordinator ended with {self.process.returncode}: {self.log_end()}")

    def log(self):
        return (self.root / "coordinator.log").read_text(encoding="utf-8", errors="replace")

    def log_end(self):
        return self.log()[-1500:]

    def log_ends(self):
        """Of the coordinator's log, and the workers'."""
        return "\n".join(f"--- {file.name}\n{file.read_text(encoding='utf-8', errors='replace')[-4000:]}"
                         for file in sorted(self.root.glob("*.log")) if not file.name.startswith("joins-"))

    def start_worker(self, node, *flags):
        with open(self.root / f"{node}.log", "ab") as log:
            worker = subprocess.Popen(
                [BIN / "muster-worker", "--dir", self.root / node, "--node", node, "--slots", "8", "--address",
                 f"127.0.0.{11 + len(self.workers) % 200}", "--nvml", "", *map(str, flags)], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, "MUSTER_MICRO_BATCH_PAUSE": "0.02"}, start_new_session=True)
        self.workers.append(worker)
        return worker

    # --- clients ---

    def call(self, *words, say=None, env=None, may_fail=False):
        """What a command printed. `say`: (operation, object) of the audit trail, or a function of the output that gives it. Died where the
        coordinator has died and the command has got no answer."""
        object_known = isinstance(say, tuple)
        if object_known:
            self.oracle.attempted[say] += 1
        words = [str(word) for word in words]
        place = [] if env else ["--coordinator", self.address, "--tls", str(self.directory / "security" / "admin"), "--dir",
                                str(self.root / "none")]
        client = subprocess.Popen([str(BIN / "muster"), *words, *place], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        deadline = time.monotonic() + CALL_S
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, error = client.communicate(timeout=0.05)
                break
            if self.process.poll() is not None or time.monotonic() > deadline:
                client.kill()  # a submit would go on until the next coordinator answers
                client.communicate()
                self.must_live(f"muster {' '.join(words)} was not answered within {CALL_S} s")
        if client.returncode != 0 and not (may_fail and self.process.poll() is None):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)
            self.must_live(f"muster {' '.join(words)} ended with {client.returncode}: {out}{error}")
        if say and client.returncode == 0:
            self.oracle.acknowledged.append(say if object_known else say(out))
        return out

    def must_live(self, else_wrong):
        if self.died(0):
            raise Died
        raise AssertionError(else_wrong)

    def json(self, *words, **options):
        return json.loads(self.call(*words, "-o", "json", **options) or "null")

    def number(self):
        self.numbers += 1
        return self.numbers

    def write(self, name, content):
        file = self.root / name
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    def submit(self, seconds=0.1, **spec):
        """A job that runs on node-1 at once, unless the specification says otherwise. Its id; a submit that is not answered is repeated
        by `repeat`."""
        key = f"key-{self.number()}"
        return self.submit_file(key, self.write(f"{key}.json", {
            "name": key, "workdir": str(self.root), "command": ["sh", "-c", COMMAND.format(seconds=seconds)],
            "resources": self.resources(), **spec}))

    def resources(self):
        """Those of node-1: a node that has just joined is ready before it, and ends before its jobs."""
        return {"nodes": 1, "ranks_per_node": 1, **({"labels": dict([RUNS_JOBS.split("=")])} if self.kind == "whole" else {})}

    def submit_file(self, key, file):
        self.jobs.setdefault(key, {"file": file, "id": None})
        job = self.json("submit", file, "--key", key)["id"]
        before = self.oracle.keys.setdefault(key, job)
        if before != job:
            raise AssertionError(f"the submit of {key} was answered with job {job}, before with {before}")
        self.oracle.acknowledged.append(("Submit", f"job {job}"))
        self.jobs[key]["id"] = job
        return job

    def repeat(self):
        """Submits again what was not answered."""
        for key, job in self.jobs.items():
            if not job["id"]:
                self.submit_file(key, job["file"])

    def change(self, verb, operation, job, *words):
        self.call(verb, job, *words, say=(operation, f"job {job}"))

    def apply(self, kind, *more):
        """A file of queues, with `more` queues, or of users. It differs from those before in a comment."""
        me = pwd.getpwuid(os.getuid()).pw_name
        content = {"queues": dict.fromkeys(("default", *more))} if kind == "queues" else {
            "issuers": [{"url": self.issuer.url, "client_id": "muster"}],
            "users": {"ada": {"identity": {"issuer": self.issuer.url, "subject": "1"}}, "local": {"account": me}},
            "roles": [{"role": "submitter", "users": ["ada", "local"]}]}
        file = self.write(f"{kind}.yaml", f"# {self.number()}\n{json.dumps(content)}\n")
        self.json(kind, "apply", file, say=lambda out: (f"Apply{kind.capitalize()}", f"version {json.loads(out)['version']}"))

    def log_in(self):
        me = pwd.getpwuid(os.getuid()).pw_name
        environment = {"HOME": str(self.root), "XDG_CONFIG_HOME": str(self.root / f"config-{self.number()}")}
        self.call("login", f"unix:{self.root}/login.sock", say=("Login", f"account {me}"), env=environment)

    def sign_in(self):
        self.oracle.attempted["SignIn", f"1 of {self.issuer.url}"] += 1
        visitor = Visitor(self.page, self.directory / "security" / "ca.pem")
        try:
            answer = visitor.sign_in(self.issuer)
        except (OSError, urllib.error.URLError, EOFError, ValueError) as error:
            self.process.wait(2)
            self.must_live(f"signing in: {error}")
        if answer.status != 303:
            self.must_live(f"signing in was answered with {answer.status}: {answer.text}")
        self.oracle.acknowledged.append(("SignIn", f"1 of {self.issuer.url}"))

    def join_node(self):
        """A worker that joins by a token, and is ended once it has."""
        node = f"joins-{self.number()}"
        token = run("muster", "certs", "join-token", "--node", node, "--dir", self.directory).stdout.strip()
        worker = self.start_worker(node, "--join", self.write(f"{node}.token", token))
        credentials = self.root / node / "nodes" / node / "credentials" / "cert.pem"
        self.joined.append((worker, credentials))
        log = self.root / f"{node}.log"
        self.await_with_coordinator(lambda: "connected to the coordinator" in log.read_text(encoding="utf-8"), f"{node} joins")
        self.end_joined()

    def end_joined(self):
        for worker, credentials in self.joined:
            self.await_with_coordinator(credentials.exists, f"{credentials} were given out")
            worker.terminate()
        for worker, _ in self.joined:
            worker.wait(timeout=30)
            self.workers.remove(worker)
        self.joined = []

    def train(self):
        """Trains three steps, with a checkpoint after each."""
        os.environ["MUSTER_MICRO_BATCH_PAUSE"] = "0.02"  # a smaller model
        with TRAINING:
            if not (self.root / "model").exists():
                init_model(self.root / "model")
                write_rows(self.root / "rows.jsonl")
        key = f"train-{self.number()}"
        spec = train_job(self.root / "model", self.root / "rows.jsonl", self.root / key, steps=3, nodes=1, every=1, name=key)
        spec["train"]["checkpoint"]["keep"] = 1
        spec["resources"].update(self.resources())
        return self.submit_file(key, self.write(f"{key}.json", spec))

    def await_in_archive(self, job):
        self.await_with_coordinator(lambda: job in self.oracle.read(self.directory).archived, f"job {job} is archived")

    def await_with_coordinator(self, condition, what):
        """Died if the coordinator dies before."""
        def over():
            if self.died(0):
                raise Died
            return condition()
        wait_until(over, what, timeout=ENDS_WITHIN_S)

    # --- what has become of it ---

    def started(self, job):
        """Generations of a job's attempts that have begun."""
        file = self.root / "started"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [int(line.split()[1]) for line in lines if line.split()[0] == job]

    def check(self):
        """Of the store as the killed coordinator has left it, and of what runs."""
        violations = self.oracle.check(self.directory)
        if (self.root / "doubled").exists():
            violations.append("two attempts of a job ran at once: " + (self.root / "doubled").read_text(encoding="utf-8"))
        if self.kept_node and self.kept_node not in self.oracle.records.nodes:
            violations.append(f"node {self.kept_node} is not there any more")
        keys = self.directory / "coordinator" / "secret-keys"
        keys = keys.read_text(encoding="ascii").split()[::2] if keys.exists() else []
        violations += [f"{name} has key {secret['key_id']}, of {keys}" for name, secret in self.oracle.records.secrets.items()
                       if secret["key_id"] not in keys]
        if self.kind == "whole" and (not alive(self.steady_pid) or self.started(self.steady) != [1] or
                                     self.steady not in self.oracle.records.jobs):
            violations.append(f"the job that outlives every coordinator was started as {self.started(self.steady)}")
        return violations

    def check_by_programs(self):
        """The same by Muster's own programs."""
        journal = ["--journal", self.directory / "journal"] if self.kind == "journal" else []
        checked = run("muster", "store", "check", "--dir", self.directory, *journal, check=False)
        lines = self.write("audit.jsonl", "".join(f"{line}\n" for line in self.oracle.records.audit))
        verified = run("muster", "audit", "verify", lines, *(["--head", self.oracle.head] if self.oracle.head else []), check=False)
        return [f"muster {done.args[1]}: {done.stdout}{done.stderr}" for done in (checked, *([verified] if self.oracle.head else []))
                if done.returncode != 0]

    def await_jobs(self):
        """Every job that was submitted and not stopped ends, and each started once."""
        self.repeat()
        self.end_joined()

        def going_on():
            records = self.oracle.read(self.directory).jobs
            return {key: records[job["id"]] for key, job in self.jobs.items()
                    if job["id"] not in self.oracle.forgettable and records[job["id"]].get("state", "queued") in GOES_ON and
                    job["id"] != self.steady and not WAITS.search(job["file"].read_text(encoding="utf-8"))}
        try:
            wait_until(lambda: not going_on(), "the jobs end", timeout=ENDS_WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {going_on()}, {self.json('nodes')}") from error
        violations, records = [], self.oracle.read(self.directory).jobs
        for key, job in self.jobs.items():
            record = records.get(job["id"], {})
            plain = key.startswith("key-") and record.get("state") == "succeeded"
            if record.get("state") == "failed" or plain and self.started(job["id"]) != [1]:
                violations.append(f"job {job['id']} ({key}) is {record.get('state')}: {record.get('reason')}; it was started as "
                                  f"{self.started(job['id'])}")
        return violations

    # --- what a coordinator finds at its start; while none runs ---

    def edit(self, *statements):
        with contextlib.closing(sqlite3.connect(self.database)) as database, database:
            for statement in statements:
                database.execute(*statement) if isinstance(statement, tuple) else database.execute(statement)


TRAINING = threading.Lock()
