"""The batch scripts of slurm/, as a user would hand them to sbatch, in a real Slurm."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from embedded import BIN, ROOT, Run, Site, require  # noqa: E402

STEPS = 12


class Templates(unittest.TestCase):
    def setUp(self):
        require(self)

    def sbatch(self, site, template, spec, *options):
        path = site.write_job(spec)
        done = site.lab.run("sbatch", "--parsable", f"--chdir={site.shared}",
                            f"--export=ALL,MUSTER_WORKER={BIN}/muster-worker", *options,
                            ROOT / "slurm" / template, path)
        return int(done.stdout.split(";")[0])

    def steps(self, output):
        lines = (pathlib.Path(output) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return len({json.loads(line)["step"] for line in lines})

    def test_embedded(self):
        site = Site(self, nodes=2)
        spec = site.train_job(nodes=2, steps=STEPS, every=4)
        job = self.sbatch(site, "embedded.sbatch", spec)
        self.assertEqual(Run(site, job, spec).wait_for_end(), "COMPLETED")
        self.assertEqual(self.steps(spec["train"]["output"]["dir"]), STEPS)
        self.assertTrue((site.shared / f"muster-{job}-0.log").exists())

    def test_array(self):
        site = Site(self, nodes=2)
        spec = site.train_job(nodes=2, steps=STEPS, every=4)
        self.sbatch(site, "array.sbatch", spec, "--array=1-2")
        site.lab.wait_until(
            lambda: [job["job_state"] for job in site.lab.squeue()] == ["COMPLETED"] * 2,
            "both tasks complete")
        for task in (1, 2):
            self.assertEqual(self.steps(site.shared / f"out-{task}"), STEPS)

    def test_het(self):
        site = Site(self, nodes=3, gpus=1, cpu_nodes=1)
        spec = site.train_job(nodes=2, steps=STEPS, every=4)
        job = self.sbatch(site, "het.sbatch", spec, "--nodelist=n3", ":", "--nodelist=n1,n2")
        run = Run(site, job, spec)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.leader()["node"], "n3")
        self.assertEqual(len(list(run.state.glob("nodes/0-*.json"))), 3, "both components")
        self.assertEqual(self.steps(spec["train"]["output"]["dir"]), STEPS)

    def test_without_a_job_file_each_says_how_to_call_it(self):
        site = Site(self, nodes=2)
        for template in ("embedded.sbatch", "array.sbatch", "het.sbatch"):
            done = site.lab.run("bash", ROOT / "slurm" / template, check=False)
            self.assertEqual(done.returncode, 64)
            self.assertIn("usage: sbatch", done.stderr)


if __name__ == "__main__":
    unittest.main()
