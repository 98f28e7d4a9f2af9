"""Jobs of owners that train, or run in a container: what they write is the owner's, through a recovery and a resume; and what another
owner does with a token of its own, or a FIFO in a checkpoint, keeps nobody from going on."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import accounts  # noqa: E402
from cluster import BIN, init_model, read_metrics, steps_in_order, train_job, wait_until, write_rows  # noqa: E402
from container_test import root_for  # noqa: E402
from owner_cluster import IDS, ClusterOfOwners, as_user, ids_of  # noqa: E402

HOME = pathlib.Path("/mnt/home")
# What a client of rank 0's store sends and is sent (docs/trainer-protocol.md#rendezvous), by a rank of another gang with its own token.
INTRUDER = """
import hashlib, hmac, os, socket, struct, sys
token = os.environ["MUSTER_RENDEZVOUS_TOKEN"].encode()
for port in map(int, sys.argv[1].split(",")):
    for rank in (0, 1, 7):
        with socket.create_connection(("127.0.0.11", port), timeout=20) as store:
            mine = os.urandom(32)
            store.sendall(b"MUSTERG1" + struct.pack("=I", rank) + mine)
            answer = b""
            while len(answer) < 64 and (more := store.recv(64 - len(answer))):
                answer += more
            said = f"muster rendezvous 1 store asks from {rank} to 0 ".encode() + mine + answer[:32]
            serves = f"muster rendezvous 1 store serves from 0 to {rank} ".encode() + mine + answer[:32]
            same = hmac.new(token, serves, hashlib.sha256).digest() == answer[32:]
            store.sendall(hmac.new(token, said, hashlib.sha256).digest())
            try:
                store.sendall(b"\\5" + struct.pack("=Q", 1) + struct.pack("=Q", 1) + b"x")  # is the key x there?
                heard = store.recv(100)
            except OSError:
                heard = b""
            print("asked", port, rank, len(answer), "GOT" if same or heard else "refused", flush=True)
