"""Gradients that are stored and dropped unread, told by what flows where."""

import sys

import pytest

from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def told():
    """The notes about gradients of some steps."""

    def look(step):
        work = RepeatedWork()
        work.begin()
        for number in range(STEPS):
            step(number)
            notes = work.step_ends()
        assert not work.why_not
        assert not sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
        return [note for note in notes if note["kind"] == "gradients"]

    return look


def layers(*, to=8):
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, to))


def counted(note):
    names = [one["name"].removeprefix("aten::") for one in note["operations"]]
    times = [sum(b - a + 1 for a, b in one["which"]) for one in note["operations"]]
    return {name: sum(t for n, t in zip(names, times, strict=True) if n == name) for name in names}


def critic_step(critic, maker, optimizer, *, cut, to_none):
    optimizer.zero_grad(set_to_none=to_none)
    made = maker(torch.randn(4, 8))
    made = made.detach() if cut else made
    (critic(torch.randn(4, 8)).mean() - critic(made).mean()).backward()
    optimizer.step()


def maker_step(critic, maker, optimizer, *, to_none):
    optimizer.zero_grad(set_to_none=to_none)
    (-critic.requires_grad_(False)(maker(torch.randn(4, 8))).mean()).backward()
    critic.requires_grad_(True)
    optimizer.step()


def adversarial(*, cut, to_none):
    critic, maker = layers(to=1), layers()
    optimizers = [torch.optim.Adam(one.parameters()) for one in (critic, maker)]

    def step(number):
        critic_step(critic, maker, optimizers[0], cut=cut, to_none=to_none)
        maker_step(critic, maker, optimizers[1], to_none=to_none)

    return step


@pytest.mark.parametrize("to_none", [True, False])
def test_the_way_back_through_what_another_optimizer_trains(told, to_none):
    (note,) = told(adversarial(cut=False, to_none=to_none))
    # Both linear layers' products for input and weight but the first one's, and the critic's last.
    assert counted(note) == {"mm": 4, "sum": 2, "threshold_backward": 1, "add_": 4}
    assert note["gradients"] == 4
    assert note["places"][0][2] == "critic_step"
    assert not told(adversarial(cut=True, to_none=to_none))


def test_weights_on_the_way_to_others_are_half_of_a_convolution(told):
    critic, maker = torch.nn.Conv2d(1, 4, 3), torch.nn.Conv2d(1, 1, 3)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (critic, maker)]

    def step(number):
        made = maker(torch.randn(2, 1, 9, 9))
        for optimizer, given in zip(optimizers, (made.detach(), made), strict=True):
            optimizer.zero_grad()
            critic(given).square().mean().backward()
            optimizer.step()

    whole, half = told(step)
    assert counted(whole) == {"add_": 2}
    assert counted(half) == {"convolution_backward": 1}
    assert (whole["left_ratio"], half["left_ratio"], half["gradients"]) == (0.0, 0.5, 2)


def test_what_no_optimizer_has_and_the_model_drops(told):
    body, head = layers(), torch.nn.Linear(8, 8)
    model = torch.nn.Sequential(body, head)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

    def step(number):
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        model.zero_grad()

    (note,) = told(step)
    assert note["gradients"] == 4
    body.requires_grad_(False)
    assert not told(step)


# ------------------------------------------------------------------------------------------------
# What somebody reads, or may read.


def _trained(after, *, passes=1, every=1, optimizer=None):
    """A step of one layer that an optimizer of torch's trains and, ``after`` its gradients are
    there, of another."""
    layer, other = layers(), torch.nn.Linear(8, 8)
    kinds = [optimizer or torch.optim.SGD, torch.optim.SGD]
    both = [kind(one.parameters(), lr=0.1) for kind, one in zip(kinds, (layer, other), strict=True)]

    def step(number):
        for _ in range(passes):
            other(layer(torch.randn(4, 8))).square().mean().backward()
        after(layer)
        if number % every == every - 1:
            for one in both:
                one.step()
                one.zero_grad()

    return step


def norm(layer):
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)


def test_passes_that_add_up_and_steps_that_wait_are_read(told):
    assert not told(_trained(lambda layer: None, passes=3))
    assert not told(_trained(lambda layer: None, every=3))
    assert not told(_trained(lambda layer: None, every=100))
    assert not told(_trained(norm))


def test_an_optimizer_whose_kernels_are_not_seen_reads_what_it_has(told):
    class Foreign(torch.optim.Optimizer):
        def __init__(self, parameters, lr):
            super().__init__(parameters, {"lr": lr})

        def step(self):
            pass

    assert not told(_trained(lambda layer: None, optimizer=Foreign))


def test_what_is_logged_is_read(told):
    layer, other = layers(), torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)

    def step(number):
        other(layer(torch.randn(4, 8))).square().mean().backward()
        for one in layer.parameters():
            one.grad.norm().item()
        optimizer.step()
        optimizer.zero_grad()
        layer.zero_grad()

    assert not told(step)


def test_a_measured_backward_pass_reads_nothing_and_is_left_alone(told):
    layer = layers()

    def step(number):
        layer(torch.randn(4, 8)).square().mean().backward()
        layer.zero_grad()

    assert not told(step)


def test_an_optimizer_in_the_backward_pass_reads(told):
    layer = layers()
    for one in layer.parameters():
        optimizer = torch.optim.SGD([one], lr=0.1)

        def ends(parameter, optimizer=optimizer):
            optimizer.step()
            optimizer.zero_grad()

        one.register_post_accumulate_grad_hook(ends)

    def step(number):
        layer(torch.randn(4, 8)).square().mean().backward()

    assert not told(step)
