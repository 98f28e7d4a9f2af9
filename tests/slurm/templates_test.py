"""The batch scripts of slurm/, as a user would hand them to sbatch, in a real Slurm."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from embedded import BIN, ROOT, SRUN, Run, Site, processes_on, require  # noqa: E402

STEPS = 12


class Templates(unittest.TestCase):
    def setUp(self):
        require(self)

    def sbatch(self, site, template, spec, *options, export="MUSTER_RUNTIME=apptainer", env=None):
        path = site.write_job(spec)
        done = site.lab.run("sbatch", "--parsable", f"--chdir={site.shared}",
                            f"--export=ALL,MUSTER_WORKER={BIN}/muster-worker,{export}", *options,
                            ROOT / "slurm" / template, path, env=env)
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

    def test_a_signal_to_the_script_alone_saves_the_job(self):
        site = Site(self, nodes=2)
        spec = site.train_job(nodes=2, steps=100, every=1000)
        job = self.sbatch(site, "embedded.sbatch", spec, "--signal=B:USR1@60", "--time=5")
        run = Run(site, job, spec)
        run.wait_for_step(30)
        site.lab.run("scancel", "--batch", "--signal=USR1", job)
        site.lab.start_again_now(job)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.slurm()["restart_cnt"], 1)
        self.assertEqual([run.metrics()[step]["generation"] for step in (30, 100)], [1, 2])

    def test_array(self):
        site = Site(self, nodes=2)
        spec = site.train_job(nodes=2, steps=STEPS, every=4)
        self.sbatch(site, "array.sbatch", spec, "--array=1-2")
        site.lab.wait_until(
            lambda: [job["job_state"] for job in site.lab.squeue()] == ["COMPLETED"] * 2,
            "both tasks complete")
        for task in (1, 2):
            self.assertEqual(self.steps(site.shared / f"out-{task}"), STEPS)

    def test_a_task_of_an_array_saves_and_is_requeued_alone(self):
        site = Site(self, nodes=2)
        steps = 400  # it trains until Slurm has taken the order, on a machine of any speed
        spec = site.train_job(nodes=1, steps=steps, every=100)
        array = self.sbatch(site, "array.sbatch", spec, "--array=1-2", "-N1")
        site.lab.wait_until(lambda: all((site.shared / f"out-{task}" / "metrics.jsonl").exists() for task in (1, 2)),
                            "both tasks train")
        # Slurm takes its number for the whole array.
        task = next(job["array_task_id"] for job in site.lab.squeue() if job["job_id"] == array)
        site.lab.run(BIN / "muster", "slurm", "requeue", f"{array}_{task}")
        site.lab.start_again_now(f"{array}_{task}")
        site.lab.wait_until(
            lambda: [job["job_state"] for job in site.lab.squeue()] == ["COMPLETED"] * 2,
            "both tasks complete")
        self.assertEqual({job["array_task_id"]: job["restart_cnt"] for job in site.lab.squeue()},
                         {task: 1, 3 - task: 0})
        for which in (1, 2):
            self.assertEqual(self.steps(site.shared / f"out-{which}"), steps)

    def test_train_runs_the_ranks_by_srun_alone_and_goes_on_when_it_is_requeued(self):
        site = Site(self, nodes=2)
        spec = site.train_job(nodes=2, steps=100, every=10)
        job = self.sbatch(site, "train.sbatch", spec, "-N2", "--ntasks-per-node=1", f"--output={site.shared}/%j.out",
                          export=f"MUSTER_TRAINER={BIN}/muster-trainer")
        run = Run(site, job, spec)
        run.wait_for_step(30)
        self.assertEqual([programs for node in ("n1", "n2") for programs in processes_on(site.lab, node)],
                         2 * ["muster-trainer"], "nothing else of Muster's")
        site.lab.scontrol("requeue", job)
        site.lab.start_again_now(job)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual((run.exit_code(), run.slurm()["restart_cnt"]), (0, 1))
        self.assertEqual({entry["world_size"] for entry in run.metrics().values()}, {2})
        self.assertEqual(sorted(run.metrics()), list(range(1, 101)))
        steps = run.steps_in_order()
        again = [step for step in set(steps) if steps.count(step) > 1]
        self.assertGreater(min(again, default=100), 20, "it goes on from a checkpoint")

    def test_het(self):
        site = Site(self, nodes=3, gpus=1, cpu_nodes=1)
        spec = site.train_job(nodes=2, steps=STEPS, every=4)
        job = self.sbatch(site, "het.sbatch", spec, "--nodelist=n3", ":", "--nodelist=n1,n2")
        run = Run(site, job, spec)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.leader()["node"], "n3")
        self.assertEqual(len(list(run.state.glob("nodes/0-*.json"))), 3, "both components")
        self.assertEqual(self.steps(spec["train"]["output"]["dir"]), STEPS)

    def test_container(self):
        # A program stands for Apptainer; as in most images, there are no commands of Slurm's inside.
        site = Site(self, nodes=2)
        programs = site.shared / "programs"
        programs.mkdir()
        apptainer = programs / "apptainer"
        apptainer.write_text(f'#!/bin/bash\necho "$*" >> {site.shared}/calls-$SLURMD_NODENAME\n'
                             "shift\nwhile [[ $1 == --bind ]]; do shift 2; done\nshift\n"
                             'PATH=/nowhere exec "$@"\n', encoding="utf-8")
        apptainer.chmod(0o755)
        spec = site.train_job(nodes=2, steps=100, every=25)
        job = self.sbatch(site, "container.sbatch", spec,
                          export=f"MUSTER_IMAGE={site.shared}/image.sif",
                          env={"PATH": f"{programs}:{site.lab.environment()['PATH']}"})
        run = Run(site, job, spec)
        run.state = site.shared / f"muster-{job}"
        run.wait_for_step(30)
        site.lab.run(BIN / "muster", "slurm", "requeue", job)
        site.lab.start_again_now(job)
        self.assertEqual(run.wait_for_end(), "COMPLETED")
        self.assertEqual(run.slurm()["restart_cnt"], 1)
        self.assertEqual(self.steps(run.output), 100)
        calls = (site.shared / "calls-n2").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(calls), 2, "once for each run")
        self.assertRegex(calls[0], f"^exec --bind {site.shared} --bind {site.shared} {site.shared}/image.sif "
                                   f"{BIN}/muster-worker --auto --job ")

    def test_container_by_pyxis_is_options_of_srun(self):
        """The lab's Slurm has no such plug-in, so a script stands for srun."""
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "jobs").mkdir()
            srun = pathlib.Path(folder) / "srun"
            srun.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n', encoding="utf-8")
            srun.chmod(0o755)
            done = subprocess.run(
                ["bash", ROOT / "slurm" / "container.sbatch", "jobs/a.yaml"], cwd=folder, check=False, timeout=20,
                env={"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "MUSTER_IMAGE": "site/muster:1",
                     "MUSTER_RUNTIME": "pyxis", "MUSTER_RUN_ARGS": "--container-workdir=/w"},
                capture_output=True, text=True)
            self.assertEqual(done.returncode, 7, done.stderr)
            folder = pathlib.Path(folder).resolve()
            words = done.stdout.splitlines()
            self.assertEqual(words[words.index("--container-image=site/muster:1"):], [
                "--container-image=site/muster:1", f"--container-mounts={folder},{folder}/jobs",
                "--container-workdir=/w", "muster-worker", "--auto", "--job", f"{folder}/jobs/a.yaml",
                "--state", f"{folder}/muster-7"])

    def test_a_line_of_torchruns(self):
        site = Site(self, nodes=2)
        (site.shared / "train.py").write_text(
            "import json, os, sys\n"
            "print(json.dumps([sys.argv[1:], {name: os.environ.get(name) for name in\n"
            "    ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'SLURM_JOB_ID', 'SLURM_NODEID')}]))\n",
            encoding="utf-8")
        job = site.lab.sbatch(f"{SRUN} {BIN}/muster-worker --auto -- --nproc-per-node 2 train.py --lr 1e-4 --nnodes 9",
                              "-N2", "--exclusive", f"--chdir={site.shared}")
        site.lab.wait_for_state(job, "COMPLETED")
        logs = sorted(site.shared.glob("muster-train-*/logs/1/rank-*.log"))
        told = [json.loads(log.read_text(encoding="utf-8")) for log in logs]
        self.assertEqual([words for words, _ in told], [["--lr", "1e-4", "--nnodes", "9"]] * 4)
        self.assertEqual([env["RANK"] for _, env in told], ["0", "1", "2", "3"])
        self.assertEqual([env["LOCAL_RANK"] for _, env in told], ["0", "1", "0", "1"])
        self.assertEqual({(env["WORLD_SIZE"], env["MASTER_ADDR"], env["SLURM_JOB_ID"], env["SLURM_NODEID"])
                          for _, env in told}, {("4", "10.77.0.1", str(job), None)})
        wrong = site.lab.run("srun", "-N1", BIN / "muster-worker", "--auto", "--", "--nproc-per-node=x", "a.py",
                             check=False)
        self.assertEqual(wrong.returncode, 65, wrong.stderr)
        self.assertIn("--nproc-per-node: expected", wrong.stderr)

    def test_without_a_job_file_each_says_how_to_call_it(self):
        site = Site(self, nodes=2)
        for template in ("embedded.sbatch", "array.sbatch", "het.sbatch", "container.sbatch"):
            done = site.lab.run("bash", ROOT / "slurm" / template, check=False)
            self.assertEqual(done.returncode, 64)
            self.assertIn("usage: sbatch", done.stderr)


if __name__ == "__main__":
    unittest.main()
