#!/usr/bin/env python3
"""Which tests of a ctest run were left out, wholly or in part, and why: a line each, "NAME: REASON".

  tests/support/skips.py build/release/Testing/Temporary/LastTest.log

ctest counts a skipped test as neither failed nor worth a word of its reason; whoever reads the end of a run
would take it for tested. Known are the line "SKIPPED: REASON" of the tests with Slurm, Python's unittest
(with -v it tells reasons, else only how many) and GoogleTest.
"""

import re
import sys

BEGIN = re.compile(r"^\d+/\d+ Testing: (.*)$")
OWN_LINE = re.compile(r"^SKIPPED: (.*)$")
UNITTEST = re.compile(r"\.\.\. skipped (['\"])(.*)\1$")
UNITTEST_SUM = re.compile(r"^OK \(.*\bskipped=(\d+)")
GOOGLETEST = re.compile(r"^\S+:\d+: Skipped$")


def reasons_in(lines):
    """What one test's output says of what it left out, each reason once and in its order."""
    found, counted = [], 0
    lines = iter(lines)
    for line in lines:
        match = OWN_LINE.match(line) or UNITTEST.search(line)
        if match:
            found.append(match.group(match.lastindex))
        elif GOOGLETEST.match(line):
            found.append(next(lines, "").strip() or "no reason told")
        elif match := UNITTEST_SUM.match(line):
            counted = int(match.group(1))
    if counted and not found:
        found = [f"{counted} of its tests, for reasons that its own output tells"]
    return list(dict.fromkeys(found))


def skips(log):
    """(name, reason) of all tests in the text of a LastTest.log."""
    name, lines, result = None, [], []

    def close():
        result.extend((name, reason) for reason in reasons_in(lines))

    for line in log.splitlines():
        if match := BEGIN.match(line):
            close()
            name, lines = match.group(1), []
        else:
            lines.append(line)
    close()
    return [(test, reason) for test, reason in result if test]


def main():
    if len(sys.argv) != 2:
        print("usage: skips.py LastTest.log", file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for name, reason in skips(log.read()):
            print(f"{name}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
