"""The losses of adapters over weights in four bits against those of PEFT with transformers and
bitsandbytes on the same weights, rows and job.

bitsandbytes computes in fp32 at most; for fp64 the matrices that it reads back are put into the
model as they are (reference_train.py). Weights and adapters are drawn anew in every run (drawn.py).

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from training_parity import EVERYWHERE, WAYS, AdapterParity  # noqa: E402


class OverWeightsInFourBits(AdapterParity):
    """Rows of all matrices are whole blocks of 64, as in every published model: elsewhere
    bitsandbytes 0.50 reads other values back on a CPU than it has packed.
    """
    steps = 20

    def of_family(self, name, **config):
        return super().of_family(name, intermediate_size=704, **config)

    def compare_packed(self, precision, limits, ways):
        for family in ("llama", "qwen2", "granite", "phi3"):
            for twice in (False, True):
                with self.subTest(family=family, double_quant=twice), self.of_family(family):
                    self.compare(precision, EVERYWHERE, limits, ways,
                                 quantization={"kind": "nf4", "double_quant": twice})

    def test_fp32_losses_are_those_of_bitsandbytes(self):
        self.compare_packed("fp32", [(1, 1, 1e-6), (2, self.steps, 1e-5)], WAYS)

    def test_fp64_losses_are_those_of_the_matrices_that_bitsandbytes_reads_back(self):
        self.compare_packed("fp64", [(1, self.steps, 1e-9)], WAYS[1:])

    def test_fp64_losses_of_gemmas_are_those_of_the_matrices_that_bitsandbytes_reads_back(self):
        for family in ("gemma2", "gemma3"):
            with self.subTest(family=family), self.of_family(family):
                self.compare("fp64", EVERYWHERE, [(1, self.steps, 1e-9)], WAYS[1:],
                             quantization={"kind": "nf4", "double_quant": True})

    def test_each_kind_of_weights_has_a_loss_of_its_own(self):
        """Or the limits above would tell none from the other."""
        kinds = [{"quantization": {"kind": "nf4", "double_quant": twice}} for twice in (False, True)]
        with self.of_family("llama"):
            adapter = self.peft_adapter(EVERYWHERE)
            train = self.train_block("fp32")
            whole, once, twice = (self.theirs({**train, **kind}, batch=4, adapter=adapter)[0]
                                  for kind in ({}, *kinds))
        self.assertGreater(abs(once - whole) / whole, 1e-5)
        self.assertGreater(abs(twice - once) / once, 1e-5)


if __name__ == "__main__":
    unittest.main()
