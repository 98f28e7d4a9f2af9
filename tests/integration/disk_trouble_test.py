"""The disk of the results is full: training goes on, and what was committed stays."""

import errno
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, can_have_namespaces, run, trajectory, wait_until  # noqa: E402

STEPS = 250
DISK_BYTES = 256 << 20


@unittest.skipUnless(can_have_namespaces(), "a small disk of its own needs root")
class DiskTrouble(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self)
        self.disk = self.cluster.path("disk")
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.disk],
                       check=True, timeout=60)
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True, timeout=60)

    def start(self, name):
        spec = self.cluster.train_job(steps=STEPS, every=10, name=name)
        spec["train"]["output"]["dir"] = str(self.disk / name)
        return self.cluster.submit(spec)

    def fill(self):
        """All but what the lines of metrics.jsonl need; what a checkpoint gives back comes with the next call."""
        filler = self.disk / "filler"
        file = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            while (free := shutil.disk_usage(self.disk).free) > 1 << 20:
                os.write(file, bytes(min(free - (900 << 10), 1 << 20)))
        except OSError as error:  # a checkpoint uses space at the same time
            if error.errno != errno.ENOSPC:
                raise
        finally:
            os.close(file)
        return filler

    def events(self, job, kind):
        return [e for e in self.cluster.json("events", job) if e["kind"] == kind]

    def test_training_goes_on_and_the_last_committed_checkpoint_survives(self):
        calm = self.start("calm")
        self.assertEqual(self.cluster.wait(calm), 0, self.cluster.describe(calm))
        wanted = trajectory(self.cluster.output(calm))
        shutil.rmtree(self.cluster.output(calm))

        job = self.start("full")
        wait_until(lambda: self.cluster.checkpoints(job), "a checkpoint is committed")
        filler = self.fill()
        wait_until(lambda: self.fill() and self.failed_for_want_of_room(job), "a checkpoint fails")
        kept = self.cluster.checkpoints(job)[-1]
        self.cluster.wait_for_step(job, self.cluster.get(job)["step"] + 5)
        run("muster-trainer", "export", "--checkpoint", kept, "--out", self.cluster.path("whole"))

        # A fault while nothing can be saved costs no step either: snapshots are in memory.
        self.cluster.kill_rank(job, 1)
        wait_until(lambda: self.cluster.get(job)["generation"] == 2
                   and self.cluster.get(job)["state"] == "running", "the job trains again", timeout=30)
        self.assertLessEqual(self.cluster.get(job)["attempts"][0]["lost_steps"], 1)
        filler.unlink()
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(trajectory(self.cluster.output(job)), wanted)

    def test_a_trained_model_waits_for_room_also_through_the_loss_of_a_rank(self):
        job = self.start("done")
        wait_until(lambda: self.cluster.checkpoints(job), "a checkpoint is committed")
        filler = self.fill()
        wait_until(lambda: self.fill() and self.waiting(job, 1), "the model waits for room")
        self.cluster.kill_rank(job, 0)
        wait_until(lambda: self.waiting(job, 2), "the model waits again")
        self.assertEqual(self.cluster.get(job)["state"], "recovering")
        filler.unlink()
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertTrue((self.cluster.output(job) / "model" / "model.safetensors").exists())

    def failed_for_want_of_room(self, job):
        return [e for e in self.events(job, "checkpoint_failed") if "No space left on device" in e["message"]]

    def waiting(self, job, generation):
        return [e for e in self.cluster.json("events", job)
                if e["generation"] == generation and "waits for room" in e["message"]]


if __name__ == "__main__":
    unittest.main()
