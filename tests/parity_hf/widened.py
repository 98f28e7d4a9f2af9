"""What transformers computes in fp32 whatever its model is in, computed in the model's type: all that the peer is changed
by. Each change is compared with what it replaces at its first call, from which it may differ by the rounding of fp32, and
is refused where nothing has called it.
"""

import functools
import sys

import torch

ROUNDING = 1e-5  # of the largest value


def norm(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def centered_norm(self, x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


def attention(module, query, key, value, attention_mask, scaling=None, softcap=None, **_kwargs):
    """eager_attention_forward of transformers without its narrowing and without dropout."""
    key, value = (part.repeat_interleave(module.num_key_value_groups, 1) for part in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    weights = (scores + attention_mask).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def router(self, hidden):
    logits = torch.nn.functional.linear(hidden.reshape(-1, self.hidden_dim), self.weight)
    shares, experts = logits.softmax(-1).topk(self.top_k, dim=-1)
    if getattr(self, "norm_topk_prob", True):  # a Mixtral's has no such key
        shares = shares / shares.sum(-1, keepdim=True)
    return logits, shares, experts


def balance(gate_logits, num_experts, top_k, _attention_mask):
    """load_balancing_loss_func of transformers without its narrowing."""
    gates = torch.cat(gate_logits).softmax(-1)
    chosen = torch.nn.functional.one_hot(gates.topk(top_k, dim=-1).indices, num_experts)
    return num_experts * (chosen.sum(1).to(gates.dtype).mean(0) * gates.mean(0)).sum()


def routers_of(model):
    return [part for part in model.modules() if type(part).__name__.endswith("TopKRouter")]


def floats_of(values):
    """Experts that two types choose may differ where two are as good; shares of them do not."""
    values = values if isinstance(values, tuple) else (values,)
    return [value for value in values if torch.is_tensor(value) and value.is_floating_point()]


class Widened:
    def __init__(self):
        self.calls = {}

    def put(self, owner, name, wide):
        what, original = f"{owner.__name__}.{name}", getattr(owner, name)
        if what in self.calls:
            return
        self.calls[what] = 0
        original = getattr(original, "original", original)  # of an earlier model's

        @functools.wraps(wide)
        def counted(*args, **kwargs):
            result = wide(*args, **kwargs)
            if not self.calls[what]:
                with torch.no_grad():
                    self.compare(what, floats_of(result), floats_of(original(*args, **kwargs)))
            self.calls[what] += 1
            return result

        counted.original = original
        setattr(owner, name, counted)

    @staticmethod
    def compare(what, ours, theirs):
        assert len(ours) == len(theirs) > 0, what
        for one, other in zip(ours, theirs):
            apart = (one - other).abs().max().item()
            assert apart <= ROUNDING * other.abs().max().item(), f"{what} does more than widen: {apart} apart"

    def check_used(self):
        unused = [what for what, calls in self.calls.items() if not calls]
        assert not unused, f"changed and never called: {unused}"


def widen(model):
    widened = Widened()
    kind = type(model.model.norm)
    widened.put(kind, "forward", centered_norm if kind.__name__.startswith("Gemma") else norm)
    module = sys.modules[type(model).__module__]
    narrows = not type(model).__name__.startswith("GptOss")  # in its norms and its balance alone
    if narrows and model.config._attn_implementation == "eager":
        widened.put(module, "eager_attention_forward", attention)
    if getattr(model.config, "output_router_logits", False):
        widened.put(module, "load_balancing_loss_func", balance)
    for part in routers_of(model) if narrows else ():
        widened.put(type(part), "forward", router)
    return widened
