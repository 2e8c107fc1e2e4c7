"""Edits that fit the statement at hand, on programs written here."""

import ast
import textwrap
from pathlib import Path

import pytest

from pinchpoint.program.edits import edit_for
from pinchpoint.program.files import Source


def source(text):
    text = textwrap.dedent(text).lstrip("\n")
    return Source(Path("train.py"), text, ast.parse(text))


def edited(rule_id, text, line, workers=None):
    """The whole file after the edit; None where there is none."""
    found = source(text)
    edit = edit_for(rule_id, found, line, workers)
    if edit is None:
        return None
    lines = [*found.lines[: edit.first - 1], *edit.new, *found.lines[edit.last :]]
    ast.parse("\n".join(lines))
    return [line for line in lines if line]


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("total += loss.item()", ["total += loss.detach()"]),
        ("losses.append(loss.item())", ["losses.append(loss.detach())"]),
        (
            "pair = (loss.item(), norm(g).item())",
            ["pair = (loss.detach(), norm(g).detach())"],
        ),
        ("losses.append(float(loss))", ["losses.append(loss.detach())"]),
        ("mean = 0.9 * mean + 0.1 * float(x.item())", ["mean = 0.9 * mean + 0.1 * x.detach()"]),
        ("seen.append((a * b).item())", ["seen.append((a * b).detach())"]),
        ("return {'loss': loss.item()}", ["return {'loss': loss.detach()}"]),
        ("assert x.max().item() < 100", ["torch._assert_async(x.max() < 100)"]),
    ],
)
def test_a_read_of_a_device_value(line, after):
    assert edited("sync-in-loop", line, 1) == after


@pytest.mark.parametrize(
    ("loop", "counts"),
    [
        ("for i in range(9):", "i"),
        ("for n, (x, y) in enumerate(loader):", "n"),
        ("for batch in loader:\n    step += 1", "step"),
    ],
)
@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("print(f'{loss.item()}')", "if {} % 50 == 0:\n        print(f'{loss.item()}')"),
        ("if x.max().item() > 9: raise E", "if {} % 50 == 0 and x.max().item() > 9: raise E"),
        ("if torch.isnan(x).any(): log(x)", "if {} % 50 == 0 and torch.isnan(x).any(): log(x)"),
    ],
)
def test_what_is_told_is_told_now_and_then_by_what_counts_the_steps(loop, counts, line, after):
    text = f"{loop}\n    for p in parameters:\n        p.f()\n    loss.backward()\n    {line}\n"
    whole = "\n".join(edited("sync-in-loop", text, len(text.splitlines())))
    assert whole.endswith(f"    {after.replace('{}', counts, 1)}")


def test_a_choice_of_one_value_is_made_on_the_device():
    text = """
    def forward(x):
        if x.max().item() > 100:
            x = x / 2
        return x
    """
    after = edited("sync-in-loop", text, 2)
    assert after == [
        "def forward(x):",
        "    x = torch.where(x.max() > 100, x / 2, x)",
        "    return x",
    ]
    assert edited("sync-in-loop", "if (x > 9).any():\n    x = x / 2", 1) == [
        "x = torch.where((x > 9).any(), x / 2, x)"
    ]


@pytest.mark.parametrize(
    ("rule_id", "text", "line"),
    [
        ("sync-in-loop", "if x.max().item() > 100:\n    x = x / 2\n    y = 1\n", 1),  # two values
        ("sync-in-loop", "while loss.item() > 1:\n    step()\n", 1),
        ("sync-in-loop", "x = y + 1\n", 1),  # no read there
        ("sync-in-loop", "print(loss.item())\n", 1),  # nothing counts the steps
        ("sync-in-loop", "def f(x):\n    if x.any():\n        raise E\n", 2),  # nor here
        ("sync-in-loop", "best = min(best, loss.item())\n", 1),  # min reads again
        ("sync-in-loop", "row = table[index.item()]\n", 1),  # so does an index
        ("sync-in-loop", "for t in x.tolist():\n    f(t)\n", 1),
        ("sync-in-loop", "ids = x.tolist()\n", 1),
        ("sync-in-loop", "x = math.sqrt(v.item())\n", 1),
        ("sync-in-loop", "d = e.item()\nwhile d > 1:\n    d = e.item()\n", 3),  # the loop reads
        ("sync-in-loop", "m = loss.item()\nprint(m)\n", 1),  # the read would only move
        ("sync-in-loop", "if a.item() > 1 and b.item() > 2:\n    x = y\n", 1),
        ("heavy-logging", "row = dumps(counts.tolist())\n", 1),  # counts may be no tensor
        ("recompiles", "x.item()\n", 1),  # no edit is known
        ("empty-cache-in-loop", "x = torch.cuda.empty_cache() or 3\n", 1),
        ("dataloader-starved", "a = DataLoader(x)\nb = DataLoader(y)\n", 1),  # which one?
        ("worker-respawn", "a = DataLoader(x, persistent_workers=True)\n", 1),  # it is there
    ],
)
def test_where_nothing_fits_there_is_no_edit(rule_id, text, line):
    assert edited(rule_id, text, line, workers=4) is None


def test_a_call_that_need_not_be_there_goes():
    text = "for b in batches:\n    step(b)\n    torch.cuda.empty_cache()\n"
    assert edited("empty-cache-in-loop", text, 3) == ["for b in batches:", "    step(b)"]


def test_loaders_get_as_many_workers_as_there_are_cores_for():
    text = """
    loader = DataLoader(
        données,
        batch_size=32,
        num_workers=0,
    )
    for batch in loader:
        step(batch)
    """
    assert edited("dataloader-starved", text, 6, workers=7)[:5] == [
        "loader = DataLoader(",
        "    données,",
        "    batch_size=32,",
        "    num_workers=7, persistent_workers=True,",
        ")",
    ]


def test_a_loader_never_gets_fewer_workers_than_it_has():
    text = "loader = DataLoader(data, num_workers=8, persistent_workers=True)\n"
    assert edited("dataloader-starved", text, 1, workers=4) is None


def test_what_torch_refuses_beside_fused_is_no_edit():
    text = "opt = AdamW(model.parameters(), 3e-4, foreach=True)"
    after = edited("cpu-unfused-optimizer", text, 1)
    assert after == ["opt = AdamW(model.parameters(), 3e-4, foreach=False, fused=True)"]
    text = "opt = AdamW(model.parameters(), differentiable=True)"
    assert edited("cpu-unfused-optimizer", text, 1) is None


def test_copies_are_not_waited_for_and_optimizers_fused():
    assert edited("pageable-h2d", "x = x.to(device)", 1) == ["x = x.to(device, non_blocking=True)"]
    assert edited("pageable-h2d", "x = x.cuda()", 1) == ["x = x.cuda(non_blocking=True)"]
    text = "opt = torch.optim.AdamW(model.parameters(), lr=1e-3)\nopt.step()\n"
    for rule in ("unfused-optimizer", "cpu-unfused-optimizer"):
        after = edited(rule, text, 2)
        assert after[0] == "opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)"
