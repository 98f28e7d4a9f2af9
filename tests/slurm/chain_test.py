"""A chain of requeues in a real Slurm without progress of the job ends on its own."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from embedded import BIN, SRUN, Run, Site, require  # noqa: E402


class Chain(unittest.TestCase):
    def setUp(self):
        require(self)

    def test_three_runs_in_a_row_that_come_no_further_are_the_last(self):
        site = Site(self, nodes=4)
        spec = site.train_job(nodes=2, steps=20)
        supervise = site.shared / "supervise"
        # On the second of every two nodes that Slurm gives, no worker comes up.
        supervise.write_text(
            "#!/bin/bash\n((SLURM_NODEID == 0)) || broken=--worker-arg=--no-such-option\n"
            f"exec {BIN}/muster-worker --auto --job {site.write_job(spec)} --slots 1 --node-timeout 2 ${{broken:-}}\n",
            encoding="utf-8")
        supervise.chmod(0o755)
        job = site.lab.sbatch(f"{SRUN} --output={site.shared}/supervisor-%t.log {supervise}", "-N2", "--no-kill",
                              "--requeue")
        site.lab.start_again_now(job, without="n2")
        run = Run(site, job, spec)
        self.assertEqual(run.wait_for_end(), "FAILED")
        self.assertEqual(run.exit_code(), 69)
        self.assertEqual(run.slurm()["restart_cnt"], 2)
        self.assertIn("3 runs in a row came no further than step 0", run.outcome()["reason"])
        self.assertRegex(run.outcome()["reason"], r"^the job waits for nodes that its coordinator does not use: n\d;")


if __name__ == "__main__":
    unittest.main()
