from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.mean.what_if import what_if_mean
from pinchpoint.diagnosis.rules.host._what_is_awaited import of_collective
from pinchpoint.run_folder.samples import UsageNote
from pinchpoint.trace import HostKind, RunFacts, RunSamples, Thread
from pinchpoint.trace.kinds import UNRECORDED_WAIT
from pinchpoint.trace.run_samples import SampledThread, Spent
from program import Program

MS = 1_000_000
GET, WAIT = "queue.py(154): get", "threading.py(323): wait"
ACQUIRE = "<built-in method acquire of _thread.lock object at 0x7f00>"


def batching(names=(GET, WAIT, ACQUIRE), wait_us=(30_000,), kernel_us=5_000):
    """A server that waits in each step before it launches."""
    p = Program()
    for i in p.steps(7):
        with p.frame("server.py(60): collect"):
            nested(p, names, wait_us[i % len(wait_us)])
        p.kernel("work", kernel_us)
        p.sync()
    return p.trace()


def nested(p, names, us):
    first, *rest = names
    if not rest:
        p.host(first, us)
        return
    with p.frame(first):
        nested(p, rest, us)


def test_names_the_function_that_waits_and_for_how_long(outcome):
    (finding,) = outcome("host-waits", batching()).findings
    assert finding.cost_ns_per_step == pytest.approx(30e6, rel=0.01)
    assert (finding.location.function, finding.location.line) == ("collect", 60)
    assert "another thread, or a timeout" in finding.summary
    assert finding.confidence == "medium"


def test_a_short_wait_is_seen(outcome):
    """1 ms of 21."""
    said = outcome("host-waits", batching(wait_us=(1_000,), kernel_us=20_000))
    assert (said.answer, said.why) == ("smaller", "smaller than 10 % of the step: 4.7 %")


def test_what_is_left_is_the_work_of_the_device(predicted):
    assert predicted(batching(), "host-waits") == pytest.approx(5e6, rel=0.1)


@pytest.mark.parametrize(("waits", "said"), [((30_000, 30_400), True), ((8_000, 52_000), False)])
def test_waits_that_are_alike_look_like_a_timeout(outcome, waits, said):
    (finding,) = outcome("host-waits", batching(wait_us=waits)).findings
    assert ("as a timeout would" in finding.summary) is said


@pytest.mark.parametrize(
    ("names", "said", "confidence"),
    [
        (("<built-in function sleep>",), "a sleep to end", "high"),
        (("selectors.py(402): select", "<built-in method poll of select.epoll object>"),
         "another process or a request", "medium"),
        (("<built-in method recv of _socket.socket object>",),
         "another process or a request", "medium"),
        (("concurrent/futures/_base.py(428): result",), "another thread", "medium"),
    ],
)  # fmt: skip
def test_says_what_it_waits_for(outcome, names, said, confidence):
    (finding,) = outcome("host-waits", batching(names)).findings
    assert said in finding.summary
    assert finding.confidence == confidence


POLL = ("selectors.py(402): select", "<built-in method poll of select.epoll object>")


def looked_at_loop(*coroutine):
    """A server whose event loop waits, by looks for this coroutine."""
    seen = Spent((*coroutine, POLL[0], "asyncio/base_events.py(9): _run_once"), "", 50, 9, 0, 0, ())
    main = SampledThread("MainThread", True, 50, 0, (), (seen,), 0, 0)
    samples = RunSamples(0.02, 9.0, 50, 0, 0, (), (), (main,))
    return replace(batching(POLL), run=RunFacts(samples=samples))


def test_an_event_loop_that_sleeps_for_a_coroutine_says_which(outcome):
    trace = looked_at_loop("asyncio/tasks.py(9): sleep", "server.py(71): ask")
    (finding,) = outcome("host-waits", trace).findings
    assert "the sleep of a coroutine to end (asyncio.sleep(), in ask (server.py:71))" in (
        finding.summary
    )
    assert (finding.location.function, finding.location.line) == ("ask", 71)
    assert "asyncio.Event" in finding.fix


