"""Log-probabilities that transformers gives the tokens of rows, and whether it loads a model whole.

  python reference_logits.py --model DIR --ids rows.jsonl

A line of rows.jsonl is a list of ids. Fails when transformers warns about the weights, or misses or
ignores one. Prints {"logprobs": [[of ids[1], ids[2], ...], ...], "tensors": N, "bytes": N}: how many
tensors the package safetensors finds in the files, and how large they are.
"""

import argparse
import json
import pathlib
import warnings

import safetensors
import torch
import transformers


def tensors_of(folder):
    """By the package safetensors: name to bytes, and the index compared with the files."""
    sizes, places = {}, {}
    for file in sorted(folder.glob("*.safetensors")):
        with safetensors.safe_open(file, framework="pt") as tensors:
            assert tensors.metadata() == {"format": "pt"}, tensors.metadata()
            for name in tensors.keys():
                assert name not in sizes, f"{name} lies in two files"
                tensor = tensors.get_tensor(name)
                sizes[name], places[name] = tensor.numel() * tensor.element_size(), file.name
    index = folder / "model.safetensors.index.json"
    if index.exists():
        index = json.loads(index.read_text(encoding="utf-8"))
        assert index["weight_map"] == places, "the index is not that of the files"
        assert index["metadata"]["total_size"] == sum(sizes.values()), index["metadata"]
    return sizes


def load(folder):
    warnings.simplefilter("error")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    strays = {kind: sorted(map(str, names)) for kind, names in info.items() if names}
    assert not strays, strays
    if getattr(model.config, "num_experts_per_tok", None):
        model.set_experts_implementation("eager")  # others know no odd widths
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--ids", type=pathlib.Path)
    options = parser.parse_args()
    sizes = tensors_of(options.model)
    model = load(options.model)
    logprobs = []
    with torch.no_grad():
        for line in options.ids.read_text(encoding="utf-8").splitlines():
            ids = torch.tensor([json.loads(line)])
            scores = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
            logprobs.append(scores.gather(1, ids[0, 1:, None])[:, 0].tolist())
    print(json.dumps({"logprobs": logprobs, "tensors": len(sizes), "bytes": sum(sizes.values())}))


if __name__ == "__main__":
    main()
