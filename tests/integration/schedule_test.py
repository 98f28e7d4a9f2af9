"""Schedules as files, and what queues had: real daemons export, record and book; the replay agrees with them."""

import csv
import io
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, run, wait_until  # noqa: E402

SECRET = "CANARY"
QUEUES = "queues: {default: {}, team: {weight: 3}}\n"


class Schedules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.recording = self.folder / "passes.schedule"
        os.environ["MUSTER_RECORD_SCHEDULES"] = str(self.recording)
        self.addCleanup(os.environ.pop, "MUSTER_RECORD_SCHEDULES")
        self.cluster = Cluster(self, nodes=2, slots=1)
        (self.folder / "queues.yaml").write_text(QUEUES)
        self.cluster.muster("queues", "apply", self.folder / "queues.yaml")

    def command_job(self, name, *command):
        return self.cluster.submit({
            "name": name, "workdir": str(self.cluster.root), "command": list(command), "queue": "team",
            "env": {SECRET: SECRET}, "resources": {"nodes": 2, "time_limit": "1h"}})

    def replay(self, file, *flags, check=True):
        return run("muster", "schedule", "replay", file, *flags, check=check)

    def test_the_replay_plans_what_the_coordinator_planned(self):
        runs = self.command_job("runs", "sh", "-c", "exec sleep 600", SECRET)
        self.cluster.wait_for_state(runs, "running")
        waits = self.command_job(f"waits-{SECRET}", "true")
        exported = self.folder / "plan.schedule"
        self.cluster.muster("schedule", "export", exported)
        first = self.replay(exported).stdout
        self.assertIn(f"{waits} waits: needs 2 nodes", first)
        self.assertRegex(first, r"starts in 1h \d+m \d+s at the latest on node-1, node-2")
        self.assertTrue(first.endswith("1 pass, equal\n"), first)
        self.assertEqual(self.replay(exported).stdout, first)
        self.cluster.muster("cancel", runs)
        self.assertEqual(self.cluster.wait(waits), 0, self.cluster.describe(waits))
        self.assertRegex(self.replay(self.recording).stdout, r"^\d+ passes, all equal\n$")
        for file in (exported, self.recording):
            self.assertNotIn(SECRET.encode(), file.read_bytes())
            self.assertNotIn(str(self.cluster.root).encode(), file.read_bytes())

    def test_an_export_replaces_nothing_but_a_file(self):
        link = self.folder / "link"
        link.symlink_to("/dev/null")
        refused = self.cluster.muster("schedule", "export", link, check=False)
        self.assertEqual(refused.returncode, 2, refused)
        self.assertIn("is no regular file", refused.stderr)
        self.assertTrue(link.is_symlink())

    def test_a_recording_goes_on_after_a_restart_and_a_broken_one_is_refused(self):
        self.assertEqual(self.cluster.wait(self.command_job("first", "true")), 0)
        self.cluster.muster("down")
        before = self.recording.read_bytes()
        self.recording.write_bytes(before + b"\x40\0\0\0 torn")
        self.cluster.up()
        self.assertEqual(self.cluster.wait(self.command_job("second", "true")), 0)
        wait_until(lambda: self.recording.stat().st_size > len(before), "a pass is added")
        self.assertEqual(self.recording.read_bytes()[:len(before)], before)
        self.assertEqual(self.replay(self.recording).returncode, 0)
        cut = self.folder / "cut.schedule"
        cut.write_bytes(before[:-1])
        refused = self.replay(cut, check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("ends within pass", refused.stderr)
        cut.write_text(QUEUES)
        self.assertIn("is no recording of schedules", self.replay(cut, check=False).stderr)

    def usage(self, *flags):
        text = self.cluster.muster("usage", "--csv", *flags).stdout
        return list(csv.DictReader(io.StringIO(text)))

    def test_usage_is_kept_over_a_restart_and_agrees_with_the_goodput(self):
        job = self.command_job("job", "sleep", "3")
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        rows = self.usage()
        self.assertEqual({row["queue"] for row in rows}, {"team"})
        states = self.cluster.get(job)["goodput"]["states"]
        in_slots = sum(seconds for state, seconds in states.items() if state != "queue")

        def hours(rows, column):
            return sum(float(row[column]) for row in rows)
        self.assertAlmostEqual(3600 * hours(rows, "slot_hours_allocated"), in_slots, delta=0.05)
        self.assertAlmostEqual(3600 * hours(rows, "slot_hours_productive"), states["step"], delta=0.05)
        self.assertEqual(hours(rows, "gpu_hours_allocated"), 0)
        self.cluster.muster("down")
        self.cluster.up()
        self.assertEqual(self.usage("--queue", "team"), rows)
        self.assertEqual(self.usage("--queue", "default"), [])
        unknown = self.cluster.muster("usage", "--queue", "tem", check=False)
        self.assertEqual(unknown.returncode, 3)
        self.assertIn("did you mean 'team'?", unknown.stderr)


if __name__ == "__main__":
    unittest.main()
