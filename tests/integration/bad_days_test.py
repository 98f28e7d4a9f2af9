"""Bad days of the scheduler with real daemons: full disks, killed coordinators, two who do the same at once."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, alive, can_have_namespaces, kill, wait_until  # noqa: E402

CLASSES = "classes: {urgent: 10}\npreemption: {after: 3s}\nqueues: {default: {}}\n"
# Ends when it is asked to, and takes its time.
SAVES_SLOWLY = "trap 'sleep 3; exit 0' TERM; while :; do sleep 0.2; done"


class BadDay(unittest.TestCase):
    def start(self, **options):
        self.cluster = Cluster(self, nodes=1, slots=1, **options)

    def apply(self, text, name="queues.yaml", check=True):
        file = self.cluster.path(name)
        file.write_text(text, encoding="utf-8")
        return self.cluster.muster("queues", "apply", file, check=check)

    def command(self, name, script, **more):
        return self.cluster.submit({"name": name, "workdir": str(self.cluster.root), "command": ["sh", "-c", script],
                                    "resources": {"nodes": 1}, **more})

    def kinds(self, job):
        return [event["kind"] for event in self.cluster.json("events", job)]

    def expect_one_preemption(self, victim, claimant):
        self.assertEqual(self.cluster.wait(claimant), 0, self.cluster.describe(claimant))
        self.cluster.wait_for_state(victim, "running")
        self.assertEqual(self.cluster.get(victim)["generation"], 2, self.cluster.describe(victim))
        self.assertEqual(self.kinds(victim).count("preempted"), 1, self.kinds(victim))
        self.assertEqual(self.kinds(claimant).count("reclaims"), 1, self.kinds(claimant))
        self.assertNotIn("delayed", self.kinds(claimant))


class KilledCoordinator(BadDay):
    def test_a_preemption_that_was_decided_is_carried_out_once(self):
        self.start()
        self.apply(CLASSES)
        victim = self.command("victim", SAVES_SLOWLY)
        self.cluster.wait_for_state(victim, "running")
        claimant = self.command("claimant", "true", **{"class": "urgent"})
        wait_until(lambda: "preempted" in self.kinds(victim), "the preemption is decided")
        pid = self.cluster.coordinator_pid()
        kill(pid)
        wait_until(lambda: not alive(pid), "the coordinator is gone")
        self.cluster.up()
        self.expect_one_preemption(victim, claimant)


class TwoAtOnce(BadDay):
    def test_of_two_files_that_are_applied_at_once_one_is_refused_or_both_are_versions(self):
        self.start()
        version = self.cluster.json("queues", "show")["version"]
        files = []
        for weight in (2, 3):
            files.append(self.cluster.path(f"queues-{weight}.yaml"))
            files[-1].write_text(f"queues: {{default: {{weight: {weight}}}}}\n", encoding="utf-8")
        callers = [subprocess.Popen([BIN / "muster", "queues", "apply", file, "--dir", self.cluster.dir],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for file in files]
        said = [caller.communicate(timeout=60) for caller in callers]
        codes = [caller.returncode for caller in callers]
        self.assertTrue(set(codes) <= {0, 6} and 0 in codes, (codes, said))
        for code, (_, errors) in zip(codes, said):
            if code == 6:
                self.assertIn("another file was applied in between", errors)
        now = self.cluster.json("queues", "show")["version"]
        self.assertEqual(now - version, codes.count(0))


@unittest.skipUnless(can_have_namespaces(), "a small disk of its own needs root")
class FullDisk(BadDay):
    """The disk with the coordinator's store is full: what it has acknowledged stays, and nothing else has happened."""

    def setUp(self):
        self.disk = pathlib.Path(tempfile.mkdtemp(prefix="muster-small-"))
        self.addCleanup(shutil.rmtree, self.disk, ignore_errors=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", self.disk], check=True, timeout=60)
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True, timeout=60)
        os.environ["TMPDIR"] = str(self.disk)
        tempfile.tempdir = None
        self.addCleanup(self.use_usual_disk)
        self.start()

    def use_usual_disk(self):
        os.environ.pop("TMPDIR", None)
        tempfile.tempdir = None

    def fill(self):
        filler = self.disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass
            try:
                while True:
                    file.write(bytes(1 << 10))
            except OSError:
                pass
        return filler

    def expect_the_coordinator_to_end(self):
        pid = self.cluster.coordinator_pid()
        wait_until(lambda: not alive(pid), "the coordinator has ended")

    def test_queues_that_could_not_be_stored_are_not_in_force(self):
        self.apply("queues: {default: {}, a: {}}\n")
        file = self.cluster.path("large.yaml")
        file.write_text("queues: {default: {}, b: {}}\n" + "#" * 1_000_000, encoding="utf-8")
        job = self.command("job", "exec sleep 600")
        self.cluster.wait_for_state(job, "running")
        pid = self.cluster.ranks(job)[0]
        filler = self.fill()
        failed = self.cluster.muster("queues", "apply", file, check=False)
        self.assertEqual(failed.returncode, 5, failed.stderr)
        self.assertIn("the state could not be written", failed.stderr)
        self.expect_the_coordinator_to_end()
        filler.unlink()
        self.cluster.up()
        queues = self.cluster.json("queues", "show")
        self.assertEqual((queues["version"], [queue["name"] for queue in queues["queues"]]), (1, ["default", "a"]))
        self.assertTrue(alive(pid), "its job went on")
        self.assertEqual(self.apply(file.read_text(encoding="utf-8")).returncode, 0)

    def test_a_preemption_that_could_not_be_stored_has_not_begun(self):
        self.apply(CLASSES.replace("3s", "8s"))
        victim = self.command("victim", SAVES_SLOWLY)
        self.cluster.wait_for_state(victim, "running")
        pid = self.cluster.ranks(victim)[0]
        claimant = self.command("claimant", "true", **{"class": "urgent"})
        self.assertNotIn("preempted", self.kinds(victim))
        filler = self.fill()
        self.expect_the_coordinator_to_end()
        self.assertTrue(alive(pid), "it was not asked to stop")
        filler.unlink()
        self.cluster.up()
        self.expect_one_preemption(victim, claimant)


if __name__ == "__main__":
    unittest.main()
