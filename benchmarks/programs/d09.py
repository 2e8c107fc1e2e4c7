"""Fine-tuning of a wide network on small batches."""
import torch
import torch.nn as nn

from common import Work, main


class Wide(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d, d, bias=False) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def build(ctx):
    n, d, layers = ctx.pick((512, 16384, 8), (8, 32, 3))
    torch.set_default_dtype(ctx.half)
    with torch.device(ctx.device):
        net = Wide(d, layers)
        xs, ys = torch.randn(8, n, d), torch.randn(8, n, d)
    torch.set_default_dtype(torch.float32)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)

    def train_step(i):
        loss = nn.functional.mse_loss(net(xs[i % 8]), ys[i % 8])
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6), variants=("healthy",))
