"""What the tests of training against transformers and PEFT share: a model with rows to learn, and
the losses of one job from either side.
"""

import contextlib
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import drawn  # noqa: E402
import peer  # noqa: E402
from cluster import BIN, init_model, read_metrics  # noqa: E402
from families import FAMILIES, LLAMA3_ROPE, MIXTURES  # noqa: E402,F401
from gang import Gang  # noqa: E402
from token_rows import write_npy  # noqa: E402

TOKENS = 96
ROWS = 160  # fewer than 50 steps read: the second epoch is compared as well
WORDS = 60   # token ids in use
# High enough to learn, low enough that rounding does not grow: transformers' own fp32 curve stays
# within 2e-6 of its fp64 curve. At 1e-3 it strays by 1e-4 and bf16 runs by 5e-2.
LEARNING_RATE = 3.0e-4
LIMIT_S = 240
# Ranks, and rows and micro-batches of each: batches of 4 rows.
WAYS = ((1, 2, 2), (2, 1, 2))

EVERYWHERE = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}


def learnable_rows():
    """Each token follows from the one before it but for two bits, so the loss falls a long way."""
    source = random.Random(7)
    rows = []
    for _ in range(ROWS):
        row = [source.randrange(WORDS)]
        while len(row) < TOKENS:
            row.append((5 * row[-1] + 7 + source.randrange(4)) % WORDS)
        rows.append(row)
    return rows