def test_an_event_loop_that_waits_for_messages_waits_for_others(outcome):
    (finding,) = outcome("host-waits", looked_at_loop()).findings
    assert "another process or a request" in finding.summary


@pytest.mark.parametrize(
    "names",
    [
        ("batch.py(3): pad",),  # Python that runs
        ("torch/serialization.py(967): save", ACQUIRE),
    ],
    ids=["python", "checkpoint"],
)
def test_other_host_time_is_no_wait(outcome, names):
    assert outcome("host-waits", batching(names)).answer == "clear"


BEGUN = "<built-in method wait of pybind11_detail_function_record object at 0x7f>"


def reducing_on_the_host(share=1.0):
    """Steps that wait 30 ms for a collective, which a thread of gloo does for a share of them."""
    p = Program()
    gloo = p.builder.thread("gloo")
    for _ in p.steps(7):
        with p.frame("train.py(60): average"):
            begin = p.at
            p.host(BEGUN, 30_000)
            took = round(share * 30_000_000)
            p.builder.op("gloo:all_reduce", begin, took, thread=gloo, kind=HostKind.ANNOTATION)
        p.kernel("work", 5_000)
        p.sync()
    return p.trace()


@pytest.mark.parametrize(("share", "for_ranks"), [(0.9, True), (0.1, False)])
def test_a_collective_that_another_thread_does_on_the_host(outcome, share, for_ranks):
    (finding,) = outcome("host-waits", reducing_on_the_host(share)).findings
    assert ("for other ranks, through the host" in finding.summary) is for_ranks
    assert ("pinchpoint ranks" in finding.fix) is for_ranks
    assert (finding.location.function, finding.location.line) == ("average", 60)
    assert finding.cost_ns_per_step == pytest.approx(30e6, rel=0.01)


def test_a_collective_that_the_thread_of_the_steps_does_itself(outcome):
    p = Program()
    for _ in p.steps(7):
        with p.frame("train.py(60): average"):
            p.host("gloo:barrier", 30_000, kind=HostKind.ANNOTATION)
        p.kernel("work", 5_000)
        p.sync()
    (finding,) = outcome("host-waits", p.trace()).findings
    assert "for other ranks, through the host" in finding.summary


@pytest.mark.parametrize(
    ("call", "around", "on_cpus", "word", "left"),
    [
        ("gloo:recv", "", True, "micro-batches", 0.0),
        ("gloo:all_gather", "FSDP::all_gather (blocks.2)", True, "forward_prefetch", 0.5),
        ("gloo:all_reduce", "", True, "Begin it earlier", 0.0),
        ("gloo:all_reduce", "", False, "the device's own backend", 0.0),
    ],
)
def test_what_a_collective_of_the_host_is_for(call, around, on_cpus, word, left):
    what = of_collective(call, around, on_cpus=on_cpus)
    assert word in what.fix
    assert what.left_ratio == left


def test_a_loader_that_no_range_names(outcome):
    names = ("torch/utils/data/dataloader.py(700): __next__", GET, ACQUIRE)
    (finding,) = outcome("host-waits", batching(names)).findings
    assert (
        "30.0 ms of each recorded step in collect (server.py:60) for its next batch"
        in finding.summary
    )


def test_waits_for_the_device_but_for_the_end_of_the_step(outcome):
    p = Program()
    for _ in p.steps(7):
        with p.frame("model.py(3): choose"):
            p.kernel("work", 5_000)
            p.sync()
        p.busy(5_000)
        p.kernel("work", 5_000)
        p.sync()
    (finding,) = outcome("host-waits", p.trace()).findings
    assert "5.00 ms of each recorded step in choose (model.py:3) for the device" in finding.summary


def test_a_wait_that_the_device_hides_costs_nothing(ranked):
    p = Program()
    for _ in p.steps(7):
        p.kernel("work", 40_000)
        with p.frame("server.py(60): collect"):
            p.host(ACQUIRE, 5_000)
        p.sync()
    assert ranked(p.trace()) == []


