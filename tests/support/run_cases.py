#!/usr/bin/env python3
"""Runs the cases of one GoogleTest program in one process, and reports them one by one.

  run_cases.py [--case-timeout S] [--shard I/N] [--filter PATTERN] PROGRAM

The program reports each case by tests/support/test_main.cc while it runs. If it dies or hangs, the case that
was under way fails with what became of it, and the cases after it run in another process. Printed are the
output of each failed case, one "FAILED CASE NAME: REASON" and "SKIPPED CASE NAME: REASON" a line, and the sum,
"CASES: 12 passed, 1 failed, 2 skipped", which tests/support/results.py reads. Exit status 1 when a case failed.
"""

import argparse
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

MOST_OUTPUT = 20000  # characters that are printed of one failed case
ENDING_S = 30  # what a process may take before its first case, between cases, and after the last
POLL_S = 0.1


def list_cases(program, pattern):
    listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={pattern}"], check=True,
                            capture_output=True, text=True, timeout=60).stdout
    suite, cases = "", []
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if not name.startswith(" "):
            suite = name
        elif not (".DISABLED_" in suite + name.strip() or suite.startswith("DISABLED_") or "/DISABLED_" in suite
                  or name.strip().startswith("DISABLED_")):
            cases.append(suite + name.strip())
    return cases


def describe_end(status):
    if status >= 0:
        return f"the process ended with exit status {status}"
    try:
        return f"the process died by {signal.Signals(-status).name}"
    except ValueError:
        return f"the process died by signal {-status}"


class Run:
    """One process of the program: which cases ended how, and which one was under way at its end."""

    def __init__(self, program, cases, case_timeout):
        self.results = {}  # name -> "passed", "failed" or "skipped"
        self.reasons = {}  # name -> why it was skipped
        self.case = None
        self.ending = None  # what became of a process that did not come to its end
        self._done = False
        with tempfile.TemporaryDirectory(prefix="muster-cases.") as folder:
            filter_file, output = os.path.join(folder, "filter"), os.path.join(folder, "output")
            with open(filter_file, "w", encoding="utf-8") as file:
                file.write("--gtest_filter=" + ":".join(cases) + "\n")
            with open(output, "wb") as file:
                self._run([program, f"--gtest_flagfile={filter_file}", "--gtest_color=no"], file, case_timeout)
            with open(output, encoding="utf-8", errors="replace") as file:
                self.output = file.read()

    def output_of(self, case):
        begin = self.output.find(f"[ RUN      ] {case}\n")
        if begin < 0:
            return self.output[-MOST_OUTPUT:]
        end = self.output.find("[ RUN      ] ", begin + 1)
        text = self.output[begin:end if end >= 0 else len(self.output)]
        if len(text) <= MOST_OUTPUT:
            return text
        return text[:MOST_OUTPUT // 2] + "\n[...]\n" + text[-MOST_OUTPUT // 2:]

    def _run(self, command, output, case_timeout):
        ours, theirs = os.pipe()
        environment = {**os.environ, "MUSTER_CASE_REPORT_FD": str(theirs)}
        for variable in ("GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX", "GTEST_FILTER"):
            environment.pop(variable, None)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env=environment, pass_fds=(theirs,), start_new_session=True)
        os.close(theirs)
        self.ending = self._follow(process, ours, case_timeout)
        if self.ending:
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        os.close(ours)
        if not self.ending and not self._done:
            self.ending = describe_end(status)
        elif not self.ending and status not in (0, 1):
            self.ending = describe_end(status) + " after its last case"

    def _follow(self, process, pipe, case_timeout):
        """Reads reports until the process has ended; returns what hangs, else None."""
        rest, limit = b"", ENDING_S
        deadline = time.monotonic() + limit
        while True:
            # Children of a case may hold the pipe open, so its end alone does not show that of the process.
            ended = process.poll() is not None
            if select.select([pipe], [], [], 0 if ended else POLL_S)[0]:
                *lines, rest = (rest + os.read(pipe, 65536)).split(b"\n")
                for line in lines:
                    self._report(line.decode("utf-8", errors="replace"))
                if not lines:
                    return self._wait_for_end(process)
                limit = case_timeout if self.case else ENDING_S
                deadline = time.monotonic() + limit
            elif ended:
                return None
            elif time.monotonic() > deadline:
                return f"no end within {limit} s"

    def _wait_for_end(self, process):
        try:
            process.wait(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            return f"no end within {ENDING_S} s of its last report"
        return None

    def _report(self, line):
        kind, _, text = line.partition(" ")
        if kind == "begin":
            self.case = text
        elif kind == "skip":
            self.reasons[self.case] = text
        elif kind == "end":
            result, _, name = text.partition(" ")
            self.results[name] = result
            self.case = None
        elif kind == "done":
            self._done = True


def run_all(program, cases, case_timeout, report):
    """Calls report(case, result, reason, output) for each case, in as many processes as it takes."""
    left = list(cases)
    while left:
        run = Run(program, left, case_timeout)
        if run.ending:
            # Without a case under way the first that had no turn stands for the process, so that each run gets on.
            blamed = run.case or next((case for case in left if case not in run.results), left[-1])
            run.results[blamed], run.reasons[blamed] = "failed", run.ending
        for case in left:
            if case in run.results:
                result = run.results[case]
                report(case, result, run.reasons.get(case, "" if result == "skipped" else "see above"),
                       run.output_of(case) if result == "failed" else "")
        missing = [case for case in left if case not in run.results]
        if missing and not run.ending:
            for case in missing:
                report(case, "failed", "the program listed this case and did not run it", "")
            return
        left = missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case-timeout", type=float, default=60, metavar="S")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every Nth case, beginning with the Ith")
    parser.add_argument("--filter", default="*", metavar="PATTERN", help="as --gtest_filter")
    parser.add_argument("program")
    options = parser.parse_args()
    shard, shards = (int(number) for number in options.shard.split("/"))
    cases = list_cases(options.program, options.filter)[shard - 1::shards]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    started = time.monotonic()

    def report(case, result, reason, output):
        counts[result] += 1
        if output:
            print(output.rstrip("\n"))
        if result != "passed":
            print(f"{result.upper()} CASE {case}: {reason or 'no reason given'}", flush=True)

    run_all(options.program, cases, options.case_timeout, report)
    print(f"CASES: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped "
          f"in {time.monotonic() - started:.1f} s")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
