"""slurm/train.sbatch: what each rank is given, with a fake srun and scontrol in front of it."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "slurm" / "train.sbatch"

FAKE_SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames node[7-9]" ] || exit 1
printf 'node7\\nnode8\\nnode9\\n'
"""

# Three nodes with 2, 2 and 1 tasks; drops srun's own option and runs the rest once per task.
FAKE_SRUN = """#!/usr/bin/env bash
set -e
[[ $1 == --kill-on-bad-exit=1 ]] && shift
export SLURM_NTASKS=5 SLURM_NNODES=3 SLURM_STEP_TASKS_PER_NODE='2(x2),1'
rank=0
for node_and_local in '0 0' '0 1' '1 0' '1 1' '2 0'; do
  read -r node local <<<"$node_and_local"
  SLURM_PROCID=$rank SLURM_LOCALID=$local SLURM_NODEID=$node "$@"
  rank=$((rank + 1))
done
"""

FAKE_TRAINER = """#!/usr/bin/env python3
import json, os, sys
names = ("RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK GROUP_WORLD_SIZE "
         "ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS "
         "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT").split()
print(json.dumps({"args": sys.argv[1:], **{name: os.environ[name] for name in names}}))
"""


class SlurmMapping(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.bin = pathlib.Path(self.temp.name)
        for name, text in (("scontrol", FAKE_SCONTROL), ("srun", FAKE_SRUN),
                           ("muster-trainer", FAKE_TRAINER)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)

    def run_script(self, *arguments, **variables):
        env = {"PATH": f"{self.bin}:{os.environ['PATH']}", **variables}
        return subprocess.run(["bash", str(SCRIPT), *arguments], env=env, timeout=20,
                              capture_output=True, text=True, check=False)

    def test_every_rank_gets_torchruns_variables(self):
        done = self.run_script("job.yaml", SLURM_JOB_ID="41234", SLURM_JOB_NODELIST="node[7-9]",
                               SLURM_CPUS_PER_TASK="4", SLURM_RESTART_COUNT="2")
        self.assertEqual(done.returncode, 0, done.stderr)
        ranks = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([r["RANK"] for r in ranks], list("01234"))
        self.assertEqual([r["LOCAL_RANK"] for r in ranks], list("01010"))
        self.assertEqual([r["NODE_RANK"] for r in ranks], list("00112"))
        self.assertEqual([r["LOCAL_WORLD_SIZE"] for r in ranks], list("22221"))
        for rank in ranks:
            self.assertEqual(rank["args"], ["train", "job.yaml"])
            self.assertEqual(rank["WORLD_SIZE"], "5")
            self.assertEqual(rank["ROLE_WORLD_SIZE"], "5")
            self.assertEqual(rank["ROLE_RANK"], rank["RANK"])
            self.assertEqual(rank["GROUP_RANK"], rank["NODE_RANK"])
            self.assertEqual(rank["GROUP_WORLD_SIZE"], "3")
            self.assertEqual(rank["MASTER_ADDR"], "node7")
            self.assertEqual(rank["MASTER_PORT"], str(10000 + 41234 % 20000))
            self.assertEqual(rank["OMP_NUM_THREADS"], "4")
            self.assertEqual(rank["TORCHELASTIC_RUN_ID"], "41234")
            self.assertEqual(rank["TORCHELASTIC_RESTART_COUNT"], "2")

    def test_two_jobs_get_two_ports(self):
        ports = set()
        for job in ("100", "101"):
            done = self.run_script("job.yaml", SLURM_JOB_ID=job, SLURM_JOB_NODELIST="node[7-9]")
            ports.add(json.loads(done.stdout.splitlines()[0])["MASTER_PORT"])
        self.assertEqual(len(ports), 2)

    def test_outside_of_slurm_it_says_so(self):
        done = self.run_script("job.yaml")
        self.assertEqual(done.returncode, 64, "EX_USAGE, as of all templates")
        self.assertIn("sbatch", done.stderr)

    def test_without_a_job_file_it_says_how_to_call_it(self):
        done = self.run_script(SLURM_JOB_ID="1")
        self.assertEqual(done.returncode, 64, "EX_USAGE, as of all templates")
        self.assertIn("usage", done.stderr)


if __name__ == "__main__":
    unittest.main()
