"""The batch scripts of slurm/ with scripts in the place of Slurm's commands: what a signal to one does.
Needs no Slurm."""

import pathlib
import subprocess
import tempfile
import unittest

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "slurm"


class TemplateScripts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "bin").mkdir()

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
                                         "for ((i = 0; i < 100; i++)); do read -rt 0.02 <> <(:); done; exit 99")
                    done = self.run_template(template, **array)
                    self.assertEqual(done.returncode, 11, done.stderr)

    def test_without_a_signal_the_end_is_sruns(self):
        for template in ("embedded.sbatch", "het.sbatch", "container.sbatch"):
            for code in (0, 78):
                self.install("srun", f"exit {code}")
                self.assertEqual(self.run_template(template).returncode, code, template)


if __name__ == "__main__":
    unittest.main()
