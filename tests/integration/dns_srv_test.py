"""Clients and workers that find the coordinator by SRV records, in a network and mount namespace of their own, where
/etc/resolv.conf names a small server of this test."""

import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, can_have_namespaces, ip, kill, processes_of, run, wait_until  # noqa: E402

INSIDE = "MUSTER_TEST_HAS_OWN_DNS"
SERVER, DEAD = "127.0.0.53", "127.0.0.2"
NAME = "_muster._tcp.example.org"
BY_NAME = f"dnssrv+{NAME}"
A, AAAA, SRV, NXDOMAIN = 1, 28, 33, 3


def labels(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"


class NameServer(threading.Thread):
    """Answers by UDP what `services` says, as (priority, weight, address, port) of each."""

    def __init__(self):
        super().__init__(daemon=True)
        self.services, self.asked, self.silent = [], 0, False
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((SERVER, 53))

    def run(self):
        while True:
            query, peer = self.socket.recvfrom(4096)
            if not self.silent:
                self.socket.sendto(self.answer(query), peer)

    def answer(self, query):
        end, words = 12, []
        while query[end]:
            words.append(query[end + 1:end + 1 + query[end]].decode())
            end += 1 + query[end]
        (kind,) = struct.unpack(">H", query[end + 1:end + 3])
        records = self.records(".".join(words), kind)
        code = NXDOMAIN if kind == SRV and not records else 0
        head = struct.pack(">HHHHHH", *struct.unpack(">H", query[:2]), 0x8180 | code, 1, len(records), 0, 0)
        return head + query[12:end + 5] + b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(data)) + data for data in records)

    def records(self, name, kind):
        if kind == SRV and name == NAME:
            self.asked += 1
            return [struct.pack(">HHH", priority, weight, port) + labels(f"c{index}.example.org")
                    for index, (priority, weight, _, port) in enumerate(self.services)]
        if kind == A and name.startswith("c"):
            return [socket.inet_aton(self.services[int(name[1:name.index(".")])][2])]
        return []


@unittest.skipUnless(can_have_namespaces(), "needs root, for a mount and a network namespace")
class DnsSrvTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.names = NameServer()
        cls.names.start()

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-srv."))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.cluster = self.root / "cluster"
        run("muster", "init", "--dir", self.cluster, "--cluster", "lab")
        run("muster", "certs", "issue", "--dir", self.cluster, "--role", "node", "--name", "node-1", "--out",
            self.root / "of-node")
        self.port = 7070
        self.start("muster-coordinator", "--dir", self.cluster, "--tls-listen", f"127.0.0.1:{self.port}")
        wait_until((self.cluster / "coordinator" / "endpoint.json").exists, "the coordinator serves")
        self.here = (20, 0, "127.0.0.1", self.port)
        self.names.silent, self.names.services = False, [self.here]

    def start(self, program, *words):
        with open(self.root / f"{program}.log", "ab") as log:
            process = subprocess.Popen([str(BIN / program), *map(str, words)], stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end, process)

    def end(self, process):
        process.terminate()
        process.wait(timeout=60)
        for pid, _ in processes_of(self.root):
            kill(pid)

    def muster(self, coordinators, *words, **options):
        return run("muster", *words, "--coordinator", coordinators, "--tls", self.cluster / "security" / "admin",
                   "--dir", self.root / "none", **options)

    def test_a_client_takes_the_servers_by_priority_and_the_next_one_where_one_is_dead(self):
        self.names.services = [self.here, (10, 0, DEAD, 1), (10, 5, DEAD, 2)]
        answers = json.loads(self.muster(BY_NAME, "coordinators", "-o", "json").stdout)
        self.assertEqual([(each["address"], each["role"]) for each in answers],
                         [(f"{DEAD}:2", None), (f"{DEAD}:1", None), (f"127.0.0.1:{self.port}", "leads")])
        self.assertEqual(self.muster(BY_NAME, "nodes", "-o", "json").stdout.strip(), "[]")
        self.assertEqual(self.muster(f"{DEAD}:3,{BY_NAME}", "nodes", "-o", "json").stdout.strip(), "[]")

    def test_a_worker_asks_anew_when_all_servers_have_failed(self):
        self.names.services = [(10, 0, DEAD, 1)]
        asked = self.names.asked
        self.start("muster-worker", "--dir", self.root / "node", "--node", "node-1", "--slots", "1", "--address",
                   "127.0.0.11", "--coordinator", BY_NAME, "--tls", self.root / "of-node")
        wait_until(lambda: self.names.asked > asked + 2, "the worker asks again")
        self.names.services = [self.here]
        wait_until(lambda: "ready" in self.muster(BY_NAME, "nodes", "-o", "json").stdout, "the node is ready")

    def test_what_the_dns_does_not_say_is_said_in_its_place(self):
        self.names.services = []
        self.assertIn(f"the DNS has no such record of {NAME}", self.muster(BY_NAME, "nodes", check=False).stderr)
        self.names.silent = True
        self.assertIn(f"no name server of /etc/resolv.conf says what {NAME} is",
                      self.muster(BY_NAME, "nodes", check=False).stderr)
        self.assertIn("such as _muster._tcp.example.org",
                      self.muster("dnssrv+example.org", "nodes", check=False).stderr)


def main():
    if can_have_namespaces() and INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv])
    if INSIDE in os.environ:
        ip("link", "set", "lo", "up")
        with tempfile.NamedTemporaryFile("w", prefix="resolv.") as file:
            file.write(f"nameserver {SERVER}\n")
            file.flush()
            os.chmod(file.name, 0o644)
            subprocess.run(["mount", "--bind", file.name, "/etc/resolv.conf"], check=True, timeout=60)
    unittest.main()


if __name__ == "__main__":
    main()
