"""muster migrate: the keys and values of the tools' own examples become job files, each of which takes a step: by Muster's
trainer with a tiny model, rows of this test and one rank of this machine's processors; or with a program of this test in
the place of the one that the example names.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from cluster import Cluster  # noqa: E402
from gang import Gang  # noqa: E402

BIN = pathlib.Path(os.environ["MUSTER_BIN_DIR"])
EXAMPLES = ROOT / "tests" / "migrate" / "testdata" / "examples"
# Full, LoRA and QLoRA, in chats, prompts and answers as they are, and text.
# Those whose job files train by Muster's own trainer; the others have a command.
TRAINED = [str(path.relative_to(EXAMPLES)) for tool in ("axolotl", "llamafactory", "torchtune", "trl", "accelerate", "deepspeed")
           for path in sorted((EXAMPLES / tool).iterdir())]
# A step of gradient descent on 3 x, of which each rank has a point; they meet in a folder.
PROGRAM = """
import json, os, pathlib, sys, time
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
shared = pathlib.Path(os.environ["SHARED"])
weight, x = 0.5, rank + 1.0
(shared / f"new-{rank}").write_text(str(2 * (weight * x - 3 * x) * x))
(shared / f"new-{rank}").rename(shared / f"gradient-{rank}")
while len(gradients := list(shared.glob("gradient-*"))) < ranks:
    time.sleep(0.02)
weight -= 0.01 * sum(float(path.read_text()) for path in gradients) / ranks
(shared / f"step-{rank}").write_text(json.dumps({"weight": weight, "arguments": sys.argv[1:], "ranks": ranks,
                                                 "hparams": os.environ.get("HPARAMS", "")}))
