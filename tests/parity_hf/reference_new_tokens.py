"""A model and its tokenizer with more tokens, as transformers makes them; run by peer.PYTHON.

  reference_new_tokens.py --model DIR --special TEXT --plain TEXT --multiple N --ours DIR

Prints one line of JSON: what transformers writes of the tokens, how far its new rows are from those
of --ours, and what it makes of a text with the tokenizer of --ours.
"""

import argparse
import json
import pathlib
import tempfile

import torch
import transformers


def rows(model):
    return {"embedding": model.get_input_embeddings().weight.detach().float(),
            "head": model.get_output_embeddings().weight.detach().float()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--special", required=True)
    parser.add_argument("--plain", required=True)
    parser.add_argument("--multiple", type=int, required=True)
    parser.add_argument("--ours", required=True)
    arguments = parser.parse_args()

    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    tokenizer.add_tokens([arguments.special], special_tokens=True)
    tokenizer.add_tokens([arguments.plain])
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        saved = {name: json.loads((pathlib.Path(folder) / name).read_text(encoding="utf-8"))
                 for name in ("tokenizer.json", "tokenizer_config.json")}

    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model)
    model.resize_token_embeddings(max(len(tokenizer), model.config.vocab_size),
                                  pad_to_multiple_of=arguments.multiple, mean_resizing=True)
    ours = transformers.AutoModelForCausalLM.from_pretrained(arguments.ours)
    theirs, mine = rows(model), rows(ours)
    text = f"one{arguments.special}two {arguments.plain} three"
    print(json.dumps({
        "added_tokens": saved["tokenizer.json"]["added_tokens"],
        "decoder": saved["tokenizer_config.json"].get("added_tokens_decoder"),
        "vocab_size": [model.config.vocab_size, ours.config.vocab_size],
        "distance": {name: (theirs[name] - mine[name]).abs().max().item() for name in theirs},
        "ids": [tokenizer(text).input_ids,
                transformers.AutoTokenizer.from_pretrained(arguments.ours)(text).input_ids],
    }))


if __name__ == "__main__":
    main()
