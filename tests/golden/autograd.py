#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes autograd.safetensors: what PyTorch's engine does in the tests of tests/engine.

    tests/golden/autograd.py

A function SUITE__TEST does what Test(SUITE, TEST) does. It records tensors by the name that the test gives to
EXPECT_VALUES, which compares with what is recorded here, and says with `raises` what PyTorch refuses too:
where PyTorch does not, this script fails.
"""
import contextlib
import inspect
import sys

from common import check_version, f64, save
import torch
from torch.utils.checkpoint import checkpoint

OUT = {}
TEST = ""


def put(what, t):
    OUT[f"{TEST}/{what}"] = torch.as_tensor(t, dtype=torch.float64).detach().clone()


@contextlib.contextmanager
def raises(*texts):
    """PyTorch refuses it: recorded as an empty tensor."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as e:
        for text in texts:
            if text not in str(e):
                sys.exit(f"{TEST}: '{text}' isn't in PyTorch's error: {e}")
        OUT[f"{TEST}/raises"] = torch.zeros(0, dtype=torch.float64)
    else:
        sys.exit(f"{TEST}: PyTorch does not raise")


def leaf(*v):
    return f64(*v)


def wanting(*v):
    return f64(*v).requires_grad_(True)


def grad(y, x, **kw):
    return torch.autograd.grad(y, x, **kw)[0]


# ---- backward ----

def backward__adds_to_the_gradients_of_leaves():
    a, b = wanting(1, 2), wanting(3, 5)
    (a * b).sum().backward()
    put("a", a.grad)
    put("b", b.grad)
    (a * b).sum().backward()
    put("a, twice", a.grad)


def backward__starts_anew_after_zero_grad():
    a = wanting(1, 2)
    for _ in range(3):
        a.grad = None
        a.square().sum().backward()
    put("a", a.grad)


def backward__of_a_scalar_needs_no_gradient_and_of_one_element_neither():
    a = wanting(3)
    a.square().backward()
    put("a", a.grad)


def backward__of_many_elements_needs_a_gradient():
    with raises("grad can be implicitly created only for scalar outputs"):
        wanting(1, 2).square().backward()


def backward__uses_the_gradient_given():
    a, g = wanting(1, 2), leaf(10, 100)
    a.square().backward(g)
    put("a", a.grad)
    put("the gradient given stays", g)


def backward__does_not_alias_the_gradient_given():
    a, g = wanting(1, 2), leaf(10, 100)
    a.clone().backward(g)
    a.clone().backward(g)
    put("a", a.grad)
    put("the gradient given stays", g)


def backward__gives_two_leaves_of_one_sum_gradients_of_their_own():
    a, b, g = wanting(1, 2), wanting(3, 4), leaf(1, 10)
    (a + b).backward(g)
    a.square().backward(g)
    put("a", a.grad)
    put("b", b.grad)


def backward__refuses_a_gradient_of_another_shape_or_dtype():
    y = wanting(1, 2).square()
    with raises("Mismatch in shape"):
        y.backward(leaf(1, 2, 3))


def backward__of_a_leaf_sets_its_own_gradient():
    a = wanting(1, 2)
    a.backward(leaf(7, 8))
    put("a", a.grad)


def backward__without_a_graph_is_an_error_that_says_so():
    with raises("does not require grad"):
        leaf(1, 2).sum().backward()


def backward__a_second_time_is_an_error_that_says_how_to_allow_it():
    a = wanting(1, 2)
    y = a.square().sum()
    y.backward()
    put("a", a.grad)
    with raises("retain_graph=True"):
        y.backward()


def backward__a_second_time_over_ops_that_saved_nothing_is_fine_as_in_pytorch():
    a, b = wanting(1, 2), wanting(3, 4)
    y = (a + b).sum()
    y.backward()
    y.backward()
    put("a", a.grad)


def backward__with_retain_graph_can_be_repeated():
    a = wanting(1, 2)
    y = a.square().exp().sum()
    for _ in range(3):
        y.backward(retain_graph=True)
    y.backward()
    put("a", a.grad)
    with raises("retain_graph=True"):
        y.backward()


