"""The Debian packages, installed and purged in a copy of this machine that is gone with the test."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import cluster  # noqa: E402
from cluster import ROOT  # noqa: E402

BUILD = cluster.BIN.parent
# Where control groups are made: version 1 has systemd's, version 2 has one tree.
GROUPS = (pathlib.Path("/sys/fs/cgroup/systemd"), pathlib.Path("/sys/fs/cgroup"))

# An overlay over this machine's root: what the packages depend on is there, what they change is in memory.
SCRIPT = """set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount --rbind /sys "$1/root/sys"
mkdir "$1/root/packages"
mount --bind "$2" "$1/root/packages"
exec chroot "$1/root" sh -ec "$3"
"""

# Starts systemd there as PID 1 of namespaces and of a control group of its own, for one unit alone, which runs /checks. It
# can change no device and no setting of the kernel of this machine.
BOOT = """
mkdir -p /etc/systemd/system/muster-.service.d
cat >/etc/systemd/system/muster-.service.d/test.conf <<END
[Unit]
DefaultDependencies=no
[Service]
StandardOutput=append:/log
StandardError=append:/log
END
cat >/etc/systemd/system/checks.service <<END
[Unit]
DefaultDependencies=no
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/sh -exc ". /checks"
StandardOutput=append:/log
StandardError=append:/log
END
rm -f /etc/systemd/system/*.wants/*
groups=/sys/fs/cgroup/systemd
[ -d $groups ] || groups=/sys/fs/cgroup
mkdir $groups/muster-test-$$
echo $$ >$groups/muster-test-$$/cgroup.procs
container=test unshare --mount --pid --fork --kill-child --cgroup --net --ipc --uts sh -ec '
ip link set lo up
for folder in /run /tmp; do mount -t tmpfs tmpfs $folder; done
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mkdir /devices
mount -t tmpfs tmpfs /devices -o mode=755
mkdir /devices/shm /devices/pts
ln -s pts/ptmx /devices/ptmx
mount -t tmpfs tmpfs /devices/shm
for node in null zero full random urandom tty; do touch /devices/$node; mount --bind /dev/$node /devices/$node; done
mount --move /devices /dev
mount -t sysfs sysfs /sys -o ro
mount -t tmpfs tmpfs /sys/fs/cgroup
if [ "$1" = /sys/fs/cgroup ]; then mount -t cgroup2 cgroup2 /sys/fs/cgroup
else mkdir /sys/fs/cgroup/systemd; mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd; mount -o remount,ro /sys/fs/cgroup; fi
exec /lib/systemd/systemd --system --unit=checks.service' sh $groups || true
echo $$ >$groups/cgroup.procs
find $groups/muster-test-$$ -depth -type d -exec rmdir {} +
cat /log
"""

# A job trains while its programs become those of a later version, and its daemons are killed and started again.
UPGRADE = """
muster-trainer init-model --preset tiny --out model >/dev/null
for i in $(seq 100); do echo "{\\"prompt\\": \\"$i\\", \\"completion\\": \\"$((i + 1))\\"}"; done >rows.jsonl
cat >job.yaml <<END
name: job
resources: {nodes: 2, ranks_per_node: 1, device: cpu}
train:
  model: {path: model}
  data: {train: rows.jsonl, max_seq_len: 128}
  schedule: {max_steps: 100000}
  batch: {per_rank: 2}
  output: {dir: out}
END
muster up --nodes 2 --slots 1 >/dev/null
muster submit job.yaml >/dev/null
steps() { timeout 60 sh -c "while [ \\$(wc -l <out/metrics.jsonl) -lt $(($(wc -l <out/metrics.jsonl) + 50)) ]; do sleep 0.1; done"; }
ranks() { muster get job -o json | python3 -c 'import json, sys
job = json.load(sys.stdin)
print(len(job["attempts"]), job["state"], *(rank["pid"] for rank in job["ranks"]))'; }
timeout 60 sh -c 'until [ -s out/metrics.jsonl ]; do sleep 0.1; done'
echo "before: $(ranks)"
mkdir later
for package in /packages/*.deb; do
  dpkg-deb -R $package later/tree
  sed -i 's/^Version: .*/&+later/' later/tree/DEBIAN/control
  dpkg-deb -Zgzip -z1 -b later/tree later/$(basename $package) >/dev/null
  rm -r later/tree
