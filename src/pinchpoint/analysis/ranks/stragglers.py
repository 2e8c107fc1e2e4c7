"""Which ranks hold up the others, since when, and what it costs the job.

A collective makes the ranks that wait look as slow as the one they wait for. So ranks are compared
by their own time (see ``facts``): what each needs when it waits for nobody. What the slowest needs
beyond its peers is what the job loses.

Recording lengthens the time of hosts, by more than the step itself with stacks, and differently on
each rank. Device work it leaves alone: what a rank's device does beyond all that its peers need
without recording is lateness, whatever the recorded times of the hosts say.
"""

import numpy as np

from pinchpoint.analysis.ranks.communication import Communication
from pinchpoint.analysis.ranks.inputs import uneven_input
from pinchpoint.analysis.ranks.own_time import RECORDED_PARTS, JobFacts
from pinchpoint.analysis.statistics import mean as mean_of_all
from pinchpoint.analysis.statistics import mean_of_steps, median_of_ranks
from pinchpoint.bench.statistics.distributions import t_quantile
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints, Mask

SMALL_GROUP = 16  # up to here a rank is compared with the others only, without itself
# Of the estimated recording cost; lateness that it can explain is not held against a rank. A single
# late step may be recording alone.
RECORDING_DOUBT = 0.5
DOUBT_OF_ONE_STEP = 2.0  # times the usual doubt
LATE_RATIO = 0.5  # of a straggler's usual excess: in such a step it was late
# That no rank without a cause is blamed, of all ranks together: ranks that share cores take turns
# by chance, and of many ranks in few steps one is always the latest.
SURE_CONFIDENCE = 0.99
TOLD_RATIO = 0.5  # of lateness: what two measures of it may differ by
OFTEN_RATIO = 0.5  # of the steps; a rank that is late in fewer is not one that always is
MOST_NAMED = 16  # more ranks than a reader looks at one by one
MOST_INCIDENTS = 64  # the longest ones: the document stays bounded in jobs of any length
LEAST_EXCESS_RATIO = 0.03  # of the step: smaller differences between ranks are no subject
SPREAD_DEVIATIONS = 4.0  # robust deviations of all ranks; below it a rank is one of many
FEWEST_CELLS = 8  # ranks times steps; the median of fewer deviations is that of a few steps
MAD_TO_SIGMA = 1.4826  # of a normal distribution


@dataclass(frozen=True, eq=False)
class Excess:
    """What each rank needs beyond its peers; shape (ranks, steps), nan where not known."""

    ns: Floats
    waited_ns: Floats  # how long its peers waited in collectives of that step, in the median
    doubt_ns: Floats  # (ranks,): how much of it recording or other programs may have caused
    peer_of: Ints  # (ranks,): number of the group that a rank is compared with
    more_work_ns: Floats  # (ranks,): device work beyond what its peers need in all, unrecorded
    uneven_ns: Floats  # device work of the step beyond its peers', where their inputs differ

    @property
    def sure_ns(self) -> Floats:
        """Excess that recording does not explain and that others waited for; else 0."""
        return self.beyond_doubt_ns(1.0)

    def beyond_doubt_ns(self, times: float) -> Floats:
        """The same with the doubt multiplied."""
        sure: Floats = np.maximum(self.ns - times * self.doubt_ns[:, None], 0)
        sure = np.where(np.isnan(sure), sure, np.maximum(sure, self.more_work_ns[:, None]))
        return np.minimum(sure, np.where(np.isnan(self.waited_ns), np.inf, self.waited_ns))

    @property
    def more_in_step_ns(self) -> Floats:
        """What the device of each rank works more than its peers', as far as these waited; else 0.

        Neither recording nor chance makes inputs larger: ranks that take turns at having more to do
        make each step as long as the longest share.
        """
        more = np.minimum(self.uneven_ns, np.where(np.isnan(self.waited_ns), 0, self.waited_ns))
        sure: Floats = np.maximum(np.nan_to_num(more), 0.0)
        return sure

    @property
    def mean_ns(self) -> Floats:
        """Mean sure excess of each rank; 0 where nothing is known."""
        return np.nan_to_num(mean_of_steps(self.sure_ns))


@dataclass(frozen=True)
class Straggler:
    """A rank (its position) that is late again and again."""

    rank: int
    excess_ns: int  # mean over the steps in which it was late
    late: tuple[int, ...]  # positions of those steps
    since: int  # position of the first step from which it stayed late


@dataclass(frozen=True)
class Incident:
    """One step in which one rank was late."""

    rank: int
    step: int
    excess_ns: int


