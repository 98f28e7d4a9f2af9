#!/usr/bin/env python3
"""Faults of every kind at random moments of real training on four real workers.

  chaos.py [--seed N] [--faults N] [--minutes M] [--kinds kill-rank,cut-link] [--keep DIR]

Each job trains quickstart's tiny model and gets some faults, some of them with a second one inside a
phase of the recovery from the first. Afterwards its losses, its samples and its weights are compared
with those of a run without faults, and what must hold at the end of a job is checked: no process of it,
no slot in use, every checkpoint whole, a cause for every fault. A seed gives the same faults in the
same order at the same steps; what happens between two steps is the machine's.

Ends when --faults are done or the --minutes are over. Prints one JSON object; exit code 1 when anything
was violated, which --keep writes down with events, timeline and logs.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
import random
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402
import oracle  # noqa: E402
from arena import Arena  # noqa: E402
from cluster import ROOT, TERMINAL, JobOver, processes_of_job, read_metrics, wait_until  # noqa: E402
from faults import FAULTS  # noqa: E402

# name: nodes that a job asks for, nodes that it may shrink to. Four workers: the first has one to
# spare for a lost node, the second must go on with fewer ranks.
SHAPES = {"spare": (3, 3), "shrink": (4, 2)}
STEPS = 90
CHECKPOINT_EVERY = 15
STEPS_LEFT = 15  # that a fault needs at least, to strike before the job is done
FAULTS_PER_JOB = 3
RECOVERED_WITHIN_S = 60
ORPHANS_WITHIN_S = 5
PHASES = ("prepare", "launch", "form", "load")
# From a rank's start to its first step, roughly: where in it "form" and "load" strike.
STARTING_S = 0.3


def say(text):
    print(text, file=sys.stderr, flush=True)


class Violated(Exception):
    """A job that did not come back; nothing more can be asked of it."""


class Chaos:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.arena = None
        self.references = {}
        self.count = collections.Counter()
        self.phases = collections.Counter()
        self.violations = []
        self.recoveries = []
        self.jobs = 0
        self.lost_steps = 0
        self.queue = []
        self.deadline = time.monotonic() + options.minutes * 60

    def run(self):
        self.arena = Arena()
        try:
            self.kinds = self._kinds()
            while not self._done():
                shape = "shrink" if self.jobs % 4 == 3 else "spare"
                self._job(shape)
        finally:
            self.arena.close()
        return self._summary()

    def _done(self):
        return sum(self.count.values()) >= self.options.faults or time.monotonic() > self.deadline

    def _kinds(self):
        kinds = [k for k in FAULTS if not self.options.kinds or k in self.options.kinds]
        possible = [k for k in kinds if not FAULTS[k].needs or FAULTS[k].needs in self.arena.has]
        self.left_out = sorted(set(kinds) - set(possible))
        if self.left_out:
            say("*** NOT TESTED, for want of root, `ip` or `mount`: " + ", ".join(self.left_out))
        return possible

    def _next_kind(self):
        """Every kind once, in random order, before any comes again."""
        if not self.queue:
            self.queue = self.random.sample(self.kinds, len(self.kinds))
        return self.queue.pop()

    def _spec(self, shape, name):
        nodes, least = SHAPES[shape]
        spec = self.arena.cluster.train_job(steps=STEPS, nodes=nodes, every=CHECKPOINT_EVERY, name=name)
        if least < nodes:
            spec["resources"]["min_nodes"] = least
        # Faults are sometimes faster than steps; the number that a job may have is not tested here.
        spec["restart"] = {"max_without_progress": 10}
        return spec

    def _reference(self, shape):
        if shape not in self.references:
            job = self.arena.submit(self._spec(shape, f"calm-{shape}"))
            if self.arena.cluster.wait(job, timeout=180) != 0:
                raise AssertionError("the run without faults failed:\n" + self.arena.cluster.describe(job))
            self.references[shape] = oracle.result_of(self.arena.output(job))
            shutil.rmtree(self.arena.output(job))
        return self.references[shape]

    def _job(self, shape):
        wanted = self._reference(shape)
        self.jobs += 1
        job = self.arena.submit(self._spec(shape, f"chaos-{self.jobs}"))
        done = []  # (generation, what, whether it was alone)
        try:
            for i in range(FAULTS_PER_JOB):
                if self._done() or not self._fault_at(job, self._moment(i), done):
                    break
            found = self._check(job, shape, wanted, done)
        except (AssertionError, Violated) as error:
            found = [str(error)]
        if found:
            self._violated(job, found, done)
        else:
            shutil.rmtree(self.arena.output(job))

    def _moment(self, index):
        """A step within the index-th part of the job, the last part without a fault."""
        part = STEPS // (FAULTS_PER_JOB + 1)
        return index * part + self.random.randint(1, part)

    def _fault_at(self, job, step, done):
        """False when the job can have no further fault."""
        wait_until(lambda: self._step(job) >= step or self._state(job) in TERMINAL,
                   f"job {job} reaches step {step}", timeout=RECOVERED_WITHIN_S)
        # While its coordinator was silent it trained on, perhaps to its end.
        if self._state(job) in TERMINAL or self._step(job) > STEPS - STEPS_LEFT:
            return False
        kind = self._next_kind()
        second = self.random.choice(self._seconds()) if self.random.random() < 0.4 else None
        phase = self.random.choice(PHASES)
        lasting = self.random.uniform(0.2, 5)
        generation = self.arena.cluster.get(job)["generation"]
        try:
            injected = [self._inject(kind, job)]
        except JobOver:  # it trained on while the coordinator was silent, and is done
            return False
        if second and injected[0].cause and not injected[0].terminal:
            injected += self._inject_within(second, job, generation + 1, phase)
        done += [(generation, fault, len(injected) == 1) for fault in injected]
        if injected[0].terminal:
            return False
        self._recover(job, injected, lasting)
        return True

    def _seconds(self):
        return [kind for kind in self.kinds if FAULTS[kind].quick]

    def _inject(self, kind, job):
        injected = FAULTS[kind].inject(self.arena, job, self.random)
        self.count[kind] += 1
        say(f"  {kind}: {injected.target}")
        return injected

    def _inject_within(self, kind, job, generation, phase):
        """A second fault as soon as the next generation has come to a phase; none if it never does."""
        delay = self.random.uniform(0, STARTING_S) if phase == "load" else 0
        deadline = time.monotonic() + RECOVERED_WITHIN_S
        while not self.arena.reached(job, generation, phase):
            if time.monotonic() > deadline:
                return []
            time.sleep(0.0005)
        time.sleep(delay)  # into the phase: its middle has no mark that could be waited for
        self.phases[phase] += 1
        say(f"  within {phase} of generation {generation}:")
        # It may have hit what the first one had already ended, so it need not end an attempt.
        try:
            return [dataclasses.replace(self._inject(kind, job), cause="")]
        except JobOver:
            return []

    def _recover(self, job, injected, lasting):
        """Lets a fault last, or until the job has recovered from it by itself; heals; waits for a step."""
        step, began = self._step(job), time.monotonic()

        def moved():
            return self._step(job) > step + 1 or self._state(job) in TERMINAL

        def over():
            return time.monotonic() - began > lasting or moved()
        wait_until(over, "the fault has lasted long enough", timeout=lasting + 10)
        for fault in injected:
            if fault.passes and not moved():
                fault.cause = ""
        self.arena.heal(injected)
        try:
            wait_until(moved, "", timeout=RECOVERED_WITHIN_S)
        except AssertionError:
            kinds = " and ".join(f"{fault.kind} of {fault.target}" for fault in injected)
            raise Violated(f"no new step within {RECOVERED_WITHIN_S} s after {kinds}") from None
        self.recoveries.append(time.monotonic() - began)

    def _step(self, job):
        return max(read_metrics(self.arena.output(job)), default=0)

    def _state(self, job):
        # The coordinator may be the one that is gone.
        got = self.arena.cluster.muster("get", job, "-o", "json", check=False)
        return json.loads(got.stdout)["state"] if got.returncode == 0 else "unknown"

    def _check(self, job, shape, wanted, done):
        cluster = self.arena.cluster
        cluster.wait(job, timeout=STEPS + RECOVERED_WITHIN_S)
        got = cluster.get(job)
        self.lost_steps = max([self.lost_steps] + [a["lost_steps"] for a in got["attempts"]])
        kinds = {fault.kind for _, fault, _ in done}
        found = oracle.check_end(got, done) + oracle.check_timeline(got, done)
        if got["state"] == "succeeded":
            sizes = {entry["world_size"] for entry in read_metrics(self.arena.output(job)).values()}
            found += oracle.compare(oracle.result_of(self.arena.output(job)), wanted,
                                    same_size=sizes <= {SHAPES[shape][0]},
                                    all_steps="fill-disk" not in kinds)
        found += oracle.check_checkpoints(cluster.checkpoints(job))
        found += self._within("processes left", lambda: processes_of_job(job))
        found += self._within("slots", lambda: oracle.check_free(cluster.json("nodes")))
        return found

    def _within(self, what, leftovers):
        try:
            wait_until(lambda: not leftovers(), what, timeout=ORPHANS_WITHIN_S)
        except AssertionError:
            return [f"{what} {ORPHANS_WITHIN_S} s after the end: {leftovers()}"]
        return []

    def _violated(self, job, found, done):
        faults = [f"{fault.kind} of {fault.target}" for _, fault, _ in done]
        say(f"*** VIOLATED by {', '.join(faults)}: {found}")
        self.violations.append({"job": self.jobs, "faults": faults, "violated": found})
        if self.options.keep:
            self._keep(job, pathlib.Path(self.options.keep) / f"job-{self.jobs}")
        self.arena.end_everything_of(job)
        # A cluster in a bad state must not spoil the jobs after this one.
        try:
            self.arena.close()
        except AssertionError as error:
            self.violations.append({"job": self.jobs, "faults": faults, "violated": [str(error)]})
        self.arena = Arena()

    def _keep(self, job, folder):
        cluster = self.arena.cluster
        folder.mkdir(parents=True, exist_ok=True)
        for name, words in (("describe.txt", ("describe", job)), ("events.txt", ("events", job)),
                            ("job.json", ("get", job, "-o", "json")), ("nodes.txt", ("nodes", "-o", "wide"))):
            (folder / name).write_text(cluster.muster(*words, check=False).stdout, encoding="utf-8")
        shutil.copytree(self.arena.output(job) / "logs", folder / "logs", dirs_exist_ok=True)
        for log in cluster.dir.glob("**/*.log"):
            target = folder / log.relative_to(cluster.dir)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, target)

    def _summary(self):
        return {"seed": self.options.seed, "faults": sum(self.count.values()), "jobs": self.jobs,
                "by_kind": dict(sorted(self.count.items())), "second_faults_by_phase": dict(self.phases),
                "not_tested": self.left_out, "max_lost_steps": self.lost_steps,
                "recovery": machine.summary(self.recoveries) if self.recoveries else {},
                "violations": self.violations, "revision": machine.revision(ROOT),
                "machine": machine.describe()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--faults", type=int, default=10**6)
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--kinds", type=lambda text: text.split(","), help="only these, of "
                        + ", ".join(FAULTS))
    parser.add_argument("--keep", help="folder for what is known of violated jobs")
    options = parser.parse_args()
    if options.kinds and set(options.kinds) - set(FAULTS):
        parser.error(f"unknown kinds {sorted(set(options.kinds) - set(FAULTS))}")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    say(f"seed {options.seed}")
    result = Chaos(options).run()
    print(json.dumps(result, indent=1))
    sys.exit(1 if result["violations"] else 0)


if __name__ == "__main__":
    main()
