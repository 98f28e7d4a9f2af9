"""A real local cluster in a temporary directory, for tests and benchmarks of whole programs.

  cluster = Cluster(self)                    # up; down and checked for leftovers when the test ends
  job = cluster.submit(cluster.train_job())
  cluster.wait_for_step(job, 20)
  cluster.kill_rank(job, 1)
  self.assertEqual(cluster.wait(job), 0)

The programs come from the folder MUSTER_BIN_DIR, or of `programs` of a cluster. Every wait has a deadline; nothing sleeps a fixed
time and hopes. Job files are written as JSON, which is YAML.
"""

import atexit
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", ROOT / "build" / "release" / "bin"))
DATA = ROOT / "configs" / "data" / "self_instruct_user_oriented.jsonl"
TERMINAL = ("succeeded", "failed", "cancelled")
POLL_S = 0.02
_calm_runs = {}  # of Cluster.calm, in this process
_models = {}  # of init_model, by preset


def run(program, *arguments, programs=BIN, timeout=60, env=None, check=True):
    """Runs one of our programs; with `check`, a failure raises with what it said."""
    done = subprocess.run([str(programs / program), *map(str, arguments)], timeout=timeout, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, **(env or {})})
    if check and done.returncode != 0:
        raise AssertionError(f"{program} {' '.join(map(str, arguments))} ended with "
                             f"{done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def wait_until(condition, what, timeout=120):
    """Polls until `condition` gives something true, and returns that. Asking takes a third of the time at most:
    what is waited for needs the processors."""
    deadline = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(max(POLL_S, 2 * (time.monotonic() - began)))


def ip(*words):
    subprocess.run([shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin"), *words], check=True,
                   timeout=60)


def can_have_namespaces():
    """Whether `muster up --netns` can work here: it needs CAP_NET_ADMIN, CAP_SYS_ADMIN and `ip`."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    effective = int(status.split("CapEff:")[1].split()[0], 16)
    return bool(effective >> 12 & effective >> 21 & 1) and bool(
        shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin"))


def namespaces(prefix):
    """The network namespaces whose names begin with it."""
    folder = pathlib.Path("/run/netns")
    names = (entry.name for entry in folder.iterdir()) if folder.exists() else ()
    return sorted(name for name in names if name.startswith(prefix))


def kill(pid, number=signal.SIGKILL):
    """Signals a process; False when it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def init_model(directory, preset="tiny"):
    """The same one whenever it is asked for, so that the tests of one script have it made once. Where ranks pause
    before each micro-batch a smaller one will do."""
    if preset not in _models:
        folder = tempfile.TemporaryDirectory(prefix="muster-model-")
        atexit.register(folder.cleanup)
        if "MUSTER_MICRO_BATCH_PAUSE" in os.environ:
            preset_of = ("--config", _small_config(folder.name, preset))
        else:
            preset_of = ("--preset", preset)
        run("muster-trainer", "init-model", *preset_of, "--out", f"{folder.name}/model")
        _models[preset] = folder
    shutil.copytree(f"{_models[preset].name}/model", directory)
    return directory


def _small_config(folder, preset):
    run("muster-trainer", "init-model", "--preset", preset, "--out", f"{folder}/{preset}")
    config = json.loads(pathlib.Path(f"{folder}/{preset}/config.json").read_text(encoding="utf-8"))
    config.update(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
                  num_key_value_heads=1, head_dim=32)
    file = pathlib.Path(f"{folder}/small.json")
    file.write_text(json.dumps(config), encoding="utf-8")
    return file


def write_rows(path):
    """Short prompt/completion rows, so that a step takes some milliseconds."""
    rows = [{"prompt": f"{a} plus {b}", "completion": str(a + b)}
            for a in range(10, 22) for b in range(10, 22)]
    pathlib.Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def train_job(model, rows, output, *, steps=80, nodes=2, every=20, name="job", **train):
    """A job file as a dictionary. Steps in fp32 take as long on every processor; one without products in bf16, which
    `fsdp={}` has, needs four times as much."""
    train.setdefault("fsdp", {"mixed_precision": "fp32"})
    return {
        "name": name,
        "resources": {"nodes": nodes, "ranks_per_node": 1, "device": "cpu"},
        "train": {
            "model": {"path": str(model)},
            "data": {"train": str(rows), "max_seq_len": 128},
            "optimizer": {"lr": 1.0e-3},
            "schedule": {"kind": "cosine", "warmup_ratio": 0.05, "max_steps": steps},
            "batch": {"per_rank": 2, "accumulation": 1},
            "checkpoint": {"every": every, "keep": 3},
            "output": {"dir": str(output)},
            **train,
        },
    }


def fake_gpus(test, gpus):
    """A file for `muster up --fake-gpus` that lasts as long as the test."""
    folder = tempfile.TemporaryDirectory(prefix="muster-gpus-")
    test.addCleanup(folder.cleanup)
    file = pathlib.Path(folder.name) / "gpus.yaml"
    file.write_text(json.dumps(gpus), encoding="utf-8")
    return file


def read_metrics(output):
    """metrics.jsonl by step: a step that was done again counts as it was done last."""
    path = pathlib.Path(output) / "metrics.jsonl"
    if not path.exists():
        return {}
    entries = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # the last line may be half written while the job runs
        entries[entry["step"]] = entry
    return entries


def steps_in_order(output):
    """The steps of metrics.jsonl as they were done: one that was done again is there twice."""
    text = (pathlib.Path(output) / "metrics.jsonl").read_text(encoding="utf-8")
    whole = text[:text.rfind("\n") + 1]  # the last line may be half written while the job runs
    return [json.loads(line)["step"] for line in whole.splitlines()]


def trajectory(output):
    """What must be equal, bit for bit, between a disturbed and an undisturbed run."""
    return trajectory_of(read_metrics(output))


def trajectory_of(metrics):
    return [(step, entry["loss"], entry["grad_norm"]) for step, entry in sorted(metrics.items())]


def processes_of(directory):
    """Processes whose command line carries the directory, as (pid, command line)."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(directory).encode() in word for word in words):
            found.append((int(entry), b" ".join(words).decode(errors="replace")))
    return found


def processes_of_job(job):
    """Guardians and trainers of a job, also those whose guardian is gone."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            program = pathlib.Path(f"/proc/{entry}/exe").readlink().name
            words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
            words += pathlib.Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if program.startswith(("muster-trainer", "muster-guardian")) and job.encode() in words:
            found.append((int(entry), program))
    return found


def alive(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in ("Z", "X")


def children_of(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            children = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii")
            found += map(int, children.split())
    except OSError:
        pass  # it ended meanwhile
    return found


def descendants(pid):
    """Every living process below one."""
    return [each for child in children_of(pid) for each in (child, *descendants(child))]


class JobOver(Exception):
    """The job has come to its end, so that what was waited for cannot happen."""


class Cluster:
    def __init__(self, test, nodes=2, slots=4, up=(), programs=BIN):
        """`test` is a unittest.TestCase, or None for a caller that calls close() itself; `up` holds
        further options of `muster up`; `programs` is the folder of those that the cluster is made of."""
        self.programs = programs
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        self.dir = self.root / "cluster"
        self.nodes = nodes
        self.slots = slots
        self.up_options = up
        self.hub = ""
        self.workers = []  # that were started by hand
        self.jobs = 0
        if test:
            test.addCleanup(self.close)
        self.up()

    def close(self):
        try:
            down = self.muster("down", check=False)
            for worker in self.workers:
                worker.wait(timeout=60)
            left = processes_of(self.root)
            for pid, _ in left:
                kill(pid)
            if down.returncode != 0 or left:
                raise AssertionError(f"`muster down` ended with {down.returncode} and left {left}:\n"
                                     f"{down.stdout}{down.stderr}")
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    def up(self):
        """Starts what does not run."""
        up = self.json("up", "--nodes", self.nodes, "--slots", self.slots, *self.up_options)
        self.hub = up["network_namespace"]
        return up

    def set_link(self, node, up):
        """Puts a node's network cable in or takes it out; of a cluster with --netns --allow-faults."""
        self.muster("fault", "--node", node, "--kind", "link-up" if up else "link-down")

    def network_namespaces(self):
        prefix = self.hub.removesuffix("hub")
        return namespaces(prefix) if prefix else []

    def muster(self, command, *arguments, **options):
        return run("muster", command, *arguments, "--dir", self.dir, programs=self.programs, **options)

    def json(self, command, *arguments, **options):
        return json.loads(self.muster(command, *arguments, "-o", "json", **options).stdout)

    def path(self, name):
        return self.root / name

    def model(self):
        directory = self.path("model")
        return directory if directory.exists() else init_model(directory)

    def train_job(self, **options):
        """A train job with an output directory of its own."""
        self.jobs += 1
        name = options.pop("name", f"job-{self.jobs}")
        rows = self.path("rows.jsonl")
        if not rows.exists():
            write_rows(rows)
        return train_job(options.pop("model", None) or self.model(), rows,
                         self.path(f"out-{self.jobs}"), name=name, **options)

    def calm(self, **options):
        """The metrics by step of a train job that nothing disturbs. A run is a function of its job file, so that
        the tests of one script share it where cluster and job have the same options."""
        key = json.dumps([self.up_options, options], sort_keys=True, default=str)
        if key not in _calm_runs:
            job = self.submit(self.train_job(**options))
            if self.wait(job) != 0:
                raise AssertionError(self.describe(job))
            _calm_runs[key] = read_metrics(self.output(job))
        return _calm_runs[key]

    def write_job(self, spec):
        path = self.path(f"{spec['name']}.yaml")
        path.write_text(json.dumps(spec, indent=1), encoding="utf-8")
        return path

    def submit(self, spec, *options):
        return self.json("submit", self.write_job(spec), *options)["id"]

    def get(self, job):
        return self.json("get", job)

    def output(self, job):
        return pathlib.Path(self.get(job)["output_dir"])

    def wait(self, job, timeout=120):
        """The exit code of `muster wait`: 0 succeeded, 10 failed, 11 cancelled."""
        return self.muster("wait", job, "--timeout", f"{timeout}s", timeout=timeout + 10,
                           check=False).returncode

    def wait_for_step(self, job, step, timeout=120):
        output = self.output(job)
        ask_at = time.monotonic()

        def reached():
            nonlocal ask_at
            done = read_metrics(output)
            if done and max(done) >= step:
                return True
            if time.monotonic() < ask_at:
                return False  # a process for each look would take more than the job's
            ask_at = time.monotonic() + 0.5
            return self._must_live(job)
        wait_until(reached, f"job {job} reaches step {step}", timeout)

    def wait_for_state(self, job, state, timeout=120):
        return wait_until(lambda: self.get(job)["state"] == state, f"job {job} is {state}", timeout)

    def _must_live(self, job):
        state = self.get(job)["state"]
        if state in TERMINAL:
            raise AssertionError(f"job {job} is {state}:\n{self.describe(job)}")
        return False

    def describe(self, job):
        return self.muster("describe", job).stdout

    def ranks(self, job):
        """Process of each rank, once all run; JobOver if they never will."""
        def all_running():
            got = self.get(job)
            if got["state"] in TERMINAL:
                raise JobOver(f"job {job} is {got['state']}: {got['reason']}")
            ranks = got["ranks"]
            return ranks and all(r["state"] == "running" and r["pid"] for r in ranks) and ranks
        return {r["rank"]: r["pid"] for r in wait_until(all_running, f"ranks of {job} run")}

    def kill_rank(self, job, rank):
        pid = self.ranks(job)[rank]
        os.kill(pid, signal.SIGKILL)
        return pid

    def worker_pid(self, node):
        return int((self.dir / "nodes" / node / "worker.pid").read_text(encoding="ascii"))

    def restart_worker(self, node, *options):
        """Ends a node's worker and starts it again with further options of muster-worker."""
        old = self.worker_pid(node)
        command = pathlib.Path(f"/proc/{old}/cmdline").read_bytes().split(b"\0")[:-1]
        kill(old)
        wait_until(lambda: not alive(old), f"the worker of {node} has ended")
        with open(self.dir / "nodes" / node / "worker.log", "ab") as log:
            worker = subprocess.Popen([*command, *map(str, options)], stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log, start_new_session=True)
        self.workers.append(worker)
        wait_until(lambda: any(n["pid"] == worker.pid and n["state"] == "ready"
                               for n in self.json("nodes")), f"the worker of {node} is back")

    def guardian_folders(self, job):
        """Where the job's guardians keep their files, by node."""
        return {path.parts[-3]: path for path in self.dir.glob(f"nodes/*/jobs/{job}")}

    def guardians(self, job):
        """The living guardians of a job, by node."""
        found = {}
        for node, folder in self.guardian_folders(job).items():
            try:
                pid = json.loads((folder / "guardian.json").read_text(encoding="utf-8"))["pid"]
                program = pathlib.Path(f"/proc/{pid}/exe").readlink().name
            except (OSError, ValueError, KeyError):
                continue
            if program.startswith("muster-guardian"):
                found[node] = pid
        return found

    def kill_node(self, node, job):
        """All of a node's processes at once, as when its power fails."""
        guardian = self.guardians(job).get(node)
        pids = [self.worker_pid(node)] + ([guardian, *descendants(guardian)] if guardian else [])
        for pid in pids:
            kill(pid)

    def wait_until_ready(self, timeout=120):
        wait_until(lambda: all(n["state"] == "ready" for n in self.json("nodes")),
                   "every node is ready", timeout)

    def coordinator_pid(self):
        return json.loads((self.dir / "coordinator" / "endpoint.json").read_text())["pid"]

    def checkpoints(self, job):
        """Committed checkpoints' folders, oldest first."""
        folder = self.output(job) / "checkpoints"
        return sorted(p.parent for p in folder.glob("step-*/manifest.json"))
