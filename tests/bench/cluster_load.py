#!/usr/bin/env python3
"""What a coordinator costs whose nodes all run ranks: CPU, memory, and how soon it answers.

  cluster_load.py [--nodes 6000] [--nodes-per-job 8] [--ranks-per-node 8] [--seconds 30]

Starts a real coordinator with a certificate authority of its own (`muster init`), and one process that
acts as all of the nodes (cluster_load.cc): a TLS connection and a certificate for each, heartbeats at the
interval that the coordinator asks for, one message per job and node a second. The coordinator is a process
of its own and is measured alone, by /proc: `connected` while the nodes only send heartbeats, `running`
while all of them run ranks. `answers` is how long a client's question to the coordinator's loop took
meanwhile. Prints one JSON object; `generator` is what the nodes' process took, which shares the machine.
"""

import argparse
import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
from cluster import BIN, ROOT, run, wait_until  # noqa: E402

STAGE_LIMIT_S = 600
WANTED = {"cores": 1.0, "peak_mib": 1024}
MEMORY = pathlib.Path("/dev/shm")  # for the nodes' credentials, whose files would be synced one by one elsewhere


class Process:
    """A child, and what it has used."""

    def __init__(self, *words, **options):
        self.child = subprocess.Popen([str(word) for word in words], start_new_session=True, **options)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def status(self, key):
        text = pathlib.Path(f"/proc/{self.child.pid}/status").read_text(encoding="ascii")
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(key + ":")))

    def read_line(self):
        """A line of JSON that it prints."""
        if not select.select([self.child.stdout], [], [], STAGE_LIMIT_S)[0]:
            raise AssertionError(f"nothing came within {STAGE_LIMIT_S} s")
        line = self.child.stdout.readline()
        if not line:
            raise AssertionError(f"the nodes' process ended with {self.child.wait(timeout=10)}")
        return json.loads(line)

    def go_on(self):
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def end(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait(timeout=20)


def measure(coordinator, generator, seconds, nodes):
    began, cpu, generated = time.monotonic(), coordinator.cpu_seconds(), generator.cpu_seconds()
    time.sleep(seconds)
    took = time.monotonic() - began
    cores = (coordinator.cpu_seconds() - cpu) / took
    return {"seconds": round(took, 1), "cores": round(cores, 3),
            "cpu_us_per_node_and_second": round(cores / nodes * 1e6, 1),
            "rss_mib": round(coordinator.status("VmRSS") / 1024, 1),
            "peak_mib": round(coordinator.status("VmHWM") / 1024, 1),
            "generator_cores": round((generator.cpu_seconds() - generated) / took, 3),
            "generator_rss_mib": round(generator.status("VmRSS") / 1024, 1)}


class Load:
    """A coordinator with a certificate authority of its own, and the process that acts as its nodes."""

    def __init__(self, root, credentials):
        self.root, self.credentials = root, credentials
        run("muster", "init", "--dir", root, "--cluster", "load")
        with open(root / "log", "wb") as log:
            self.coordinator = Process(BIN / "muster-coordinator", "--dir", root, "--log-level", "warn",
                                       "--tls-listen", "127.0.0.1:0", stdout=log, stderr=log)
        self.generator = None

    def await_coordinator(self):
        endpoint = self.root / "coordinator" / "endpoint.json"
        wait_until(endpoint.exists, "the coordinator listens")
        self.address = json.loads(endpoint.read_text(encoding="utf-8"))["grpc_tls"]

    def start_generator(self, program, *arguments):
        self.generator = Process(BIN / program, "--dir", self.root, "--credentials", self.credentials, "--coordinator",
                                 self.address, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self.generator

    def end(self):
        for process in (self.generator, self.coordinator):
            if process:
                process.end()


@contextlib.contextmanager
def loaded_coordinator():
    """A Load whose coordinator listens, and nothing of it afterwards. A failure comes with the log's end."""
    folders = {"prefix": "muster-load-", "ignore_cleanup_errors": True}
    with tempfile.TemporaryDirectory(**folders) as root, \
            tempfile.TemporaryDirectory(**folders, dir=MEMORY if MEMORY.is_dir() else None) as credentials:
        load = Load(pathlib.Path(root), credentials)
        try:
            load.await_coordinator()
            yield load
        except AssertionError:
            sys.stderr.write((load.root / "log").read_text(encoding="utf-8", errors="replace")[-4000:])
            raise
        finally:
            load.end()


def bench(options, load):
    coordinator = load.coordinator
    result = {"empty_rss_mib": round(coordinator.status("VmRSS") / 1024, 1)}
    cpu = coordinator.cpu_seconds()
    generator = load.start_generator("cluster_load", "--nodes", options.nodes, "--nodes-per-job",
                                     options.nodes_per_job, "--ranks-per-node", options.ranks_per_node)
    result |= generator.read_line()
    result["registered_cpu_s"] = round(coordinator.cpu_seconds() - cpu, 2)
    result["connected"] = measure(coordinator, generator, options.seconds / 3, options.nodes)
    cpu = coordinator.cpu_seconds()
    generator.go_on()
    result |= generator.read_line()
    result["started_cpu_s"] = round(coordinator.cpu_seconds() - cpu, 2)
    result["running"] = measure(coordinator, generator, options.seconds, options.nodes)
    generator.go_on()
    result |= generator.read_line()
    result["coordinator_threads"] = coordinator.status("Threads")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=6000)
    parser.add_argument("--nodes-per-job", type=int, default=8)
    parser.add_argument("--ranks-per-node", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    with loaded_coordinator() as load:
        result = bench(options, load)
    jobs = options.nodes // options.nodes_per_job
    print(json.dumps({"benchmark": "cluster_load", "nodes": options.nodes, "jobs": jobs,
                      "ranks": jobs * options.nodes_per_job * options.ranks_per_node,
                      "revision": machine.revision(ROOT), "machine": machine.describe(), **result, "wanted": WANTED},
                     indent=1))


if __name__ == "__main__":
    main()
