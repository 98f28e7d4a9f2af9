"""torchrun with FSDP2 and sharded checkpoints under the faults of recovery_bench.py.

Two agents with one worker each (c10d rendezvous), as two nodes would have them. A fault comes at step 13,
three steps after a checkpoint; it is over when a worker that was started after it has finished a step.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import machine  # noqa: E402
import peer  # noqa: E402
from cluster import descendants, kill, wait_until  # noqa: E402
from gang import free_port  # noqa: E402

PROGRAM = pathlib.Path(__file__).resolve().parent / "peers" / "elastic_train.py"
LIMIT_S = 60
FAULT_STEP = 13
# The workers share the first rendezvous's store, from which new workers read the addresses of dead ones
# (pytorch issue 135712); this turns it off.
UNSHARED = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


class Elastic:
    """A torchrun job; steps are read from what its rank 0 writes."""

    def __init__(self, folder, nnodes, variables):
        self.folder = folder
        self.nnodes = nnodes
        self.variables = variables
        self.port = free_port()
        self.agents = [self.start_agent() for _ in range(2)]

    def start_agent(self):
        command = [peer.TORCHRUN, f"--nnodes={self.nnodes}", "--nproc_per_node=1", "--max_restarts=3",
                   "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{self.port}", "--rdzv_id=bench",
                   PROGRAM, self.folder]
        return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", **self.variables},
                                start_new_session=True, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def steps(self):
        """(start of the worker that wrote it, step), oldest first."""
        path = self.folder / "steps"
        lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
        words = [line.split() for line in lines]
        return [(float(w[0]), int(w[1])) for w in words if len(w) == 2]

    def worker(self, rank):
        return int((self.folder / f"pid-{rank}").read_text(encoding="ascii"))

    def agent_of(self, rank):
        return next(a for a in self.agents if self.worker(rank) in descendants(a.pid))

    def end(self):
        pids = [pid for agent in self.agents for pid in (agent.pid, *descendants(agent.pid))]
        for pid in pids:
            kill(pid)
        for agent in self.agents:
            agent.wait(timeout=60)


def kill_rank(job):
    kill(job.worker(1))


def stop_rank(job):
    kill(job.worker(1), signal.SIGSTOP)


def kill_node(job):
    worker, agent = job.worker(1), job.agent_of(1)
    kill(agent.pid)
    kill(worker)


def replace_node(job):
    kill_node(job)
    job.agents.append(job.start_agent())


# name: nnodes, variables, fault
KINDS = {
    "rank_killed": ("2", {}, kill_rank),
    "rank_killed_unshared_store": ("2", UNSHARED, kill_rank),
    "rank_stopped": ("2", UNSHARED, stop_rank),
    "node_killed_spare": ("2", UNSHARED, replace_node),
    "node_killed_shrink": ("1:2", UNSHARED, kill_node),
}


def measure_once(kind, folder):
    """Seconds to the next step; None when there is none within the limit."""
    nnodes, variables, fault = KINDS[kind]
    job = Elastic(folder, nnodes, variables)
    try:
        wait_until(lambda: job.steps() and job.steps()[-1][1] >= FAULT_STEP, "the peer trains")
        at, clock = time.time(), time.monotonic()
        fault(job)
        try:
            wait_until(lambda: job.steps()[-1][0] > at, "the peer's next step", timeout=LIMIT_S)
        except AssertionError:
            return None
        return time.monotonic() - clock
    finally:
        job.end()


def measure(kind, runs):
    peer.require()
    seconds = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as temp:
            seconds.append(measure_once(kind, pathlib.Path(temp)))
    recovered = [s for s in seconds if s is not None]
    return {"recovered": f"{len(recovered)} of {runs} within {LIMIT_S} s",
            **(machine.summary(recovered) if recovered else {})}
