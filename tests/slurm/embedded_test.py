"""Embedded mode in a real Slurm: one sbatch job brings its own coordinator and survives its nodes."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from embedded import BIN, SOON_DOWN, Site, processes_on, require  # noqa: E402

class Undisturbed(unittest.TestCase):
    """Every scenario's losses must equal, bit for bit, those of a run on two nodes without faults."""

    STEPS = 60  # of which those behind a fault that comes at once, at step 20, are enough
    expected = {}  # by number of steps

    def setUp(self):
        require(self)

    def job(self, site, **options):
        return site.train_job(nodes=2, steps=self.STEPS, every=15, **options)

    def assert_equal_to_undisturbed(self, run):
        if self.STEPS not in self.expected:
            site = Site(self, nodes=2)
            calm = site.submit(self.job(site, name="calm"), "-N2")
            self.assertEqual(calm.wait_for_end(), "COMPLETED")
            self.expected[self.STEPS] = calm.trajectory()
            self.assertEqual([step for step, *_ in calm.trajectory()], list(range(1, self.STEPS + 1)))
        self.assertEqual(run.trajectory(), self.expected[self.STEPS])


class HappyPath(Undisturbed):
    def test_one_sbatch_job_trains_on_three_nodes_and_leaves_nothing_running(self):
        site = Site(self, nodes=3)
        run = site.submit(site.train_job(nodes=3, steps=30, every=10), "-N3")
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.exit_code(), 0)
        self.assertEqual(run.outcome()["exit_code"], 0)
        self.assertEqual(run.leader()["index"], 0)
        self.assertEqual(sorted(run.metrics()), list(range(1, 31)))
        self.assertEqual(run.metrics()[30]["world_size"], 3)
        self.assertTrue(list((run.output / "model").glob("*.safetensors")))
        for node in ("n1", "n2", "n3"):
            site.lab.wait_until(lambda n=node: processes_on(site.lab, n) == [], f"{node} is empty")

    def test_a_job_that_fails_says_so_by_its_exit_code_and_is_not_requeued(self):
        site = Site(self, nodes=2)
        job = site.train_job(nodes=2, steps=30)
        job["train"]["model"]["path"] = str(site.shared / "no-model")
        run = site.submit(job, "-N2")
        self.assertEqual(run.wait_for_end(), "FAILED")
        self.assertEqual(run.exit_code(), 10)
        self.assertEqual(run.slurm()["restart_cnt"], 0)

    def test_a_bad_job_file_ends_the_step_at_once_with_the_line_named(self):
        site = Site(self, nodes=2)
        job = site.train_job(nodes=2)
        job["resources"]["nodez"] = 2
        run = site.submit(job, "-N2")
        self.assertEqual(run.wait_for_end(), "FAILED")
        self.assertEqual(run.exit_code(), 65)
        self.assertIn("nodez", (site.shared / f"{job['name']}-supervisors" / "0.log").read_text())


class LostNodes(Undisturbed):
    def test_a_killed_node_is_replaced_by_the_spare(self):
        site = Site(self, nodes=3, **SOON_DOWN)
        run = site.submit(self.job(site), "-N3")
        run.wait_for_step(20)
        site.lab.kill_node(run.member())
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.outcome()["exit_code"], 0)
        self.assert_equal_to_undisturbed(run)
        self.assertEqual(run.metrics()[self.STEPS]["generation"], 2)
        self.assertEqual(run.slurm()["restart_cnt"], 0)

    def test_the_batch_host_is_killed_and_the_next_node_takes_over(self):
        site = Site(self, nodes=3, **SOON_DOWN)
        run = site.submit(self.job(site), "-N3")
        run.wait_for_step(20)
        epoch = run.leader()["epoch"]
        site.lab.power_loss("n1")
        site.lab.wait_until(lambda: run.leader()["epoch"] > epoch, "another node leads")
        self.assertEqual(run.leader()["node"], "n2")
        site.lab.wait_until(lambda: run.outcome(), "the job ends")
        self.assertEqual(run.outcome()["exit_code"], 0)
        # Without its batch host nobody else would end it: it would hold its nodes until its time is over.
        self.assertIn(run.wait_for_end(), ("COMPLETED", "CANCELLED", "NODE_FAIL"))
        self.assert_equal_to_undisturbed(run)

    def test_without_a_spare_the_job_is_requeued_without_the_lost_node(self):
        site = Site(self, nodes=3, **SOON_DOWN)
        run = site.submit(self.job(site), "-N2", auto="--patience 4")
        run.wait_for_step(20)
        site.lab.power_loss("n2")
        site.lab.start_again_now(run.slurm_job, without="n2")
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.slurm()["nodes"], "n[1,3]")
        self.assert_equal_to_undisturbed(run)

    def test_a_node_that_was_cut_off_changes_nothing_when_it_is_back(self):
        site = Site(self, nodes=3, **SOON_DOWN)
        run = site.submit(self.job(site), "-N3")
        run.wait_for_step(20)
        node = run.member()
        site.lab.cut_link(node)
        step = run.last_step()
        run.wait_for_step(step + 5)
        # Two at least; three where the ranks told of the silence before the node was given up.
        generation = run.metrics()[step + 5]["generation"]
        site.lab.heal_link(node)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assert_equal_to_undisturbed(run)
        self.assertGreater(generation, 1)
        self.assertEqual(run.metrics()[self.STEPS]["generation"], generation)


