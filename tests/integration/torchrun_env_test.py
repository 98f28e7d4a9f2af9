"""`muster-trainer train FILE` under torchrun's environment alone, without any of Muster's daemons."""

import json
import signal
import subprocess
import tempfile
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from cluster import (BIN, init_model, read_metrics, train_job, trajectory, wait_until,  # noqa: E402
                     write_rows)
from gang import free_port  # noqa: E402


class TorchrunEnvironment(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(temp.cleanup)
        self.root = pathlib.Path(temp.name)
        self.model = init_model(self.root / "model")
        self.rows = write_rows(self.root / "rows.jsonl")

    def start(self, name, restarts=0, steps=80):
        """Two ranks, started as torchrun or srun would."""
        spec = train_job(self.model, self.rows, self.root / name, name=name, steps=steps)
        file = self.root / f"{name}.yaml"
        file.write_text(json.dumps(spec))
        port, ranks = free_port(), []
        for rank in range(2):
            variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2,
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                         "TORCHELASTIC_RESTART_COUNT": restarts, "OMP_NUM_THREADS": 1}
            with open(self.root / f"{name}-{restarts}-{rank}.log", "wb") as log:
                ranks.append(subprocess.Popen(
                    [BIN / "muster-trainer", "train", file], stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log, env={**os.environ, **{k: str(v) for k, v in variables.items()}}))
            self.addCleanup(self.end, ranks[-1])
        return ranks

    def end(self, process):
        process.kill()
        process.wait()

    def finish(self, ranks):
        logs = lambda: "\n".join(p.read_text() for p in self.root.glob("*.log"))
        self.assertEqual([p.wait(timeout=60) for p in ranks], [0, 0], logs())

    def test_a_run_ends_with_a_model_and_committed_checkpoints(self):
        self.finish(self.start("calm", steps=25))
        self.assertEqual(sorted(read_metrics(self.root / "calm")), list(range(1, 26)))
        self.assertTrue((self.root / "calm" / "model" / "config.json").exists())
        manifests = sorted((self.root / "calm" / "checkpoints").glob("step-*/manifest.json"))
        self.assertEqual([json.loads(m.read_text())["step"] for m in manifests], [20, 25])

    def test_a_run_that_was_killed_goes_on_from_its_newest_checkpoint(self):
        self.finish(self.start("calm"))
        ranks = self.start("killed")
        checkpoints = self.root / "killed" / "checkpoints"
        wait_until(lambda: list(checkpoints.glob("step-*/manifest.json")), "a committed checkpoint")
        ranks[1].send_signal(signal.SIGKILL)
        # Rank 0 receives no message; it detects that its peer is gone and ends on its own.
        self.assertNotEqual(ranks[0].wait(timeout=30), 0)
        before = max(read_metrics(self.root / "killed"))
        self.assertLess(before, 80)
        self.finish(self.start("killed", restarts=1))
        self.assertEqual(trajectory(self.root / "killed"), trajectory(self.root / "calm"))
        lines = (self.root / "killed" / "metrics.jsonl").read_text().splitlines()
        self.assertLess(len(lines), before + 80, "it did not start from the beginning again")

    def test_one_process_alone_needs_no_environment(self):
        spec = train_job(self.model, self.rows, self.root / "alone", name="alone", steps=5, nodes=1)
        file = self.root / "alone.yaml"
        file.write_text(json.dumps(spec))
        done = subprocess.run([BIN / "muster-trainer", "train", file], capture_output=True, text=True,
                              timeout=60, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(read_metrics(self.root / "alone")), [1, 2, 3, 4, 5])

    def test_a_log_that_cannot_be_written_fails_no_training(self):
        spec = train_job(self.model, self.rows, self.root / "full", name="full", steps=5, nodes=1)
        file = self.root / "full.yaml"
        file.write_text(json.dumps(spec))
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([BIN / "muster-trainer", "train", file], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.root / "full" / "model" / "config.json").exists())


if __name__ == "__main__":
    unittest.main()
