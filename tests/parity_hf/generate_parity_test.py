"""`muster-trainer generate` against transformers' generate: greedy, fp32, token for token.

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
import peer  # noqa: E402
from cluster import BIN  # noqa: E402
from families import FAMILIES, MIXTURES  # noqa: E402

LIMIT_S = 240
TOKENS = 120
TOKENIZER = 259  # ids of the tokenizer that init-model writes
PROMPT = "A prompt that is longer than the window of the model with one."


class GeneratedTokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        peer.require()
        temp = tempfile.TemporaryDirectory(prefix="muster-generate-")
        cls.addClassCleanup(temp.cleanup)
        cls.root = pathlib.Path(temp.name)

    def make_model(self, name, shape, **config):
        """Random weights of this shape, whose configuration then also says `config`."""
        model, template = self.root / name, self.root / f"{name}.json"
        base = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
                "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
                "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 512}
        template.write_text(json.dumps({**base, **shape}))
        self.run_program(BIN / "muster-trainer", "init-model", "--config", template, "--out", model)
        self.run_program(peer.PYTHON, HERE / "random_vectors.py", model)
        for file in ("config.json", "generation_config.json"):
            path = model / file
            content = json.loads(path.read_text())
            content.pop("eos_token_id")
            path.write_text(json.dumps({**content, **(config if file == "config.json" else {})}))
        return model

    def run_program(self, *command):
        done = subprocess.run(list(map(str, command)), timeout=LIMIT_S, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def compare(self, model, *how):
        ours = json.loads(self.run_program(
            BIN / "muster-trainer", "generate", "--model", model, "--prompt", PROMPT,
            "--max-new-tokens", TOKENS, "--dtype", "float32", "--threads", 1, "--json"))
        theirs = json.loads(self.run_program(
            peer.PYTHON, HERE / "reference_generate.py", "--model", model, "--ids",
            json.dumps(list(PROMPT.encode())), "--tokens", TOKENS, "--drawable",
            TOKENIZER, *how).splitlines()[-1])
        self.assertEqual(ours["ids"], theirs)
        self.assertEqual(len(theirs), TOKENS)
        self.assertGreater(len(set(theirs)), 1, "it says the same again and again")

    def test_of_a_llama(self):
        self.compare(self.make_model("llama", {}))

    def test_of_one_with_tied_embeddings(self):
        self.compare(self.make_model("tied", {"tie_word_embeddings": True, "head_dim": 32}))

    def test_of_a_llama_3_1(self):
        self.compare(self.make_model("llama31", {}, rope_scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}))

    def test_of_scalings_that_depend_on_the_length(self):
        """The prompt has 62 tokens, and the text outgrows all limits."""
        factors = {"short_factor": [1.0 + i / 16 for i in range(8)], "long_factor": [1.0 + i for i in range(8)]}
        dynamic = self.make_model("dynamic", {}, max_position_embeddings=70, rope_scaling={
            "rope_type": "dynamic", "factor": 4.0})
        self.compare(dynamic, "--no-cache")
        longrope = self.make_model("longrope", {}, rope_scaling={
            "rope_type": "longrope", "original_max_position_embeddings": 80, **factors})
        self.compare(longrope, "--no-cache")

    def test_of_a_text_that_is_longer_than_the_model_and_scaled_evenly(self):
        for kind in ("linear", "yarn"):
            self.compare(self.make_model(kind, {}, max_position_embeddings=70, rope_scaling={
                "rope_type": kind, "factor": 4.0}))

    def test_of_a_mistral_far_beyond_its_window(self):
        self.compare(self.make_model("mistral", {}, architectures=["MistralForCausalLM"],
                                     model_type="mistral", sliding_window=16))

    def test_of_a_qwen2_with_biases(self):
        self.compare(self.make_model("qwen2", {"architectures": ["Qwen2ForCausalLM"],
                                               "model_type": "qwen2"}))

    def test_of_a_qwen3_with_norms_of_heads(self):
        self.compare(self.make_model("qwen3", {"architectures": ["Qwen3ForCausalLM"],
                                               "model_type": "qwen3", "head_dim": 24}))

    def test_of_a_smollm3_with_layers_that_do_not_rotate(self):
        self.compare(self.make_model("smollm3", {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3",
                                                 "no_rope_layer_interval": 2, "tie_word_embeddings": False}))

    def test_of_an_olmo2_with_norms_after(self):
        self.compare(self.make_model("olmo2", {"architectures": ["Olmo2ForCausalLM"],
                                               "model_type": "olmo2"}))

    def test_of_a_granite(self):
        self.compare(self.make_model("granite", {"architectures": ["GraniteForCausalLM"], "model_type": "granite",
                                                 "embedding_multiplier": 5.0, "attention_multiplier": 0.1,
                                                 "residual_multiplier": 0.6, "logits_scaling": 3.0}))

    def test_of_a_phi3_that_switches_to_its_long_factors(self):
        phi3 = {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "partial_rotary_factor": 0.75}
        self.compare(self.make_model("phi3", {**phi3, "sliding_window": 50}))
        self.compare(self.make_model("phi4", {
            **phi3, "original_max_position_embeddings": 100, "tie_word_embeddings": True, "rope_scaling": {
                "rope_type": "longrope", "original_max_position_embeddings": 100,
                "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 2.0], "long_factor": [1.0, 2.0, 3.0, 5.0, 8.0, 9.0]}}))

    def test_of_a_gemma2_with_caps_far_beyond_its_windows(self):
        self.compare(self.make_model("gemma2", {**FAMILIES["gemma2"], "head_dim": 24, "sliding_window": 16}))

    def test_of_mixtures_with_gated_experts(self):
        # A Qwen2-MoE of three layers with these weights says one token for ever.
        for name, layers in (("qwen3_moe", 3), ("qwen2_moe", 2), ("olmoe", 3), ("mixtral", 3)):
            with self.subTest(name):
                self.compare(self.make_model(name, {**MIXTURES[name], "num_hidden_layers": layers}))

    def test_of_a_gpt_oss_with_sinks_far_beyond_its_windows(self):
        self.compare(self.make_model("gpt_oss", {**MIXTURES["gpt_oss"], "head_dim": 24, "sliding_window": 16,
                                                 "dtype": "float32"}))

    def test_of_a_gemma3_with_two_bases(self):
        # transformers' cache keeps the last window - 1 keys, and for a window of one, whose 0 keys are [-0:], all.
        self.compare(self.make_model("gemma3", {**FAMILIES["gemma3"], "head_dim": 24, "sliding_window": 1}),
                     "--no-cache")


if __name__ == "__main__":
    unittest.main()