"""
# Tokens that the tiny model does not have: another template of the same kind.
TEMPLATES = {"llama3": "chatml"}


class Migrate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temp.cleanup)
        cls.root = pathlib.Path(cls.temp.name)
        subprocess.run([BIN / "muster-trainer", "init-model", "--preset", "tiny", "--out", cls.root / "model"],
                       check=True, timeout=120, capture_output=True)
        rows = [{"prompt": f"What is {i} and {i}?", "completion": f"It is {2 * i}."} for i in range(256)]
        (cls.root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        # The file that LLaMA-Factory's examples name.
        zero3 = cls.root / "examples" / "deepspeed" / "ds_z3_config.json"
        zero3.parent.mkdir(parents=True)
        zero3.write_text((EXAMPLES / "deepspeed" / "z3.json").read_text())

    def migrate(self, example, *options, code=0):
        done = subprocess.run([BIN / "muster", "migrate", EXAMPLES / example if "/" in str(example) else example, *options], cwd=self.root, timeout=120,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, f"{example}: {done.stderr}")
        return done

    def settings(self, example):
        """What makes the example small, and its model and rows those of this test."""
        values = {"resources": "{nodes: 1, ranks_per_node: 1, device: cpu}", "train.model.path": self.root / "model",
                  "train.data.train": self.root / "rows.jsonl", "train.data.max_seq_len": 64,
                  "train.schedule": "{kind: cosine, max_steps: 1}", "train.output.dir": self.root / example / "out"}
        if example.startswith("trl/") and example.endswith(".sh"):
            values["train.data.eval"] = self.root / "rows.jsonl"
        return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]

    def test_every_example_is_a_job_file(self):
        for example in sorted(EXAMPLES.glob("*/*")):
            name = f"{example.parent.name}/{example.name}"
            with self.subTest(name):
                open_ended = example.parent.name in ("accelerate", "deepspeed")
                out = self.root / f"{example.parent.name}-{example.stem}.yaml"
                self.migrate(name, "--out", out, *(self.settings(name) if open_ended else []))
                printed = subprocess.run([BIN / "muster", "plan", out], cwd=self.root, timeout=60, capture_output=True,
                                         text=True, check=False)
                # There is no coordinator; a job file that is none would be said before (2).
                self.assertNotEqual(printed.returncode, 2, printed.stderr)

    def test_each_takes_a_step(self):
        for example in TRAINED:
            with self.subTest(example):
                job = self.migrate(example, *self.settings(example)).stdout
                for there, here in TEMPLATES.items():
                    job = job.replace(f'chat_template: "{there}"', f'chat_template: "{here}"')
                file = self.root / f"{example.replace('/', '-')}.job.yaml"
                file.write_text(job)
                with Gang([BIN / "muster-trainer", "train", file], world=1, logs=self.root / "logs" / file.stem) as gang:
                    gang.wait(240)
                out = self.root / example / "out"
                lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
                self.assertEqual([line["step"] for line in lines], [1], example)
                self.assertGreater(lines[0]["loss"], 0)
                trained = "adapter" if "lora" in example else "model"
                self.assertTrue((out / trained).is_dir(), f"{example}: {list(out.iterdir())}")

    def test_each_command_takes_a_step_on_its_nodes(self):
        cluster = Cluster(self, nodes=2, slots=2)
        for tool in ("torchrun", "determined"):
            for example in sorted((EXAMPLES / tool).iterdir()):
                with self.subTest(example.name):
                    self.take_step(cluster, example)

    def take_step(self, cluster, example):
        place = self.root / f"{example.parent.name}-{example.stem}"
        (place / "bin").mkdir(parents=True)
        for name in ("python", "python3"):
            (place / "bin" / name).symlink_to(sys.executable)
        (place / "shared").mkdir()
        nodes = 2 if re.search(r"--nnodes (2|\$NNODES)", example.read_text()) else 1
        settings = {"resources": f"{{nodes: {nodes}, ranks_per_node: 2, device: cpu}}", "workdir": place,
                    "env.SHARED": place / "shared", "env.PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
        text = self.migrate(example, *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))).stdout
        (place / "job.yaml").write_text(text)
        command = json.loads(next(line for line in text.splitlines() if line.startswith("command: "))[len("command: "):])
        if "-m" in command:
            at = command.index("-m") + 1
            program = pathlib.Path(*command[at].split(".")).with_suffix(".py")
        else:
            at = next(i for i, word in enumerate(command) if word.endswith(".py"))
            program = pathlib.Path(command[at])
        (place / program).parent.mkdir(parents=True, exist_ok=True)
        (place / program).write_text(PROGRAM)
        job = cluster.json("submit", place / "job.yaml")["id"]
        self.assertEqual(cluster.wait(job), 0, cluster.describe(job))
        steps = [json.loads(path.read_text()) for path in (place / "shared").glob("step-*")]
        self.assertEqual(len(steps), 2 * nodes)
        for step in steps:
            self.assertEqual((step["ranks"], step["arguments"]), (2 * nodes, command[at + 1:]))
            self.assertAlmostEqual(step["weight"], steps[0]["weight"])
            self.assertNotEqual(step["weight"], 0.5)
            self.assertEqual(step["hparams"] != "", "HPARAMS" in text)

    def test_settings_of_a_named_deepspeed_file_are_in_the_job(self):
        job = self.migrate("llamafactory/full_qwen.yaml").stdout
        self.assertIn("strategy: \"full_shard\"", job)
        (self.root / "elsewhere").mkdir()
        done = subprocess.run([BIN / "muster", "migrate", EXAMPLES / "llamafactory/full_qwen.yaml"], timeout=60,
                              cwd=self.root / "elsewhere", capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("there is no such file", done.stderr)

    def test_what_is_refused_is_no_job_file_but_by_force(self):
        config = self.root / "refused.yaml"
        config.write_text("base_model: m\nlearning_rate: 1e-4\nload_in_8bit: true\ndatasets: [{path: r.jsonl}]\n")
        out = self.root / "refused.job.yaml"
        done = self.migrate(config, "--out", out, code=2)
        self.assertIn("refused    ", done.stderr)
        self.assertIn(":3: load_in_8bit: true: 8-bit weights are not supported", done.stderr)
        self.assertFalse(out.exists())
        self.assertIn("train:", self.migrate(config, "--force").stdout)
        quiet = self.migrate(config, "--quiet", code=2).stderr
        self.assertNotIn("taken", quiet)

    def test_a_command_is_taken_from_the_command_line(self):
        job = self.migrate("torchrun --nproc-per-node 2 train.py --lr 1").stdout
        self.assertIn('command: ["python3", "-u", "train.py", "--lr", "1"]', job)
        other = self.root / "other.yaml"
        other.write_text("a: 1\n")
        self.assertIn("--from", self.migrate(other, code=2).stderr)


if __name__ == "__main__":
    unittest.main()
