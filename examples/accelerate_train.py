"""Recording a few steps of a training loop that uses Hugging Face Accelerate.

python examples/accelerate_train.py runs/accelerate
accelerate launch examples/accelerate_train.py runs/accelerate     (several processes)
"""

import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import pinchpoint


def main(out: str) -> None:
    """Train a small model; record once steps are steady."""
    accelerator = Accelerator()
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    data = TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    with pinchpoint.capture(out=out, shapes=True) as cap:
        for inputs, labels in cap.steps(loader):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()

    if accelerator.is_main_process:
        accelerator.print(f"run folder: {cap.folder}; next: pinchpoint diagnose {cap.folder}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "pinchpoint-runs/accelerate")
