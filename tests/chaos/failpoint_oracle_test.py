"""The oracle of the failpoints finds what a coordinator that breaks its word would leave in the store."""

import hashlib
import json
import pathlib
import sqlite3
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from failpoint_oracle import Oracle, read_sqlite  # noqa: E402

RECORDS = {"jobs": ("id",), "jobs_archive": ("id",), "attempts": ("job", "generation"), "nodes": ("name",), "queues": ("one",),
           "users": ("one",), "secrets": ("name",)}


class FailpointOracle(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-oracle.")
        self.addCleanup(folder.cleanup)
        self.directory = pathlib.Path(folder.name)
        (self.directory / "coordinator").mkdir()
        self.database = sqlite3.connect(self.directory / "coordinator" / "state.db", isolation_level=None)
        self.addCleanup(self.database.close)
        for table, keys in RECORDS.items():
            self.database.execute(f"CREATE TABLE {table}({', '.join(keys)}, record)")
        self.database.execute("CREATE TABLE audit(seq, line)")
        self.seq, self.previous = 0, ""
        self.oracle = Oracle(read_sqlite)

    def put(self, table, *keys, **record):
        self.database.execute(f"INSERT INTO {table} VALUES({', '.join('?' * (len(keys) + 1))})", (*keys, json.dumps(record)))

    def entry(self, operation, about, detail="", outcome="OK"):
        self.seq += 1
        sealed = json.dumps({"seq": self.seq, "operation": operation, "object": about, "outcome": outcome, "detail": detail,
                             "previous": self.previous}, separators=(",", ":"))
        self.previous = hashlib.sha256(sealed.encode()).hexdigest()
        self.database.execute("INSERT INTO audit VALUES(?, ?)", (self.seq, f'{sealed[:-1]},"hash":"{self.previous}"}}'))

    def job(self, name, state="queued", audited=True, **more):
        self.put("jobs", name, id=name, key=f"key-{name}", state=state, spec_yaml="name: x\n", **more)
        if audited:
            self.entry("Submit", f"job {name}")

    def check(self):
        return self.oracle.check(self.directory)

    def finds(self, *parts):
        found = self.check()
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_a_store_that_kept_its_word_is_right(self):
        self.job("a", held=True)
        self.entry("HoldJob", "job a")
        self.job("b", state="cancelled")
        self.entry("Cancel", "job b")
        self.job("c", priority=80)
        self.entry("UpdateJob", "job c", "priority 50 -> 70")
        self.entry("UpdateJob", "job c", "priority 70 -> 80")
        self.entry("UpdateJob", "job c", "refused", outcome="INVALID_ARGUMENT")
        self.put("nodes", "n", name="n", state="ready", drain_reason="x")
        self.entry("Drain", "node n")
        self.put("queues", 1, version=2, yaml="")
        self.entry("ApplyQueues", "version 2")
        self.oracle.acknowledged += [("Submit", "job a"), ("Cancel", "job b")]
        self.oracle.keys["key-a"] = "a"
        self.assertEqual(self.check(), [])

    def test_a_job_without_its_entry(self):
        self.job("a", audited=False)
        self.finds("job a is there, and has no entry")

    def test_an_entry_without_its_job(self):
        self.entry("Submit", "job a")
        self.finds("job a has an entry", "is not there")
        self.oracle.forgets = True
        self.assertEqual(self.check(), [])

    def test_a_change_without_its_entry_and_the_reverse(self):
        for change, operation in (({"held": True}, "HoldJob"), ({"state": "suspended"}, "Suspend"), ({"stop": "cancel"}, "Cancel")):
            with self.subTest(operation=operation):
                self.setUp()
                self.job("a", **change)
                self.finds("job a is")
                self.entry(operation, "job a")
                self.assertEqual(self.check(), [])
                self.job("b")
                self.entry(operation, "job b")
                self.finds("job b is not")

    def test_what_was_acknowledged_and_has_no_entry(self):
        self.oracle.acknowledged += [("Login", "account root")]
        self.finds("was acknowledged 1 times")

    def test_what_was_done_more_often_than_it_was_asked_for(self):
        self.oracle.attempted["Login", "account root"] = 1
        self.entry("Login", "account root")
        self.entry("Login", "account root")
        self.finds("asked for 1 times")

    def test_a_key_with_two_jobs_and_one_that_lost_its_own(self):
        self.job("a")
        self.put("jobs", "b", id="b", key="key-a", state="queued", spec_yaml="")
        self.entry("Submit", "job b")
        self.finds("key key-a has 2 jobs")
        self.database.execute("DELETE FROM jobs WHERE id='b'")
        self.oracle.forgettable.add("b")
        self.oracle.keys["key-a"] = "b"
        self.assertEqual(self.check(), [])
        self.oracle.keys["key-c"] = "c"
        self.finds("key-c", "answered with job c")

    def test_nodes_and_versions_without_their_entries(self):
        self.put("nodes", "n", name="n", state="ready", drain_reason="x")
        self.finds("node n is drained: True")
        self.entry("Drain", "node n")
        self.entry("ApplyUsers", "version 1")
        self.finds("versions are")

    def test_secrets_and_their_keys(self):
        name = {"owner": "ada", "queue": "nlp", "name": "hf"}
        self.entry("SetSecret", "secret hf of ada in nlp")
        self.finds("secrets are []")
        self.put("secrets", "hf", secret=name, key_id="1", value="v")
        self.assertEqual(self.check(), [])
        self.entry("RotateSecretKey", "")
        self.finds("have the key from before")
        self.entry("RotateSecretKey", "")
        self.database.execute("DELETE FROM secrets")
        self.put("secrets", "hf", secret=name, key_id="2", value="v")
        self.assertEqual(self.check(), [])
        self.database.execute("DELETE FROM secrets")
        self.put("secrets", "hf", secret=name, key_id="3", value="v")
        self.finds("another key, and no rotation")

    def test_two_live_attempts(self):
        self.job("a")
        for generation in (1, 2):
            self.put("attempts", "a", generation, job="a", generation=generation, state="running")
        self.finds("2 live attempts")

    def test_a_trail_that_was_cut_or_changed_since(self):
        for _ in range(3):
            self.entry("Login", "account root")
        self.assertEqual(self.check(), [])
        self.database.execute("DELETE FROM audit WHERE seq=3")
        self.finds("the kept head is not there")
        self.database.execute("DELETE FROM audit WHERE seq=2")
        self.entry("Login", "account root")
        self.finds("entry 2 is missing")


if __name__ == "__main__":
    unittest.main()
