"""One script under torchrun and under `muster run`: it finds the same environment.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import peer  # noqa: E402
from cluster import BIN  # noqa: E402

SCRIPT = """
import json, os, sys
json.dump({"variables": dict(os.environ), "arguments": sys.argv, "directory": os.getcwd(),
           "python": sys.executable},
          open(os.environ["SHOW_TO"] + "/" + os.environ["RANK"], "w"))
"""
# Their values belong to one run; both have them.
OF_A_RUN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}
# Variables of the launcher's own process, or of only one of the two.
OF_ONE = {"PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "SHOW_TO", "TORCHELASTIC_SIGNALS_TO_HANDLE",
          "NODE_RANK", "CUDA_VISIBLE_DEVICES"}


def shared(variables):
    return {name for name in variables if name not in OF_ONE and not name.startswith("MUSTER_")}


class SameEnvironment(unittest.TestCase):
    def setUp(self):
        peer.require()
        temp = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(temp.cleanup)
        self.root = pathlib.Path(temp.name)
        (self.root / "show.py").write_text(SCRIPT)

    def run_under(self, name, command, flags, variables):
        seen = self.root / name
        seen.mkdir()
        env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
        env.update(SHOW_TO=str(seen), PYTHON_EXEC=str(peer.PYTHON), GREETING="hello, \"you\"",
                   **variables)
        done = subprocess.run([*map(str, command), *flags, "show.py", "--nnodes=7", "x y"], env=env,
                              cwd=self.root, text=True, capture_output=True, timeout=120, check=False,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return {p.name: json.loads(p.read_text()) for p in seen.iterdir()}

    def check_same(self, *flags, variables=None):
        flags = ["--standalone", *flags]
        theirs = self.run_under("theirs", [peer.TORCHRUN], flags, variables or {})
        ours = self.run_under("ours", [BIN / "muster", "run"], flags, variables or {})
        self.assertEqual(ours.keys(), theirs.keys())
        for rank, their in theirs.items():
            our = ours[rank]
            for key in ("arguments", "directory", "python"):
                self.assertEqual(our[key], their[key])
            names = shared(their["variables"])
            self.assertEqual(shared(our["variables"]), names)
            for name in names - OF_A_RUN:
                self.assertEqual(our["variables"][name], their["variables"][name], name)

    def test_of_two_ranks(self):
        self.check_same("--nproc-per-node=2", "--max-restarts=3")

    def test_of_one_that_sets_its_threads(self):
        self.check_same(variables={"OMP_NUM_THREADS": "3"})

    def test_every_flag_of_torchrun_is_known(self):
        listed = subprocess.run(
            [peer.PYTHON, "-c",
             "from torch.distributed.run import get_args_parser as p\n"
             "print(*(o for a in p()._actions for o in a.option_strings))"],
            capture_output=True, text=True, timeout=60, check=True).stdout.split()
        self.assertGreater(len(listed), 40)
        for flag in set(listed) - {"-h", "--help"}:
            done = subprocess.run([BIN / "muster", "run", "--print-job", flag, "0", "x"], text=True,
                                  capture_output=True, timeout=10, check=False)
            self.assertNotIn("is no flag of torchrun", done.stderr, flag)


if __name__ == "__main__":
    unittest.main()
