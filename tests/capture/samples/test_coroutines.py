"""Which coroutine an event loop sleeps for."""

import asyncio
import threading

import pytest

from pinchpoint.capture.samples.coroutines import with_coroutine_asleep
from pinchpoint.capture.samples.stacks import stack_of

LONG_S = 30.0  # ended by the test, which never waits for it


def seen(coroutine):
    """Functions of the coroutine that is asleep once all stand still, innermost first."""
    ident, found, ready = threading.get_ident(), [], threading.Event()

    def look():
        ready.wait(10)
        while not (mine := _asleep(ident)):
            if given_up.wait(0.01):
                return
        found.extend(mine)

    def _asleep(ident):
        own = stack_of(ident)
        both = with_coroutine_asleep(ident, own)
        return [code.co_name for code, _ in both[: len(both) - len(own)]]

    async def run():
        tasks = [asyncio.create_task(one) for one in (coroutine, asyncio.sleep(LONG_S))]
        ready.set()
        for _ in range(20):
            if found:
                break
            await asyncio.wait(tasks, timeout=0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    given_up = threading.Event()
    thread = threading.Thread(target=look)
    thread.start()
    asyncio.run(run())
    given_up.set()
    thread.join()
    return found


async def until(done):
    while not done:
        await asyncio.sleep(0.01)


async def batcher(waiting):
    while True:
        if not waiting:
            await asyncio.sleep(0.01)
            continue
        waiting.clear()


async def around(inner):
    await inner


async def sends(count):
    for _ in range(count):
        await asyncio.sleep(0.01)


async def window():
    while True:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("coroutine", "expected"),
    [
        (lambda: until([]), ["sleep", "until"]),
        (lambda: batcher([]), ["sleep", "batcher"]),
        (lambda: around(until([])), ["sleep", "until", "around"]),
        (lambda: sends(1000), ["sends"]),  # it may be a test that sends requests: no sleep on top
        (window, ["window"]),
        (lambda: asyncio.sleep(LONG_S), []),  # too far away to be waited for in a step
    ],
)
def test_the_coroutine_that_is_next(coroutine, expected):
    assert seen(coroutine()) == expected


def test_a_thread_without_a_loop_is_as_it_is():
    own = stack_of(threading.get_ident())
    assert with_coroutine_asleep(threading.get_ident(), own) is own
