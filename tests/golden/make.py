#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/ops/OP.safetensors: inputs, outputs and gradients of each case in the op
table, by PyTorch in f64.

    ninja -C BUILD tests/dump-cases && tests/golden/make.py BUILD/tests/dump-cases [OP ...]

A new op is one line in OPS: i are the inputs (None where absent), a the case's arguments, whose
meaning stands above the cases in the op's file.
"""
import json
import pathlib
import subprocess
import sys
import zlib

import numpy as np

from common import HERE, check_version, save
import torch
import torch.nn.functional as F

CT_DTYPES = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16,
             torch.float32, torch.float64]
REDUCTIONS = ["none", "sum", "mean"]


def num(x, value):
    """A Python number that leaves an integer tensor one."""
    return value if x.is_floating_point() else int(value)


def ints(a, start, n):
    return [int(v) for v in a[start:start + int(n)]]


def over(fn, x, a):
    """A reduction: a is keepdim, n_dims, dims; n_dims 0 means all."""
    if not a[1] and not a[0]:
        return fn(x)
    dims = ints(a, 2, a[1]) if a[1] else list(range(x.dim()))
    return fn(x, dim=dims, keepdim=bool(a[0]))


def over_any(what, x, a):
    if what == 2:
        return torch.count_nonzero(x, ints(a, 3, a[2]) or None)
    if not a[2]:
        return [torch.any, torch.all][what](x)
    return [torch.any, torch.all][what](x, int(a[3]), keepdim=bool(a[1]))


def cross_entropy(i, a):
    return F.cross_entropy(i[0], i[1], weight=i[2], ignore_index=int(a[2]), label_smoothing=a[1],
                           reduction=REDUCTIONS[int(a[0])])


def batch_norm(i, a):
    training = bool(a[0]) or i[3] is None  # nn.BatchNorm's rule
    return F.batch_norm(i[0], i[3], i[4], i[1], i[2], training, a[1], a[2])


def conv2d(i, a):
    padding = "same" if a[7] else ints(a, 2, 2)
    return F.conv2d(i[0], i[1], i[2], ints(a, 0, 2), padding, ints(a, 4, 2), int(a[6]))


def max_pool2d(i, a):
    stride = [s or k for s, k in zip(ints(a, 2, 2), ints(a, 0, 2))]
    return F.max_pool2d(i[0], ints(a, 0, 2), stride, ints(a, 4, 2), ints(a, 6, 2), bool(a[8]))


def avg_pool2d(i, a):
    stride = [s or k for s, k in zip(ints(a, 2, 2), ints(a, 0, 2))]
    return F.avg_pool2d(i[0], ints(a, 0, 2), stride, ints(a, 4, 2), bool(a[8]), bool(a[9]))


def rnn(i, a):
    """All layers and directions with the same parameters, by torch's own functions."""
    layers, ways, first = int(a[1]), 2 if a[2] else 1, bool(a[3])
    params = [p * 0.2 if p.dim() > 1 else p for p in i[1:5] if p is not None] * (layers * ways)
    x = i[0]
    n, steps = (x.shape[0], x.shape[1]) if first else (x.shape[1], x.shape[0])
    hidden = i[2].shape[1]
    h0 = torch.zeros(layers * ways, n, hidden, dtype=x.dtype)
    fn = [torch._VF.rnn_tanh, torch._VF.rnn_relu, torch._VF.lstm, torch._VF.gru][int(a[0])]
    state = (h0, h0) if a[0] == 2 else h0
    bias = i[3] is not None
    if not a[5]:
        out = fn(x, state, params, bias, layers, 0.0, False, ways == 2, first)
    else:
        lengths = torch.tensor([max(1, steps - k) for k in range(n)])
        p = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=first)
        out = list(fn(p.data, p.batch_sizes, state, params, bias, layers, 0.0, False, ways == 2))
        p = torch.nn.utils.rnn.PackedSequence(out[0], p.batch_sizes)
        out[0] = torch.nn.utils.rnn.pad_packed_sequence(p, batch_first=first, total_length=steps)[0]
    return out[int(a[4])]


