"""Critic updates of a WGAN with gradient penalty."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Critic(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(layers))
        self.out = nn.Linear(d, 1, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.2)
        return self.out(x).float()


def penalty(critic, real, fake, mix):
    point = torch.lerp(fake, real, mix).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
    return (torch.linalg.vector_norm(slope, dim=1, dtype=torch.float32) - 1).square().mean()


def build(ctx):
    n, d, layers = ctx.pick((4096, 8192, 3), (8, 32, 2))
    torch.set_default_dtype(ctx.half)
    with torch.device(ctx.device):
        critic = Critic(d, layers)
        reals, fakes = torch.randn(4, n, d), torch.randn(4, n, d)
        mixes = torch.rand(4, n, 1)
    torch.set_default_dtype(torch.float32)
    opt = torch.optim.AdamW(critic.parameters(), lr=1e-4, betas=(0.0, 0.9), fused=True)

    def critic_step(i):
        real, fake = reals[i % 4], fakes[i % 4]
        gain = critic(fake).mean() - critic(real).mean()
        loss = gain + 10 * penalty(critic, real, fake, mixes[i % 4])
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    return Work(critic_step, items=n)


if __name__ == "__main__":
    main(build, steps=(100, 6), variants=("healthy",))
