"""Tokens per second of transformers' generate, greedy, on one thread.

  transformers_generate.py --model DIR --type float32 --prompt TEXT --tokens 200 --repetitions 3

Prints one JSON line: the fastest repetition, without the time to the first token, and the ids.
"""

import argparse
import json
import time

import torch
import transformers


def seconds(model, ids, tokens):
    start = time.perf_counter()
    out = model.generate(ids, max_new_tokens=tokens, do_sample=False)
    return time.perf_counter() - start, out[0, ids.shape[1]:].tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--type")
    parser.add_argument("--prompt")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--repetitions", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, options.type))
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    ids = tokenizer(options.prompt, return_tensors="pt").input_ids
    model.generation_config.eos_token_id = None
    with torch.no_grad():
        seconds(model, ids, 8)
        runs = []
        for _ in range(options.repetitions):
            first, _ = seconds(model, ids, 1)
            whole, made = seconds(model, ids, options.tokens)
            runs.append((options.tokens - 1) / (whole - first))
    print(json.dumps({"tokens_per_second": max(runs), "ids": made}))


if __name__ == "__main__":
    main()
