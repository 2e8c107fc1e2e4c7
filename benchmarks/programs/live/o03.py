"""Recurrent actor-critic: a frozen actor collects rollouts, the learner trains on the second half of each."""
import argparse
import copy
import json
import statistics
import time
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore", category=UserWarning)

PROGRAM = "o03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 160
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


class RecurrentPolicy(nn.Module):
    def __init__(self, obs_dim, hidden, actions, layers=2):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU())
        self.core = nn.LSTM(hidden, hidden, num_layers=layers)
        self.heads = nn.Linear(hidden, actions + 1)
        self.actions = actions

    def forward(self, obs, state):
        y, state = self.core(self.encoder(obs), state)
        out = self.heads(y)
        return out[..., : self.actions], out[..., self.actions], state


class PointEnv:
    """A batch of noisy linear systems that live on the device."""

    def __init__(self, num_envs, obs_dim, actions, device):
        self.drift = torch.randn(obs_dim, obs_dim, device=device) / obs_dim ** 0.5
        self.push = torch.randn(actions, obs_dim, device=device) * 0.3
        self.obs = torch.randn(num_envs, obs_dim, device=device)

    def step(self, action):
        self.obs = torch.tanh(self.obs @ self.drift + self.push[action])
        return self.obs, -self.obs[:, :8].square().mean(-1)


def clone_actor(policy):
    actor = copy.deepcopy(policy)
    return actor.requires_grad_(False).eval()


def clone_packed_actor(policy):
    actor = copy.deepcopy(policy)
    actor.core.flatten_parameters()
    return actor.requires_grad_(False).eval()


@torch.no_grad()
def publish_weights(policy, actor):
    torch._foreach_copy_(list(actor.parameters()), list(policy.parameters()))


@torch.no_grad()
def collect(actor, env, state, length, keep_from):
    obs_list, act_list, rew_list, val_list = [], [], [], []
    obs, kept_state = env.obs, None
    for t in range(length):
        if t == keep_from:
            kept_state = state
        logits, value, state = actor(obs.unsqueeze(0), state)
        noise = torch.rand_like(logits[0]).log_().neg_().log_().neg_()
        action = (logits[0] + noise).argmax(-1)
        obs_list.append(obs)
        act_list.append(action)
        val_list.append(value[0])
        obs, reward = env.step(action)
        rew_list.append(reward)
    batch = tuple(torch.stack(x[keep_from:]) for x in (obs_list, act_list, rew_list, val_list))
    return batch, kept_state, state


def discounted(rewards, bootstrap, powers, gamma):
    weighted = (rewards * powers[:, None]).flip(0).cumsum(0).flip(0) / powers[:, None]
    tail = gamma * powers.flip(0)[:, None] * bootstrap
    return weighted + tail


def learn(policy, optimizer, batch, state, powers, gamma):
    obs, action, reward, value_old = batch
    logits, value, _ = policy(obs, state)
    returns = discounted(reward, value_old[-1], powers, gamma)
    advantage = returns - value.detach()
    logp = F.log_softmax(logits, -1)
    chosen = logp.gather(-1, action.unsqueeze(-1)).squeeze(-1)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = -(chosen * advantage).mean() + 0.5 * F.mse_loss(value, returns) - 0.01 * entropy
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()


ACTOR = {"slow": clone_actor, "fixed": clone_packed_actor}


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    num_envs, obs_dim, hidden, length = (64, 128, 2048, 128) if device.type == "cuda" else (4, 16, 32, 8)
    actions, gamma, layers = 18, 0.99, 2
    policy = RecurrentPolicy(obs_dim, hidden, actions, layers).to(device)
    actor = ACTOR[args.variant](policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4, fused=device.type == "cuda")
    env = PointEnv(num_envs, obs_dim, actions, device)
    keep_from = length // 2
    powers = gamma ** torch.arange(length - keep_from, device=device).float()
    zeros = torch.zeros(layers, num_envs, hidden, device=device)
    carry = {"state": (zeros, zeros.clone())}

    def step():
        batch, kept_state, carry["state"] = collect(actor, env, carry["state"], length, keep_from)
        learn(policy, optimizer, batch, kept_state, powers, gamma)
        publish_weights(policy, actor)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
