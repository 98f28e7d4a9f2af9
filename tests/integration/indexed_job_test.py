"""muster-worker --auto as the pods of an Indexed Job of Kubernetes: they learn their peers from the Job's variables and
their own address from their name, take a lost pod's place, and end with what the Job's policy acts on. What the Job's
controller does is scripted; names are resolved by /etc/hosts of a private mount namespace."""

import json
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from allocation import Allocation  # noqa: E402
from cluster import children_of, read_metrics, trajectory, wait_until  # noqa: E402

JOB = "chat"
SERVICE = "chat-pods"
UID = "0f3c2a1b-77aa-4b6e-9d0e-5a5a5a5a5a5a"
# The pod's own view of the names. All pods are in one cgroup, in which each may make more where the kernel lets it.
IN_POD = 'mount --bind "$1" /etc/hosts && { mount -t cgroup2 none "$2" 2>/dev/null || true; } && shift 2 && exec "$@"'


class IndexedJob(Allocation):
    """One process per pod, as kubelet would start it, with processes and names of its own. A pod that is started again has another address."""

    def __init__(self, test, pods, arguments=()):
        super().__init__(test, pods, arguments)
        self.nodes = [f"{JOB}-{index}" for index in range(pods)]
        self.shared = self.output / f"kubernetes-{JOB}-{UID[:8]}"
        self.starts = 0
        (self.root / "cgroup").mkdir()

    def environment(self, index):
        tmp = self.root / "tmp" / self.nodes[index]
        tmp.mkdir(parents=True, exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        return {**kept, "JOB_COMPLETION_INDEX": str(index), "MUSTER_COMPLETIONS": str(len(self.nodes)),
                "MUSTER_JOB_NAME": JOB, "MUSTER_JOB_UID": UID, "MUSTER_SERVICE": SERVICE, "TMPDIR": str(tmp)}

    def mark(self, node):
        return f"TMPDIR={self.root / 'tmp' / node}"

    def command(self, index):
        self.starts += 1
        hosts = self.root / f"hosts-{self.starts}"
        hosts.write_text(f"127.0.0.1 localhost\n127.0.1.{self.starts} {self.nodes[index]}.{SERVICE}\n", encoding="utf-8")
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", IN_POD, "sh", str(hosts), str(self.root / "cgroup"),
                str(self.programs / "muster-worker"), "--auto", "--job", str(self.root / "job.yaml"), *self.arguments]

    def terminate(self, node):
        """To the pod's process 1, as kubelet does."""
        os.kill(children_of(self.tasks[node].pid)[0], signal.SIGTERM)

    def address(self, node):
        for path in self.shared.glob("nodes/*.json"):
            text = path.read_text(encoding="utf-8")
            if f'"{node}"' in text:
                return text.split('"address":"')[1].split(":")[0]
        return None

    def guardian(self, node):
        """What the newest guardian of the pod has put on record."""
        records = sorted((self.root / "tmp" / node).glob("**/guardian.json"), key=lambda path: path.stat().st_mtime)
        return json.loads(records[-1].read_text(encoding="utf-8"))

    def next_run(self):
        """What the controller does with pods that end with 75: it starts each of them again."""
        self.run += 1
        self.start()


@unittest.skipIf(os.geteuid() != 0, "a mount namespace for the names needs root")
class IndexedJobTest(unittest.TestCase):
    def job(self, pods=2, arguments=(), **job):
        pods = IndexedJob(self, pods, arguments)
        pods.write_job(**job)
        pods.start()
        return pods

    def check_done(self, pods, steps):
        self.assertEqual(set(pods.wait().values()), {0}, pods.logs())
        self.assertEqual(max(read_metrics(pods.output)), steps)
        self.assertEqual(pods.outcome()["action"], "done")
        wait_until(lambda: not pods.leftovers(), "nothing is left")

    def test_pods_find_each_other_and_a_late_one_ends_as_the_job_did(self):
        pods = self.job(pods=3, steps=40, spares=1)
        pods.wait_for_step(1)
        self.assertEqual([pods.address(node) for node in pods.nodes], ["127.0.1.1", "127.0.1.2", "127.0.1.3"])
        self.check_done(pods, 40)
        pods.start(only=[pods.nodes[2]])  # its node was lost while the job ended
        self.assertEqual(pods.tasks[pods.nodes[2]].wait(30), 0, pods.logs())
        self.assertEqual(pods.outcome()["run"], 0)

    def test_a_lost_pods_place_is_taken_by_the_next_one_of_its_index(self):
        undisturbed = self.job(steps=80)
        self.check_done(undisturbed, 80)
        pods = self.job(steps=80)
        pods.wait_for_step(30)
        pods.kill_node(f"{JOB}-1")
        pods.start(only=[f"{JOB}-1"])
        self.check_done(pods, 80)
        self.assertEqual(pods.address(f"{JOB}-1"), "127.0.1.3")
        self.assertEqual((pods.outcome()["run"], pods.leader()["epoch"]), (0, 1), "the others stayed")
        self.assertEqual(trajectory(pods.output), trajectory(undisturbed.output))

    def test_a_lost_leader_that_is_replaced_follows_who_leads_by_then(self):
        pods = self.job(pods=3, steps=150, spares=1)
        pods.wait_for_step(30)
        self.assertEqual(pods.leader()["node"], f"{JOB}-0")
        pods.kill_node(f"{JOB}-0")
        wait_until(lambda: pods.leader()["node"] == f"{JOB}-1", "another pod leads")
        pods.start(only=[f"{JOB}-0"])
        self.check_done(pods, 150)
        self.assertEqual((pods.leader()["node"], pods.leader()["epoch"]), (f"{JOB}-1", 2))

    def test_guardians_with_one_pid_below_one_cgroup_do_not_end_each_others_ranks(self):
        pods = self.job(steps=100000)
        pods.wait_for_step(1)
        guardians = [pods.guardian(node) for node in pods.nodes]
        if not all(guardian["cgroup"] for guardian in guardians):
            self.skipTest("no cgroup v2 can be mounted here")
        for guardian in guardians:
            self.assertRegex(guardian["cgroup"], rf"/muster-{guardian['job']}-{guardian['pid']}-[0-9]+$")

    def test_an_evicted_pod_has_the_state_saved_and_the_pods_that_are_started_again_go_on(self):
        undisturbed = self.job(steps=120)
        self.check_done(undisturbed, 120)
        pods = self.job(steps=120)
        pods.wait_for_step(30)
        pods.terminate(f"{JOB}-1")
        self.assertEqual(set(pods.wait().values()), {75}, pods.logs())
        self.assertEqual((pods.outcome()["action"], pods.outcome()["run"]), ("requeued", 0))
        self.assertLess(pods.step(), 120)
        pods.next_run()
        self.check_done(pods, 120)
        self.assertEqual(pods.outcome()["run"], 1)
        self.assertEqual(trajectory(pods.output), trajectory(undisturbed.output))

    def test_a_pod_without_an_address_says_what_the_manifest_lacks(self):
        pods = IndexedJob(self, 1)
        pods.write_job(steps=1, nodes=1)
        environment = pods.environment(0)
        del environment["MUSTER_SERVICE"]
        pods.environment = lambda index: environment
        pods.start()
        self.assertEqual(set(pods.wait().values()), {78})
        self.assertIn("MUSTER_SERVICE is not set", (pods.root / f"task-{JOB}-0.log").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
