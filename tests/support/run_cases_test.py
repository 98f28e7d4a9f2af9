"""Whatever a case does to its process, each case of the program is reported once, by name and with its reason."""

import os
import pathlib
import subprocess
import sys
import unittest

SUPPORT = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ["MUSTER_CASES_FOR_TEST"]


def run(pattern, *options):
    done = subprocess.run([sys.executable, SUPPORT / "run_cases.py", "--case-timeout", "1", "--filter", pattern,
                           *options, PROGRAM], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


class RunCasesTest(unittest.TestCase):
    def expect(self, pattern, sum_, *texts):
        status, output = run(pattern)
        self.assertIn(f"CASES: {sum_} in", output)
        self.assertEqual(status, 0 if " 0 failed" in sum_ else 1)
        for text in texts:
            self.assertIn(text, output)
        return output

    def test_cases_that_pass_print_their_sum_alone(self):
        output = self.expect("*.Passes", "2 passed, 0 failed, 0 skipped")
        self.assertEqual(output.count("\n"), 1, output)

    def test_a_skipped_case_has_its_reason(self):
        self.expect("Sound.*", "1 passed, 0 failed, 1 skipped", "SKIPPED CASE Sound.IsSkipped: no such device\n")

    def test_a_failed_case_has_its_output(self):
        self.expect("Sound.Passes:*.Fails", "1 passed, 1 failed, 0 skipped",
                    "what it printed\n", "as planned", "FAILED CASE Unsound.Fails: see above\n")

    def test_after_a_crash_the_other_cases_run(self):
        self.expect("*.Passes:*.Crashes", "2 passed, 1 failed, 0 skipped",
                    "FAILED CASE Unsound.Crashes: the process died by SIGSEGV\n")

    def test_after_an_exit_the_other_cases_run(self):
        self.expect("*.Passes:*.Exits", "2 passed, 1 failed, 0 skipped",
                    "FAILED CASE Unsound.Exits: the process ended with exit status 0\n")

    def test_after_a_hang_the_other_cases_run(self):
        self.expect("*.Passes:*.Hangs", "2 passed, 1 failed, 0 skipped",
                    "FAILED CASE Unsound.Hangs: no end within 1.0 s\n")

    def test_a_crash_in_every_process_ends_none_early(self):
        self.expect("Unsound.*:*.Passes", "2 passed, 4 failed, 0 skipped")

    def test_a_case_that_leaves_the_process_changed_fails_and_the_next_has_it_as_it_was(self):
        self.expect("Leaves.*:Last.*", "1 passed, 6 failed, 0 skipped",
                    "variable MUSTER_LEFT changed", "variable PATH changed", "the working directory changed",
                    "the umask changed", "resource limit 7 changed", "the action of signal 25 changed")

    def test_shards_share_the_cases(self):
        sums = [run("*.Passes", "--shard", f"{number}/2")[1] for number in (1, 2)]
        self.assertEqual(["CASES: 1 passed, 0 failed, 0 skipped" in sum_ for sum_ in sums], [True, True])


if __name__ == "__main__":
    unittest.main()
