"""What a figure was measured on, and how it is summed up."""

import math
import os
import pathlib
import platform
import statistics
import subprocess
import time

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


def median_interval(values):
    """Where the median lies with at least 95 %, by the sign test, which takes nothing for granted of how values
    are spread. Nothing for fewer than 6."""
    ordered = sorted(values)
    count = len(ordered)
    outside = 0.0
    for cut in range(count // 2):
        outside += 2 * math.comb(count, cut) / 2**count
        if outside > 0.05:
            return None if cut == 0 else [round(ordered[cut - 1], 4), round(ordered[count - cut], 4)]
    return None


def difference(base, other):
    """Of runs in pairs: what `other` took more than its neighbour in time. A machine that was busy for a while was so
    for both, and what it adds by chance shows in the spread."""
    more = [b - a for a, b in zip(base, other, strict=True)]
    ratios = [b / a for a, b in zip(base, other)]
    quartiles = statistics.quantiles(more, n=4, method="inclusive") if len(more) > 1 else [more[0], more[0], more[0]]
    return {"pairs": len(more), "median_s": round(statistics.median(more), 4),
            "median_95_s": median_interval(more),
            "quartiles_s": [round(quartiles[0], 4), round(quartiles[2], 4)],
            "min_s": round(min(more), 4), "max_s": round(max(more), 4),
            "ratio": round(statistics.median(ratios), 3), "ratio_95": median_interval(ratios)}


class Rounds:
    """Measurements of several kinds taken in turn, every other round backwards, so that no kind always comes after
    the same one; and what the machine was doing meanwhile."""

    def __init__(self, show=None):
        self.values = {}
        self._show = show or (lambda name, value: None)
        self._loads = []
        self._waited = []
        self._took = 0

    def take(self, kinds):
        """One round. `kinds`: what measures, by name; returns seconds, or what the caller sums up itself."""
        began, waited = time.monotonic(), seconds_some_task_waited()
        for name in list(kinds)[::-1 if self._took % 2 else 1]:
            self.values.setdefault(name, []).append(kinds[name]())
            self._show(name, self.values[name][-1])
        self._took += 1
        self._loads.append(os.getloadavg()[0])
        self._waited.append((seconds_some_task_waited() - waited) / (time.monotonic() - began))

    def summaries(self):
        return {name: summary(values) for name, values in self.values.items()}

    def busy(self):
        """Load, and the share of the time in which some task waited for a CPU, ours among them: by round."""
        return {name: {"median": round(statistics.median(values), 2), "max": round(max(values), 2)}
                for name, values in (("load_1min", self._loads), ("waited_share", self._waited))}
