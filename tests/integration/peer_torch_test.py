"""A Python torch.distributed program as a job, in both rendezvous modes.

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

import peer  # noqa: E402
from cluster import Cluster  # noqa: E402

PROGRAM = """
import datetime, os
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
ranks = torch.zeros(dist.get_world_size())
ranks[dist.get_rank()] = dist.get_rank() + 1
dist.all_reduce(ranks)
assert ranks.tolist() == [1.0, 2.0], ranks
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
    os.kill(os.getpid(), 9)
dist.barrier()
print("agreed", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
dist.destroy_process_group()
"""


class PeerTorch(unittest.TestCase):
    def run_program(self, rendezvous):
        peer.require()
        cluster = Cluster(self)
        program = cluster.path("program.py")
        program.write_text(PROGRAM)
        job = cluster.submit({
            "name": "peer", "resources": {"nodes": 2, "ranks_per_node": 1, "device": "cpu"},
            "workdir": str(cluster.root), "command": [str(peer.PYTHON), str(program)],
            "rendezvous": rendezvous})
        self.assertEqual(cluster.wait(job, timeout=150), 0, cluster.describe(job))
        got = cluster.get(job)
        self.assertEqual(len(got["attempts"]), 2)
        self.assertEqual(got["attempts"][0]["failed_rank"], 1)
        for rank in (0, 1):
            log = pathlib.Path(got["output_dir"], "logs", "2", f"rank-{rank}.log").read_text()
            self.assertIn("agreed 1", log)

    def test_with_the_agents_store(self):
        self.run_program("agent")

    def test_with_a_store_of_rank_0(self):
        self.run_program("rank0")


if __name__ == "__main__":
    unittest.main()
