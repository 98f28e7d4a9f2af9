"""What the programs of a local cluster did between a fault and the next step, on one clock.

  before = run_delays(cluster, job)
  ...                                          # the fault, and its recovery
  timeline(cluster, job, at, before)           # lines, oldest first; then who waited for a core

Lines come from the logs of coordinator, workers and guardians, which have milliseconds of this machine's clock; what
trainers report (formed, resumed, first step) stands in the coordinator's. Run-queue delay is the time that a process
was runnable and had no core, by /proc/PID/task/*/schedstat.
"""

import datetime
import pathlib
import re

from cluster import descendants

STAMP = re.compile(r"^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{3}(?:\+\d\d:\d\d)?) (.*)$")


def _processes(cluster, job):
    """Names by process."""
    named = {cluster.coordinator_pid(): "coordinator"}
    for node, pid in cluster.guardians(job).items():
        named[cluster.worker_pid(node)] = f"worker {node}"
        named[pid] = f"guardian {node}"
        named.update({child: f"trainer {child} {node}" for child in descendants(pid)})
    return named


def _delay_seconds(pid):
    total = 0
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(file.read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            pass  # the thread has ended
    return total / 1e9


def run_delays(cluster, job):
    return {(pid, name): _delay_seconds(pid) for pid, name in _processes(cluster, job).items()}


def _logged(cluster, job):
    yield "coordinator", cluster.dir / "coordinator" / "coordinator.log"
    for worker in sorted((cluster.dir / "nodes").glob("*/worker.log")):
        yield f"worker {worker.parent.name}", worker
    for guardian in sorted((cluster.dir / "nodes").glob(f"*/jobs/{job}/guardian.log")):
        yield f"guardian {guardian.parents[2].name}", guardian


def timeline(cluster, job, start, before):
    end = datetime.datetime.now().timestamp()
    lines = []
    for name, path in _logged(cluster, job):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if found := STAMP.match(line):
                at = datetime.datetime.fromisoformat(found[1]).timestamp()
                if start - 0.001 <= at <= end:
                    lines.append((at, f"{at - start:+.3f} {name}: {found[2]}"))
    waits = [(now - before.get(key, 0.0), key[1]) for key, now in run_delays(cluster, job).items()]
    return [text for _, text in sorted(lines)] + [
        f"waited {seconds:.3f} s for a core: {name}" for seconds, name in sorted(waits, reverse=True) if seconds > 0.001]
