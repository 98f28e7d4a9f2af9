"""The first commands on a machine with a trouble: each says what is wrong, why, and what to do next, and leaves nothing behind."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, ROOT, processes_of  # noqa: E402


@unittest.skipIf(os.geteuid() != 0, "troubles are planted by root in namespaces")
class InstallTrouble(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def expect(self, plant, command, *texts):
        """What a command says in namespaces of its own, after the shell lines `plant`."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "TMPDIR", "XDG_"))}
        done = subprocess.run(["unshare", "--mount", "--net", "bash", "-c", f"set -e; ip link set lo up; {plant}\n"
                               f"set +e; export PATH={BIN}:$PATH; {command}; code=$?; {BIN}/muster down --dir $T/c >/dev/null; exit $code"],
                              capture_output=True, text=True, timeout=120, check=False, env={**environment, "T": str(self.dir)})
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("internal error", done.stderr)
        for text in texts:
            self.assertIn(text.replace("$T", str(self.dir)), done.stderr)
        self.assertEqual(processes_of(self.dir), [])

    def test_a_home_that_is_read_only(self):
        self.expect("mount -t tmpfs -o ro tmpfs $T; export HOME=$T", "muster up --nodes 2",
                    "create directory $T/.local: Read-only file system", "\n  next: choose", "MUSTER_DIR")

    def test_a_folder_for_temporary_files_that_is_not_there(self):
        for command in ("muster demo", "muster run --standalone --nproc-per-node 2 train.py"):
            self.expect("export TMPDIR=$T/missing", command, "create a directory in $T/missing: No such file", "\n  next: set TMPDIR")

    def test_a_folder_for_temporary_files_that_is_read_only(self):
        for command in ("muster demo", "muster run --standalone --nproc-per-node 2 train.py"):
            self.expect("mount -t tmpfs -o ro tmpfs $T; export TMPDIR=$T", command, "Read-only file system", "\n  next: set TMPDIR")

    def test_no_space(self):
        self.expect("mount -t tmpfs -o size=64k tmpfs $T", "muster up --nodes 2 --dir $T/c",
                    "the coordinator did not start: $T/c/coordinator/state.db: BEGIN IMMEDIATE", "disk is full", "make room there")

    def test_no_space_for_the_demo(self):
        self.expect("mount -t tmpfs -o size=90M tmpfs $T; export TMPDIR=$T", "muster demo", "MiB are free in $T/muster-demo-",
                    "the demo takes 256.0 MiB\n  next: choose another place with --out DIR or TMPDIR")

    def test_no_loopback(self):
        self.expect("ip link set lo down", "muster up --nodes 2 --dir $T/c", "does not answer; log: $T/c", "\n  next: muster doctor")

    def test_no_network_to_fetch_a_model_by_name(self):
        self.expect("export HOME=$T", "muster-trainer fetch org/name", "org/name", "Could not resolve host")
        self.expect("export HOME=$T TMPDIR=$T", "muster demo --model org/name", "the Hugging Face cache $T/.cache/huggingface/hub does not hold",
                    "fetch it with: muster-trainer fetch org/name")

    def test_without_root(self):
        def as_daemon(command):
            return f"setpriv --reuid daemon --regid daemon --clear-groups -- {command}"

        self.expect("", as_daemon("muster-launcher --worker-user daemon"), "must be started as root")
        self.expect("chmod 755 $T", as_daemon("env HOME=$T muster up --nodes 1"), "create directory $T/.local: Permission denied", "\n  next: choose")
        self.expect("mkdir -m 755 $T/theirs", as_daemon(f"{ROOT}/deploy/quickstart --dir $T/theirs"),
                    "$T/theirs cannot be written by daemon", "--dir")


if __name__ == "__main__":
    unittest.main()
