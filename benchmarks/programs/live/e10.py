"""Actor-critic on a vectorised pole-balancing task, with a live return summary."""
import collections
import dataclasses
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_e import MLP, StepTimes, base_parser


@dataclasses.dataclass
class Config:
    envs: int = 256
    horizon: int = 16
    hidden: int = 256
    gamma: float = 0.99
    window: int = 30000
    refresh_s: float = 1.0


CONFIGS = {"slow": Config(refresh_s=0.001), "fixed": Config()}


class VecPole:
    def __init__(self, n, seed=0):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.state = self.rng.uniform(-0.05, 0.05, (n, 4)).astype(np.float32)
        self.ret = np.zeros(n, np.float32)

    def step(self, action):
        x, v, th, w = self.state.T
        force = np.where(action > 0, 10.0, -10.0)
        acc_w = (9.8 * np.sin(th) - np.cos(th) * force / 1.1) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        acc = (force - 0.05 * acc_w * np.cos(th)) / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * acc_w], 1).astype(np.float32)
        self.ret += 1
        done = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21)
        finished = self.ret[done].tolist()
        k = int(done.sum())
        self.state[done] = self.rng.uniform(-0.05, 0.05, (k, 4))
        self.ret[done] = 0
        return self.state, done.astype(np.float32), finished


class ReturnBoard(threading.Thread):
    """Keeps median and tail of the recent returns current for the status page."""

    def __init__(self, window, refresh_s):
        super().__init__(daemon=True)
        rng = np.random.default_rng(1)
        self.recent = collections.deque(rng.normal(30, 10, window).tolist(), maxlen=window)
        self.refresh_s, self.summary, self.stop = refresh_s, {}, threading.Event()

    def run(self):
        while not self.stop.wait(self.refresh_s):
            values = sorted(self.recent.copy())
            n = len(values)
            self.summary = {"p10": values[n // 10], "p50": values[n // 2], "p90": values[9 * n // 10]}


class Agent(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.pi = MLP([4, hidden, hidden, 2], nn.Tanh)
        self.v = MLP([4, hidden, hidden, 1], nn.Tanh)


def rollout(env, agent, obs, cfg, dev, board):
    O, A, D = [], [], []
    for _ in range(cfg.horizon):
        o = torch.from_numpy(obs).to(dev)
        with torch.no_grad():
            a = torch.distributions.Categorical(logits=agent.pi(o), validate_args=False).sample()
        obs, done, finished = env.step(a.cpu().numpy())
        board.recent.extend(finished)
        O.append(o)
        A.append(a)
        D.append(done)
    return obs, torch.stack(O), torch.stack(A), torch.from_numpy(np.stack(D)).to(dev)


def update(agent, opt, obs, O, A, D, cfg, dev):
    values = agent.v(O).squeeze(-1)
    with torch.no_grad():
        ret = agent.v(torch.from_numpy(obs).to(dev)).squeeze(-1)
        returns = []
        for t in reversed(range(cfg.horizon)):
            ret = 1.0 + cfg.gamma * ret * (1 - D[t])
            returns.append(ret)
        returns = torch.stack(returns[::-1])
        adv = returns - values
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    logp = F.log_softmax(agent.pi(O), -1)
    chosen = logp.gather(-1, A.unsqueeze(-1)).squeeze(-1)
    loss = -(chosen * adv).mean() + 0.5 * F.mse_loss(values, returns) + 0.01 * (logp.exp() * logp).sum(-1).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()


def main():
    args = base_parser().parse_args()
    cfg = CONFIGS[args.variant]
    if args.tiny:
        cfg = dataclasses.replace(cfg, envs=8, horizon=4, hidden=16)
    dev = torch.device(args.device)
    torch.manual_seed(0)
    env, agent = VecPole(cfg.envs), Agent(cfg.hidden).to(dev)
    opt = torch.optim.Adam(agent.parameters(), lr=3e-4)
    board = ReturnBoard(cfg.window, cfg.refresh_s)
    board.start()
    obs, times, warm, t0 = env.state, StepTimes(dev), 1 if args.tiny else 5, time.time()
    for it in range(args.steps + warm):
        if it == warm:
            times.begin()
        obs, O, A, D = rollout(env, agent, obs, cfg, dev, board)
        update(agent, opt, obs, O, A, D, cfg, dev)
        if it % 50 == 49:
            print("it %d  %.1fs  %s" % (it, time.time() - t0, board.summary), flush=True)
        if it >= warm:
            times.tick()
    times.finish()
    board.stop.set()
    board.join()


if __name__ == "__main__":
    main()
