"""Which jobs have processes that hold devices of a cluster, watched from outside by the locks that they hold.

  watch = DeviceWatch(cluster.dir)
  watch.start()
  ...
  watch.stop()
  self.assertEqual(watch.shared, [])
"""

import collections
import os
import pathlib
import re
import threading

LOOK_EVERY_S = 0.02


def job_of(pid):
    """The job that a guardian or one of its processes belongs to. A process that ends is an OSError: the kernel takes its
    memory, and with it environment and command line, before its files."""
    entry = pathlib.Path(f"/proc/{pid}")
    for variable in (entry / "environ").read_bytes().split(b"\0"):
        if variable.startswith(b"MUSTER_JOB_ID="):
            return variable.partition(b"=")[2].decode()
    command = (entry / "cmdline").read_bytes()
    if not command:
        raise ProcessLookupError(f"process {pid} ends")
    found = re.search(rb"/jobs/([0-9a-f]+)", command)
    return found[1].decode() if found else ""


def locks_of(pid, cluster):
    """The ids of the cluster's devices whose lock files it has open. A worker only looks."""
    devices = set()
    if pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name == "muster-worker":
        return devices
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(link)
        if target.startswith(f"{cluster}/") and target.endswith(".lock") and "/devices/" in target:
            devices.add(pathlib.Path(target).stem.removeprefix("muster-"))
    return devices


class DeviceWatch(threading.Thread):
    """Looks at all processes again and again until it is stopped."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.ended = threading.Event()
        self.looks = 0
        self.shared = []  # devices that processes of two jobs had open
        self.held = collections.Counter()

    def run(self):
        while not self.ended.wait(LOOK_EVERY_S):
            self.look()

    def look(self):
        jobs = collections.defaultdict(set)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                devices = locks_of(pid, self.cluster)
                job = job_of(pid) if devices else ""
            except OSError:
                continue  # it ended meanwhile
            for device in devices:
                jobs[device].add(job)
        self.looks += 1
        for device, holders in jobs.items():
            self.held[device] += 1
            if len(holders) > 1:
                self.shared.append((device, sorted(holders)))

    def stop(self):
        self.ended.set()
        self.join()