print("done", flush=True)
"""


def listening_ports(pid):
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        inodes.add(os.readlink(fd))
    rows = (line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text(encoding="utf-8").splitlines()[1:])
    return sorted(int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes)


def owners_below(path):
    return {entry.lstat().st_uid for entry in (path, *path.rglob("*"))}


class OwnerJobs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if accounts.missing():
            raise unittest.SkipTest(accounts.missing())
        cls.cleanup = unittest.TestCase()
        cls.addClassCleanup(cls.cleanup.doCleanups)
        cls.cluster = ClusterOfOwners(cls.cleanup)
        loaded = subprocess.run(["ldd", BIN / "libmuster_trainer.so"], capture_output=True, text=True, check=True).stdout
        torch = next(line.split()[2] for line in loaded.splitlines() if "libtorch_cpu.so" in line)
        accounts.let_in(pathlib.Path(torch).parents[1])

    def train(self, name, title, steps=60, ranks=2, every=10, **train):
        home = HOME / name
        if not (home / "model").exists():
            init_model(home / "model")
            write_rows(home / "rows.jsonl")
            subprocess.run(["chown", "-R", f"{IDS[name]}:{IDS[name]}", home], check=True)
        spec = train_job(home / "model", home / "rows.jsonl", home / title, steps=steps, nodes=1, every=every, name=title, **train)
        spec["resources"]["ranks_per_node"] = ranks
        return self.cluster.submit_spec(name, spec)

    def test_training_recovers_and_resumes_as_its_owner(self):
        cluster = self.cluster
        job = self.train("ada", "hers")
        cluster.wait_for_step(job, 12)
        before = cluster.ranks(job)
        self.assertEqual(ids_of(before[0]) | ids_of(before[1]), {str(IDS["ada"])})
        cluster.kill_rank(job, 1)
        cluster.wait_for_step(job, 22)
        attempt = cluster.get(job)["attempts"][1]
        self.assertEqual((attempt["tier"], attempt["resumed_from"]), ("in_place", "snapshot"), cluster.describe(job))
        self.assertEqual(cluster.ranks(job)[0], before[0])
        cluster.by("ada", "suspend", job, "--by", "60s", "--wait", timeout=120)
        self.assertEqual(cluster.get(job)["state"], "suspended", cluster.describe(job))
        out = HOME / "ada" / "hers"
        self.assertEqual(owners_below(out), {IDS["ada"]})
        self.assertTrue(list(out.glob("checkpoints/*/manifest.json")))
        cluster.by("ada", "resume", job)
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        self.assertEqual(cluster.get(job)["attempts"][-1]["resumed_from"], "checkpoint", cluster.describe(job))
        self.assertEqual(sorted(set(steps_in_order(out))), list(range(1, 61)))
        self.assertEqual(owners_below(out), {IDS["ada"]})
        self.assertTrue((out / "model" / "config.json").exists())

    def test_a_token_of_another_gang_opens_no_rendezvous(self):
        cluster = self.cluster
        job = self.train("ada", "meets", steps=100_000, every=1000)
        cluster.wait_for_step(job, 2)
        ranks = cluster.ranks(job)
        ports = listening_ports(ranks[0])
        self.assertTrue(ports, "rank 0 serves its store")
        attack = cluster.submit_by("bob", "intruder", ["python3", "-c", textwrap.dedent(INTRUDER), ",".join(map(str, ports))])
        log = wait_until(lambda: (lambda text: text if "done" in text else "")(cluster.by("bob", "logs", attack, check=False).stdout), "it has tried", 60)
        tried = [line for line in log.splitlines() if line.startswith("asked ")]
        self.assertEqual(len(tried), 3 * len(ports), log)
        self.assertTrue(all(line.endswith(" 64 refused") for line in tried), log)
        step = max(read_metrics(HOME / "ada" / "meets"))
        cluster.wait_for_step(job, step + 5)
        self.assertEqual(cluster.ranks(job), ranks)
        cluster.by("ada", "cancel", job)

    def test_a_manifest_that_is_a_fifo_keeps_nobody_waiting(self):
        cluster, out = self.cluster, HOME / "bob" / "fifo"
        job = self.train("bob", "fifo", steps=45, ranks=1, checkpoint={"every": 10, "keep": 2})
        wait_until(lambda: list(out.glob("checkpoints/*/manifest.json")), "a checkpoint is committed")
        script = """
            import glob, os, sys, time
            for path in glob.glob(sys.argv[1] + "/checkpoints/*/manifest.json"):
                os.unlink(path)
                os.mkfifo(path)
                held = os.open(path, os.O_RDWR)
                if os.fork() == 0:
                    for _ in range(600):
                        os.write(held, b" ")
                        time.sleep(1)
                    os._exit(0)
            print("fifo")
            """
        writer = subprocess.Popen(["python3", "-c", textwrap.dedent(script), out], user=IDS["bob"], group=IDS["bob"], extra_groups=[], text=True,
                                  stdout=subprocess.PIPE, start_new_session=True)
        for cleanup in (writer.stdout.close, writer.wait, lambda: os.killpg(writer.pid, signal.SIGKILL)):
            self.addCleanup(cleanup)
        self.assertEqual(writer.stdout.readline(), "fifo\n")
        began = time.monotonic()
        cluster.by("bob", "suspend", job, "--by", "60s", "--wait", timeout=120)
        cluster.by("bob", "logs", job)
        cluster.by("bob", "resume", job)
        wait_until(lambda: cluster.get(job)["state"] == "running", "it runs again")
        self.assertLess(time.monotonic() - began, 60, "a look at the FIFO for as long as it is written takes minutes")
        self.assertEqual(cluster.wait(job, timeout=300), 0, cluster.describe(job))
        self.assertEqual(cluster.json("nodes")[0]["state"], "ready")
        left = [path.parent.name for path in out.glob("checkpoints/*/manifest.json") if not path.is_file()]
        self.assertEqual(left, [], "old checkpoints are removed all the same")

    def test_a_container_is_entered_as_the_owner(self):
        cluster = self.cluster
        if as_user("ada", "unshare", "--user", "--mount", "true").returncode != 0:
            self.skipTest("this machine lets users make no namespaces")
        image = root_for(accounts.PLACE / "image", "sh", "cat", "id")
        script = 'cat /etc/of-the-root; id -u; echo made >made; echo private >/tmp/x; [ -e /etc/passwd ] || echo "of the root"'
        job = cluster.submit_by("ada", "contained", ["sh", "-c", script], container={"image": str(image)})
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        work = HOME / "ada" / "contained"
        log = (work / f"muster-contained-{job}" / "logs" / "1" / "rank-0.log").read_text(encoding="utf-8")
        self.assertEqual([line for line in log.splitlines() if not line.startswith("muster")], ["root", str(IDS["ada"]), "of the root"])
        self.assertEqual(owners_below(work), {IDS["ada"]})
        named = cluster.submit_by("ada", "podman", ["true"], container={"image": "docker.io/library/debian"})
        cluster.wait(named)
        self.assertIn("name a directory into which the image was unpacked", cluster.by("ada", "describe", named).stdout)


if __name__ == "__main__":
    unittest.main()
