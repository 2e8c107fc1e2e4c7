"""Small programs that ``verify_capture_gpu.py`` runs unchanged under ``pinchpoint run``."""

MODEL = """
import sys, time, torch
from torch import nn
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
width, steps = (1024, 200) if device == "cuda" else (64, 60)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else steps
length = 256 if device == "cuda" else 8
layers = [nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, dropout=0.0)
          for _ in range(4)]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
"""
STEP = """
def train_step(x):
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()
"""
STEP_IN_BF16 = """
def train_step(x):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, torch.bfloat16):
        loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""
LOOP = """
x = torch.randn(8, length, width, device=device)
marks = []
for i in range(steps):
    train_step(x)
    if i in (steps // 3, steps - 1):
        torch.cuda.synchronize() if device == "cuda" else None
        marks.append(time.perf_counter())
print("STEP_MS", 1e3 * (marks[1] - marks[0]) / (steps - 1 - steps // 3))
"""
LOADER = """
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self): return 8 * steps
    def __getitem__(self, i): return torch.randn(length, width)
if __name__ == "__main__":
    for x in DataLoader(Samples(), batch_size=8, num_workers=4, pin_memory=device == "cuda"):
        train_step(x.to(device, non_blocking=True))
"""
SMALL = """
import sys, time, torch
from torch import nn
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
width = 1024 if device == "cuda" else 32
layers = [m for _ in range(6) for m in (nn.Linear(width, width), nn.GELU())]
model = nn.Sequential(*layers).to(device)
x, seconds = torch.randn(64, width, device=device), float(sys.argv[1]) if len(sys.argv) > 1 else 13
def wait(): torch.cuda.synchronize() if device == "cuda" else None
"""
COMPILED_LOOP = """
run = torch.compile(model, mode="reduce-overhead")
with torch.no_grad():
    run(x)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(20):
            run(x)
        wait()
"""
GRAPH_LOOP = """
with torch.no_grad():
    for _ in range(3):
        model(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
end = time.monotonic() + seconds
while time.monotonic() < end:
    for _ in range(20):
        graph.replay()
    wait()
"""
GRAPHED_STEP = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
def train_step():
    optimizer.zero_grad(set_to_none=False)
    model(x).square().mean().backward()
    optimizer.step()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        train_step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    train_step()
end = time.monotonic() + seconds + 14
while time.monotonic() < end:
    for _ in range(20):
        graph.replay()
    wait()
"""
ENDLESS = """
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
end = time.monotonic() + seconds
while time.monotonic() < end:
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()
    time.sleep(0.002)
"""
WATCHED = """
import pinchpoint as pp
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
with pp.watch(out=sys.argv[2]) as recorder:
    for i in range(400):
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()
        if i > 300:
            time.sleep(0.01)
        recorder.step()
print("WATCH_US", 1e6 * recorder.seconds_spent / 400)
"""
DDP = """
import os, sys, torch
import torch.distributed as dist
from torch import nn
cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
device = f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu"
if cuda:
    torch.cuda.set_device(device)
model = nn.Sequential(*[nn.Linear(2048 if cuda else 64, 2048 if cuda else 64) for _ in range(8)])
model = nn.parallel.DistributedDataParallel(model.to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(256, 2048 if cuda else 64, device=device)
for i in range(200):
    optimizer.zero_grad(set_to_none=True)
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""

PROGRAMS = {
    "plain": MODEL + STEP + LOOP,
    "loader": MODEL + STEP + LOADER,
    "bf16": MODEL + STEP_IN_BF16 + LOOP,
    "graph": SMALL + GRAPH_LOOP,
    "compile": MODEL + STEP + "model = torch.compile(model)\n" + LOOP,
    "reduce-overhead": SMALL + COMPILED_LOOP,
    "graphed-step": SMALL + GRAPHED_STEP,
}
EXTRAS = {"endless": SMALL + ENDLESS, "watched": SMALL + WATCHED, "ddp": DDP}
