"""Lightning image classifier: wide ViT on 64x64 crops with numpy augmentation in workers."""
import csv
import os
import tempfile
import warnings

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from blocks_e import EncoderLayer, StepTimes, base_parser

warnings.filterwarnings("ignore")


class Photos(Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size
        self.store = np.random.default_rng(0).integers(0, 255, (48, size + 16, size + 16, 3), dtype=np.uint8)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        img = self.store[i % 48]
        y, x = rng.integers(0, 16, 2)
        img = img[y:y + self.size, x:x + self.size]
        if rng.random() < 0.5:
            img = img[:, ::-1]
        f = img.astype(np.float32) / 255.0
        f = np.clip((f - f.mean()) * rng.uniform(0.8, 1.2) + f.mean(), 0, 1)
        if rng.random() < 0.3:
            h = self.size // 4
            cy, cx = rng.integers(0, self.size - h, 2)
            f[cy:cy + h, cx:cx + h] = 0.5
        return np.ascontiguousarray(f.transpose(2, 0, 1)), int(i % 100)


class ViT(pl.LightningModule):
    def __init__(self, dim, heads, depth, size, patch=8, classes=100):
        super().__init__()
        self.p, self.patch = patch, nn.Linear(3 * patch * patch, dim)
        self.pos = nn.Parameter(torch.zeros(1, (size // patch) ** 2, dim))
        self.layers = nn.Sequential(*[EncoderLayer(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.view(b, c, h // self.p, self.p, w // self.p, self.p).permute(0, 2, 4, 1, 3, 5)
        x = self.patch(x.reshape(b, -1, c * self.p * self.p)) + self.pos
        return self.head(self.norm(self.layers(x)).mean(1))

    def training_step(self, batch, idx):
        x, y = batch
        logits = self(x.to(self.pos.dtype)).float()
        loss = F.cross_entropy(logits, y)
        acc = (logits.argmax(1) == y).float().mean()
        self.log("train/loss", loss, on_step=True, on_epoch=True)
        self.log("train/acc", acc, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3, momentum=0.9,
                               fused=self.device.type == "cuda")


class CsvEveryStep(pl.Callback):
    def __init__(self, path):
        self.f = open(path, "w", newline="")
        self.w = csv.writer(self.f)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.w.writerow([trainer.global_step, float(outputs["loss"])])
        self.f.flush()


class Timer(pl.Callback):
    def __init__(self, device, warm):
        self.times, self.warm = StepTimes(device), warm

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx + 1 == self.warm:
            self.times.begin()
        elif batch_idx + 1 > self.warm:
            self.times.tick()

    def on_train_end(self, trainer, module):
        self.times.finish()


def main():
    args = base_parser(variants=("healthy",)).parse_args()
    pl.seed_everything(0)
    cuda = args.device == "cuda"
    dim, heads, depth, batch, workers = (32, 2, 1, 4, 1) if args.tiny else (6144, 48, 2, 96, 6)
    warm = 1 if args.tiny else 5
    steps = min(args.steps, 110) + warm
    data = Photos(steps * batch, 64)
    loader = DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, drop_last=True,
                        pin_memory=cuda)
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if cuda else old)
    with torch.device(args.device):
        model = ViT(dim, heads, depth, 64)
    torch.set_default_dtype(old)
    out = tempfile.mkdtemp()
    trainer = pl.Trainer(
        accelerator="gpu" if cuda else "cpu", devices=1, max_epochs=1, max_steps=steps,
        precision="bf16-true" if cuda else "32-true",
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=out,
        callbacks=[CsvEveryStep(os.path.join(out, "loss.csv")), Timer(args.device, warm)])
    trainer.fit(model, loader)


if __name__ == "__main__":
    main()
