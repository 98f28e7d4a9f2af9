"""Embedded mode in a real Slurm: one sbatch job brings its own coordinator and survives its nodes."""

import json
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from embedded import BIN, SOON_DOWN, Site, processes_on, program_of, require  # noqa: E402

# Rank 0 listens at the meeting address, and sends all ranks the list of ranks with their addresses.
MEET = """import json, os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
meeting = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
own = {"rank": rank, "host": socket.gethostname()}
if rank == 0:
    with socket.create_server(meeting) as door:
        door.settimeout(60)
        peers = [door.accept() for _ in range(world - 1)]
    all_of_us = [{**own, "from": meeting[0]}]
    for peer, address in peers:
        peer.settimeout(60)
        all_of_us.append({**json.loads(peer.makefile().readline()), "from": address[0]})
    text = json.dumps(sorted(all_of_us, key=lambda one: one["rank"]))
    for peer, _ in peers:
        peer.sendall(text.encode() + b"\\n")
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(meeting, timeout=60)
            break
        except ConnectionRefusedError:  # rank 0 is not up yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    peer.sendall(json.dumps(own).encode() + b"\\n")
    text = peer.makefile().readline()
print(json.dumps({"env": dict(os.environ), "all": json.loads(text)}))
"""


class Undisturbed(unittest.TestCase):
    """Every scenario's losses must equal, bit for bit, those of a run on two nodes without faults."""

    STEPS = 60  # of which those behind a fault that comes at once, at step 20, are enough
    EVERY = 15  # steps from one checkpoint to the next
    expected = {}  # by number of steps

    def setUp(self):
        require(self)

    def job(self, site, **options):
        return site.train_job(nodes=2, steps=self.STEPS, every=self.EVERY, **options)

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
        # Without its batch host nothing else would end it: it would hold its nodes until its time is over.
        self.assertIn(run.wait_for_end(), ("COMPLETED", "CANCELLED", "NODE_FAIL"))
        self.assert_equal_to_undisturbed(run)

    def test_without_a_spare_the_job_is_requeued_without_the_lost_node(self):
        site = Site(self, nodes=3, **SOON_DOWN)
        run = site.submit(self.job(site), "-N2", auto="--node-timeout 4")
        run.wait_for_step(20)
        site.lab.power_loss("n2")
        site.lab.start_again_now(run.slurm_job, without="n2")
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.slurm()["nodes"], "n[1,3]")
        self.assert_equal_to_undisturbed(run)

    def test_a_node_that_was_cut_off_changes_nothing_when_it_is_back(self):
        # On a busy machine the cut outlasts a short SlurmdTimeout; then Slurm fails the step.
        site = Site(self, nodes=3)
        run = site.submit(self.job(site), "-N3")
        run.wait_for_step(20)
        node = run.member()
        site.lab.cut_link(node)
        step = run.last_step()
        run.wait_for_step(step + 5)
        # Two at least; three if the ranks reported the silence before the node was given up.
        generation = run.metrics()[step + 5]["generation"]
        site.lab.heal_link(node)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assert_equal_to_undisturbed(run)
        self.assertGreater(generation, 1)
        logs = sorted((site.shared / f"{run.spec['name']}-supervisors").glob("*.log"))
        self.assertEqual(run.metrics()[self.STEPS]["generation"], generation,
                         "\n".join(log.read_text()[-6000:] for log in logs))


class WithoutSpares(Undisturbed):
    def test_a_killed_rank_is_started_again_in_place(self):
        site = Site(self, nodes=2)
        run = site.submit(self.job(site), "-N2")
        run.wait_for_step(20)
        rank = next(pid for pid in site.lab.processes("n2") if program_of(pid) == "muster-trainer")
        os.kill(rank, signal.SIGKILL)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assert_equal_to_undisturbed(run)
        self.assertEqual(run.metrics()[self.STEPS]["generation"], 2)
        self.assertEqual(run.leader()["epoch"], 1)
        self.assertEqual(run.slurm()["restart_cnt"], 0)

    def test_a_gang_that_may_have_fewer_nodes_goes_on_with_those_that_are_left(self):
        site = Site(self, nodes=2, **SOON_DOWN)
        spec = self.job(site)
        spec["resources"]["min_nodes"] = 1
        run = site.submit(spec, "-N2")
        run.wait_for_step(20)
        site.lab.kill_node("n2")
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.outcome()["exit_code"], 0)
        self.assertEqual(sorted(run.metrics()), list(range(1, self.STEPS + 1)))
        worlds = [run.metrics()[step]["world_size"] for step in (1, self.STEPS)]
        self.assertEqual(worlds, [2, 1])
        self.assertEqual(run.leader()["epoch"], 1)
        self.assertEqual(run.slurm()["restart_cnt"], 0)

    def test_a_batch_host_that_reboots_at_once_ends_the_run_and_the_next_one_goes_on(self):
        # Slurm never has the node DOWN, finds the batch script missing there, and ends the whole job.
        site = Site(self, nodes=2, settings={"BatchStartTimeout": 1, "MessageTimeout": 3})
        run = site.submit(self.job(site), "-N2")
        run.wait_for_step(20)
        site.lab.power_loss("n1")
        site.lab.revive_node("n1")
        site.lab.start_again_now(run.slurm_job)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual((run.slurm()["restart_cnt"], run.slurm()["nodes"]), (1, "n[1-2]"))
        self.assert_equal_to_undisturbed(run)


