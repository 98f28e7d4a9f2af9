#!/usr/bin/env python3
"""Whether the simulation sees a wrong decision: each mutant of mutants.py is found by a violated invariant.

  mutants_test.py [NAME...]    these alone, or all but the survivors; then one JSON object (docs/measurements/README.md)

`ninja long_programs` builds what it runs. MUSTER_BIN_DIR: the product's programs; muster-simulation-mutants lies beside them in ../tests. One line per mutant.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

import mutants
from plant_mutants import MARKER

BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", "build/release/bin"))
PROGRAM = BIN.parent / "tests" / "muster-simulation-mutants"
PROPERTIES = BIN.parent / "tests" / "muster-scheduler-mutants"
ROLES = BIN.parent / "tests" / "muster-access-mutants"
SCHEDULES = 800
PRODUCT = ["muster-coordinator", "muster-worker", "muster-guardian"]
# A mutant that never comes to an end is not found, whatever else is true of it.
TIMEOUT_S = 300


def run(name, seeds=mutants.SEEDS):
    """The summary, and the first violation or an empty string."""
    command = [PROGRAM, "--seeds", str(seeds), "--threads", "1", "--first-violation", *mutants.WORLD]
    done = subprocess.run(command, env={**os.environ, "MUSTER_MUTANT": MARKER + name}, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-400:]}")
    found = re.search(r"^seed (\d+) violates '(.*?)'", done.stderr, re.MULTILINE)
    return json.loads(done.stdout), f"seed {found[1]}, {found[2]}" if found else ""


def run_properties(name, program=PROPERTIES, schedules=SCHEDULES):
    """The first test that fails, or an empty string."""
    done = subprocess.run([program, "--gtest_fail_fast"], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env={**os.environ, "MUSTER_MUTANT": MARKER + name, "MUSTER_SCHEDULES": str(schedules)},
                          check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-400:]}")
    found = re.search(r"^\[  FAILED  \] ([\w./]+)", done.stdout, re.MULTILINE)
    return found[1] if found else ""


def report(name):
    mutant = next(m for m in mutants.MUTANTS if m.name == name)
    try:
        if mutant.by_roles:
            found = run_properties(name, ROLES)
        else:
            schedules = max(SCHEDULES, mutant.seeds)
            found = run_properties(name, schedules=schedules) if mutant.by_properties else run(name, mutant.seeds)[1]
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return name, "", str(error)
    return name, found, "no seed sees it"


class Mutants(unittest.TestCase):
    names = []

    def test_each_is_found(self):
        wanted = self.names or [m.name for m in mutants.MUTANTS if not m.survives]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            missed = []
            for name, found, why in pool.map(report, wanted):
                print(f"{name}: {found or 'NOT FOUND: ' + why}", file=sys.stderr, flush=True)
                missed += [] if found else [name]
        self.assertEqual(missed, [])

    def test_without_one_the_same_seeds_pass(self):
        summary, found = run("none")
        self.assertEqual(found, "")
        self.assertEqual(summary["seeds"], mutants.SEEDS)
        self.assertEqual(run_properties("none"), "")
        self.assertEqual(run_properties("none", ROLES), "")

    def test_there_are_enough_and_all_are_planted(self):
        names = [m.name for m in mutants.MUTANTS]
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len([m for m in mutants.MUTANTS if not m.survives]), 20)
        planted = PROGRAM.read_bytes() + ROLES.read_bytes()
        self.assertEqual([name for name in names if f"{MARKER}{name}\0".encode() not in planted], [])

    def test_no_program_of_the_product_has_one(self):
        for program in PRODUCT:
            self.assertNotIn(MARKER.encode(), (BIN / program).read_bytes(), program)


if __name__ == "__main__":
    Mutants.names = [m.name for m in mutants.MUTANTS if m.name in sys.argv]
    ran = unittest.main(argv=[argument for argument in sys.argv if argument not in Mutants.names], exit=False).result
    print(json.dumps({"first_seed": 0, "seeds": mutants.SEEDS, "violations": len(ran.failures) + len(ran.errors)}))
    sys.exit(not ran.wasSuccessful())
