"""The faults of etcd_faults.py: each is done at once and says what it hit, and how that is known.

A fault is a function (arena, random) -> Injected. `Arena.heal` undoes cuts and stops and starts what has ended; what else
lasts, `Injected.heal` undoes.
"""

import dataclasses
import pathlib
import shutil
import signal
import subprocess
import time
from typing import Callable

from arena import fill
from cluster import wait_until

SLOW_S = 0.4  # of each write of a member with a slow disk
CLOCKS = ("+3600", "-120", "+86400", "-30")  # within the life of certificates
STOPPED = "T"


@dataclasses.dataclass
class Injected:
    at: float    # time.monotonic() before it
    target: str  # a program, and its part then
    proof: str
    heal: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True)
class Fault:
    inject: Callable
    elects: int = 0       # so many times another coordinator must lead
    needs: str = ""       # what the arena may not have: "cuts", "strace", "faketime", "small_disk"
    lasts: tuple = (2, 4)  # seconds, least and most


def state_of(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]


def end(process, number=signal.SIGKILL):
    process.send_signal(number)
    return f"pid {process.pid} ended with {process.wait(timeout=30)}"


def stop(process):
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == STOPPED, f"{process.pid} stands still", timeout=10)
    return f"pid {process.pid} is in state {STOPPED}"


def leader_of(arena):
    return wait_until(arena.leader, "a coordinator leads")


def etcd_leader_of(arena):
    return wait_until(arena.etcd.leader, "etcd has a leader")


def a_follower(arena, random):
    leader = etcd_leader_of(arena)
    return random.choice([member for member in arena.etcd.members if member is not leader])


def to_leader(act):
    def inject(arena, random):
        leader = leader_of(arena)
        return Injected(time.monotonic(), f"{leader.directory.name}, which led", act(leader.process))
    return inject


def to_standby(act):
    def inject(arena, random):
        standby = random.choice(arena.standbys())
        return Injected(time.monotonic(), f"{standby.directory.name}, which stood by", act(standby.process))
    return inject


def to_etcd_leader(act):
    def inject(arena, random):
        leader = etcd_leader_of(arena)
        return Injected(time.monotonic(), f"{leader.name}, etcd's leader", act(leader.process))
    return inject


def to_follower(act):
    def inject(arena, random):
        follower = a_follower(arena, random)
        return Injected(time.monotonic(), f"{follower.name}, a follower", act(follower.process))
    return inject


def kill_both_leaders(arena, random):
    leader, member = leader_of(arena), etcd_leader_of(arena)
    order = [leader.process, member.process]
    random.shuffle(order)
    for process in order:
        process.send_signal(signal.SIGKILL)
    at = time.monotonic()
    proof = ", ".join(end(process) for process in order)
    return Injected(at, f"{leader.directory.name} and {member.name}, which led", proof)


def kill_two_coordinators(arena, random):
    """The next one dies as soon as it serves."""
    first, epoch = leader_of(arena), arena.epoch()
    proof = end(first.process)
    wait_until(lambda: arena.epoch() > epoch, "the next coordinator leads", timeout=60)
    second = leader_of(arena)
    return Injected(time.monotonic(), f"{first.directory.name}, then {second.directory.name}, which led",
                    f"{proof}, {end(second.process)}")


def kill_majority(arena, random):
    members = random.sample(arena.etcd.members, 2)
    return Injected(time.monotonic(), " and ".join(member.name for member in members),
                    ", ".join(end(member.process) for member in members))


def cut(arena, here, there, port, target):
    at = time.monotonic()
    arena.network.cut(here, there)
    if arena.network.connects(here, there, port):
        raise AssertionError(f"{here} still connects to {there}")
    return Injected(at, target, f"{here} does not connect to {there}:{port}")


def cut_from_etcd(arena, random):
    """Clients and workers still reach it."""
    leader = leader_of(arena)
    name = leader.directory.name
    arena.network.cut(name, *(member.name for member in arena.etcd.members[:-1]))
    return cut(arena, name, arena.etcd.members[-1].name, 2379, f"{name}, which led, from all of etcd")


def cut_from_etcd_leader(arena, random):
    leader, member = leader_of(arena), etcd_leader_of(arena)
    name = leader.directory.name
    return cut(arena, name, member.name, 2379, f"{name}, which led, from {member.name}, etcd's leader")


def cut_from_site(arena, random):
    """Clients and workers do not reach the leader, which etcd does."""
    name = leader_of(arena).directory.name
    return cut(arena, arena.network.site, name, 7070, f"{name}, which led, from workers and clients")


def cut_etcd_leader_from_members(arena, random):
    """Coordinators still reach it."""
    leader = etcd_leader_of(arena)
    others = [member.name for member in arena.etcd.members if member is not leader]
    arena.network.cut(leader.name, others[0])
    return cut(arena, leader.name, others[1], 2380, f"{leader.name}, etcd's leader, from the other members")


def unplug_leader(arena, random):
    name = leader_of(arena).directory.name
    at = time.monotonic()
    arena.network.unplug(name)
    if arena.network.connects(arena.network.site, name, 7070):
        raise AssertionError(f"{name} is still connected")
    return Injected(at, f"{name}, which led, from all", f"nothing connects to {name}")


def unplug_etcd_leader(arena, random):
    name = etcd_leader_of(arena).name
    at = time.monotonic()
    arena.network.unplug(name)
    if arena.network.connects(arena.network.site, name, 2379):
        raise AssertionError(f"{name} is still connected")
    return Injected(at, f"{name}, etcd's leader, from all", f"nothing connects to {name}")


