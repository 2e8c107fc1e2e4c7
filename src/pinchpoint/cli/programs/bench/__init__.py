"""Time commands and operations, compare A with B, gate regressions."""

from pinchpoint.cli.programs.bench.ab import ab, calibrate
from pinchpoint.cli.programs.bench.check import check, history
from pinchpoint.cli.programs.bench.op import op
from pinchpoint.cli.programs.bench.run import run
from pinchpoint.cli.programs.bench.serve import serve

SUBCOMMANDS = {
    "op": op,
    "run": run,
    "serve": serve,
    "ab": ab,
    "check": check,
    "history": history,
    "calibrate": calibrate,
}
