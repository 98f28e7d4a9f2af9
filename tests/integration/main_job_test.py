"""The main job: two nodes train, a rank is killed, and only some seconds are lost."""

import json
import os
import pathlib
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, read_metrics, run, trajectory, wait_until  # noqa: E402


def listening_ports(pid):
    """The TCP ports that a process listens at; 0A is the state of a listening socket."""
    own = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(fd))
        except FileNotFoundError:
            continue
    lines = pathlib.Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    rows = [line.split() for line in lines]
    return [int(row[1].rpartition(":")[2], 16) for row in rows
            if row[3] == "0A" and f"socket:[{row[9]}]" in own]


class MainJob(unittest.TestCase):
    def test_a_killed_rank_changes_no_loss_by_a_bit(self):
        cluster = Cluster(self)
        calm = cluster.submit(cluster.train_job())
        self.assertEqual(cluster.wait(calm), 0, cluster.describe(calm))
        expected = trajectory(cluster.output(calm))
        self.assertEqual([step for step, _, _ in expected], list(range(1, 81)))
        # The same model and data, and a fault between two checkpoints.
        for rank in (1, 0):
            with self.subTest(rank=rank):
                job = cluster.submit(cluster.train_job())
                cluster.wait_for_step(job, 30)
                cluster.kill_rank(job, rank)
                self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
                self.check_timeline(cluster, job, rank)
                self.assertEqual(trajectory(cluster.output(job)), expected)

    def check_timeline(self, cluster, job, rank):
        got = cluster.get(job)
        self.assertEqual(got["state"], "succeeded")
        self.assertEqual(got["generation"], 2)
        failed, after = got["attempts"]
        self.assertEqual(failed["failed_rank"], rank)
        self.assertIn("SIGKILL", failed["cause"])
        self.assertEqual(after["resumed_from"], "snapshot")
        self.assertGreaterEqual(after["resumed_step"], 29)
        self.assertLessEqual(failed["lost_steps"], 1)
        for stage in ("detect", "abort", "reform", "load", "first_step"):
            self.assertIsNotNone(after["seconds"][stage], stage)
            self.assertGreaterEqual(after["seconds"][stage], 0, stage)
        timeline = cluster.describe(job)
        self.assertIn("SIGKILL", timeline)
        self.assertIn(f"rank {rank}", timeline)
        self.assertIn(str(after["resumed_step"]), timeline)

    def test_who_comes_to_the_rendezvous_without_its_token_is_turned_away(self):
        cluster = Cluster(self)
        job = cluster.submit(cluster.train_job(steps=5000))
        output = cluster.output(job)
        for generation in (1, 2):
            with self.subTest(generation=generation):
                wait_until(lambda: any(line["generation"] == generation for line in read_metrics(output).values()),
                           "the generation trains")
                ranks = cluster.ranks(job)
                for pid in ranks.values():
                    for name in ("environ", "cmdline"):
                        self.assertNotIn(b"RENDEZVOUS_TOKEN", pathlib.Path(f"/proc/{pid}/{name}").read_bytes())
                ports = wait_until(lambda: listening_ports(ranks[0]), "rank 0 listens")
                for port in ports:
                    # The hello of PyTorch's store, and what it has for one key.
                    self.turned_away(port, b"\0\xce\xf7\x85\x3c\3\1\0\0\0\0\0\0\0a")
                log = output / "logs" / str(generation) / "rank-0.log"
                wait_until(lambda: "did not show this generation's token" in log.read_text(encoding="utf-8"),
                           "rank 0 has noted the stranger")
                if generation == 1:
                    cluster.kill_rank(job, 1)
        cluster.muster("cancel", job)
        self.assertEqual(cluster.wait(job), 11, cluster.describe(job))

    def turned_away(self, port, said):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
            stranger.sendall(said)
            try:
                self.assertEqual(stranger.recv(1), b"")
            except ConnectionResetError:
                pass  # the same, where it has not read all

    def test_the_output_directory_holds_what_was_promised(self):
        cluster = Cluster(self)
        job = cluster.submit(cluster.train_job(steps=25, every=10))
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        output = cluster.output(job)
        metrics = read_metrics(output)
        self.assertEqual(sorted(metrics), list(range(1, 26)))
        for key in ("step", "loss", "grad_norm", "lr", "tokens", "step_seconds",
                    "tokens_per_second", "generation", "world_size"):
            self.assertIn(key, metrics[25])
        self.assertEqual(metrics[25]["world_size"], 2)
        for name in ("config.json", "tokenizer.json"):
            self.assertTrue((output / "model" / name).exists(), name)
        self.assertTrue(list((output / "model").glob("*.safetensors")))
        for rank in (0, 1):
            self.assertTrue((output / "logs" / "1" / f"rank-{rank}.log").exists())
        self.check_newest_checkpoint(cluster, job)
        run("muster-trainer", "generate", "--model", output / "model", "--prompt", "Hello",
            "--max-tokens", "4")

    def check_newest_checkpoint(self, cluster, job):
        newest = cluster.checkpoints(job)[-1]
        manifest = json.loads((newest / "manifest.json").read_text())
        self.assertEqual(manifest["step"], 25)
        self.assertEqual(len(manifest["shards"]), 2)


if __name__ == "__main__":
    unittest.main()
