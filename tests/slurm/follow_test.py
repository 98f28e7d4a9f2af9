"""A job of `muster slurm submit` as its user sees it on the login node, with real supervisors and a real trainer:
followed over a requeue and over the loss of the node that coordinates, asked by the usual commands."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from embedded import BIN, SOON_DOWN, Run, Site, require  # noqa: E402

MUSTER = BIN / "muster"
STEPS = 400  # several commands are asked of it while it trains, on a machine of any speed


class FromTheLoginNode(unittest.TestCase):
    def setUp(self):
        require(self)

    def submit(self, site, *options, steps=STEPS):
        """Over two nodes."""
        spec = site.train_job(nodes=2, steps=steps, every=25)
        supervisors = (f"--worker={BIN}/muster-worker", "--worker-arg=--slots=1", "--worker-arg=--term-grace=3")
        done = site.lab.run(MUSTER, "slurm", "submit", site.write_job(spec), "-o", "json", *supervisors, *options)
        return Run(site, json.loads(done.stdout)["slurm_job_id"], spec)

    def attach(self, run):
        """What it prints goes to a file, of which text() is the content."""
        path = run.site.shared / "attached.log"
        with open(path, "w", encoding="utf-8") as log:
            attached = run.lab.popen(MUSTER, "slurm", "attach", run.slurm_job, stdout=log, stderr=log,
                                     env={"TMPDIR": str(self.temporary(run))})
        self.addCleanup(attached.kill)
        return attached, lambda: path.read_text(encoding="utf-8")

    def temporary(self, run):
        """Where attach keeps its certificate while it runs."""
        path = run.site.shared / "temporary"
        path.mkdir(exist_ok=True)
        return path

    def test_it_is_followed_over_a_requeue_to_its_end(self):
        site = Site(self, nodes=2)
        run = self.submit(site)
        attached, text = self.attach(run)
        run.wait_for_step(30)
        self.assertEqual(len(list(self.temporary(run).glob("muster-access-*/0/key.pem"))), 1)
        ask = lambda *words: json.loads(site.lab.run(MUSTER, *words, "-o", "json").stdout)  # noqa: E731
        # The coordinator learns of steps once a second: it may be behind the metrics file.
        site.lab.wait_until(lambda: ask("slurm", "status", run.slurm_job)["job"]["step"] >= 25, "status shows step 25")
        status = ask("slurm", "status", run.slurm_job)
        self.assertEqual((status["job"]["state"], status["job"]["nodes_ready"]), ("running", 2), status)
        jobs = ask("get", "--slurm-job", run.slurm_job)
        self.assertEqual([job["name"] for job in jobs], [run.spec["name"]])
        nodes = ask("nodes", "--slurm-job", run.state)
        self.assertEqual(sorted(node["name"] for node in nodes), ["n1", "n2"])
        timeline = site.lab.run(MUSTER, "describe", run.spec["name"], "--slurm-job", run.slurm_job).stdout
        self.assertIn(run.spec["name"], timeline)
        within = site.lab.run("srun", "--overlap", f"--jobid={run.slurm_job}", "-N1", "-n1",
                              MUSTER, "get", "--slurm-job", run.slurm_job)
        self.assertIn("running", within.stdout)

        site.lab.run(MUSTER, "slurm", "requeue", run.slurm_job)
        site.lab.wait_until(lambda: "waiting until Slurm starts it again" in text(), "attach says that it waits")
        site.lab.start_again_now(run.slurm_job)
        self.assertEqual(attached.wait(120), 0, text())
        self.assertIn("reconnected", text())
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual((run.exit_code(), run.slurm()["restart_cnt"]), (0, 1))
        self.assertEqual([step for step, *_ in run.trajectory()], list(range(1, STEPS + 1)))
        # For a job that has ended, attach reports how it ended.
        again = site.lab.run(MUSTER, "slurm", "attach", run.slurm_job)
        self.assertIn("the job ended", again.stderr)
        self.assertEqual(list(self.temporary(run).iterdir()), [], "its certificate goes with it")

    def test_it_is_followed_to_the_node_that_takes_over(self):
        site = Site(self, nodes=3, **SOON_DOWN)
        run = self.submit(site, "--spares", "1", steps=80)
        attached, text = self.attach(run)
        run.wait_for_step(30)
        epoch = run.leader()["epoch"]
        site.lab.kill_node(run.leader()["node"])
        self.assertEqual(attached.wait(120), 0, text())
        self.assertIn("reconnected", text())
        self.assertGreater(run.leader()["epoch"], epoch)
        self.assertEqual([step for step, *_ in run.trajectory()], list(range(1, 81)))


if __name__ == "__main__":
    unittest.main()
