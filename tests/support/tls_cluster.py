"""A cluster as on several machines: nothing is shared but the network, and that speaks TLS.

  cluster = TlsCluster(self)          # one coordinator; nodes that have joined it by tokens
  cluster.muster("nodes")             # an admin's certificate, no cluster directory

Coordinator, each worker and the client have directories of their own; all of them are on loopback.
With tls=False the same daemons are started with the token of one directory, for comparisons.
"""

import json
import os
import shutil
import signal
import subprocess

from cluster import BIN, Cluster, kill, processes_of, run, wait_until


class TlsCluster(Cluster):
    def __init__(self, test, nodes=2, slots=4, tls=True):
        self.tls = tls
        self.daemons = []
        super().__init__(test, nodes=nodes, slots=slots)

    def up(self):
        self.dir.mkdir(exist_ok=True)
        doors = []
        if self.tls:
            run("muster", "init", "--dir", self.dir, "--cluster", "lab")
            doors = ["--tls-listen", "127.0.0.1:0", "--tls-http", "127.0.0.1:0",
                     "--join-listen", "127.0.0.1:0"]
        self.start("coordinator", "muster-coordinator", "--dir", self.dir, *doors)
        endpoint = self.dir / "coordinator" / "endpoint.json"
        wait_until(endpoint.exists, "the coordinator listens")
        self.endpoint = json.loads(endpoint.read_text(encoding="utf-8"))
        for index in range(self.nodes):
            self.start_worker(f"node-{index + 1}")
        self.wait_until_there(self.nodes)

    def start(self, name, program, *arguments, env=None):
        with open(self.root / f"{name}.log", "ab") as log:
            process = subprocess.Popen([str(BIN / program), *map(str, arguments)], stdout=log,
                                       stderr=log, stdin=subprocess.DEVNULL,
                                       env={**os.environ, **(env or {})}, start_new_session=True)
        self.daemons.append(process)
        return process

    def worker_dir(self, node):
        return self.root / node if self.tls else self.dir

    def credentials(self, node):
        return self.worker_dir(node) / "nodes" / node / "credentials"

    def start_worker(self, node, token=None):
        """`token`: instead of a new one; "" for none."""
        doors = []
        if self.tls and token != "":
            doors = ["--join", token or self.token(node)]
        return self.start(node, "muster-worker", "--dir", self.worker_dir(node), "--node", node,
                          "--slots", self.slots, "--address", self.address(node), *doors)

    def address(self, node):
        """One of loopback that no other node has: 127.0.0.11 of node-1."""
        return f"127.0.0.{10 + int(node.rsplit('-', 1)[1])}"

    def token(self, node):
        return run("muster", "certs", "join-token", "--node", node, "--dir",
                   self.dir).stdout.strip()

    def log(self, name):
        return (self.root / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def wait_until_there(self, count):
        wait_until(lambda: sum(node["state"] == "ready" for node in self.json("nodes")) == count,
                   f"{count} nodes are ready")

    def muster(self, command, *arguments, credentials=None, **options):
        if not self.tls:
            return super().muster(command, *arguments, **options)
        return run("muster", command, *arguments, "--coordinator", self.endpoint["grpc_tls"],
                   "--tls", credentials or self.dir / "security" / "admin", "--dir",
                   self.root / "no-cluster", **options)

    def close(self):
        try:
            for daemon in reversed(self.daemons):
                if daemon.poll() is None:
                    daemon.send_signal(signal.SIGTERM)
                daemon.wait(timeout=60)
            # Guardians outlive their worker; there is no `muster down` for machines.
            for pid, _ in processes_of(self.root):
                kill(pid)
        finally:
            shutil.rmtree(self.root, ignore_errors=True)
