#!/usr/bin/env python3
"""Lists the keys that each tool's configuration may have, from the sources of the pinned packages.

    deploy/install-deps --peer
    tests/migrate/list_keys.py FOLDER [--schemas FOLDER2] [--write]

FOLDER holds the unpacked packages side by side (migrated-tools of install-deps' cache); FOLDER2 the folder schemas/expconf/v0 of
Determined's repository, since its package has no schema. --write replaces tests/migrate/testdata/keys/TOOL.txt; without it the
lists are compared with those files, and a difference ends with 1, each key named. Nothing is imported: classes and
functions are read from the source. tests/migrate/list_keys_test.py runs it.
"""

import argparse
import ast
import glob
import json
import pathlib
import re
import sys

KEYS = pathlib.Path(__file__).resolve().parent / "testdata" / "keys"
PINS = {
    "accelerate": "1.15.0",
    "axolotl": "0.19.0",
    "deepspeed": "0.19.8",
    "determined": "0.38.1",
    "llamafactory": "0.9.5",
    "torchtune": "0.6.1",
    "transformers": "5.24.0",
    "trl": "1.16.0",
}


class Sources:
    def __init__(self, root):
        self.root = pathlib.Path(root)

    def tree(self, path):
        return ast.parse((self.root / path).read_text())

    def classes(self, pattern):
        for path in sorted(glob.glob(str(self.root / pattern))):
            for node in ast.walk(ast.parse(open(path).read())):
                if isinstance(node, ast.ClassDef):
                    yield node

    def fields(self, pattern, *names):
        """Annotated fields of the classes, public ones only; all classes where none is named."""
        found = set()
        for node in self.classes(pattern):
            if names and node.name not in names:
                continue
            for s in node.body:
                if isinstance(s, ast.AnnAssign) and not s.target.id.startswith("_"):
                    found.add(s.target.id)
                    # What pydantic reads it as, too.
                    found |= {k.value.value for k in getattr(s.value, "keywords", [])
                              if k.arg in ("alias", "validation_alias") and isinstance(k.value, ast.Constant)}
        return found

    def arguments(self, pattern, *names):
        """Parameters of functions, and of the constructors of classes."""
        found = set()
        for path in sorted(glob.glob(str(self.root / pattern))):
            for node in ast.walk(ast.parse(open(path).read())):
                if isinstance(node, ast.ClassDef):
                    made = [f for f in node.body
                            if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
                    functions = [(node.name, f) for f in made]
                elif isinstance(node, ast.FunctionDef):
                    functions = [(node.name, node)]
                else:
                    continue
                for name, function in functions:
                    if not any(re.fullmatch(each, name) for each in names):
                        continue
                    a = function.args
                    found |= {p.arg for p in a.posonlyargs + a.args + a.kwonlyargs} - {"self"}
        return found


def trl(s):
    return (s.fields("transformers/training_args.py", "TrainingArguments")
            | s.fields("trl/trainer/base_config.py", "_BaseConfig")
            | s.fields("trl/trainer/sft_config.py", "SFTConfig")
            | s.fields("trl/trainer/model_config.py", "ModelConfig")
            | s.fields("trl/scripts/utils.py", "ScriptArguments", "DatasetMixtureConfig")
            | {f"datasets.{k}" for k in s.fields("trl/scripts/utils.py", "DatasetConfig")})


def llamafactory(s):
    return (s.fields("transformers/training_args.py", "TrainingArguments")
            | s.fields("transformers/training_args_seq2seq.py", "Seq2SeqTrainingArguments")
            | s.fields("llamafactory/hparams/*_args.py") - s.fields(
                "llamafactory/hparams/evaluation_args.py", "EvaluationArguments"))


NESTED_OF_AXOLOTL = {
    "datasets": [("datasets.py", "SFTDataset")],
    "test_datasets": [("datasets.py", "SFTDataset")],
    "datasets.type": [("datasets.py", "UserDefinedPrompterType")],
    "pretraining_dataset": [("datasets.py", "PretrainingDataset")],
    "special_tokens": [("model.py", "SpecialTokensConfig")],
    "fsdp_config": [("fsdp.py", "FSDPConfig")],
    "peft": [("peft.py", "PeftConfig")],
    "selective_checkpointing": [("training.py", "SelectiveCheckpointingConfig")],
    "dynamic_checkpoint": [("dynamic_checkpoint.py", "DynamicCheckpointConfig")],
    "lr_groups": [("training.py", "LrGroup")],
    "fp8_config": [("fp8.py", "FP8Config")],
    "qat": [("quantization.py", "QATConfig")],
    "quantization": [("quantization.py", "PTQConfig")],
    "trl": [("trl.py", "TRLConfig")],
    "vllm": [("vllm.py", "VllmConfig")],
    "ebft": [("config.py", "EBFTConfig")],
}


def axolotl(s):
    schemas = "axolotl/utils/schemas/"
    # The mixins of the one class that a file is read by.
    tops = [n for n in s.classes(schemas + "config.py") if n.name == "AxolotlInputConfig"]
    bases = {ast.unparse(b) for b in tops[0].bases} - {"BaseModel"}
    found = s.fields(schemas + "*.py", "AxolotlInputConfig", *bases)
    found |= {k for n in s.classes("axolotl/integrations/*/args.py") if n.name.endswith("Args") or n.name == "SwanLabConfig"
              for k in s.fields("axolotl/integrations/*/args.py", n.name)}
    for section, parts in NESTED_OF_AXOLOTL.items():
        for file, name in parts:
            found |= {f"{section}.{k}" for k in s.fields(schemas + file, name)}
    return found


def flat(node, prefix=""):
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flat(value, name + ".")
        elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
            for each in value:
                if isinstance(each, dict):
                    yield from flat(each, name + ".")
        else:
            yield name


# Recipes and configurations that train something else than answers by their likelihood, or evaluate.
OTHER_OF_TORCHTUNE = re.compile(r"generat|eval|quantiz|ppo|dpo|kd_|KD_|distill|grpo|early_exit")


def torchtune(s):
    import yaml
    found = set()
    for path in sorted(glob.glob(str(s.root / "recipes/configs/**/*.yaml"), recursive=True)):
        if not OTHER_OF_TORCHTUNE.search(pathlib.Path(path).name):
            found |= set(flat(yaml.safe_load(open(path))))
    for path in sorted(glob.glob(str(s.root / "recipes/*finetune*.py"))):
        if OTHER_OF_TORCHTUNE.search(pathlib.Path(path).name):
            continue
        text = open(path).read()
        found |= set(re.findall(r"\bcfg\.get\(\s*\"(\w+)\"", text))
        found |= set(re.findall(r"\bcfg\.([a-z]\w+)\b(?!\()", text)) - {"get"}
    found -= {k.split(".")[0] for k in found if "." in k}
    components = {
        "dataset": s.arguments("torchtune/datasets/_*.py", r".*_dataset") - {"tokenizer", "load_dataset_kwargs"},
        "model": s.arguments("torchtune/models/llama3_2/_model_builders.py", r"lora_.*"),
        "lr_scheduler": s.arguments("torchtune/training/lr_schedulers.py", r"get_cosine.*", r"get_exp.*") - {"optimizer"},
        "checkpointer": s.arguments("torchtune/training/checkpointing/_checkpointer.py", r"Full.*Checkpointer"),
        "tokenizer": s.arguments("torchtune/models/*/_model_builders.py", r".*_tokenizer") - {"max_seq_length"},
        "profiler": s.arguments("torchtune/training/_profiler.py", r"setup_torch_profiler"),
        "metric_logger": s.arguments("torchtune/training/metric_logging.py", r".*Logger"),
        "optimizer": {"lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable",
                      "differentiable", "fused"},
    }
    for section, names in components.items():
        found |= {f"{section}.{n}" for n in names if not n.startswith("_")}
    return found


def accelerate(s):
    files = "accelerate/commands/config/config_args.py"
    found = s.fields(files, "BaseConfig", "ClusterConfig")
    sections = {k for k in found if k.endswith("_config")}
    found -= sections
    text = (s.root / "accelerate/commands/config/cluster.py").read_text()
    for section in sorted(sections):
        found |= {f"{section}.{k}" for k in re.findall(section + r"\[\"(\w+)\"\]", text)}
    # The prefix that each section's keys have is the section's own.
    names = {"fsdp_config": "FSDP", "dynamo_config": "DYNAMO", "tp_config": "TP",
             "parallelism_config": "PARALLELISM_CONFIG", "megatron_lm_config": "MEGATRON_LM", "fp8_config": "FP8"}
    prefixes = {section: name.lower() + "_" for section, name in names.items()}
    kept = set()
    for key in found:
        section, _, name = key.partition(".")
        prefix = prefixes.get(section)
        kept.add(key if not name or prefix is None or name.startswith(prefix) else f"{section}.{prefix}{name}")
    return kept


# What other modules read of the same file, each under its name.
SECTIONS_OF_DEEPSPEED = (
    "activation_checkpointing", "aio", "amp", "autotuning", "checkpoint", "comet", "comms_logger", "communication_data_type",
    "csv_monitor", "data_efficiency", "datastates", "elasticity", "flops_profiler", "sparse_attention", "tensor_parallel",
    "tensorboard", "timers", "train_micro_batch_size_per_gpu", "wandb")


def deepspeed(s):
    root = f"deepspeed-{PINS['deepspeed']}/deepspeed/"
    constants = {}
    for path in ["constants.py", "elasticity/constants.py", "autotuning/constants.py", "profiling/constants.py",
                 *(str(p.relative_to(s.root / root)) for p in sorted((s.root / root / "runtime").rglob("*.py")))]:
        if not (s.root / root / path).exists():
            continue
        for node in s.tree(root + path).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                constants.setdefault(getattr(node.targets[0], "id", ""), node.value.value)
    text = (s.root / (root + "runtime/config.py")).read_text()
    named = re.findall(r"param_dict,\s*([A-Z][A-Z_0-9]+)\b", text)
    named += re.findall(r"param_dict(?:\.get\(|\[)([A-Z][A-Z_0-9]+)\b", text)
    named += re.findall(r"\b([A-Z][A-Z_0-9]+) in param_dict", text)
    top = {constants[n] for n in named if isinstance(constants.get(n), str)}
    top |= set(re.findall(r"param_dict(?:\.get\(|\[)['\"](\w+)['\"]", text))
    top = {name for name in top if re.fullmatch(r"[a-z]\w+", name) and name not in ("type", "params", "dtype")}
    every = {v for v in constants.values() if isinstance(v, str)} | set(
        re.findall(r"['\"](\w+)['\"]", "".join(
            p.read_text() for p in (s.root / root).glob("*/config.py"))))
    top |= {name for name in SECTIONS_OF_DEEPSPEED if name in every}

    def of(path, *names):
        return s.fields(root + path, *names)

    sections = {
        "zero_optimization": of("runtime/zero/config.py", "DeepSpeedZeroConfig") - {"offload_param", "offload_optimizer"},
        "zero_optimization.offload_param": of("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig"),
        "zero_optimization.offload_optimizer": of("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig"),
        "bf16": of("runtime/precision_config.py", "DeepSpeedBF16Config"),
        "fp16": of("runtime/precision_config.py", "DeepSpeedFP16Config"),
        "scheduler.params": s.arguments(root + "runtime/lr_schedules.py", r"Warmup.*LR") - {"optimizer"},
        "optimizer.params": {"lr", "betas", "eps", "weight_decay", "torch_adam", "adam_w_mode", "bias_correction", "amsgrad"},
        "optimizer": {"type"},
        "scheduler": {"type"},
    }
    top -= {section.split(".")[0] for section in sections}
    return top | {f"{section}.{n}" for section, names in sections.items() for n in names}


def schema_keys(folder, name, prefix, seen):
    document = json.loads((folder / name).read_text())
    keys = set()
    for part in [document] + document.get("union", {}).get("items", []):
        for key, value in part.get("properties", {}).items():
            keys |= of_value(folder, value or {}, prefix + key, seen)
        if "$ref" in part and part is not document:
            keys |= schema_keys(folder, pathlib.Path(part["$ref"]).name, prefix, seen)
    return keys


def of_value(folder, value, name, seen):
    references = re.findall(r'[rR]ef":\s*"[^"]*/([\w.-]+\.json)"', json.dumps(value))
    if not references or name in ("hyperparameters",):
        return {name}
    found = set()
    for reference in references:
        if (name, reference) in seen:
            continue
        inner = schema_keys(folder, reference, name + ".", seen | {(name, reference)})
        found |= inner or {name}
    return found


def determined(folder):
    return schema_keys(folder, "experiment.json", "", frozenset())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages")
    parser.add_argument("--schemas", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sources = Sources(options.packages)
    lists = {f.__name__: f(sources) for f in (accelerate, axolotl, deepspeed, llamafactory, torchtune, trl)}
    if options.schemas:
        lists["determined"] = determined(options.schemas)
    same = True
    for tool, keys in lists.items():
        text = f"# {tool} {PINS[tool]}, made by tests/migrate/list_keys.py\n" + "".join(k + "\n" for k in sorted(keys))
        path = KEYS / f"{tool}.txt"
        if options.write:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            listed = set(path.read_text().splitlines()[1:]) if path.exists() else set()
            print(f"{path} differs; --write replaces it", *(f"+ {key}" for key in sorted(keys - listed)),
                  *(f"- {key}" for key in sorted(listed - keys)), sep="\n", file=sys.stderr)
            same = False
        print(f"{tool} {PINS[tool]}: {len(keys)} keys")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
