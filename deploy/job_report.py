#!/usr/bin/env python3
"""Reads what `muster get -o json` and metrics.jsonl say, for deploy/quickstart.

  job_report.py id              < submit.json      the job's id
  job_report.py midway-pid RANK < job.json         its process once half of the steps are done,
                                                   nothing before; 1 when the job is over
  job_report.py recovery        < job.json         each recovery in words
  job_report.py loss METRICS                       first and last losses; 1 when not learned
  job_report.py leftovers DIR                      processes that still carry DIR; 1 if there are
"""

import json
import os
import sys

WINDOW = 10          # steps at either end whose mean loss is compared
MIN_DROP_NATS = 1.0  # by which training must have lowered it
STAGES = (("detect", "noticed"), ("abort", "ended the others"), ("reform", "re-formed"),
          ("load", "loaded the checkpoint"), ("first_step", "first step"))


def seconds_in_words(seconds):
    known = {k: v for k, v in seconds.items() if v is not None and v >= 0}
    parts = [f"{words} {known[name]:.2f} s" for name, words in STAGES if name in known]
    return ", ".join(parts), sum(known.values())


def midway_pid(rank):
    job = json.load(sys.stdin)
    if job["state"] in ("succeeded", "failed", "cancelled"):
        print(f"error: the job has already {job['state']}", file=sys.stderr)
        return 1
    total = job.get("max_steps") or 0
    if total and (job.get("step") or 0) * 2 >= total:
        for entry in job["ranks"]:
            if entry["rank"] == rank and entry["state"] == "running" and entry["pid"]:
                print(entry["pid"])
    return 0


def recovery():
    attempts = json.load(sys.stdin)["attempts"]
    if len(attempts) < 2:
        print("no attempt was lost: the fault came too late or was not seen", file=sys.stderr)
        return 1
    for failed, after in zip(attempts, attempts[1:]):
        words, total = seconds_in_words(after["seconds"])
        print(f"rank {failed['failed_rank']} was lost: {failed['cause']}")
        print(f"generation {after['generation']} resumed at step {after['resumed_step']}; "
              f"training again {total:.2f} s after the fault: {words}")
    return 0


def loss(path):
    by_step = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            by_step[entry["step"]] = entry["loss"]  # a step done again: the last one counts
    losses = [by_step[step] for step in sorted(by_step)]
    if len(losses) < 2 * WINDOW:
        print(f"{path}: only {len(losses)} steps", file=sys.stderr)
        return 1
    first = sum(losses[:WINDOW]) / WINDOW
    last = sum(losses[-WINDOW:]) / WINDOW
    print(f"mean of the first {WINDOW} steps {first:.3f}, of the last {WINDOW} steps {last:.3f}: "
          f"{first - last:.3f} nat lower, {len(losses)} steps")
    if not first - last >= MIN_DROP_NATS:
        print(f"error: the loss fell by less than {MIN_DROP_NATS} nat", file=sys.stderr)
        return 1
    return 0


def ancestors():
    pid, found = os.getpid(), set()
    while pid > 1:
        found.add(pid)
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            pid = int(stat.read().rsplit(")", 1)[1].split()[1])
    return found


def leftovers(directory):
    own, count = ancestors(), 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in own:
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if directory in words:
            print(f"error: still running: {entry} {words}", file=sys.stderr)
            count += 1
    if count == 0:
        print("no process is left", file=sys.stderr)
    return 1 if count else 0


def main(arguments):
    verb, rest = (arguments or [""])[0], arguments[1:]
    if verb == "id" and not rest:
        print(json.load(sys.stdin)["id"])
        return 0
    if verb == "midway-pid" and len(rest) == 1:
        return midway_pid(int(rest[0]))
    if verb == "recovery" and not rest:
        return recovery()
    if verb == "loss" and len(rest) == 1:
        return loss(rest[0])
    if verb == "leftovers" and len(rest) == 1:
        return leftovers(rest[0])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
