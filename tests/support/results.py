#!/usr/bin/env python3
"""What became of each case of a ctest run: a line each, "FAILED NAME: REASON" and "SKIPPED NAME: REASON", and at
last "SUM PASSED FAILED SKIPPED".

  tests/support/results.py build/release/Testing/Temporary/LastTest.log OUTPUT_OF_CTEST

ctest counts programs, and a skipped case as passed. Cases are counted here as the programs report them: those of
GoogleTest by tests/support/run_cases.py, Python's unittest (with -v it gives reasons of skips, else their number),
and the line "SKIPPED: REASON" of the tests with Slurm. Any other program is one case.
"""

import re
import sys

BEGIN = re.compile(r"^\d+/\d+ Testing: (.*)$")
CASE = re.compile(r"^(FAILED|SKIPPED) CASE (\S+): (.*)$")
CASES = re.compile(r"^CASES: (\d+) passed, (\d+) failed, (\d+) skipped")
OWN_SKIP = re.compile(r"^SKIPPED: (.*)$")
UNITTEST_SKIP = re.compile(r"\.\.\. skipped (['\"])(.*)\1$")
UNITTEST_FAILURE = re.compile(r"^(FAIL|ERROR): (\w+) \(([\w.]+)\)")
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in")
UNITTEST_SKIPPED = re.compile(r"^(?:OK|FAILED) \(.*\bskipped=(\d+)")
# In ctest's own output, below "The following tests FAILED:".
FAILED_PROGRAM = re.compile(r"^\s+\d+ - (.*) \((.*)\)$")


class Program:
    """Counts and reasons of one ctest, from what it printed and from what ctest says became of it."""

    def __init__(self, name, lines, failed_as):
        self.failed, self.skipped = [], []  # (name, reason)
        total, uncounted_skips = None, 0
        for line in lines:
            if match := CASE.match(line):
                where = self.failed if match.group(1) == "FAILED" else self.skipped
                where.append((f"{name} {match.group(2)}", match.group(3)))
            elif match := CASES.match(line):
                total = sum(int(number) for number in match.groups())
            elif match := OWN_SKIP.match(line) or UNITTEST_SKIP.search(line):
                self.skipped.append((name, match.group(match.lastindex)))
            elif match := UNITTEST_FAILURE.match(line):
                case = match.group(3).split(".")[-2:] if match.group(3).endswith(match.group(2)) else (
                    match.group(3).split(".")[-1:] + [match.group(2)])
                self.failed.append((f"{name} {'.'.join(case)}", "see above"))
            elif match := UNITTEST_RAN.match(line):
                total = int(match.group(1))
            elif match := UNITTEST_SKIPPED.match(line):
                uncounted_skips = int(match.group(1))
        self.failed = list(dict.fromkeys(self.failed))
        self.skips = max(uncounted_skips, len(self.skipped))
        self.skipped = list(dict.fromkeys(self.skipped))
        if uncounted_skips and not self.skipped:
            self.skipped = [(name, f"{uncounted_skips} cases; the program's output gives the reasons")]
        if failed_as and not self.failed:
            self.failed = [(name, failed_as)]
        self.failures = len(self.failed)
        self.passed = max(0, (1 if total is None else total) - self.failures - self.skips)


def programs(log, ctest_output):
    """A Program for each ctest in the text of LastTest.log."""
    failed = dict(match.groups() for line in ctest_output.partition("The following tests FAILED:")[2].splitlines()
                  if (match := FAILED_PROGRAM.match(line)))
    found, name, lines = [], None, []
    for line in [*log.splitlines(), None]:
        match = BEGIN.match(line) if line is not None else None
        if (line is None or match) and name is not None:
            found.append(Program(name, lines, failed.pop(name, None)))
        if match:
            name, lines = match.group(1), []
        elif line is not None:
            lines.append(line)
    found.extend(Program(left, [], reason) for left, reason in failed.items())
    return found


def main():
    if len(sys.argv) != 3:
        print("usage: results.py LastTest.log OUTPUT_OF_CTEST", file=sys.stderr)
        return 2
    texts = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    found = programs(*texts)
    for program in found:
        for case, reason in program.failed:
            print(f"FAILED {case}: {reason}")
        for case, reason in program.skipped:
            print(f"SKIPPED {case}: {reason}")
    print("SUM", *(sum(getattr(program, what) for program in found) for what in ("passed", "failures", "skips")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
