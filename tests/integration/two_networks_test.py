"""Nodes with two networks: ranks meet and train on the one that --interface names."""

import os
import pathlib
import socket
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, alive, can_have_namespaces, ip, kill, wait_until  # noqa: E402

ESTABLISHED = "01"


def sockets_of(pid):
    """(state, local address) of each IPv4 socket that a process holds."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[len("socket:["):-1])
    found = []
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if words[9] in inodes:
            host = socket.inet_ntoa(struct.pack("<I", int(words[1].split(":")[0], 16)))
            found.append((words[3], host))
    return found


@unittest.skipUnless(can_have_namespaces(), "network namespaces need root and the program ip")
class TwoNetworks(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self, nodes=2, slots=2, up=("--netns",))
        one, two = (self.cluster.hub.removesuffix("hub") + f"node-{n}" for n in (1, 2))
        ip("-n", one, "link", "add", "fabric0", "type", "veth", "peer", "name", "fabric0", "netns",
           two)
        for number, namespace in ((1, one), (2, two)):
            ip("-n", namespace, "addr", "add", f"10.88.0.{number}/24", "dev", "fabric0")
            ip("-n", namespace, "link", "set", "fabric0", "up")

    def restart_workers(self, *options):
        for number in (1, 2):
            node = f"node-{number}"
            old = self.cluster.worker_pid(node)
            kill(old)
            wait_until(lambda: not alive(old), f"the worker of {node} has ended")
            namespace = self.cluster.hub.removesuffix("hub") + node
            command = ["nsenter", f"--net=/run/netns/{namespace}", BIN / "muster-worker", "--dir",
                       self.cluster.dir, "--node", node, "--slots", "2", "--endpoint",
                       self.cluster.dir / "coordinator" / "workers-endpoint.json", *options]
            with open(self.cluster.dir / "nodes" / node / "worker.log", "ab") as log:
                worker = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log, start_new_session=True)
            self.cluster.workers.append(worker)
            wait_until(lambda: any(n["pid"] == worker.pid and n["state"] == "ready"
                                   for n in self.cluster.json("nodes")), f"{node} is back")

    def addresses(self):
        return [node["address"] for node in self.cluster.json("nodes")]

    def environments(self, **env):
        job = self.cluster.submit({
            "name": "command", "workdir": str(self.cluster.root), "command": ["env"], "env": env,
            "resources": {"nodes": 2, "ranks_per_node": 1, "device": "cpu"}})
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        folder = self.cluster.output(job) / "logs" / "1"
        for rank in (0, 1):
            lines = (folder / f"rank-{rank}.log").read_text(encoding="utf-8").splitlines()
            yield dict(line.split("=", 1) for line in lines if "=" in line)

    def test_the_named_interface_carries_rendezvous_and_collectives(self):
        self.restart_workers("--interface", "fabric0")
        self.assertEqual(self.addresses(), ["10.88.0.1", "10.88.0.2"])
        for number, env in enumerate(self.environments(GLOO_SOCKET_IFNAME="eth0"), 1):
            self.assertEqual(env["MASTER_ADDR"], "10.88.0.1")
            self.assertEqual(env["NCCL_SOCKET_IFNAME"], "=fabric0")
            self.assertEqual(env["MUSTER_BIND_ADDRESS"], f"10.88.0.{number}")
            self.assertEqual(env["GLOO_SOCKET_IFNAME"], "eth0", "the job's own word wins")
        job = self.cluster.submit(self.cluster.train_job(steps=100))
        self.cluster.wait_for_step(job, 5)
        for rank, pid in self.cluster.ranks(job).items():
            sockets = sockets_of(pid)
            self.assertEqual({host for _, host in sockets}, {f"10.88.0.{rank + 1}"}, sockets)
            self.assertIn(ESTABLISHED, {state for state, _ in sockets})
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))

    def test_without_a_name_it_is_the_network_of_the_coordinator(self):
        self.restart_workers()
        self.assertEqual(self.addresses(), ["10.77.0.2", "10.77.0.3"])
        for env in self.environments():
            self.assertEqual(env["MASTER_ADDR"], "10.77.0.2")
            self.assertEqual(env["NCCL_SOCKET_IFNAME"], "=eth0")

    def test_an_interface_that_is_not_there_is_refused_with_what_is(self):
        namespace = self.cluster.hub.removesuffix("hub") + "node-1"
        done = subprocess.run(
            ["nsenter", f"--net=/run/netns/{namespace}", BIN / "muster-worker", "--dir",
             self.cluster.path("other"), "--node", "n", "--interface", "ib0"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is lo (127.0.0.1 ::1), eth0 (10.77.0.2), fabric0 (10.88.0.1)",
                      " ".join((done.stdout + done.stderr).split()))


if __name__ == "__main__":
    unittest.main()
