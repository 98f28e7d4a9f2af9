"""`muster run` with torchrun's command line: on a cluster, on one of its own, and as torchrun does it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, processes_of, wait_until  # noqa: E402

SHOW = 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK on $GROUP_RANK: $GREETING $*"'


def muster_run(*arguments, check=False, timeout=60, **more):
    done = subprocess.run([BIN / "muster", "run", *map(str, arguments)], timeout=timeout, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, check=False, **more)
    if check and done.returncode != 0:
        raise AssertionError(f"muster run ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


class OnACluster(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(self)
        self.options = ["--dir", self.cluster.dir]

    def run_shell(self, script, *flags, arguments=(), **more):
        return muster_run(*self.options, *flags, "--no-python", "sh", "-c", script, "sh", *arguments,
                          cwd=self.cluster.root, **more)

    def test_the_ranks_of_all_nodes_are_shown_with_the_callers_variables_and_arguments(self):
        done = self.run_shell(SHOW, "--nnodes=2", "--nproc-per-node", "2", "--rdzv-endpoint=host:1",
                              arguments=["--dir", "a b"], check=True,
                              env={**os.environ, "GREETING": "hello"})
        self.assertEqual(sorted(done.stdout.splitlines()), [
            "rank 0 | 0 of 4, 0 on 0: hello --dir a b", "rank 1 | 1 of 4, 1 on 0: hello --dir a b",
            "rank 2 | 2 of 4, 0 on 1: hello --dir a b", "rank 3 | 3 of 4, 1 on 1: hello --dir a b"])
        self.assertIn("--rdzv-endpoint host:1: Muster's coordinator brings", done.stderr)

    def test_only_the_wanted_local_ranks_are_shown_and_all_logs_are_kept(self):
        logs = self.cluster.path("logs")
        done = self.run_shell(SHOW, "--nproc-per-node=2", "--local-ranks-filter=1", "--log-dir", logs,
                              check=True, env={**os.environ, "GREETING": "hello"})
        self.assertEqual(done.stdout.splitlines(), ["1 of 2, 1 on 0: hello "])
        kept = sorted(p.name for p in logs.glob("*/1/rank-*.log"))
        self.assertEqual(kept, ["rank-0.log", "rank-1.log"])

    def test_it_is_restarted_as_often_as_it_may_be_and_then_fails(self):
        script = 'echo "attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS"; exit 3'
        done = self.run_shell(script, "--max-restarts=1")
        self.assertEqual(done.returncode, 10, done.stderr)
        self.assertEqual(done.stdout.splitlines(), ["attempt 0 of 1", "attempt 1 of 1"])
        self.assertIn("failed", done.stderr)

    def test_an_interrupt_cancels_the_job(self):
        started = self.cluster.path("started")
        run = subprocess.Popen(
            [BIN / "muster", "run", *self.options, "--no-python", "sh", "-c",
             f"touch {started}; while true; do sleep 0.1; done"], cwd=self.cluster.root, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(run.kill)
        wait_until(started.exists, "the script runs")
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=30)
        self.assertEqual(run.returncode, 130, output)
        self.assertEqual([j["state"] for j in self.cluster.json("get")], ["cancelled"])

    def test_what_is_not_torchruns_is_refused_and_nothing_is_submitted(self):
        for flags, why in ((["--nonsense"], "--nonsense is no flag of torchrun"),
                           (["--role=x", "true"], "one role"),
                           (["--nnodes=2"], "no script is named")):
            done = muster_run(*self.options, *flags)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(why, done.stderr)
        self.assertEqual(self.cluster.json("get"), [])


class Alone(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(temp.cleanup)
        self.root = pathlib.Path(temp.name)
        self.env = {**os.environ, "TMPDIR": str(self.root)}

    def test_a_cluster_of_its_own_ends_with_the_script(self):
        done = muster_run("--standalone", "--nproc-per-node=2", "--no-python", "sh", "-c", SHOW,
                          cwd=self.root, env=self.env, check=True)
        self.assertEqual(len(done.stdout.splitlines()), 2, done.stdout)
        self.assertEqual(list(self.root.glob("muster-run-*")), [])
        self.assertEqual(processes_of(self.root), [])

    def start(self):
        """A run whose ranks go on for ever, once they have begun."""
        started = self.root / "started"
        run = subprocess.Popen(
            [BIN / "muster", "run", "--standalone", "--no-python", "sh", "-c",
             f"touch {started}; while true; do sleep 0.1; done"], cwd=self.root, env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        wait_until(started.exists, "the script runs")
        return run

    def expect_nothing_left(self):
        wait_until(lambda: not processes_of(self.root), "all processes are gone")
        wait_until(lambda: not list(self.root.glob("muster-run-*")), "the directory is gone")

    def test_nothing_is_left_of_its_cluster_when_it_is_killed(self):
        self.start().kill()
        self.expect_nothing_left()

    def test_nothing_is_left_of_its_cluster_when_its_terminal_goes(self):
        run = self.start()
        run.send_signal(signal.SIGHUP)
        self.assertEqual(run.wait(timeout=30), 130)
        self.expect_nothing_left()

    def test_the_job_file_is_shown_without_any_cluster(self):
        done = muster_run("--print-job", "--nnodes=2", "train.py", "--lr", "1", cwd=self.root,
                          env=self.env, check=True)
        self.assertIn("train.py", done.stdout)
        self.assertIn(json.dumps(str(self.root)), done.stdout)
        self.assertNotRegex(done.stdout, r"(?m)^queue:")  # a variable may have the word

    def test_queue_and_class_are_those_of_the_job(self):
        done = muster_run("--queue", "team-a", "--class=high", "--print-job", "--nnodes=2", "train.py", "--queue", "x",
                          cwd=self.root, env=self.env, check=True)
        self.assertIn('queue: "team-a"', done.stdout)
        self.assertIn('class: "high"', done.stdout)
        self.assertIn('"--queue", "x"', done.stdout)


if __name__ == "__main__":
    unittest.main()
