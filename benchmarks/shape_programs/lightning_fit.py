"""Lightning: the data set prepares its samples in the process that trains."""

import math
import sys
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, Dataset

SLOW = "__getitem__"

torch.set_num_threads(1)
warnings.filterwarnings("ignore")


class Samples(Dataset):
    """Sines, computed one by one."""

    def __len__(self):
        return 8 * int(sys.argv[1])

    def __getitem__(self, position):
        return torch.tensor([math.sin(position * i) for i in range(1024)])


class Module(lightning.LightningModule):
    """A linear layer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1024, 32)

    def training_step(self, batch, number):
        """One batch."""
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        """Plain descent."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


lightning.Trainer(
    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
).fit(Module(), DataLoader(Samples(), batch_size=8))  # fmt: skip
