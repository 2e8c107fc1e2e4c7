"""Small training programs that the tests run under ``pinchpoint run``."""

HEAD = """
import os, signal, sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train_step(x=torch.ones(4, 8)):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""

CRASHES_EARLY_AFTER_A_FORK = (
    HEAD
    + """
for i in range(5):
    train_step()
    if i == 3 and (child := os.fork()) == 0:
        for _ in range(60):
            optimizer.step()  # no backward pass: autograd's threads do not survive a fork
        raise SystemExit(0)
os.waitpid(child, 0)
print("to stdout")
raise RuntimeError("the user's own mistake")
"""
)

DISK_FULL = (
    HEAD
    + """
import resource, sys
sys.dont_write_bytecode = True  # CPython would keep the half that fits
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for i in range(60):
    train_step()
"""
)

OWN_PROFILER = (
    HEAD
    + """
with torch.profiler.profile() as profiler:
    for i in range(40):
        train_step()
print(len(profiler.key_averages()) > 0)
"""
)

QUIET_UNTIL_RECORDED = """
import os, pathlib, time, torch
torch.set_num_threads(1)
traces = pathlib.Path(os.environ["PINCHPOINT_RUN"], "traces")
x, end = torch.ones(32, 32), time.monotonic() + 60
while time.monotonic() < end and not list(traces.glob("*.gz")):
    for _ in range(500):
        (x @ x).relu()
"""

LOADER_PACKAGE = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
if __name__ == "__main__":
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.ones(80 * 4, 8))
    for epoch in range(2):
        for (x,) in DataLoader(data, batch_size=4, num_workers=2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    print("arguments", sys.argv[1:])
"""

TWO_RANKS = """
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(50):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""

ENDED_BY_A_SCHEDULER = (
    HEAD
    + """
for i in range(1000):
    train_step()
    if i == 40:
        os.kill(os.getpid(), signal.SIGTERM)
"""
)

TRAINS_IN_COPIES = """
import multiprocessing, os, torch
torch.set_num_threads(1)

def train():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(40):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

context = multiprocessing.get_context("fork")
copies = [context.Process(target=train) for _ in range(2)]
for copy in copies:
    copy.start()
for copy in copies:
    copy.join()
print([copy.exitcode for copy in copies])
"""

JAX = """
import jax, jax.numpy as jnp
@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
w, x = jnp.ones((64, 64)), jnp.ones((32, 64))
for i in range(60):
    with jax.profiler.StepTraceAnnotation("train", step_num=i):
        w = step(w, x)
        w.block_until_ready()
"""

WITHOUT_TORCH = """
import multiprocessing
import time


def rest():
    time.sleep(1.5)


if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=rest)
    child.start()
    rest()
    child.join()
    print("done")
"""