def reshape(i, a):
    return [lambda: i[0].reshape(ints(a, 2, a[1])), lambda: i[0].flatten(int(a[1]), int(a[2])),
            lambda: i[0].squeeze(int(a[1])), lambda: i[0].unsqueeze(int(a[1]))][int(a[0])]()


def permute(i, a):
    return i[0].transpose(int(a[1]), int(a[2])) if a[0] < 0 else i[0].permute(ints(a, 1, a[0]))


def clone(i, a):
    x = i[0].transpose(-1, -2) if a[1] else i[0]
    return [lambda: x.clone(), lambda: x.contiguous(),
            lambda: x.contiguous(memory_format=torch.channels_last)][int(a[0])]()


def baddbmm(i, a):
    fn = torch.baddbmm if i[1].dim() == 3 else torch.addmm
    return fn(i[0], i[1], i[2], alpha=num(i[0], a[0]), beta=num(i[0], a[1]))


def select(i, a):
    if a[1] != 99:
        return i[0].select(int(a[0]), int(a[1]))
    return torch.cat(i[0].unbind(int(a[0]))[::-1], 0)


def split(i, a):
    dim = int(a[0])
    parts = (i[0].split(int(a[1]), dim) if a[1] else i[0].chunk(int(a[2]), dim) if a[2]
             else i[0].split(ints(a, 3, 3), dim))
    return torch.cat(parts[::-1], dim)


def roll(i, a):
    n = int(a[0])
    return i[0].roll(ints(a, 1, n), ints(a, 1 + n, n)) if n else i[0].roll(int(a[1]))


def repeat(i, a):
    return [lambda: i[0].repeat(ints(a, 2, a[1])), lambda: i[0].tile(ints(a, 2, a[1])),
            lambda: i[0].repeat_interleave(int(a[1]), int(a[2]))][int(a[0])]()


def movedim(i, a):
    n = int(a[0])
    return i[0].movedim(ints(a, 1, n), ints(a, 1 + n, n)) if n else i[0].swapdims(*ints(a, 1, 2))


PADS = ["constant", "reflect", "replicate", "circular"]


def pad(i, a):
    value = [] if a[0] else [num(i[0], a[1])]
    return F.pad(i[0], ints(a, 3, a[2]), PADS[int(a[0])], *value)


def full(i, a):
    return torch.full_like(i[0], a[0]) if a[1] < 0 else i[0].new_full(ints(a, 2, a[1]), a[0])


def scatter(i, a):
    src = num(i[0], a[1]) if i[2] is None else i[2]
    return i[0].scatter(int(a[0]), i[1], src)


def unfold_args(a):
    k, s, p, d = (ints(a, n, 2) for n in (0, 2, 4, 6))
    return {"kernel_size": k, "stride": s, "padding": p, "dilation": d}


def upsample(x, a, **args):
    size = {"size": ints(a, 0, 2)} if a[0] else {"scale_factor": list(a[2:4])}
    return F.interpolate(x, **size, **args)


def embedding_bag(i, a):
    return F.embedding_bag(i[1], i[0], i[2], mode=["sum", "mean", "max"][int(a[0])],
                           per_sample_weights=i[3],
                           padding_idx=int(a[1]) - 1000 if a[1] else None)


def arange(i, a):
    t = i[0].dtype
    return (torch.linspace(a[1], a[2], int(a[3]), dtype=t) if a[0] else
            torch.arange(num(i[0], a[1]), num(i[0], a[2]), num(i[0], a[3]), dtype=t))


def diag_embed(i, a):
    return (i[0].diag(int(a[0])) if a[1] == a[2]
            else i[0].diag_embed(*ints(a, 0, 3)))


def conv1d(i, a):
    kind, stride, padding, output_padding, dilation, groups = ints(a, 0, 6)
    if kind == 1:
        return F.conv_transpose1d(*i[:3], stride, padding, output_padding, groups, dilation)
    return F.conv1d(*i[:3], stride, "same" if kind == 2 else padding, dilation, groups)


