"""Offline Q-learning from a large replay memory (CPU)."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

CAPACITY, OBS, ACTIONS, BATCH = 1_500_000, 10, 6, 256


class Replay:
    """Transitions in flat arrays; a draw never repeats a transition."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        fill = np.random.default_rng(seed)
        self.obs = fill.random((CAPACITY, OBS), dtype=np.float32)
        self.action = fill.integers(0, ACTIONS, CAPACITY)
        self.reward = fill.random(CAPACITY, dtype=np.float32)
        self.done = fill.random(CAPACITY, dtype=np.float32) < 0.01

    def __len__(self):
        return CAPACITY - 1

    def pick(self):
        return self.rng.choice(len(self), BATCH, replace=False)

    def draw(self):
        at = self.pick()
        return (
            torch.from_numpy(self.obs[at]),
            torch.from_numpy(self.action[at]),
            torch.from_numpy(self.reward[at]),
            torch.from_numpy(self.obs[at + 1]),
            torch.from_numpy(self.done[at]),
        )


class NewReplay(Replay):
    def __init__(self, seed):
        super().__init__(seed)
        self.rng = np.random.default_rng(seed)


def network():
    return nn.Sequential(
        nn.Linear(OBS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, ACTIONS)
    )


@torch.no_grad()
def follow(target, online, rate=0.005):
    for t, o in zip(target.parameters(), online.parameters()):
        t.lerp_(o, rate)


def temporal_difference(online, target, batch, discount=0.97):
    obs, action, reward, following, done = batch
    with torch.no_grad():
        pick = online(following).argmax(1, keepdim=True)
        future = target(following).gather(1, pick).squeeze(1)
        goal = reward + discount * future * ~done
    value = online(obs).gather(1, action[:, None]).squeeze(1)
    return F.smooth_l1_loss(value, goal)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several jobs share this machine
    replay = Replay(5) if args.variant == "slow" else NewReplay(5)
    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    opt = torch.optim.Adam(online.parameters(), lr=5e-4)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        loss = temporal_difference(online, target, replay.draw())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        opt.step()
        follow(target, online)
        if step % 25 == 0:
            print(f"step {step} td {loss.item():.5f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


if __name__ == "__main__":
    main()
