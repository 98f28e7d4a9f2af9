"""A node is drained: its jobs save at a step's end and move, and no step is done twice."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import (Cluster, kill, read_metrics, trajectory, trajectory_of,  # noqa: E402
                     wait_until)

class JobThatMoves(unittest.TestCase):
    """A job on two of three nodes, of which `node` is to go away, and the numbers of a calm run."""

    STEPS = 60

    def start(self, at_step=10, **train):
        self.calm = trajectory_of(self.cluster.calm(steps=self.STEPS, **train))
        self.job = self.cluster.submit(self.cluster.train_job(steps=self.STEPS, **train))
        self.cluster.wait_for_step(self.job, at_step)
        self.node = self.cluster.get(self.job)["ranks"][1]["node"]

    def state(self):
        return {n["name"]: n["state"] for n in self.cluster.json("nodes")}[self.node]

    def check_moved(self):
        self.assertEqual(self.cluster.wait(self.job), 0, self.cluster.describe(self.job))
        attempts = self.cluster.get(self.job)["attempts"]
        self.assertEqual(len(attempts), 2, self.cluster.describe(self.job))
        self.assertEqual(attempts[0]["cause_kind"], "drained")
        self.assertEqual(attempts[0]["lost_steps"], 0)
        self.assertNotIn(self.node, attempts[1]["nodes"])
        self.assertEqual(trajectory(self.cluster.output(self.job)), self.calm)


class Drain(JobThatMoves):
    def setUp(self):
        self.cluster = Cluster(self, nodes=3)
        self.start()

    def test_its_job_moves_and_nothing_is_placed_on_it_until_undrain(self):
        self.cluster.muster("drain", self.node, "--wait", timeout=90)
        self.assertEqual(self.state(), "drained")
        self.check_moved()
        spec = self.cluster.train_job(steps=10, nodes=3)
        waiting = self.cluster.submit(spec)
        wait_until(lambda: self.cluster.get(waiting)["reason"], "the job is told why it waits")
        self.assertEqual(self.cluster.get(waiting)["state"], "queued")
        self.cluster.muster("undrain", self.node)
        self.assertEqual(self.cluster.wait(waiting), 0, self.cluster.describe(waiting))

    def test_a_drain_survives_the_coordinator(self):
        self.cluster.muster("drain", self.node)
        kill(self.cluster.coordinator_pid())
        self.cluster.up()
        self.check_moved()
        wait_until(lambda: self.state() == "drained", "the node is drained")

    def test_a_job_that_would_need_the_node_waits_for_its_return(self):
        others = [n["name"] for n in self.cluster.json("nodes") if n["name"] != self.node]
        idle = next(n for n in others
                    if n not in {r["node"] for r in self.cluster.get(self.job)["ranks"]})
        self.cluster.muster("drain", idle, "--wait")
        self.cluster.muster("drain", self.node, "--wait", timeout=90)
        step = max(read_metrics(self.cluster.output(self.job)))
        self.assertLess(step, self.STEPS)
        self.assertNotIn(self.cluster.get(self.job)["state"], ("failed", "succeeded"))
        self.cluster.muster("undrain", self.node)
        self.assertEqual(self.cluster.wait(self.job), 0, self.cluster.describe(self.job))
        self.assertEqual(trajectory(self.cluster.output(self.job)), self.calm)


class StopNotice(JobThatMoves):
    """The node receives a notice from outside that it will be taken away."""

    STEPS = 16

    def setUp(self):
        self.cluster = Cluster(self, nodes=3)

    def watch_for(self, option):
        """Configures every worker with a notice file of its own; writing the file is the notice."""
        for node in [n["name"] for n in self.cluster.json("nodes")]:
            self.cluster.restart_worker(node, *option(self.notice(node)))
        # Notices are checked once a second: the job must take longer than that.
        self.start(at_step=2, batch={"per_rank": 2, "accumulation": 8})

    def notice(self, node):
        return self.cluster.path(f"{node}.notice")

    def go_away(self, seconds):
        whole = self.cluster.path("notice.new")
        whole.write_text(f"{seconds}\n", encoding="ascii")
        whole.rename(self.notice(self.node))

    def check_drained(self, why):
        wait_until(lambda: self.state() == "drained", "the node is drained", timeout=60)
        self.check_moved()
        node = next(n for n in self.cluster.json("nodes") if n["name"] == self.node)
        self.assertIn(why, node["reason"])
        self.assertTrue(node["drain_by"], "the notice says when the node goes away")

    def test_a_file_that_appears_drains_the_node(self):
        self.watch_for(lambda notice: ("--stop-notice-file", notice))
        self.go_away(600)
        self.check_drained("has appeared")

    def test_a_command_that_exits_with_0_drains_the_node(self):
        self.watch_for(lambda notice: ("--stop-notice-command", f"cat {notice}"))
        self.go_away(600)
        self.check_drained("command cat says so")


if __name__ == "__main__":
    unittest.main()