def backward__from_two_losses_through_a_shared_part_needs_retain_graph():
    a = wanting(1, 2)
    m = a.square()
    one, two = m.sum(), (m * m).sum()
    one.backward(retain_graph=True)
    two.backward()
    put("a", a.grad)


def backward__over_a_ladder_of_diamonds_takes_no_exponential_time():
    x = wanting(1)
    y = x
    for _ in range(60):
        y = y + y
    y.backward()
    put("x", x.grad)


def backward__takes_a_short_and_a_long_way_to_one_leaf():
    x = wanting(1, 2)
    y = x
    for _ in range(20):
        y = y + 1
    (x + (y + x)).sum().backward()
    put("x", x.grad)


def backward__sums_over_a_wide_graph():
    x = wanting(2, 3)
    sum(x.square() for _ in range(2000)).sum().backward()
    put("x", x.grad)


def backward__inside_no_grad_still_works_on_a_graph_from_outside():
    a = wanting(1, 2)
    y = a.square().sum()
    with torch.no_grad():
        y.backward()
    put("a", a.grad)


def backward__accumulates_over_micro_batches_as_one_batch_does():
    w = wanting(0.5, -0.25)
    for x in ([1, 2], [3, -4], [-5, 6]):
        (w * leaf(*x)).square().sum().backward()
    put("w", w.grad)


# ---- grad ----

def grad__gives_gradients_and_leaves_every_grad_alone():
    a, b = wanting(1, 2), wanting(3, 5)
    g = torch.autograd.grad((a * b).sum(), [b, a])
    put("of b", g[0])
    put("of a", g[1])
    assert a.grad is None


def grad__of_a_result_in_the_middle_of_the_graph():
    m = wanting(1, 2).square()
    put("of m", grad(m.square().sum(), m))


def grad__of_the_output_itself_is_what_was_given():
    y = wanting(1, 2).square()
    put("of y", grad(y, y, grad_outputs=leaf(3, 4)))


def grad__runs_only_what_lies_between_outputs_and_inputs():
    a, b = wanting(2), wanting(3)
    m = b.square()
    y = a.square() * m
    put("of m", grad(y, m))
    m.backward()
    put("b", b.grad)


def grad__adds_over_several_outputs():
    a = wanting(1, 2)
    put("of a", torch.autograd.grad([a.sum(), a.square()], a, [None, leaf(1, 10)])[0])


def grad__refuses_an_unused_input_unless_allowed():
    a, b = wanting(1, 2), wanting(3, 4, 5)
    y = a.square().sum()
    with raises("allow_unused=True"):
        torch.autograd.grad(y, [a, b], retain_graph=True)
    g = torch.autograd.grad(y, [a, b], retain_graph=True, allow_unused=True)
    put("of a", g[0])
    assert g[1] is None
    put("of b", torch.autograd.grad(y, [a, b], materialize_grads=True)[1])


def grad__refuses_inputs_that_do_not_require_it():
    a, b = wanting(1, 2), leaf(3, 4)
    with raises("does not require grad"):
        grad((a * b).sum(), b)


def grad__of_gradients_to_the_third_order():
    x = wanting(2)
    d = x.square() * x.square()
    for what in ("4 x^3", "12 x^2", "24 x"):
        d = grad(d, x, create_graph=True)
        put(what, d)
    put("24", grad(d, x))


def grad__gives_hessian_vector_products():
    x, v = wanting(1, 2, 3), leaf(1, -1, 2)
    g = grad((x[:2].square() * x[1:]).sum(), x, create_graph=True)
    put("gradient", g)
    put("H v", grad(g, x, grad_outputs=v))


def grad__of_a_gradient_penalty_reaches_the_weights_by_backward():
    x, w = wanting(3), wanting(2)
    grad(w * x.square(), x, create_graph=True).square().backward()
    put("w", w.grad)
    put("x", x.grad)


