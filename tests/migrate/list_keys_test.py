"""Each key that the configuration of a pinned tool may have is in the committed lists, and has a verdict of `muster migrate`.

The lists are made anew from the tools' sources, which `deploy/install-deps --peer` unpacks; Determined's alone is not: its
package has no schema of its configuration. Fails, and does not skip, where they are missing.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import peer  # noqa: E402
from cluster import BIN, ROOT  # noqa: E402

sys.path.insert(0, str(HERE))
import list_keys  # noqa: E402

SOURCES = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "muster" / "migrated-tools"
PINNED = ROOT / "deploy" / "migrated-tools.txt"
# What a user's own configuration could have from tomorrow on, by the file and the class that would have it.
PLANTED = {"trl/trainer/sft_config.py": "class SFTConfig", "llamafactory/hparams/data_args.py": "class DataArguments",
           "axolotl/utils/schemas/peft.py": "class PeftConfig", "accelerate/commands/config/config_args.py": "class ClusterConfig"}


def listed(folder):
    """The Python of the peer tests has yaml, which torchtune's recipes are read by."""
    return subprocess.run([peer.PYTHON, HERE / "list_keys.py", folder], capture_output=True, text=True, timeout=60, check=False)


class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        peer.require()
        if not (SOURCES / "stamp").exists() or (SOURCES / "stamp").read_bytes() != PINNED.read_bytes():
            raise AssertionError("run deploy/install-deps --peer")

    def test_the_lists_are_those_of_the_pinned_tools(self):
        pins = dict(re.findall(r"(?m)^(\w+)==(\S+) ", PINNED.read_text(encoding="utf-8")))
        self.assertEqual({**pins, "determined": list_keys.PINS["determined"]}, list_keys.PINS)
        done = listed(SOURCES)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count(" keys\n"), 6, done.stdout)

    def test_a_key_that_a_tool_gets_is_found_by_name(self):
        with tempfile.TemporaryDirectory(prefix="muster-test-") as temp:
            for path in SOURCES.iterdir():
                (pathlib.Path(temp) / path.name).symlink_to(path)
            for file, head in PLANTED.items():
                tool = file.split("/")[0]
                (pathlib.Path(temp) / tool).unlink()
                shutil.copytree(SOURCES / tool, pathlib.Path(temp) / tool, ignore=shutil.ignore_patterns("*.json", "*.md"))
                path = pathlib.Path(temp) / file
                text, count = re.subn(rf"(?m)^{head}\b[^:]*:\n", rf"\g<0>    of_tomorrow_in_{tool}: int = 0\n", path.read_text("utf-8"))
                self.assertEqual(count, 1, file)
                path.write_text(text, "utf-8")
            done = listed(temp)
        self.assertEqual(done.returncode, 1, done.stdout)
        for file in PLANTED:
            self.assertRegex(done.stderr, rf"\+ (\w+\.)?of_tomorrow_in_{file.split('/')[0]}\n")

    def test_each_key_has_a_verdict(self):
        for program, cases in (("cli_tests", "*MigrateKeys.*"), ("common_tests", "*ForeignKeys.*")):
            done = subprocess.run([BIN.parent / "tests" / program, f"--gtest_filter={cases}"], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-3000:])
            self.assertRegex(done.stdout, r"\[  PASSED  \] [1-9]")


if __name__ == "__main__":
    unittest.main()
