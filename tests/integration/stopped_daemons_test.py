"""Guardian, worker and coordinator are stopped (SIGSTOP) in every phase of a job and go on later: what they
slept through is over for them, nothing of an old generation changes anything, and nothing is left behind."""

import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import (Cluster, can_have_namespaces, descendants, kill, processes_of_job,  # noqa: E402
                     read_metrics, run, trajectory, wait_until)

STEPS = 60
# Duration for a job with a stopped worker: long enough for its node to be suspect, too short for a stopped rank to
# count as hung, or for a stopped guardian to be ended.
SLEEP_S = 1.8


def ended(got):
    """Attempts that are over, but for the steps that the next one will have found to be lost."""
    return [{key: value for key, value in attempt.items() if key != "lost_steps"}
            for attempt in got["attempts"] if attempt["state"] == "ended"]


class SleepingDaemons(unittest.TestCase):
    """Helpers around a job with rank 0 on `self.first` and rank 1 on `self.second`."""

    @classmethod
    def start_cluster(cls, **options):
        cls.cluster = Cluster(None, **options)
        cls.addClassCleanup(cls.cluster.close)
        job = cls.cluster.submit(cls.cluster.train_job(steps=STEPS))
        if cls.cluster.wait(job) != 0:
            raise AssertionError(cls.cluster.describe(job))
        cls.calm = trajectory(cls.cluster.output(job))
        cls.first, cls.second = [rank["node"] for rank in cls.cluster.get(job)["ranks"]]

    def submit(self):
        return self.cluster.submit(self.cluster.train_job(steps=STEPS))

    def stop(self, pid):
        kill(pid, signal.SIGSTOP)
        self.addCleanup(kill, pid, signal.SIGCONT)  # whatever fails, `down` can end it
        return pid

    def go_on(self, pid):
        kill(pid, signal.SIGCONT)

    def stop_daemon(self, daemon, job, node):
        pid = {"guardian": lambda: self.cluster.guardians(job)[node],
               "worker": lambda: self.cluster.worker_pid(node),
               "coordinator": self.cluster.coordinator_pid}[daemon]()
        return self.stop(pid)

    def sleep_through(self, condition=lambda: True):
        """The daemon sleeps on while the others work: for a time, and until there is something to see."""
        until = time.monotonic() + SLEEP_S
        wait_until(lambda: time.monotonic() > until and condition(), "what goes on meanwhile")

    def attempt_state(self, job):
        attempts = self.cluster.get(job)["attempts"]
        return attempts[-1]["state"] if attempts else ""

    def wait_for_attempt(self, job, state):
        wait_until(lambda: self.attempt_state(job) == state, f"an attempt of {job} is {state}")

    def guardian(self, job, node):
        return wait_until(lambda: self.cluster.guardians(job).get(node), f"a guardian on {node}")

    def check_end(self, job, attempts, over=()):
        """It ends with the numbers of a calm run, what was over stays as it was, and nothing is left."""
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        got = self.cluster.get(job)
        self.assertEqual(len(got["attempts"]), attempts, self.cluster.describe(job))
        self.assertEqual(ended(got)[:len(over)], list(over))
        self.assertEqual(trajectory(self.cluster.output(job)), self.calm)
        wait_until(lambda: not processes_of_job(job), f"nothing is left of {job}")
        wait_until(lambda: all(n["state"] == "ready" and n["slots_used"] == 0
                               for n in self.cluster.json("nodes")), "all slots are free")


