"""Nodes on other machines: they join by a token, run jobs over TLS, and are revoked."""

import json
import os
import pathlib
import socket
import ssl
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import run, wait_until  # noqa: E402
from tls_cluster import TlsCluster  # noqa: E402

NOT_ALLOWED = 4  # the exit code


def command_job(cluster, name, script, nodes=1):
    workdir = cluster.path(f"out-{name}")
    workdir.mkdir()
    return {"name": name, "workdir": str(workdir), "command": ["sh", "-c", script],
            "resources": {"nodes": nodes, "ranks_per_node": 1}}


def read_all(connection):
    return b"".join(iter(lambda: connection.recv(65536), b""))


def scrape(cluster, address, name):
    """/metrics as any scraper reads it: by TLS, with the scraper's certificate."""
    credentials = cluster.dir / "security" / "scraper"
    context = ssl.create_default_context(cafile=credentials / "ca.pem")
    context.load_cert_chain(credentials / "cert.pem", credentials / "key.pem")
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as raw:
        with context.wrap_socket(raw, server_hostname=name) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            return read_all(connection)


class NodesOfOtherMachines(unittest.TestCase):
    def test_a_job_runs_on_nodes_that_have_joined(self):
        cluster = TlsCluster(self, nodes=2)
        job = cluster.submit(command_job(cluster, "hello", "echo hello from $RANK; exit 0", nodes=2))
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        self.assertIn("hello from 1", cluster.muster("logs", job).stdout)
        for node in ("node-1", "node-2"):
            key = cluster.credentials(node) / "key.pem"
            self.assertEqual(key.stat().st_mode & 0o777, 0o600)
            # The key was made there, and the coordinator's machine has never had it.
            text = key.read_text(encoding="ascii")
            for file in (cluster.dir / "security").rglob("*"):
                self.assertNotIn(text.splitlines()[1], file.read_text(errors="replace")
                                 if file.is_file() else "")

    def test_a_node_comes_back_without_its_token_and_goes_for_good_when_it_is_revoked(self):
        cluster = TlsCluster(self, nodes=1)
        # The token has been used up, or is left out; what the node has is enough.
        for token in ("muster-join-v1.used", ""):
            worker = cluster.daemons[-1]
            worker.terminate()
            worker.wait(timeout=60)
            wait_until(lambda: cluster.json("nodes")[0]["state"] != "ready", "the node is gone")
            cluster.start_worker("node-1", token=token)
            cluster.wait_until_there(1)
        run("muster", "certs", "revoke", "node-1", "--dir", cluster.dir)
        state = lambda: cluster.json("nodes")[0]["state"]  # noqa: E731
        wait_until(lambda: state() != "ready", "the revoked node is put out")
        wait_until(lambda: "revoked" in cluster.log("node-1"), "its worker says why")
        self.assertNotEqual(state(), "ready")

    def test_a_coordinator_ends_though_the_disk_of_its_certificates_hangs(self):
        cluster = TlsCluster(self, nodes=0)
        coordinator = cluster.daemons[0]
        # A pipe without a writer opens as slowly as a file whose server is gone: never.
        authority = cluster.dir / "security" / "coordinator" / "ca.pem"
        authority.unlink()
        os.mkfifo(authority, 0o600)
        tasks = pathlib.Path(f"/proc/{coordinator.pid}/task")
        wait_until(lambda: any("wait_for_partner" in (task / "wchan").read_text(encoding="ascii")
                               for task in tasks.iterdir()), "a thread hangs there")
        self.assertEqual(cluster.json("nodes"), [], "it serves all the same")
        coordinator.terminate()
        self.assertEqual(coordinator.wait(timeout=60), 0)
        self.assertIn("exiting without waiting for it", cluster.log("coordinator"))

    def test_wrong_or_missing_credentials_are_refused_with_the_reason(self):
        cluster = TlsCluster(self, nodes=1)
        node = cluster.muster("nodes", credentials=cluster.credentials("node-1"), check=False)
        self.assertEqual(node.returncode, NOT_ALLOWED, node.stderr)
        self.assertIn("a node's certificate may not call", node.stderr)
        none = run("muster", "nodes", "--coordinator", cluster.endpoint["grpc_tls"], check=False,
                   env={"MUSTER_TLS": ""})
        self.assertEqual(none.returncode, NOT_ALLOWED, none.stderr)
        self.assertIn("--tls", none.stderr)

    def test_a_scraper_reads_the_metrics_of_both(self):
        cluster = TlsCluster(self, nodes=1)
        family = b"muster_certificate_expiry_timestamp_seconds"
        self.assertIn(family, scrape(cluster, cluster.endpoint["http_tls"], "coordinator.muster"))
        record = json.loads((cluster.worker_dir("node-1") / "nodes" / "node-1" / "worker.json")
                            .read_text(encoding="utf-8"))
        port = record["http"].split(":")[1]
        self.assertIn(family, scrape(cluster, f"{cluster.address('node-1')}:{port}", "node.muster"))


if __name__ == "__main__":
    unittest.main()
