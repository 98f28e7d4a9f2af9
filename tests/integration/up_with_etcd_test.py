"""Several coordinators and the members of their etcd on one machine: muster up --coordinators N --etcd local."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, kill, processes_of, run, wait_until  # noqa: E402
from etcd import Etcd  # noqa: E402

LEASE = {"MUSTER_ETCD_LEASE": "2s"}
FAILED, BAD_USAGE = 1, 2


class InDirectory(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-several."))
        self.directory = self.root / "cluster"
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.addCleanup(self.end_what_is_left)

    def end_what_is_left(self):
        self.muster("down", check=False)
        for pid, _ in processes_of(self.directory):
            kill(pid)

    def muster(self, *words, **options):
        return run("muster", *words, "--dir", self.directory, **options)

    def json(self, *words):
        return json.loads(self.muster(*words, "-o", "json").stdout)

    def refused(self, *words, env=None):
        done = self.muster(*words, env=env, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr

    def up(self, *words):
        return json.loads(self.muster("up", *words, "-o", "json", env=LEASE, timeout=120).stdout)

    def places(self):
        return json.loads((self.directory / "coordinators.json").read_text(encoding="utf-8"))

    def runs(self, word):
        return [pid for pid, _ in processes_of(self.directory / word)]


@unittest.skipUnless(shutil.which("etcd"), "Debian's package etcd-server is not installed")
class SeveralCoordinators(InDirectory):
    def hold(self, address):
        """Another program's socket there, until the test closes it."""
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.addCleanup(other.close)
        host, port = address.split(":")
        other.bind((host, int(port)))
        other.listen()
        return other

    def roles(self):
        done = self.muster("coordinators", "-o", "json", check=False)
        return {each["address"]: each["role"] for each in json.loads(done.stdout)}

    def job_file(self):
        workdir = self.root / "run"
        workdir.mkdir()
        file = self.root / "long.json"
        file.write_text(json.dumps({"name": "long", "workdir": str(workdir), "command": ["sleep", "600"],
                                    "resources": {"nodes": 1, "ranks_per_node": 1}}), encoding="utf-8")
        return file

    def leader_name(self, up):
        address = next(address for address, role in self.roles().items() if role == "leads")
        name = f"coordinator-{self.places()['coordinators'].index(address) + 1}"
        self.assertEqual(self.runs(f"coordinators/{name}"), [up["pid"]])
        return name

    def test_the_leader_is_killed_and_calls_and_ranks_go_on(self):
        all_names = [f"{kind}-{number}" for kind in ("etcd", "coordinator") for number in (1, 2, 3)]
        first = self.up("--coordinators", "3", "--etcd", "local", "--slots", "2")
        self.assertEqual(first["started"], [*all_names, "node-1"])
        self.assertEqual(sorted(self.roles().values()), ["leads", "stands by", "stands by"])
        self.assertEqual(set(self.roles()), set(first["coordinators"].split(",")))
        self.muster("submit", self.job_file())
        wait_until(lambda: self.json("get", "long")["state"] == "running", "it runs")
        before = self.json("get", "long")["ranks"][0]["pid"]

        leader = self.leader_name(first)
        kill(first["pid"])
        self.assertEqual(self.json("get", "long")["state"], "running")  # waits for the election
        wait_until(lambda: self.json("nodes")[0]["state"] == "ready", "the node is back")
        self.assertEqual(self.json("get", "long")["ranks"][0]["pid"], before)
        self.assertIn("http://127.0.0.1:", self.muster("page").stdout)

        second = self.up()
        self.assertEqual(second["started"], [leader])
        self.assertNotEqual(second["pid"], first["pid"])
        self.assertEqual(self.up()["started"], [])
        for words, why in ((("--coordinators", "5"), "has 3 coordinators"),
                           (("--etcd", "https://127.0.0.1:1"), "keeps its state in --etcd local"),
                           (("--listen", "127.0.0.1:0"), "coordinators.json")):
            with self.subTest(words):
                self.assertIn(why, self.refused("up", *words))

        self.muster("down")
        self.assertEqual(processes_of(self.directory), [])
        places = self.places()
        other = self.hold(places["etcd_peers"][1])
        self.assertIn(f"another program uses {places['etcd_peers'][1]}, where etcd-2", self.refused("up"))
        other.close()
        self.hold(places["coordinators"][0])
        self.assertEqual(self.up()["started"], [*all_names, "node-1"])
        self.assertNotEqual(self.places()["coordinators"][0], places["coordinators"][0])
        self.assertEqual(self.json("get", "long")["name"], "long")

    def test_an_up_that_is_killed_half_way_is_finished_by_the_next_one(self):
        words = ["up", "--coordinators", "1", "--etcd", "local", "--dir", str(self.directory)]
        half = subprocess.Popen([str(BIN / "muster"), *words], stdin=subprocess.DEVNULL, env={**os.environ, **LEASE},
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.runs("etcd/etcd-1"), "a member of etcd runs")
        half.kill()
        half.wait()
        member = self.runs("etcd/etcd-1")
        self.up("--coordinators", "1", "--etcd", "local")
        self.assertEqual(self.runs("etcd/etcd-1"), member)
        self.assertEqual(list(self.roles().values()), ["leads"])
        # Another user of this machine has no key, and does not read or write the state.
        client = self.places()["etcd_clients"][0].split(":")
        with socket.create_connection((client[0], int(client[1])), timeout=10) as plain:
            plain.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertNotIn(b"200 OK", plain.recv(4096))


