"""The golden trajectories (tests/parity/testdata/trajectories.json) are those of the transformers that is here."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import peer  # noqa: E402

GOLDEN = ROOT / "tests" / "parity" / "testdata" / "trajectories.json"
CLOSE = 1e-12  # relative, in fp64: processors add in other orders


class TrajectoryGolden(unittest.TestCase):
    def test_made_again_they_are_the_same(self):
        peer.require()
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            again = pathlib.Path(folder) / "trajectories.json"
            subprocess.run([peer.PYTHON, ROOT / "tests" / "golden" / "make_trajectory_golden.py", again], check=True)
            made = {case["name"]: case for case in json.loads(again.read_text(encoding="utf-8"))}
        golden = {case["name"]: case for case in json.loads(GOLDEN.read_text(encoding="utf-8"))}
        self.assertEqual(made.keys(), golden.keys())
        for name, case in golden.items():
            self.assertEqual(made[name]["config"], case["config"], name)
            for curve in ("losses", "grad_norms"):
                self.assertEqual(len(made[name][curve]), len(case[curve]), name)
                for ours, theirs in zip(made[name][curve], case[curve]):
                    self.assertLessEqual(abs(ours - theirs), CLOSE * abs(theirs), f"{name}: {curve}")


if __name__ == "__main__":
    unittest.main()
