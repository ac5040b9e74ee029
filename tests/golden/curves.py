#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes curves.safetensors: 20 training steps of two nets on the digits, by PyTorch in f64.
tests/train/curves.c trains the same in ctrain.

    tests/golden/curves.py
"""
from common import HERE, check_version, save
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

STEPS = 20
CLIP = 2.0  # some windows are above it, some below
KEPT = (1, 2, 5, 10, 20)  # after which all parameters and buffers are recorded
OUT = {}


def digits():
    folder = HERE.parent.parent / "data" / "digits"
    images = np.frombuffer((folder / "digits-images.idx3-ubyte").read_bytes()[16:], np.uint8)
    labels = np.frombuffer((folder / "digits-labels.idx1-ubyte").read_bytes()[8:], np.uint8)
    return torch.tensor(images.reshape(-1, 1, 8, 8)), torch.tensor(labels.astype(np.int64))


def record(name, step, net):
    if step not in KEPT and step != 0:
        return
    for key, value in net.state_dict().items():
        OUT[f"{name}/{step}/{key}"] = value.clone()


def f32_numbers(net):
    """Weights that f32 and f64 have alike, so that both start equal."""
    return net.to(torch.float32).to(torch.float64)


def mlp(images, labels, order):
    net = f32_numbers(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    batch, losses = 32, []
    picked = order[:STEPS * batch]
    OUT["mlp/x"], OUT["mlp/y"] = images[picked], labels[picked]
    optim = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    record("mlp", 0, net)
    for step in range(STEPS):
        part = slice(step * batch, (step + 1) * batch)
        optim.zero_grad()
        loss = F.cross_entropy(net(OUT["mlp/x"][part].double() / 16), OUT["mlp/y"][part])
        loss.backward()
        optim.step()
        losses.append(loss.detach())
        record("mlp", step + 1, net)
    OUT["mlp/losses"] = torch.stack(losses)


def conv(images, labels, order):
    net = f32_numbers(nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 10)))
    # Windows of three micro-batches; each fifth one is short: two, the second of 5 samples.
    sizes = [([8, 5, 0] if step % 5 == 4 else [8, 8, 8]) for step in range(STEPS)]
    picked = order[-sum(map(sum, sizes)):]
    OUT["conv/x"], OUT["conv/y"] = images[picked], labels[picked]
    OUT["conv/sizes"] = torch.tensor(sizes)
    optim = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optim, max_lr=0.02, total_steps=STEPS)
    record("conv", 0, net)
    losses, norms, at = [], [], 0
    for step in range(STEPS):
        optim.zero_grad()
        total, weight = 0, sum(sizes[step])
        for size in filter(None, sizes[step]):
            x, y = OUT["conv/x"][at:at + size].double() / 16, OUT["conv/y"][at:at + size]
            loss = F.cross_entropy(net(x), y, reduction="sum", label_smoothing=0.1)
            loss.backward()
            total, at = total + loss.detach(), at + size
        for p in net.parameters():
            p.grad /= weight
        norms.append(nn.utils.clip_grad_norm_(net.parameters(), CLIP))
        optim.step()
        if step + 1 < STEPS:
            schedule.step()
        losses.append(total / weight)
        record("conv", step + 1, net)
    OUT["conv/losses"], OUT["conv/norms"] = torch.stack(losses), torch.stack(norms)
    clipped = sum(bool(n > CLIP) for n in norms)
    assert 0 < clipped < STEPS, "both sides of clipping should be seen"


def main():
    check_version()
    images, labels = digits()
    torch.manual_seed(11)
    order = torch.randperm(len(images))
    mlp(images, labels, order)
    conv(images, labels, order)
    print(save("curves.safetensors", OUT), "bytes")


if __name__ == "__main__":
    main()
