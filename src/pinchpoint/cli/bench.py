"""Time commands and operations, compare A with B, gate regressions."""

from pinchpoint.cli._bench.ab import ab, calibrate
from pinchpoint.cli._bench.check import check, history
from pinchpoint.cli._bench.op import op
from pinchpoint.cli._bench.run import run
from pinchpoint.cli._bench.serve import serve

SUBCOMMANDS = {
    "op": op,
    "run": run,
    "serve": serve,
    "ab": ab,
    "check": check,
    "history": history,
    "calibrate": calibrate,
}
