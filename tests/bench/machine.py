"""What a figure was measured on, and how it is summed up."""

import os
import pathlib
import platform
import statistics
import subprocess


def describe():
    cpu = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    memory_kib = int(next(line.split()[1] for line in
                          pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
                          if line.startswith("MemTotal")))
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory_kib / 2**20, 1),
            "kernel": platform.release(), "load_1min": round(os.getloadavg()[0], 2)}


def revision(root):
    done = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def summary(seconds):
    return {"runs": len(seconds), "median_s": round(statistics.median(seconds), 3),
            "min_s": round(min(seconds), 3), "max_s": round(max(seconds), 3),
            "all_s": [round(s, 3) for s in seconds]}
