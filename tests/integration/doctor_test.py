"""`muster doctor` finds each planted trouble by name; the command that it gives removes it, where one can."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN  # noqa: E402

CGROUPS = pathlib.Path("/sys/fs/cgroup")


def cgroup_lines(controller, settings):
    """Shell lines that put the shell into a group of its own; empty where this machine has no such controller."""
    root = CGROUPS / controller if (CGROUPS / controller / "tasks").exists() else None
    if root is None or not os.access(root, os.W_OK):
        return ""
    group = root / f"muster-doctor-{os.getpid()}"
    return "\n".join([f"mkdir -p {group}", *(f"echo {value} > {group}/{name}" for name, value in settings.items()),
                      f"echo $$ > {group}/cgroup.procs"])


@unittest.skipIf(os.geteuid() != 0, "troubles are planted by root in namespaces")
class Doctor(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="muster-doctor-test-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.programs = BIN

    def tearDown(self):
        for controller in ("memory", "cpu", "pids"):
            group = CGROUPS / controller / f"muster-doctor-{os.getpid()}"
            if group.exists():
                group.rmdir()

    def findings(self, plant, words="", wrap=""):
        """What the doctor says in namespaces of its own, after the shell lines `plant`."""
        script = "\n".join(["set -e", "ip link set lo up", textwrap.dedent(plant), "set +e",
                            f"{wrap} {self.programs}/muster doctor -o json {words}", "exit $?"])
        done = subprocess.run(["unshare", "--mount", "--net", "--uts", "--propagation", "private", "bash", "-c", script],
                              capture_output=True, text=True, timeout=120, check=False, cwd="/",
                              env={**os.environ, "MUSTER_DIR": str(self.dir / "cluster"), "T": str(self.dir)})
        self.assertIn(done.returncode, (0, 1), done.stderr)
        found = {finding["check"]: finding for finding in json.loads(done.stdout)}
        self.assertEqual(done.returncode, int(any(each["verdict"] == "fail" for each in found.values())))
        return found

    def check(self, name, verdict, plant, text, **more):
        """Planted, it is found; after its own command it is gone. Without a command, the change says who can."""
        found = self.findings(plant, **more)[name]
        self.assertEqual(found["verdict"], verdict, found)
        self.assertIn(text, found["what"])
        self.assertTrue(found["change"], found)
        if not found["command"]:
            self.assertRegex(found["change"], "administrator|^(install|raise|name) ")
            return
        after = self.findings(f"{plant}\n{{ {found['command']}; }} >/dev/null", **more)[name]
        self.assertEqual(after["verdict"], "ok", after)

    def test_a_sound_machine_has_no_failure_but_what_it_lacks(self):
        found = self.findings("")
        for name in ("kernel", "open-files", "shared-memory", "cluster-directory", "temporary-files", "ports", "gpus",
                     "overcommit", "memory"):
            self.assertEqual(found[name]["verdict"], "ok", found[name])
            self.assertIsNone(found[name]["command"])

    def test_little_shared_memory(self):
        self.check("shared-memory", "warn", "mount -t tmpfs -o size=8M tmpfs /dev/shm", "8.0 MiB")

    def test_shared_memory_that_cannot_be_written(self):
        self.check("shared-memory", "fail", "mount -t tmpfs -o ro tmpfs /dev/shm", "Read-only")

    def test_few_open_files(self):
        raised = subprocess.run(["bash", "-c", "ulimit -n 512 && ulimit -n 65536"], capture_output=True, timeout=20, check=False)
        if raised.returncode == 0:
            return self.check("open-files", "warn", "ulimit -n 512", "at most 512")
        found = self.findings("ulimit -n 512")["open-files"]
        self.assertEqual((found["verdict"], found["command"]), ("warn", "ulimit -n 65536"), found)
        return None

    def test_a_home_that_is_read_only(self):
        self.check("cluster-directory", "fail", "mount -t tmpfs -o ro tmpfs $T; export MUSTER_DIR=$T/.local/cluster",
                   "Read-only")

    def test_a_small_disk(self):
        self.check("cluster-directory", "warn", "mount -t tmpfs -o size=16M tmpfs $T", "16.0 MiB are free")

    @unittest.skipUnless(shutil.which("cc"), "there is no compiler")
    def test_a_home_on_nfs(self):
        """This kernel mounts no NFS: its name is given to a folder."""
        (self.dir / "nfs.c").write_text("""
            #include <string.h>
            #include <sys/syscall.h>
            #include <unistd.h>
            int statfs(const char* path, long* info) {
              long failed = syscall(SYS_statfs, path, info);
              if (failed == 0 && strstr(path, "/on-nfs")) info[0] = 0x6969;
              return failed;
            }
            int statfs64(const char* path, long* info) { return statfs(path, info); }""")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.dir / "nfs.so", self.dir / "nfs.c"], check=True, timeout=60)
        self.check("cluster-directory", "warn", "export LD_PRELOAD=$T/nfs.so MUSTER_DIR=$T/on-nfs/cluster; mkdir -p $T/on-nfs", "NFS")

    def test_temporary_files_have_no_place(self):
        self.check("temporary-files", "fail", "export TMPDIR=$T/missing; mkdir $TMPDIR 2>/dev/null || true\n"
                   "mount -t tmpfs -o ro tmpfs $TMPDIR", "Read-only")

    def test_a_host_name_that_does_not_resolve(self):
        self.check("host-name", "warn", "cp /etc/hosts $T/hosts; mount --bind $T/hosts /etc/hosts\n"
                   "hostname node7.muster.invalid", "node7.muster.invalid")

    def test_dead_dns(self):
        self.check("name-service", "warn", "echo nameserver 127.0.0.1 > $T/dead; mount --bind $T/dead /etc/resolv.conf\n"
                   "export HF_ENDPOINT=https://hub.muster.invalid:8443/x",
                   "no address is found for hub.muster.invalid")

    def test_no_network_at_all(self):
        self.check("loopback", "fail", "ip link set lo down", "127.0.0.1 is not reached")

    @unittest.skipUnless(shutil.which("faketime"), "faketime is not installed")
    def test_a_clock_that_is_years_behind(self):
        found = self.findings("", wrap="faketime '2021-05-01 00:00:00'")["clock"]
        self.assertEqual((found["verdict"], found["command"]), ("fail", "timedatectl set-ntp true"), found)
        self.assertIn("2021-0", found["what"])

    def test_few_ports(self):
        self.check("ports", "warn", "sysctl -qw net.ipv4.ip_local_port_range='40000 40009'", "40000 to 40009")

    def test_all_ports_are_taken(self):
        self.check("ports", "fail", """
            sysctl -qw net.ipv4.ip_local_port_range='40000 40001'
            coproc python3 -c 'if True:
                import socket, sys
                held = [socket.create_server(("127.0.0.1", port)) for port in (40000, 40001)]
                print(flush=True)
                sys.stdin.read()'
            read -r -u "${COPROC[0]}" _""", "no port of 40000 to 40001 is free")

    def test_a_firewall_between_two_addresses(self):
        """Here or at the other end; the same line lets packets pass at both."""
        if not shutil.which("nft", path=os.environ["PATH"] + ":/usr/sbin"):
            self.skipTest("nftables is not installed")
        other = """
            coproc exec unshare --net sh -c 'ip link set lo up; echo $$; exec cat'
            read -r -u "${COPROC[0]}" other
            there="nsenter --net=/proc/$other/ns/net"
            ip link add wall0 type veth peer name wall0 netns $other
            ip addr add 10.99.0.1/24 dev wall0; ip link set wall0 up
            for address in 2 3; do $there ip addr add 10.99.0.$address/24 dev wall0; done
            $there ip link set wall0 up"""
        wall = """
            {0} nft add table inet wall
            {0} nft add chain inet wall {1} '{{ type filter hook {1} priority 0; }}'
            {0} nft add rule inet wall {1} ip daddr 10.99.0.2 tcp dport 1024-65535 drop"""
        words, text = "--peer 10.99.0.2:7777", "10.99.0.2:7777: no answer"
        self.check("peer", "fail", other + wall.format("", "output"), text, words=words)
        there = other + wall.format("$there", "input")
        found = self.findings(there, words=words)["peer"]
        self.assertIn(text, found["what"])
        self.assertIn("on the peer, it takes this machine's address", found["change"])
        (self.dir / "line").write_text(found["command"].replace("10.99.0.2", "10.99.0.1"))
        mended = self.findings(f"{there}\n$there bash $T/line", words=words)["peer"]
        self.assertEqual(mended["verdict"], "ok", mended)
        answered = self.findings(there, words="--peer 10.99.0.3:7777")["peer"]
        self.assertEqual(answered["verdict"], "ok", answered)

    def test_a_peer_that_is_no_address(self):
        self.check("peer", "fail", "", "node7: is not HOST:PORT", words="--peer node7")

    def test_an_old_kernel(self):
        self.check("kernel", "fail", "", "Linux 2.6", wrap="setarch x86_64 --uname-2.6")

    def test_a_kernel_that_refuses_what_is_not_used(self):
        self.check("overcommit", "warn", "echo 2 > $T/two; mount --bind $T/two /proc/sys/vm/overcommit_memory", "= 2")

    def test_few_mappings(self):
        self.check("memory-maps", "warn", "echo 1024 > $T/few; mount --bind $T/few /proc/sys/vm/max_map_count", "1024")

    def test_no_huge_pages(self):
        self.check("huge-pages", "warn", "echo 'always madvise [never]' > $T/never\n"
                   "mount --bind $T/never /sys/kernel/mm/transparent_hugepage/enabled", "makes none")

    def test_gpus_without_a_driver(self):
        self.check("gpus", "fail", """
            mkdir -p $T/pci/0000:17:00.0
            echo 0x10de > $T/pci/0000:17:00.0/vendor
            echo 0x030200 > $T/pci/0000:17:00.0/class
            mount --bind $T/pci /sys/bus/pci/devices""", "1 of NVIDIA")

    def own_programs(self):
        """A directory with a copy of muster, and links to the other programs."""
        self.programs = self.dir / "bin"
        self.programs.mkdir()
        shutil.copy2(BIN / "muster", self.programs)
        for name in ("coordinator", "worker", "guardian", "trainer"):
            (self.programs / f"muster-{name}").symlink_to(BIN / f"muster-{name}")

    def test_a_program_of_another_version(self):
        self.own_programs()
        self.check("programs", "fail", "rm $T/bin/muster-worker\n"
                   "printf '#!/bin/sh\\necho muster-worker 0.0.9 \\\\(commit abc\\\\)\\n' > $T/bin/muster-worker\n"
                   "chmod +x $T/bin/muster-worker", "muster-worker is version 0.0.9")

    def test_a_program_that_is_missing(self):
        self.own_programs()
        self.check("programs", "fail", "rm -f $T/bin/muster-guardian", "muster-guardian does not start")

    def test_another_muster_comes_first_in_path(self):
        self.own_programs()
        self.check("programs", "warn", f"export PATH={BIN}:$PATH", f"{BIN}/muster, not {self.programs}/muster")

    def test_a_libtorch_that_is_gone(self):
        loaded = subprocess.run(["ldd", BIN / "libmuster_trainer.so"], capture_output=True, text=True, timeout=60, check=True)
        paths = [line.split()[2] for line in loaded.stdout.splitlines() if line.strip().startswith("libtorch_cpu.so")]
        self.assertEqual(len(paths), 1, loaded.stdout)
        found = self.findings(f"mount -t tmpfs tmpfs {pathlib.Path(paths[0]).parent}")["trainer"]
        self.assertEqual(found["verdict"], "warn", found)
        self.assertIn("libtorch_cpu.so: cannot open shared object file", found["what"])
        self.assertIn("torch==2.11", found["command"])

    def test_limits_of_control_groups(self):
        if not any(cgroup_lines(controller, {}) for controller in ("memory", "cpu", "pids")):
            self.skipTest("this machine has no control groups of version 1 that may be written")
        for controller, settings, check, text in (
                ("memory", {"memory.limit_in_bytes": 1 << 30}, "memory", "allows 1.0 GiB"),
                ("cpu", {"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 50000}, "cpus", "the time of 0.5"),
                ("pids", {"pids.max": 500}, "processes", "at most 500")):
            plant = cgroup_lines(controller, settings)
            if not plant:
                continue
            with self.subTest(controller):
                self.check(check, "warn", plant, text)


if __name__ == "__main__":
    unittest.main()
