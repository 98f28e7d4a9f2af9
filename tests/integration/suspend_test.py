"""A job is suspended and resumed: nothing of it runs in between, and no step is done twice."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import (Cluster, kill, processes_of_job, read_metrics, trajectory,  # noqa: E402
                     trajectory_of, wait_until)

STEPS = 60


class Suspend(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self)

    def start(self):
        """A job in the middle of its steps, and the numbers of a calm run."""
        self.calm = trajectory_of(self.cluster.calm(steps=STEPS))
        self.job = self.cluster.submit(self.cluster.train_job(steps=STEPS))
        self.cluster.wait_for_step(self.job, 10)

    def state(self):
        return self.cluster.get(self.job)["state"]

    def check_set_aside(self):
        self.assertEqual(self.state(), "suspended", self.cluster.describe(self.job))
        wait_until(lambda: not processes_of_job(self.job), "nothing of the job is left")
        self.assertLess(max(read_metrics(self.cluster.output(self.job))), STEPS)

    def check_goes_on(self):
        self.cluster.muster("resume", self.job)
        self.assertEqual(self.cluster.wait(self.job), 0, self.cluster.describe(self.job))
        attempts = self.cluster.get(self.job)["attempts"]
        self.assertEqual(len(attempts), 2, self.cluster.describe(self.job))
        self.assertEqual(attempts[0]["cause_kind"], "suspended")
        self.assertEqual(attempts[0]["lost_steps"], 0)
        self.assertEqual(trajectory(self.cluster.output(self.job)), self.calm)

    def test_it_goes_on_where_it_was_with_the_same_numbers(self):
        self.start()
        self.cluster.muster("suspend", self.job, "--by", "60s", "--reason", "new kernel", "--wait")
        self.check_set_aside()
        got = self.cluster.get(self.job)
        self.assertIn("new kernel", got["reason"])
        self.assertGreater(got["checkpoint_seconds"], 0)
        self.check_goes_on()

    def test_it_survives_the_coordinator_on_the_way_and_afterwards(self):
        self.start()
        self.cluster.muster("suspend", self.job, "--by", "60s")
        kill(self.cluster.coordinator_pid())
        self.cluster.up()
        wait_until(lambda: self.state() != "stopping", "the job is suspended", timeout=60)
        self.check_set_aside()
        kill(self.cluster.coordinator_pid())
        self.cluster.up()
        self.check_set_aside()
        self.check_goes_on()

    def run_command(self, script):
        """A command that runs until its file `end` is there, and says so when it has begun."""
        started = self.cluster.path("started")
        loop = f"touch {started}; while [ ! -e {self.cluster.path('end')} ]; do sleep 0.05; done"
        self.job = self.cluster.submit({
            "name": "command", "workdir": str(self.cluster.root),
            "resources": {"nodes": 1, "ranks_per_node": 1, "device": "cpu"},
            "command": ["sh", "-c", f"{script}; {loop}"]})
        wait_until(started.exists, "the command has begun")

    def test_a_command_that_exits_with_0_on_request_has_not_succeeded(self):
        self.run_command("trap 'exit 0' TERM")
        self.cluster.muster("suspend", self.job, "--by", "60s", "--wait")
        self.assertEqual(self.state(), "suspended")
        self.cluster.path("end").touch()
        self.cluster.muster("resume", self.job)
        self.assertEqual(self.cluster.wait(self.job), 0, self.cluster.describe(self.job))

    def test_a_command_that_does_not_listen_is_ended_in_time(self):
        self.run_command("trap '' TERM")
        self.cluster.muster("suspend", self.job, "--by", "1s", "--wait", timeout=30)
        self.assertEqual(self.state(), "suspended")
        self.assertIn("had not stopped in time", self.cluster.get(self.job)["reason"])
        self.assertEqual(processes_of_job(self.job), [])
        self.cluster.muster("cancel", self.job)
        self.assertEqual(self.cluster.wait(self.job), 11)


if __name__ == "__main__":
    unittest.main()
