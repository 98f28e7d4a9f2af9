"""A spare node that two jobs share, and a preemptible job to which it is lent meanwhile: who takes it, how soon, what
the others lose."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, alive, fake_gpus, kill, read_metrics, trajectory, trajectory_of, wait_until  # noqa: E402
from device_watch import DeviceWatch, job_of  # noqa: E402

STEPS = 150
FOREVER = 10**6
ONE_GPU = [{"count": 1, "kind": "NVIDIA H100 80GB HBM3", "memory": "80GB"}]


class SharedSpares(unittest.TestCase):
    def start(self, nodes, device="cpu", steps=STEPS):
        """Two jobs of two nodes each, which guard each other's spare."""
        up = ("--fake-gpus", fake_gpus(self, ONE_GPU)) if device == "cuda" else ()
        self.cluster = Cluster(self, nodes=nodes, slots=1, up=up)
        self.device = device
        jobs = [self.submit(f"guarded-{i}", steps=steps, spares=1, share_spares=True) for i in (1, 2)]
        for job in jobs:
            self.cluster.wait_for_step(job, 10)
            self.wait_for_standby(job)
        return jobs

    def submit(self, name, nodes=2, steps=STEPS, preemptible=False, **resources):
        spec = self.cluster.train_job(steps=steps, nodes=nodes, name=name)
        spec["resources"].update({"device": self.device, **resources})
        spec["preemptible"] = preemptible
        return self.cluster.submit(spec)

    def attempt(self, job):
        return self.cluster.get(job)["attempts"][-1]

    def wait_for_standby(self, job):
        """On its spare; it says so in its log there."""
        [spare] = self.attempt(job)["spares"]
        log = self.cluster.dir / "nodes" / spare / "jobs" / job / "standby.log"
        wait_until(log.exists, f"a standby of {job} on {spare}")

    def lose_node(self, job):
        lost = self.attempt(job)["nodes"][1]
        self.cluster.kill_node(lost, job)
        self.wait_for_generation(job, 2, timeout=60)
        return self.cluster.get(job)["attempts"][1]

    def wait_for_generation(self, job, generation, timeout=120):
        output = self.cluster.output(job)
        wait_until(lambda: any(e["generation"] >= generation for e in read_metrics(output).values()),
                   f"{job} finishes a step of generation {generation}", timeout)

    def events(self, job, kind):
        return [e["message"] for e in self.cluster.json("events") if e["job"] == job and e["kind"] == kind]

    def finish(self, job, calm):
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(trajectory(self.cluster.output(job)), trajectory_of(calm))

    def test_one_of_two_jobs_takes_the_spare_that_they_share(self):
        first, second = self.start(nodes=5)
        [spare] = self.attempt(first)["spares"]
        self.assertEqual(self.attempt(second)["spares"], [spare])
        taken = self.lose_node(first)
        self.assertEqual(taken["tier"], "spare")
        self.assertIn(spare, taken["nodes"])
        self.assertEqual(taken["resumed_from"], "snapshot")
        [dropped] = self.events(second, "spare_dropped")
        self.assertIn(f"job {first} (guarded-1) has taken it", dropped)
        self.assertEqual(self.attempt(second)["spares"], [])
        for job in (first, second):
            self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(len(self.cluster.get(second)["attempts"]), 1, "it is not touched")
        self.finish(first, self.cluster.calm(steps=STEPS))

    def test_a_preemptible_job_runs_on_the_spare_and_gives_it_back(self):
        first, second = self.start(nodes=5, device="cuda")
        [spare] = self.attempt(first)["spares"]
        filler = self.submit("filler", nodes=1, preemptible=True)
        self.cluster.wait_for_step(filler, 5)
        self.assertEqual(self.attempt(filler)["lent"], [spare])
        self.assertEqual(len(self.events(filler, "lent")), 1)
        taken = self.lose_node(first)
        self.assertEqual(taken["tier"], "spare")
        self.assertIn(spare, taken["nodes"])
        self.assertTrue(self.events(filler, "preempted"), self.cluster.describe(filler))
        self.assertEqual(self.cluster.get(filler)["state"], "queued")
        self.assertIn("filler", self.events(first, "reclaims")[0])
        for job in (first, second):
            self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(self.cluster.wait(filler), 0, "it goes on when there is room")
        self.assertEqual(self.cluster.get(filler)["attempts"][-1]["tier"], "requeue")
        self.assertGreater(self.cluster.get(filler)["attempts"][-1]["resumed_step"], 0)
        self.finish(first, self.cluster.calm(steps=STEPS))

    def clear_the_lent_spare(self, disturb):
        """`disturb(spare, borrower)` while the borrower of a spare that its owner needs has not left it yet: its processes
        are stopped until then."""
        first, second = self.start(nodes=5, device="cuda", steps=FOREVER)
        [spare] = self.attempt(first)["spares"]
        borrower = self.submit("borrower", nodes=1, steps=FOREVER, preemptible=True)
        self.cluster.wait_for_step(borrower, 5)
        self.assertEqual(self.attempt(borrower)["lent"], [spare])
        watch = DeviceWatch(self.cluster.dir)
        watch.start()
        self.addCleanup(watch.stop)
        [rank] = self.cluster.ranks(borrower).values()
        stopped = [rank, self.cluster.guardians(borrower)[spare]]
        for pid in stopped:
            kill(pid, signal.SIGSTOP)
        self.cluster.kill_node(self.attempt(first)["nodes"][1], first)
        wait_until(lambda: self.events(borrower, "preempted"), "the coordinator preempts the borrower")
        self.assertTrue(all(alive(pid) for pid in stopped), "it has not left yet")
        self.assertEqual(len(self.cluster.get(first)["attempts"]), 1, "its owner waits for that")
        looks = watch.looks
        disturb(spare, borrower)
        for pid in stopped:
            kill(pid, signal.SIGCONT)
        self.wait_for_generation(first, 2)
        self.assertGreater(watch.looks, looks + 1, "nothing was watched while the spare changed hands")
        self.assertEqual(len(self.cluster.get(second)["attempts"]), 1, "it is not touched")
        for job in (first, second):
            self.cluster.muster("cancel", job)
        self.wait_for_generation(borrower, 2)
        self.cluster.muster("cancel", borrower)
        watch.stop()
        self.assertTrue(any(device.startswith(f"FAKE-{spare}-") for device in watch.held))
        self.assertEqual(watch.shared, [], "a device has processes of two jobs")

    def kill_and_wait(self, pid):
        kill(pid)
        wait_until(lambda: not alive(pid), f"{pid} has ended")

    def test_a_worker_that_is_killed_while_its_node_is_cleared_costs_no_job(self):
        self.clear_the_lent_spare(lambda spare, _: self.cluster.restart_worker(spare))

    def test_a_borrowers_guardian_that_is_killed_while_its_node_is_cleared_costs_no_job(self):
        self.clear_the_lent_spare(
            lambda spare, borrower: self.kill_and_wait(self.cluster.guardians(borrower)[spare]))

    def test_a_process_that_ends_while_the_watch_looks_is_of_no_second_job(self):
        ended = subprocess.Popen(["true"])
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        self.addCleanup(ended.wait)
        with self.assertRaises(ProcessLookupError):
            job_of(ended.pid)

    def test_a_coordinator_that_is_killed_while_a_spare_is_cleared_costs_no_job(self):
        def restart(*_):
            self.kill_and_wait(self.cluster.coordinator_pid())
            self.cluster.up()
        self.clear_the_lent_spare(restart)


if __name__ == "__main__":
    unittest.main()