done
dpkg --install later/*.deb
steps
echo "upgraded: $(ranks)"
kill -9 $(cat cluster/nodes/*/worker.pid) $(python3 -c 'import json; print(json.load(open("cluster/coordinator/endpoint.json"))["pid"])')
muster up --nodes 2 --slots 1
steps
echo "adopted: $(ranks)"
muster cancel job
muster wait job --timeout 60s || true
muster down
"""


def output_of(*command, **environment):
    done = subprocess.run(list(map(str, command)), check=False, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300, env={**os.environ, **environment})
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Debian(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temp = tempfile.TemporaryDirectory(prefix="muster-test-")
        cls.addClassCleanup(temp.cleanup)
        cls.packages = pathlib.Path(temp.name)
        # That of a release takes a minute.
        fast = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
        output_of(ROOT / "deploy" / "deb", BUILD, cls.packages, **fast)
        cls.version = output_of(BUILD / "bin" / "muster", "--version").split(maxsplit=1)[1]
        linked = output_of("ldd", BUILD / "bin" / "libmuster_trainer.so")
        cls.libtorch = re.search(r"libtorch_cpu.so => (\S+)/lib/", linked).group(1)

    def in_copy(self, commands):
        """What the commands print in a copy of this machine."""
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            return output_of("unshare", "--mount", "sh", "-c", SCRIPT, "sh", folder, self.packages, commands)

    def installed(self, commands):
        """The same, on a machine that has all packages."""
        if os.geteuid() != 0:
            self.skipTest("mounts need root")
        try:
            self.in_copy("true")
        except AssertionError as error:
            self.skipTest(f"this machine cannot be copied by an overlay: {error}")
        return self.in_copy("dpkg --install /packages/*.deb >/dev/null 2>&1; " + commands)

    def booted(self, before, checks):
        """What `checks` print on such a machine that systemd runs. `before`: commands before it starts."""
        groups = next(group for group in GROUPS if group.is_dir())
        if not os.access(groups, os.W_OK) or os.statvfs(groups).f_flag & os.ST_RDONLY:
            self.skipTest(f"no control group can be made in {groups}")
        return self.installed(f"{before}\ncat >/checks <<'END'\n{checks}\nEND\n{BOOT}")

    def test_lintian_has_no_complaint(self):
        self.assertNotRegex(output_of("lintian", "--fail-on", "none", *self.packages.glob("*.deb")), r"(?m)^[EW]:")

    def test_each_package_has_a_list_of_what_is_within_its_programs(self):
        found = {}
        for package in self.packages.glob("*.deb"):
            bill = json.loads(package.with_suffix(".cdx.json").read_text("utf-8"))
            product = bill["metadata"]["component"]
            self.assertEqual([product["name"], product["version"]],
                             output_of("dpkg-deb", "--show", "--showformat", "${Package} ${Version}", package).split())
            found[product["name"]] = {part["name"]: part["version"] for part in bill["components"]}
        self.assertEqual(found.pop("muster-doc"), {})
        self.assertEqual(len(found), 4)
        for name, parts in found.items():
            installed = output_of("dpkg-query", "-W", "-f", "${Version}", "nlohmann-json3-dev")
            self.assertEqual(parts["nlohmann-json3-dev"], installed, name)
            self.assertEqual([part for part in parts if re.fullmatch("lib(c6|ssl3|grpc.*29)", part)], [], "only linked with")
            self.assertEqual(parts.get("torch"), "2.11.0" if name == "muster-trainer" else None)
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            (package,) = self.packages.glob("muster-cli_*.deb")
            shutil.copy(package, folder)
            output_of(sys.executable, "-B", ROOT / "deploy" / "sbom.py", "debs", BUILD, folder)
            (again,) = pathlib.Path(folder).glob("*.json")
            self.assertEqual(again.read_bytes(), package.with_suffix(".cdx.json").read_bytes())

    def test_each_command_has_a_manual_page_with_its_flags(self):
        """The reference, which `docs_reference` compares with the programs, names them."""
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            for package in self.packages.glob("*.deb"):
                output_of("dpkg-deb", "--extract", package, folder)
            pages = {path.name: gzip.decompress(path.read_bytes()).decode().replace("\\-", "-")
                     for path in pathlib.Path(folder, "usr/share/man/man1").glob("*.1.gz")}
        commands = re.findall(r"(?ms)^#+ (muster.*?)\n\n```\n(.*?)^```$",
                              "".join((ROOT / f"docs/reference/{page}.md").read_text("utf-8") for page in ("cli", "programs")))
        self.assertEqual(set(pages), {f"{re.sub(' (--)?', '-', command)}.1.gz" for command, _ in commands})
        for command, text in commands:
            page = pages[f"{re.sub(' (--)?', '-', command)}.1.gz"]
            for flag in re.findall(r"(?m)^ +(?:-\w,)?(--[a-z0-9-]+)", text):
                self.assertRegex(page, rf"(?m)^\.B .*{flag}\b", f"{flag} of {command}")

    def test_programs_find_each_other_and_libtorch(self):
        printed = self.installed(f"""
            muster-trainer --version || echo "ended with $?"
            ln -s {self.libtorch} /etc/muster/torch
            muster-trainer --version
            cd /tmp && muster up --nodes 1 --dir /tmp/cluster >/dev/null && muster down --dir /tmp/cluster
            getent passwd muster
            systemd-analyze verify muster-coordinator.service muster-worker.service muster-launcher.service
            man --pager=cat muster-worker | head -n 5""")
        self.assertRegex(printed, r"/etc/muster/torch, a link[^$]*ended with 78")
        self.assertIn(f"muster-trainer {self.version}", printed)
        self.assertIn("ended coordinator", printed)
        self.assertRegex(printed, r"muster:x:\d+:\d+:Muster:/var/lib/muster:/usr/sbin/nologin")
        self.assertIn("muster-worker - run the ranks of jobs on one node", printed)

    def test_a_cluster_runs_as_services(self):
        printed = self.booted("""
            echo 'MUSTER_TLS_LISTEN=127.0.0.1:7070' >/etc/muster/coordinator.env
            echo 'MUSTER_JOIN_LISTEN=127.0.0.1:7072' >>/etc/muster/coordinator.env
            echo 'MUSTER_NODE=n7' >/etc/muster/worker.env
            echo 'MUSTER_JOIN_TOKEN=/etc/muster/join-token' >>/etc/muster/worker.env
            cat >/job.yaml <<END
{"name": "job", "resources": {"nodes": 1, "ranks_per_node": 1, "device": "cpu"}, "workdir": "/var/lib/muster",
 "rendezvous": "rank0", "command": ["sh", "-c", "muster nodes --dir /var/lib/muster -o name >names"]}
