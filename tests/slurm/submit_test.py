"""muster slurm submit, status and requeue with a real Slurm; a script stands for the supervisors."""

import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from lab import Lab, require  # noqa: E402

MUSTER = pathlib.Path(os.environ["MUSTER_BIN_DIR"]) / "muster"

# The part of a supervisor that Slurm and the batch script see: it records how it was started (the file appears whole),
# and task 0 leaves the outcome, on a signal to stop or when there is a file `finish`.
SUPERVISOR = r"""#!/bin/bash
while [[ $1 != --state ]]; do job+=("$1"); shift; done
state=$2
run=${SLURM_RESTART_COUNT:-0}
printf '%s\n' "${job[@]}" > "$state/new-$run-$SLURMD_NODENAME"
mv "$state/new-$run-$SLURMD_NODENAME" "$state/words-$run-$SLURMD_NODENAME"
outcome() {
  [[ $SLURM_PROCID != 0 ]] || printf '{"run":%s,"exit_code":%s,"action":"%s","reason":"%s","exclude":[%s]}\n' \
    "$run" "$@" > "$state/outcome.json"
}
trap 'outcome 75 requeue "saved" "\"n1\""; exit 75' USR2 TERM
echo "supervisor up"
until [[ -e $state/finish ]]; do /bin/sleep 0.05; done
outcome 0 done "" ""
"""

JOB = """name: first
resources: {nodes: 2, ranks_per_node: 1}
command: [sleep, "1"]
"""


