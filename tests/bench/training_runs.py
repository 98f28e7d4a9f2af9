"""Runs of the trainer and of its Python peer on the same weights and rows, for fsdp_bench.py and
gpu_bench.py.

  workspace = Workspace(folder, env={})
  ours = workspace.run_ours(Case(tokens=512, precision="bf16"), steps=20)
  theirs = workspace.run_peer(Case(tokens=512, precision="bf16"), steps=20)

Both are processes of their own with one thread each, one row per rank and step, AdamW without
clipping and a constant learning rate. Ours is killed after its last step, before it would write a
model; the peer writes none.
"""

import ctypes
import dataclasses
import itertools
import json
import os
import pathlib
import random
import select
import shutil
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import peer  # noqa: E402
from cluster import BIN, init_model  # noqa: E402
from gang import Gang, GangFailed  # noqa: E402
from token_rows import write_npy  # noqa: E402

PEER_PROGRAM = pathlib.Path(__file__).resolve().parent / "peers" / "fsdp2_train.py"
LEARNING_RATE = 5e-5
ROWS = 128
STEP_LIMIT_S = 120
SPARE_STEPS = 50  # beyond the last one that counts: ours is killed before it comes to its end
SAMPLE_EVERY_S = 0.02
NO_CHECKPOINT = 10**9

_IN_MODIFY, _IN_CREATE = 0x2, 0x100


@dataclasses.dataclass(frozen=True)
class Case:
    tokens: int  # of a row
    precision: str

    def __str__(self):
        return f"{self.precision} {self.tokens}"


@dataclasses.dataclass
class Save:
    """A checkpoint made while training goes on; Unix seconds."""
    begin: float
    stall: float    # seconds during which no step could run
    durable: float  # when it was complete on disk


@dataclasses.dataclass
class Run:
    """What one run of one gang did. Times are Unix seconds."""
    started: float                             # before the first process
    ends: list                                 # of each step, as rank 0 saw it
    seconds: list                              # of each step
    losses: list
    saves: list = dataclasses.field(default_factory=list)
    memory: list = dataclasses.field(default_factory=list)  # per rank: bytes bare, peak, end
    device_bytes: int = 0                      # of the GPU of rank 0, at most

    def tokens_per_second(self, tokens_per_step, warmup):
        return tokens_per_step / statistics.median(self.seconds[warmup:])

    @property
    def first_step_s(self):
        return self.ends[0] - self.started

    def drags(self, warmup):
        """Per save, the time that the steps beside it took beyond an undisturbed one."""
        beside = [[i for i, (end, took) in enumerate(zip(self.ends, self.seconds))
                   if end > save.begin + save.stall and end - took < save.durable]
                  for save in self.saves]
        disturbed = set(itertools.chain(*beside))
        calm = statistics.median(took for i, took in enumerate(self.seconds)
                                 if i >= warmup and i not in disturbed)
        return [sum(self.seconds[i] - calm for i in steps) for steps in beside]


def random_rows(tokens, vocab_size):
    source = random.Random(1)
    return [[source.randrange(vocab_size) for _ in range(tokens)] for _ in range(ROWS)]


def pss_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in text.splitlines()
                if line.startswith("Pss:"))


class MemorySampler:
    """Proportional set sizes of the ranks over time."""

    def __init__(self, pids):
        self.pids = pids
        self.samples = []  # (Unix seconds, bytes of each rank)

    def sample(self):
        try:
            self.samples.append((time.time(), [pss_bytes(pid) for pid in self.pids]))
        except (OSError, StopIteration):
            pass  # a rank has just ended

    def between(self, begin, end):
        """Of each rank: the most that was seen, and the last."""
        window = [sizes for at, sizes in self.samples if begin <= at <= end]
        return [{"peak": max(of_rank), "end": of_rank[-1]} for of_rank in zip(*window)]


