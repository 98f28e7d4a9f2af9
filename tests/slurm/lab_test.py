"""The Slurm lab itself: that it is a Slurm, that its faults are faults, and that it leaves nothing."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from lab import Lab, children_of, command_line, descendants, require  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent

# Reports to which address it could connect within two seconds: ADDRESS PORT.
CONNECT = """import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2).close()
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""

# A server that reports the end of its one connection: SECONDS. A peer that disappeared without a packet counts as
# present after that time.
WATCH = """import socket, sys
listener = socket.create_server(("0.0.0.0", 5000))
print("listening", flush=True)
peer, _ = listener.accept()
print("accepted", flush=True)
peer.settimeout(float(sys.argv[1]))
try:
    print("closed" if not peer.recv(1) else "data", flush=True)
except TimeoutError:
    print("silent", flush=True)
except ConnectionResetError:
    print("closed", flush=True)
"""
HOLD = """import socket, time
peer = socket.create_connection(("10.77.0.100", 5000))
time.sleep(600)
"""


def mounts():
    """Without those of other tests, whose clusters mount disks of their own beside this one."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if "/muster-test-" not in line]


def mentioning(folder):
    """Processes of this machine with the folder in their command line or environment."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
            words += pathlib.Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and int(entry) != os.getpid():
            found.append((entry, command_line(entry)))
    return found


class SharedLab(unittest.TestCase):
    """What disturbs no other test has one lab together."""

    @classmethod
    def setUpClass(cls):
        require(cls)
        cls.lab = cls.enterClassContext(Lab(nodes=3, gpus=2, cpu_nodes=1, networks=2))

    def test_a_node_has_host_name_address_and_tmp_of_its_own_and_the_shared_folder(self):
        lab = self.lab
        job = lab.sbatch("""
            srun --label sh -c 'echo $(hostname) $(ip -4 -o addr show eth1 | grep -o "10.77[0-9.]*" | head -1)'
            srun sh -c 'hostname > /tmp/mine; hostname > /dev/shm/mine; hostname >> all'
            srun sh -c 'echo mine: $(cat /tmp/mine /dev/shm/mine)'
            srun sh -c 'cat /proc/sys/kernel/random/boot_id >> boots'""", "-N3")
        lab.wait_for_state(job, "COMPLETED")
        lines = sorted(line for line in lab.output(job).splitlines()
                       if not line.startswith("srun: "))  # that the step before is not over yet
        self.assertEqual(lines, ["0: n1 10.77.1.1", "1: n2 10.77.1.2", "2: n3 10.77.1.3",
                                 "mine: n1 n1", "mine: n2 n2", "mine: n3 n3"])
        self.assertEqual(sorted((lab.shared / "all").read_text().split()), ["n1", "n2", "n3"])
        self.assertEqual(len(set((lab.shared / "boots").read_text().split())), 3)
        self.assertEqual((lab.tmp("n2") / "mine").read_text(), "n2\n")
        self.assertFalse(pathlib.Path("/tmp/mine").exists())

    def test_tasks_are_given_the_gpus_they_asked_for(self):
        done = self.lab.srun("-N2", "--gpus-per-node=2", "sh", "-c",
                             "echo $(hostname) $CUDA_VISIBLE_DEVICES $SLURM_STEP_GPUS")
        self.assertEqual(sorted(done.stdout.splitlines()), ["n1 0,1 0,1", "n2 0,1 0,1"])

    def test_a_het_job_has_a_cpu_node_and_gpu_nodes_in_one_step(self):
        job = self.lab.sbatch("#SBATCH -N1 --nodelist=n3\n#SBATCH hetjob\n#SBATCH -N2 --gpus-per-node=2\n"
                              "srun --het-group=0,1 sh -c 'echo $SLURM_PROCID $(hostname) "
                              "gpus=$CUDA_VISIBLE_DEVICES'")
        self.lab.wait_for_state(job, "COMPLETED")
        self.assertEqual(sorted(self.lab.output(job).splitlines()),
                         ["0 n3 gpus=", "1 n1 gpus=0,1", "2 n2 gpus=0,1"])

    def test_an_urgent_job_preempts_which_is_requeued_and_runs_again(self):
        lab = self.lab
        low = lab.sbatch("echo start $SLURM_RESTART_COUNT; [ -n \"$SLURM_RESTART_COUNT\" ] || sleep 600",
                         "-N3", "--exclusive", "--requeue")
        lab.wait_for_output(low, "start")
        urgent = lab.sbatch("true", "-N3", "--exclusive", "-p", "urgent")
        lab.wait_for_state(urgent, "COMPLETED")
        lab.start_again_now(low)
        lab.wait_for_state(low, "COMPLETED")
        self.assertIn("start 1", lab.output(low))

    def test_a_cut_link_is_silent_on_both_sides_and_heals(self):
        lab = self.lab
        python = (sys.executable, "-c", CONNECT)
        port = "17003"  # slurmd of n3
        connect = lambda node, to: lab.run(*python, to, port, node=node).stdout.strip()  # noqa: E731
        self.assertEqual(connect("n1", lab.address("n3")), "connected")
        lab.cut_link("n3")
        try:
            self.assertEqual(connect("n1", lab.address("n3")), "TimeoutError")
            self.assertEqual(connect(None, lab.address("n3")), "TimeoutError")
            self.assertEqual(lab.run(*python, lab.address("n1"), "17001", node="n3").stdout.strip(),
                             "TimeoutError")
            self.assertEqual(lab.run(*python, lab.address("n1"), "17001", node="n2").stdout.strip(),
                             "connected")
        finally:
            lab.heal_link("n3")
        self.assertEqual(connect("n1", lab.address("n3")), "connected")

    def test_a_restarted_controller_disturbs_no_job(self):
        lab = self.lab
        job = lab.sbatch("echo began; until [ -e go-on ]; do sleep 0.1; done; echo done")
        lab.wait_for_output(job, "began")
        lab.restart_controller()
        (lab.shared / "go-on").touch()
        lab.wait_for_state(job, "COMPLETED")
        self.assertEqual(lab.output(job), "began\ndone\n")

    def test_two_labs_do_not_meet(self):
        other = Lab.of(self, nodes=1)
        job = other.sbatch("hostname; sleep 600")
        other.wait_for_output(job, "n1")
        self.assertEqual(other.srun("hostname").stdout, "n1\n")
        self.assertNotIn(str(other.shared), [entry["current_working_directory"]
                                             for entry in self.lab.squeue()])
        other.power_loss("n1")
        self.assertEqual(self.lab.srun("-w", "n1", "hostname").stdout, "n1\n")


