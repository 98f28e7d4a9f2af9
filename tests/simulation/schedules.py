#!/usr/bin/env python3
"""The scheduler's properties over many random schedules, one process per core.

  schedules.py [--schedules 1000000] [--processes N]

Prints one JSON object: "seeds" are schedules, "violations" the properties that do not hold.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN  # noqa: E402

PROPERTIES = "*RandomSchedules.*:ScheduleProperties.*"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    tests = [BIN.parent / "tests" / "control_tests", f"--gtest_filter={PROPERTIES}", "--gtest_brief=1"]
    running = [subprocess.Popen(tests, stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "MUSTER_SCHEDULES": str(arguments.schedules),
                                     "GTEST_TOTAL_SHARDS": str(arguments.processes), "GTEST_SHARD_INDEX": str(i)})
               for i in range(arguments.processes)]
    outputs = [process.communicate()[0] for process in running]
    failed = sorted({line.split()[-1] for output in outputs for line in output.splitlines()
                     if line.startswith("[  FAILED  ] ") and "." in line})
    sys.stderr.writelines(output for output in outputs if "FAILED" in output)
    print(json.dumps({"benchmark": "schedules", "first_seed": 0, "seeds": arguments.schedules, "violations": failed}))
    return 0 if not failed and all(process.returncode == 0 for process in running) else 1


if __name__ == "__main__":
    sys.exit(main())
