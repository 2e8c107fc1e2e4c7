"""Commands of findings in the words of the program that was recorded."""

import pytest

from pinchpoint.diagnosis.commands import Program, in_its_words, program_of, spelt
from pinchpoint.diagnosis.finding import Found
from pinchpoint.trace import Source, Trace
from pinchpoint.trace.trace import RunFacts

KNOWN = Program(("python", "fit.py", "--name", "a b"), "runs/a", 6)


@pytest.mark.parametrize(
    ("text", "unknown", "known"),
    [
        (
            "pinchpoint try --knob compile -- python train.py",
            "pinchpoint try --knob compile -- COMMAND",
            "pinchpoint try --knob compile -- python fit.py --name 'a b'",
        ),
        (
            'pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
            'pinchpoint bench ab -- "COMMAND" "COMMAND, CHANGED"',
            "pinchpoint run -o runs/a-after python fit.py --name 'a b'"
            " && pinchpoint compare runs/a runs/a-after",
        ),
        (
            "pinchpoint try --knob num_workers=8 -- python train.py",
            "pinchpoint try --knob num_workers=$(nproc) -- COMMAND",
            "pinchpoint try --knob num_workers=6 -- python fit.py --name 'a b'",
        ),
    ],
)
def test_no_command_names_a_program_that_is_not_there(text, unknown, known):
    assert spelt(text, Program()) == unknown
    assert spelt(text, KNOWN) == known


def test_code_has_the_workers_that_the_cores_have_room_for():
    found = Found(summary="", evidence=(), hint="DataLoader(..., num_workers=8)")
    assert in_its_words(found, KNOWN).hint == "DataLoader(..., num_workers=6)"
    assert in_its_words(found, Program()).hint == "DataLoader(..., num_workers=os.cpu_count())"


@pytest.mark.parametrize(
    ("cores", "processes", "workers"),
    [(8.0, 1, 7), (8.0, 2, 3), (1.0, 4, 1), (128.0, 1, 16), (None, 1, None), (2.5, None, 1)],
)
def test_workers_are_the_cores_of_a_process_beside_its_own(cores, processes, workers):
    run = RunFacts(command=("train.py", "-x"), cores_allowed=cores, processes=processes)
    program = program_of(Trace(Source("runs/a", "run folder"), (), run=run))
    assert program.workers == workers
    assert program.command == ("python", "train.py", "-x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'pinchpoint bench ab -- "python train.py" "python train_changed.py"',
            "%%pinchpoint runs/c-after on top of the changed cell, and "
            "!pinchpoint compare runs/c runs/c-after",
        ),
        ("pinchpoint run --stacks train.py", "pinchpoint run --stacks train.py"),
        ("pinchpoint run --stacks python train.py", "pinchpoint run --stacks cell.py"),
    ],
)
def test_a_cell_of_a_notebook_has_the_magic_or_is_a_script(text, said):
    assert spelt(text, Program(("a", "notebook", "cell"), "runs/c")) == said
