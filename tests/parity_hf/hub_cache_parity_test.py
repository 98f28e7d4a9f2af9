"""The cache of models, shared with Python's huggingface_hub: each finds what the other fetched.

Fails, and does not skip, where that package is missing: tests/run --label peer installs it.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import peer  # noqa: E402
from cluster import BIN, init_model  # noqa: E402
from fake_hub import COMMIT, REPO, FakeHub  # noqa: E402

LIMIT_S = 120
DOWNLOAD = """
import sys, huggingface_hub
print(huggingface_hub.snapshot_download(sys.argv[1], local_files_only=sys.argv[2] == "local"))
"""


class SharedCache(unittest.TestCase):
    def setUp(self):
        peer.require()
        temp = tempfile.TemporaryDirectory(prefix="muster-hub-parity-")
        self.addCleanup(temp.cleanup)
        self.root = pathlib.Path(temp.name)
        model = init_model(self.root / "model")
        self.files = {path.name: path.read_bytes() for path in sorted(model.iterdir())}
        self.hub = FakeHub(self.files).__enter__()
        self.addCleanup(self.hub.__exit__)
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("HF_") and not name.lower().endswith("_proxy")}
        self.environment = {**kept, "HF_HOME": str(self.root / "home"), "HF_HUB_DISABLE_XET": "1",
                            "HF_ENDPOINT": self.hub.endpoint}
        self.snapshot = (self.root / "home" / "hub" / ("models--" + REPO.replace("/", "--")) /
                         "snapshots" / COMMIT)

    def run_program(self, *command):
        done = subprocess.run(list(map(str, command)), timeout=LIMIT_S, capture_output=True,
                              text=True, env=self.environment, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip().splitlines()[-1]

    def test_python_finds_what_was_fetched(self):
        self.run_program(BIN / "muster-trainer", "fetch", REPO)
        asked = len(self.hub.asked)
        self.assertEqual(self.run_program(peer.PYTHON, "-c", DOWNLOAD, REPO, "local"),
                         str(self.snapshot))
        self.run_program(peer.PYTHON, "-c", DOWNLOAD, REPO, "online")
        self.assertEqual([path for _, method, path, _ in self.hub.asked[asked:]
                          if method == "GET" and "/resolve/" in path], [], "it comes again")

    def test_what_python_fetched_is_found(self):
        self.run_program(peer.PYTHON, "-c", DOWNLOAD, REPO, "online")
        asked = len(self.hub.asked)
        self.assertEqual(self.run_program(BIN / "muster-trainer", "fetch", REPO), str(self.snapshot))
        self.assertEqual(len(self.hub.asked), asked + 1, "only the list of files is asked for")
        self.run_program(BIN / "muster-trainer", "generate", "--model", REPO, "--prompt", "Hi",
                         "--max-new-tokens", "2")


if __name__ == "__main__":
    unittest.main()