@dataclass(frozen=True)
class Lateness:
    """Who holds up the job. ``cost_ns`` is what a step would be shorter if nobody did."""

    cost_ns: int
    stragglers: tuple[Straggler, ...]
    incidents: tuple[Incident, ...]  # where it is not always the same ranks; worst first


def excess(facts: JobFacts, between: Communication) -> Excess:
    """Own time of each rank and step beyond the median of its peers."""
    peer_of = between.peer_of
    out, waited, uneven = np.full((3, *facts.own_ns.shape), np.nan)
    doubt = np.zeros(len(facts.ranks))
    recorded = np.array([p.id in RECORDED_PARTS for p in facts.parts], np.bool_)
    host_work = facts.parts_ns[:, recorded].sum(axis=1)
    recording = np.nan_to_num(mean_of_steps(facts.recording_ns))
    contended = np.array([rank.contended for rank in facts.ranks], np.bool_)
    step_ns = mean_of_all(median_of_ranks(facts.window_ns))
    works = facts.work_ns
    needs = np.nan_to_num(mean_of_steps(facts.unrecorded_ns))
    more_work = np.zeros(len(facts.ranks))
    for group in np.unique(peer_of[peer_of >= 0]).tolist():
        members = np.flatnonzero((peer_of == group) & facts.usable)
        if len(members) < 2:
            continue
        out[members] = facts.own_ns[members] - _others(facts.own_ns[members])
        waited[members] = _others(between.late_ns[members])
        if uneven_input([facts.inputs.get(m, ()) for m in members.tolist()]) is not None:
            uneven[members] = facts.worked_ns[members] - _others(facts.worked_ns[members])
        more_host_work = host_work[members] - _others(host_work[members, None])[:, 0]
        doubted = RECORDING_DOUBT * _others(recording[members, None])[:, 0]
        doubt[members] = np.clip(more_host_work, 0, doubted)
        # Whom others leave no core is late by their work, and nobody knows by how much.
        late_by_cores = contended[members] | _late_by_cores(facts, members, out[members], step_ns)
        doubt[members] = np.where(late_by_cores, np.inf, doubt[members])
        beyond = works[members] - _others(needs[members, None])[:, 0]
        more_work[members] = np.maximum(beyond, 0)
    return Excess(out, waited, doubt, peer_of, more_work, uneven)


def _late_by_cores(facts: JobFacts, members: Ints, excess_ns: Floats, step_ns: float) -> Mask:
    """Ranks that waited for cores, and did not do more than their peers over the whole run.

    Ranks that take each other's cores are late in turns, and a turn lasts for many steps: of two
    that did the same with two threads each on 2 CPUs, one was late by 14 to 28 ms in each of five
    steps of 60 ms. What such a rank did on its cores, and slept, has to tell at least half of it.
    """
    ranks = [facts.ranks[m] for m in members.tolist()]
    waited = np.array([rank.no_core_ratio or 0.0 for rank in ranks], float)
    own = np.array([np.nan if rank.own_ratio is None else rank.own_ratio for rank in ranks], float)
    more_ns = step_ns * (own - _others(own[:, None])[:, 0])
    told = more_ns >= TOLD_RATIO * np.nan_to_num(mean_of_steps(excess_ns))
    return (waited >= LEAST_EXCESS_RATIO) & ~(told | np.isnan(more_ns))


def _others(values: Floats) -> Floats:
    """For each row the median of the other rows; of many rows, of all."""
    n = len(values)
    if n > SMALL_GROUP:
        return np.broadcast_to(median_of_ranks(values), values.shape)
    return np.array([median_of_ranks(np.delete(values, row, axis=0)) for row in range(n)])


