"""PPO on a batch of simulated point-mass robots; everything lives on the device."""
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributions import Independent, MultivariateNormal, Normal

from blocks_f import Meter, parse, torch_sync


@dataclass
class Settings:
    envs: int = 6144
    horizon: int = 8
    obs: int = 48
    act: int = 24
    hidden: int = 256
    epochs: int = 2
    clip: float = 0.2
    gamma: float = 0.99
    style: str = "slow"


class PointMass:
    def __init__(self, s, device):
        self.s, self.device = s, device
        self.pos = torch.randn(s.envs, s.act, device=device)
        self.vel = torch.zeros_like(self.pos)

    def observe(self):
        return torch.cat([self.pos, self.vel], dim=1)

    def step(self, action):
        self.vel = 0.95 * self.vel + 0.05 * action.clamp(-2, 2)
        self.pos = self.pos + 0.1 * self.vel
        reward = -self.pos.square().mean(1) - 0.01 * action.square().mean(1)
        return self.observe(), reward


class ActorCritic(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.style = s.style
        self.pi = nn.Sequential(nn.Linear(s.obs, s.hidden), nn.Tanh(), nn.Linear(s.hidden, s.hidden),
                                nn.Tanh(), nn.Linear(s.hidden, s.act))
        self.v = nn.Sequential(nn.Linear(s.obs, s.hidden), nn.Tanh(), nn.Linear(s.hidden, s.hidden),
                               nn.Tanh(), nn.Linear(s.hidden, 1))
        self.log_std = nn.Parameter(torch.full((s.act,), -0.5))

    def policy(self, obs):
        mean = self.pi(obs)
        std = self.log_std.exp().expand_as(mean)
        if self.style == "slow":
            return MultivariateNormal(mean, torch.diag_embed(std.square()))
        return Independent(Normal(mean, std), 1)

    def value(self, obs):
        return self.v(obs).squeeze(-1)


@torch.no_grad()
def rollout(env, net, s):
    obs, acts, logp, rew = [], [], [], []
    o = env.observe()
    for _ in range(s.horizon):
        dist = net.policy(o)
        a = dist.sample()
        obs.append(o)
        acts.append(a)
        logp.append(dist.log_prob(a))
        o, r = env.step(a)
        rew.append(r)
    ret = net.value(o)
    returns = []
    for r in reversed(rew):
        ret = r + s.gamma * ret
        returns.append(ret)
    returns.reverse()
    return torch.cat(obs), torch.cat(acts), torch.cat(logp), torch.cat(returns)


def improve(net, opt, data, s):
    obs, acts, old, returns = data
    for _ in range(s.epochs):
        dist = net.policy(obs)
        value = net.value(obs)
        adv = (returns - value).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        ratio = (dist.log_prob(acts) - old).exp()
        gain = torch.minimum(ratio * adv, ratio.clamp(1 - s.clip, 1 + s.clip) * adv).mean()
        loss = -gain + 0.5 * (returns - value).square().mean() - 0.001 * dist.entropy().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
    return loss.detach()


def main():
    args = parse(["slow", "fixed"])
    s = Settings(style=args.variant)
    if args.tiny:
        s.envs, s.hidden, s.horizon, s.obs, s.act = 8, 16, 3, 8, 4
    torch.manual_seed(5)
    device = torch.device(args.device)
    env = PointMass(s, device)
    net = ActorCritic(s).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=3e-4)
    for _ in range(3):
        improve(net, opt, rollout(env, net, s), s)
    meter = Meter(torch_sync(device))
    for i in meter.loop(args.steps):
        loss = improve(net, opt, rollout(env, net, s), s)
    print(f"iterations {len(meter.times)}  loss {loss.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
