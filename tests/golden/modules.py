#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes modules.safetensors: PyTorch's recurrent layers, attention and transformer layers, with their weights, inputs,
outputs and all gradients, in f64. tests/unit/nn_golden.c loads the weights by name and compares.

    tests/golden/modules.py
"""
from common import check_version, save
import torch
from torch import nn

OUT = {}


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float32).double()


def put(key, t):
    OUT[key] = t.detach().clone()


def record(name, module, inputs, outputs):
    """outputs: (name, tensor); each gets an upstream gradient."""
    loss = 0
    for k, x in inputs.items():
        put(f"{name}/in/{k}", x)
    for k, y in outputs:
        u = randn(*y.shape)
        put(f"{name}/out/{k}", y)
        put(f"{name}/up/{k}", u)
        loss = loss + (u * y).sum()
    loss.backward()
    for k, x in inputs.items():
        if x.requires_grad:
            put(f"{name}/din/{k}", x.grad)
    for k, p in module.named_parameters():
        put(f"{name}/p/{k}", p)
        put(f"{name}/dp/{k}", p.grad)


def prepared(module):
    """f32 numbers in f64, biases and norms not at their zeros and ones."""
    for p in module.parameters():
        p.data = (p.data if p.dim() > 1 else p.data + 0.1 * torch.randn_like(p)).float().double()
    return module.eval()


def leaf(*shape):
    return randn(*shape).requires_grad_(True)


def recurrent(name, cls, lengths=None, **kw):
    m = prepared(cls(3, 4, **kw))
    ways = (2 if kw.get("bidirectional") else 1) * kw.get("num_layers", 1)
    first = kw.get("batch_first", False)
    x, h0 = leaf(*((3, 5, 3) if first else (5, 3, 3))), leaf(ways, 3, 4)
    inputs = {"x": x, "h0": h0}
    state = h0
    if cls is nn.LSTM:
        inputs["c0"] = leaf(ways, 3, 4)
        state = (h0, inputs["c0"])
    if lengths:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=first, enforce_sorted=False)
        y, s = m(packed, state)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=first, total_length=5)
        put(f"{name}/in/lengths", torch.tensor(lengths))
    else:
        y, s = m(x, state)
    outputs = [("y", y)] + ([("h", s[0]), ("c", s[1])] if cls is nn.LSTM else [("h", s)])
    record(name, m, inputs, outputs)


def attention(name, first, cross=False, padding=False, causal=False, weights=False):
    m = prepared(nn.MultiheadAttention(8, 2, batch_first=first))
    q = leaf(*((2, 5, 8) if first else (5, 2, 8)))
    inputs = {"q": q}
    k = v = q
    if cross:
        k, v = leaf(*((2, 7, 8) if first else (7, 2, 8))), leaf(*((2, 7, 8) if first else (7, 2, 8)))
        inputs |= {"k": k, "v": v}
    pad = None
    if padding:
        pad = torch.zeros(2, k.shape[1 if first else 0], dtype=torch.bool)
        pad[1, -2:] = True
        put(f"{name}/in/padding", pad)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    y, w = m(q, k, v, key_padding_mask=pad, attn_mask=mask, need_weights=weights)
    record(name, m, inputs, [("y", y)] + ([("w", w)] if weights else []))


def encoder(name, **kw):
    m = prepared(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **kw))
    x = leaf(2, 5, 8) if kw.get("batch_first") else leaf(5, 2, 8)
    m.train()  # the fast path of evaluation has no gradient
    record(name, m, {"x": x}, [("y", m(x))])


def decoder(name, **kw):
    m = prepared(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, **kw))
    x, memory = leaf(2, 5, 8), leaf(2, 7, 8)
    m.train()
    record(name, m, {"x": x, "memory": memory}, [("y", m(x, memory))])


def main():
    check_version()
    torch.manual_seed(7)
    recurrent("rnn", nn.RNN)
    recurrent("lstm", nn.LSTM)
    recurrent("gru", nn.GRU)
    recurrent("lstm deep", nn.LSTM, num_layers=2, bidirectional=True, lengths=[5, 2, 4])
    recurrent("gru deep", nn.GRU, num_layers=2, bidirectional=True, batch_first=True, lengths=[3, 5, 1])
    recurrent("rnn relu", nn.RNN, num_layers=2, nonlinearity="relu", bias=False)
    attention("mha", False)
    attention("mha cross", True, cross=True, padding=True, weights=True)
    attention("mha causal", True, causal=True)
    encoder("encoder")
    encoder("encoder first", norm_first=True, activation="gelu", batch_first=True)
    decoder("decoder", batch_first=True)
    decoder("decoder first", batch_first=True, norm_first=True)
    print(save("modules.safetensors", OUT, {}), "bytes")


if __name__ == "__main__":
    main()
