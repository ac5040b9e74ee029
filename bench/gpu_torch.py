#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Milliseconds per training step of PyTorch on CUDA for the net of a config on random images: what
scripts/gpu-check puts beside ctrain's.

    bench/gpu_torch.py RESOLVED.ini [--steps 400] [--compile]
"""
import argparse
import configparser
import time

import torch
from torch import nn

import digits_torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--compile", action="store_true", help="with CUDA graphs (reduce-overhead)")
    args = parser.parse_args()
    config = configparser.ConfigParser(interpolation=None)
    with open(args.config, encoding="utf-8") as f:
        config.read_file(f)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    batch = int(config["data"]["batch_size"])
    net = digits_torch.convnet(config["model"], 8, 10).cuda().to(memory_format=torch.channels_last)
    run = torch.compile(net, mode="reduce-overhead") if args.compile else net
    loss_fn = nn.CrossEntropyLoss(label_smoothing=float(config["loss"]["label_smoothing"]))
    optimizer = torch.optim.AdamW(net.parameters(), lr=float(config["optimizer"]["lr"]), fused=True)
    x = torch.rand(16, batch, 1, 8, 8).pin_memory()
    y = torch.randint(10, (16, batch)).pin_memory()
    for step in range(50 + args.steps):
        if step == 50:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        images = x[step % 16].cuda(non_blocking=True).contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        loss_fn(run(images), y[step % 16].cuda(non_blocking=True)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    torch.cuda.synchronize()
    ms = (time.perf_counter() - begun) / args.steps * 1e3
    print(f"PyTorch {torch.__version__}{' compiled' if args.compile else ''}: {ms:.3f} ms per step")


if __name__ == "__main__":
    main()