def pool1d(i, a):
    kind, kernel, stride, padding, dilation, ceil, count = ints(a, 0, 7)
    stride = stride or kernel
    if kind == 0:
        return F.max_pool1d(i[0], kernel, stride, padding, dilation, bool(ceil))
    if kind == 1:
        return F.avg_pool1d(i[0], kernel, stride, padding, bool(ceil), bool(count))
    return F.adaptive_avg_pool1d(i[0], kernel)


OPS = {
    "add": lambda i, a: i[0] + i[1],
    "sub": lambda i, a: i[0] - i[1],
    "mul": lambda i, a: i[0] * i[1],
    "div": lambda i, a: i[0] / i[1],
    "affine": lambda i, a: i[0] * num(i[0], a[0]) + num(i[0], a[1]),
    "neg": lambda i, a: -i[0],
    "abs": lambda i, a: i[0].abs(),
    "exp": lambda i, a: i[0].exp(),
    "log": lambda i, a: i[0].log(),
    "sqrt": lambda i, a: i[0].sqrt(),
    "square": lambda i, a: i[0].square(),
    "compare": lambda i, a: [torch.eq, torch.ne, torch.lt, torch.le, torch.gt,
                             torch.ge][int(a[0])](i[0], i[1]),
    "relu": lambda i, a: F.relu(i[0]),
    "gelu": lambda i, a: F.gelu(i[0], approximate="tanh" if a[0] else "none"),
    "silu": lambda i, a: F.silu(i[0]),
    "sigmoid": lambda i, a: i[0].sigmoid(),
    "tanh": lambda i, a: i[0].tanh(),
    "sin": lambda i, a: i[0].sin(),
    "cos": lambda i, a: i[0].cos(),
    "tan": lambda i, a: i[0].tan(),
    "asin": lambda i, a: (i[0] * 0.5 + -0.5).asin(),
    "acos": lambda i, a: (i[0] * 0.5 + -0.5).acos(),
    "atan": lambda i, a: i[0].atan(),
    "sinh": lambda i, a: i[0].sinh(),
    "cosh": lambda i, a: i[0].cosh(),
    "asinh": lambda i, a: i[0].asinh(),
    "acosh": lambda i, a: (i[0] * 1 + 1).acosh(),
    "atanh": lambda i, a: (i[0] * 0.5 + -0.5).atanh(),
    "exp2": lambda i, a: i[0].exp2(),
    "expm1": lambda i, a: i[0].expm1(),
    "log2": lambda i, a: i[0].log2(),
    "log10": lambda i, a: i[0].log10(),
    "log1p": lambda i, a: i[0].log1p(),
    "rsqrt": lambda i, a: i[0].rsqrt(),
    "reciprocal": lambda i, a: i[0].reciprocal(),
    "sign": lambda i, a: i[0].sign(),
    "floor": lambda i, a: i[0].floor(),
    "ceil": lambda i, a: i[0].ceil(),
    "round": lambda i, a: i[0].round(),
    "trunc": lambda i, a: i[0].trunc(),
    "frac": lambda i, a: i[0].frac(),
    "erf": lambda i, a: i[0].erf(),
    "erfc": lambda i, a: i[0].erfc(),
    "leaky_relu": lambda i, a: F.leaky_relu(i[0], a[0]),
    "elu": lambda i, a: F.elu(i[0], a[0]),
    "selu": lambda i, a: F.selu(i[0]),
    "celu": lambda i, a: F.celu(i[0], a[0]),
    "softplus": lambda i, a: F.softplus(i[0], a[0], a[1]),
    "hardtanh": lambda i, a: F.hardtanh(i[0], a[0], a[1]),
    "hardsigmoid": lambda i, a: F.hardsigmoid(i[0]),
    "hardswish": lambda i, a: F.hardswish(i[0]),
    "softsign": lambda i, a: F.softsign(i[0]),
    "mish": lambda i, a: F.mish(i[0]),
    "logsigmoid": lambda i, a: F.logsigmoid(i[0]),
    "hardshrink": lambda i, a: F.hardshrink(i[0], a[0]),
    "softshrink": lambda i, a: F.softshrink(i[0], a[0]),
    "threshold": lambda i, a: F.threshold(i[0], a[0], a[1]),
    "clamp": lambda i, a: i[0].clamp(None if a[2] else a[0], None if a[3] else a[1]),
    "pow": lambda i, a: i[0].pow(i[1]),
    "pow_scalar": lambda i, a: i[0].pow(a[0]),
    "maximum": lambda i, a: (torch.minimum if a[0] else torch.maximum)(i[0], i[1]),
    "atan2": lambda i, a: torch.atan2(i[0], i[1]),
    "fmod": lambda i, a: torch.fmod(i[0], i[1]),
    "remainder": lambda i, a: torch.remainder(i[0], i[1]),
    "floor_divide": lambda i, a: torch.floor_divide(i[0], i[1]),
    "where": lambda i, a: torch.where(i[0], i[1], i[2]),
    "masked_fill": lambda i, a: i[0].masked_fill(i[1], a[0]),
    "logical": lambda i, a: [torch.logical_and, torch.logical_or, torch.logical_xor][int(a[0])](i[0], i[1])
    if a[0] < 3 else [torch.logical_not, torch.isnan, torch.isinf, torch.isfinite][int(a[0]) - 3](i[0]),
    "lerp": lambda i, a: [lambda: torch.lerp(i[0], i[1], a[1]), lambda: torch.addcmul(i[0], i[1], i[2], value=a[1]),
                          lambda: torch.addcdiv(i[0], i[1], i[2], value=a[1])][int(a[0])](),
    "prelu": lambda i, a: F.prelu(i[0], i[1]),
    "glu": lambda i, a: F.tanhshrink(i[0]) if a[1] else F.glu(i[0], int(a[0])),
    "sum": lambda i, a: over(torch.sum, i[0], a),
    "mean": lambda i, a: over(torch.mean, i[0], a),
    "amax": lambda i, a: over(torch.amin if a[5] else torch.amax, i[0], a),
    "argmax": lambda i, a: i[0].argmax(int(a[0]), keepdim=bool(a[1])),
    "max": lambda i, a: i[0].argmin(int(a[1]), keepdim=bool(a[2])) if a[0] == 4 else
    (torch.min if a[0] % 2 else torch.max)(i[0], int(a[1]), keepdim=bool(a[2]))[int(a[0] >= 2)],
    "median": lambda i, a: torch.median(i[0], int(a[1]), keepdim=bool(a[2]))[int(a[0]) - 1] if a[0] else
    torch.median(i[0]),
    "sort": lambda i, a: (torch.sort(i[0], dim=int(a[1]), descending=bool(a[2]), stable=True) if a[0] < 2 else
                          torch.topk(i[0], int(a[3]), int(a[1]), largest=bool(a[2])))[int(a[0]) % 2],
    "cumsum": lambda i, a: i[0].cumsum(int(a[0])),
    "cumprod": lambda i, a: i[0].cumprod(int(a[0])),
    "prod": lambda i, a: i[0].prod() if a[0] else i[0].prod(int(a[1]), keepdim=bool(a[2])),
    "var": lambda i, a: (torch.std if a[0] else torch.var)(
        i[0], dim=ints(a, 4, a[3]) or list(range(i[0].dim())), correction=int(a[1]), keepdim=bool(a[2])),
    "norm": lambda i, a: [
        lambda: torch.linalg.vector_norm(i[0], a[1] * (float("inf") if abs(a[1]) == 999 else 1), dim=ints(a, 4, a[3]) or None, keepdim=bool(a[2])),
        lambda: F.normalize(i[0], a[1], int(a[3])), lambda: F.cosine_similarity(i[0], i[1], int(a[3]))][int(a[0])](),
    "logsumexp": lambda i, a: F.softmin(i[0], int(a[2])) if a[0] else
    torch.logsumexp(i[0], ints(a, 3, a[2]), keepdim=bool(a[1])),
    "any": lambda i, a: over_any(int(a[0]), i[0], a),
    "reshape": reshape,
    "permute": permute,
    "expand": lambda i, a: i[0].expand(ints(a, 1, a[0])),
    "narrow": lambda i, a: i[0].narrow(int(a[0]), int(a[1]), int(a[2])),
    "fill": lambda i, a: i[0].clone().fill_(a[0]),
    "copy": lambda i, a: i[0].clone().copy_(i[1]),
    "cat": lambda i, a: torch.cat([x for x in i if x is not None], int(a[0])),
    "select": select,
    "split": split,
    "stack": lambda i, a: torch.stack([x for x in i if x is not None], int(a[0])),
    "movedim": movedim,
    "gather": lambda i, a: i[0].gather(int(a[0]), i[1]),
    "scatter": scatter,
    "scatter_add": lambda i, a: i[0].scatter_add(int(a[0]), i[1], i[2]),
    "index_select": lambda i, a: i[0].index_select(int(a[0]), i[1]),
    "index_add": lambda i, a: i[0].index_add(int(a[0]), i[1], i[2], alpha=num(i[0], a[1])),
    "index_copy": lambda i, a: i[0].index_copy(int(a[0]), i[1], i[2]),
    "take_along_dim": lambda i, a: torch.take_along_dim(i[0], i[1], int(a[0])),
    "embedding": lambda i, a: F.embedding(i[1], i[0], int(a[0]) - 1000 if a[0] else None),
    "embedding_bag": embedding_bag,
    "arange": arange,
    "eye": lambda i, a: torch.eye(int(a[0]), int(a[1]), dtype=i[0].dtype),
    "diagonal": lambda i, a: i[0].diagonal(*ints(a, 0, 3)),
    "diag_embed": diag_embed,
    "unfold": lambda i, a: F.unfold(i[0], **unfold_args(a)),
    "fold": lambda i, a: F.fold(i[0], ints(a, 8, 2), **unfold_args(a)),
    "upsample_bilinear2d": lambda i, a: upsample(i[0], a[1:], mode="bilinear",
                                                 align_corners=bool(a[0])),
    "upsample_nearest2d": lambda i, a: upsample(i[0], a),
    "one_hot": lambda i, a: F.one_hot(i[0], int(a[0])),
    "tril": lambda i, a: i[0].tril(int(a[0])),
    "triu": lambda i, a: i[0].triu(int(a[0])),
    "full": full,
    "flip": lambda i, a: i[0].flip(ints(a, 1, a[0])),
    "roll": roll,
    "repeat": repeat,
    "constant_pad": lambda i, a: F.pad(i[0], ints(a, 2, a[1]), value=num(i[0], a[0])),
    "border_pad": lambda i, a: F.pad(i[0], ints(a, 2, a[1]), PADS[int(a[0])]),
    "pad": pad,
    "pixel_shuffle": lambda i, a: (F.pixel_unshuffle(i[0], -int(a[0])) if a[0] < 0
                                   else F.pixel_shuffle(i[0], int(a[0]))),
    "clone": clone,
    "cast": lambda i, a: i[0].to(CT_DTYPES[int(a[0])]),
    "matmul": lambda i, a: i[0] @ i[1],
    "bmm": lambda i, a: torch.bmm(i[0], i[1]),
    "addmm": baddbmm,
    "outer": lambda i, a: torch.dot(i[0], i[1]) if a[0] else torch.outer(i[0], i[1]),
    "linear": lambda i, a: F.linear(i[0], i[1], i[2]),
    "conv2d": conv2d,
    "conv_transpose2d": lambda i, a: F.conv_transpose2d(i[0], i[1], i[2], ints(a, 0, 2), ints(a, 2, 2), ints(a, 4, 2),
                                                        int(a[8]), ints(a, 6, 2)),
    "conv2d_weight": lambda i, a: torch.nn.grad.conv2d_weight(
        i[0], (i[1].shape[1], i[0].shape[1] // int(a[3]), int(a[4]), int(a[5])), i[1], int(a[0]), int(a[1]), int(a[2]),
        int(a[3])),
    "conv1d": conv1d,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "pool1d": pool1d,
    "adaptive_avg_pool2d": lambda i, a: F.adaptive_avg_pool2d(i[0], ints(a, 0, 2)),
    "batch_norm": batch_norm,
    "softmax": lambda i, a: F.softmax(i[0], int(a[0])),
    "log_softmax": lambda i, a: F.log_softmax(i[0], int(a[0])),
    "cross_entropy": cross_entropy,
    "mse_loss": lambda i, a: F.mse_loss(i[0], i[1], reduction=REDUCTIONS[int(a[0])]),
    "attention": lambda i, a: F.scaled_dot_product_attention(i[0], i[1], i[2], attn_mask=i[3], is_causal=bool(a[0]),
                                                             scale=a[1] or None),
    "rnn": rnn,
    "layer_norm": lambda i, a: F.layer_norm(i[0], i[0].shape[-int(a[0]):], i[1], i[2], a[1]),
    "rms_norm": lambda i, a: F.rms_norm(i[0], i[0].shape[-int(a[0]):], i[1], a[1]),
    "group_norm": lambda i, a: F.group_norm(i[0], int(a[0]), i[1], i[2], a[1]) if a[0] else
    F.instance_norm(i[0], weight=i[1], bias=i[2], eps=a[1]),
    "bce_with_logits": lambda i, a: F.binary_cross_entropy(i[0], i[1], i[2], reduction=REDUCTIONS[int(a[0])]) if a[1] else
    F.binary_cross_entropy_with_logits(i[0], i[1], i[2], pos_weight=i[3], reduction=REDUCTIONS[int(a[0])]),
    "smooth_l1_loss": lambda i, a: [
        lambda r: F.smooth_l1_loss(i[0], i[1], beta=a[2], reduction=r),
        lambda r: F.huber_loss(i[0], i[1], delta=a[2], reduction=r),
        lambda r: F.l1_loss(i[0], i[1], reduction=r)][int(a[1])](REDUCTIONS[int(a[0])]),
    "kl_div": lambda i, a: F.kl_div(i[0], i[1], log_target=bool(a[1]), reduction=(REDUCTIONS + ["batchmean"])[int(a[0])]),
    "nll_loss": lambda i, a: F.nll_loss(i[0], i[1], i[2], ignore_index=int(a[1]), reduction=REDUCTIONS[int(a[0])]),
}


def draw(spec, seed):
    """Inputs of a kind. Floats are f32 numbers, so that f32 and f64 runs start equal."""
    rng = np.random.RandomState(seed)
    shape, kind = spec["shape"], spec["kind"]
    n = int(np.prod(shape, dtype=np.int64))
    if kind == "none":
        return None
    if kind == "class":
        return torch.tensor(rng.randint(0, max(1, spec["classes"]), size=shape), dtype=torch.int64)
    if kind == "bool":
        return torch.tensor(rng.randint(0, 2, size=shape), dtype=torch.bool)
    if kind == "i64":
        return torch.tensor(rng.randint(-4, 5, size=shape), dtype=torch.int64)
    if kind == "normal":
        x = rng.standard_normal(shape)
    elif kind == "positive":
        x = rng.uniform(0.5, 2, shape)
    elif kind == "away":
        x = rng.standard_normal(shape)
        x = x + np.where(x < 0, -0.1, 0.1)
    elif kind == "distinct":
        x = (0.1 * (rng.permutation(n) - n // 2)).reshape(shape)
    elif kind == "probs":
        x = rng.uniform(0.1, 1.1, shape)
        x = x / x.sum(1 if len(shape) > 1 else 0, keepdims=True)
    else:
        sys.exit(f"make.py doesn't know the kind of input '{kind}'")
    return torch.tensor(np.asarray(x, dtype=np.float32), dtype=torch.float64)


def run_case(op, case, out, names):
    key = case["name"]
    seed = zlib.crc32(f"{op['name']}/{key}".encode())
    inputs = [draw(spec, seed + k) for k, spec in enumerate(case["in"])]
    for k, x in enumerate(inputs):
        if x is not None:
            out[f"{key}/in{k}"] = x.clone()
    wants = [k for k, (x, spec) in enumerate(zip(inputs, case["in"]))
             if x is not None and x.is_floating_point() and not spec["no_grad"]
             and op["differentiable"]]
    # What is passed is no leaf, so that a case may hand its input through.
    leaves = [x.clone().requires_grad_(k in wants) if x is not None else None
              for k, x in enumerate(inputs)]
    given = [x.view_as(x) if k in wants else x for k, x in enumerate(leaves)]
    y = OPS[op["name"]](given, case["arg"])
    out[f"{key}/y"] = y
    for k, spec in enumerate(case["in"]):
        if leaves[k] is not None and k not in wants and not torch.equal(leaves[k], inputs[k]):
            out[f"{key}/after{k}"] = leaves[k]
    if not wants:
        return
    if not y.requires_grad:
        sys.exit(f"{op['name']}, '{key}': PyTorch gives no gradient, the op table says it has one")
    names.add(y.grad_fn.name())
    dy = np.random.RandomState(seed + 99).standard_normal(tuple(y.shape)).astype(np.float32)
    dy = torch.tensor(dy, dtype=torch.float64)
    out[f"{key}/dy"] = dy.clone()
    dy.requires_grad_(True)
    grads = torch.autograd.grad(y, [leaves[k] for k in wants], dy.to(y.dtype), create_graph=True)
    for k, g in zip(wants, grads):
        out[f"{key}/dx{k}"] = g.clone()
    second_order(key, seed, {k: leaves[k] for k in wants}, dy, dict(zip(wants, grads)), out)


def second_order(key, seed, leaves, dy, grads, out):
    """With L = sum_k sum(v_k dx_k): v_k, d L / d x_k as ddx_k, d L / d dy as ddy. Left out where PyTorch can't."""
    v = {k: torch.tensor(np.random.RandomState(seed + 199 + k).standard_normal(tuple(g.shape))
                         .astype(np.float32), dtype=torch.float64) for k, g in grads.items()}
    loss = sum((v[k] * g).sum() for k, g in grads.items())
    if not loss.requires_grad:
        return
    try:
        found = torch.autograd.grad(loss, [*leaves.values(), dy], allow_unused=True, materialize_grads=True)
    except (RuntimeError, NotImplementedError) as e:
        print(f"note: {key}: no second order: {str(e).splitlines()[0]}")
        return
    for k, g in zip(leaves, found):
        out[f"{key}/v{k}"] = v[k]
        out[f"{key}/ddx{k}"] = g + torch.zeros(g.shape, dtype=g.dtype)
    out[f"{key}/ddy"] = found[-1] + torch.zeros(dy.shape, dtype=dy.dtype)


def main():
    check_version()
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    table = json.loads(subprocess.run([sys.argv[1]], check=True, capture_output=True).stdout)["ops"]
    only = set(sys.argv[2:])
    missing = [op["name"] for op in table if op["name"] not in OPS and not op["no_golden"]]
    if missing:
        sys.exit(f"no line in OPS of tests/golden/make.py for: {', '.join(missing)}")
    unknown = (only | set(OPS)) - {op["name"] for op in table}
    if unknown:
        sys.exit(f"no such op in the table: {', '.join(sorted(unknown))}")
    total = 0
    for op in table:
        if op["no_golden"] or (only and op["name"] not in only):
            continue
        out, names = {}, set()
        for case in op["cases"]:
            try:
                run_case(op, case, out, names)
            except Exception as e:
                sys.exit(f"{op['name']}, '{case['name']}': {type(e).__name__}: {e}")
        size = save(f"ops/{op['name']}.safetensors", out,
                    {c["name"]: c["signature"] for c in op["cases"]})
        total += size
        if names and op["torch_name"] and op["torch_name"] not in names:
            print(f"note: {op['name']} calls itself {op['torch_name']}, PyTorch {sorted(names)}")
    if not only:
        for path in (pathlib.Path(HERE) / "ops").glob("*.safetensors"):
            if path.stem not in OPS:
                path.unlink()
    print(f"{total} bytes")


if __name__ == "__main__":
    main()
