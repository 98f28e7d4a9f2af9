"""The faults of the chaos runner: each is done to a running job and says what it was.

A fault is a function (arena, job, random) -> Injected. It acts at once and never waits for its
effect. `Injected.heal` undoes what would otherwise last (a stopped process, a cut link, a full
disk); what is merely gone is brought back by `muster up`.
"""

import dataclasses
import re
import signal
from typing import Callable

from cluster import descendants, kill

# Space that a full disk leaves: a log line or two, but no part of a checkpoint.
ROOM_BYTES = 64 << 10


@dataclasses.dataclass
class Injected:
    kind: str
    target: str
    # What the timeline of the attempt that it ends must match; empty: it need not end an attempt.
    cause: str = ""
    heal: Callable[[], None] = lambda: None
    terminal: bool = False  # the job must fail for it
    passes: bool = False    # need not end an attempt if it is healed before it was noticed


@dataclasses.dataclass(frozen=True)
class Fault:
    inject: Callable
    needs: str = ""     # "namespaces", "small_disk"
    quick: bool = False  # may come as the second one, within a phase of a recovery


def pick_rank(arena, job, random):
    ranks = arena.cluster.ranks(job)
    rank = random.choice(sorted(ranks))
    return rank, ranks[rank]


def pick_node(arena, job, random):
    """A node of the gang with its guardian there; others may still have one that is to go."""
    guardians = arena.cluster.guardians(job)
    gang = {rank["node"] for rank in arena.cluster.get(job)["ranks"]}
    node = random.choice(sorted(set(guardians) & gang or guardians))
    return node, guardians[node]


def rank_cause(rank, how):
    return rf"rank {rank} .*({how})"


def kill_rank(arena, job, random):
    rank, pid = pick_rank(arena, job, random)
    kill(pid)
    return Injected("kill-rank", f"rank {rank}", rank_cause(rank, "SIGKILL"))


def crash_rank(arena, job, random):
    rank, pid = pick_rank(arena, job, random)
    number = random.choice((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS))
    kill(pid, number)
    return Injected("crash-rank", f"rank {rank} with {number.name}", rank_cause(rank, number.name))


def stop_rank(arena, job, random):
    rank, pid = pick_rank(arena, job, random)
    kill(pid, signal.SIGSTOP)
    return Injected("stop-rank", f"rank {rank}", rank_cause(rank, "stopped|hung|progress"),
                    lambda: kill(pid, signal.SIGCONT), passes=True)


def kill_any_trainer(arena, job, random):
    """Any process below a guardian: a rank, one that is parked, a standby, one that just started."""
    pids = [pid for guardian in arena.cluster.guardians(job).values() for pid in descendants(guardian)]
    if not pids:
        return kill_guardian(arena, job, random)
    pid = random.choice(sorted(pids))
    kill(pid)
    return Injected("kill-any-trainer", f"process {pid}")


def kill_guardian(arena, job, random):
    node, pid = pick_node(arena, job, random)
    kill(pid)
    return Injected("kill-guardian", node, rf"guardian|rank \d+ on {node}")


def stop_guardian(arena, job, random):
    node, pid = pick_node(arena, job, random)
    kill(pid, signal.SIGSTOP)
    return Injected("stop-guardian", node, heal=lambda: kill(pid, signal.SIGCONT))


def kill_worker(arena, job, random):
    node, _ = pick_node(arena, job, random)
    kill(arena.cluster.worker_pid(node))
    return Injected("kill-worker", node)


def stop_worker(arena, job, random):
    node, _ = pick_node(arena, job, random)
    pid = arena.cluster.worker_pid(node)
    kill(pid, signal.SIGSTOP)
    return Injected("stop-worker", node, heal=lambda: kill(pid, signal.SIGCONT))


def kill_coordinator(arena, job, random):
    kill(arena.cluster.coordinator_pid())
    return Injected("kill-coordinator", "coordinator")


def stop_coordinator(arena, job, random):
    pid = arena.cluster.coordinator_pid()
    kill(pid, signal.SIGSTOP)
    return Injected("stop-coordinator", "coordinator", heal=lambda: kill(pid, signal.SIGCONT))


def kill_worker_and_coordinator(arena, job, random):
    node, _ = pick_node(arena, job, random)
    kill(arena.cluster.worker_pid(node))
    kill(arena.cluster.coordinator_pid())
    return Injected("kill-worker-and-coordinator", node)


def kill_node(arena, job, random):
    node, _ = pick_node(arena, job, random)
    arena.cluster.kill_node(node, job)
    return Injected("kill-node", node, rf"{node}\b")


def cut_link(arena, job, random):
    node, _ = pick_node(arena, job, random)
    arena.cluster.set_link(node, False)
    return Injected("cut-link", node, rf"{node}\b", lambda: arena.cluster.set_link(node, True),
                    passes=True)


def blink_link(arena, job, random):
    """Out and in again at once: nothing may come of it but a delay."""
    node, _ = pick_node(arena, job, random)
    arena.cluster.set_link(node, False)
    arena.cluster.set_link(node, True)
    return Injected("blink-link", node)


def fill_disk(arena, job, random):
    room = random.choice((0, ROOM_BYTES))
    filler = arena.fill_disk(room)
    return Injected("fill-disk", f"{room} bytes left", heal=lambda: filler.unlink(missing_ok=True))


def by_command(kind, cause="", terminal=False):
    """A fault that `muster fault` causes inside of a rank, which the timeline's cause has to name; in
    `cause` stands {rank} for it."""
    def inject(arena, job, random):
        rank, _ = pick_rank(arena, job, random)
        arena.cluster.muster("fault", job, "--rank", rank, "--kind", kind)
        pattern = rank_cause(rank, cause.format(rank=rank)) if cause else ""
        return Injected(re.split("=", kind)[0], f"rank {rank}: {kind}", pattern, terminal=terminal)
    return inject


FAULTS = {
    "kill-rank": Fault(kill_rank),
    "crash-rank": Fault(crash_rank),
    "stop-rank": Fault(stop_rank),
    "kill-any-trainer": Fault(kill_any_trainer, quick=True),
    "kill-guardian": Fault(kill_guardian, quick=True),
    "stop-guardian": Fault(stop_guardian),
    "kill-worker": Fault(kill_worker, quick=True),
    "stop-worker": Fault(stop_worker),
    "kill-coordinator": Fault(kill_coordinator, quick=True),
    "stop-coordinator": Fault(stop_coordinator),
    "kill-worker-and-coordinator": Fault(kill_worker_and_coordinator, quick=True),
    "kill-node": Fault(kill_node, quick=True),
    "cut-link": Fault(cut_link, needs="namespaces"),
    "blink-link": Fault(blink_link, needs="namespaces"),
    "fill-disk": Fault(fill_disk, needs="small_disk"),
    "hang-data": Fault(by_command("hang-data", "hung|progress|data")),
    "hang-collective": Fault(by_command("hang-collective", "hung|progress|collective")),
    "slow": Fault(by_command("slow=30%")),
    "exit": Fault(by_command("exit=3", r"exit.*\b3\b|code 3")),
    "oom": Fault(by_command("oom", "memory|bad_alloc")),
    "nan": Fault(by_command("nan", r"finite is rank {rank}: loss", terminal=True)),
}
