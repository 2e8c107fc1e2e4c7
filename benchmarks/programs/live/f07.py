"""A scoring server: several client threads, one worker thread, one set of adapters per tenant."""
import itertools
import logging
import queue
import threading
from concurrent.futures import Future

import torch
import torch.nn.functional as F

from blocks_f import Meter, parse, torch_sync

log = logging.getLogger("server")


class AdaptedLinear(torch.nn.Module):
    def __init__(self, d, rank, tenants, device):
        super().__init__()
        w = torch.randn(d, d, device=device) * d ** -0.5
        self.weight = torch.nn.Parameter(w, requires_grad=False)
        self.a = {t: torch.randn(rank, d, device=device) * 0.01 for t in tenants}
        self.b = {t: torch.randn(d, rank, device=device) * 0.01 for t in tenants}
        self.tenant = None

    def delta(self, tenant):
        return self.b[tenant] @ self.a[tenant]

    def forward(self, x):
        y = F.linear(x, self.weight)
        if self.tenant is not None:
            y = y + F.linear(F.linear(x, self.a[self.tenant]), self.b[self.tenant])
        return y


class Scorer(torch.nn.Module):
    def __init__(self, d, layers, rank, tenants, device):
        super().__init__()
        self.mods = torch.nn.ModuleList([AdaptedLinear(d, rank, tenants, device) for _ in range(layers)])
        self.out = torch.nn.Linear(d, 1, device=device)

    def forward(self, x):
        for m in self.mods:
            x = F.layer_norm(x + F.relu(m(x)), x.shape[-1:])
        return self.out(x).squeeze(-1)


class Folded:
    """The tenant's adapters while a batch runs."""

    def __init__(self, model, tenant):
        self.model, self.tenant = model, tenant

    def __enter__(self):
        for m in self.model.mods:
            m.weight.add_(m.delta(self.tenant))

    def __exit__(self, *exc):
        for m in self.model.mods:
            m.weight.sub_(m.delta(self.tenant))


class Beside(Folded):
    def __enter__(self):
        for m in self.model.mods:
            m.tenant = self.tenant

    def __exit__(self, *exc):
        for m in self.model.mods:
            m.tenant = None


class Server:
    def __init__(self, model, use, device):
        self.model, self.use, self.device = model, use, device
        self.inbox = queue.Queue()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def submit(self, tenant, x):
        f = Future()
        self.inbox.put((tenant, x, f))
        return f

    def work(self):
        while True:
            job = self.inbox.get()
            if job is None:
                return
            tenant, x, f = job
            try:
                with torch.no_grad(), self.use(self.model, tenant):
                    f.set_result(self.model(x.to(self.device)).cpu())
            except Exception as e:
                f.set_exception(e)

    def close(self):
        self.inbox.put(None)
        self.thread.join()


def client(server, turns, tenants, rows, barrier, counts, name):
    torch.manual_seed(name)
    order = itertools.cycle(tenants[name:] + tenants[:name])
    while True:
        barrier.wait()
        if turns["stop"]:
            return
        for _ in range(turns["each"]):
            r = server.submit(next(order), rows[name]).result()
            counts[name] += len(r)
        barrier.wait()


def main():
    logging.basicConfig(level=logging.INFO)
    args = parse(["slow", "fixed"])
    d, layers, rank, clients = (32, 2, 2, 2) if args.tiny else (4096, 24, 16, 4)
    torch.manual_seed(6)
    torch.set_float32_matmul_precision("high")
    device = torch.device(args.device)
    tenants = [f"tenant{i}" for i in range(6)]
    model = Scorer(d, layers, rank, tenants, device).eval()
    server = Server(model, Folded if args.variant == "slow" else Beside, device)
    rows = [torch.randn(32, d) for _ in range(clients)]
    turns = {"stop": False, "each": 3}
    barrier, counts = threading.Barrier(clients + 1), [0] * clients
    threads = [threading.Thread(target=client, args=(server, turns, tenants, rows, barrier, counts, i), daemon=True)
               for i in range(clients)]
    for t in threads:
        t.start()

    def burst():
        barrier.wait()
        barrier.wait()

    for _ in range(2):
        burst()
    meter = Meter(torch_sync(device))
    for _ in meter.loop(args.steps):
        burst()
    turns["stop"] = True
    barrier.wait()
    server.close()
    log.info("served %d rows", sum(counts))
    meter.report()


if __name__ == "__main__":
    main()