class SlurmsOrders(Undisturbed):
    STEPS = 150  # orders take a second or two to arrive, in which a fast machine trains on
    EVERY = 100000  # no checkpoint is written on its own

    def assert_saved_at_its_last_step(self, run, restarts=1):
        """The second run began where the first one ended: no step was done twice, none is missing."""
        self.assertEqual(run.slurm()["restart_cnt"], restarts)
        self.assertEqual(run.steps_in_order(), list(range(1, self.STEPS + 1)))
        self.assert_equal_to_undisturbed(run)

    def preempt(self, site, *runs):
        urgent = site.lab.sbatch("sleep 1", f"-N{site.lab.plan.nodes}", "--exclusive", "-p", "urgent")
        site.lab.wait_for_state(urgent, "COMPLETED")
        for run in runs:
            site.lab.start_again_now(run.slurm_job)

    def test_a_preempted_job_saves_and_goes_on_when_it_runs_again(self):
        site = Site(self, nodes=2, kill_wait_s=30)
        run = site.submit(self.job(site), "-N2", term_grace_s=25)
        run.wait_for_step(30)
        self.preempt(site, run)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assert_saved_at_its_last_step(run)

    def test_preempted_with_grace_each_job_saves_at_the_signal_that_slurm_sends_it(self):
        # The grace is longer than any wait here: the supervisors end it.
        site = Site(self, nodes=4, grace_s=300,
                    settings={"SlurmctldParameters": "preempt_send_user_signal"})
        runs = {"SIGTERM": site.submit(self.job(site), "-N2", term_grace_s=25),
                "SIGUSR2": site.submit(self.job(site), "-N2", "--signal=USR2@30", term_grace_s=25)}
        for run in runs.values():
            run.wait_for_step(30)
        self.preempt(site, *runs.values())
        for signal, run in runs.items():
            with self.subTest(signal):
                self.assertEqual(run.wait_for_end(), "COMPLETED")
                self.assert_saved_at_its_last_step(run)
                told = (site.shared / f"{run.spec['name']}-supervisors" / "0.log").read_text()
                self.assertIn(f"suspended: the allocation received {signal} (run 0)", told)

    def test_a_requeued_job_goes_on_on_other_nodes(self):
        site = Site(self, nodes=4, kill_wait_s=30)
        run = site.submit(self.job(site), "-N2", term_grace_s=25)
        run.wait_for_step(30)
        self.assertEqual(run.slurm()["nodes"], "n[1-2]")
        site.lab.scontrol("requeue", run.slurm_job)
        site.lab.wait_for_state(run.slurm_job, "PENDING")
        site.lab.scontrol("update", f"jobid={run.slurm_job}", "ExcNodeList=n1,n2")
        site.lab.start_again_now(run.slurm_job, without="n[1-2]")
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.slurm()["nodes"], "n[3-4]")
        self.assert_saved_at_its_last_step(run)

    def test_before_its_time_is_over_a_job_saves_and_is_requeued(self):
        site = Site(self, nodes=2)
        # Slurm's shortest limit is one minute; the first run trains for seven seconds of it. The second run
        # has time for all that is left, however slow the machine is.
        run = site.submit(self.job(site), "-N2", "--time=1",
                          auto="--stop-lead $((SLURM_RESTART_COUNT ? 5 : 53))")
        site.lab.start_again_now(run.slurm_job, options=["TimeLimit=5"])
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assert_saved_at_its_last_step(run)

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
        program = site.shared / "meet.py"
        program.write_text(MEET, encoding="utf-8")
        spec = {"name": "command", "resources": {"nodes": 2, "ranks_per_node": 2, "device": "cpu"},
                "workdir": str(site.shared), "rendezvous": "rank0",
                "command": ["/usr/bin/python3", str(program)]}
        path = site.write_job(spec)
        job = site.lab.sbatch(f"srun --ntasks-per-node=1 --no-kill {BIN}/muster-worker --auto --job {path}",
                              "-N2", "--exclusive")
        site.lab.wait_for_state(job, "COMPLETED")
        logs = sorted(site.shared.glob("**/logs/1/rank-*.log"))
        told = [json.loads(log.read_text()) for log in logs]
        self.assertEqual([one["all"] for one in told], 4 * [[
            {"rank": 0, "host": "n1", "from": "10.77.0.1"}, {"rank": 1, "host": "n1", "from": "10.77.0.1"},
            {"rank": 2, "host": "n2", "from": "10.77.0.2"}, {"rank": 3, "host": "n2", "from": "10.77.0.2"}]])
        self.assertEqual([(one["env"]["RANK"], one["env"]["NODE_RANK"]) for one in told],
                         [("0", "0"), ("1", "0"), ("2", "1"), ("3", "1")])
        self.assertEqual({one["env"]["MASTER_ADDR"] for one in told}, {"10.77.0.1"})


if __name__ == "__main__":
    unittest.main()