@unittest.skipUnless(shutil.which("etcd") and shutil.which("etcdctl"),
                     "Debian's packages etcd-server and etcd-client are not installed")
class OverAnEtcdThatRuns(InDirectory):
    def test_its_credentials_come_from_the_environment_and_it_is_left_alone(self):
        etcd = Etcd(self, self.root / "etcd", users=False)
        flags = dict(zip(*[iter(etcd.flags("muster"))] * 2))
        url = flags.pop("--etcd")
        variables = {"MUSTER_" + flag.lstrip("-").replace("-", "_").upper(): str(file) for flag, file in flags.items()}
        up = json.loads(self.muster("up", "--coordinators", "3", "--etcd", url, "-o", "json", env={**LEASE, **variables},
                                    timeout=120).stdout)
        self.assertEqual(up["started"], ["coordinator-1", "coordinator-2", "coordinator-3", "node-1"])
        self.assertEqual(self.json("nodes")[0]["state"], "ready")
        # Another cluster with the same prefix does not lead there.
        first, self.directory = self.directory, self.root / "other"
        error = self.muster("up", "--coordinators", "1", "--etcd", url, env={**LEASE, **variables}, timeout=120, check=False).stderr
        self.assertIn("leads in --etcd", error)
        self.assertIn("MUSTER_ETCD_PREFIX", error)
        self.assertEqual(processes_of(self.directory), [])
        self.directory = first
        self.muster("down")
        self.assertTrue(etcd.keys("/muster/"))


class Refused(InDirectory):
    def test_without_an_etcd_that_keeps_state_the_package_is_named(self):
        self.assertIn("apt install etcd-server",
                      self.refused("up", "--coordinators", "3", "--etcd", "local", env={"PATH": str(self.root)}))
        old = self.root / "etcd"
        old.write_text("#!/bin/sh\necho etcd Version: 3.5.3\n", encoding="utf-8")
        old.chmod(0o755)
        error = self.refused("up", "--coordinators", "3", "--etcd", "local", env={"PATH": str(self.root)})
        self.assertIn(f"{old}: etcd 3.5.3 may lose what it has acknowledged", error)
        self.assertIn("apt install etcd-server", error)
        self.assertEqual(processes_of(self.directory), [])
        self.assertFalse((self.directory / "cluster.json").exists())

    def test_wrong_words_are_refused_with_what_to_write(self):
        for words, why in ((("--coordinators", "3"), "needs --etcd"),
                           (("--coordinators", "2", "--etcd", "local"), "name 1, 3 or 5"),
                           (("--etcd", "local", "--http", "127.0.0.1:0"), "each coordinator has its own ports")):
            with self.subTest(words):
                self.assertIn(why, self.refused("up", *words))
        # A cluster with a database stays what it is.
        self.directory.mkdir(exist_ok=True)
        (self.directory / "cluster.json").write_text('{"nodes": 1, "slots": 0}', encoding="utf-8")
        error = self.refused("up", "--coordinators", "3", "--etcd", "local")
        self.assertIn("has one coordinator, with a database", error)
        self.assertIn("choose another directory with --dir", error)


if __name__ == "__main__":
    unittest.main()
