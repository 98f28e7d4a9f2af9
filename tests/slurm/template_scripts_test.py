"""The batch scripts of slurm/ with scripts in the place of Slurm's commands: what a signal to one does, and whom
the requeue of a container's job leaves out. Needs no Slurm."""

import pathlib
import subprocess
import tempfile
import unittest

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "slurm"

# Task 0's outcome, in the directory behind --state.
LEAVE_OUTCOME = r"""while [[ $1 != --state ]]; do shift; done
mkdir -p "$2"
echo '{"run":0,"exit_code":75,"action":"requeue","exclude":["n1", "n2"]}' > "$2/outcome.json"
exit 75"""
# It records its arguments, and refuses the first exclusions.
SCONTROL = r"""case $1 in
  show) [[ $2 == hostnames ]] && printf '%s\n' n2 n7 n8 || echo "JobId=7 ExcNodeList=n[2,7-8] NodeList=n1"; exit ;;
  update) (($(grep -c update calls) >= REFUSALS)) || { echo "$*" >> calls; echo no >&2; exit 1; } ;;
esac
echo "$*" >> calls"""


class TemplateScripts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "bin").mkdir()
        (self.folder / "calls").touch()
        self.install("squeue", "echo RUNNING")
        self.install("sleep", "exit 0")

    def install(self, command, body):
        path = self.folder / "bin" / command
        path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def run_template(self, template, **environment):
        return subprocess.run(
            ["bash", TEMPLATES / template, "job.yaml"], cwd=self.folder, capture_output=True, text=True, check=False,
            timeout=60, env={"PATH": f"{self.folder}/bin:/usr/bin:/bin", "SLURM_JOB_ID": "7", "MUSTER_IMAGE": "image",
                             **environment})

    def test_a_signal_becomes_the_supervisors_and_their_end_is_the_scripts(self):
        for template, array in (("embedded.sbatch", {}), ("het.sbatch", {}), ("container.sbatch", {}),
                                ("array.sbatch", {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"})):
            for signal in ("USR1", "USR2", "TERM"):
                with self.subTest(template=template, signal=signal):
                    self.install("srun", f"trap 'exit 11' USR2\nkill -s {signal} $PPID\n"
                                         "for ((i = 0; i < 100; i++)); do /bin/sleep 0.02; done; exit 99")
                    done = self.run_template(template, **array)
                    self.assertEqual(done.returncode, 11, done.stderr)

    def test_without_a_signal_the_end_is_sruns(self):
        for template in ("embedded.sbatch", "het.sbatch", "container.sbatch"):
            for code in (0, 78):
                self.install("srun", f"exit {code}")
                self.assertEqual(self.run_template(template).returncode, code, template)

    def calls(self):
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()

    def requeue_container(self, refusals, **environment):
        self.install("srun", LEAVE_OUTCOME)
        self.install("scontrol", SCONTROL.replace("REFUSALS", str(refusals)))
        done = self.run_template("container.sbatch", **environment)
        self.assertEqual(done.returncode, 75, done.stderr)
        return done

    def test_a_container_is_requeued_without_the_nodes_that_its_supervisors_name(self):
        done = self.requeue_container(refusals=2)
        update = "update JobId=7 ExcNodeList=n[2,7-8],n1"
        self.assertEqual(self.calls(), ["requeue 7", update, update, update])
        self.assertNotIn("may get", done.stderr)

    def test_a_task_of_an_array_is_requeued_alone(self):
        self.requeue_container(refusals=0, SLURM_ARRAY_JOB_ID="5", SLURM_ARRAY_TASK_ID="2")
        self.assertEqual(self.calls(), ["requeue 5_2", "update JobId=5_2 ExcNodeList=n[2,7-8],n1"])

    def test_where_slurm_excludes_nothing_the_script_says_so(self):
        done = self.requeue_container(refusals=1000)
        self.assertIn("job 7 is requeued, but may get n1,n2 again, since Slurm does not exclude them: no", done.stderr)

    def test_a_job_that_slurm_is_ending_is_left_alone(self):
        self.install("squeue", "echo COMPLETING")
        self.requeue_container(refusals=0)
        self.assertEqual(self.calls(), [])


if __name__ == "__main__":
    unittest.main()
