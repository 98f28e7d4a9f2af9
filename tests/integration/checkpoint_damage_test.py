"""A checkpoint with a flipped byte is refused by name and the one before it is used; a running job's is
found before it is needed."""

import json
import os
import pathlib
import sys
import unittest
import unittest.mock
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, kill, read_metrics, trajectory, wait_until  # noqa: E402


def flip_byte(path):
    with open(path, "r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


def verified(cluster, job):
    """The job's verified checkpoints, oldest first."""
    done = [c for c in cluster.json("checkpoints", job) if c["verified"]]
    return sorted(done, key=lambda checkpoint: checkpoint["step"])


class CheckpointDamage(unittest.TestCase):
    def test_the_checkpoint_before_is_used_and_the_timeline_says_so(self):
        cluster = Cluster(self)
        # Without snapshots, which would be newer than any checkpoint; and without end, which could come too early.
        options = {"steps": 10**5, "every": 40, "snapshot": {"every": 0}}
        compared = 110
        calm = cluster.submit(cluster.train_job(**options))
        cluster.wait_for_step(calm, compared)
        cluster.muster("cancel", calm)
        cluster.wait(calm)
        job = cluster.submit(cluster.train_job(**options))
        rank = cluster.ranks(job)[0]
        # Verified: damage before that is found by the verification, and no trainer is offered the checkpoint. The
        # processes are started by now, so that the next one is not committed before the kill.
        before, newest = wait_until(lambda: len(done := verified(cluster, job)) >= 2 and done[-2:],
                                    "two checkpoints are verified")
        flip_byte(sorted((cluster.output(job) / "checkpoints" / newest["directory"]).glob("*.shard"))[1])
        kill(rank)
        wait_until(lambda: cluster.get(job)["attempts"][1:], "the next attempt begins")
        reached = max(compared, newest["step"])
        wait_until(lambda: read_metrics(cluster.output(job)).get(reached, {}).get("generation") == 2,
                   f"generation 2 does step {reached}")
        self.assertEqual(cluster.get(job)["attempts"][1]["resumed_step"], before["step"])
        timeline = cluster.describe(job)
        self.assertIn(newest["directory"], timeline)
        self.assertIn("checksum", timeline)
        self.assertEqual(trajectory(cluster.output(job))[:compared], trajectory(cluster.output(calm))[:compared])
        cluster.muster("cancel", job)


class Scrub(unittest.TestCase):
    """Every checkpoint is read again each second."""

    def setUp(self):
        often = unittest.mock.patch.dict(os.environ, MUSTER_SCRUB_INTERVAL="1s")
        often.start()
        self.addCleanup(often.stop)
        self.cluster = Cluster(self)
        # Checkpoints seconds apart, and no snapshots, which would be newer than any of them.
        self.job = self.cluster.submit(self.cluster.train_job(
            steps=100000, snapshot={"every": 0},
            batch={"per_rank": 2, "accumulation": 4}, checkpoint={"every": 50, "keep": 20}))

    def committed(self, count):
        return wait_until(lambda: len(self.listed()) >= count and self.listed(),
                          f"{count} checkpoints are committed", timeout=120)

    def listed(self):
        return verified(self.cluster, self.job)

    def events(self, kind):
        return [e for e in self.cluster.json("events", self.job) if e["kind"] == kind]

    def metrics(self):
        endpoint = json.loads((self.cluster.dir / "coordinator" / "endpoint.json").read_text())
        with urllib.request.urlopen(f"http://{endpoint['http']}/metrics", timeout=60) as page:
            return page.read().decode()

    def test_a_flipped_byte_is_found_and_the_next_attempt_is_not_offered_the_checkpoint(self):
        older, newest = self.committed(2)[-2:]
        folder = self.cluster.output(self.job) / "checkpoints"
        flip_byte(sorted((folder / newest["directory"]).glob("*.shard"))[1])
        found = wait_until(lambda: self.events("checkpoint_damaged"), "the damage is found")
        self.assertIn(newest["directory"], found[0]["message"])
        self.assertIn("rank-00001.shard", found[0]["message"])
        self.assertEqual(found[0]["severity"], "error")
        metrics = self.metrics()
        self.assertIn('muster_checkpoint_scrubs_total{result="damaged"} 1', metrics)
        self.assertIn(f'muster_checkpoints_damaged{{job_id="{self.job}"}} 1', metrics)
        refused = {c["directory"]: c["refused"] for c in self.cluster.json("checkpoints", self.job)}
        self.assertIn("rank-00001.shard", refused[newest["directory"]])
        self.assertIsNone(refused[older["directory"]])
        self.cluster.kill_rank(self.job, 0)
        attempt = wait_until(lambda: [a for a in self.cluster.get(self.job)["attempts"][1:]
                                      if (a["resumed_step"] or -1) >= 0],
                             "the job has resumed")[0]
        # If training was faster than the scrub there is a newer one by now.
        self.assertNotEqual(attempt["resumed_step"], newest["step"])
        self.assertGreaterEqual(attempt["resumed_step"], older["step"])
        for node in self.cluster.guardian_folders(self.job).values():
            offered = [m["directory"] for m in json.loads((node / "resume-g2.json").read_text())]
            self.assertIn(older["directory"], offered)
            self.assertNotIn(newest["directory"], offered)
        self.assertFalse([n for n in attempt["notes"] if "refused" in n], "no trainer had to find it")
        self.cluster.muster("cancel", self.job)

    def test_a_missing_directory_is_reported_and_is_no_damage(self):
        self.committed(1)
        output = self.cluster.output(self.job)
        self.cluster.muster("cancel", self.job)
        self.cluster.wait(self.job)
        away = output.rename(output.with_name("away"))
        verify = self.cluster.muster("checkpoints", self.job, "--verify", check=False)
        self.assertEqual(verify.returncode, 6, verify.stdout + verify.stderr)
        self.assertIn("no checkpoint of this job", verify.stderr)
        self.assertEqual(len(self.events("checkpoints_unreachable")), 1)
        away.rename(output)
        self.cluster.muster("checkpoints", self.job, "--verify")
        self.assertEqual(len(self.events("checkpoints_reachable")), 1)
        self.assertEqual(self.events("checkpoint_damaged"), [])


class ScrubOfTheArchive(unittest.TestCase):
    """Finished jobs are archived after a second; each has its turn every ten seconds."""

    def setUp(self):
        often = unittest.mock.patch.dict(os.environ, MUSTER_SCRUB_INTERVAL="10s", MUSTER_RETAIN="1s")
        often.start()
        self.addCleanup(often.stop)
        self.cluster = Cluster(self)

    def test_a_flipped_byte_is_found_after_the_job_has_left_memory(self):
        job = self.cluster.submit(self.cluster.train_job(steps=20, checkpoint={"every": 10, "keep": 2}))
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        wait_until(lambda: not self.cluster.json("get"), "the job is archived")
        name = self.cluster.get(job)["name"]
        newest = verified(self.cluster, name)[-1]
        folder = self.cluster.output(job) / "checkpoints" / newest["directory"]
        flip_byte(sorted(folder.glob("*.shard"))[1])
        found = wait_until(lambda: [e for e in self.cluster.json("events", name)
                                    if e["kind"] == "checkpoint_damaged"], "the damage is found")
        self.assertIn(newest["directory"], found[0]["message"])
        refused = {c["directory"]: c["refused"] for c in self.cluster.json("checkpoints", name)}
        self.assertIn("rank-00001.shard", refused[newest["directory"]])
        verify = self.cluster.muster("checkpoints", name, "--verify", check=False)
        self.assertEqual(verify.returncode, 1, "known damage counts: " + verify.stdout + verify.stderr)
        self.assertIn("1 damaged", verify.stderr)
        self.assertIn("step", self.cluster.muster("logs", name).stdout)


if __name__ == "__main__":
    unittest.main()
