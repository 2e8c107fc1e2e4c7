"""A page for each rule: its docstring, what it needs, and the symptoms that lead to it."""

from collections.abc import Mapping

from links import named_rules, relative

from pinchpoint.diagnosis.registry import headline, page, rule_ids, rules

_INDEX = """\
# Rules

A rule looks at a recording and names one cause. `pinchpoint diagnose` runs all of them;
`pinchpoint explain` prints these pages. A rule that a recording cannot answer says so, and what to
record.

| rule | the cause |
|---|---|
"""


def rule_pages(written: Mapping[str, str]) -> dict[str, str]:
    """All rule pages and their index, by path. ``written`` are the pages that people wrote."""
    symptoms = {p: named_rules(text) for p, text in written.items() if p.startswith("symptoms/")}
    pages = {f"reference/rules/{rule}.md": _page(rule, symptoms, written) for rule in rule_ids()}
    rows = "".join(f"| `{rule}` | {headline(rule)} |\n" for rule in rule_ids())
    return pages | {"reference/rules/index.md": _INDEX + rows}


def _page(rule: str, symptoms: Mapping[str, set[str]], written: Mapping[str, str]) -> str:
    declared = rules()[rule].rule
    here = f"reference/rules/{rule}.md"
    tables = ", ".join(_table(name, here) for name in declared.needs) or "nothing in particular"
    parts = [f"# {rule}\n\n{page(rule)}\n\n## What it needs\n\nTables: {tables}."]
    parts.append(f"Otherwise record {declared.record.phrase}.")
    if declared.parent:
        parts.append(f"It is a special case of `{declared.parent}`, which yields to it.")
    if declared.generic:
        parts.append("It fits nearly every slow host, so specific causes are told before it.")
    text = " ".join(part for part in parts if part) + "\n"
    from_symptoms = [p for p, rules in sorted(symptoms.items()) if rule in rules]
    if from_symptoms:
        links = (f"- [{_title(written[p])}]({relative(p, here)})\n" for p in from_symptoms)
        text += "\n## Symptoms that lead here\n\n" + "".join(links)
    return text


def _table(name: str, here: str) -> str:
    return f"[`{name}`]({relative('reference/tables.md', here)}#{name})"


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")
