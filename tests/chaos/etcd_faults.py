#!/usr/bin/env python3
"""Faults of coordinators, of etcd, and of the network between them, while jobs train and clients submit.

  etcd_faults.py [--seed N] [--faults N] [--minutes M] [--kinds kill-leader,...] [--jobs N] [--nodes N] [--keep DIR]
  etcd_faults.py --calm M [--rate N] --faults 0   # M minutes without a fault, beside what else keeps the machine busy

Three coordinators with shipped defaults share an etcd of three members; two jobs train and clients submit 30 times a
second, about the same jobs in parallel. A seed gives the same faults in the same order; each kind comes once before any
comes again. Each says what it hit and how that is known. After each fault, and at the end, must hold:

- no answer was lost or taken back: every job's history is linearizable (linearizability.py), and at the end every
  acknowledged job is read once more;
- no attempt ran twice: the jobs that train have the processes and the generation that they had, and jobs that run for a
  second each take a lock for as long;
- no step was lost: the steps of the jobs that train follow each other, also while a fault lasts.

--jobs and --nodes are stored before the first fault; --keep gets logs and history. Prints one JSON object; exit code 1
when anything was violated. Times are figures, not bounds:

  elected_s     from a fault to the next coordinator that serves
  elections     of coordinators
  stalled_s     the longest time without an acknowledged submission
  reads_behind  reads of a step below one that was read before
  cpu_s         of all processes but guardians and ranks
  calm          the minutes without a fault, their elections, and the machine's load meanwhile
"""

import argparse
import collections
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402
from cluster import BIN, ROOT, processes_of_job, wait_until  # noqa: E402
from etcd_arena import Arena, SITE  # noqa: E402
from etcd_fault_kinds import FAULTS  # noqa: E402
from linearizability import History  # noqa: E402

RATE = 30  # submissions a second
SAMPLE_S = 10  # between two looks at a calm cluster
CALM_S = 1.5  # between two faults
LOADING_RATE = 200  # submissions a second of new jobs
TRAINING = {"train-two": 2, "train-one": 1}  # nodes
RECOVERED_WITHIN_S = 120


def say(text):
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", file=sys.stderr, flush=True)