class MetricsWatch:
    """Lines of a metrics.jsonl with the moment at which each was written: inotify wakes us up, so
    that watching costs the ranks nothing."""

    def __init__(self, folder):
        self.file = folder / "metrics.jsonl"
        self.entries = []  # parsed lines, each with "seen" in Unix seconds
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self.fd, os.fsencode(folder), _IN_MODIFY | _IN_CREATE) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {folder}")

    def close(self):
        os.close(self.fd)

    def update(self):
        """After `fd` has become readable."""
        now = time.time()
        os.read(self.fd, 1 << 16)
        if not self.file.exists():
            return
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        for line in lines[len(self.entries):]:
            if line.endswith("\n"):
                self.entries.append({**json.loads(line), "seen": now})


def follow(gangs, watches, steps, sampler=None):
    """Until each gang's metrics have `steps` lines; a rank that ends before is an error."""
    deadline = time.monotonic() + STEP_LIMIT_S
    while True:
        late = [watch for watch in watches if len(watch.entries) < steps]
        if not late:
            return
        ready, _, _ = select.select([watch.fd for watch in late], [], [],
                                    SAMPLE_EVERY_S if sampler else 0.5)
        for watch in late:
            if watch.fd in ready:
                watch.update()
                deadline = time.monotonic() + STEP_LIMIT_S
        if sampler:
            sampler.sample()
        if not all(gang.running() for gang in gangs):
            raise GangFailed(f"ended before step {steps}:\n{gangs[0].log_ends()}")
        if time.monotonic() > deadline:
            raise GangFailed(f"no step within {STEP_LIMIT_S} s:\n{gangs[0].log_ends()}")


class Workspace:
    """A folder with the model and the rows; `env` goes to all processes of both sides."""

    def __init__(self, folder, env, model=None, device="cpu"):
        self.folder = pathlib.Path(folder)
        self.env = env
        self.device = device
        self.runs = 0
        self.model = model or init_model(self.folder / "model", "small")
        self.config = json.loads((self.model / "config.json").read_text(encoding="utf-8"))

    def rows(self, tokens):
        path = self.folder / f"rows-{tokens}.npy"
        if not path.exists():
            write_npy(path, random_rows(tokens, self.config["vocab_size"]))
        return path

    def new_folder(self, name):
        self.runs += 1
        folder = self.folder / f"{self.runs}-{name}"
        folder.mkdir()
        return folder

    def write_job(self, folder, case, *, steps, ranks, checkpoint_every, fsdp, train):
        job = {"name": "bench", "resources": {"nodes": 1, "ranks_per_node": ranks,
                                               "device": self.device},
               "train": {"model": {"path": str(self.model)},
                         "data": {"train": str(self.rows(case.tokens)), "max_seq_len": case.tokens,
                                  "shuffle": False},
                         "fsdp": {"mixed_precision": case.precision, **fsdp},
                         "optimizer": {"lr": LEARNING_RATE, "grad_clip": 0},
                         "schedule": {"kind": "constant", "warmup_ratio": 0,
                                      "max_steps": steps + SPARE_STEPS},
                         "batch": {"per_rank": 1, "accumulation": 1},
                         "checkpoint": {"every": checkpoint_every, "keep": 100},
                         "output": {"dir": str(folder)}, **train}}
        path = folder / "job.yaml"
        path.write_text(json.dumps(job), encoding="utf-8")
        return path

    def start_ours(self, folder, case, *, steps, world, checkpoint_every=NO_CHECKPOINT, fsdp=None,
                   train=None, ranks=None):
        file = self.write_job(folder, case, steps=steps, ranks=world,
                              checkpoint_every=checkpoint_every, fsdp=fsdp or {},
                              train=train or {})
        return Gang([BIN / "muster-trainer", "train", file], world=world, ranks=ranks, logs=folder,
                    env=self.env)

    def run_ours(self, case, *, steps, world=2, copies=1, memory=False,
                 checkpoint_every=NO_CHECKPOINT, fsdp=None, train=None):
        """One run, or a list of `copies` independent ones side by side."""
        folders = [self.new_folder("ours") for _ in range(copies)]
        watches = [MetricsWatch(folder) for folder in folders]
        gangs = []
        try:
            gangs = [self.start_ours(folder, case, steps=steps, world=world, fsdp=fsdp, train=train,
                                     checkpoint_every=checkpoint_every) for folder in folders]
            sampler = MemorySampler(gangs[0].pids) if memory else None
            follow(gangs, watches, steps, sampler)
        finally:
            for gang in gangs:
                gang.kill()
            for watch in watches:
                watch.close()
        runs = [_ours(gang, watch.entries[:steps], folder)
                for gang, watch, folder in zip(gangs, watches, folders)]
        if memory:
            runs[0].memory = sampler.between(runs[0].ends[0], runs[0].ends[-1])
        for folder in folders:
            shutil.rmtree(folder)
        return runs[0] if copies == 1 else runs

    def bare_ours(self):
        """PSS of each of two ranks that have started and wait for a third, which never comes."""
        folder = self.new_folder("bare")
        with self.start_ours(folder, Case(256, "bf16"), steps=1, world=3, ranks=(0, 1)) as gang:
            sizes, calm = [], 0
            while calm < 20:
                time.sleep(0.05)
                gang.running()
                sizes.append([pss_bytes(pid) for pid in gang.pids])
                calm = calm + 1 if len(sizes) > 1 and sizes[-1] == sizes[-2] else 0
        shutil.rmtree(folder)
        return sizes[-1]

    def run_peer(self, case, *, steps, world=2, copies=1, memory=False, arguments=()):
        folders = [self.new_folder("peer") for _ in range(copies)]
        command = [peer.PYTHON, PEER_PROGRAM, "--model", self.model,
                   "--rows", self.rows(case.tokens), "--precision", case.precision,
                   "--steps", steps, "--lr", LEARNING_RATE, "--device", self.device, *arguments]
        gangs = []
        try:
            gangs = [Gang([*command, "--out", folder], world=world, logs=folder, env=self.env)
                     for folder in folders]
            sampler = MemorySampler(gangs[0].pids) if memory else None
            while sampler and gangs[0].running():
                sampler.sample()
                time.sleep(SAMPLE_EVERY_S)
            for gang in gangs:
                gang.wait(steps * STEP_LIMIT_S)
        finally:
            for gang in gangs:
                gang.kill()
        runs = [_peer(gang, folder) for gang, folder in zip(gangs, folders)]
        if memory:
            window = sampler.between(runs[0].ends[0], runs[0].ends[-1])
            runs[0].memory = [{**own, **seen} for own, seen in zip(runs[0].memory, window)]
        for folder in folders:
            shutil.rmtree(folder)
        return runs[0] if copies == 1 else runs


