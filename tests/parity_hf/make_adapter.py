"""Writes a LoRA adapter of PEFT with random weights for a model.

  python make_adapter.py --model DIR --config LORA.json --out DIR [--seed N]

--config holds arguments of peft.LoraConfig. B is random too: an adapter that changes nothing hides
mistakes.
"""

import argparse
import json
import pathlib

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--model", "--config", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    config = json.loads(pathlib.Path(options.config).read_text(encoding="utf-8"))
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **config))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.05)
    model.save_pretrained(options.out)


if __name__ == "__main__":
    main()
