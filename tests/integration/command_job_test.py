"""Any program that reads torchrun's environment is launched and restarted like the trainer."""

import os
import pathlib
import resource
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, alive, kill, wait_until  # noqa: E402

PROBE = os.environ["MUSTER_PROBE"]


def environment(log):
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


class CommandJob(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self)

    def command_job(self, command, **more):
        return {"name": "command", "resources": {"nodes": 2, "ranks_per_node": 2, "device": "cpu"},
                "env": {"PROBE_GREETING": "hello there"}, "workdir": str(self.cluster.root),
                "command": command, **more}

    def logs(self, job, generation=1):
        folder = self.cluster.output(job) / "logs" / str(generation)
        return [(folder / f"rank-{rank}.log").read_text() for rank in range(4)]

    def check_environment(self, job, use_agent_store):
        seen = [environment(log) for log in self.logs(job)]
        self.assertEqual([e["RANK"] for e in seen], list("0123"))
        self.assertEqual([e["ROLE_RANK"] for e in seen], list("0123"))
        self.assertEqual([e["LOCAL_RANK"] for e in seen], list("0101"))
        self.assertEqual([e["NODE_RANK"] for e in seen], list("0011"))
        self.assertEqual([e["GROUP_RANK"] for e in seen], list("0011"))
        self.assertEqual(len({e["MASTER_PORT"] for e in seen}), 1)
        for e in seen:
            self.assertEqual((e["WORLD_SIZE"], e["LOCAL_WORLD_SIZE"]), ("4", "2"))
            self.assertEqual((e["ROLE_WORLD_SIZE"], e["GROUP_WORLD_SIZE"]), ("4", "2"))
            self.assertEqual(e["TORCHELASTIC_RESTART_COUNT"], "0")
            self.assertEqual(e["TORCHELASTIC_USE_AGENT_STORE"] == "True", use_agent_store)
            self.assertEqual((e["MUSTER_JOB_ID"], e["MUSTER_GENERATION"]), (job, "1"))
            self.assertEqual(e["OMP_NUM_THREADS"], "1")
            self.assertEqual(e["PROBE_GREETING"], "hello there")
            for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_MAX_RESTARTS",
                         "TORCHELASTIC_ERROR_FILE", "MUSTER_CHECKPOINT_DIR"):
                self.assertTrue(e[name], name)
        for log in self.logs(job):
            self.assertEqual(log.splitlines()[-1], "met")

    def test_the_agent_serves_the_rendezvous(self):
        job = self.cluster.submit(self.command_job([PROBE], rendezvous="agent"))
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.check_environment(job, use_agent_store=True)

    def test_rank_0_serves_the_rendezvous_itself(self):
        job = self.cluster.submit(self.command_job([PROBE], rendezvous="rank0"))
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.check_environment(job, use_agent_store=False)

    def test_a_failing_program_is_tried_again_and_then_the_job_fails(self):
        spec = self.command_job([PROBE, "3"], restart={"max_without_progress": 2})
        job = self.cluster.submit(spec)
        self.assertEqual(self.cluster.wait(job), 10)
        attempts = self.cluster.get(job)["attempts"]
        self.assertEqual(len(attempts), 2)
        self.assertIn("3", attempts[-1]["cause"])

    def test_a_program_that_was_lost_once_is_started_again_whole(self):
        script = 'if [ "$MUSTER_GENERATION" = 1 ] && [ "$RANK" = 2 ]; then kill -9 $$; fi; ' \
                 'if [ "$MUSTER_GENERATION" = 1 ]; then exec sleep 1000; fi; ' \
                 'echo "restart $TORCHELASTIC_RESTART_COUNT"'
        job = self.cluster.submit(self.command_job(["sh", "-c", script]))
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(self.cluster.get(job)["attempts"][0]["failed_rank"], 2)
        for log in self.logs(job, generation=2):
            self.assertEqual(log.strip(), "restart 1")

    def drained_job(self, script):
        """A job of one rank that runs, its node drained with the worker stopped; and that worker."""
        spec = self.command_job(["sh", "-c", script])
        spec["resources"].update(nodes=1, ranks_per_node=1)
        job = self.cluster.submit(spec)
        rank = self.cluster.ranks(job)[0]
        node = self.cluster.get(job)["ranks"][0]["node"]
        worker = self.cluster.worker_pid(node)
        kill(worker, signal.SIGSTOP)
        self.addCleanup(kill, worker, signal.SIGCONT)
        self.cluster.muster("drain", node)
        return job, rank, worker

    def test_a_program_that_ends_well_before_the_drain_reaches_it_is_not_run_again(self):
        job, rank, worker = self.drained_job("until [ -e go ]; do sleep 0.02; done")
        self.cluster.path("go").touch()
        wait_until(lambda: not alive(rank), "the program has ended")
        kill(worker, signal.SIGCONT)
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(len(self.cluster.get(job)["attempts"]), 1)

    def test_a_program_that_ends_well_because_the_drain_asks_it_to_is_run_again(self):
        job, _, worker = self.drained_job(
            'trap "exit 0" TERM; until [ "$MUSTER_GENERATION" = 2 ]; do sleep 0.02; done')
        kill(worker, signal.SIGCONT)
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        attempts = self.cluster.get(job)["attempts"]
        self.assertEqual([a["cause_kind"] for a in attempts], ["drained", "finished"])

    def test_a_grandchild_in_a_session_of_its_own_does_not_survive_a_cancel(self):
        marker = str(self.cluster.path("grandchild"))
        script = f"setsid sh -c 'echo $$ > {marker}.$RANK; trap \"\" TERM; while :; do sleep 1; done' & wait"
        job = self.cluster.submit(self.command_job(["sh", "-c", script]))
        files = [pathlib.Path(f"{marker}.{rank}") for rank in range(4)]
        wait_until(lambda: all(f.exists() and f.read_text().strip() for f in files), "grandchildren")
        self.cluster.muster("cancel", job)
        self.assertEqual(self.cluster.wait(job), 11)
        for file in files:
            self.assertFalse(os.path.exists(f"/proc/{file.read_text().strip()}"), file.name)


class OpenFiles(unittest.TestCase):
    """One descriptor per rank, node or client is more than the usual soft limit."""

    SOFT = 512

    def setUp(self):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.SOFT, before[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        self.cluster = Cluster(self)

    def soft_limit(self, pid):
        for line in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines():
            if line.startswith("Max open files"):
                return int(line.split()[3])
        self.fail(f"process {pid} has no limit of open files")

    def test_the_daemons_raise_their_limit_and_a_command_keeps_its_own(self):
        script = 'echo "limit $(ulimit -Sn)"; until [ -e go ]; do sleep 0.1; done'
        job = self.cluster.submit({
            "name": "limits", "resources": {"nodes": 1, "ranks_per_node": 1, "device": "cpu"},
            "workdir": str(self.cluster.root), "command": ["sh", "-c", script]})
        log = self.cluster.output(job) / "logs" / "1" / "rank-0.log"
        wait_until(lambda: log.exists() and log.read_text().startswith("limit"), "the command runs")
        self.assertEqual(log.read_text().strip(), f"limit {self.SOFT}")
        (node, guardian), = self.cluster.guardians(job).items()
        for pid in (guardian, self.cluster.worker_pid(node), self.cluster.coordinator_pid()):
            self.assertGreater(self.soft_limit(pid), self.SOFT)
        (self.cluster.root / "go").touch()
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))


if __name__ == "__main__":
    unittest.main()