def test_without_stacks_no_wait_shows(outcome):
    p = Program()
    for _ in range(7):
        p.kernel("work", 5_000)
        p.sync()
        p.busy(30_000)
    assert outcome("host-waits", p.trace()).answer == "not checked"


def test_the_line_is_that_of_most_looks(outcome):
    stack = ("threading.py(359): wait", "queue.py(180): get", "server.py(71): collect")
    other = ("threading.py(355): wait", "queue.py(171): get", "server.py(62): collect")
    frames = (*stack, *other)
    looked = RunSamples(
        every_s=0.1,
        seconds=5.0,
        looks=50,
        late_median_ns=0,
        cost_ns=0,
        frames=frames,
        stacks=((0, 1, 2), (3, 4, 5)),
        threads=(SampledThread("server", False, 50, 0, ((0, 40), (1, 10))),),
    )
    trace = replace(batching(), run=RunFacts(samples=looked))
    (finding,) = outcome("host-waits", trace).findings
    assert finding.location.line == 71


RUN, POOL = "concurrent/futures/thread.py(58): run", "multiprocessing/pool.py(540): _handle_tasks"


def looked_at(main, *others, late_ns=0, cpu_ns=900_000_000, doing=""):
    """100 looks in 10 s at the main thread at one stack, and at others with stacks and looks."""
    stacks, threads = [main], [SampledThread("MainThread", True, 100, 0, ((0, 100),))]
    for number, seen in enumerate(others):
        rows, spent = [], []
        for stack, looks in seen:
            rows.append((len(stacks), looks))
            stacks.append(stack)
            spent.append(Spent(stack, doing, looks, looks * 100_000, 0, 0))
        name = f"other {number}"
        threads.append(SampledThread(name, False, 100, cpu_ns, tuple(rows), tuple(spent)))
    frames = tuple(dict.fromkeys(f for stack in stacks for f in stack))
    return RunFacts(
        cores_allowed=16,
        samples=RunSamples(
            every_s=0.1,
            seconds=10.0,
            looks=100,
            late_median_ns=late_ns,
            cost_ns=0,
            frames=frames,
            stacks=tuple(tuple(frames.index(f) for f in stack) for stack in stacks),
            threads=tuple(threads),
        ),
    )


COLLECT = (WAIT, GET, "server.py(60): collect")
TURNS = [[(("read.py(48): patch", RUN), 80), (("read.py(50): patch", RUN), 20)]] * 5


def test_threads_that_take_turns_at_a_lock_are_followed_to_its_line(outcome, predicted):
    run = looked_at(COLLECT, *TURNS)  # 0.9 s on a core each of 10: less than one core together
    trace = replace(batching(wait_us=(20_000, 40_000)), run=run)
    (finding,) = outcome("host-waits", trace).findings
    assert "turns at a lock: most stand in patch (read.py:48)" in finding.summary
    assert finding.location.line == 50
    # Five at once leave a fifth of 30 ms beside the 5 ms of the device; a third of that shows.
    assert predicted(trace, "host-waits") == pytest.approx(7e6, rel=0.1)
    assert what_if_mean(trace, finding.changes).step_ns == pytest.approx(11e6, rel=0.1)


@pytest.mark.parametrize(
    "seen",
    [
        {"late_ns": 5_000_000},
        {"cpu_ns": 9_000_000_000},
        {"cpu_ns": 1_000_000},
        {"doing": "self.body.read()"},
    ],
    ids=["the interpreter's lock", "all on cores", "none on a core", "they read a file"],
)
def test_other_threads_take_no_turns(outcome, seen):
    run = looked_at(COLLECT, *TURNS, **seen)
    (finding,) = outcome("host-waits", replace(batching(), run=run)).findings
    assert "another thread, or a timeout" in finding.summary


