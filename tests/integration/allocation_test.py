"""muster-worker --auto: the supervisors of an allocation start a coordinator and workers, survive
the loss of any of them, and end the allocation correctly. Slurm's commands are scripted."""

import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from allocation import Allocation  # noqa: E402
from cluster import descendants, read_metrics, run, steps_in_order, trajectory, wait_until  # noqa: E402


def programs_below(pid):
    names = {}
    for child in descendants(pid):
        try:
            names[pathlib.Path(f"/proc/{child}/exe").readlink().name] = child
        except OSError:
            continue
    return names


class AllocationTest(unittest.TestCase):
    def allocation(self, nodes=3, arguments=(), **job):
        allocation = Allocation(self, nodes, arguments)
        allocation.write_job(**job)
        return allocation

    def check_done(self, allocation, steps, code=0):
        codes = allocation.wait()
        self.assertEqual(set(codes.values()), {code}, allocation.logs())
        self.assertEqual(max(read_metrics(allocation.output)), steps)
        self.assertEqual(allocation.outcome()["action"], "done")
        wait_until(lambda: not allocation.leftovers(), "nothing is left")

    def test_a_job_runs_to_its_end(self):
        allocation = self.allocation(steps=40)
        allocation.start()
        self.check_done(allocation, 40)
        self.assertTrue((allocation.output / "model" / "config.json").exists())
        self.assertEqual(allocation.said("requeue"), [])
        self.assertEqual(allocation.said("scancel"), [])
        self.assertFalse(list(allocation.shared.glob("security-*")), "the authority is gone")
        self.assertNotIn("ca.pem", allocation.logs(), "nobody looks for keys that are gone")

    def test_the_leaders_node_is_killed(self):
        allocation = self.allocation(nodes=4, steps=100, spares=1)
        allocation.start()
        allocation.wait_for_step(30)
        self.assertEqual(allocation.leader()["node"], "n0")
        began = time.monotonic()
        step = allocation.step()
        allocation.kill_node("n0")
        allocation.write_slurm(NodeList="n1,n2,n3")  # which Slurm finds out as well
        wait_until(lambda: allocation.step() > step + 20, "training goes on")
        print(f"next steps {time.monotonic() - began:.1f} s after the leader's node was killed")
        leader = allocation.leader()
        self.assertEqual((leader["node"], leader["epoch"]), ("n1", 2), allocation.logs())
        self.check_done(allocation, 100)
        self.assertEqual(len(allocation.said("scancel")), 1, "the batch node is lost: " + allocation.logs())

    def test_another_node_is_killed(self):
        allocation = self.allocation(nodes=3, steps=80, spares=1)
        allocation.start()
        allocation.wait_for_step(30)
        step = allocation.step()
        allocation.kill_node("n1")
        wait_until(lambda: allocation.step() > step + 20, "training goes on")
        self.assertEqual(allocation.leader()["epoch"], 1)
        self.check_done(allocation, 80)
        self.assertEqual(allocation.said("scancel"), [])

    def test_the_coordinator_is_killed(self):
        allocation = self.allocation(nodes=2, steps=80)
        allocation.start()
        allocation.wait_for_step(20)
        os.kill(programs_below(allocation.tasks["n0"].pid)["muster-coordinator"], signal.SIGKILL)
        wait_until(lambda: allocation.leader()["epoch"] == 2, "another coordinator")
        self.check_done(allocation, 80)

    def test_a_worker_is_killed(self):
        allocation = self.allocation(nodes=2, steps=60)
        allocation.start()
        allocation.wait_for_step(20)
        os.kill(programs_below(allocation.tasks["n1"].pid)["muster-worker"], signal.SIGKILL)
        self.check_done(allocation, 60)

    def test_ordered_to_end_it_saves_and_the_next_run_goes_on(self):
        undisturbed = self.allocation(nodes=2, steps=160)
        undisturbed.start()
        self.check_done(undisturbed, 160)

        allocation = self.allocation(nodes=2, steps=160)
        allocation.start()
        allocation.wait_for_step(30)
        os.kill(allocation.tasks["n1"].pid, signal.SIGTERM)  # not the leader's: the leader must learn of it
        self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
        step = allocation.step()
        self.assertLess(step, 160)
        self.assertEqual(len(allocation.said("scontrol", "requeue")), 1)
        self.assertEqual(allocation.outcome()["action"], "requeued")
        allocation.requeue()
        self.check_done(allocation, 160)
        self.assertEqual(trajectory(allocation.output), trajectory(undisturbed.output))

    def test_notices_that_reach_every_process_end_none_before_the_state_is_saved(self):
        # Where Slurm keeps track of processes by their parents, it signals all that descend from a task.
        for notice in (signal.SIGUSR2, signal.SIGTERM):
            with self.subTest(notice.name):
                allocation = self.allocation(nodes=2, steps=300, every=300)
                allocation.start()
                allocation.wait_for_step(20)
                for task in allocation.tasks.values():
                    for pid in (*descendants(task.pid), task.pid):
                        os.kill(pid, notice)
                self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
                self.assertEqual(allocation.leader()["epoch"], 1, "its coordinator has gone on")
                saved = allocation.step()
                allocation.requeue()
                self.check_done(allocation, 300)
                rows = read_metrics(allocation.output)
                again = min(step for step, row in rows.items() if row["generation"] > rows[1]["generation"])
                self.assertEqual(again, saved + 1, "no step is done twice")

    def test_before_the_end_of_its_time_it_is_saved(self):
        allocation = self.allocation(nodes=2, steps=100000, arguments=["--stop-lead", "20"])
        end = time.gmtime(time.time() + 27)
        allocation.write_slurm(EndTime=time.strftime("%Y-%m-%dT%H:%M:%S", end))
        allocation.start()
        self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
        self.assertGreater(allocation.step(), 0)
        self.assertIn("time ends", allocation.outcome()["reason"])
        self.assertEqual(len(allocation.said("scontrol", "requeue")), 1)

    def test_warned_of_its_end_it_asks_slurm_when(self):
        allocation = self.allocation(nodes=2, steps=100000)
        at = lambda seconds: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + seconds))  # noqa: E731
        allocation.write_slurm(EndTime=at(86400))
        allocation.start()
        allocation.wait_for_step(25)
        os.kill(allocation.rank("n1"), signal.SIGSTOP)  # it takes all the time that there is
        allocation.write_slurm(EndTime=at(12))  # like a preemption with some grace
        for task in allocation.tasks.values():
            task.send_signal(signal.SIGUSR2)
        self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
        self.assertRegex((allocation.root / "task-n0.log").read_text(encoding="utf-8"),
                         r"SIGUSR2 \(run 0\): the job is to be saved and suspended within \d s")
        self.assertEqual(len(allocation.said("scontrol", "requeue")), 1)

    def test_at_sigterm_it_takes_no_longer_than_slurm_leaves(self):
        allocation = self.allocation(nodes=2, steps=100000)
        allocation.write_slurm(KillWait="9")
        allocation.start()
        allocation.wait_for_step(25)
        for task in allocation.tasks.values():
            task.send_signal(signal.SIGTERM)
        self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
        self.assertRegex((allocation.root / "task-n0.log").read_text(encoding="utf-8"),
                         r"SIGTERM \(run 0\): the job is to be saved and suspended within [1-3] s")

    def test_a_node_that_is_lost_for_good_is_excluded_from_the_next_run(self):
        allocation = self.allocation(nodes=2, steps=100000, arguments=["--node-timeout", "3"])
        allocation.start()
        allocation.wait_for_step(20)
        allocation.kill_node("n1")
        self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
        self.assertEqual(allocation.outcome()["exclude"], ["n1"])
        self.assertEqual(len(allocation.said("scontrol", "requeue")), 1)

    def test_what_the_user_has_cancelled_is_not_requeued(self):
        allocation = self.allocation(nodes=2, steps=100000)
        allocation.start()
        allocation.wait_for_step(5)
        allocation.write_slurm(JobState="CANCELLED")
        for task in allocation.tasks.values():
            task.send_signal(signal.SIGTERM)
        self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
        self.assertEqual(allocation.said("requeue"), [])
        self.assertEqual((allocation.outcome()["action"], allocation.outcome()["closed"]), ("left", True))

    def test_a_job_that_is_refused_is_not_retried(self):
        allocation = self.allocation(nodes=2, steps=10)
        job = allocation.root / "job.yaml"
        job.write_text(job.read_text(encoding="utf-8").replace('"optimizer": {', '"optimizer": {"wrong_key": 1, '),
                       encoding="utf-8")
        allocation.start()
        self.assertEqual(set(allocation.wait().values()), {65})
        self.assertIn("wrong_key", (allocation.root / "task-n0.log").read_text(encoding="utf-8"))

    def test_a_killed_supervisor_on_the_batch_node_is_no_lost_node(self):
        allocation = self.allocation(nodes=3, steps=70, spares=1)
        allocation.start()
        allocation.wait_for_step(20)
        allocation.kill_node("n0")
        self.check_done(allocation, 70)
        self.assertEqual(allocation.said("scancel"), [], "Slurm has it, and its script ends the job")

    def test_a_requeue_that_slurm_does_not_take_is_asked_for_again(self):
        allocation = self.allocation(nodes=2, steps=100000)
        allocation.start()
        allocation.wait_for_step(5)
        allocation.fail_next(2)
        os.kill(allocation.tasks["n1"].pid, signal.SIGTERM)
        self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
        self.assertEqual(len(allocation.said("scontrol", "requeue")), 3)
        self.assertEqual(allocation.outcome()["action"], "requeued")

    def test_when_the_closer_dies_another_informs_slurm(self):
        allocation = self.allocation(nodes=2, steps=100000)
        allocation.start()
        allocation.wait_for_step(5)
        allocation.fail_next(1000)
        os.kill(allocation.tasks["n1"].pid, signal.SIGTERM)
        wait_until(lambda: allocation.said("scontrol", "requeue"), "the leader asks")
        self.assertIsNone(allocation.tasks["n1"].poll(), "the other one stays")
        allocation.kill_node("n0")
        allocation.fail_next(0)
        self.assertEqual(allocation.wait(), {"n1": 75}, allocation.logs())
        self.assertEqual(allocation.outcome()["action"], "requeued")

    def without_coordinators(self):
        """Two nodes train, but neither can run a coordinator any more."""
        allocation = self.allocation(nodes=2, steps=100000, arguments=["--give-up", "3"])
        allocation.use_own_programs()
        allocation.start()
        allocation.wait_for_step(30)
        allocation.break_coordinators()
        return allocation

    def test_where_no_node_can_run_a_coordinator_the_allocation_is_requeued_and_the_next_run_goes_on(self):
        allocation = self.without_coordinators()
        os.kill(programs_below(allocation.tasks["n0"].pid)["muster-coordinator"], signal.SIGKILL)
        self.assertEqual(allocation.wait(), {"n0": 75, "n1": 75}, allocation.logs())
        self.assertEqual(len(allocation.said("scontrol", "requeue")), 1)
        outcome = allocation.outcome()
        self.assertEqual((outcome["action"], outcome["closed"], outcome["exclude"]), ("requeued", True, []))
        self.assertIn("no node of this allocation can run a coordinator", outcome["reason"])
        wait_until(lambda: not allocation.leftovers(), "nothing is left")
        before = steps_in_order(allocation.output)
        allocation.mend_coordinators()
        allocation.requeue()
        wait_until(lambda: len(steps_in_order(allocation.output)) > len(before), "training goes on")
        self.assertGreater(steps_in_order(allocation.output)[len(before)], 20, "from its last checkpoint")

    def test_where_no_node_can_run_a_coordinator_nor_be_requeued_the_allocation_is_cancelled(self):
        allocation = self.without_coordinators()
        allocation.kill_node("n0")  # the batch node, without which no script ends the job
        allocation.write_slurm(NodeList="n1", Requeue="0")
        self.assertEqual(allocation.wait(), {"n1": 75}, allocation.logs())
        self.assertEqual(len(allocation.said("scancel")), 1)
        self.assertEqual(allocation.said("requeue"), [])

    def test_a_second_srun_in_one_allocation_is_a_job_of_its_own(self):
        allocation = self.allocation(nodes=2, steps=20)
        allocation.shared = allocation.root / "state"
        allocation.arguments = ["--state", str(allocation.shared)]
        allocation.start()
        self.check_done(allocation, 20)
        allocation.output = allocation.root / "second"
        allocation.write_job(steps=40)
        allocation.start_again()
        self.check_done(allocation, 40)
        self.assertTrue((allocation.shared / "journal-2").exists())

    def test_a_supervisor_of_an_earlier_run_that_wakes_up_leaves(self):
        allocation = self.allocation(nodes=2, steps=150)
        allocation.start()
        allocation.wait_for_step(20)
        old = allocation.tasks["n0"]
        for pid in [old.pid, *descendants(old.pid)]:
            os.kill(pid, signal.SIGSTOP)  # like a paused machine
        del allocation.tasks["n0"]
        allocation.requeue()
        wait_until(lambda: allocation.leader(), "the next run begins")
        epoch = allocation.leader()["epoch"]
        for pid in [*descendants(old.pid), old.pid]:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(old.wait(60), 68, allocation.logs())
        self.check_done(allocation, 150)
        self.assertEqual(allocation.leader()["epoch"], epoch, "it has not fenced the coordinator")

    def test_a_job_that_its_user_suspends_ends_the_allocation_and_a_requeue_resumes_it(self):
        allocation = self.allocation(nodes=2, steps=150)
        allocation.start()
        allocation.wait_for_step(20)
        node = allocation.root / "tmp" / "n0"
        endpoint = next(node.glob("muster-*/*/coordinator/endpoint.json"))
        run("muster", "--dir", endpoint.parents[1], "suspend", "job")
        self.assertEqual(set(allocation.wait().values()), {12}, allocation.logs())
        self.assertEqual(allocation.said("requeue"), [])
        allocation.requeue()
        self.check_done(allocation, 150)

    def test_a_node_that_the_coordinator_does_not_use_is_excluded_from_the_next_run(self):
        allocation = self.allocation(nodes=2, steps=100000, arguments=["--node-timeout", "3"])
        allocation.start()
        allocation.wait_for_step(10)
        endpoint = next((allocation.root / "tmp" / "n0").glob("muster-*/*/coordinator/endpoint.json"))
        run("muster", "--dir", endpoint.parents[1], "drain", "n1")
        self.assertEqual(set(allocation.wait().values()), {75}, allocation.logs())
        self.assertEqual(allocation.outcome()["exclude"], ["n1"])

    def test_a_waiting_job_leaves_no_guardian_behind(self):
        allocation = self.allocation(nodes=2, steps=100000, arguments=["--node-timeout", "2"])
        allocation.start()
        allocation.wait_for_step(10)
        allocation.kill_node("n1")
        allocation.wait()
        wait_until(lambda: not allocation.leftovers(), "nothing is left")

    def test_when_slurm_does_not_answer_the_job_runs_all_the_same(self):
        allocation = self.allocation(nodes=2, steps=40)
        allocation.write_slurm(down=True)
        allocation.start()
        self.check_done(allocation, 40)


if __name__ == "__main__":
    unittest.main()
