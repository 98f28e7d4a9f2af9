"""A small gpt-oss on disk, its experts in MXFP4 or as the numbers that these are, by plain arithmetic."""

import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cluster import BIN, init_model  # noqa: E402
from families import MIXTURES  # noqa: E402

VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
BLOCK, BYTES = 32, 16
EXPERTS = 4
SHAPE = {"hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 320, "num_local_experts": EXPERTS, "dtype": "bfloat16",
         "torch_dtype": "bfloat16"}


def read_tensors(folder, file="model.safetensors"):
    """Name to (type, shape, bytes)."""
    data = (folder / file).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    begin = 8 + length
    return {name: (of["dtype"], of["shape"], data[begin + of["data_offsets"][0]:begin + of["data_offsets"][1]])
            for name, of in header.items()}


def write_tensors(folder, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def is_matrix_of_experts(name):
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


def bf16(value):
    """Of a number that bf16 holds exactly."""
    return struct.pack("<f", value)[2:]


def numbers_of(codes, scales, shape):
    """[experts, out, in] in MXFP4 as [experts, in, out] in bf16."""
    experts, rows, columns = shape
    flat = []
    for block, scale in enumerate(scales):
        for byte in codes[block * BYTES:(block + 1) * BYTES]:
            for code in (byte & 15, byte >> 4):
                flat.append((-1.0 if code > 7 else 1.0) * VALUES[code % 8] * 2.0 ** (scale - 127))
    return b"".join(bf16(flat[(e * rows + row) * columns + column])
                    for e in range(experts) for column in range(columns) for row in range(rows))


def make_models(root, seed=1):
    """The directories of one model in MXFP4, and in bf16 alone."""
    source = random.Random(seed)
    base = init_model(root / "base")
    config = {**json.loads((base / "config.json").read_text(encoding="utf-8")), **MIXTURES["gpt_oss"], **SHAPE}
    file, plain, packed = root / "config.json", root / "bf16", root / "mxfp4"
    file.write_text(json.dumps(config), encoding="utf-8")
    subprocess.run([BIN / "muster-trainer", "init-model", "--config", file, "--out", plain], check=True,
                   capture_output=True, timeout=60)
    shutil.copytree(plain, packed)
    as_numbers, as_codes = {}, {}
    for name, (kind, shape, data) in read_tensors(plain).items():
        if not is_matrix_of_experts(name):
            as_numbers[name] = as_codes[name] = (kind, shape, data)
            continue
        experts, columns, rows = shape
        blocks = experts * rows * columns // BLOCK
        codes, scales = source.randbytes(blocks * BYTES), bytes(source.randrange(119, 124) for _ in range(blocks))
        as_numbers[name] = ("BF16", shape, numbers_of(codes, scales, (experts, rows, columns)))
        as_codes[name + "_blocks"] = ("U8", [experts, rows, columns // BLOCK, BYTES], codes)
        as_codes[name + "_scales"] = ("U8", [experts, rows, columns // BLOCK], scales)
    write_tensors(plain, as_numbers)
    write_tensors(packed, as_codes)
    saved = json.loads((packed / "config.json").read_text(encoding="utf-8"))
    saved["quantization_config"] = {"quant_method": "mxfp4",
                                    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                               "model.embed_tokens", "lm_head"]}
    (packed / "config.json").write_text(json.dumps(saved), encoding="utf-8")
    return packed, plain
