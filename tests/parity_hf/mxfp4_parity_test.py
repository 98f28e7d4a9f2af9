"""A gpt-oss with experts in MXFP4 against transformers, which reads them with Mxfp4Config(dequantize=True): the likelihood
of tokens, and the numbers themselves. Weights are drawn anew in every run (drawn.py).

Fails, and does not skip, where Python torch is missing: tests/run --label peer installs it.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import drawn  # noqa: E402
import peer  # noqa: E402
from cluster import BIN  # noqa: E402
from mxfp4_model import is_matrix_of_experts, make_models, read_tensors  # noqa: E402

LIMIT_S = 240
READ = """
import json, sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(
    sys.argv[1], dtype=torch.bfloat16, quantization_config=transformers.Mxfp4Config(dequantize=True))
for name, values in model.named_parameters():
    if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        print(name, values.detach().contiguous().view(torch.int16).numpy().tobytes().hex())
model = model.float()
model.set_experts_implementation("eager")
with torch.no_grad():
    ids = torch.tensor([json.loads(sys.argv[2])])
    scores = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
    print("logprobs", json.dumps(scores.gather(1, ids[0, 1:, None])[:, 0].tolist()))
"""


class InFourBits(unittest.TestCase):
    def test_numbers_and_likelihoods_are_those_of_transformers(self):
        peer.require()
        with tempfile.TemporaryDirectory(prefix="muster-mxfp4-") as temp:
            root = pathlib.Path(temp)
            packed, plain = make_models(root, seed=drawn.number("weights"))
            ids = [(7 * i) % 250 for i in range(60)]
            done = subprocess.run([peer.PYTHON, "-c", READ, packed, json.dumps(ids)], timeout=LIMIT_S,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            theirs = dict(line.split(" ", 1) for line in done.stdout.splitlines())
            logprobs = json.loads(theirs.pop("logprobs"))
            ours = {name: data.hex() for name, (_, _, data) in read_tensors(plain).items() if is_matrix_of_experts(name)}
            self.assertEqual(theirs, ours)
            file = root / "ids.jsonl"
            file.write_text(json.dumps(ids) + "\n", encoding="utf-8")
            for model in (packed, plain):
                scored = subprocess.run([BIN / "muster-trainer", "score", "--model", model, "--ids", file, "-o", "json"],
                                        check=True, capture_output=True, timeout=LIMIT_S).stdout
                for one, other in zip(json.loads(scored)["rows"][0]["logprobs"], logprobs, strict=True):
                    self.assertAlmostEqual(one, other, delta=1e-4)


if __name__ == "__main__":
    unittest.main()
