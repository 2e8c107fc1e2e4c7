"""Kernels that are tuned in the steps; microseconds."""

from pinchpoint.trace import ApiKind
from program import Program

TURNS = 5


def event(p):
    p.call("cudaEventRecordWithFlags", ApiKind.EVENT_RECORD, 2)


def timed(p, name, us, **launch):
    event(p)
    p.kernel(name, us, **launch)
    event(p)


def launch_of(threads, rows):
    return {"block": f"[{threads},1,1]", "grid": f"[{rows},1,1]", "registers": 4096 // threads}


def search(p, rows, candidates=((64, 90), (128, 60)), *, overwrites=True, name="norm_kernel"):
    """Each candidate ``TURNS`` times between events, as tuners do."""
    for threads, us in candidates:
        for _ in range(TURNS):
            if overwrites:
                p.kernel("fill", 40, block="[512,1,1]", grid="[64,1,1]", registers=16)
            timed(p, name, us, **launch_of(threads, rows))
    p.sync("cudaDeviceSynchronize", ApiKind.SYNC_DEVICE)


def steps_of(turn, steps=6):
    p = Program()
    for step in p.steps(steps):
        with p.row("aten::mm"):
            p.kernel("gemm", 300)
        turn(p, step)
        with p.row("aten::mm"):
            p.kernel("gemm", 300)
        p.sync()
    return p.trace()


def tuned(p, step, *, rows=None, **how):
    rows = 1000 + 8 * step if rows is None else rows
    with p.frame("model.py(98): add_norm"):
        search(p, rows, **how)
        p.kernel("norm_kernel", 60, **launch_of(128, rows))


def test_a_search_in_each_step_is_told_with_its_key_and_gain(outcome, predicted):
    trace = steps_of(tuned)
    (finding,) = outcome("autotune-in-steps", trace).findings
    assert finding.summary.startswith("The fastest of 2 configurations of norm_kernel is searched")
    assert "1 × a step" in finding.summary
    assert "each search is for a grid that none before was for" in finding.summary
    assert finding.location.line == 98
    assert "out of the key" in finding.fix
    # A turn takes 10 buffers of 40 µs, and 5 times 90 and 60 µs: 1.15 ms at least.
    assert 1_000_000 < finding.cost_ns_per_step < 2_000_000
    # What stays: both products and the launch that is used.
    assert predicted(trace, "autotune-in-steps") == 660_000


def test_without_a_buffer_that_is_overwritten_as_well(outcome):
    trace = steps_of(lambda p, step: tuned(p, step, overwrites=False))
    assert outcome("autotune-in-steps", trace).answer == "found"


def test_candidates_with_names_of_their_own_as_well(outcome):
    def turn(p, step):
        for name, us in (("mm_0", 90), ("mm_1", 60)):
            search(p, 8 * step, ((128, us),), name=name)
        p.kernel("mm_1", 60, **launch_of(128, 8 * step))

    assert outcome("autotune-in-steps", steps_of(turn)).answer == "found"


def test_the_same_grid_again_says_that_nothing_is_kept(outcome):
    (finding,) = outcome(
        "autotune-in-steps", steps_of(lambda p, step: tuned(p, step, rows=1000))
    ).findings
    assert "searches are for a grid that one before was for" in finding.summary
    assert finding.fix.startswith("Keep the tuned function")


def test_in_one_step_it_is_tuned_once(outcome):
    def once(p, step):
        if step == 2:
            tuned(p, step)
        else:
            p.kernel("norm_kernel", 60, **launch_of(128, 1000))

    assert outcome("autotune-in-steps", steps_of(once)).answer == "clear"


def test_a_benchmark_of_two_kernels_uses_neither(outcome):
    assert outcome("autotune-in-steps", steps_of(lambda p, step: search(p, 8 * step))).answer == (
        "clear"
    )


def test_one_kernel_that_the_program_times_is_no_search(outcome):
    def one(p, step):
        search(p, 8 * step, ((128, 60),))
        p.kernel("norm_kernel", 60, **launch_of(128, 8 * step))

    assert outcome("autotune-in-steps", steps_of(one)).answer == "clear"


def test_layers_that_are_timed_once_each_are_no_search(outcome):
    def layers(p, step):
        for rows in (100, 200, 300, 400):
            timed(p, "norm_kernel", 60, **launch_of(128, rows))
        p.kernel("norm_kernel", 60, **launch_of(128, 100))

    assert outcome("autotune-in-steps", steps_of(layers)).answer == "clear"


def test_layers_of_one_size_that_are_timed_use_no_winner(outcome):
    """Six blocks of each size, each between events, and then other work: nothing is chosen."""

    def layers(p, step):
        for threads in (64, 128):
            for _ in range(6):
                timed(p, "norm_kernel", 60, **launch_of(threads, 100))

    assert outcome("autotune-in-steps", steps_of(layers)).answer == "clear"


def test_two_steps_do_not_tell(outcome):
    assert outcome("autotune-in-steps", steps_of(tuned, steps=2)).answer == "not checked"