SEMAPHORE = (WAIT, "threading.py(479): acquire", "pool.py(70): lease", "pool.py(91): fetch", RUN)
ANSWERED = (("pool.py(93): fetch", RUN), "sock.recv()")


def fetching(*others):
    """Looks at threads that were nearly never on a core: stack, what it was at, looks."""
    run = looked_at(COLLECT, *([(stack, looks) for stack, _, looks in one] for one in others))
    assert run.samples is not None
    threads = [run.samples.threads[0]]
    for thread, seen in zip(run.samples.threads[1:], others, strict=True):
        spent = tuple(Spent(stack, doing, n, n * 100_000, 0, 0) for stack, doing, n in seen)
        threads.append(replace(thread, spent=spent, cpu_ns=1_000_000))
    samples = replace(run.samples, threads=tuple(threads))
    return replace(batching(wait_us=(20_000, 40_000)), run=replace(run, samples=samples))


def test_on_a_cpu_the_whole_run_may_show_more_of_a_wait_than_recorded_steps(outcome):
    """Others keep their pace, while recording holds up the thread that waits for them."""
    built = TraceBuilder(devices=[])
    for step in range(6):
        at = step * 20 * MS
        built.step(step, at, 20 * MS)
        built.python("server.py(60): collect", at, 4 * MS)
        built.python(GET, at + 10, 4 * MS - 20)
        built.python(WAIT, at + 20, 4 * MS - 40)
        built.op("aten::mm", at + 5 * MS, 14 * MS)
    (recorded,) = outcome("host-waits", built.trace()).findings
    assert recorded.saving_ns_per_step is None
    run = looked_at(COLLECT)  # all of the 100 looks at its thread found it there
    (found,) = outcome("host-waits", replace(built.trace(), run=run)).findings
    assert found.saving_ns_per_step[1] > 19 * MS
    assert found.likely_saving_ns > 15 * MS


def test_threads_of_which_one_at_a_time_is_answered(outcome):
    each = [(SEMAPHORE, "waiter.acquire()", 80), (*ANSWERED, 20)]
    (finding,) = outcome("host-waits", fetching(*[each] * 5)).findings
    assert (
        "5 threads that take turns at a lock: most stand in lease (pool.py:70), one at a time is in"
        " sock.recv() in fetch (pool.py:93)"
    ) in finding.summary
    assert finding.location.line == 70
    assert finding.fix.startswith("Let as many of them get on at once as there are")


@pytest.mark.parametrize(
    "each",
    [
        pytest.param([(SEMAPHORE, "waiter.acquire()", 20), (*ANSWERED, 80)], id="four at a time"),
        pytest.param([(SEMAPHORE, "waiter.acquire()", 20), (*ANSWERED, 5)], id="a moment"),
        pytest.param([((WAIT, GET, "pool.py(8): take"), "waiter.acquire()", 80), (*ANSWERED, 20)],
                     id="a queue that is empty"),
        pytest.param([(SEMAPHORE, "waiter.acquire()", 100)], id="none gets on"),
    ],
)  # fmt: skip
def test_threads_of_which_several_or_none_is_answered(outcome, each):
    (finding,) = outcome("host-waits", fetching(*[each] * 5)).findings
    assert "another thread, or a timeout" in finding.summary


@pytest.mark.parametrize(
    ("count", "over_s", "said"),
    [
        pytest.param(20, 0.4, "worker processes, 2 of which are started in each step", id="anew"),
        pytest.param(8, 0.05, "another thread, or a timeout", id="one pool, at once"),
        pytest.param(4, 2.0, "another thread, or a timeout", id="now and then"),
    ],
)
def test_pools_that_are_made_in_each_step(outcome, count, over_s, said):
    """Steps of 40 ms."""
    run = looked_at(COLLECT)
    usage = UsageNote(processes_started=count, starts_ns=round(over_s * 1e9))
    run = replace(run, samples=replace(run.samples, usage=usage))
    (finding,) = outcome("host-waits", replace(batching(wait_us=(35_000,)), run=run)).findings
    assert said in finding.summary