def _ours(gang, entries, folder):
    ends, seconds = [e["seen"] for e in entries], [e["step_seconds"] for e in entries]
    run = Run(started=gang.started, ends=ends, seconds=seconds, losses=[e["loss"] for e in entries],
              device_bytes=max(e["device_bytes"] or 0 for e in entries))
    by_step = {e["step"]: i for i, e in enumerate(entries)}
    for manifest in sorted(folder.glob("checkpoints/step-*/manifest.json")):
        last = by_step.get(json.loads(manifest.read_text(encoding="utf-8"))["step"])
        if last is not None and last + 1 < len(ends):
            # What lies between two steps is the copy of the shard.
            run.saves.append(Save(begin=ends[last], durable=manifest.stat().st_mtime,
                                  stall=ends[last + 1] - seconds[last + 1] - ends[last]))
    return run


def _peer(gang, folder):
    ranks = [json.loads(path.read_text(encoding="utf-8"))
             for path in sorted(folder.glob("rank-*.json"))]
    steps = ranks[0]["steps"]
    saves = [Save(begin=min(s["begin"] for s in of_ranks),
                  stall=max(s["stall_end"] - s["begin"] for s in of_ranks),
                  durable=max(s["durable"] for s in of_ranks))
             for of_ranks in zip(*(rank["saves"] for rank in ranks))]
    return Run(started=gang.started, ends=[s["end"] for s in steps],
               seconds=[s["end"] - s["begin"] for s in steps], losses=ranks[0]["losses"],
               saves=saves, memory=[{"bare": rank["bare_memory"]["pss"]} for rank in ranks],
               device_bytes=ranks[0]["memory"]["device"] or 0)