class TrainingParity(unittest.TestCase):
    steps = 50

    @classmethod
    def setUpClass(cls):
        peer.require()
        temp = tempfile.TemporaryDirectory(prefix="muster-parity-")
        cls.addClassCleanup(temp.cleanup)
        cls.root = pathlib.Path(temp.name)
        cls.runs = 0
        cls.model = init_model(cls.root / "model")
        cls.rows = write_npy(cls.root / "rows.npy", learnable_rows())

    @classmethod
    def folder(cls, name):
        cls.runs += 1
        folder = cls.root / f"{cls.runs}-{name}"
        folder.mkdir()
        return folder

    def train_block(self, precision, kind="cosine"):
        return {"model": {"path": str(self.model)},
                "data": {"train": str(self.rows), "max_seq_len": TOKENS, "shuffle": False},
                "fsdp": {"mixed_precision": precision},
                "optimizer": {"lr": LEARNING_RATE, "betas": [0.9, 0.95], "eps": 1.0e-8,
                              "weight_decay": 0.01, "grad_clip": 1.0},
                "schedule": {"kind": kind, "max_steps": self.steps,
                             "warmup_ratio": 0.1 if kind == "cosine" else 0},
                "checkpoint": {"every": 1000}}

    def model_like(self, **config):
        """The model with another configuration."""
        model = self.folder("model") / "model"
        shutil.copytree(self.model, model)
        path = model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **config}),
                        encoding="utf-8")
        return model

    def draw(self, *labels):
        """A seed for what this test calls by these labels."""
        return drawn.number(self._testMethodName, *labels)

    def new_model(self, seed=0, vectors=5, **config):
        """Random weights for the model's configuration with these changes, vectors of another seed among them."""
        folder = self.folder("new")
        path, model = folder / "config.json", folder / "model"
        base = json.loads((self.model / "config.json").read_text(encoding="utf-8"))
        path.write_text(json.dumps({**base, **config}), encoding="utf-8")
        subprocess.run([BIN / "muster-trainer", "init-model", "--config", path, "--out", model,
                        "--seed", str(seed)],
                       check=True, capture_output=True, timeout=LIMIT_S)
        self.reference("random_vectors.py", model, vectors)
        return model

    def reference(self, program, *arguments):
        """What a program of this folder prints."""
        done = subprocess.run([str(word) for word in (peer.PYTHON, HERE / program, *arguments)],
                              timeout=LIMIT_S, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def ours(self, train, world, per_rank, accumulation):
        return self.our_curves(train, world, per_rank, accumulation)["losses"]

    def our_curves(self, train, world, per_rank, accumulation):
        folder = self.folder("ours")
        job = {"name": "parity", "resources": {"nodes": 1, "ranks_per_node": world},
               "train": {**train, "batch": {"per_rank": per_rank, "accumulation": accumulation},
                         "output": {"dir": str(folder)}}}
        file = folder / "job.yaml"
        file.write_text(json.dumps(job), encoding="utf-8")
        with Gang([BIN / "muster-trainer", "train", file], world=world, logs=folder) as gang:
            gang.wait(LIMIT_S)
        metrics = read_metrics(folder)
        curve = [metrics[step] for step in range(1, self.steps + 1)]
        return {"losses": [row["loss"] for row in curve], "grad_norms": [row["grad_norm"] for row in curve]}

    def theirs(self, train, batch, adapter=None):
        return self.their_curves(train, batch, adapter)["losses"]

    def their_curves(self, train, batch, adapter=None, micro=None):
        folder = self.folder("reference")
        block, out = folder / "train.json", folder / "losses.json"
        block.write_text(json.dumps(train), encoding="utf-8")
        self.reference("reference_train.py", "--model", self.model, "--rows", self.rows, "--train",
                       block, "--batch", batch, "--out", out,
                       *(["--adapter", adapter] if adapter else []), *(["--micro", micro] if micro else []))
        return json.loads(out.read_text(encoding="utf-8"))

    def compare_export(self, rows, delta):
        """transformers finds every tensor in what the last run has exported, and tokens of these rows as likely as `score` does."""
        exported, ids = self.root / f"{self.runs}-ours" / "model", self.root / "ids.jsonl"
        ids.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        scored = subprocess.run([BIN / "muster-trainer", "score", "--model", exported, "--ids", ids, "-o", "json"],
                                check=True, capture_output=True, timeout=LIMIT_S).stdout
        theirs = json.loads(self.reference("reference_logits.py", "--model", exported, "--ids", ids).splitlines()[-1])
        for row, reference in zip(json.loads(scored)["rows"], theirs["logprobs"], strict=True):
            for ours, their in zip(row["logprobs"], reference, strict=True):
                self.assertAlmostEqual(ours, their, delta=delta)

    def distances(self, losses, reference):
        """Relative, of each step."""
        self.assertEqual((len(losses), len(reference)), (self.steps, self.steps))
        return [abs(a - b) / b for a, b in zip(losses, reference)]

    def straying(self, train, reference, batch):
        """How far the reference's curves in fp32 are from its own in fp64."""
        exact = self.their_curves({**train, "fsdp": {"mixed_precision": "fp64"}}, batch)
        return max(max(self.distances(curve, exact[name])) for name, curve in reference.items())

    def check(self, distances, limits, **what):
        """`limits`: (first step, last step, largest relative distance)."""
        for first, last, limit in limits:
            with self.subTest(**what, steps=(first, last)):
                self.assertLessEqual(max(distances[first - 1:last]), limit)


class AdapterParity(TrainingParity):
    """The same of adapters: training begins with one that PEFT has made, random B included."""

    adapter_seed = 3

    @contextlib.contextmanager
    def on_model(self, fixed=False, **config):
        """Within it the test's model has this configuration. Its weights and the adapters on them are drawn, or fixed."""
        seed = self.draw(json.dumps(config))
        seeds = {} if fixed else {"seed": seed, "vectors": seed}
        with unittest.mock.patch.multiple(type(self), model=self.new_model(**seeds, **config),
                                          adapter_seed=self.adapter_seed if fixed else seed):
            yield

    def of_family(self, name, **config):
        """PEFT keeps all-linear as names from 20 matrices on, and as paths of modules below, which are not read: a layer
        of a Phi-3 has four."""
        layers = {"num_hidden_layers": 5} if name == "phi3" else {}
        return self.on_model(**FAMILIES[name], **layers, **config)

    def peft_adapter(self, config):
        folder = self.folder("peft")
        path, adapter = folder / "lora.json", folder / "adapter"
        path.write_text(json.dumps(config), encoding="utf-8")
        self.reference("make_adapter.py", "--model", self.model, "--config", path, "--out", adapter,
                       "--seed", self.adapter_seed)
        return adapter

    def compare(self, precision, config, limits, ways=WAYS, learned=0.99, **blocks):
        """`blocks`: of the job's train block; `learned`: what is left of the loss at most. Returns what the last run has exported."""
        adapter = self.peft_adapter(config)
        lora = {"r": config["r"], "alpha": config["lora_alpha"],
                "rslora": config.get("use_rslora", False), "bias": config.get("bias", "none"),
                "target_modules": config["target_modules"] if isinstance(config["target_modules"], str)
                else config["target_modules"] + config.get("target_parameters", []),
                "modules_to_save": config.get("modules_to_save", []), "init_from": str(adapter)}
        train = {**self.train_block(precision), **blocks}
        train["optimizer"]["lr"] = 10 * LEARNING_RATE
        reference = self.theirs(train, batch=4, adapter=adapter)
        for way in ways:
            losses = self.ours({**train, "lora": lora}, *way)
            self.check(self.distances(losses, reference), limits, precision=precision,
                       world=way[0])
        self.assertLess(reference[-1], learned * reference[0], "the adapter did not learn anything")
        return self.root / f"{self.runs}-ours" / "adapter"

    def check_return(self, adapter):
        merged = self.folder("merged") / "model"
        subprocess.run([BIN / "muster-trainer", "merge", "--adapter", adapter, "--model",
                        self.model, "--out", merged], check=True, capture_output=True,
                       timeout=LIMIT_S)
        distance = self.reference("peft_logits.py", "--model", self.model, "--adapter", adapter,
                                  "--merged", merged, "--rows", self.rows)
        self.assertLessEqual(float(distance), 1e-5)
