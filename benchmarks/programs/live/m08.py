"""Proximal policy updates on rollouts that simulators left on the device."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
LENGTH, ROBOTS = (512, 256) if GPU else (16, 8)
SENSES, JOINTS, HIDDEN = (64, 12, 512) if GPU else (8, 3, 16)
GAMMA, LAMBDA, PARTS, WARM = 0.99, 0.95, 4, 5


def sync():
    if GPU:
        torch.cuda.synchronize()


class Rollout:
    def __init__(self):
        put = dict(device=args.device)
        self.senses = torch.randn(LENGTH + 1, ROBOTS, SENSES, **put)
        self.actions = torch.randn(LENGTH, ROBOTS, JOINTS, **put)
        self.rewards = torch.rand(LENGTH, ROBOTS, **put)
        self.alive = (torch.rand(LENGTH, ROBOTS, **put) > 0.01).float()
        self.before = -0.5 * self.actions.square().sum(-1)


class Advantage:
    """Generalised advantage estimates, from the last moment to the first."""

    def __call__(self, rollout, values):
        result = torch.zeros_like(rollout.rewards)
        carried = torch.zeros(ROBOTS, device=values.device)
        for moment in reversed(range(LENGTH)):
            alive = rollout.alive[moment]
            surprise = rollout.rewards[moment] + GAMMA * values[moment + 1] * alive - values[moment]
            carried = surprise + GAMMA * LAMBDA * alive * carried
            result[moment] = carried
        return result


class DoublingAdvantage(Advantage):
    def __call__(self, rollout, values):
        result = rollout.rewards + GAMMA * values[1:] * rollout.alive - values[:-1]
        factor = GAMMA * LAMBDA * rollout.alive
        reach = 1
        while reach < LENGTH:
            empty = (0, 0, 0, reach)
            result = result + factor * F.pad(result[reach:], empty)
            factor = factor * F.pad(factor[reach:], empty)
            reach *= 2
        return result


def tower(size_out):
    return nn.Sequential(
        nn.Linear(SENSES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, size_out)
    )


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = tower(JOINTS), tower(1)

    def log_chance(self, senses, actions):
        return -0.5 * (actions - self.actor(senses)).square().sum(-1)

    def value(self, senses):
        return self.critic(senses).squeeze(-1)


class Learner:
    def __init__(self):
        self.agent = Agent().to(args.device)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=3e-4, fused=GPU)
        self.advantage = (Advantage if args.variant == "slow" else DoublingAdvantage)()
        self.loss = None

    def update(self, rollout):
        with torch.no_grad():
            values = self.agent.value(rollout.senses)
            gain = self.advantage(rollout, values)
            goal = (gain + values[:-1]).flatten()
            gain = ((gain - gain.mean()) / (gain.std() + 1e-6)).flatten()
        senses = rollout.senses[:-1].flatten(0, 1)
        actions, before = rollout.actions.flatten(0, 1), rollout.before.flatten()
        order = torch.randperm(len(gain), device=args.device)
        for part in order.chunk(PARTS):
            ratio = (self.agent.log_chance(senses[part], actions[part]) - before[part]).clamp(-5, 5).exp()
            chosen = gain[part]
            policy = -torch.minimum(ratio * chosen, ratio.clamp(0.8, 1.2) * chosen).mean()
            self.loss = policy + 0.5 * F.mse_loss(self.agent.value(senses[part]), goal[part])
            self.optimizer.zero_grad()
            self.loss.backward()
            self.optimizer.step()


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    rollouts = [Rollout() for _ in range(8)]
    learner = Learner()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        learner.update(rollouts[step % len(rollouts)])
        if step % 50 == 0:
            print(f"update {step} loss {learner.loss.item():.4f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
