"""Token ids with which transformers' generate goes on, greedily and in fp32.

  python reference_generate.py --model DIR --ids "[1, 2]" --tokens 100 --drawable 259

Ids from --drawable on are never taken. --no-cache computes all keys anew for each token: of a cache,
transformers keeps those that it rotated while the text was shorter. Prints a JSON list.
"""

import argparse
import json

import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--ids", type=json.loads)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--drawable", type=int)
    parser.add_argument("--no-cache", action="store_true")
    options = parser.parse_args()
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    padding = list(range(options.drawable, model.config.vocab_size))
    ids = torch.tensor([options.ids])
    with torch.no_grad():
        made = model.generate(ids, max_new_tokens=options.tokens, do_sample=False,
                              suppress_tokens=padding, use_cache=not options.no_cache)
    print(json.dumps(made[0, ids.shape[1]:].tolist()))


if __name__ == "__main__":
    main()
