"""Clusters in network namespaces: gangs meet over TCP, a link can be cut, nothing is left behind."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import (BIN, Cluster, can_have_namespaces, ip, kill, namespaces, processes_of,  # noqa: E402
                     run, trajectory, wait_until)

UNREACHABLE = 5  # the exit code


@unittest.skipUnless(can_have_namespaces(), "network namespaces need root and the program ip")
class NetworkNamespaces(unittest.TestCase):
    def test_a_gang_trains_across_them_to_the_same_numbers(self):
        cluster = Cluster(self, nodes=2, up=("--netns",))
        job = cluster.submit(cluster.train_job(steps=10))
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        alone = Cluster(self, nodes=2)
        other = alone.submit(alone.train_job(steps=10, model=cluster.model()))
        self.assertEqual(alone.wait(other), 0, alone.describe(other))
        self.assertEqual(trajectory(cluster.output(job)), trajectory(alone.output(other)))

    def test_a_cut_link_cuts_the_control_stream_and_nothing_of_the_client(self):
        cluster = Cluster(self, nodes=2, up=("--netns", "--allow-faults"))
        states = lambda: {node["name"]: node["state"] for node in cluster.json("nodes")}  # noqa: E731
        cluster.set_link("node-2", False)
        wait_until(lambda: states()["node-2"] != "ready", "the cut node is not ready", timeout=30)
        self.assertEqual(states()["node-1"], "ready")
        cluster.set_link("node-2", True)
        wait_until(lambda: states()["node-2"] == "ready", "the node is back", timeout=60)

    def test_down_removes_every_namespace(self):
        cluster = Cluster(self, nodes=3, up=("--netns",))
        self.assertEqual(len(cluster.network_namespaces()), 4)
        cluster.muster("down")
        self.assertEqual(cluster.network_namespaces(), [])

    def test_what_runs_stays_and_what_is_missing_comes_back_into_its_namespace(self):
        cluster = Cluster(self, nodes=2, up=("--netns",))
        job = cluster.submit(cluster.train_job(steps=150))
        cluster.wait_for_step(job, 5)
        worker = cluster.json("nodes")[1]["pid"]
        home = os.stat(f"/proc/{worker}/ns/net").st_ino
        kill(worker)
        kill(cluster.coordinator_pid())
        cluster.up_options = ()  # as before
        self.assertEqual(cluster.up()["started"], ["coordinator", "node-2"])
        worker = cluster.json("nodes")[1]["pid"]
        self.assertEqual(os.stat(f"/proc/{worker}/ns/net").st_ino, home)
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        self.assertEqual(len(cluster.get(job)["attempts"]), 1)

    def test_a_node_that_is_made_again_keeps_its_hardware_address(self):
        """Else the others send to the old one until they forget it."""
        cluster = Cluster(self, nodes=2, up=("--netns",))

        def address():
            name = next(each for each in cluster.network_namespaces() if each.endswith("node-2"))
            shown = subprocess.run([shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin"), "-n", name, "-o", "link", "show",
                                    "eth0"], capture_output=True, text=True,
                                   check=True, timeout=30).stdout
            return shown[shown.index("link/ether"):].split()[1]

        before = address()
        cluster.kill_node("node-2", "")
        cluster.up()
        cluster.wait_until_ready()
        self.assertEqual(address(), before)

    def test_leftovers_of_a_killed_up_are_removed_by_the_next_up_and_by_down(self):
        root = pathlib.Path(tempfile.mkdtemp(prefix="muster-test-"))
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        up = json.loads(run("muster", "up", "--netns", "--nodes", "1", "--dir", root / "c",
                            "-o", "json").stdout)
        run("muster", "down", "--dir", root / "c")
        # Tests that run beside this one have clusters of their own.
        ours = lambda: namespaces(up["network_namespace"].removesuffix("hub"))  # noqa: E731
        command = [BIN / "muster", "up", "--netns", "--nodes", "8", "--dir", root / "c"]
        for command_after, moment in (("up", 3), ("down", 6), ("down", 9)):
            up_process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
            wait_until(lambda: len(ours()) >= moment or up_process.poll() is not None,
                       "namespaces are made")
            up_process.kill()
            up_process.wait()
            if command_after == "up":
                run("muster", "up", "--netns", "--nodes", "2", "--dir", root / "c")
                self.assertEqual(len(ours()), 3, ours())
            run("muster", "down", "--dir", root / "c")
            self.assertEqual(ours(), [])
            self.assertEqual(processes_of(root), [])

    def test_a_coordinator_elsewhere_speaks_to_no_network_in_clear(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("muster-coordinator", "--dir", folder, "--worker-listen", "127.0.0.1:0",
                       check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("only allowed in the network namespace", done.stderr)

    def test_a_way_out_of_the_hub_is_refused(self):
        cluster = Cluster(self, nodes=1, up=("--netns",))
        kill(cluster.coordinator_pid())
        ip("-n", cluster.hub, "route", "add", "default", "via", "10.77.0.2")
        done = cluster.muster("up", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("route by a gateway", done.stderr)
        ip("-n", cluster.hub, "route", "del", "default")

    def test_links_are_cut_only_where_faults_are_allowed(self):
        cluster = Cluster(self, nodes=1, up=("--netns",))
        done = cluster.muster("fault", "--node", "node-1", "--kind", "link-down", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--allow-faults", done.stderr)

    def test_a_cut_link_is_in_the_stories_of_the_cluster_and_of_the_jobs_it_strikes(self):
        cluster = Cluster(self, nodes=3, up=("--netns", "--allow-faults"))
        job = cluster.submit(cluster.train_job(steps=80))
        other = cluster.submit(cluster.train_job(steps=5, nodes=1))
        cluster.wait_for_step(job, 5)
        self.assertEqual(cluster.wait(other), 0, cluster.describe(other))
        node = cluster.get(job)["ranks"][1]["node"]
        cluster.set_link(node, False)
        told = [f"link-down ordered for node {node}"]
        self.assertEqual(self.faults(cluster, job), told)
        self.assertEqual(self.faults(cluster), told)
        cluster.set_link(node, True)
        self.assertEqual(self.faults(cluster), [*told, f"link-up ordered for node {node}"])
        self.assertEqual(self.faults(cluster, other), [])
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        self.assertEqual(self.faults(cluster, job)[:1], told)

    def test_a_link_can_be_put_back_while_the_coordinator_is_away(self):
        cluster = Cluster(self, nodes=2, up=("--netns", "--allow-faults"))
        cluster.set_link("node-2", False)
        kill(cluster.coordinator_pid())
        done = cluster.muster("fault", "--node", "node-1", "--kind", "link-down", check=False)
        self.assertEqual(done.returncode, UNREACHABLE, done.stderr)
        done = cluster.muster("fault", "--node", "node-2", "--kind", "link-up")
        self.assertIn("did not record the fault", done.stderr)
        cluster.up()
        cluster.wait_until_ready()

    def faults(self, cluster, *job):
        """The recorded events of faults: of a job, or of the cluster."""
        return [event["message"] for event in cluster.json("events", *job)
                if event["kind"] == "fault_injected" and bool(event["job"]) == bool(job)]

    def test_a_running_cluster_does_not_change_its_network(self):
        cluster = Cluster(self, nodes=1)
        done = cluster.muster("up", "--netns", check=False)
        self.assertIn("already runs without network namespaces", done.stderr)


if __name__ == "__main__":
    unittest.main()
