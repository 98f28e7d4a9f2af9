"""What must hold of a coordinator's store at any moment, also when the coordinator was killed: the records are what the audit trail says
that was asked for, no more and no less, and have all that was acknowledged.

  oracle = Oracle(read_sqlite)                  # or read_journal
  oracle.acknowledged.append(("Submit", "job 7f3a9c1e2b"))
  violations = oracle.check(directory)
"""

import collections
import contextlib
import json
import pathlib
import re
import sqlite3
import struct
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import audit_chain  # noqa: E402
from cluster import TERMINAL, run  # noqa: E402

HELD = re.compile(r"""["']?hold["']?:\s*true""")
PRIORITY = re.compile(r"priority \d+ -> (\d+)")
FIRST_PRIORITY = 50
HEADER = struct.Struct("<8sIIQQQQQ")  # of a frame of the journal (docs/store-format.md)
OPERATION = struct.Struct("<BQIII")
KINDS = {1: "jobs", 2: "attempts", 5: "nodes", 9: "archived", 14: "queues", 19: "users", 20: "audit", 21: "secrets"}


class Records:
    def __init__(self):
        self.jobs, self.nodes, self.attempts, self.secrets, self.audit = {}, {}, [], {}, []
        self.archived, self.versions = set(), {"queues": 0, "users": 0}

    def add(self, kind, text):
        if kind == "audit":
            self.audit.append(text)
            return
        record = json.loads(text)
        if kind == "jobs":
            self.jobs[record["id"]] = record
        elif kind == "nodes":
            self.nodes[record["name"]] = record
        elif kind == "attempts":
            self.attempts.append(record)
        elif kind == "secrets":
            self.secrets["secret {name} of {owner} in {queue}".format(**record["secret"])] = record
        elif kind == "archived":
            self.archived.add(record["id"])
        else:
            self.versions[kind] = record.get("version", 0)


