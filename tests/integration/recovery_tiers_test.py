"""Each recovery tier (docs/recovery.md), by the fault that leads to it: what stays, what the timeline
says, and that the numbers are those of a run without faults."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import (Cluster, alive, can_have_namespaces, kill, read_metrics, trajectory,  # noqa: E402
                     trajectory_of, wait_until)

STEPS = 60


def samples(metrics):
    return {step: entry["sample_chain"] for step, entry in metrics.items()}


class Ladder(unittest.TestCase):
    def start(self, cluster, at_step=10, steps=STEPS, resources=None, restart=None, **options):
        spec = cluster.train_job(steps=steps, **options)
        spec["resources"].update(resources or {})
        spec["restart"] = restart or {}
        job = cluster.submit(spec)
        cluster.wait_for_step(job, at_step)
        return job

    def finish(self, cluster, job, timeout=120):
        self.assertEqual(cluster.wait(job, timeout), 0, cluster.describe(job))
        return cluster.get(job)["attempts"]

    def next_attempt(self, cluster, job, generation=2):
        """Once that generation trains."""
        wait_until(lambda: any(e["generation"] >= generation
                               for e in read_metrics(cluster.output(job)).values()),
                   f"generation {generation} finishes a step", timeout=60)
        return cluster.get(job)["attempts"][generation - 1]

    def next_attempt_runs(self, cluster, job, generation):
        wait_until(lambda: (got := cluster.get(job))["generation"] == generation
                   and got["attempts"][-1]["state"] == "running", f"generation {generation} runs")

    def test_in_place_survivors_keep_their_processes_and_no_step_is_lost(self):
        cluster = Cluster(self)
        calm = cluster.calm(steps=STEPS)
        for killed in (0, 1):
            with self.subTest(rank=killed):
                job = self.start(cluster)
                before = cluster.ranks(job)
                cluster.kill_rank(job, killed)
                attempt = self.next_attempt(cluster, job)
                after = cluster.ranks(job)
                self.assertEqual(attempt["tier"], "in_place")
                self.assertEqual(after[1 - killed], before[1 - killed])
                self.assertNotEqual(after[killed], before[killed])
                self.assertEqual(attempt["resumed_from"], "snapshot")
                attempts = self.finish(cluster, job)
                self.assertLessEqual(attempts[0]["lost_steps"], 1)
                self.assertRegex(attempts[0]["cause"], f"rank {killed} .*SIGKILL")
                self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))

    def test_respawn_where_the_job_asks_for_it(self):
        cluster = Cluster(self)
        calm = cluster.calm(steps=STEPS)
        job = self.start(cluster, restart={"in_place": False})
        before = cluster.ranks(job)
        cluster.kill_rank(job, 1)
        attempt = self.next_attempt(cluster, job)
        self.assertEqual(attempt["tier"], "respawn")
        self.assertFalse(set(before.values()) & set(cluster.ranks(job).values()))
        self.finish(cluster, job)
        self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))

    def test_spare_takes_the_place_of_a_node_whose_processes_are_all_killed(self):
        cluster = Cluster(self, nodes=3)
        calm = cluster.calm(steps=STEPS)
        job = self.start(cluster, resources={"spares": 1})
        lost = cluster.get(job)["ranks"][1]["node"]
        cluster.kill_node(lost, job)
        attempt = self.next_attempt(cluster, job)
        self.assertEqual(attempt["tier"], "spare")
        self.assertEqual(attempt["world_size"], 2)
        self.assertNotIn(lost, attempt["nodes"])
        attempts = self.finish(cluster, job)
        self.assertIn(lost, attempts[0]["cause"])
        self.assertLessEqual(attempts[0]["lost_steps"], 1)
        self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))

    def test_a_whole_failure_domain_is_lost_and_no_step_with_it(self):
        cluster = Cluster(self, nodes=6, up=("--failure-domains", 3))
        calm = cluster.calm(steps=STEPS, nodes=4)
        job = self.start(cluster, nodes=4, resources={"spares": 2})
        domain = {node["name"]: node["failure_domain"] for node in cluster.json("nodes")}
        before = [rank["node"] for rank in cluster.get(job)["ranks"]]
        lost = [node for node in before if domain[node] == domain[before[0]]]
        self.assertEqual(len(lost), 2, "neighbours by node rank: each would hold the other's snapshots")
        for node in lost:
            cluster.kill_node(node, job)
        attempts = self.finish(cluster, job)
        self.assertFalse(set(lost) & set(attempts[-1]["nodes"]))
        self.assertEqual({a["resumed_from"] for a in attempts[1:]}, {"snapshot"}, cluster.describe(job))
        self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))

    @unittest.skipUnless(can_have_namespaces(), "network namespaces need root and the program ip")
    def test_spare_takes_the_place_of_a_node_whose_link_is_cut(self):
        cluster = Cluster(self, nodes=3, up=("--netns", "--allow-faults"))
        calm = cluster.calm(steps=STEPS)
        job = self.start(cluster, resources={"spares": 1})
        lost = cluster.get(job)["ranks"][1]["node"]
        old = [cluster.worker_pid(lost), cluster.ranks(job)[1]]
        cluster.set_link(lost, False)
        attempt = self.next_attempt(cluster, job)
        self.assertEqual(attempt["tier"], "spare")
        self.assertNotIn(lost, attempt["nodes"])
        self.finish(cluster, job)
        self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))
        # The node still runs an old generation, which is ended when the node is back.
        cluster.set_link(lost, True)
        wait_until(lambda: not alive(old[1]), "the old rank is ended", timeout=60)
        wait_until(lambda: all(n["slots_used"] == 0 for n in cluster.json("nodes")), "slots are free")
        self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))

    def test_shrink_to_fewer_ranks_and_grow_when_the_node_is_back(self):
        cluster = Cluster(self, nodes=3)
        calm = cluster.calm(steps=STEPS, nodes=3)
        job = self.start(cluster, nodes=3, resources={"min_nodes": 2}, steps=10**5)
        lost = cluster.get(job)["ranks"][2]["node"]
        cluster.kill_node(lost, job)
        attempt = self.next_attempt(cluster, job)
        self.assertEqual((attempt["tier"], attempt["world_size"]), ("shrink", 2))
        cluster.up()
        wait_until(lambda: cluster.get(job)["world_size"] == 3, "the job grows again", timeout=120)
        attempt = cluster.get(job)["attempts"][-1]
        self.assertEqual(attempt["tier"], "grow")
        cluster.wait_for_step(job, STEPS)
        chain = samples(read_metrics(cluster.output(job)))
        self.assertEqual({step: chain[step] for step in range(1, STEPS + 1)}, samples(calm))
        cluster.muster("cancel", job)
        cluster.wait(job)

    def test_requeue_until_the_node_is_back(self):
        cluster = Cluster(self, nodes=2)
        calm = cluster.calm(steps=STEPS)
        job = self.start(cluster, at_step=25)
        cluster.kill_node(cluster.get(job)["ranks"][1]["node"], job)
        waiting = wait_until(lambda: (got := cluster.get(job))["attempts"][0]["state"] == "ended"
                             and not got["attempts"][1:] and got, "the job waits", timeout=60)
        self.assertNotIn(waiting["state"], ("failed", "succeeded"))
        cluster.up()
        self.finish(cluster, job)
        self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))

    def test_stop_when_the_loss_is_no_number(self):
        cluster = Cluster(self, up=("--allow-faults",))
        job = self.start(cluster)
        cluster.muster("fault", job, "--rank", 1, "--kind", "nan")
        self.assertEqual(cluster.wait(job), 10)
        got = cluster.get(job)
        self.assertEqual(len(got["attempts"]), 1)
        self.assertEqual(got["attempts"][0]["cause_kind"], "non_finite")
        self.assertEqual(got["attempts"][0]["failed_rank"], 1)

    def test_stop_when_the_same_fault_comes_at_the_same_step_again(self):
        cluster = Cluster(self, up=("--allow-faults",))
        # A step of many micro-batches lasts; the rank exits at its next one, within the same step.
        job = self.start(cluster, at_step=2, batch={"per_rank": 2, "accumulation": 80})
        for generation in (1, 2):
            self.next_attempt_runs(cluster, job, generation)
            cluster.muster("fault", job, "--rank", 1, "--kind", "exit=3")
        self.assertEqual(cluster.wait(job), 10, cluster.describe(job))
        got = cluster.get(job)
        self.assertEqual([(a["cause_kind"], a["failed_rank"], a["last_step"]) for a in got["attempts"]],
                         [("rank_exited", 1, got["attempts"][0]["last_step"])] * 2)
        self.assertRegex(got["reason"], r"the same fault at the same step twice.*rank 1 .*\b3\b")

    def test_two_faults_at_once_are_one_recovery_or_two_but_the_same_numbers(self):
        cluster = Cluster(self)
        calm = cluster.calm(steps=STEPS)
        job = self.start(cluster)
        for pid in cluster.ranks(job).values():
            kill(pid)
        self.next_attempt(cluster, job)
        self.finish(cluster, job)
        self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))

    def test_coordinator_killed_in_the_middle_of_a_recovery(self):
        cluster = Cluster(self)
        calm = cluster.calm(steps=STEPS)
        job = self.start(cluster)
        cluster.kill_rank(job, 1)
        kill(cluster.coordinator_pid())
        cluster.up()
        self.next_attempt(cluster, job)
        self.finish(cluster, job)
        self.assertEqual(trajectory(cluster.output(job)), trajectory_of(calm))


if __name__ == "__main__":
    unittest.main()
