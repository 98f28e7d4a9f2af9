"""Every way in which a program reports a case, as ctest writes it down, is counted once and has its reason."""

import unittest

import results

LOG = """Start testing: Jan 05 10:00 UTC
----------------------------------------------------------
1/7 Testing: slurm_lab
1/7 Test: slurm_lab
Command: "python3" "lab_test.py" "-v"
Output:
----------------------------------------------------------
test_three_nodes (__main__.LabTest.test_three_nodes) ... SKIPPED: no Slurm lab: user namespaces are off
SKIPPED: no Slurm lab: user namespaces are off
Ran 2 tests in 0.1s
OK (skipped=2)
<end of output>
2/7 Testing: disk_trouble
Output:
test_a (__main__.A.test_a) ... skipped "needs root and the program 'ip'"
test_b (__main__.A.test_b) ... skipped "needs root and the program 'ip'"
It goes on. ... skipped 'no disk'
test_d (__main__.B.test_d) ... ok
Ran 4 tests in 0.1s
OK (skipped=3)
3/7 Testing: quiet
ss.
Ran 3 tests in 0.1s
OK (expected failures=1, skipped=2)
4/7 Testing: store_test
what Journal.Fails printed
FAILED CASE Journal.Fails: see above
SKIPPED CASE Journal.OnASmallDisk: no such directory
FAILED CASE Store/Kinds.Crashes/0: the process died by SIGSEGV
CASES: 12 passed, 2 failed, 1 skipped in 1.0 s
5/7 Testing: script
FAIL: test_table (__main__.Tables.test_table) (row=1)
FAIL: test_table (__main__.Tables.test_table) (row=2)
ERROR: setUpClass (__main__.Others)
Ran 5 tests in 0.1s
FAILED (failures=2, errors=1)
6/7 Testing: good
OK: nothing was SKIPPED: at all
7/7 Testing: slow
"""
OUTPUT = """57% tests passed, 3 tests failed out of 7

The following tests FAILED:
\t  4 - store_test (Failed)
\t  5 - script (Failed)
\t  7 - slow (Timeout)
\t  8 - missing (Not Run)
Errors while running CTest
"""


class ResultsTest(unittest.TestCase):
    def setUp(self):
        self.programs = results.programs(LOG, OUTPUT)

    def test_each_reason_of_a_skip_is_given_once_by_the_name_of_its_test(self):
        self.assertEqual([skip for program in self.programs for skip in program.skipped], [
            ("slurm_lab", "no Slurm lab: user namespaces are off"),
            ("disk_trouble", "needs root and the program 'ip'"),
            ("disk_trouble", "no disk"),
            ("quiet", "2 cases; the program's output gives the reasons"),
            ("store_test Journal.OnASmallDisk", "no such directory"),
        ])

    def test_each_failed_case_is_named_and_a_program_without_one_by_what_became_of_it(self):
        self.assertEqual([failure for program in self.programs for failure in program.failed], [
            ("store_test Journal.Fails", "see above"),
            ("store_test Store/Kinds.Crashes/0", "the process died by SIGSEGV"),
            ("script Tables.test_table", "see above"),
            ("script Others.setUpClass", "see above"),
            ("slow", "Timeout"),
            ("missing", "Not Run"),
        ])

    def test_cases_are_counted_not_programs(self):
        self.assertEqual([(p.passed, p.failures, p.skips) for p in self.programs],
                         [(0, 0, 2), (1, 0, 3), (1, 0, 2), (12, 2, 1), (3, 2, 0), (1, 0, 0), (0, 1, 0), (0, 1, 0)])

    def test_an_empty_run(self):
        self.assertEqual(results.programs("", ""), [])


if __name__ == "__main__":
    unittest.main()
