"""Faults within long-lived jobs, and what each of them cost, for recovery_bench.py.

  job = LongJob(cluster, nodes=2)
  job.fault(lambda: job.kill_rank(1))       # returns when the next step is finished
  job.end()                                 # the measured faults, with the coordinator's stages

Times are wall clock seconds of this machine, which the coordinator's events have too.
"""

import dataclasses
import datetime
import os
import pathlib
import signal
import sys
import time
from typing import Optional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import descendants, kill, wait_until  # noqa: E402
from fault_timeline import run_delays, timeline  # noqa: E402

POLL_S = 0.001
NEXT_STEP_WITHIN_S = 120
# A fault comes after so many steps of a generation, so that each finds the job as it is for hours.
CALM_STEPS = 12
CALM_WITHIN_S = 30
FOREVER = 10**6
# A fault in place that takes longer is printed with what every program did meanwhile.
SLOW_S = 0.3


class Metrics:
    """Follows metrics.jsonl without reading it again and again."""

    def __init__(self, path):
        self.path = path
        self.offset = 0
        self.step = 0
        self.generation = 0
        self.in_generation = 0  # lines of the newest generation

    def update(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text.rfind(b"\n") + 1
        self.offset += whole
        for line in text[:whole].splitlines():
            generation = int(line.split(b'"generation":')[1].split(b",")[0].strip(b" }"))
            self.step = int(line.split(b'"step":')[1].split(b",")[0])
            self.in_generation = self.in_generation + 1 if generation == self.generation else 1
            self.generation = generation


@dataclasses.dataclass
class Measured:
    generation: int   # that the fault ended
    at: float
    next_step: float  # seconds until a step of a later generation was finished
    decided: Optional[float] = None  # ... until the coordinator had decided to end the generation
    out: Optional[float] = None      # ... until nothing was in a collective of it any more
    stages: dict = dataclasses.field(default_factory=dict)
    tier: str = ""
    lost_steps: int = 0
    cause: str = ""
    timeline: list = dataclasses.field(default_factory=list)  # where it was slow


def unix_seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def cpu_ticks(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return None
    return sum(map(int, stat.rsplit(")", 1)[1].split()[11:13]))


class LongJob:
    def __init__(self, cluster, *, nodes, restart=None, resources=None, preemptible=False,
                 calm_within=CALM_WITHIN_S, **train):
        self.cluster = cluster
        spec = cluster.train_job(steps=FOREVER, every=20, nodes=nodes, **{"fsdp": {}, **train})
        spec["restart"] = {"max_without_progress": 1000, **(restart or {})}
        spec["resources"].update(resources or {})
        if preemptible:
            spec["preemptible"] = True  # earlier builds do not know the key
        self.standbys = spec["restart"].get("standbys", 1)
        self.in_place = spec["restart"].get("in_place", True)
        self.job = cluster.submit(spec)
        self.calm_within = calm_within
        self.metrics = Metrics(cluster.output(self.job) / "metrics.jsonl")
        self.measured = []
        self._calm()

    def _calm(self):
        """Until the generation has trained for a while and its standbys have loaded and wait."""
        def trained():
            self.metrics.update()
            return self.metrics.in_generation >= CALM_STEPS
        wait_until(trained, f"{CALM_STEPS} steps of the generation", timeout=self.calm_within)
        if self.in_place and self.standbys:
            wait_until(self._standbys_wait, "the standbys have loaded", timeout=self.calm_within)

    def _standbys_wait(self):
        """Every node of the gang has a process more than ranks, and the ones beyond use no CPU."""
        ranks = set(self.cluster.ranks(self.job).values())
        standbys = [set(descendants(pid)) - ranks for pid in self.cluster.guardians(self.job).values()]
        if not standbys or not all(standbys):
            return False
        before = {pid: cpu_ticks(pid) for pids in standbys for pid in pids}
        time.sleep(0.1)
        return all(cpu_ticks(pid) == ticks for pid, ticks in before.items())

    def ranks(self):
        return self.cluster.ranks(self.job)

    def nodes(self):
        """The node of each rank."""
        return {rank["rank"]: rank["node"] for rank in self.cluster.get(self.job)["ranks"]}

    def kill_rank(self, rank):
        kill(self.ranks()[rank])

    def fault(self, inject):
        """Does it and waits for the next generation's first finished step."""
        self.metrics.update()
        generation = self.metrics.generation
        delays = run_delays(self.cluster, self.job)
        at = inject() or time.time()
        deadline = time.monotonic() + NEXT_STEP_WITHIN_S
        while self.metrics.generation <= generation:
            if time.monotonic() > deadline:
                raise AssertionError(f"no step within {NEXT_STEP_WITHIN_S} s:\n"
                                     + self.cluster.describe(self.job))
            time.sleep(POLL_S)
            self.metrics.update()
        measured = Measured(generation, at, time.time() - at)
        if self.in_place and measured.next_step > SLOW_S:
            measured.timeline = timeline(self.cluster, self.job, at, delays)
        self.measured.append(measured)

    def calm(self):
        self._calm()

    def end(self):
        """Cancels the job; what was measured, completed by what the coordinator knows."""
        got = self.cluster.get(self.job)
        events = self.cluster.json("events", self.job)
        self.cluster.muster("cancel", self.job)
        self.cluster.wait(self.job)
        attempts = {a["generation"]: a for a in got["attempts"]}
        aborting = {e["generation"]: unix_seconds(e["time"]) for e in reversed(events)
                    if e["kind"] == "aborting"}
        for fault in self.measured:
            ended, following = attempts[fault.generation], attempts.get(fault.generation + 1)
            fault.lost_steps, fault.cause = ended["lost_steps"], ended["cause"]
            if fault.generation in aborting:
                fault.decided = max(0.0, aborting[fault.generation] - fault.at)
            if following:
                fault.stages = following["seconds"]
                fault.tier = following.get("tier") or "unknown"
                if fault.decided is not None and fault.stages["abort"] is not None:
                    fault.out = fault.decided + fault.stages["abort"]
        return self.measured


def stop_process(pid):
    """The moment at which a process was stopped."""
    at = time.time()
    os.kill(pid, signal.SIGSTOP)
    return at
