"""Distils a large patch model into a student, on freshly augmented images."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_f import Meter, parse, torch_sync


class PatchBlock(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class PatchNet(nn.Module):
    def __init__(self, d, hidden, depth, patch, out):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, d)
        self.blocks = nn.Sequential(*[PatchBlock(d, hidden) for _ in range(depth)])
        self.head = nn.Linear(d, out)

    def forward(self, img):
        b, c, h, w = img.shape
        p = self.patch
        x = img.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * p * p)
        return self.head(self.blocks(self.embed(x)).mean(1))


class Images:
    def __init__(self, n, size, batch, device):
        self.data = torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8)
        if device.type == "cuda":
            self.data = self.data.pin_memory()
        self.batch, self.device = batch, device

    def fetch(self, i):
        start = (i * self.batch) % (len(self.data) - self.batch + 1)
        x = self.data[start:start + self.batch].to(self.device, non_blocking=True)
        x = x.to(torch.bfloat16).div_(127.5).sub_(1.0)
        flip = torch.rand(self.batch, 1, 1, 1, device=self.device) < 0.5
        x = torch.where(flip, x.flip(-1), x)
        return x + 0.05 * torch.randn_like(x)


class Distiller:
    def __init__(self, teacher, student, device):
        self.teacher, self.student, self.device = teacher, student, device
        self.opt = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9, fused=device.type == "cuda")
        self.curve = []

    def step(self, x):
        with torch.no_grad():
            target = self.teacher(x).float().softmax(-1)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.student(x)
        loss = F.cross_entropy(logits.float(), target)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.curve.append(loss.item())


def main():
    args = parse(["healthy"])
    torch.manual_seed(11)
    device = torch.device(args.device)
    d, hidden, depth, batch, size, patch, out = (4096, 16384, 2, 64, 224, 16, 1000)
    if args.tiny:
        d, hidden, depth, batch, size, patch, out = 32, 64, 1, 2, 32, 16, 10
    with device:
        teacher = PatchNet(d, hidden, depth, patch, out).to(torch.bfloat16).eval().requires_grad_(False)
        student = PatchNet(d, hidden, depth, patch, out)
    images = Images(batch * 4, size, batch, device)
    job = Distiller(teacher, student, device)
    for i in range(3):
        job.step(images.fetch(i))
    meter = Meter(torch_sync(device))
    for i in meter.loop(args.steps):
        job.step(images.fetch(i))
        if i % 20 == 0:
            print(f"step {i:4d} loss {job.curve[-1]:.4f}")
    meter.report()


if __name__ == "__main__":
    main()
