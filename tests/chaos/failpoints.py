#!/usr/bin/env python3
"""Kills a coordinator with SIGKILL at each failpoint of common/base/failpoint.h, while jobs run and clients ask for changes.

  failpoints.py [--seed N] [--only NAME,...] [--kills N] [--minutes M] [--lanes N] [--keep DIR]

A failpoint of the table that its scene does not reach is a violation, so that none is there for nothing. After each kill must hold
(failpoint_oracle.py, and after every kill of the short form `muster store check` and `muster audit verify`):

- what was acknowledged is stored, one key is one job;
- the records are what the audit trail says that was asked for: no change without its entry, no entry without its change;
- no attempt runs twice, a job that outlives every coordinator keeps its process, and at the end every other one has been started once
  and has succeeded.

Each failpoint once; --kills: so many, of random failpoints and passings, with power for random moments in between. Prints one JSON
object; exit code 1 when anything was violated.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import random
import re
import shutil
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402
from cluster import ROOT, run  # noqa: E402
from failpoint_arena import Arena, Died  # noqa: E402

HEADER = ROOT / "common" / "base" / "failpoint.h"
FAR = "2100-01-01T00:00:00Z"  # no job begins then
KEPT_AUDIT, KEPT_DAYS = 1_000_000, 400  # of the store
KILLS_OF_AN_ARENA = 250  # what it stores does not grow without end
CHECKED_BY_PROGRAMS_EVERY = 20
OF_CALLS = 8  # a passing of a commit that is a client's: more than the start's, and those of two nodes that come back
FEW = 3  # passings, at most, in random kills
ONCE = ("start.", "end.", "store.opened", "store.created", "store.copy.", "store.converted", "journal.claimed")  # passed by each process once


def names():
    table = re.search(r"kFailpoints\[\] = \{(.*?)\};", HEADER.read_text(encoding="utf-8"), re.S)[1]
    return re.findall(r'"([^"]+)"', re.sub(r"//.*", "", table))


# --- scenes: what reaches failpoints ---

def nothing(arena):
    del arena


def ending(arena):
    arena.call("version")  # it takes signals once it answers
    arena.process.terminate()


def runs(arena):
    arena.submit()


def waits(arena, *operations):
    """Of a job that never begins."""
    job = arena.submit(begin=FAR)
    for operation in operations or OPERATIONS:
        verb, name = OPERATIONS[operation]
        arena.change(verb, name, job, *(("--priority", str(arena.number() % 100)) if verb == "update" else ()))


OPERATIONS = {"hold": ("hold", "HoldJob"), "release": ("release", "ReleaseJob"), "update": ("update", "UpdateJob"),
              "suspend": ("suspend", "Suspend"), "resume": ("resume", "Resume"), "cancel": ("cancel", "Cancel")}


def drains(arena):
    arena.call("drain", "node-2", "--reason", "test", say=("Drain", "node node-2"))
    arena.call("undrain", "node-2", say=("Undrain", "node node-2"))


def queues(arena):
    arena.apply("queues")


def loses_a_queue(arena):
    """Which has had something."""
    arena.apply("queues", "old")
    arena.await_in_archive(arena.submit(queue="old"))
    arena.apply("queues")


def users(arena):
    arena.apply("users")


def secrets(arena):
    name = f"secret-{arena.number() % 4}"
    value = arena.write("value", f"value {arena.number()}")
    arena.call("secret", "set", name, "--from-file", value, say=("SetSecret", f"secret {name} of admin in default"))
    arena.call("secret", "rotate-key", say=("RotateSecretKey", ""))
    arena.call("secret", "rm", name, say=("RemoveSecret", f"secret {name} of admin in default"))


def fetches(arena):
    value = arena.write("value", "kept")
    arena.call("secret", "set", "kept", "--from-file", value, say=("SetSecret", "secret kept of admin in default"))
    arena.submit(secrets=[{"name": "kept", "env": "KEPT"}])


def joins(arena):
    arena.join_node()


def logs_in(arena):
    arena.log_in()


def signs_in(arena):
    arena.sign_in()


def hooks(arena):
    arena.submit(on_event={"kinds": ["submitted", "succeeded"], "webhook": f"http://{arena.hook}/"})


def exports(arena):
    arena.call("schedule", "export", arena.root / f"schedule-{arena.number()}")


def trains(arena):
    arena.train()


def archived(arena):
    """A job whose checkpoint was damaged in the archive."""
    job = arena.train()
    arena.await_in_archive(job)
    arena.call("checkpoints", "--verify", job, say=("VerifyCheckpoints", f"job {job}"))
    shutil.rmtree(arena.root / f"train-{arena.numbers}" / "checkpoints")
    arena.call("checkpoints", "--verify", job, say=("VerifyCheckpoints", f"job {job}"), may_fail=True)


def large(arena):
    """Commits of 16 MiB, after which a journal gets a snapshot."""
    job = arena.submit(hold=True, env={"LARGE": "x" * 1_000_000})
    for priority in range(20):
        arena.change("update", "UpdateJob", job, "--priority", str(priority))


def holds(arena):
    arena.submit(hold=True)


# --- what is stored before the coordinator starts ---

def lost_nodes(arena):
    node = {"name": f"gone-{arena.number()}", "state": "lost", "last_seen_unix_ms": 1}
    arena.edit(("INSERT INTO nodes VALUES(?,?)", (node["name"], json.dumps(node))))


def many_days(arena):
    arena.edit(*(("INSERT OR REPLACE INTO queue_days VALUES(?,?,?)", (
        "default", day, json.dumps({"queue": "default", "day": day, "slots": {"productive": 1, "lost": 1}})))
        for day in range(1000, 1000 + KEPT_DAYS)))


def long_trail(arena):
    """The newest two entries of a trail that is longer than what is kept; the first has the place of an old one, which the next commit
    removes."""
    lines, previous = [], "0" * 64
    for seq in (KEPT_AUDIT + 299, KEPT_AUDIT + 300):
        entry = json.dumps({"seq": seq, "unix_ms": 1, "actor": "admin/admin", "as_user": "", "peer": "", "request": "", "operation": "ListAudit",
                            "object": "", "outcome": "OK", "detail": "", "previous": previous}, separators=(",", ":"))
        previous = hashlib.sha256(entry.encode()).hexdigest()
        lines.append(f'{entry[:-1]},"hash":"{previous}"}}')
    arena.edit("DELETE FROM audit", ("INSERT INTO audit VALUES(?,?), (?,?)", (1, lines[0], KEPT_AUDIT + 300, lines[1])))


def older_schema(arena):
    arena.kept_node = "kept"
    node = {"name": "kept", "state": "lost", "last_seen_unix_ms": int(time.time() * 1000)}
    arena.edit(("INSERT OR REPLACE INTO nodes VALUES(?,?)", ("kept", json.dumps(node))), *(
        f"DROP TABLE IF EXISTS {table}" for table in ("users", "audit", "secrets")), "UPDATE meta SET value=5 WHERE key='schema'")


class Scene:
    """`whole`: whether `muster store check` finds nothing in what `before` stores."""

    def __init__(self, play, passings=1, before=None, flags=(), within=20, whole=True):
        self.play, self.passings, self.before, self.flags, self.within, self.whole = play, passings, before, flags, within, whole


NOTHING = Scene(nothing)
SCENES = {
    **dict.fromkeys(("start.locked", "start.security", "start.loaded", "start.restored", "start.tls", "start.listening", "start.serving",
                     "store.opened", "tick", "worker.hello", "worker.taken", "worker.heartbeat"), NOTHING),
    **dict.fromkeys(("end.begun", "end.drained"), Scene(ending)),
    **dict.fromkeys(("store.begin", "store.begun", "store.commit", "store.committed", "store.reported", "write.event", "decision.made",
                     "decision.eager", "decision.queued", "decision.durable"), Scene(waits, OF_CALLS)),
    **{f"answer.{operation}": Scene(waits) for operation in OPERATIONS},
    **dict.fromkeys(("answer.drain", "answer.undrain"), Scene(drains)),
    **dict.fromkeys(("answer.queues", "write.queues"), Scene(queues)),
    **dict.fromkeys(("answer.users", "write.users"), Scene(users)),
    **dict.fromkeys(("answer.secret_set", "answer.secret_remove", "write.secret", "write.secret_deleted", "secrets.key_made",
                     "secrets.key_added", "secrets.rewrapped"), Scene(secrets)),
    "secrets.fetched": Scene(fetches),
    **dict.fromkeys(("enrol.redeemed", "enrol.signed", "worker.gone"), Scene(joins)),
    **dict.fromkeys(("login.certified", "login.noted"), Scene(logs_in)),
    **dict.fromkeys(("page.session", "page.signed_in"), Scene(signs_in)),
    **dict.fromkeys(("webhook.before", "webhook.after"), Scene(hooks)),
    "export.begun": Scene(exports),
    **dict.fromkeys(("write.checkpoint", "write.checkpoint_deleted"), Scene(trains, within=60)),
    **dict.fromkeys(("recall.read", "write.archived_checkpoint", "write.archived_job"), Scene(archived, within=60)),
    "write.archive_deleted": Scene(runs, flags=("--archive-retain", "1s")),
    "write.node_deleted": Scene(nothing, before=lost_nodes, flags=("--lost-node-retain", "1s")),
    "write.queue_usage_deleted": Scene(loses_a_queue),
    "write.queue_day_deleted": Scene(runs, before=many_days),
}
# In an arena of its own: (kind, scene).
APART = {
    "store.created": ("bare", Scene(nothing)),
    "store.rotate": ("bare", Scene(holds, before=long_trail, whole=False)),
    **dict.fromkeys(("store.copy.written", "store.copy.named", "store.converted"), ("bare", Scene(nothing, before=older_schema))),
    "journal.claimed": ("journal", Scene(nothing)),
    # The third file: after two of the claim.
    **dict.fromkeys(("journal.written", "journal.synced", "journal.linked", "journal.published"), ("journal", Scene(holds, 3))),
    "journal.snapshot": ("journal", Scene(large)),
}
SLOW = {name for name, scene in SCENES.items() if scene.within > 20} | {"write.archive_deleted", "write.node_deleted"}


def say(text):
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", file=sys.stderr, flush=True)


class Lane(threading.Thread):
    """Kills of one arena after the other. `campaign` is shared by all lanes."""

    def __init__(self, campaign, number):
        super().__init__(daemon=True)
        self.campaign, self.random = campaign, random.Random(campaign.options.seed * 100 + number)
        self.arena = None

    def run(self):
        try:
            while part := self.campaign.next_part(self.random):
                kind, scenes = part
                self.arena = Arena(kind, self.campaign.options.keep)
                try:
                    self.kills_of(scenes)
                finally:
                    self.arena.close()
        except Exception as error:  # as a violation: the other lanes end by it
            self.campaign.violated(None, f"{type(error).__name__}: {error}")

    def kills_of(self, scenes):
        try:
            for name, scene in scenes:
                if self.campaign.over():
                    break
                self.kill(name, scene)
            self.finish()
        except Exception as error:
            self.campaign.violated(self.arena, f"{type(error).__name__}: {error}\n{self.arena.log_ends()}")

    def kill(self, name, scene):
        """The coordinator that is checked is the one before: this start is its restart."""
        arena, campaign = self.arena, self.campaign
        passings = scene.passings if campaign.is_short or name.startswith(ONCE) else self.random.randint(1, FEW * scene.passings)
        within = scene.within if campaign.is_short else self.random.uniform(0, 0.3)
        if scene.before:
            if not arena.database.exists():
                arena.begin()
                arena.end()
            scene.before(arena)
        arena.oracle.forgets = "--archive-retain" in scene.flags
        began = time.monotonic()
        try:
            if arena.begin(f"{name}:{passings}", scene.flags):
                arena.repeat()
                scene.play(arena)
        except Died:
            pass
        at_failpoint = arena.died(within)
        if not at_failpoint:
            arena.kill()
        campaign.killed(name if at_failpoint else "", time.monotonic() - began)
        violations = arena.check()
        if campaign.is_short and not at_failpoint:
            violations.append("its scene does not reach it")
        if name.startswith("answer.") and f"warning coordinator MUSTER_FAILPOINT={name}:{passings}" not in arena.log():
            violations.append("the log does not warn of it")
        if not violations and scene.whole and (campaign.is_short or campaign.kills % CHECKED_BY_PROGRAMS_EVERY == 0):
            violations = arena.check_by_programs()
        for violation in violations:
            campaign.violated(arena, f"{name}:{passings}: {violation}")

    def finish(self):
        """What was killed so often goes on as if nothing had been."""
        arena = self.arena
        arena.oracle.forgets = False
        arena.begin()
        violations = arena.await_jobs()
        listed = {job["id"] for job in arena.json("get", "--all")}
        violations += arena.check() + arena.check_by_programs()
        if listed != set(arena.oracle.records.jobs):
            violations.append(f"the coordinator lists other jobs than it has stored: {listed ^ set(arena.oracle.records.jobs)}")
        arena.end()
        for violation in violations:
            self.campaign.violated(arena, f"at the end: {violation}")


class Campaign:
    def __init__(self, options):
        self.options, self.is_short = options, not options.kills
        self.lock, self.deadline = threading.Lock(), time.monotonic() + options.minutes * 60
        self.names = [name for name in names() if not options.only or name in options.only]
        self.parts = self._parts() if self.is_short else []
        self.kills, self.kill_s, self.reached, self.violations, self.arenas = 0, 0.0, collections.Counter(), [], 0

    def _parts(self):
        """The slow ones first, each lane's share of the others, and those that need an arena of their own."""
        parts, lanes = [], self.options.lanes
        common = sorted((name for name in self.names if name not in APART), key=lambda name: name not in SLOW)
        for number in range(lanes):
            parts.append(("whole", [(name, SCENES.get(name, Scene(runs))) for name in common[number::lanes]]))
        apart = collections.defaultdict(list)
        for name in self.names:
            if name in APART:
                kind, scene = APART[name]
                apart[kind, scene.before].append((name, scene))
        parts += [(kind, scenes) for (kind, _), scenes in apart.items()]
        return [part for part in parts if part[1]]

    def next_part(self, randoms):
        with self.lock:
            if self.is_short:
                return self.parts.pop(0) if self.parts and not self.violations else None
            self.arenas += 1
            number = self.arenas
        if self.over():
            return None
        return ("journal", self._of_journal(randoms)) if number % 8 == 0 else ("whole", self._random(randoms))

    def _random(self, randoms):
        common = [name for name in self.names if name not in APART]
        quick = [name for name in common if name not in SLOW]
        for number in range(KILLS_OF_AN_ARENA):
            name = randoms.choice(common if number % 25 == 0 else quick)
            yield name, SCENES.get(name, Scene(runs))

    def _of_journal(self, randoms):
        found = [name for name in self.names if name.startswith(("journal.", "start.", "decision.", "answer.submit", "reply."))]
        for _ in range(KILLS_OF_AN_ARENA):
            name = randoms.choice(found)
            yield name, APART[name][1] if name in APART else Scene(holds, 2)

    def over(self):
        with self.lock:
            return bool(self.violations) or not self.is_short and (self.kills >= self.options.kills or time.monotonic() > self.deadline)

    def killed(self, name, seconds):
        with self.lock:
            self.kills += 1
            self.kill_s += seconds
            self.reached[name] += 1
            if self.is_short or self.kills % 100 == 0:
                say(f"{self.kills} {name or 'between failpoints'}: {seconds:.2f} s")

    def violated(self, arena, text):
        say(f"VIOLATED: {text} ({arena.root if arena else ''})")
        with self.lock:
            if arena:
                arena.is_wrong = True
            self.violations.append(text)

    def run(self):
        began = time.monotonic()
        wrong = run("muster-coordinator", "--dir", "/nonexistent", env={"MUSTER_FAILPOINT": "nowhere"}, check=False)
        if wrong.returncode != 1 or "MUSTER_FAILPOINT=nowhere is for tests" not in wrong.stderr:
            self.violations.append(f"a failpoint that does not exist: {wrong}")
        lanes = [Lane(self, number) for number in range(self.options.lanes)]
        try:
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
        finally:
            for lane in lanes:
                if lane.arena:
                    lane.arena.close()  # of a lane that was interrupted
        unknown = sorted(set(SCENES) | set(APART)) if not self.options.only else []
        self.violations += [f"{name} has a scene and is no failpoint" for name in unknown if name not in self.names]
        between = self.reached.pop("", 0)
        return {"benchmark": "failpoints", "seed": self.options.seed, "revision": machine.revision(ROOT), "machine": machine.describe(),
                "faults": self.kills, "between_failpoints": between, "failpoints": len(self.names), "reached": len(self.reached),
                "not_reached": sorted(set(self.names) - set(self.reached)), "seconds": round(time.monotonic() - began),
                "seconds_for_a_kill": round(self.kill_s / max(1, self.kills), 2), "violations": self.violations}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=150)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--keep", type=pathlib.Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through what closes the arenas
    if options.keep:
        shutil.rmtree(options.keep, ignore_errors=True)
    result = Campaign(options).run()
    print(json.dumps(result, indent=1))
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
