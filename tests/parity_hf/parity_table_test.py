"""Every architecture with every strategy, precision and kind of adapters against transformers, PEFT and bitsandbytes: the
largest relative difference of loss and gradient norm in 20 steps of AdamW.

  parity_table_test.py                     each combination is within the limit of its precision
  parity_table_test.py --write [NAME...]   writes docs/reference/parity.md too, or its rows of these architectures

tests/docs/parity_page_test.py tells whether the page has all of them. Fails, and does not skip, where Python torch is missing:
tests/run --label peer installs it.
"""

import json
import pathlib
import subprocess
import sys
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from parity_table import (ADAPTERS, ARCHITECTURES, BEYOND_RULER, COLUMNS, LIMITS, PACKED, PAGE,  # noqa: E402
                          RULER, STEPS, figures_of, lora_of, page_of)
from training_parity import HERE, AdapterParity, peer  # noqa: E402

# Whole blocks of 64 in every row: see packed_adapter_parity_test.py.
SHAPE = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 32}
# gemma3: one layer with a window and one without.
OWN = {"qwen3_moe": {"moe_intermediate_size": 64},
       "qwen2_moe": {"moe_intermediate_size": 64, "shared_expert_intermediate_size": 128}, "gemma3": {"sliding_window_pattern": 2}}
BATCH = 6  # rows of a step, in micro-batches of one


class ParityTable(AdapterParity):
    steps = STEPS
    figures = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = cls.enterClassContext(subprocess.Popen(
            [peer.PYTHON, HERE / "reference_server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def reference(self, program, *arguments):
        print(json.dumps([program, *map(str, arguments)]), file=self.server.stdin, flush=True)
        status, said, errors = json.loads(self.server.stdout.readline())
        self.assertEqual(status, 0, errors)
        return said

    def test_every_combination(self):
        for name in NAMES or ARCHITECTURES:
            config = {**ARCHITECTURES[name], **SHAPE, **OWN.get(name, {})}
            with unittest.mock.patch.object(type(self), "model", self.new_model(seed=1, **config)):
                for adapters in ADAPTERS:
                    with self.subTest(architecture=name, adapters=adapters):
                        self.measure(name, adapters)

    def blocks(self, name, adapters):
        """What the job's train block has beside the model's, and PEFT's adapter where there is one."""
        if adapters == "full":
            return {}, None
        lora = lora_of(name)
        adapter = self.peft_adapter(lora)
        targets = lora["target_modules"] + lora.get("target_parameters", [])
        ours = {"lora": {"r": lora["r"], "alpha": lora["lora_alpha"], "target_modules": targets, "init_from": str(adapter)}}
        return ({**ours, "quantization": PACKED} if adapters == "QLoRA" else ours), adapter

    def measure(self, name, adapters):
        blocks, adapter = self.blocks(name, adapters)

        def block(precision):
            train = {**self.train_block(precision), **blocks}
            train["optimizer"]["lr"] *= 10 if adapter else 1
            return train

        theirs = {precision: self.their_curves(block(precision), BATCH, adapter) for precision in ("fp64", "fp32")}
        ruler = self.distance(theirs["fp32"], theirs["fp64"])
        self.note(ruler, name, adapters, *RULER)
        for precision, strategy, world in COLUMNS:
            train = block(precision)
            train["fsdp"]["strategy"] = strategy
            # transformers has no bf16 over fp32 weights.
            distance = self.distance(self.our_curves(train, world, 1, BATCH // world),
                                     theirs["fp64" if precision == "bf16" else precision])
            self.note(distance, name, adapters, precision, strategy, world)
            with self.subTest(architecture=name, adapters=adapters, precision=precision, strategy=strategy, ranks=world):
                self.assertLessEqual(distance, LIMITS[precision])
                if precision == "fp32":
                    self.assertLessEqual(distance, ruler + BEYOND_RULER)

    def note(self, distance, *cell):
        print(*cell, f"{distance:.1e}", flush=True)
        self.figures[cell] = f"{distance:.1e}"

    def distance(self, curves, reference):
        return max(max(self.distances(curve, reference[which])) for which, curve in curves.items())

    @classmethod
    def tearDownClass(cls):
        if WRITE:
            old = figures_of(PAGE.read_text(encoding="utf-8")) if NAMES else {}
            PAGE.write_text(page_of({**old, **cls.figures}), encoding="utf-8")


WRITE = "--write" in sys.argv
NAMES = sys.argv[sys.argv.index("--write") + 1:] if WRITE else []

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:sys.argv.index("--write")] if WRITE else sys.argv)