class SlurmsOrders(Undisturbed):
    STEPS = 150  # orders take a second or two to arrive, in which a fast machine trains on

    def test_a_preempted_job_saves_and_goes_on_when_it_runs_again(self):
        site = Site(self, nodes=2)
        run = site.submit(self.job(site), "-N2")
        run.wait_for_step(30)
        urgent = site.lab.sbatch("sleep 1", "-N2", "--exclusive", "-p", "urgent")
        site.lab.wait_for_state(urgent, "COMPLETED")
        site.lab.start_again_now(run.slurm_job)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.slurm()["restart_cnt"], 1)
        self.assert_equal_to_undisturbed(run)

    def test_a_requeued_job_goes_on_on_other_nodes(self):
        site = Site(self, nodes=4)
        run = site.submit(self.job(site), "-N2")
        run.wait_for_step(30)
        self.assertEqual(run.slurm()["nodes"], "n[1-2]")
        site.lab.scontrol("requeue", run.slurm_job)
        site.lab.wait_for_state(run.slurm_job, "PENDING")
        site.lab.scontrol("update", f"jobid={run.slurm_job}", "ExcNodeList=n1,n2")
        site.lab.start_again_now(run.slurm_job, without="n[1-2]")
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.slurm()["nodes"], "n[3-4]")
        self.assert_equal_to_undisturbed(run)

    def test_before_its_time_is_over_a_job_saves_and_is_requeued(self):
        site = Site(self, nodes=2)
        # Of the minute, which is the least that Slurm gives, seven seconds are for training at first.
        run = site.submit(self.job(site), "-N2", "--time=1",
                          auto="--stop-lead $((SLURM_RESTART_COUNT ? 5 : 53))")
        site.lab.start_again_now(run.slurm_job)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertGreaterEqual(run.slurm()["restart_cnt"], 1)
        self.assert_equal_to_undisturbed(run)

    def test_a_cancelled_job_stays_cancelled(self):
        site = Site(self, nodes=2)
        run = site.submit(self.job(site), "-N2")
        run.wait_for_step(10)
        site.lab.run("scancel", run.slurm_job)
        self.assertEqual(run.wait_for_end(), "CANCELLED")
        for node in ("n1", "n2"):
            site.lab.wait_until(lambda n=node: processes_on(site.lab, n) == [], f"{node} is empty")
        self.assertEqual(run.slurm()["restart_cnt"], 0)

    def test_a_restarted_slurmctld_disturbs_nothing(self):
        site = Site(self, nodes=2)
        run = site.submit(self.job(site), "-N2")
        run.wait_for_step(20)
        site.lab.restart_controller()
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assert_equal_to_undisturbed(run)

    def test_each_task_of_an_array_is_a_job_of_its_own(self):
        site = Site(self, nodes=2)
        spec = site.train_job(nodes=1, steps=20)
        where = f"{spec['train']['output']['dir']}-$SLURM_ARRAY_TASK_ID"
        first = site.submit(spec, "-N1", "--array=1-2",
                            auto=f'--set "train.output.dir={where}"')
        site.lab.wait_until(
            lambda: [job["job_state"] for job in site.lab.squeue()] == ["COMPLETED"] * 2,
            "both tasks complete")
        for task in (1, 2):
            metrics = pathlib.Path(f"{first.output}-{task}") / "metrics.jsonl"
            self.assertEqual(len(metrics.read_text().splitlines()), 20)


class HetJobs(Undisturbed):
    def test_the_coordinator_sits_on_the_first_component_a_cpu_node(self):
        site = Site(self, nodes=3, gpus=1, cpu_nodes=1)
        run = site.submit(self.job(site), "-N1", "--nodelist=n3", ":", "-N2", "--gpus-per-node=1",
                          srun="--het-group=0,1")
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.leader()["node"], "n3")
        self.assert_equal_to_undisturbed(run)


class Commands(Undisturbed):
    def test_a_program_that_reads_torchruns_environment_meets_over_the_nodes(self):
        site = Site(self, nodes=2)
        program = site.shared / "hello.py"
        program.write_text("import json, os\nprint(json.dumps(dict(os.environ)))\n")
        site.jobs += 1
        spec = {"name": "command", "resources": {"nodes": 2, "ranks_per_node": 1, "device": "cpu"},
                "workdir": str(site.shared), "command": ["/usr/bin/python3", str(program)]}
        path = site.write_job(spec)
        job = site.lab.sbatch(f"srun --ntasks-per-node=1 --no-kill {BIN}/muster-worker --auto --job {path}",
                              "-N2", "--exclusive")
        site.lab.wait_for_state(job, "COMPLETED")
        logs = sorted(site.shared.glob("**/logs/1/rank-*.log"))
        told = [json.loads(log.read_text()) for log in logs]
        self.assertEqual([env["RANK"] for env in told], ["0", "1"])
        self.assertEqual({env["MASTER_ADDR"] for env in told}, {"10.77.0.1"})
        self.assertEqual([env["NODE_RANK"] for env in told], ["0", "1"])


if __name__ == "__main__":
    unittest.main()