def grad__with_create_graph_keeps_the_graph():
    x = wanting(3)
    y = x.square()
    grad(y, x, create_graph=True)
    y.backward()
    put("x", x.grad)


def grad__frees_the_graph_unless_told_otherwise():
    x = wanting(3)
    y = x.square()
    put("first", grad(y, x, retain_graph=True))
    put("second", grad(y, x))
    with raises("retain_graph=True"):
        grad(y, x)


# ---- hooks ----

def hooks__of_a_leaf_change_what_is_accumulated():
    a = wanting(1, 2)
    a.register_hook(lambda g: 2 * g)
    a.square().sum().backward()
    put("a, once", a.grad)
    a.square().sum().backward()
    put("a, twice", a.grad)


def hooks__of_a_result_change_what_flows_on():
    a = wanting(1, 2)
    m = a.square()
    m.register_hook(lambda g: 2 * g)
    m.sum().backward()
    put("a", a.grad)


def hooks__run_in_the_order_of_registration():
    a = wanting(3)
    a.register_hook(lambda g: 2 * g)
    a.register_hook(lambda g: g + 1)
    a.sum().backward()
    put("a", a.grad)


def hooks__change_what_grad_gives():
    a = wanting(3)
    a.register_hook(lambda g: g + 1)
    put("a", grad(a.square(), a))


def hooks__are_part_of_the_graph_of_gradients():
    a = wanting(3)
    a.register_hook(lambda g: 2 * g)
    g = grad(a.square() * a, a, create_graph=True)
    put("2 * 3 x^2", g)
    put("2 * 2 * 6 x", grad(g, a))


def hooks__must_give_a_gradient_of_the_same_shape():
    a = wanting(3, 4)
    a.register_hook(lambda g: torch.ones(3, dtype=torch.float64))
    with raises("hook"):
        a.sum().backward()


def hooks__need_a_tensor_that_requires_grad():
    with raises("doesn't require gradient"):
        leaf(1).register_hook(lambda g: g)


def hooks__keep_the_gradient_of_a_result_on_request():
    a = wanting(1, 2)
    m = a.square()
    m.retain_grad()
    m.retain_grad()
    m.square().sum().backward()
    put("m", m.grad)
    put("a", a.grad)


def hooks__keep_the_gradient_as_the_other_hooks_left_it():
    m = wanting(1, 2).square()
    m.retain_grad()
    m.register_hook(lambda g: 2 * g)
    m.sum().backward()
    put("m", m.grad)


def hooks__keep_the_gradient_of_what_a_result_became_in_place():
    a = wanting(1, 2)
    m = a.square()
    m.retain_grad()
    m.mul_(leaf(5, 5))
    m.square().sum().backward()
    put("m", m.grad)


# ---- in place ----

def inplace__ops_return_the_tensor_itself_and_bump_its_version():
    a = leaf(1, 2)
    version = a._version
    assert a.add_(leaf(10, 20)) is a and a._version == version + 1
    put("a", a)


def inplace__ops_take_over_the_graph():
    a = wanting(1, 2)
    m = a.square().mul_(leaf(3, 4))
    assert m.grad_fn.name() == "MulBackward0"
    put("m", m)
    m.sum().backward()
    put("a", a.grad)


def inplace__ops_save_what_their_operand_was():
    a, b = wanting(3), wanting(5)
    (a * 1).mul_(b).backward()
    put("a", a.grad)
    put("b", b.grad)


def inplace__ops_make_a_leaf_a_result():
    buffer, a = leaf(0, 0), wanting(1, 2)
    buffer.add_(a.square())
    assert not buffer.is_leaf and buffer.requires_grad
    buffer.sum().backward()
    put("a", a.grad)


def inplace__changes_make_a_backward_that_needs_the_old_value_fail():
    m = wanting(1, 2) * 1
    y = m.square()
    m.add_(leaf(1, 1))
    with raises("modified by an inplace operation"):
        y.sum().backward()


def inplace__changes_of_what_no_backward_needs_are_fine():
    a = wanting(1, 2)
    m = a * 3
    y = m * 2
    m.add_(leaf(1, 1))
    (y.sum() + m.sum()).backward()
    put("a", a.grad)


