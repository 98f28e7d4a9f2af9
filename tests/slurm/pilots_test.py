"""Persistent mode in a real Slurm: a coordinator on the login node that gets its nodes by pilot jobs."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent),
                str(pathlib.Path(__file__).resolve().parents[1] / "support")]

import cluster  # noqa: E402
from embedded import BIN, SOON_DOWN, Site, processes_on, require  # noqa: E402
from lab import PATIENCE_S, descendants  # noqa: E402
from lab_config import CONTROLLER_ADDRESS  # noqa: E402

PORT = 7070
LONG = 100000  # steps that no test waits for


class Pool(Site):
    """A lab with a coordinator on its login node. Goes down with the test."""

    def __init__(self, test, nodes=3, **config):
        super().__init__(test, nodes=nodes, **SOON_DOWN)
        self.dir = self.shared / "cluster"
        self.coordinator = None
        self.lab.run(BIN / "muster", "init", "--dir", self.dir, "--cluster", "lab")
        self.configure(**config)
        self.start()

    def configure(self, **config):
        config = {"max_nodes": 2, "idle_timeout": "600s", "stop_lead": "15s", "term_grace": "3s",
                  "partition": "main", "worker": str(BIN / "muster-worker"), "slots": 1, **config}
        (self.dir / "pilots.yaml").write_text(json.dumps(config), encoding="utf-8")

    def start(self):
        # Its processes end with the lab's.
        with open(self.shared / "coordinator.log", "ab") as log:
            self.coordinator = self.lab.popen(
                BIN / "muster-coordinator", "--dir", self.dir, "--lease", "2s", "--tls-listen",
                f"{CONTROLLER_ADDRESS}:{PORT}", "--join-listen", f"{CONTROLLER_ADDRESS}:{PORT + 1}",
                stdout=log, stderr=subprocess.STDOUT)
        self.lab.wait_until(lambda: self.muster("nodes", check=False).returncode == 0,
                            "the coordinator listens")

    def kill(self):
        """The coordinator, as by a crash. It is a child of what enters the lab for it."""
        for pid in descendants(self.coordinator.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.coordinator.wait(60)

    def muster(self, *words, check=True):
        return self.lab.run(BIN / "muster", *words, "--dir", self.dir, check=check)

    def json(self, *words):
        return json.loads(self.muster(*words, "-o", "json").stdout)

    def submit_job(self, spec):
        self.muster("submit", self.write_job(spec))
        return spec["name"]

    def command_job(self, nodes, script, **more):
        self.jobs += 1
        return {"name": f"job-{self.jobs}", "workdir": str(self.shared), **more,
                "resources": {"nodes": nodes, "ranks_per_node": 1},
                "command": ["bash", "-c", script]}

    def pilots(self):
        return self.json("slurm", "pilots")["pilots"]

    def slurm_pilots(self):
        """All pilot jobs that Slurm knows, ended ones too."""
        return [job for job in self.lab.squeue() if job["name"] == "muster-pilot"]

    def nodes(self, state="ready"):
        return sorted(node["name"] for node in self.json("nodes") if node["state"] == state)

    def gang(self):
        """The nodes that have ranks."""
        return [node for node in sorted(self.lab.nodes_on) if "muster-trainer" in processes_on(self.lab, node)]

    def wait_for_nodes(self, names, timeout=PATIENCE_S):
        return self.lab.wait_until(lambda: self.nodes() == names, f"the nodes {names} are ready", timeout)

    def wait_for_job(self, name, state, timeout=PATIENCE_S):
        self.lab.wait_until(lambda: self.json("get", name)["state"] == state, f"{name} is {state}", timeout)

    def wait_for_step(self, spec, step, world=None, timeout=PATIENCE_S):
        def reached():
            metrics = self.metrics(spec)
            last = max(metrics, default=0)
            return last >= step and (world is None or metrics[last]["world_size"] == world)
        self.lab.wait_until(reached, f"step {step} with {world} ranks", timeout)
        return max(self.metrics(spec))

    def metrics(self, spec):
        return cluster.read_metrics(spec["train"]["output"]["dir"])


class Pilots(unittest.TestCase):
    def setUp(self):
        require(self)

    def test_a_queued_job_gets_its_nodes_and_idle_pilots_leave(self):
        pool = Pool(self, idle_timeout="2s")
        self.assertEqual(pool.pilots(), [])
        job = pool.submit_job(pool.command_job(2, "true"))
        pool.wait_for_job(job, "succeeded")
        self.assertEqual(len(pool.slurm_pilots()), 2)
        pool.lab.wait_until(lambda: pool.pilots() == [], "the pilots leave")
        pool.lab.wait_until(
            lambda: {entry["job_state"] for entry in pool.slurm_pilots()} <= {"CANCELLED", "COMPLETED"},
            "Slurm has ended them")
        for node in ("n1", "n2", "n3"):
            pool.lab.wait_until(lambda n=node: processes_on(pool.lab, n) == [], f"{node} is empty")
        # A later pilot is accepted although the certificate of the earlier one is not old.
        again = pool.submit_job(pool.command_job(2, "true"))
        pool.wait_for_job(again, "succeeded")

    def test_a_killed_node_is_replaced_by_another_and_the_job_goes_on(self):
        pool = Pool(self)
        spec = pool.train_job(nodes=2, steps=LONG, every=50)
        spec["resources"]["min_nodes"] = 1
        pool.submit_job(spec)
        pool.wait_for_step(spec, 60, world=2)
        pool.lab.kill_node("n2")
        step = pool.wait_for_step(spec, 60, world=1)
        pool.wait_for_nodes(["n1", "n3"])
        pool.wait_for_step(spec, step + 20, world=2)
        excluded = [pool.lab.scontrol("show", "job", entry["job_id"]) for entry in pool.slurm_pilots()]
        self.assertTrue(any("ExcNodeList=n2" in text for text in excluded))

    def test_a_spare_pilot_takes_the_place_of_a_killed_node_and_another_becomes_the_spare(self):
        pool = Pool(self, nodes=4, max_nodes=4, spares=1)
        spec = pool.train_job(nodes=2, steps=LONG, every=50)
        pool.submit_job(spec)
        pool.wait_for_nodes(["n1", "n2", "n3"])
        pool.wait_for_step(spec, 60, world=2)
        gang = pool.gang()
        spare = next(node for node in pool.nodes() if node not in gang)
        pool.lab.kill_node(gang[0])
        pool.lab.wait_until(lambda: pool.gang() == sorted([gang[1], spare]), "the spare has the rank")
        pool.wait_for_step(spec, max(pool.metrics(spec)) + 10, world=2)
        pool.wait_for_nodes(sorted([gang[1], spare, "n4"]))
        self.assertEqual(pool.gang(), sorted([gang[1], spare]))

    def test_a_unit_of_two_nodes_comes_and_is_replaced_as_a_whole(self):
        pool = Pool(self, nodes=4, nodes_per_pilot=2)
        spec = pool.train_job(nodes=2, steps=LONG, every=50)
        pool.submit_job(spec)
        pool.wait_for_step(spec, 10, world=2)
        first = pool.pilots()
        self.assertEqual([pilot["nodes"] for pilot in first], ["n[1-2]"])
        pool.lab.kill_node("n2")
        # The other node of the unit leaves with it.
        pool.lab.wait_until(lambda: [pilot["key"] for pilot in pool.pilots() if pilot["state"] == "running"]
                            not in ([], [first[0]["key"]]), "another pilot runs")
        second = next(pilot for pilot in pool.pilots() if pilot["state"] == "running")
        pool.lab.wait_until(lambda: [node["pilot"] for node in pool.json("nodes") if node["state"] == "ready"]
                            == 2 * [second["key"]], "both nodes of the new unit are ready, and no others")
        self.assertNotIn("n2", pool.nodes())
        step = max(pool.metrics(spec))
        pool.wait_for_step(spec, step + 10, world=2)
        jobs = pool.slurm_pilots()
        self.assertEqual(len(jobs), 2)
        self.assertIn("ExcNodeList=n2", pool.lab.scontrol("show", "job", second["slurm_job_id"]))

    def test_a_coordinator_that_is_killed_neither_loses_nor_doubles_a_pilot(self):
        pool = Pool(self)
        job = pool.submit_job(pool.command_job(2, f"until [[ -e {pool.shared}/finish ]]; do sleep 0.1; done"))
        asked = pool.dir / "pilots"
        pool.lab.wait_until(lambda: list(asked.glob("p*/job.yaml")), "a pilot is asked for")
        pool.kill()
        pool.start()
        pool.wait_for_job(job, "running")
        pool.kill()
        pool.start()
        (pool.shared / "finish").touch()
        pool.wait_for_job(job, "succeeded")
        living = [entry for entry in pool.slurm_pilots()
                  if entry["job_state"] in ("RUNNING", "PENDING")]
        self.assertEqual(len(living), 2, living)
        self.assertEqual(len(pool.slurm_pilots()), 2)
        self.assertEqual(sorted(entry["slurm_job_id"] for entry in pool.pilots()),
                         sorted(entry["job_id"] for entry in living))

    def test_a_pilot_is_replaced_before_its_time_is_over(self):
        pool = Pool(self, max_nodes=1, time_limit="60s")
        spec = pool.train_job(nodes=1, steps=LONG, every=LONG)
        pool.submit_job(spec)
        pool.wait_for_step(spec, 10)
        first = pool.nodes()
        pool.lab.wait_until(lambda: pool.nodes() and pool.nodes() != first and first[0] not in pool.nodes(),
                            "another node has the job")
        pool.lab.wait_until(
            lambda: "is drained: its pilot job" in pool.muster("describe", spec["name"]).stdout,
            "the job has moved")
        step = max(pool.metrics(spec))
        pool.wait_for_step(spec, step + 10)
        states = [entry["job_state"] for entry in pool.slurm_pilots()]
        self.assertNotIn("TIMEOUT", states)

    def test_pilots_without_a_coordinator_end_by_themselves(self):
        pool = Pool(self, max_nodes=1, min_nodes=1, orphan_after="6s")
        pool.lab.wait_until(pool.nodes, "a node is there")
        pool.kill()
        pool.lab.wait_until(
            lambda: all(entry["job_state"] in ("COMPLETED", "FAILED") for entry in pool.slurm_pilots()),
            "the pilot has ended")


if __name__ == "__main__":
    unittest.main()
