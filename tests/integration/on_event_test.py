"""What a job's on_event asks for happens, once for each event, and never disturbs the job."""

import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import Cluster, wait_until  # noqa: E402


class OnEvent(unittest.TestCase):
    def test_a_command_gets_the_event_and_a_failing_one_is_no_fault_of_the_job(self):
        cluster = Cluster(self)
        told = cluster.path("told")
        spec = cluster.train_job(steps=60)
        spec["on_event"] = {"kinds": ["rank_exited", "succeeded"],
                            "command": ["/bin/sh", "-c", f"cat >> {told}; exit 1"]}
        job = cluster.submit(spec)
        cluster.wait_for_step(job, 10)
        cluster.kill_rank(job, 1)
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))

        def events():
            lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
            return [json.loads(line) for line in lines]
        wait_until(lambda: any(e["kind"] == "succeeded" for e in events()), "the command is run")
        exited = [e for e in events() if e["kind"] == "rank_exited"]
        self.assertTrue(any("rank 1" in e["message"] for e in exited), events())


if __name__ == "__main__":
    unittest.main()