class Faults(unittest.TestCase):
    def test_a_killed_node_leaves_a_no_kill_job_which_goes_on_and_comes_back(self):
        lab = Lab.of(self, nodes=3, slurmd_timeout_s=5, settings={"MessageTimeout": 3})
        job = lab.sbatch("srun --no-kill -o task-%t sh -c "
                         "'echo began; until [ -e go-on ]; do sleep 0.1; done; echo done'",
                         "-N3", "--no-kill")
        lab.wait_until(lambda: all((lab.shared / f"task-{task}").exists()
                                   and "began" in (lab.shared / f"task-{task}").read_text()
                                   for task in range(3)), "all tasks have begun")
        pids = lab.processes("n2")
        self.assertGreaterEqual(len(pids), 3)  # slurmd, slurmstepd, the task
        lab.kill_node("n2")
        self.assertEqual([pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()], [])
        lab.wait_for_node("n2", "down", "down*")
        self.assertEqual(lab.job(job)["nodes"], "n[1,3]")
        (lab.shared / "go-on").touch()
        lab.wait_until(lambda: lab.job(job)["job_state"] in ("COMPLETED", "FAILED"), "the job ends")
        self.assertIn("done", (lab.shared / "task-0").read_text())
        self.assertIn("done", (lab.shared / "task-2").read_text())
        self.assertNotIn("done", (lab.shared / "task-1").read_text())
        lab.revive_node("n2")
        lab.wait_for_node("n2", "idle")
        self.assertEqual(lab.srun("-w", "n2", "hostname").stdout, "n2\n")

    def test_a_job_that_loses_a_node_is_requeued_on_others(self):
        lab = Lab.of(self, nodes=3, slurmd_timeout_s=5, settings={"MessageTimeout": 3})
        job = lab.sbatch("echo began ${SLURM_RESTART_COUNT:-0} $SLURM_JOB_NODELIST\n"
                         "[ -n \"$SLURM_RESTART_COUNT\" ] || srun sleep 600",
                         "-N2", "--requeue")
        lab.wait_for_output(job, "began 0 n[1-2]")
        lab.power_loss("n1")
        lab.wait_for_state(job, "COMPLETED")
        self.assertIn("began 1 n[2-3]", lab.output(job))

    def test_killed_is_reported_and_lost_power_is_not(self):
        lab = Lab.of(self, nodes=2)
        for node, lose, expected, seconds in (("n1", lab.kill_node, "closed", "60"),
                                              ("n2", lab.power_loss, "silent", "3")):
            with self.subTest(expected):
                server = lab.popen(sys.executable, "-c", WATCH, seconds, stdout=subprocess.PIPE, text=True)
                self.assertEqual(server.stdout.readline(), "listening\n")
                holder = lab.popen(sys.executable, "-c", HOLD, node=node)
                self.assertEqual(server.stdout.readline(), "accepted\n")
                lose(node)
                self.assertEqual(server.stdout.read(), f"{expected}\n")
                server.communicate(timeout=60)
                holder.wait(timeout=60)

    def test_slurm_works_beside_a_name_server_that_never_answers(self):
        lab = Lab.of(self, nodes=2, dead_name_server=True)
        self.assertEqual(sorted(lab.srun("-N2", "hostname").stdout.split()), ["n1", "n2"])
        with self.assertRaises(subprocess.TimeoutExpired):
            lab.run("getent", "ahostsv4", "n2", node="n1", timeout=3)


