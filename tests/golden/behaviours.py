#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes behaviours.safetensors: what PyTorch does at kinks, ties, NaN and edges, and what its
optimizers and schedules do over 100 steps. tests/ops/semantics*.c and tests/train/curves_optim.c
hold ctrain to it.

    tests/golden/behaviours.py
"""
import math

from common import check_version, f64, save
import torch
import torch.nn.functional as F

OUT = {}
INF, NAN = math.inf, math.nan


def put(name, t):
    OUT[name] = t.detach().clone() if torch.is_tensor(t) else torch.tensor(t, dtype=torch.float64)


def record(name, x, fn, dy=None):
    """x, y = fn(x), and the gradient for dy (ones)."""
    x = x.clone().requires_grad_(True)
    y = fn(x)
    put(f"{name}/x", x)
    put(f"{name}/y", y)
    if y.requires_grad:
        y.backward(torch.ones_like(y) if dy is None else dy)
        put(f"{name}/dx", x.grad)


def activations():
    kinks = f64(-1, -0.0, 0, 2, NAN, INF, -INF)
    record("relu", kinks, F.relu)
    record("abs", kinks, torch.abs)
    record("sqrt", f64(0, 4, -1), torch.sqrt)
    record("log", f64(0, 1, -1), torch.log)
    record("div", f64(1, -1, 0), lambda x: x / torch.zeros_like(x))
    tails = f64(-30, -8, -1, 0, 0.5, 3, 8, 30)
    record("gelu", tails, F.gelu)
    record("gelu_tanh", tails, lambda x: F.gelu(x, approximate="tanh"))
    far = f64(-800, -40, -1, 0, 1, 40, 800)
    record("sigmoid", far, torch.sigmoid)
    record("silu", far, F.silu)
    record("tanh", far, torch.tanh)
    record("exp", f64(-800, 0, 710), torch.exp)


def pointwise():
    """Every function at its kinks, at both zeros, far out, at infinities and NaN."""
    wide = f64(-INF, -1e3, -20, -7, -6, -3, -1, -0.5, -0.0, 0, 0.5, 1, 3, 6, 7, 20, 21, 1e3, INF, NAN)
    for name in ("sin cos tan asin acos atan sinh cosh asinh acosh atanh exp2 expm1 log2 log10 log1p rsqrt reciprocal "
                 "sign floor ceil round trunc frac erf erfc").split():
        record(f"p_{name}", wide, getattr(torch, name))
    for name in "selu relu6 hardsigmoid hardswish mish logsigmoid tanhshrink".split():
        record(f"p_{name}", wide, getattr(F, name))
    record("p_softsign", f64(-1e3, -1, -0.0, 0, 1, NAN), F.softsign)
    record("p_leaky_relu", wide, lambda x: F.leaky_relu(x, 0.1))
    record("p_elu", wide, F.elu)
    record("p_celu", wide, lambda x: F.celu(x, 0.5))
    record("p_softplus", wide, F.softplus)
    record("p_hardtanh", wide, F.hardtanh)
    record("p_hardshrink", wide, lambda x: F.hardshrink(x, 0.5))
    record("p_softshrink", wide, lambda x: F.softshrink(x, 0.5))
    record("p_threshold", wide, lambda x: F.threshold(x, 1, 20))
    record("p_clamp", wide, lambda x: x.clamp(-1, 3))
    record("p_clamp_low", f64(-2, -1, 0, NAN), lambda x: x.clamp(min=-1))
    record("p_clamp_high", f64(-2, -1, 0, NAN), lambda x: x.clamp(max=-1))
    record("p_clamp_crossed", f64(-2, 0, 2), lambda x: x.clamp(1, -1))
    record("p_clamp_tensor", f64(-1, 0, 1, 2), lambda x: torch.clamp(x, f64(-1, -1, -1, -1), f64(1, 1, 1, 1)))
    for p in (0, 1, 2, 3, 0.5, -1, -2):
        record(f"p_pow_{p}", f64(-2, 0, 0.5, 3, INF, NAN), lambda x: x.pow(p))
    record("p_round_half", f64(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5), torch.round)
    a, b = f64(0, 0, 2, -2, 0, 1, NAN), f64(0, 2, 0, 3, -1, NAN, 1)
    record("p_pow_of_base", a, lambda x: x.pow(b))
    record("p_pow_of_exponent", b, lambda x: a.pow(x))
    ties, other = f64(1, 2, 3, NAN, 1, INF), f64(1, 3, 2, 1, NAN, INF)
    record("p_maximum", ties, lambda x: torch.maximum(x, other))
    record("p_minimum", ties, lambda x: torch.minimum(x, other))
    num, den = f64(7, -7, 7, -7, 1, 0, 5.5), f64(3, 3, -3, -3, 0, 0, INF)
    put("p_fmod", torch.fmod(num, den))
    put("p_remainder", torch.remainder(num, den))
    put("p_floor_divide", torch.floor_divide(num, den))
    record("p_where_hides_nothing", f64(0, 1, 4), lambda x: torch.where(x > 0, x.sqrt(), torch.zeros_like(x)))
    record("p_masked_fill", f64(1, 2, 3), lambda x: x.masked_fill(torch.tensor([True, False, True]), -INF))
    record("p_prelu", wide, lambda x: F.prelu(x, f64(0.25)))


def more_reductions():
    rows = f64(1, 2, 2, 7, 7, 7, 3, NAN, NAN).reshape(3, 3)
    record("r_max_dim", rows, lambda x: x.max(1).values)
    put("r_max_place", rows.max(1).indices.double())
    record("r_min_dim", rows, lambda x: x.min(1).values)
    put("r_min_place", rows.min(1).indices.double())
    record("r_median_ties", f64(3, 1, 2, 2, 5, 2), torch.median)
    record("r_median_nan", f64(3, NAN, 2), torch.median)
    put("r_median_place", f64(5, 1, 3, 2).reshape(1, 4).median(1).indices.double())
    record("r_var_of_one", f64(3).reshape(1, 1), lambda x: x.var(1))
    record("r_std_of_constants", f64(2, 2, 2), torch.std)
    record("r_norm_of_zeros", f64(0, 0), torch.linalg.vector_norm)
    record("r_norm_3_of_zeros", f64(0, 0), lambda x: torch.linalg.vector_norm(x, 3))
    record("r_norm_1", f64(0, -2, 3), lambda x: torch.linalg.vector_norm(x, 1))
    record("r_norm_inf_ties", f64(1, -3, 3), lambda x: torch.linalg.vector_norm(x, INF))
    record("r_normalize_zeros", f64(0, 0), lambda x: F.normalize(x, dim=0))
    record("r_prod_one_zero", f64(2, 0, 3), torch.prod)
    record("r_prod_two_zeros", f64(2, 0, 0, 3), torch.prod)
    record("r_cumprod_zeros", f64(2, 0, 3, 0, 5), lambda x: x.cumprod(0))
    record("r_logsumexp_inf", f64(-INF, -INF, 1, -INF, INF, 1).reshape(3, 2), lambda x: x.logsumexp(1))
    record("r_softmax_inf", f64(-INF, -INF, 1, -INF, INF, 1).reshape(3, 2), lambda x: x.softmax(1))
    s = f64(3, NAN, 1, 3, -INF, 2)
    record("r_sort", s, lambda x: x.sort(stable=True).values)
    put("r_sort_place", s.sort(stable=True).indices.double())
    record("r_sort_down", s, lambda x: x.sort(descending=True, stable=True).values)
    put("r_sort_down_place", s.sort(descending=True, stable=True).indices.double())
    record("r_topk", f64(1, 4, 2, 3), lambda x: x.topk(2).values)
    put("r_mean_of_nothing", torch.zeros(0, 2).double().mean(0))
    put("r_prod_of_nothing", torch.zeros(0, 2).double().prod(0))


def reductions():
    ties = f64(3, 5, 5, 1, 1)
    record("amax_ties", ties, torch.amax)
    record("amin_ties", ties, torch.amin)
    record("amax_nan", f64(1, NAN, 3), torch.amax)
    record("amin_nan", f64(1, NAN, 3), torch.amin)
    rows = f64(1, 2, 2, 7, 7, 7).reshape(2, 3)
    record("amax_rows", rows, lambda x: torch.amax(x, 1))
    for name, x in {"ties": f64(1, 5, 5, 5), "nan": f64(9, NAN, NAN, 1), "inf": f64(-INF, INF, INF),
                    "all_inf": f64(-INF, -INF)}.items():
        put(f"argmax_{name}/x", x)
        put(f"argmax_{name}/y", x.argmax())
    put("sum_empty/y", torch.zeros(0, dtype=torch.float64).sum())
    put("mean_empty/y", torch.zeros(0, dtype=torch.float64).mean())


def pools():
    record("pool_tie", torch.ones(1, 1, 2, 2, dtype=torch.float64), lambda x: F.max_pool2d(x, 2))
    record("pool_overlap", f64(1, 3, 3, 2, 3, 3, 0, 3, 3).reshape(1, 1, 3, 3),
           lambda x: F.max_pool2d(x, 2, 1))
    record("pool_nan", f64(1, NAN, NAN, 9).reshape(1, 1, 2, 2), lambda x: F.max_pool2d(x, 2))
    record("pool_negative", f64(-5).reshape(1, 1, 1, 1), lambda x: F.max_pool2d(x, 3, 1, 1))
    record("pool_minus_inf", torch.full((1, 1, 2, 2), -INF, dtype=torch.float64),
           lambda x: F.max_pool2d(x, 2))
    grid = torch.arange(42, dtype=torch.float64).reshape(1, 1, 6, 7).sin()
    shapes = []
    for k, s, p, d in [(2, 2, 0, 1), (3, 2, 1, 1), (2, 3, 0, 1), (2, 3, 1, 1), (3, 3, 1, 1),
                       (2, 2, 0, 2), (3, 1, 1, 2), (5, 4, 2, 1), (1, 2, 0, 1)]:
        for ceil in (0, 1):
            record(f"max_{k}_{s}_{p}_{d}_{ceil}", grid,
                   lambda x: F.max_pool2d(x, k, s, p, d, ceil_mode=bool(ceil)))
            shapes.append([k, s, p, d, ceil, 0])
            if d == 1:
                for pad in (0, 1):
                    record(f"avg_{k}_{s}_{p}_{ceil}_{pad}", grid,
                           lambda x: F.avg_pool2d(x, k, s, p, bool(ceil), bool(pad)))
    put("pools", torch.tensor(shapes))
    for h, w in [(1, 1), (3, 3), (6, 7), (4, 5), (7, 9)]:
        record(f"adaptive_{h}_{w}", grid, lambda x: F.adaptive_avg_pool2d(x, (h, w)))


def softmaxes():
    for name, x in {"all_minus_inf": f64(-INF, -INF), "one_minus_inf": f64(-INF, 1, 2),
                    "plus_inf": f64(INF, 1), "nan": f64(NAN, 1),
                    "large": f64(1000, 1001, 0)}.items():
        dy = torch.arange(1, len(x) + 1, dtype=torch.float64)
        record(f"softmax_{name}", x, lambda t: F.softmax(t, 0), dy)
        record(f"log_softmax_{name}", x, lambda t: F.log_softmax(t, 0), dy)


def cross_entropies():
    x = f64(1, 2, 3, 0, 0, 0, 2, -1, .5, .1, .2, .3).reshape(4, 3)
    y = torch.tensor([2, 0, -100, 1])
    w = f64(.5, 1, 2)
    put("ce/target", y)
    put("ce/weight", w)
    none_left = torch.full((4,), -100)
    probs = f64(.2, .3, .5, 1, 0, 0, 0, 0, 0, .1, .1, .1).reshape(4, 3)  # rows need not sum to 1
    put("ce/probs", probs)
    for r in ("none", "sum", "mean"):
        record(f"ce_plain_{r}", x, lambda t: F.cross_entropy(t, y, reduction=r))
        record(f"ce_weight_{r}", x, lambda t: F.cross_entropy(t, y, w, reduction=r))
        record(f"ce_smooth_{r}", x, lambda t: F.cross_entropy(t, y, reduction=r,
                                                              label_smoothing=.1))
        record(f"ce_both_{r}", x, lambda t: F.cross_entropy(t, y, w, reduction=r,
                                                            label_smoothing=.1))
        record(f"ce_all_ignored_{r}", x, lambda t: F.cross_entropy(t, none_left, reduction=r))
        record(f"ce_probs_{r}", x, lambda t: F.cross_entropy(t, probs, reduction=r))
        record(f"ce_probs_both_{r}", x, lambda t: F.cross_entropy(t, probs, w, reduction=r,
                                                                  label_smoothing=.1))
        record(f"ce_ignore_2_{r}", x, lambda t: F.cross_entropy(t, y.clamp(min=0), reduction=r,
                                                                ignore_index=2))
        zero = f64(1, 1, 0)
        only = torch.tensor([2, 2, 2, 2])
        record(f"ce_zero_weight_{r}", x, lambda t: F.cross_entropy(t, only, zero, reduction=r))
    hard = f64(1, -INF, 3, 0, 0, 0).reshape(2, 3)
    target = torch.tensor([2, 0])
    record("ce_minus_inf", hard, lambda t: F.cross_entropy(t, target))
    record("ce_minus_inf_smooth", hard, lambda t: F.cross_entropy(t, target, label_smoothing=.1))
    record("ce_minus_inf_hit", hard, lambda t: F.cross_entropy(t, torch.tensor([1, 0])))
    record("ce_large", f64(1000, 0, 0, 0, -1000, 0).reshape(2, 3),
           lambda t: F.cross_entropy(t, torch.tensor([1, 1])))


def norms():
    x = (torch.arange(24, dtype=torch.float64) * 0.7).sin().reshape(2, 3, 2, 2)
    w, b = f64(1, 2, -1), f64(0, .5, 1)
    for momentum in (0.1, 0.25):
        rm, rv = f64(.1, .2, .3), f64(1, 2, 3)
        for step in range(3):
            y = F.batch_norm(x + step, rm, rv, w, b, True, momentum)
            put(f"bn_{momentum}_{step}/mean", rm)
            put(f"bn_{momentum}_{step}/var", rv)
            put(f"bn_{momentum}_{step}/y", y)
    put("bn/x", x)
    put("bn/weight", w)
    put("bn/bias", b)
    record("bn_eval", x, lambda t: F.batch_norm(t, f64(.1, .2, .3), f64(1, 2, 3), w, b, False),
           torch.cos(torch.arange(24, dtype=torch.float64)).reshape(2, 3, 2, 2))
    record("bn_untracked", x, lambda t: F.batch_norm(t, None, None, w, b, True),
           torch.cos(torch.arange(24, dtype=torch.float64)).reshape(2, 3, 2, 2))
    record("bn_one_image", x[:1], lambda t: F.batch_norm(t, None, None, w, b, True))
    record("bn_constant", torch.ones(4, 1, dtype=torch.float64),
           lambda t: F.batch_norm(t, None, None, None, None, True))


def convolutions():
    record("same_even", f64(0, 1, 2, 3).reshape(1, 1, 1, 4),
           lambda x: F.conv2d(x, f64(1, 10).reshape(1, 1, 1, 2), padding="same"))
    x = (torch.arange(2 * 3 * 6 * 7, dtype=torch.float64) * .3).sin().reshape(2, 3, 6, 7)
    for r, s, d in [(2, 2, 1), (3, 4, 1), (2, 3, 2), (4, 4, 1), (1, 2, 3)]:
        w = (torch.arange(4 * 3 * r * s, dtype=torch.float64) * .9).cos().reshape(4, 3, r, s)
        put(f"same_{r}_{s}_{d}/w", w)
        record(f"same_{r}_{s}_{d}", x, lambda t: F.conv2d(t, w, padding="same", dilation=d))


def casts():
    x = torch.tensor([1.00390625, 1.01171875, 1e-3, 65504, 65519, 65520, 1e-8, -2.5, 2.5, INF, NAN])
    put("cast/x", x)
    put("cast/bf16", x.to(torch.bfloat16))
    put("cast/f16", x.to(torch.float16))
    whole = torch.tensor([2.9, -2.9, 0, -0.5, 7])
    put("cast/whole", whole)
    put("cast/i64", whole.to(torch.int64))
    put("cast/bool", whole.to(torch.bool))


def indices():
    i64 = torch.tensor
    rows = f64(1, 2, NAN, NAN, 5, 6).reshape(3, 2)
    count = torch.arange(1, 11, dtype=torch.float64)
    ids = i64([0, 1, 2, 1, 0])
    record("embedding_padding", rows, lambda x: F.embedding(ids, x, padding_idx=1),
           count.reshape(5, 2))
    record("embedding_repeated", rows, lambda x: F.embedding(ids, x), count.reshape(5, 2))
    bags = f64(3, 3, 1, NAN, 3, 4, 7, 7).reshape(4, 2)
    for mode in ("sum", "mean", "max"):
        record(f"bag_{mode}", bags, lambda x, m=mode: F.embedding_bag(
            i64([0, 2, 2, 3, 1]), x, i64([0, 3, 3, 4]), mode=m), count[:8].reshape(4, 2))
        record(f"bag_{mode}_last", bags, lambda x, m=mode: F.embedding_bag(
            i64([0, 2, 2, 3, 1]), x, i64([0, 3, 3, 5]), mode=m, include_last_offset=True,
            padding_idx=2), count[:6].reshape(3, 2))
        record(f"bag_{mode}_padding", bags, lambda x, m=mode: F.embedding_bag(
            i64([[0, 1, 2], [1, 1, 1]]), x, mode=m, padding_idx=1), count[:4].reshape(2, 2))
    x = f64(0, 1, 4).reshape(1, 1, 1, 3)
    for name, kw in {"bilinear": dict(size=(1, 7), mode="bilinear"),
                     "bilinear_corners": dict(size=(1, 7), mode="bilinear", align_corners=True),
                     "bilinear_down": dict(size=(1, 2), mode="bilinear"),
                     "bilinear_scale": dict(scale_factor=(1, 1.5), mode="bilinear"),
                     "nearest": dict(size=(1, 7)), "nearest_down": dict(size=(1, 2)),
                     "nearest_scale": dict(scale_factor=(1, 1.5))}.items():
        record(f"resize_{name}", x, lambda v, k=kw: F.interpolate(v, **k))
    record("resize_bilinear_2_4", f64(0, 1).reshape(1, 1, 1, 2),
           lambda v: F.interpolate(v, size=(1, 4), mode="bilinear"))
    nans = torch.full((2, 2), NAN, dtype=torch.float64)
    record("tril_nan", nans, torch.tril)
    record("triu_nan", nans, torch.triu)
    record("scatter_over", f64(1, 2, 3), lambda v: v.scatter(0, i64([1]), 9.0), count[:3])
    record("take_from_the_end", f64(1, 2, 3),
           lambda v: torch.take_along_dim(v, i64([-1, 0, -3, -1]), 0), count[:4])


def optimizers():
    g = torch.Generator().manual_seed(3)
    start = torch.randn(7, generator=g, dtype=torch.float64)
    grads = torch.randn(100, 7, generator=g, dtype=torch.float64)
    grads[40:45] = 0
    put("optim/start", start)
    put("optim/grads", grads)
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    for name, make in {
        "sgd": lambda p: sgd(p, lr=.05),
        "sgd_decay": lambda p: sgd(p, lr=.05, weight_decay=.1),
        "sgd_momentum": lambda p: sgd(p, lr=.05, momentum=.9),
        "sgd_dampening": lambda p: sgd(p, lr=.05, momentum=.9, dampening=.5),
        "sgd_nesterov": lambda p: sgd(p, lr=.05, momentum=.9, nesterov=True, weight_decay=.1),
        "adam": lambda p: adam(p, lr=.01),
        "adam_decay": lambda p: adam(p, lr=.01, weight_decay=.1),
        "adam_betas": lambda p: adam(p, lr=.01, betas=(.7, .9), eps=1e-3),
        "adamw": lambda p: adamw(p, lr=.01),
        "adamw_decay": lambda p: adamw(p, lr=.01, weight_decay=.3, betas=(.8, .95), eps=1e-4),
    }.items():
        p = start.clone().requires_grad_(True)
        o = make([p])
        path = []
        for k in range(100):
            p.grad = grads[k].clone()
            o.step()
            path.append(p.detach().clone())
        put(f"optim/{name}", torch.stack(path))


def schedules():
    s = torch.optim.lr_scheduler

    def run(make, total, cycle):
        p = torch.zeros(1, requires_grad=True)
        o = torch.optim.SGD([p], lr=1.0, momentum=.9)
        sched = make(o)
        rows = []
        for k in range(total):
            group = o.param_groups[0]
            rows.append([group["lr"], group["momentum"] if cycle else NAN])
            o.step()
            if k + 1 < total:
                sched.step()
        return torch.tensor(rows, dtype=torch.float64)

    one = s.OneCycleLR
    for name, total, kw in [
        ("onecycle_default", 100, {}),
        ("onecycle_short", 10, {}),
        ("onecycle_linear", 57, dict(anneal_strategy="linear")),
        ("onecycle_three", 61, dict(three_phase=True)),
        ("onecycle_three_linear", 40, dict(three_phase=True, anneal_strategy="linear",
                                           pct_start=.45)),
        ("onecycle_odd", 33, dict(pct_start=.17, div_factor=10, final_div_factor=50,
                                  base_momentum=.8, max_momentum=.9)),
        ("onecycle_no_warmup", 12, dict(pct_start=0.0)),
        ("onecycle_late", 20, dict(pct_start=.93)),
        ("onecycle_half_a_step", 10, dict(pct_start=.05)),
        ("onecycle_no_momentum", 15, dict(cycle_momentum=False)),
    ]:
        put(f"schedule/{name}", run(lambda o: one(o, max_lr=.3, total_steps=total, **kw), total,
                                    kw.get("cycle_momentum", True)))
    put("schedule/cosine", run(lambda o: s.CosineAnnealingLR(o, T_max=50, eta_min=.01), 50, False))
    put("schedule/cosine_warmup", run(lambda o: s.SequentialLR(
        o, [s.LinearLR(o, start_factor=.1, total_iters=10), s.CosineAnnealingLR(o, T_max=40)],
        milestones=[10]), 50, False))
    put("schedule/step", run(lambda o: s.StepLR(o, step_size=7, gamma=.3), 50, False))


def clipping():
    for name, max_norm in {"clip_over": 1.0, "clip_exact": 5.0, "clip_under": 50.0}.items():
        p = [torch.zeros(2, dtype=torch.float64, requires_grad=True),
             torch.zeros(1, dtype=torch.float64, requires_grad=True)]
        p[0].grad, p[1].grad = f64(3, 0), f64(4)
        put(f"{name}/norm", torch.nn.utils.clip_grad_norm_(p, max_norm))
        put(f"{name}/g0", p[0].grad)
        put(f"{name}/g1", p[1].grad)


def loss_scales():
    """SGD under a GradScaler; gradients overflow in steps 2, 6 and 7."""
    p = torch.tensor([1.], requires_grad=True)
    o = torch.optim.SGD([p], lr=.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8, growth_interval=3)
    rows = []
    for k in range(14):
        o.zero_grad()
        scaler.scale((p * (.25 + k)).sum()).backward()
        if k in (2, 6, 7):
            p.grad.fill_(float("inf"))
        scaler.step(o)
        scaler.update()
        rows.append([p.item(), scaler.get_scale(), scaler._growth_tracker.item()])
    put("scaler/trajectory", torch.tensor(rows, dtype=torch.float64))


def main():
    check_version()
    for part in (activations, pointwise, reductions, more_reductions, pools, softmaxes, cross_entropies, norms, convolutions,
                 indices, casts, optimizers, schedules, clipping, loss_scales):
        part()
    print(save("behaviours.safetensors", OUT), "bytes")


if __name__ == "__main__":
    main()
