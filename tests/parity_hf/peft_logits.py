"""The largest distance between the logits of an adapter in PEFT and of the merged model.

  python peft_logits.py --model DIR --adapter DIR --merged DIR --rows rows.npy

Prints it, relative to the largest logit. A warning of PEFT or transformers is an error.
"""

import argparse
import warnings

import numpy
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def load(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if getattr(model.config, "num_experts_per_tok", None):
        model.set_experts_implementation("eager")  # others know no odd widths
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--model", "--adapter", "--merged", "--rows"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    warnings.simplefilter("error", UserWarning)
    ids = torch.from_numpy(numpy.load(options.rows)[:4].astype("int64"))
    base = load(options.model)
    with torch.no_grad():
        plain = base(input_ids=ids).logits
        adapted = PeftModel.from_pretrained(base, options.adapter)(input_ids=ids).logits
        merged = load(options.merged)
        distance = (adapted - merged(input_ids=ids).logits).abs().max() / adapted.abs().max()
    assert (adapted - plain).abs().max() > 1e-3, "the adapter changes nothing"
    print(distance.item())


if __name__ == "__main__":
    main()