@pytest.mark.parametrize(("others_ns", "told"), [(40 * MS, False), (5 * MS, True)])
def test_threads_that_a_call_starts_and_that_compute_are_its_work(outcome, others_ns, told):
    """The thread of the steps is on a core for a tenth of the time."""
    p = Program()
    for _ in p.steps(7):
        with p.frame("near.py(60): nearest"):
            with p.frame("threading.py(973): start"):
                p.host("Event.set", 20)
            nested(p, ("threading.py(1115): join", ACQUIRE), 30_000)
        p.kernel("work", 5_000)
        p.sync()
    run = looked_at(("near.py(60): nearest",))
    (main,) = run.samples.threads
    samples = replace(run.samples, threads=(replace(main, cpu_ns=1_000 * MS),))
    own_ns = 3_500_000  # of a step of 35 ms
    trace = replace(
        p.trace(), run=replace(run, samples=samples, user_ns_per_step=own_ns + others_ns)
    )
    assert bool(outcome("host-waits", trace).findings) == told


@pytest.mark.parametrize(
    ("on_core", "said"),
    [
        (
            (0.6, 0.5, 0.1),
            "likely in read_chunk (feed.py:45), where the others compute on 1.1 cores",
        ),
        ((0.1, 0.1, 0.0), "another thread, or a timeout"),  # they hardly compute
        ((0.3, 0.3, 0.7), "likely in write (log.py:3), where the others compute on 0.7 cores"),
    ],
)
def test_where_the_others_compute_is_told(outcome, on_core, said):
    """Two threads that unpack, and one that does something else; shares of ten seconds each."""
    run = looked_at(COLLECT)
    places = ("feed.py(45): read_chunk", "feed.py(45): read_chunk", "log.py(3): write")
    others = tuple(
        SampledThread(
            f"other {at}", False, 100, None, (),
            (Spent((place,), "zlib.decompress()", 50, 5_000_000, round(cores * 1e7), 0),),
        )
        for at, (place, cores) in enumerate(zip(places, on_core, strict=True))
    )  # fmt: skip
    samples = replace(run.samples, threads=(*run.samples.threads, *others))
    trace = replace(batching(wait_us=(20_000, 40_000)), run=replace(run, samples=samples))
    (finding,) = outcome("host-waits", trace).findings
    assert said in finding.summary
    assert finding.location.function == "collect"


@pytest.mark.parametrize(
    ("call", "answer"), [("time.sleep()", "not checked"), ("self.inbox.put()", "found")]
)
def test_who_waits_for_what_sleeps_by_itself_may_have_nothing_to_do(outcome, call, answer):
    run = looked_at(COLLECT)
    client = (Spent(("serve.py(53): client",), call, 95, 9_500_000, 10_000, 0),)
    other = SampledThread("client", False, 95, None, (), client)
    samples = replace(run.samples, threads=(*run.samples.threads, other))
    trace = replace(batching(wait_us=(20_000, 40_000)), run=replace(run, samples=samples))
    said = outcome("host-waits", trace)
    assert said.answer == answer
    assert ("sleep meanwhile, in client (serve.py:53)" in said.why) == (answer == "not checked")


def test_without_stacks_looks_say_who_waits_and_for_a_pool_that_is_sent_much(outcome):
    p = Program()
    for _ in range(7):
        p.host("aten::mm", 100, kind=HostKind.OPERATOR)
        p.kernel("work", 900)
        p.sync()
        p.busy(30_000)
    compute = (WAIT, "multiprocessing/pool.py(765): wait", "features.py(53): compute")
    packs = [(("multiprocessing/connection.py(206): send", POOL), 95)]
    trace = replace(p.trace(), run=looked_at(compute, packs))
    (finding,) = outcome("host-waits", trace).findings
    assert (finding.location.function, finding.location.line) == ("compute", 53)
    assert "packs and sends their tasks (95 % of the looks at it)" in finding.summary
    least_ns, most_ns = finding.saving_ns_per_step
    assert least_ns < 0.1 * most_ns  # what the workers take by themselves is not known