class EveryPhase(SleepingDaemons):
    """Each brings a job into a phase, holds it there, stops a daemon of the first node, and continues."""

    @classmethod
    def setUpClass(cls):
        cls.start_cluster(nodes=2)

    def each_daemon(self, timeline):
        for daemon in ("guardian", "worker", "coordinator"):
            with self.subTest(daemon=daemon):
                timeline(daemon)

    def test_preparing(self):
        def timeline(daemon):
            brake = self.stop(self.cluster.worker_pid(self.second))
            job = self.submit()
            self.wait_for_attempt(job, "preparing")
            self.guardian(job, self.first)
            sleeper = self.stop_daemon(daemon, job, self.first)
            self.go_on(brake)
            self.sleep_through()
            self.go_on(sleeper)
            self.check_end(job, attempts=1)
        self.each_daemon(timeline)

    def test_forming(self):
        def timeline(daemon):
            job = self.submit()
            guardian = self.guardian(job, self.second)
            brake = self.stop(wait_until(lambda: descendants(guardian), "rank 1 has a process")[0])
            wait_until(lambda: descendants(self.guardian(job, self.first)), "rank 0 has a process")
            sleeper = self.stop_daemon(daemon, job, self.first)
            self.sleep_through()
            self.go_on(sleeper)
            self.go_on(brake)
            self.check_end(job, attempts=1)
        self.each_daemon(timeline)

    def test_running(self):
        def timeline(daemon):
            job = self.submit()
            self.cluster.wait_for_step(job, 5)
            output = self.cluster.output(job)  # which a coordinator that sleeps does not tell
            sleeper = self.stop_daemon(daemon, job, self.first)
            step = max(read_metrics(output))
            self.sleep_through(lambda: max(read_metrics(output)) > step)
            self.go_on(sleeper)
            self.check_end(job, attempts=1)
        self.each_daemon(timeline)

    def test_a_guardian_that_does_not_go_on_is_ended(self):
        job = self.submit()
        self.cluster.wait_for_step(job, 5)
        self.stop_daemon("guardian", job, self.first)
        self.cluster.kill_rank(job, 0)  # no daemon sees its end
        self.check_end(job, attempts=2)

    def test_aborting(self):
        def timeline(daemon):
            job = self.submit()
            self.cluster.wait_for_step(job, 5)
            brake = self.stop_daemon("guardian", job, self.first)
            self.cluster.kill_rank(job, 1)
            self.wait_for_attempt(job, "aborting")
            if daemon == "guardian":
                sleeper = brake
            else:
                sleeper = self.stop_daemon(daemon, job, self.first)
                self.go_on(brake)
            self.sleep_through()
            self.go_on(sleeper)
            self.check_end(job, attempts=2)
        self.each_daemon(timeline)

    def test_parked(self):
        def timeline(daemon):
            job = self.submit()
            self.cluster.wait_for_step(job, 5)
            self.cluster.kill_node(self.second, job)
            over = wait_until(lambda: ended(self.cluster.get(job)), "the first attempt is over")
            sleeper = self.stop_daemon(daemon, job, self.first)
            self.sleep_through()
            self.go_on(sleeper)
            self.cluster.up()
            self.check_end(job, attempts=2, over=over)
        self.each_daemon(timeline)


@unittest.skipUnless(can_have_namespaces(), "network namespaces need root and the program ip")
class OldGeneration(SleepingDaemons):
    """The job goes on without the second node, whose daemon wakes up in a generation that is over."""

    @classmethod
    def setUpClass(cls):
        cls.start_cluster(nodes=3, up=("--netns", "--allow-faults"))

    def goes_on_without(self, node, job):
        """The attempt that is over, once the next one trains elsewhere."""
        wait_until(lambda: any(entry["generation"] == 2
                               for entry in read_metrics(self.cluster.output(job)).values()),
                   "generation 2 finishes a step")
        got = self.cluster.get(job)
        self.assertNotIn(node, got["attempts"][1]["nodes"])
        return ended(got)[:1]

    def start(self):
        job = self.submit()
        self.cluster.wait_for_step(job, 5)
        return job, self.cluster.ranks(job)[1], self.cluster.get(job)["ranks"][1]["node"]

    def test_a_guardian_wakes_up_in_it(self):
        job, rank, node = self.start()
        guardian = self.stop_daemon("guardian", job, node)
        kill(self.cluster.worker_pid(node))
        kill(rank)
        over = self.goes_on_without(node, job)
        self.go_on(guardian)
        self.cluster.up()
        self.check_end(job, attempts=2, over=over)

    def test_a_worker_wakes_up_in_it(self):
        job, _, node = self.start()
        worker = self.stop_daemon("worker", job, node)
        self.cluster.set_link(node, False)
        over = self.goes_on_without(node, job)
        self.cluster.set_link(node, True)
        self.go_on(worker)
        self.check_end(job, attempts=2, over=over)

    def test_a_node_that_only_takes_connections_wakes_up_in_it(self):
        job, rank, node = self.start()
        sleepers = [self.stop_daemon(daemon, job, node) for daemon in ("guardian", "worker")]
        kill(rank)
        over = self.goes_on_without(node, job)
        for sleeper in sleepers:
            self.go_on(sleeper)
        self.check_end(job, attempts=2, over=over)

    def test_no_second_coordinator_starts_while_one_sleeps(self):
        job, _, node = self.start()
        sleeper = self.stop_daemon("coordinator", job, node)
        second = run("muster-coordinator", "--dir", self.cluster.dir, check=False)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(str(sleeper), second.stderr)
        self.go_on(sleeper)
        self.check_end(job, attempts=1)


if __name__ == "__main__":
    unittest.main()
