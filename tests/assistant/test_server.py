"""The server as an assistant sees it: a process, spoken to by the protocol's own client."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pinchpoint.cli import main
from pinchpoint.cli.help import commands
from pinchpoint.report.documents.report import Report, StepsInfo

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"
SOURCES = Path(__file__).parents[2] / "src"


def conversation(root, *questions):
    """The tools, and the answer to each ``(tool, arguments)``."""
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    if not hasattr(mcp, "Client"):
        pytest.skip("mcp is older than 2")
    anyio = pytest.importorskip("anyio")
    parameters = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "pinchpoint", "mcp", str(root)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )

    async def talk():
        async with mcp.Client(mcp.stdio_client(parameters)) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(tool, words) for tool, words in questions]

    return anyio.run(talk)


def said(answer):
    return "".join(part.text for part in answer.content)


def test_a_conversation_from_the_list_to_a_finding(tmp_path):
    shutil.copy(DEMO, tmp_path / "a.json.gz")
    tools, answers = conversation(
        tmp_path,
        ("list_recordings", {}),
        ("diagnose", {"file": "a.json.gz", "max_chars": 6000}),
        ("show_finding", {"file": "a.json.gz", "finding": "1"}),
        ("explain_rule", {"rule": "sync-in-loop"}),
        ("diagnose", {"file": "../../etc/passwd"}),
        ("show_finding", {"file": "a.json.gz", "finding": "nonsense"}),
        ("diagnose", {"file": "a.json.gz", "max_chars": 600}),
    )
    names = {tool.name for tool in tools}
    assert names == {
        *("list_recordings", "diagnose", "causal", "show_finding", "explain_rule"),
        *("compare", "tables", "sql"),
    }
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert all(len(tool.description) > 40 for tool in tools)
    assert said(answers[0]) == "a.json.gz (kineto)\n"
    report = json.loads(said(answers[1]))
    assert len(said(answers[1])) <= 6000
    assert report["findings"][0]["id"] == json.loads(said(answers[2]))["id"]
    assert "## How to fix it" in said(answers[3])
    assert [answer.is_error for answer in answers] == [False] * 4 + [True] * 3
    assert "no name of a recording" in said(answers[4])
    assert "Next: findings: " in said(answers[5])
    assert "Next: max_chars=" in said(answers[6])


def started(folder, *questions):
    """A server that was asked these, by a client that has not read the answers."""
    pytest.importorskip("mcp", reason="mcp is not installed")
    first = {"protocolVersion": "2025-06-18", "capabilities": {}}
    first["clientInfo"] = {"name": "t", "version": "1"}
    messages = [
        {"id": 1, "method": "initialize", "params": first},
        {"method": "notifications/initialized"},
        *(
            {"id": n, "method": "tools/call", "params": {"name": tool, "arguments": words}}
            for n, (tool, words) in enumerate(questions, 2)
        ),
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "pinchpoint", "mcp", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    for message in messages:
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    server.stdin.flush()
    return server


def test_half_a_character_is_answered_as_any_other_name(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.json")).write_text("{}")
    asked = ("diagnose", {"file": "\ud800 \U0001f600"}), ("list_recordings", {})
    with started(tmp_path, *asked) as server:
        answers = {}
        while len(answers) < 3:
            answer = json.loads(server.stdout.readline())
            answers[answer["id"]] = answer["result"]
        server.stdin.close()
    assert server.returncode == 0
    assert answers[2]["isError"]
    assert "\\ud800 \U0001f600" in answers[2]["content"][0]["text"]


LONG = "SELECT count(*) FROM range(100000000000)"  # until its 20 seconds are over


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for children")
@pytest.mark.parametrize("leave", ["end of input", "SIGINT"])
def test_a_server_whose_client_leaves_ends_with_the_query_that_runs(tmp_path, leave):
    shutil.copy(DEMO, tmp_path / "a.json.gz")
    with started(tmp_path, ("sql", {"file": "a.json.gz", "statement": LONG})) as server:
        me = psutil.Process(server.pid)
        while not (queries := me.children()):
            assert server.poll() is None
            time.sleep(0.05)
        if leave == "SIGINT":
            server.send_signal(signal.SIGINT)
        else:
            server.stdin.close()
        assert server.wait(timeout=15) == 0
        psutil.wait_procs(queries, timeout=5)
        assert not any(query.is_running() for query in queries)
        server.stdin.close()


def test_without_the_package_the_hint_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert main(["mcp", "."]) == 2
    assert "pip install mcp" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_one_line(capsys):
    assert main(["mcp", "/no/such/folder"]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_the_skill_file_has_what_assistants_look_for(capsys):
    assert main(["skill"]) == 0
    text = capsys.readouterr().out
    _, head, body = text.split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == "pinchpoint"
    assert 50 < len(fields["description"]) < 1024
    assert set(re.findall(r"`pinchpoint ([a-z]+)", body)) <= set(commands())
    for field in re.findall(r"`steps\.(\w+)`", body):
        assert field in StepsInfo.__struct_fields__
    for field in ("together_ns", "verdict", "breakdown", "findings", "not_checked"):
        assert field in Report.__struct_fields__
        assert f"`{field}`" in body
