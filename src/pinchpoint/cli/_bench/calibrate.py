"""``pinchpoint bench calibrate``."""

from dataclasses import replace

from pinchpoint.cli._bench.ab import Deciding, check_pairs, measure_arms
from pinchpoint.cli._bench.options import Measuring, Showing
from pinchpoint.cli._bench.present import present
from pinchpoint.cli.output import wrote
from pinchpoint.errors import UsageError


def calibrate(
    *command: str,
    pairs: int = 10,
    measuring: Measuring | None = None,
    showing: Showing | None = None,
) -> int:
    """Compare a command with itself, to know the noise.

    How noisy this machine is, and the smallest change that it can see:

    pinchpoint bench calibrate -- python train.py

    Parameters
    ----------
    command
        The command and its arguments, after --.
    pairs
        Pairs of runs.
    """
    measuring, showing = measuring or Measuring(), showing or Showing()
    from pinchpoint.bench.ab.calibrate import calibration
    from pinchpoint.bench.folders import utc_now
    from pinchpoint.bench.measurement import measurement
    from pinchpoint.bench.measures import MEASURES
    from pinchpoint.bench.run import Arm
    from pinchpoint.report.pages import calibration as calibration_page

    if not command:
        raise UsageError("which command?", hint="pinchpoint bench calibrate -- python train.py")
    check_pairs(pairs)
    asked = {"command": list(command), "pairs": pairs}
    with measurement(
        "calibrate", asked, measuring.output, keep_diff=measuring.keep_diff
    ) as session:
        arm = Arm("A", command)
        arms = (arm, replace(arm, name="B"))
        deciding = Deciding(pairs=pairs)
        result = measure_arms(session, arms, deciding, measuring, stop_early=False)
        done = calibration(result, MEASURES | measuring.custom(), utc_now())
        wrote(session.finish(done))
    present(done, calibration_page.page(done), showing)
    return 0
