# SPDX-License-Identifier: Apache-2.0
"""What the makers of golden files share: the pinned version, a writer with fixed bytes, paths."""
import json
import os
import pathlib
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import torch  # noqa: E402

TORCH = "2.15.0"
HERE = pathlib.Path(__file__).resolve().parent

DTYPES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int32: "I32", torch.int64: "I64",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
}


def check_version():
    """Golden values are one version's: another one is a decision, not an accident."""
    found = torch.__version__.split("+")[0]
    if found != TORCH:
        sys.exit(f"PyTorch {TORCH} is pinned (tests/golden/common.py), this is {found}")
    torch.set_num_threads(1)


def raw(t):
    t = t.detach().contiguous()
    if t.dtype in (torch.float16, torch.bfloat16):
        return t.view(torch.int16).numpy().tobytes()
    return t.numpy().tobytes()


def save(name, tensors, metadata=None):
    """safetensors with sorted names and metadata: the same values give the same bytes."""
    header = {"__metadata__": dict(sorted({"torch": TORCH, **(metadata or {})}.items()))}
    blobs, at = [], 0
    for key in sorted(tensors):
        blob = raw(tensors[key])
        header[key] = {"dtype": DTYPES[tensors[key].dtype], "shape": list(tensors[key].shape),
                       "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))
    return 8 + len(text) + at


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)
