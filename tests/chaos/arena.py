"""Where faults are done: a real cluster, a small disk for the jobs' results, and what runs there."""

import errno
import os
import pathlib
import shutil
import subprocess

from cluster import Cluster, can_have_namespaces, kill, processes_of_job

NODES = 4
DISK_BYTES = 384 << 20


def fill(disk, room):
    """Takes all of a disk but `room` bytes; the file to remove afterwards."""
    filler = disk / "filler"
    taken = 0
    with open(filler, "wb") as file:
        while (free := shutil.disk_usage(disk).free) > room:
            try:
                os.posix_fallocate(file.fileno(), taken, free - room)
                taken += free - room
            except OSError as error:  # something else takes room at the same time
                if error.errno != errno.ENOSPC:
                    raise
    return filler


class Arena:
    """One cluster of four workers. `close` raises when something of it is left."""

    def __init__(self):
        self.has = {"namespaces"} if can_have_namespaces() else set()
        up = ["--allow-faults", *(["--netns"] if self.has else [])]
        self.cluster = Cluster(None, nodes=NODES, slots=2, up=up)
        self.names = {}  # of jobs, by id
        self.disk = self.cluster.path("disk")
        self.disk.mkdir()
        if self._mount_disk():
            self.has.add("small_disk")

    def _mount_disk(self):
        mount = shutil.which("mount")
        return mount and subprocess.run(
            [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.disk],
            capture_output=True, check=False, timeout=10).returncode == 0

    def close(self):
        try:
            if "small_disk" in self.has:
                subprocess.run([shutil.which("umount"), "-l", self.disk], check=True, timeout=10)
        finally:
            namespaces = self.cluster.network_namespaces
            self.cluster.close()
            if namespaces():
                raise AssertionError(f"`muster down` left the namespaces {namespaces()}")

    def fill_disk(self, room):
        return fill(self.disk, room)

    def reached(self, job, generation, phase):
        """Whether a generation has come so far, by the files that say so before any message does."""
        if phase == "prepare":
            return any(f'"generation":{generation}' in text for text in self._texts(job, "prepare.json"))
        if phase == "launch":
            return any((folder / f"resume-g{generation}.json").exists()
                       for folder in self.cluster.guardian_folders(job).values())
        return any((self.output(job) / "logs" / str(generation)).glob("rank-*.log"))

    def _texts(self, job, name):
        for folder in self.cluster.guardian_folders(job).values():
            try:
                yield (folder / name).read_text(encoding="utf-8").replace(" ", "")
            except OSError:
                continue

    def output(self, job):
        return self.disk / self.names[job]

    def submit(self, spec):
        spec["train"]["output"]["dir"] = str(self.disk / spec["name"])
        job = self.cluster.submit(spec)
        self.names[job] = spec["name"]
        return job

    def heal(self, injected):
        """Undoes what lasts, brings back what is gone, and waits until every node is ready."""
        for fault in injected:
            fault.heal()
        self.cluster.up()
        self.cluster.wait_until_ready()

    def end_everything_of(self, job):
        self.cluster.muster("cancel", job, check=False)
        for pid, _ in processes_of_job(job):
            kill(pid)
