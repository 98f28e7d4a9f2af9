"""Ranks in a container are supervised as others are: the same processes, exits, signals and recovery."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import BIN, Cluster, alive, kill, trajectory, wait_until  # noqa: E402


def root_for(folder, *programs):
    """An unpacked root that has these programs of the node, and nothing else."""
    for program in map(shutil.which, programs):
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for file in [program, *(word for word in linked.split() if word.startswith("/"))]:
            target = folder / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(file, target)
    (folder / "etc").mkdir(parents=True, exist_ok=True)
    (folder / "etc" / "of-the-root").write_text("root\n")
    return folder


class ContainerJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        made = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
        if made.returncode != 0 and subprocess.run(["unshare", "--user", "--mount", "true"], capture_output=True,
                                                   check=False).returncode != 0:
            raise unittest.SkipTest("this machine lets its user make no mount namespace")

    def setUp(self):
        self.cluster = Cluster(self)
        self.work = self.cluster.path("work")
        self.work.mkdir()
        self.image = root_for(self.cluster.path("image"), "sh", "cat", "sleep", "grep")

    def job(self, script, mounts=(), **more):
        return {"name": "contained", "resources": {"nodes": 2, "ranks_per_node": 1, "device": "cpu"},
                "workdir": str(self.work), "container": {"image": str(self.image), "mounts": list(mounts)},
                "command": ["sh", "-c", script], **more}

    def logs(self, job, generation=1):
        folder = self.cluster.output(job) / "logs" / str(generation)
        return [(folder / f"rank-{rank}.log").read_text() for rank in range(2)]

    def mounts_of_the_node(self):
        return pathlib.Path("/proc/self/mountinfo").read_text()

    def test_ranks_see_the_root_the_mounts_and_their_working_directory(self):
        data = self.cluster.path("data")
        data.mkdir()
        (data / "rows").write_text("rows\n")
        (self.cluster.path("linked")).symlink_to(data)
        script = ('cat /etc/of-the-root /data/rows; [ -e /etc/passwd ] || echo "not the node\'s"; '
                  'echo x >/data/rows || echo "read-only"; echo "$RANK" >>/both/rank-$RANK; pwd; '
                  'echo tmp >/tmp/file; echo root >/etc/of-the-root; cat /etc/of-the-root')
        both = self.cluster.path("both")
        both.mkdir()
        job = self.cluster.submit(self.job(script, [f"{self.cluster.path('linked')}:/data:ro", f"{both}:/both"]))
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        for log in self.logs(job):
            lines = [line for line in log.splitlines() if "sh:" not in line]
            self.assertEqual(lines, ["root", "rows", "not the node's", "read-only", str(self.work), "root"])
        self.assertEqual(sorted(p.name for p in both.iterdir()), ["rank-0", "rank-1"])
        self.assertEqual((self.image / "etc" / "of-the-root").read_text(), "root\n")
        self.assertFalse((self.image / "tmp").exists(), "the root stays as it is")
        self.assertIn(f"container  {self.image}, with", self.cluster.describe(job))

    def test_an_exit_code_is_the_programs_own(self):
        job = self.cluster.submit(self.job("exit 7", restart={"max_without_progress": 1}))
        self.assertEqual(self.cluster.wait(job), 10)
        self.assertIn("exited with code 7", self.cluster.get(job)["attempts"][-1]["cause"])

    def test_a_killed_rank_is_started_again_in_the_root(self):
        job = self.cluster.submit(self.job('[ "$MUSTER_GENERATION" = 1 ] && exec sleep 1000; cat /etc/of-the-root'))
        pid = self.cluster.ranks(job)[1]
        wait_until(lambda: b"sleep" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes(), "the program runs")
        self.assertEqual(pathlib.Path(f"/proc/{pid}/root/etc/of-the-root").read_text(), "root\n")
        kill(pid)
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        first = self.cluster.get(job)["attempts"][0]
        self.assertIn("SIGKILL", first["cause"])
        self.assertEqual(first["failed_rank"], 1)
        self.assertEqual(self.logs(job, 2), ["root\n"] * 2)

    def test_a_cancel_reaches_the_ranks_and_leaves_no_process_and_no_mount(self):
        before = self.mounts_of_the_node()
        script = 'trap "echo asked; exit 0" TERM; sleep 1000 & echo up; wait'
        job = self.cluster.submit(self.job(script))
        ranks = self.cluster.ranks(job)
        wait_until(lambda: self.logs(job) == ["up\n"] * 2, "the programs run")
        guardians = self.cluster.guardians(job)
        self.assertEqual(len(guardians), 2)
        self.cluster.muster("cancel", job)
        self.assertEqual(self.cluster.wait(job), 11)
        self.assertEqual(self.logs(job), ["up\nasked\n"] * 2)
        wait_until(lambda: not any(map(alive, [*ranks.values(), *guardians.values()])), "all are gone")
        self.assertEqual(self.mounts_of_the_node(), before)

    def test_ranks_end_with_their_guardian(self):
        job = self.cluster.submit(self.job("exec sleep 1000"))
        ranks = self.cluster.ranks(job)
        guardian = next(iter(self.cluster.guardians(job).values()))
        children = [pid for pid in ranks.values()
                    if f"PPid:\t{guardian}\n" in pathlib.Path(f"/proc/{pid}/status").read_text()]
        self.assertEqual(len(children), 1)
        kill(guardian)
        wait_until(lambda: not alive(children[0]), "the rank has ended with its guardian")
        self.cluster.muster("cancel", job)

    def refusal(self, spec):
        """What a job's one attempt ended with: another would fail the same way."""
        job = self.cluster.submit(spec)
        self.assertEqual(self.cluster.wait(job), 10)
        self.assertLessEqual(len(self.cluster.get(job)["attempts"]), 1)
        return self.cluster.describe(job)

    def test_what_a_node_lacks_fails_the_job_at_once_and_is_named(self):
        gone = self.cluster.path("gone")
        spec = self.job("true")
        self.assertIn(f"container.mounts: there is no {gone} on this node",
                      self.refusal({**spec, "container": {"image": str(self.image), "mounts": [str(gone)]}}))
        self.assertIn(f"container.image: there is no directory {gone} on this node",
                      self.refusal({**spec, "container": {"image": str(gone)}}))
        self.assertIn("no program named 'python9' in PATH",
                      self.refusal({**spec, "command": ["python9"]}))
        self.assertRegex(self.refusal({**spec, "container": {"image": "localhost/no-such-image:1"}}),
                         "run `podman pull localhost/no-such-image:1` there|this node has no podman")
        self.assertIn("the image has no place for /etc/of-the-root/below",
                      self.refusal({**spec, "container": {"image": str(self.image), "mounts": [
                          f"{self.work}:/etc/of-the-root/below"]}}))

    def test_a_train_job_recovers_in_place_in_a_root_without_any_library(self):
        empty = self.cluster.path("empty")
        empty.mkdir()
        calm = self.cluster.calm(steps=30)
        spec = {**self.cluster.train_job(steps=30), "workdir": str(self.work)}
        spec["container"] = {"image": str(empty), "mounts": [f"{self.cluster.path('model')}:ro",
                                                             f"{self.cluster.path('rows.jsonl')}:ro"]}
        job = self.cluster.submit(spec)
        self.cluster.wait_for_step(job, 8)
        for pid in self.cluster.ranks(job).values():
            self.assertFalse(pathlib.Path(f"/proc/{pid}/root/bin").exists(), "it runs in the root")
        survivor = self.cluster.ranks(job)[0]
        self.cluster.kill_rank(job, 1)
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        attempts = self.cluster.get(job)["attempts"]
        self.assertEqual([a["tier"] for a in attempts], ["launch", "in_place"])
        self.assertEqual({r["rank"]: r["pid"] for r in self.cluster.get(job)["ranks"]}.get(0, survivor), survivor)
        self.assertEqual(trajectory(self.cluster.output(job)),
                         [(step, entry["loss"], entry["grad_norm"]) for step, entry in sorted(calm.items())])

    @unittest.skipUnless(shutil.which("podman"), "there is no podman")
    def test_an_image_of_podman_is_entered_by_its_layers(self):
        image = f"localhost/muster-test-{os.getpid()}"
        self.addCleanup(subprocess.run, ["podman", "rmi", "--force", f"{image}:1", f"{image}:2"],
                        capture_output=True, check=False)
        archive = self.cluster.path("image.tar")
        subprocess.run(["tar", "-C", self.image, "-cf", archive, "."], check=True)
        (self.cluster.path("image.build")).write_text(f"FROM {image}:1\nCOPY upper /etc/upper\n")
        self.cluster.path("upper").write_text("upper\n")
        for command in (["import", "--change", "ENV=OF_IMAGE=yes", str(archive), f"{image}:1"],
                        ["build", "--tag", f"{image}:2", "--file", str(self.cluster.path("image.build")),
                         str(self.cluster.root)]):
            subprocess.run(["podman", *command], check=True, capture_output=True, timeout=120)
        job = self.cluster.submit(self.job("cat /etc/of-the-root /etc/upper; echo $OF_IMAGE"), "--container",
                                  f"{image}:2")
        self.assertEqual(self.cluster.wait(job), 0, self.cluster.describe(job))
        self.assertEqual(self.logs(job), ["root\nupper\nyes\n"] * 2)

    def test_torchruns_command_line_runs_in_a_container(self):
        done = subprocess.run([BIN / "muster", "run", "--dir", self.cluster.dir, "--container", self.image, "--mount",
                               f"{self.work}:/w:ro", "--nnodes", "1", "--no-python", "sh", "-c",
                               'cat /etc/of-the-root; [ -d /w ] && echo "$PATH"'],
                              cwd=self.work, capture_output=True, text=True, check=True, timeout=120)
        self.assertIn("root\n", done.stdout)
        self.assertIn("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", done.stdout)


if __name__ == "__main__":
    unittest.main()
