#!/usr/bin/env python3
"""The scheduler's properties over many random schedules, one process per core.

  schedules.py [--first 0] [--schedules 1000000] [--processes N] [--progress FILE]

Portions that FILE names as done by this build are not run again, so that a run that was stopped goes on.
Prints one JSON object: "seeds" are schedules, "violations" the properties that do not hold.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN  # noqa: E402

TESTS = BIN.parent / "tests" / "schedule_properties"
PORTION = 20_000


def run_portion(first):
    """The properties that do not hold; None where the process did not come to its end."""
    done = subprocess.run([TESTS, "--gtest_brief=1"], stdout=subprocess.PIPE,
                          text=True, check=False,
                          env={**os.environ, "MUSTER_FIRST_SCHEDULE": str(first), "MUSTER_SCHEDULES": str(PORTION)})
    failed = {line.split()[3].rstrip(",") for line in done.stdout.splitlines()
              if line.startswith("[  FAILED  ] ") and "." in line}
    if failed:
        sys.stderr.write(done.stdout)
    return failed if failed or done.returncode == 0 else None


def done_before(progress, build):
    if not progress or not progress.exists():
        return set()
    lines = (line.split() for line in progress.read_text(encoding="utf-8").splitlines())
    return {int(first) for of, first in lines if of == build}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--progress", type=pathlib.Path)
    arguments = parser.parse_args()
    build = hashlib.sha256(TESTS.read_bytes()).hexdigest()
    finished = done_before(arguments.progress, build)
    end = arguments.first + arguments.schedules
    portions = [first for first in range(arguments.first, end, PORTION) if first not in finished]
    violations, ended = set(), True
    with concurrent.futures.ThreadPoolExecutor(arguments.processes) as pool:
        for first, failed in zip(portions, pool.map(run_portion, portions)):
            ended = ended and failed is not None
            violations |= failed or set()
            if failed == set() and arguments.progress:
                with arguments.progress.open("a", encoding="utf-8") as file:
                    file.write(f"{build} {first}\n")
    print(json.dumps({"benchmark": "schedules", "first_seed": arguments.first, "seeds": arguments.schedules,
                      "violations": sorted(violations)}))
    return 0 if ended and not violations else 1


if __name__ == "__main__":
    sys.exit(main())