def inplace__refuses_leaves_that_require_grad_and_views_of_them():
    a = wanting(1, 2)
    with raises("a leaf Variable that requires grad"):
        a.add_(leaf(1, 1))
    with raises("a view of a leaf Variable that requires grad"):
        a[:1].add_(leaf(1))
    with torch.no_grad():
        a.add_(leaf(1, 1))
    put("a", a)


def inplace__refuses_results_of_another_shape_or_dtype():
    a = leaf(1, 2, 3)
    with raises("doesn't match the broadcast shape"):
        a.add_(leaf(1, 2, 3, 4, 5, 6).reshape(2, 3))
    put("a", a)


def inplace__refuses_expanded_tensors_and_overlapping_operands():
    a = leaf(1, 2, 3)
    with raises("single memory location"):
        leaf(1).expand(3).add_(a)
    with raises("single memory location"):
        a[1:].add_(a[:2])


def inplace__copy_takes_the_graph_of_its_source():
    a, b = wanting(3), wanting(5)
    a.square().copy_(b.square()).backward()
    put("b", b.grad)


def inplace__functions_keep_their_gradients():
    a = wanting(0.5, 2)
    m = (a * 1).clamp_(min=1).mul_(3).add_(1)
    put("m", m)
    m.sum().backward()
    put("a", a.grad)


def inplace__fill_cuts_the_gradient_of_what_it_covers():
    a = wanting(1, 2, 3)
    m = a * 2
    m[:2].fill_(7)
    put("m", m)
    m.square().sum().backward()
    put("a", a.grad)


def inplace__changes_through_a_view_change_the_graph_of_its_base():
    a = wanting(1, 2, 3, 4, 5, 6)
    m = a.reshape(2, 3) * 1
    m[1:].mul_(leaf(10, 10, 10))
    put("m", m.flatten())
    m.square().sum().backward()
    put("a", a.grad)


def inplace__changes_through_a_view_are_seen_by_the_view_and_by_all_others():
    a = wanting(1, 2, 3)
    m = a * 1
    v, w = m[:2], m[1:]
    v.mul_(leaf(10, 10))
    put("w", w)
    (v.sum() + w.square().sum()).backward()
    put("a", a.grad)


def inplace__changes_of_a_base_are_seen_by_its_views():
    a = wanting(1, 2, 3)
    m = a * 1
    t = m[1:]
    m.mul_(leaf(2, 3, 4))
    t.sum().backward()
    put("a", a.grad)


def inplace__assignment_to_a_part_of_a_buffer_is_recorded():
    buffer, a, b = leaf(0, 0, 0, 0), wanting(1, 2), wanting(7)
    buffer[:2].copy_(a.square())
    buffer[3:].copy_(b)
    put("buffer", buffer)
    buffer.square().sum().backward()
    put("a", a.grad)
    put("b", b.grad)


def inplace__changes_through_a_transposed_view_reach_the_right_elements():
    a = wanting(1, 2, 3, 4, 5, 6)
    m = a.reshape(2, 3) * 1
    m.T[2:].mul_(leaf(10, 100))
    put("m", m.flatten())
    m.sum().backward()
    put("a", a.grad)


def inplace__refuses_views_made_while_nothing_was_recorded():
    a = wanting(1, 2)
    m = a.square()
    with torch.no_grad():
        v = m[:1]
    with raises("no_grad"):
        v.mul_(a[:1])


def inplace__changes_through_detach_are_seen_and_caught():
    m = wanting(3) * 1
    y = m.square()
    m.detach().add_(leaf(1))
    put("m", m)
    with raises("modified by an inplace operation"):
        y.backward()


# ---- inference mode ----

def inferred():
    with torch.inference_mode():
        return leaf(3).square()


def inference__tensors_can_not_be_saved_for_backward_later():
    with raises("Inference tensors cannot be saved for backward"):
        wanting(2) * inferred()