def fill_disk(arena, random):
    member = arena.etcd.members[-1]
    at = time.monotonic()
    filler = fill(arena.small_disk, 0)

    def heal():
        filler.unlink()
        member.kill()  # the next one starts with what it has written
    return Injected(at, f"{member.name}'s disk", f"{shutil.disk_usage(arena.small_disk).free} bytes are free", heal)


def slow_disk(arena, random):
    leader = etcd_leader_of(arena)
    told, at = arena.root / "strace", time.monotonic()
    strace = subprocess.Popen(
        ["strace", "-f", "-q", "-p", str(leader.process.pid), "-o", str(told), "-e", "trace=fdatasync", "-e",
         f"inject=fdatasync:delay_enter={SLOW_S * 1e6:.0f}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    wait_until(lambda: told.exists() and "DELAYED" in told.read_text(encoding="utf-8"), "a write is slow", timeout=20)

    def heal():
        strace.terminate()
        strace.wait(timeout=30)
        told.unlink()
    return Injected(at, f"{leader.name}, etcd's leader", f"strace has delayed an fdatasync by {SLOW_S} s", heal)


def compact(arena, random):
    status, at = arena.etcd.status(), time.monotonic()
    revision = max(each["header"]["revision"] for each in status.values())
    arena.etcd.ctl("compact", str(revision), "--physical")
    try:
        arena.etcd.ctl("get", "/muster/epoch", "--rev", str(revision - 1))
    except AssertionError as error:
        if "compacted" in str(error):
            return Injected(at, "all members", f"revision {revision - 1} is compacted")
    raise AssertionError("nothing was compacted")


def defragment(arena, random):
    leader = etcd_leader_of(arena)
    before = arena.etcd.status()[leader.name]["dbSize"]
    at = time.monotonic()
    arena.etcd.ctl("defrag", members=[leader])
    after = arena.etcd.status()[leader.name]["dbSize"]
    return Injected(at, f"{leader.name}, etcd's leader", f"its database had {before} bytes and has {after}")


def replace_member(arena, random):
    member = random.choice(arena.etcd.members)
    role = "etcd's leader" if member is etcd_leader_of(arena) else "a follower"
    at = time.monotonic()
    old, new = arena.etcd.replace_member(member)
    if old == new:
        raise AssertionError(f"{member.name} is the same member as before")
    return Injected(at, f"{member.name}, {role}", f"member {old:x} is {new:x} now")


def jump_clock(arena, random):
    each = random.choice(arena.coordinators)
    role = "which led" if each is arena.leader() else "which stood by"
    jump = random.choice(CLOCKS)
    at = time.monotonic()
    each.clock.write_text(jump, encoding="utf-8")
    with open(f"/proc/{each.process.pid}/maps", encoding="utf-8") as maps:
        preloaded = "libfaketime" in maps.read()
    if not preloaded:
        raise AssertionError(f"{each.directory.name} runs without libfaketime")
    time.sleep(1.1)  # the file is read again once a second; the program's log has the time then
    return Injected(at, f"{each.directory.name}, {role}", f"its clock is wrong by {jump} s")


def kill_clients(arena, random):
    at = time.monotonic()
    proof = end(arena.clients)
    arena.clients.stdin.close()
    return Injected(at, "all clients", proof)


KILL, TERM = end, lambda process: end(process, signal.SIGTERM)
FAULTS = {
    "kill-leader": Fault(to_leader(KILL), elects=1),
    "end-leader": Fault(to_leader(TERM), elects=1),
    "stop-leader": Fault(to_leader(stop), elects=1, lasts=(4, 8)),
    "kill-standby": Fault(to_standby(KILL)),
    "stop-standby": Fault(to_standby(stop), lasts=(4, 6)),
    "kill-two-coordinators": Fault(kill_two_coordinators, elects=2),
    "kill-etcd-leader": Fault(to_etcd_leader(KILL)),
    "stop-etcd-leader": Fault(to_etcd_leader(stop), lasts=(4, 6)),
    "kill-etcd-follower": Fault(to_follower(KILL)),
    "stop-etcd-follower": Fault(to_follower(stop), lasts=(4, 6)),
    "kill-etcd-majority": Fault(kill_majority, lasts=(4, 6)),
    "kill-both-leaders": Fault(kill_both_leaders, elects=1),
    "cut-leader-from-etcd": Fault(cut_from_etcd, elects=1, needs="cuts", lasts=(4, 8)),
    "cut-leader-from-etcd-leader": Fault(cut_from_etcd_leader, needs="cuts", lasts=(4, 6)),
    "cut-leader-from-site": Fault(cut_from_site, needs="cuts", lasts=(2, 4)),
    "cut-etcd-leader-from-members": Fault(cut_etcd_leader_from_members, needs="cuts", lasts=(4, 6)),
    "unplug-leader": Fault(unplug_leader, elects=1, needs="cuts", lasts=(4, 8)),
    "unplug-etcd-leader": Fault(unplug_etcd_leader, needs="cuts", lasts=(4, 6)),
    "fill-etcd-disk": Fault(fill_disk, needs="small_disk", lasts=(3, 5)),
    "slow-etcd-disk": Fault(slow_disk, needs="strace", lasts=(3, 5)),
    "compact": Fault(compact),
    "defragment": Fault(defragment),
    "replace-member": Fault(replace_member),
    "jump-clock": Fault(jump_clock, needs="faketime", lasts=(4, 6)),
    "kill-clients": Fault(kill_clients, lasts=(1, 2)),
}
