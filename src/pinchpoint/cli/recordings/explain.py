"""What a rule looks for, why it matters, and how to fix it."""

from pinchpoint.diagnosis.registry import headline, page, rule_ids


def command(rule: str | None = None, /) -> int:
    """Print the page of a rule, or the list of all rules.

    Parameters
    ----------
    rule
        The id that a finding carries, for example sync-in-loop.
    """
    if rule is not None:
        print(page(rule))
        return 0
    width = max((len(r) for r in rule_ids()), default=0)
    for each in rule_ids():
        print(f"{each:{width}}  {headline(each)}")
    return 0