def inference__tensors_can_not_change_in_place_later():
    with raises("Inplace update to inference tensor outside InferenceMode"):
        inferred().add_(leaf(1))
    with raises("requires_grad=True on inference tensor outside InferenceMode"):
        inferred().requires_grad_(True)


# ---- views, versions, leaves ----

def views__pass_gradients_to_their_base():
    a = wanting(1, 2, 3, 4, 5, 6)
    a.reshape(2, 3).T[1:].square().sum().backward()
    put("a", a.grad)


def views__of_part_of_a_tensor_change_that_part():
    m = leaf(1, 2, 3, 4, 5, 6).reshape(2, 3)
    m[:, 1:2].fill_(0)
    put("m", m.flatten())


def views__detach_shares_storage_and_sees_mutation():
    a = wanting(1, 2)
    a.detach().fill_(7)
    put("a", a)


def views__detach_stops_the_gradient():
    a = wanting(1, 2)
    (a * a.square().detach()).sum().backward()
    put("a", a.grad)


def views__clone_passes_the_gradient():
    a = wanting(1, 2)
    a.clone().square().sum().backward()
    put("a", a.grad)


def versions__a_saved_input_that_changed_fails_backward_and_is_named():
    a, b = wanting(1, 2), leaf(3, 4)
    y = (a * b).sum()
    b.fill_(3)
    with raises("modified by an inplace operation", "version 1; expected version 0"):
        y.backward()


def versions__a_saved_output_that_changed_fails_backward_and_is_named():
    y = wanting(1, 2).exp()
    loss = y.sum()
    with torch.no_grad():
        y.fill_(3)
    with raises("modified by an inplace operation"):
        loss.backward()


def versions__a_change_of_what_was_not_saved_is_harmless():
    a, b = wanting(1, 2), leaf(3, 4)
    y = a + b
    b.fill_(0)
    y.sum().backward()
    put("a", a.grad)


def leaves__a_result_of_operands_without_grad_can_be_told_to_require_it():
    y = (leaf(1, 2) + leaf(3, 4)).requires_grad_(True)
    y.square().sum().backward()
    put("gradient", y.grad)


def leaves__a_non_leaf_cannot_be_told_to_require_grad():
    with raises("you can only change requires_grad flags of leaf variables"):
        wanting(1).square().requires_grad_(False)


def leaves__integers_and_bool_cannot_require_grad():
    with raises("only Tensors of floating point"):
        torch.zeros(2, dtype=torch.int64).requires_grad_(True)


# ---- functions, checkpoints, anomaly detection ----

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, dy):
        x, = ctx.saved_tensors
        return dy * (x * x * 3)


def function__of_an_application_is_an_op_like_any_other():
    x = wanting(1, 2)
    y = Cube.apply(x)
    put("y", y)
    y.sum().backward()
    put("x", x.grad)


def function__written_in_ops_can_be_differentiated_again():
    x = wanting(1, 2)
    g = grad(Cube.apply(x).sum(), x, create_graph=True)
    put("6 x", grad(g.sum(), x))


def function__that_is_differentiable_once_says_so_the_second_time():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, dy):
            return 2 * dy * ctx.saved_tensors[0]

    x = wanting(1, 2)
    put("2 x", grad(Once.apply(x).sum(), x))
    g = grad(Once.apply(x).sum(), x, create_graph=True)
    with raises("does not require grad"):
        grad(g.sum(), x)


def checkpoint__is_part_of_a_graph_of_gradients():
    x = wanting(2)
    y = checkpoint(lambda x: x * x * x, x, use_reentrant=False)
    g = grad(y, x, create_graph=True)
    put("3 x^2", g)
    put("6 x", grad(g, x))


def anomaly__names_the_backward_that_makes_an_inf():
    # PyTorch finds the NaN that 0 * inf makes, not the Inf.
    with torch.autograd.detect_anomaly(check_nan=True), raises("SqrtBackward0"):
        (wanting(4, 0).sqrt() * leaf(1, 0)).sum().backward()


# ---- autocast ---- On the CPU; what sums and losses run in is CUDA's list, which the CPU's is not.

