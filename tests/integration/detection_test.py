"""Faults that end no process: detected, attributed to the right rank, and recovered from."""

import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, alive, kill, trajectory, wait_until  # noqa: E402

STEPS = 60


class Detection(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(None, up=("--allow-faults",))
        cls.addClassCleanup(cls.cluster.close)
        job = cls.cluster.submit(cls.cluster.train_job(steps=STEPS))
        if cls.cluster.wait(job) != 0:
            raise AssertionError(cls.cluster.describe(job))
        cls.calm = trajectory(cls.cluster.output(job))

    def start(self, steps=STEPS):
        job = self.cluster.submit(self.cluster.train_job(steps=steps))
        self.cluster.wait_for_step(job, 10)
        return job

    def fault(self, job, rank, kind):
        self.cluster.muster("fault", job, "--rank", rank, "--kind", kind)

    def check_trained_through(self, job, rank, kind, cause):
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        attempts = self.cluster.get(job)["attempts"]
        self.assertEqual(len(attempts), 2, self.cluster.describe(job))
        self.assertEqual(attempts[0]["cause_kind"], kind)
        self.assertEqual(attempts[0]["failed_rank"], rank)
        self.assertRegex(attempts[0]["cause"], cause)
        self.assertLessEqual(attempts[0]["lost_steps"], 1)
        self.assertEqual(trajectory(self.cluster.output(job)), self.calm)
        return attempts[0]

    def test_a_stopped_rank_is_named_replaced_and_changes_nothing_when_it_goes_on(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                job = self.start()
                pid = self.cluster.ranks(job)[rank]
                kill(pid, signal.SIGSTOP)
                wait_until(lambda job=job: self.cluster.get(job)["generation"] > 1,
                           "the stopped rank is noticed", timeout=60)
                kill(pid, signal.SIGCONT)
                self.check_trained_through(job, rank, "hung", f"rank {rank} .*stopped")
                self.assertFalse(alive(pid))

    def test_a_rank_stuck_in_its_data_is_named(self):
        job = self.start()
        self.fault(job, 1, "hang-data")
        ended = self.check_trained_through(job, 1, "hung", "rank 1 ")
        self.assertEqual(ended["card"]["phase"], "data")

    def test_a_rank_that_does_not_join_a_collective_is_named(self):
        job = self.start()
        self.fault(job, 0, "hang-collective")
        ended = self.check_trained_through(job, 0, "hung", "rank 0 ")
        self.assertTrue(ended["card"]["last_collective"])

    def test_an_exit_code_is_reported(self):
        job = self.start()
        self.fault(job, 1, "exit=3")
        self.check_trained_through(job, 1, "rank_exited", r"rank 1 .*\b3\b")

    def test_a_nan_is_laid_at_the_door_of_the_rank_that_made_it(self):
        for rank in (0, 1):
            with self.subTest(rank=rank):
                job = self.start()
                self.fault(job, rank, "nan")
                self.assertEqual(self.cluster.wait(job), 10, self.cluster.describe(job))
                attempts = self.cluster.get(job)["attempts"]
                self.assertEqual(len(attempts), 1, self.cluster.describe(job))
                self.assertEqual(attempts[0]["cause_kind"], "non_finite")
                self.assertEqual(attempts[0]["failed_rank"], rank)
                self.assertRegex(attempts[0]["cause"],
                                 rf"finite is rank {rank}: loss of micro-batch \d+ \((lines?|rows?) \d")

    def test_running_out_of_memory_is_reported_with_advice(self):
        job = self.start()
        self.fault(job, 1, "oom")
        ended = self.check_trained_through(job, 1, "out_of_memory", "memory|bad_alloc")
        self.assertTrue(ended["card"]["advice"])
        self.assertIn(ended["card"]["advice"], self.cluster.describe(job))

    def test_a_straggler_is_named_and_left_alone(self):
        job = self.start(steps=400)
        self.fault(job, 1, "slow=60%")

        def told():
            return [e for e in self.cluster.json("events", job) if e["kind"] == "straggler"]
        event = wait_until(told, "the straggler is named", timeout=90)[0]
        self.assertIn("rank 1", event["message"])
        self.assertEqual(self.cluster.get(job)["generation"], 1)
        self.cluster.muster("cancel", job)
        self.cluster.wait(job)

    def test_each_injected_fault_is_an_event(self):
        job = self.start()
        self.fault(job, 0, "kill")
        wait_until(lambda: any(e["kind"] == "fault_injected" and "rank 0" in e["message"]
                               for e in self.cluster.json("events", job)), "the event")
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))

    def test_a_cluster_without_the_flag_refuses_faults(self):
        cluster = Cluster(self, nodes=1)
        job = cluster.submit(cluster.train_job(steps=STEPS, nodes=1))
        cluster.ranks(job)
        done = cluster.muster("fault", job, "--rank", 0, "--kind", "kill", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--allow-faults", done.stderr)
        self.assertEqual(cluster.wait(job), 0)
        self.assertEqual(len(cluster.get(job)["attempts"]), 1)


if __name__ == "__main__":
    unittest.main()