class Submit(unittest.TestCase):
    """All tests share a lab of three nodes, which each of them leaves idle."""

    @classmethod
    def setUpClass(cls):
        require(cls)
        cls.lab = cls.enterClassContext(Lab(nodes=3))

    def setUp(self):
        self.folder = self.lab.shared / f"it's $HOME; {self.id().rsplit('.', 1)[1]}"
        self.folder.mkdir()
        # In its folder's name only: proctrack/linuxproc loses processes with a blank in their own.
        self.worker = self.folder / "worker"
        self.worker.write_text(SUPERVISOR, encoding="utf-8")
        self.worker.chmod(0o755)
        (self.folder / "job.yaml").write_text(JOB, encoding="utf-8")
        self.addCleanup(self.leave_idle)

    def leave_idle(self):
        """Also after a test that failed, so that the next one finds nodes."""
        self.lab.run("scancel", "--user=root" if os.getuid() == 0 else f"--user={os.getuid()}", check=False)
        self.lab.wait_until(lambda: all(self.lab.node_state(n) == "idle" for n in ("n1", "n2", "n3")),
                            "every node is idle")

    def muster(self, *words, check=True):
        return self.lab.run(MUSTER, "slurm", *words, cwd=self.folder, check=check)

    def submit(self, *words, check=True):
        done = self.muster("submit", "job.yaml", "--worker", self.worker, "-o", "json", *words, check=check)
        return json.loads(done.stdout) if done.returncode == 0 else done

    def state(self, submitted):
        return pathlib.Path(submitted["state_directory"])

    def wait_for_supervisors(self, submitted, run, count):
        return self.lab.wait_until(
            lambda: len(found := sorted(self.state(submitted).glob(f"words-{run}-*"))) == count and found,
            f"run {run} has {count} supervisors")

    def finish(self, submitted):
        (self.state(submitted) / "finish").touch()
        self.lab.wait_for_state(submitted["slurm_job_id"], "COMPLETED")

    def test_a_job_is_submitted_once_and_runs_one_supervisor_per_node_spares_too(self):
        first = self.submit("--key", "k", "--spares", "1", "--time=5", "-p", "main")
        again = self.submit("--key", "k", "--spares", "1", "--time=5", "-p", "main")
        self.assertEqual((first["existed"], again["existed"]), (False, True))
        self.assertEqual(again["slurm_job_id"], first["slurm_job_id"])
        other = self.submit("--key", "k", "--spares", "1", "--time=6", "-p", "main", check=False)
        self.assertEqual(other.returncode, 6, other.stderr)
        up = self.wait_for_supervisors(first, 0, 3)
        self.assertEqual([path.name for path in up], ["words-0-n1", "words-0-n2", "words-0-n3"])
        self.assertEqual(up[0].read_text().splitlines(),
                         ["--auto", "--job", f"{first['directory']}/job.yaml"])
        details = self.lab.scontrol("show", "job", first["slurm_job_id"])
        for words in ("JobName=first", "Requeue=1", "TimeLimit=00:05:00", "OverSubscribe=NO",
                      f"Comment=muster key=k at {self.folder}/muster-first-slurm-", f"WorkDir={self.folder}"):
            self.assertIn(words, details)
        status = json.loads(self.muster("status", "first", "-o", "json").stdout)
        self.assertEqual((status["slurm_state"], status["nodes"]), ("RUNNING", "n[1-3]"))
        self.finish(first)
        log = self.state(first) / "supervisor.0.log"
        self.assertIn("supervisor up", log.read_text())
        # Its resolved job does not change with the file.
        self.assertIn("spares: 1", (pathlib.Path(first["directory"]) / "job.yaml").read_text())

    def test_a_lost_record_is_found_again_in_slurm(self):
        first = self.submit("--key", "k", "--hold")
        directory = pathlib.Path(first["directory"])
        (directory / "submission.json").unlink()
        again = self.submit("--key", "k", "--hold")
        self.assertEqual((again["slurm_job_id"], again["existed"]), (first["slurm_job_id"], True))
        self.lab.run("scancel", first["slurm_job_id"])

    def test_a_requeued_job_saves_and_runs_again_without_the_bad_node(self):
        wait = self.lab.popen(MUSTER, "slurm", "submit", "job.yaml", "--worker", self.worker, "--key", "k",
                              "-o", "json", "--wait", cwd=self.folder, stdout=-1, text=True)
        self.addCleanup(wait.kill)
        record = self.folder / "muster-first" / "slurm" / "first-k" / "submission.json"
        self.lab.wait_until(record.exists, "it is submitted")
        first = self.submit("--key", "k")
        self.assertEqual([path.name for path in self.wait_for_supervisors(first, 0, 2)],
                         ["words-0-n1", "words-0-n2"])
        self.muster("requeue", first["slurm_job_id"])
        self.lab.start_again_now(first["slurm_job_id"], without="n1")
        self.assertEqual([path.name for path in self.wait_for_supervisors(first, 1, 2)],
                         ["words-1-n2", "words-1-n3"])
        self.assertIn("ExcNodeList=n1", self.lab.scontrol("show", "job", first["slurm_job_id"]))
        self.finish(first)
        self.assertEqual(wait.wait(120), 0)
        batch = pathlib.Path(first["directory"]) / f"slurm-{first['slurm_job_id']}.out"
        text = batch.read_text()
        self.assertIn("run 0: ended with 75", text)
        self.assertIn("run 1: ended with 0", text)

    def test_a_signal_to_the_script_alone_saves_the_job_and_the_users_exclusions_stay(self):
        (self.folder / "job.yaml").write_text(JOB.replace("nodes: 2", "nodes: 1"), encoding="utf-8")
        job = self.submit("--key", "k", "-N1", "--exclude=n3", "--signal=B:USR1@60", "--time=5")
        self.wait_for_supervisors(job, 0, 1)
        self.lab.run("scancel", "--batch", "--signal=USR1", job["slurm_job_id"])
        self.lab.start_again_now(job["slurm_job_id"], without="n3,n1")
        self.assertEqual([path.name for path in self.wait_for_supervisors(job, 1, 1)], ["words-1-n2"])
        self.finish(job)
        self.assertEqual(self.lab.job(job["slurm_job_id"])["restart_cnt"], 1)

    def test_a_signal_at_which_nothing_is_saved_is_refused(self):
        refused = self.submit("--key", "k", "--signal=B:HUP@60", check=False)
        self.assertEqual((refused.returncode, "--signal=USR2@SECONDS" in refused.stderr), (2, True), refused.stderr)
        refused = self.lab.run(MUSTER, "slurm", "submit", "job.yaml", cwd=self.folder, env={"SBATCH_SIGNAL": "9@60"},
                               check=False)
        self.assertEqual((refused.returncode, "environment variable SBATCH_SIGNAL" in refused.stderr), (2, True),
                         refused.stderr)

    def test_a_task_of_an_array_is_requeued_alone(self):
        script = ('touch "ran-$SLURM_ARRAY_TASK_ID-${SLURM_RESTART_COUNT:-0}"\n'
                  "until [[ -e finish ]]; do /bin/sleep 0.05; done")
        array = self.lab.sbatch(script, "--array=0-1", "-N1", "--exclusive", "--requeue", cwd=self.folder)
        self.lab.wait_until(lambda: len(list(self.folder.glob("ran-?-0"))) == 2, "both tasks run")
        whole = self.muster("requeue", "--now", array, check=False)
        self.assertEqual((whole.returncode, "is an array" in whole.stderr), (2, True), whole.stderr)
        # The one that has the array's number as its own.
        task = next(job["array_task_id"] for job in self.lab.squeue() if job["job_id"] == array)
        self.muster("requeue", "--now", f"{array}_{task}")
        self.lab.start_again_now(f"{array}_{task}")
        self.lab.wait_until((self.folder / f"ran-{task}-1").exists, "the task runs again")
        self.assertFalse((self.folder / f"ran-{1 - task}-1").exists())
        self.assertEqual({job["array_task_id"]: job["restart_cnt"] for job in self.lab.squeue()
                          if job["array_job_id"] == array}, {task: 1, 1 - task: 0})
        status = json.loads(self.muster("status", f"{array}_{task}", "-o", "json").stdout)
        self.assertEqual((status["slurm_job"], status["slurm_job_id"]), (f"{array}_{task}", array))
        (self.folder / "finish").touch()

    def test_a_cancelled_job_stays_cancelled_although_its_supervisors_ask_for_more(self):
        job = self.submit("--key", "k")
        self.wait_for_supervisors(job, 0, 2)
        self.lab.run("scancel", job["slurm_job_id"])
        self.lab.wait_for_state(job["slurm_job_id"], "CANCELLED")
        self.lab.wait_until(lambda: self.lab.node_state("n1") == "idle", "its nodes are free")
        self.assertEqual(self.lab.job(job["slurm_job_id"])["job_state"], "CANCELLED")

    def test_slurms_refusal_is_reported_and_nothing_is_left_in_the_way(self):
        refused = self.submit("--key", "k", "--partition=none", check=False)
        self.assertEqual(refused.returncode, 6, refused.stderr)
        self.assertIn("invalid partition", refused.stderr)
        self.assertEqual(self.muster("submit", "job.yaml", "--array=1-2", check=False).returncode, 2)

    def test_the_doctor_finds_its_way_through_a_real_configuration(self):
        done = self.muster("doctor", "-o", "json", check=False)
        found = {finding["check"]: finding["verdict"] for finding in json.loads(done.stdout)}
        self.assertEqual(found["version"], "ok")
        self.assertEqual(found["process-tracking"], "warn")
        self.assertEqual(done.returncode, 1 if "fail" in found.values() else 0, done.stdout)
        self.assertEqual(self.muster("doctor", "--partition=none", check=False).returncode, 1)
        unknown = self.muster("doctor", "--gpus-per-node=1", check=False)
        self.assertEqual((unknown.returncode, "require --nodes N" in unknown.stderr), (2, True), unknown.stderr)

    def verdicts(self, text):
        return {finding["check"]: finding["verdict"] for finding in json.loads(text)}

    def test_the_doctor_tries_nodes_out(self):
        of_nodes = ("nodes", "shared-path", "exclusive-files", "clocks", "ports", "gpu-binding", "cpus", "temporary")
        done = self.muster("doctor", "--nodes", "3", "-o", "json", "--exclusive", check=False)
        found = self.verdicts(done.stdout)
        self.assertEqual({check: found.get(check) for check in of_nodes}, {check: "ok" for check in of_nodes}, done)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["job.yaml", "worker"])
        # Each node has a /tmp of its own.
        local = self.muster("doctor", "--nodes", "2", "--shared", "/tmp", check=False)
        self.assertEqual(local.returncode, 1)
        self.assertIn("fail  shared-path: n", local.stdout)
        # Within an allocation it tries that allocation's nodes.
        job = self.lab.sbatch(f"{MUSTER} slurm doctor -o json > found.json; exit 0", "-N2", cwd=self.folder)
        self.lab.wait_for_state(job, "COMPLETED")
        within = self.verdicts((self.folder / "found.json").read_text())
        self.assertEqual({check: within.get(check) for check in of_nodes}, {check: "ok" for check in of_nodes})
        # A firewall between nodes.
        for chain in ("n1", "n2"):
            self.lab.run("ip", "route", "add", "blackhole", self.lab.address("n3"), node=chain)
            self.addCleanup(self.lab.run, "ip", "route", "del", "blackhole", self.lab.address("n3"), node=chain)
        cut = self.muster("doctor", "--nodes", "3", check=False)
        self.assertIn("fail  ports: n", cut.stdout)
        refused = self.muster("doctor", "--nodes", "2", "--partition=none", check=False)
        self.assertIn("fail  nodes: srun", refused.stdout)


if __name__ == "__main__":
    unittest.main()