def spread(values):
    values = sorted(values)
    if not values:
        return None
    return {"count": len(values), "median": round(values[len(values) // 2], 2),
            "p99": round(values[min(len(values) - 1, len(values) * 99 // 100)], 2), "max": round(values[-1], 2)}


class Campaign:
    def __init__(self, options):
        self.options, self.random = options, random.Random(options.seed)
        self.arena = Arena(options.seed, options.keep)
        # The newest step is not in the store: the next leader reads it lower until workers report again.
        self.history, self.read_to = History(without=("step",)), 0
        self.newest_steps, self.reads_behind = collections.Counter(), 0
        self.jobs, self.acknowledged = set(), []  # of submissions that were acknowledged: jobs, times
        self.queue, self.done, self.violations = [], [], []
        self.training, self.processes, self.steps = {}, {}, {}
        self.deadline = time.monotonic() + options.minutes * 60

    def run(self):
        try:
            self.arena.start()
            self._choose_kinds()
            self._store()
            for name, nodes in TRAINING.items():
                self.training[name] = self.arena.train(name, nodes)
            wait_until(lambda: all(len(self.arena.steps(name)) > 5 for name in TRAINING), "the jobs train")
            self.processes = {name: processes_of_job(job) for name, job in self.training.items()}
            if not all(self.processes.values()):
                raise AssertionError(f"there are no processes of a job that trains: {self.processes}")
            self.began = time.monotonic()
            self.arena.start_clients(self.options.rate, self.training)
            wait_until(lambda: self._submissions(self.began) > self.options.rate, "clients submit")
            if self.options.calm:
                self._calm()
            while len(self.done) < self.options.faults and time.monotonic() < self.deadline and not self.violations:
                self._fault(self._next_kind())
            self.ended = time.monotonic()
            if not self.violations:
                self._read_all()
        except AssertionError as error:
            self.violations.append(str(error))
            self.ended = time.monotonic()
        finally:
            for violation in self.violations:
                say(f"VIOLATED: {violation}")
            self.arena.close()
        return self._summary()

    def _choose_kinds(self):
        kinds = [kind for kind in FAULTS if not self.options.kinds or kind in self.options.kinds]
        self.kinds = [kind for kind in kinds if not FAULTS[kind].needs or FAULTS[kind].needs in self.arena.has]
        self.left_out = sorted(set(kinds) - set(self.kinds))
        if self.left_out:
            say("*** NOT TESTED, for want of root, `ip`, `mount`, strace or libfaketime: " + ", ".join(self.left_out))

    def _next_kind(self):
        if not self.queue:
            self.queue = self.random.sample(self.kinds, len(self.kinds))
        return self.queue.pop()

    def _store(self):
        """Nodes that have been there, and jobs."""
        if self.options.nodes:
            leader = self.arena.leader()
            fake = subprocess.Popen(
                [*self.arena.network.enter(SITE), str(BIN / "cluster_load"), "--dir",
                 str(self.arena.coordinators[0].directory), "--credentials", str(self.arena.root / "fake"), "--coordinator",
                 leader.address, "--nodes", str(self.options.nodes)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            registered = fake.stdout.readline()
            fake.kill()
            fake.communicate()
            if "registered_s" not in registered:
                raise AssertionError(f"cluster_load registered no nodes: {registered}")
        if self.options.jobs:
            self.arena.start_clients(LOADING_RATE, {}, ["--new", "100"])
            wait_until(lambda: self._stored() >= self.options.jobs, "jobs are stored", timeout=300)
            self.arena.end_clients()

    def _take_in(self):
        with open(self.arena.history, "rb") as file:
            file.seek(self.read_to)
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self.read_to += whole
        for call in self.history.add(text[:whole].decode().splitlines()):
            if call.op == "submit" and call.answer == "ok":
                self.jobs.add(call.job)
                self.acknowledged.append(call.end)
            self.reads_behind += call.step < self.newest_steps[call.job] and call.op == "get"
            self.newest_steps[call.job] = max(call.step, self.newest_steps[call.job])

    def _stored(self):
        self._take_in()
        return len(self.jobs)

    def _submissions(self, since):
        self._take_in()
        return len(self._acknowledged(since))

    def _acknowledged(self, since):
        """Times of answers to submissions. Those of several clients may be in another order by some lines."""
        first = len(self.acknowledged)
        while first > 0 and self.acknowledged[first - 1] > since - 1:
            first -= 1
        return sorted(end for end in self.acknowledged[first:] if end > since)

    def _calm(self):
        epoch, began, loads = self.arena.epoch(), time.monotonic(), []
        while time.monotonic() < began + self.options.calm * 60 and self.arena.epoch() == epoch:
            time.sleep(SAMPLE_S)
            self._take_in()
            loads.append(os.getloadavg()[0])
        self.calm = {"minutes": round((time.monotonic() - began) / 60, 1), "elections": self.arena.epoch() - epoch,
                     "load": spread(loads), "stalled_s": round(self._stall(began), 2)}
        say(json.dumps(self.calm))
        self.violations += self._check()

    def _fault(self, kind):
        fault, epoch = FAULTS[kind], self.arena.epoch()
        before = {name: len(self.arena.steps(name)) for name in TRAINING}
        began = time.monotonic()
        injected = fault.inject(self.arena, self.random)
        say(f"{len(self.done) + 1} {kind}: {injected.target}; {injected.proof}")
        row = {"kind": kind, "target": injected.target, "proof": injected.proof}
        if fault.elects:
            wait_until(lambda: self.arena.epoch() >= epoch + fault.elects, f"a coordinator leads after {kind}",
                       timeout=RECOVERED_WITHIN_S)
            row["elected_s"] = time.monotonic() - injected.at
        over = injected.at + self.random.uniform(*fault.lasts)
        wait_until(lambda: time.monotonic() > over, "the fault has lasted", timeout=30)
        within = {name: len(self.arena.steps(name)) - before[name] for name in TRAINING}
        injected.heal()
        self.arena.heal()
        if kind == "kill-clients":
            self.arena.start_clients(self.options.rate, self.training)
        healed = time.monotonic()
        wait_until(lambda: self._submissions(healed) > self.options.rate * CALM_S, f"clients submit after {kind}",
                   timeout=RECOVERED_WITHIN_S)
        row |= {"elections": self.arena.epoch() - epoch, "steps": within, "stalled_s": self._stall(began)}
        if kind == "kill-clients":
            del row["stalled_s"]
        self.done.append(row)
        say(f"    {json.dumps({key: value for key, value in row.items() if key not in ('kind', 'target', 'proof')})}")
        if kind != "kill-clients" and 0 in within.values():
            self.violations.append(f"no step was done during {kind}: {within}")
        self.violations += [f"after {kind} of {injected.target}: {found}" for found in self._check()]

    def _stall(self, since):
        times = self._acknowledged(since - 1)
        return max((after - before for before, after in zip(times, times[1:]) if after > since), default=0)

    def _check(self):
        self._take_in()
        found = list(map(str, self.history.check()))
        found += [f"two attempts of job {job} ran at once" for job in self.arena.doubled()]
        for name, job in self.training.items():
            steps = self.arena.steps(name)
            if steps != list(range(1, len(steps) + 1)):
                found.append(f"the steps of {name} do not follow each other: {steps[-50:]}")
            got = self.arena.muster("get", job)
            if got["generation"] != 1 or got["state"] != "running":
                found.append(f"{name} is {got['state']} in generation {got['generation']}: {got['attempts']}")
            if (now := processes_of_job(job)) != self.processes[name]:
                found.append(f"{name} had processes {self.processes[name]} and has {now}")
            self.steps[name] = len(steps)
        return found

    def _read_all(self):
        """Ends the clients and reads every job that they asked for; those without an id are submitted again."""
        self.arena.end_clients()
        self._take_in()
        jobs = {}
        for call in self.history.calls():
            if call.op == "submit" and call.client and (call.answer == "ok" or call.job not in jobs):
                jobs[call.job] = (call.job, call.file, call.id) if call.id else (call.job, call.file)
        self.arena.read_jobs(jobs.values())
        since = self.ended
        self.violations += self._check()
        answered = {call.job for call in self.history.calls() if call.begin > since and call.answer}
        if left := set(jobs) - answered:
            self.violations.append(f"{len(left)} jobs were not answered about at the end, such as {sorted(left)[0]}")

    def _summary(self):
        kinds = collections.defaultdict(list)
        for row in self.done:
            kinds[row["kind"]].append(row)
        calls = self.history.calls()
        used = [resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        elected = [row["elected_s"] for row in self.done if "elected_s" in row]
        seconds = self.ended - getattr(self, "began", self.ended)
        submitted = [call for call in calls if call.op == "submit" and call.begin >= self.ended - seconds]
        return {
            "benchmark": "etcd_faults", "seed": self.options.seed, "revision": machine.revision(ROOT),
            "machine": machine.describe(), "faults": len(self.done), "left_out": getattr(self, "left_out", []),
            "seconds": round(seconds), "cpu_s": round(sum(each.ru_utime + each.ru_stime for each in used)),
            "jobs": len({call.job for call in calls}), "calls": len(calls),
            "open_calls": sum(not call.answer for call in calls),
            "submits_per_s": round(len(submitted) / seconds, 1) if seconds else 0,
            "training_steps": self.steps, "reads_behind": self.reads_behind, "elected_s": spread(elected),
            "elections": sum(row["elections"] for row in self.done), "calm": getattr(self, "calm", None),
            "kinds": {kind: {"faults": len(rows), "elections": sum(row["elections"] for row in rows),
                             **{name: spread([row[name] for row in rows if name in row])
                                for name in ("elected_s", "stalled_s")}} for kind, rows in sorted(kinds.items())},
            "violations": self.violations}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1, 100_000))
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--calm", type=float, default=0)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[])
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    if missing := [program for program in ("etcd", "etcdctl", "openssl") if not shutil.which(program)]:
        print(f"SKIPPED: {missing[0]} is not installed (Debian's packages etcd-server, etcd-client, openssl)")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through what closes the arena
    say(f"seed {options.seed}")
    result = Campaign(options).run()
    print(json.dumps(result, indent=1))
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
