#!/usr/bin/env python3
"""What finished and queued jobs cost a coordinator that starts: time and memory.

  archive_bench.py [--queued 10000] [--archived 100000]

The store is made by copying the rows of two jobs that a coordinator wrote, one queued and one that
is over; the latter with an attempt of 8 ranks and two checkpoints. Then a coordinator is started on
no jobs, on the queued ones, and on both; "restart" is from before its process is started until a
submit is accepted, which takes a start of the CLI too; "cpu" is what the coordinator used until then.
Memory is VmRSS after that submit. Prints one JSON object.
"""

import argparse
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MUSTER_BIN_DIR", ROOT / "build" / "release" / "bin"))
LIMIT_SECONDS = 600
PAUSE_SECONDS = 0.02


class Coordinator:
    def __init__(self, folder):
        self.folder = folder
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [BIN / "muster-coordinator", "--dir", folder, "--retain", "0s"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def submit(self, name):
        """The job's id, and the seconds since the process was started."""
        file = self.folder / f"{name}.yaml"
        file.write_text(f"name: {name}\nworkdir: /tmp\nresources: {{nodes: 8, ranks_per_node: 8}}\n"
                        "command: [./train, --config, config.yaml]\n")
        while True:
            done = subprocess.run([BIN / "muster", "--dir", self.folder, "submit", file, "-o", "json"],
                                  capture_output=True, text=True, check=False)
            seconds = time.monotonic() - self.started
            if done.returncode == 0:
                return json.loads(done.stdout)["id"], seconds
            if seconds > LIMIT_SECONDS or self.process.poll() is not None:
                raise SystemExit(f"no submit was accepted: {done.stderr}")
            time.sleep(PAUSE_SECONDS)

    def cancel(self, job):
        subprocess.run([BIN / "muster", "--dir", self.folder, "cancel", job], check=True,
                       capture_output=True)

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return 1024 * next(int(line.split()[1]) for line in status.splitlines()
                           if line.startswith("VmRSS"))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def attempt(job):
    ranks = [{"rank": rank, "local_rank": rank % 8, "node_rank": 0, "node": "n1", "pid": 4711 + rank,
              "state": "exited"} for rank in range(8)]
    return {"job": job, "generation": 1, "state": "ended", "nodes": ["n1"], "ranks": ranks,
            "cause_kind": "finished", "cause": "every rank has finished"}


def checkpoint(job, step):
    shards = [{"rank": rank, "file": f"shard-{rank:05}", "bytes": 1 << 30, "checksum": "0" * 16}
              for rank in range(8)]
    return {"job": job, "step": step, "generation": 1, "directory": f"step-{step}", "world_size": 8,
            "shards": shards, "state": "committed", "manifest_written": True}


def copies(template, count, first):
    for number in range(count):
        record = dict(template, id=f"{first + number:010x}", name=f"job-{first + number}",
                      submit_order=first + number, key=f"key-{first + number}",
                      output_dir=f"/tmp/out/{first + number}")
        yield record


def add_queued(store, template, count):
    store.executemany("INSERT INTO jobs VALUES(?,?,?)",
                      ((job["id"], job["state"], json.dumps(job))
                       for job in copies(template, count, first=1_000_000)))


def add_archived(store, template, count):
    for job in copies(template, count, first=1000):
        number = job["submit_order"]
        store.execute("INSERT INTO jobs_archive VALUES(?,?,?,?,?,?,?)",
                      (job["id"], job["state"], number, job["ended_unix_ms"], number, number,
                       json.dumps(job)))
        store.execute("INSERT INTO attempts_archive VALUES(?,1,?)",
                      (job["id"], json.dumps(attempt(job["id"]))))
        for step in (100, 200):
            store.execute("INSERT INTO checkpoints_archive VALUES(?,?,?)",
                          (job["id"], f"step-{step}", json.dumps(checkpoint(job["id"], step))))


def templates(folder):
    """A record of a queued job, and one of a job that is over; the store is left empty."""
    coordinator = Coordinator(folder)
    queued, _ = coordinator.submit("queued")
    over, _ = coordinator.submit("over")
    coordinator.cancel(over)
    coordinator.stop()
    with sqlite3.connect(folder / "coordinator" / "state.db") as store:
        records = {job: json.loads(record)
                   for job, record in store.execute("SELECT id, record FROM jobs")}
        store.execute("DELETE FROM jobs")
    store.close()
    return records[queued], records[over]


def measure(folder, name):
    coordinator = Coordinator(folder)
    _, seconds = coordinator.submit(name)
    resident = coordinator.resident_bytes()
    cpu = coordinator.cpu_seconds()
    coordinator.stop()
    return {"restart_seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2),
            "resident_mib": round(resident / 2**20, 1)}, resident


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queued", type=int, default=10000)
    parser.add_argument("--archived", type=int, default=100000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="muster-archive-") as name:
        folder = pathlib.Path(name)
        queued, over = templates(folder)
        empty, none_bytes = measure(folder, "first")
        with sqlite3.connect(folder / "coordinator" / "state.db") as store:
            # Three of its jobs are submitted here.
            add_queued(store, queued, options.queued - 3)
        store.close()
        live, live_bytes = measure(folder, "second")
        with sqlite3.connect(folder / "coordinator" / "state.db") as store:
            add_archived(store, over, options.archived)
        store.close()
        both, both_bytes = measure(folder, "third")
    print(json.dumps({
        "benchmark": "restart_with_archive", "revision": machine.revision(ROOT),
        "machine": machine.describe(), "queued": options.queued, "archived": options.archived,
        "no_jobs": empty, "queued_only": live, "queued_and_archived": both,
        "bytes_per_queued_job": round((live_bytes - none_bytes) / options.queued),
        "bytes_per_archived_job": round((both_bytes - live_bytes) / max(1, options.archived))}, indent=1))


if __name__ == "__main__":
    main()