EPS8 = 2.0 ** -8


def f32(*rows):
    return torch.tensor(rows, dtype=torch.float32)


def bf16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def autocast__runs_products_in_its_dtype():
    x, w = f32([1 + EPS8, 2], [3, 4]), f32([1, 0], [0, 1 + EPS8])
    with bf16():
        put("linear", torch.nn.functional.linear(x, w).flatten())
        put("matmul", (x @ w).flatten())
        put("conv2d", torch.nn.functional.conv2d(x.view(1, 1, 2, 2), w.view(1, 1, 2, 2)).flatten())


def autocast__leaves_other_ops_in_the_dtype_that_comes_and_takes_the_widest_of_several():
    with bf16():
        put("add of both", torch.tensor([1., 2.]).bfloat16() + torch.tensor([1 + EPS8, -2]))


def autocast__gives_parameters_gradients_in_float32():
    x, w, b = f32([1, 2], [3, 4]), f32([1 + EPS8, 3]).requires_grad_(), torch.tensor([1 + EPS8], requires_grad=True)
    with bf16():
        y = torch.nn.functional.linear(x, w, b)
        put("y", y.flatten())
        loss = y.float().sum()
    loss.backward()
    put("w", w.grad.flatten())
    put("b", b.grad)


def autocast__casts_activations_on_the_record():
    x, w = f32([1, 2]).requires_grad_(), f32([3, 5])
    with bf16():
        loss = torch.nn.functional.linear(x * 2, w).float().sum()
    loss.backward()
    put("x", x.grad.flatten())


def autocast__is_off_in_a_nested_region_and_on_again_after():
    x, w = f32([1 + EPS8]), f32([1])
    with bf16(), torch.autocast("cpu", enabled=False):
        put("off", torch.nn.functional.linear(x, w))


def autocast__of_forward_is_what_backward_goes_by_inside_and_outside():
    x, w = f32([1, 2]), f32([3, 5], [7, 11]).requires_grad_()
    with bf16():
        loss = torch.nn.functional.linear(x, w).square().float().sum()
    loss.backward()
    put("w", w.grad.flatten())


def autocast__lets_batch_norm_keep_its_statistics_and_parameters_in_float32():
    x = f32([1], [3]).requires_grad_()
    w, b = torch.tensor([2.], requires_grad=True), torch.tensor([1.], requires_grad=True)
    with bf16():
        low = torch.nn.functional.linear(x, f32([1]))
        y = torch.nn.functional.batch_norm(low, torch.zeros(1), torch.ones(1), w, b, True)
        put("y", y.flatten())
        loss = (y * f32([1], [3])).sum()
    loss.backward()
    put("db", b.grad)


def autocast__gradients_of_gradients_go_through_the_casts():
    x, w = f32([1, 2]), f32([3, 5]).requires_grad_()
    with bf16():
        y = torch.nn.functional.linear(x, w)
        loss = (y * y * y).float().sum()
    g = grad(loss, w, create_graph=True)
    put("g", g.flatten())
    put("gg", grad(g.sum(), w).flatten())


def autocast__leaves_frozen_parameters_without_gradients():
    x, w, v = f32([1]), f32([3]), f32([2]).requires_grad_()
    with bf16():
        loss = torch.nn.functional.linear(torch.nn.functional.linear(x, w), v).float().sum()
    with bf16():
        w.requires_grad_()
        after = torch.nn.functional.linear(torch.nn.functional.linear(x, w), v).float().sum()
    loss.backward()
    put("v", v.grad.flatten())
    after.backward()
    put("w", w.grad.flatten())


def main():
    global TEST
    check_version()
    for name, fn in list(globals().items()):
        if "__" not in name or name.startswith("__") or not inspect.isfunction(fn):
            continue
        TEST = name.replace("__", ".", 1)
        fn()
    size = save("autograd.safetensors", OUT, {})
    tests = {key.split("/")[0] for key in OUT}
    print(f"{size} bytes, {len(OUT)} entries of {len(tests)} tests")


if __name__ == "__main__":
    main()
