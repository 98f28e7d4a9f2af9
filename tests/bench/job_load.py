#!/usr/bin/env python3
"""What a coordinator costs that gets many small jobs: CPU per job, jobs a second, latencies.

  job_load.py [--parts submits,paced,ends,queues,beside] [--jobs N]

Each part has a real coordinator of its own with a certificate authority, and one process that submits
over TLS and acts as the nodes (job_load.cc); both share the machine. A submission is durable when it is
answered. `coordinator_us_per_job` is the coordinator's CPU time, by /proc.

  submits   20,000 jobs that wait for nodes, 64 calls at a time
  paced     10 s at half of that rate, however long the answers take
  ends      10,000 jobs of one rank that ends at once, from the first submission to the last job done
  queues    60,000 gangs in 2,000 queues, submitted before the nodes come; from the nodes' coming to the last
            durable admission. Half of the queues reach their ceilings, a third of the gangs borrow
  beside    5,000 jobs wait that cannot start now, 5,000 that can come at 500 a second

Prints one JSON object.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
from cluster import ROOT, run  # noqa: E402
from cluster_load import loaded_coordinator  # noqa: E402

WANTED = {"submits": {"coordinator_us_per_job": 300, "per_s": 2500},
          "paced": {"p99_s": 0.02},
          "ends": {"coordinator_us_per_job": 700, "per_s": 800},
          "queues": {"admitted_s": 20},
          "beside": {"median_s": 1}}
PARENTS, CHILDREN, GUARANTEE, CEILING = 40, 50, 16, 20


def many_queues():
    """Each queue gets 30 jobs and is guaranteed 16; every second one may have 20 at most."""
    parents = {f"p{p}": {"queues": {}} for p in range(PARENTS)}
    for i in range(PARENTS * CHILDREN):
        queue = {"guarantee": {"slots": GUARANTEE}}
        if i // PARENTS % 2 == 0:
            queue["ceiling"] = {"slots": CEILING}
        parents[f"p{i % PARENTS}"]["queues"][f"q{i}"] = queue
    return {"queues": {"default": {}, **parents}}


CLOSED = {"queues": {"default": {}, "closed": {"ceiling": {"slots": 1}}}}
# Arguments of job_load, and the queues.
PARTS = {"submits": ({"jobs": 20000, "nodes": 1}, None),
         "paced": ({"nodes": 1}, None),
         "ends": ({"jobs": 10000}, None),
         "queues": ({"jobs": 60000, "nodes": 60, "slots": 1024, "queues": PARENTS * CHILDREN}, many_queues()),
         "beside": ({"jobs": 10000, "rate": 500}, CLOSED)}


def bench(part, more):
    arguments, queues = {**PARTS[part][0], **more}, PARTS[part][1]
    with loaded_coordinator() as load:
        if queues:
            file = load.root / "queues.yaml"
            file.write_text(json.dumps(queues), encoding="utf-8")
            run("muster", "queues", "apply", file, "--dir", load.root)
        coordinator = load.coordinator
        generator = load.start_generator("job_load", "--part", part,
                                         *(f"--{key}={value}" for key, value in arguments.items()))
        generator.read_line()
        cpu, generated = coordinator.cpu_seconds(), generator.cpu_seconds()
        generator.go_on()
        result = generator.read_line()
        jobs = arguments["jobs"]
        return {"jobs": jobs, **result,
                "coordinator_us_per_job": round(1e6 * (coordinator.cpu_seconds() - cpu) / jobs),
                "generator_us_per_job": round(1e6 * (generator.cpu_seconds() - generated) / jobs),
                "peak_mib": round(coordinator.status("VmHWM") / 1024, 1), "wanted": WANTED[part]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--jobs", type=int, help="of each part")
    parser.add_argument("--rate", type=int, help="of `paced` [half of what `submits` reached]")
    options = parser.parse_args()
    result = {"benchmark": "job_load", "revision": machine.revision(ROOT), "machine": machine.describe()}
    for part in options.parts:
        more = {"jobs": options.jobs} if options.jobs else {}
        if part == "paced":
            rate = options.rate or int(result.get("submits", {}).get("per_s", 2000) / 2)
            more = {"rate": rate, "jobs": 10 * rate}
        result[part] = bench(part, more)
        print(part, json.dumps(result[part]), file=sys.stderr, flush=True)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