END
            runuser -u muster -- muster init --dir /var/lib/muster --cluster lab""", """
            systemctl start muster-coordinator
            cd /var/lib/muster
            timeout 60 sh -c 'until runuser -u muster -- muster nodes --dir . 2>/dev/null; do sleep 0.1; done'
            runuser -u muster -- muster certs join-token --dir . --node n7 >/etc/muster/join-token
            chown muster /etc/muster/join-token
            systemctl start muster-worker
            timeout 60 runuser -u muster -- muster submit --dir . --wait /job.yaml
            cat names
            systemctl stop muster-worker muster-coordinator
            systemctl is-failed muster-worker muster-coordinator || true""")
        self.assertRegex(printed, r"(?m)^n7$", "what the job has written")
        self.assertRegex(printed, r"(?m)^inactive\ninactive$")

    def test_completion_is_where_shells_look(self):
        files = re.findall(r"/usr/share/\S*muster(?:\.fish)?$", self.installed("dpkg -L muster-cli"), re.M)
        for place in ("bash-completion/completions/muster", "zsh/vendor-completions/_muster",
                      "fish/vendor_completions.d/muster.fish"):
            self.assertIn(f"/usr/share/{place}", files)

    def test_an_upgrade_under_a_running_cluster_disturbs_no_rank(self):
        printed = self.installed(f"""
            ln -s {self.libtorch} /etc/muster/torch
            cd /tmp; export MUSTER_DIR=/tmp/cluster
            {UPGRADE}""")
        before, upgraded, adopted = (re.findall(f"{name} (.*)", printed)[-1] for name in ("before:", "upgraded:", "adopted:"))
        self.assertEqual((upgraded, adopted), (before, before), "generation and processes of the ranks")
        self.assertIn("+later) over", printed)

    def test_a_purge_leaves_data_and_says_so(self):
        printed = self.installed("""
            touch /var/lib/muster/state.db
            dpkg --purge muster-cli muster-coordinator muster-worker muster-trainer muster-doc
            ls /var/lib/muster
            ls -d /etc/muster /usr/lib/muster /usr/bin/muster* || true""")
        self.assertIn("/var/lib/muster holds the state of a cluster or node and stays", printed)
        self.assertIn("\nstate.db\n", printed)
        for gone in ("/etc/muster", "/usr/lib/muster"):
            self.assertIn(f"cannot access '{gone}'", printed)


if __name__ == "__main__":
    unittest.main()