def read_sqlite(directory):
    """Changes nothing: the coordinator that starts next finds the log of what was written before it."""
    records = Records()
    file = directory / "coordinator" / "state.db"
    if not file.exists():
        return records
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=20)) as database, database:
        database.execute("BEGIN")  # one moment
        there = {name for name, in database.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        for table in ("jobs", "jobs_archive", "attempts", "nodes", "queues", "users", "secrets"):
            for record, in database.execute(f"SELECT record FROM {table}") if table in there else ():
                records.add(table.removesuffix("_archive"), record)
        if "jobs_archive" in there:
            records.archived = {job for job, in database.execute("SELECT id FROM jobs_archive")}
        if "audit" in there:
            records.audit = [line for line, in database.execute("SELECT line FROM audit ORDER BY seq")]
    return records


def read_journal(directory):
    """By a backup, which is a snapshot of a journal."""
    records = Records()
    with tempfile.TemporaryDirectory(prefix="muster-backup.") as folder:
        run("muster", "backup", f"{folder}/backup", "--journal", directory / "journal", "--dir", directory)
        frame = pathlib.Path(folder, "backup").read_bytes()
    length, at = HEADER.unpack_from(frame)[5], HEADER.size
    end = at + length
    while at < end:
        kind, _, key, name, text = OPERATION.unpack_from(frame, at)
        at += OPERATION.size + key + name + text
        if kind in KINDS:
            records.add(KINDS[kind], frame[at - text:at].decode())
    return records


class Oracle:
    def __init__(self, read):
        self.read = read
        self.acknowledged = []  # (operation, object) of each call that was answered with success
        self.attempted = collections.Counter()  # the same of all calls
        self.keys = {}  # of submits that were acknowledged: their jobs
        self.forgets, self.forgettable = False, set()  # whether archived jobs are deleted; jobs that may have been
        self.head, self.before = None, {}
        self.records = Records()

    def check(self, directory):
        self.records = self.read(directory)
        try:
            self.head = audit_chain.verify(self.records.audit, self.head) or self.head
        except audit_chain.Broken as broken:
            return [f"the audit trail: {broken}"]
        entries = [json.loads(line) for line in self.records.audit]
        carried_out = [entry for entry in entries if entry["outcome"] == "OK"]
        return [*self._unacknowledged(carried_out), *self._jobs(carried_out), *self._rest(carried_out), *self._secrets(carried_out),
                *self._attempts()]

    def _unacknowledged(self, entries):
        """Between what was acknowledged and what was asked for, by operation and object."""
        there = collections.Counter((entry["operation"], entry["object"]) for entry in entries)
        for what, times in collections.Counter(self.acknowledged).items():
            if there[what] < times:
                yield f"{what} was acknowledged {times} times, and has {there[what]} entries in the audit trail"
        for what, times in there.items():
            if self.attempted[what] and times > self.attempted[what]:
                yield f"{what} has {times} entries in the audit trail, and was asked for {self.attempted[what]} times"

    def _jobs(self, entries):
        jobs, asked = self.records.jobs, collections.defaultdict(list)
        for entry in entries:
            if entry["object"].startswith("job "):
                asked[entry["object"].removeprefix("job ")].append(entry)
        submitted = {job for job, of in asked.items() if any(entry["operation"] == "Submit" for entry in of)}
        if self.forgets:
            self.forgettable |= submitted
        for job in submitted - set(jobs) - self.forgettable:
            yield f"job {job} has an entry in the audit trail, and is not there"
        for job in set(jobs) - submitted:
            yield f"job {job} is there, and has no entry in the audit trail"
        for job in submitted & set(jobs):
            for what, expected, found in wishes(jobs[job], asked[job]):
                if expected != found:
                    yield f"job {job} is {'' if found else 'not '}{what} ({found}), by the audit trail it is {'' if expected else 'not '}({expected})"
        keys = collections.Counter(record.get("key", "") for record in jobs.values())
        for key, times in keys.items():
            if key and times > 1:
                yield f"key {key} has {times} jobs"
        by_key = {record.get("key", ""): job for job, record in jobs.items()}
        for key, job in self.keys.items():
            if job not in self.forgettable and by_key.get(key) != job:
                yield f"the submit of key {key} was answered with job {job}, and the store has {by_key.get(key)}"

    def _rest(self, entries):
        drained, versions = {}, {"queues": 0, "users": 0}
        for entry in entries:
            if entry["operation"] in ("Drain", "Undrain"):
                drained[entry["object"].removeprefix("node ")] = entry["operation"] == "Drain"
            for kind in versions:
                if entry["operation"] == f"Apply{kind.capitalize()}":
                    versions[kind] = max(versions[kind], int(entry["object"].removeprefix("version ")))
        for name, node in self.records.nodes.items():
            found = bool(node.get("drain_reason"))
            if found != drained.get(name, False):
                yield f"node {name} is drained: {found}; by the audit trail: {not found}"
        if versions != self.records.versions:
            yield f"versions are {self.records.versions}, by the audit trail {versions}"

    def _secrets(self, entries):
        """A rotation gives every secret that is there another key."""
        expected, rotations = set(), 0
        for entry in entries:
            if entry["operation"] == "SetSecret":
                expected.add(entry["object"])
            elif entry["operation"] == "RemoveSecret":
                expected.discard(entry["object"])
            rotations += entry["operation"] == "RotateSecretKey"
        if expected != set(self.records.secrets):
            yield f"secrets are {sorted(self.records.secrets)}, by the audit trail {sorted(expected)}"
        now = {name: (record["value"], record["key_id"]) for name, record in self.records.secrets.items()}
        known = [name for name in now if self.before.get("secrets", {}).get(name, ("", ""))[0] == now[name][0]]
        rotated = [name for name in known if self.before["secrets"][name][1] != now[name][1]]
        if rotated and rotations == self.before["rotations"]:
            yield f"{rotated} have another key, and no rotation has an entry in the audit trail"
        if len(rotated) < len(known) and rotations > self.before["rotations"]:
            yield f"a rotation has an entry in the audit trail, and {sorted(set(known) - set(rotated))} have the key from before"
        self.before = {"secrets": now, "rotations": rotations}

    def _attempts(self):
        live = collections.Counter(record["job"] for record in self.records.attempts if record.get("state", "reserving") != "ended")
        for job, count in live.items():
            if count > 1:
                yield f"job {job} has {count} live attempts"


def wishes(record, entries):
    """Of what was asked for of a job: (what, as the audit trail has it, as the record has it)."""
    operations = [entry["operation"] for entry in entries]
    state, stop = record.get("state", "queued"), record.get("stop", "none")

    def last_of(*names):
        return next((operation for operation in reversed(operations) if operation in names), None)
    yield "cancelled", "Cancel" in operations, stop == "cancel" or state == "cancelled"
    if state in TERMINAL or stop == "cancel":
        return
    held = last_of("HoldJob", "ReleaseJob")
    yield "held", held == "HoldJob" if held else bool(HELD.search(record["spec_yaml"])), record.get("held", False)
    yield "suspended", last_of("Suspend", "Resume") == "Suspend", stop == "suspend" or state == "suspended"
    priorities = [PRIORITY.search(entry["detail"]) for entry in entries if entry["operation"] == "UpdateJob"]
    yield "of priority", next((int(each[1]) for each in reversed(priorities) if each), FIRST_PRIORITY), record.get("priority", FIRST_PRIORITY)
