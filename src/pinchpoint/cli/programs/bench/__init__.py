"""Time commands and operations, compare A with B, gate regressions."""

from pinchpoint.cli.programs.bench import ab, bisect, check, op, run, serve

SUBCOMMANDS = {
    "op": op.op,
    "run": run.run,
    "serve": serve.serve,
    "ab": ab.ab,
    "check": check.check,
    "history": check.history,
    "bisect": bisect.bisect,
    "calibrate": ab.calibrate,
}
