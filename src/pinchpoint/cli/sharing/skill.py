"""How an assistant should use Pinchpoint, as a skill file to give to it."""

from importlib.resources import files

from pinchpoint.cli.output import show


def command() -> int:
    """Print the skill file. For example: pinchpoint skill > .claude/skills/pinchpoint/SKILL.md."""
    show((files("pinchpoint.assistant") / "SKILL.md").read_text("utf-8"))
    return 0
