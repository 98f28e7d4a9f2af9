"""Token ids with which transformers answers a user, greedily and with the model's own settings.

  python reference_chat.py --model DIR --say TEXT --tokens 40

Prints a JSON list, the id that ended the answer included.
"""

import argparse
import json

import torch
import transformers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--say", required=True)
    parser.add_argument("--tokens", type=int, required=True)
    options = parser.parse_args()
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": options.say}],
                                          add_generation_prompt=True, return_tensors="pt",
                                          return_dict=True)
    with torch.no_grad():
        made = model.generate(**asked, max_new_tokens=options.tokens, do_sample=False)
    print(json.dumps(made[0, asked["input_ids"].shape[1]:].tolist()))


if __name__ == "__main__":
    main()
