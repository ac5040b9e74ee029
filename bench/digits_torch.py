# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/digits: the run of a ctrain config.ini, on the batches of digits_batches.

    python3 digits_torch.py CONFIG DATA RESULT [--fused] [--channels-last] [OPTIONS]

It does what the ctrain run does: trains, evaluates and saves a checkpoint after each epoch. RESULT
is a JSON file with the time of each step, in the order of the run.
"""
import argparse
import configparser
import json
import os
import time

import torch
from torch import nn


def numbers(text):
    return [int(word) for word in text.replace(",", " ").split()]


def convnet(model, size, classes):
    """models/convnet.c."""
    layers, last = [], 1
    for width in numbers(model["channels"]):
        layers += [nn.Conv2d(last, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.ReLU()]
        last = width
    layers += [nn.MaxPool2d(2), nn.Flatten()]
    last *= (size // 2) ** 2
    p = float(model["dropout"])
    for width in numbers(model["hidden"]):
        layers += [nn.Dropout(p)] if p > 0 else []
        layers += [nn.Linear(last, width), nn.ReLU()]
        last = width
    layers += [nn.Dropout(p)] if p > 0 else []
    return nn.Sequential(*layers, nn.Linear(last, classes))


def only(section, key, *values):
    """A config that this file does not know must not be compared."""
    if section[key] not in values:
        raise SystemExit(f"digits_torch: {key} = {section[key]} is not in this benchmark")


def make_optimizer(config, net, steps, fused):
    o, s = config["optimizer"], config["schedule"]
    only(o, "name", "adamw")
    only(s, "name", "onecycle", "constant")
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=float(o["lr"]), betas=(float(o["beta1"]), float(o["beta2"])),
        eps=float(o["eps"]), weight_decay=float(o["weight_decay"] or 0.01), fused=fused or None)
    if s["name"] == "constant":
        return optimizer, None
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=float(s["max_lr"] or o["lr"]), total_steps=steps,
        pct_start=float(s["pct_start"]), anneal_strategy=s["anneal"],
        cycle_momentum=s["cycle_momentum"] == "true", base_momentum=float(s["base_momentum"]),
        max_momentum=float(s["max_momentum"]), div_factor=float(s["div_factor"]),
        final_div_factor=float(s["final_div_factor"]), three_phase=s["three_phase"] == "true")


def read(folder, name, dtype):
    with open(os.path.join(folder, name), "rb") as f:
        return torch.frombuffer(bytearray(f.read()), dtype=dtype)


def read_samples(folder, part, channels_last):
    y = read(folder, f"{part}-y.i64", torch.int64)
    x = read(folder, f"{part}-x.f32", torch.float32)
    size = round((x.numel() / y.numel()) ** 0.5)
    x = x.view(-1, 1, size, size)
    return x.contiguous(memory_format=torch.channels_last) if channels_last else x, y


def read_batches(folder):
    ids, at, out = read(folder, "batches.i64", torch.int64), 0, []
    while at < ids.numel():
        n = int(ids[at])
        out.append(ids[at + 1:at + 1 + n])
        at += n + 1
    return out


def evaluate(net, loss_fn, x, y, batch_size):
    loss = hits = 0.0
    net.eval()
    with torch.no_grad():
        for i in range(0, len(y), batch_size):
            out = net(x[i:i + batch_size])
            target = y[i:i + batch_size]
            loss += loss_fn(out, target).item() * len(target)
            hits += (out.argmax(1) == target).sum().item()
    net.train()
    return loss / len(y), hits / len(y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("data")
    parser.add_argument("result")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    config = configparser.ConfigParser(interpolation=None)
    with open(args.config, encoding="utf-8") as f:
        config.read_file(f)
    only(config["model"], "name", "convnet")
    only(config["loss"], "name", "cross_entropy")
    only(config["train"], "accumulate", "1")
    only(config["run"], "precision", "fp32")
    torch.manual_seed(int(config["run"]["seed"]))
    x, y = read_samples(args.data, "train", args.channels_last)
    val_x, val_y = read_samples(args.data, "val", args.channels_last)
    batches = read_batches(args.data)
    batch_size = int(config["data"]["batch_size"])
    epochs = int(config["train"]["epochs"])
    per_epoch = len(batches) // epochs
    clip = float(config["train"]["clip_norm"])

    net = convnet(config["model"], x.shape[-1], int(y.max()) + 1)
    if args.channels_last:
        net = net.to(memory_format=torch.channels_last)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=float(config["loss"]["label_smoothing"]))
    plain_loss = nn.CrossEntropyLoss()
    optimizer, schedule = make_optimizer(config, net, len(batches), args.fused)
    checkpoint = args.result + ".pt"

    steps, losses, accuracy, clock = [], [], None, time.perf_counter
    begun = clock()
    for epoch in range(args.epochs or epochs):
        for ids in batches[epoch * per_epoch:(epoch + 1) * per_epoch]:
            start = clock()
            optimizer.zero_grad(set_to_none=True)
            loss = loss_fn(net(x[ids]), y[ids])
            loss.backward()
            if clip > 0:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            if schedule:
                schedule.step()
            steps.append(((clock() - start) * 1e3, len(ids)))
            losses.append(loss.item())
        _, accuracy = evaluate(net, plain_loss, val_x, val_y, batch_size)
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
    train_ms = (clock() - begun) * 1e3
    with open(args.result, "w", encoding="utf-8") as f:
        json.dump({"torch": torch.__version__, "train_ms": train_ms, "per_epoch": per_epoch,
                   "steps": steps, "loss": losses[-1], "accuracy": accuracy}, f)


main()
