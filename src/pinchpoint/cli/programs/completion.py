"""Completion of commands, options and files in a shell: bash, zsh or fish."""

from typing import Literal

from pinchpoint.cli.output import show

_BASH = """\
_pinchpoint() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}
    *) words="" ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words="{commands}"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ "${{#COMPREPLY[@]}}" -eq 0 ] && compopt -o default
}}
complete -F _pinchpoint pinchpoint
"""
_ZSH = "autoload -Uz bashcompinit && bashcompinit\n"


def command(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print what makes a shell complete commands and options.

    Into ~/.bashrc: eval "$(pinchpoint completion bash)". Into ~/.zshrc: the same with zsh. For
    fish: pinchpoint completion fish > ~/.config/fish/completions/pinchpoint.fish

    Parameters
    ----------
    shell
        The shell that will read it.
    """
    options = _options()
    if shell == "fish":
        show("".join(_fish_lines(options)))
        return 0
    show((_ZSH if shell == "zsh" else "") + _bash(options))
    return 0


def _options() -> dict[str, tuple[str, ...]]:
    """What may follow each command (``bench ab``): its subcommands and options."""
    from pinchpoint.cli.dispatch import app_of
    from pinchpoint.cli.help import commands

    found: dict[str, tuple[str, ...]] = {}
    for name in commands():
        app = app_of(name)
        subcommands = [sub for sub in app if not sub.startswith("-")]
        own = () if app.default_command is None else _names(app)
        found[name] = (*subcommands, *own, "--help")
        found |= {f"{name} {sub}": (*_names(app[sub]), "--help") for sub in subcommands}
    return found


def _names(app: object) -> tuple[str, ...]:
    arguments = app.assemble_argument_collection()  # type: ignore[attr-defined]
    names = (name for argument in arguments for name in argument.names)
    return tuple(dict.fromkeys(name for name in names if name.startswith("--")))


def _bash(options: dict[str, tuple[str, ...]]) -> str:
    longest_first = sorted(options.items(), key=lambda item: -item[0].count(" "))
    cases = "\n".join(
        f'    "{name}{"" if " " in name else " "}"*) words="{" ".join(words)}" ;;'
        for name, words in longest_first
    )
    commands = " ".join(name for name in options if " " not in name)
    return _BASH.format(cases=cases, commands=commands)


def _fish_lines(options: dict[str, tuple[str, ...]]) -> list[str]:
    from pinchpoint.cli.help import commands

    lines = [
        f"complete -c pinchpoint -n __fish_use_subcommand -a {name} -d '{_quoted(summary)}'\n"
        for name, summary in commands().items()
    ]
    for name, words in options.items():
        seen = " ; and ".join(f"__fish_seen_subcommand_from {part}" for part in name.split())
        for word in words:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"
            lines.append(f"complete -c pinchpoint -n '{seen}' {what}\n")
    return lines


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
