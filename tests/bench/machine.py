"""What a figure was measured on, and how it is summed up."""

import math
import os
import pathlib
import platform
import statistics
import subprocess

# What decides how fast the matrix products are.
_INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")

# Environment that keeps oneDNN, MKL and ATen to a part of the machine's instructions. Applied to
# both sides, it stands in for machines without the rest.
ISA_LIMITS = {
    "native": {},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
             "ATEN_CPU_CAPABILITY": "avx2"},
}


def describe():
    cpu = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        cpu.setdefault(key.strip(), value.strip())
    memory_kib = int(next(line.split()[1] for line in
                          pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
                          if line.startswith("MemTotal")))
    flags = cpu.get("flags", "").split()
    return {"cpu": cpu.get("model name", "unknown"), "cores": os.cpu_count(),
            "instruction_sets": [name for name in _INSTRUCTION_SETS if name in flags],
            "memory_gib": round(memory_kib / 2**20, 1), "kernel": platform.release(),
            "load_1min": round(os.getloadavg()[0], 2)}


def seconds_some_task_waited():
    """Of this boot, in which at least one task that could run had no CPU (Linux pressure stall information)."""
    some = pathlib.Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()[0]
    return int(some.split("total=")[1]) / 1e6


def revision(root):
    done = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty"],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def summary(seconds):
    """Median, extremes, the 99th percentile where there are enough, single values while they are few."""
    ordered = sorted(seconds)
    result = {"runs": len(ordered), "median_s": round(statistics.median(ordered), 3),
              "min_s": round(ordered[0], 3), "max_s": round(ordered[-1], 3)}
    if len(ordered) >= 200:
        result["p99_s"] = round(ordered[math.ceil(0.99 * len(ordered)) - 1], 3)
    if len(ordered) <= 50:
        result["all_s"] = [round(s, 3) for s in seconds]
    return result