class UpAndDown(unittest.TestCase):
    def test_nothing_is_left(self):
        before = mounts()
        # A folder for this test alone: other labs of this machine come and go beside it.
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        with unittest.mock.patch.object(tempfile, "tempdir", temporary.name):
            lab = Lab.of(self, nodes=3, gpus=2)
        print(f"3 nodes up in {lab.seconds_up:.2f} s", file=sys.stderr)  # 0.6 s where nothing else runs
        lab.sbatch("setsid -f sleep 600; srun setsid -f sleep 600", "-N2")
        lab.wait_until(lambda: [command_line(pid) for pid in lab.processes()]
                       .count(["sleep", "600"]) == 3, "the job has left its processes")
        pids = lab.processes()
        lab.power_loss("n3")
        lab.down()
        self.assertEqual([pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()], [])
        self.assertEqual(mentioning(lab.folder), [])
        self.assertEqual(mounts(), before)
        self.assertEqual(os.listdir(temporary.name), [])

    def test_a_lab_ends_with_the_process_that_made_it(self):
        require(self)
        for number in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(number.name):
                with tempfile.TemporaryDirectory() as folder:
                    owner = subprocess.Popen([sys.executable, str(FOLDER / "lab.py"), "up", "--nodes=2"],
                                             stderr=subprocess.PIPE, text=True,
                                             env={**os.environ, "TMPDIR": folder})
                    for line in owner.stderr:
                        if "Ctrl-C" in line:
                            break
                    pids = descendants(owner.pid)
                    self.assertGreaterEqual(len(pids), 8)
                    owner.send_signal(number)
                    owner.wait(timeout=30)
                    owner.stderr.close()
                    self.wait_until_gone(pids, folder)
                    if number == signal.SIGTERM:  # a killed process cannot clean up
                        self.assertEqual(os.listdir(folder), [])

    def wait_until_gone(self, pids, folder):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            left = [pid for pid in pids if children_of(pid) or command_line(pid)]
            if not left and not mentioning(folder):
                return
            time.sleep(0.05)
        self.fail(f"still there: {left}, {mentioning(folder)}")

    def test_where_there_can_be_none_one_line_says_why_and_what_to_change(self):
        told = io.StringIO()
        with mock.patch("lab.SEARCH", "/nowhere"), contextlib.redirect_stderr(told):
            with self.assertRaises(unittest.SkipTest):
                Lab.of(self)
        self.assertRegex(told.getvalue(), r"^SKIPPED: no Slurm lab: slurmctld, .* not found: "
                                          r"run deploy/install-deps --tests\n$")
        if os.getuid() == 0:
            done = subprocess.run(["setpriv", "--bounding-set=-sys_admin", sys.executable,
                                   str(FOLDER / "lab.py"), "up"],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("CAP_SYS_ADMIN", done.stderr)

    def test_a_command_in_a_lab_by_hand(self):
        require(self)
        done = subprocess.run([sys.executable, str(FOLDER / "lab.py"), "run", "--nodes", "2", "--",
                               "sh", "-c", "srun -N2 hostname; exit 7"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(sorted(done.stdout.split()), ["n1", "n2"])


if __name__ == "__main__":
    unittest.main()
