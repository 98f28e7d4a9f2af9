"""The Debian packages, installed and purged in a copy of this machine that is gone with the test."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import cluster  # noqa: E402
from cluster import ROOT  # noqa: E402

BUILD = cluster.BIN.parent

# An overlay over this machine's root: what the packages depend on is there, what they change is in memory.
SCRIPT = """set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mkdir "$1/root/packages"
mount --bind "$2" "$1/root/packages"
exec chroot "$1/root" sh -ec "$3"
"""


def output_of(*command):
    done = subprocess.run(list(map(str, command)), check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Debian(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="muster-test-")
        cls.addClassCleanup(temp.cleanup)
        cls.packages = pathlib.Path(temp.name)
        output_of(ROOT / "deploy" / "deb", BUILD, cls.packages)
        cls.version = output_of(BUILD / "bin" / "muster", "--version").split(maxsplit=1)[1]
        linked = output_of("ldd", BUILD / "bin" / "libmuster_trainer.so")
        cls.libtorch = re.search(r"libtorch_cpu.so => (\S+)/lib/", linked).group(1)

    def installed(self, commands):
        """What the commands print in a machine that has all packages."""
        if os.geteuid() != 0:
            self.skipTest("mounts need root")
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            return output_of("unshare", "--mount", "sh", "-c", SCRIPT, "sh", folder, self.packages,
                             "dpkg --install /packages/*.deb >/dev/null 2>&1; " + commands)

    def test_lintian_has_no_complaint(self):
        self.assertNotRegex(output_of("lintian", "--fail-on", "none", *self.packages.glob("*.deb")), r"(?m)^[EW]:")

    def test_programs_find_each_other_and_libtorch(self):
        printed = self.installed(f"""
            muster-trainer --version || echo "ended with $?"
            ln -s {self.libtorch} /etc/muster/torch
            muster-trainer --version
            cd /tmp && muster up --nodes 1 --dir /tmp/cluster >/dev/null && muster down --dir /tmp/cluster
            getent passwd muster
            systemd-analyze verify muster-coordinator.service muster-worker.service
            man --pager=cat muster-worker | head -n 5""")
        self.assertRegex(printed, r"/etc/muster/torch, a link[^$]*ended with 78")
        self.assertIn(f"muster-trainer {self.version}", printed)
        self.assertIn("ended coordinator", printed)
        self.assertRegex(printed, r"muster:x:\d+:\d+:Muster:/var/lib/muster:/usr/sbin/nologin")
        self.assertIn("muster-worker - runs the jobs of a node", printed)

    def test_a_purge_leaves_data_and_says_so(self):
        printed = self.installed("""
            mkdir /var/lib/muster && touch /var/lib/muster/state.db
            dpkg --purge muster-cli muster-coordinator muster-worker muster-trainer muster-doc
            ls /var/lib/muster
            ls -d /etc/muster /usr/lib/muster /usr/bin/muster* || true""")
        self.assertIn("/var/lib/muster holds the state of a cluster or node and stays", printed)
        self.assertIn("\nstate.db\n", printed)
        for gone in ("/etc/muster", "/usr/lib/muster"):
            self.assertIn(f"cannot access '{gone}'", printed)


if __name__ == "__main__":
    unittest.main()
