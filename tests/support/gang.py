"""Ranks of one training run started directly, as torchrun or srun would: no daemon is involved.

  with Gang([BIN / "muster-trainer", "train", file], world=2, logs=folder) as gang:
      gang.wait(timeout=60)
"""

import contextlib
import os
import pathlib
import random
import socket
import subprocess
import time


class GangFailed(AssertionError):
    """A rank ended with an error, or did not end in time; carries the ends of the logs."""


def free_port():
    """Below those that the kernel gives out on request: until it is bound no process gets it by chance."""
    while True:
        port = random.randrange(12000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Gang:
    """Started when made; what still runs is killed when the block ends.

    `ranks` (all of them by default) names those that are really started. `started` is the moment
    before the first one, in Unix seconds.
    """

    def __init__(self, command, *, world, logs, env=None, ranks=None):
        self.logs = pathlib.Path(logs)
        self.logs.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.started = time.time()
        self.processes = [self._start(command, rank, world, port, env or {})
                          for rank in (range(world) if ranks is None else ranks)]

    def _start(self, command, rank, world, port, env):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world,
                     "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                     "OMP_NUM_THREADS": 1, **env}
        with open(self.logs / f"rank-{rank}.log", "wb") as log:
            return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log,
                                    env={**os.environ, **{k: str(v) for k, v in variables.items()}})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def running(self):
        """Whether any rank still runs; a failed one is an error."""
        codes = [process.poll() for process in self.processes]
        if any(codes):
            raise GangFailed(f"ranks ended with {codes}:\n{self.log_ends()}")
        return None in codes

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        for process in self.processes:
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise GangFailed(f"not done within {timeout} s:\n{self.log_ends()}") from None
        self.running()

    def kill(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def log_ends(self):
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}"
                         for path in sorted(self.logs.glob("rank-*.log")))
