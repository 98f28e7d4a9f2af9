"""Every way in which a test says that it was left out, as ctest writes it down, is found with its reason."""

import unittest

import skips

LOG = """Start testing: Jan 05 10:00 UTC
----------------------------------------------------------
1/5 Testing: slurm_lab
1/5 Test: slurm_lab
Command: "python3" "lab_test.py" "-v"
Output:
----------------------------------------------------------
test_three_nodes (__main__.LabTest.test_three_nodes) ... SKIPPED: no Slurm lab: user namespaces are off
skipped 'user namespaces are off'
SKIPPED: no Slurm lab: user namespaces are off
OK (skipped=2)
<end of output>
2/5 Testing: disk_trouble
Output:
test_a (__main__.A.test_a) ... skipped "needs root and the program 'ip'"
test_b (__main__.A.test_b) ... skipped "needs root and the program 'ip'"
It goes on. ... skipped 'no disk'
test_d (__main__.B.test_d) ... ok
OK (skipped=3)
3/5 Testing: quiet
ss.
OK (expected failures=1, skipped=2)
4/5 Testing: Fabric.ReadsTheKernel
[ RUN      ] Fabric.ReadsTheKernel
/src/worker/fabric/a_test.cc:12: Skipped
no such directory

[  SKIPPED ] Fabric.ReadsTheKernel (0 ms)
5/5 Testing: good
OK: nothing was SKIPPED: at all
"""


class SkipsTest(unittest.TestCase):
    def test_each_reason_is_told_once_by_the_name_of_its_test(self):
        self.assertEqual(skips.skips(LOG), [
            ("slurm_lab", "no Slurm lab: user namespaces are off"),
            ("disk_trouble", "needs root and the program 'ip'"),
            ("disk_trouble", "no disk"),
            ("quiet", "2 of its tests, for reasons that its own output tells"),
            ("Fabric.ReadsTheKernel", "no such directory"),
        ])

    def test_a_run_that_left_out_nothing_tells_nothing(self):
        self.assertEqual(skips.skips("1/1 Testing: good\nOK\n"), [])
        self.assertEqual(skips.skips(""), [])


if __name__ == "__main__":
    unittest.main()
