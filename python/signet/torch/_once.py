"""Gradients that have no gradients of their own: asking for them raises."""

import torch


def refuse(name):
    raise RuntimeError(f"{name}: gradients have no gradients of their own")


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, run, *tensors):
        ctx.name = name
        return run()

    @staticmethod
    def backward(ctx, *given):
        refuse(ctx.name)


def once(name, run, *tensors):
    """`run()`, whose results depend on these tensors. A graph of them, where one is made, leads to all of them and refuses."""
    return _Once.apply(name, run, *tensors) if torch.is_grad_enabled() else run()
