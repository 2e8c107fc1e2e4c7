"""Rolls out a policy in an environment that lives on the device; actions have a discrete and a continuous part.

TRUTH: torch.distributions checks its arguments (validate_args=True, the default) in `Policy.heads` and log_prob: every
Categorical/Normal built and every log_prob evaluates a constraint on the device and reads the result (`if not valid.all()`:
aten::is_nonzero/_local_scalar_dense), five synchronisations and twenty or so extra small kernels for each environment step. Fix:
validate_args=False.
"""
import torch
import torch.nn as nn
from torch.distributions import Categorical, Normal

from common import Work, main


class Policy(nn.Module):
    def __init__(self, obs, hidden, kinds, moves, check):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.kind, self.move, self.check = nn.Linear(hidden, kinds), nn.Linear(hidden, moves), check
        self.register_buffer("spread", torch.full((moves,), 0.3))

    def heads(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.kind(h), validate_args=self.check), Normal(self.move(h), self.spread, validate_args=self.check)


def build(ctx):
    n, obs_dim, moves, horizon = ctx.pick(4096, 16), 64, 16, ctx.pick(48, 4)
    net = Policy(obs_dim, ctx.pick(512, 16), 12, moves, ctx.slow).to(ctx.device)
    push = torch.randn(moves, obs_dim, device=ctx.device) * 0.1
    jump = torch.randn(12, obs_dim, device=ctx.device) * 0.1
    start = torch.randn(n, obs_dim, device=ctx.device)

    @torch.no_grad()
    def rollout(i):
        obs, logps, rewards = start, [], []
        for _ in range(horizon):
            kind, move = net.heads(obs)
            a, b = kind.sample(), move.rsample()
            logps.append(kind.log_prob(a) + move.log_prob(b).sum(-1))
            obs = torch.tanh(obs + b @ push + jump.index_select(0, a))
            rewards.append(obs[:, 0])
        return torch.stack(logps), torch.stack(rewards)

    return Work(rollout, items=n * horizon)


if __name__ == "__main__":
    main(build, steps=(80, 6), warmup=5)
