"""NF4 against the Python package `bitsandbytes`: codes, absmax, double quantisation and the values
that are read back, byte for byte, of VALUES values of each kind, drawn anew in every run (drawn.py). No difference is
allowed.

Fails, and does not skip, where the package is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import drawn  # noqa: E402
import peer  # noqa: E402
from cluster import BIN, ROOT  # noqa: E402

VALUES = 2_000_000
KINDS = 6
LIMIT_S = 600


class Nf4Parity(unittest.TestCase):
    def run_checked(self, *command):
        done = subprocess.run([str(part) for part in command], timeout=LIMIT_S,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_no_byte_differs(self):
        peer.require()
        with tempfile.TemporaryDirectory(prefix="muster-nf4-") as temp:
            self.run_checked(peer.PYTHON, ROOT / "tests/golden/make_nf4_golden.py", "--random",
                             VALUES, "--seed", drawn.number("values"), temp)
            files = sorted(pathlib.Path(temp).iterdir())
            self.assertEqual(len(files), KINDS)
            rows = self.run_checked(BIN.parent / "tests" / "nf4_compare", *files).splitlines()
        compared = 0
        for file, row in zip(files, rows, strict=True):
            with self.subTest(kind=file.stem):
                found = json.loads(row)
                compared += found.pop("values")
                self.assertEqual({name: count for name, count in found.items() if count}, {})
        self.assertGreater(compared, VALUES * 5 - 100)
        print(f"{compared} values compared")


if __name__ == "__main__":
    unittest.main()
