"""What has no gradient, and gradients that have none of their own: asking for one raises."""

import torch


def refuse(name):
    raise RuntimeError(f"{name}: gradients have no gradients of their own")


def number(name, argument, value):
    """A setting. One that is learned would be left as it is."""
    if isinstance(value, torch.Tensor) and value.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: {argument} has no gradient: give it detached")
    return float(value)


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