def lateness(facts: JobFacts, over: Excess) -> Lateness:
    """The stragglers; without such, the steps in which some rank was late."""
    sure = np.nan_to_num(over.sure_ns)
    steps = sure.shape[1]
    if not steps or not len(sure):
        return Lateness(0, (), ())
    worst = sure.argmax(axis=0)
    by_step = sure.max(axis=0)
    cost = float(by_step.mean())
    mean = over.mean_ns
    step_ns = mean_of_all(median_of_ranks(facts.window_ns))
    # Device work beyond that of the peers makes each step late; a little of it is chance as well.
    more_work = np.where(over.more_work_ns >= LEAST_EXCESS_RATIO * step_ns, over.more_work_ns, 0.0)
    at_least = np.where(more_work > 0, more_work, -np.inf)[:, None]
    often = _often(sure, mean, np.maximum(over.ns, at_least))
    enough = max(LEAST_EXCESS_RATIO * step_ns, _usual(mean, over.peer_of))
    top = float(mean[often].max()) if often.any() else 0.0
    named = np.flatnonzero(often & (mean >= max(enough, LATE_RATIO * top)))
    named = named[np.argsort(-mean[named], kind="stable")]
    # Among several equally slow ranks the slowest changes; each of them explains its steps.
    explained = float(by_step[np.isin(worst, named)].sum() / max(by_step.sum(), 1))
    if explained < OFTEN_RATIO:
        sure = np.nan_to_num(over.beyond_doubt_ns(DOUBT_OF_ONE_STEP))
        beyond = np.maximum(np.where(sure > _by_chance(over.ns), sure, 0.0), over.more_in_step_ns)
        cost = float(beyond.max(axis=0).mean())
        return Lateness(round(cost), (), _incidents(np.maximum(sure, over.more_in_step_ns)))
    found = tuple(_straggler(int(r), sure[r]) for r in named[:MOST_NAMED].tolist())
    # Without them somebody else is the latest of each step, by chance.
    others = np.delete(sure, named, axis=0)
    left = float(others.max(axis=0).mean()) if len(others) else 0.0
    return Lateness(round(max(cost - left, 0.0)), found, _incidents(sure))


def _by_chance(signed: Floats) -> float:
    """Up to what ranks are late of each other in most steps: the noise between them; 0 where too
    few cells are known to say."""
    known = signed[~np.isnan(signed)]
    if len(known) < FEWEST_CELLS:
        return 0.0
    return SPREAD_DEVIATIONS * MAD_TO_SIGMA * float(np.median(np.abs(known - np.median(known))))


def _usual(mean: Floats, peer_of: Ints) -> float:
    """Excess that is within the spread of all ranks; 0 where there are too few to say."""
    known = mean[peer_of >= 0]
    if len(known) <= SMALL_GROUP:
        return 0.0
    middle = float(np.median(known))
    away = float(np.median(np.abs(known - middle)))
    return middle + SPREAD_DEVIATIONS * MAD_TO_SIGMA * away


def _often(sure: Floats, mean: Floats, signed: Floats) -> Mask:
    """Ranks that are late in most steps from some step on, and more than chance makes them.

    ``signed`` is the excess of each step, below zero where the others were later.
    """
    late = sure > LATE_RATIO * np.maximum(mean, 1)[:, None]
    steps = late.shape[1]
    first = late.argmax(axis=1)
    count = late.sum(axis=1)
    often: Mask = (count >= OFTEN_RATIO * (steps - first)) & (count >= min(2, steps))
    return often & _more_than_chance(signed, first)


def _more_than_chance(signed: Floats, first: Ints) -> Mask:
    """Whether the mean from the first late step on stands out of its noise from step to step.

    A t test a rank, paid for by the number of ranks: what varies between ranks by chance is
    measured on the steps themselves before anybody is blamed. With one step nothing is known of
    it, and the excess decides.
    """
    since = np.arange(signed.shape[1]) >= first[:, None]
    known = since & ~np.isnan(signed)
    count = np.maximum(known.sum(axis=1), 1)
    values = np.where(known, signed, 0.0)
    mean = values.sum(axis=1) / count
    away = np.where(known, values - mean[:, None], 0.0)
    error = np.sqrt((away**2).sum(axis=1) / np.maximum(count - 1, 1) / count)
    tail = (1 - SURE_CONFIDENCE) / max(len(signed), 1)
    errors = [t_quantile(1 - tail, n - 1) if n > 1 else 0.0 for n in count.tolist()]
    sure: Mask = mean > np.array(errors) * error
    return sure


def _straggler(rank: int, own: Floats) -> Straggler:
    usual = float(own[own > 0].mean())
    late = np.flatnonzero(own > LATE_RATIO * usual)
    quick = np.flatnonzero(own <= LATE_RATIO * usual)
    before = quick[quick < late[-1]]
    # A step or two on time do not end it: since the last run of quick steps longer than that.
    since = int(late[0])
    for stop in before[::-1].tolist():
        if stop - 2 >= 0 and {stop, stop - 1, stop - 2} <= set(before.tolist()):
            since = stop + 1
            break
    return Straggler(rank, round(float(own[late].mean())), tuple(late.tolist()), since)


def _incidents(sure: Floats) -> tuple[Incident, ...]:
    """Cells with most excess, one a step."""
    worst = sure.argmax(axis=0)
    by_step = sure.max(axis=0)
    order = np.argsort(-by_step, kind="stable")[:MOST_INCIDENTS]
    return tuple(
        Incident(int(worst[step]), int(step), round(float(by_step[step])))
        for step in order.tolist()
        if by_step[step] > 0
    )