def at_a_lock(asleep=80, held=0, doing="", works=("stats.py(31): summary", "stats.py(46): run")):
    """100 looks in 10 s at the main thread, which sleeps at a line of its own, and at one more."""
    enters, loop = ("stats.py(23): observe", "serve.py(86): main"), ("serve.py(80): main",)
    waits = (("S futex_do_wait", asleep * 100_000),)
    spent = (
        Spent(enters, doing, asleep, asleep * 100_000, 0, held * 100_000, waits),
        Spent(loop, "model()", 100 - asleep, (100 - asleep) * 100_000, 900_000, 0),
    )
    other = Spent(works, "values.partition()", 90, 9_000_000, 3_000_000, 0)
    threads = (
        SampledThread("MainThread", True, 100, 900_000_000, (), spent),
        SampledThread("exporter", False, 100, 3_000_000_000, (), (other,)),
    )
    looked = RunSamples(
        every_s=0.1, seconds=10.0, looks=100, late_median_ns=0, cost_ns=0, frames=(), stacks=(),
        threads=threads, typical_ns=10**7, count=1000, total_ns=10**10,
    )  # fmt: skip
    return replace(batching(), run=RunFacts(samples=looked))


def test_a_lock_that_another_thread_keeps_is_told_with_what_that_one_does(outcome):
    (finding,) = outcome("host-waits", at_a_lock()).findings[-1:]
    assert "observe (stats.py:23) for a lock of the program, for 80 %" in finding.summary
    assert (finding.location.function, finding.location.line) == ("summary", 31)
    assert "Hold the lock only" in finding.fix
    assert outcome("gil-contention", at_a_lock()).findings == ()


@pytest.mark.parametrize(
    "seen",
    [
        {"held": 60},
        {"asleep": 5},
        {"doing": "self.model()"},
        {"works": ("threading.py(355): wait", "stats.py(46): run")},
    ],
    ids=["the interpreter's lock", "seldom", "it calls something", "nobody works"],
)
def test_what_is_no_lock_of_the_program(outcome, seen):
    told = outcome("host-waits", at_a_lock(**seen)).findings
    assert not any("a lock of the program" in finding.summary for finding in told)


@pytest.mark.parametrize(("thread", "found"), [("77", True), ("80", False)])
def test_a_main_thread_that_waits_for_its_pool_tells_nothing_of_the_pools_steps(
    outcome, thread, found
):
    b = TraceBuilder()
    b.devices, b.threads = [], [Thread("77", thread), Thread("77", "81")]
    for step in range(6):
        b.step(step, step * 10_000_000, 10_000_000)
        b.op("aten::convolution", step * 10_000_000 + 1_000, 4_000_000)
    looked = looked_at(("threading.py(359): wait", "serve.py(32): <module>"))
    trace = replace(b.trace(), run=looked)
    assert bool(outcome("host-waits", trace).findings) == found


@pytest.mark.parametrize(
    ("waits", "computes_ms", "told"),
    [
        (ACQUIRE, 7, False),
        (ACQUIRE, 3, True),
        ("jax/_src/array.py(629): _value", 3, False),
        (UNRECORDED_WAIT, 3, False),
    ],
)
def test_waiting_for_what_xla_computes_on_the_cpu_is_no_waste(outcome, waits, computes_ms, told):
    ms = 1_000_000
    built = TraceBuilder(devices=())
    for number in range(5):
        at = number * 10 * ms
        built.step(number, at, 10 * ms)
        built.python("train.py(9): train", at, 10 * ms)
        built.op(waits, at + ms, 8 * ms, kind=HostKind.PYTHON)
        row = {"start_ns": at + ms, "duration_ns": computes_ms * ms}
        built.add("compiled_ops", op="dot.1", **row)
    assert bool(outcome("host-waits", built.trace()).findings) is told
