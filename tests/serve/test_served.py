"""The pages over a real connection: what they show, and everything that is refused."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from pinchpoint.cli import main
from pinchpoint.serve.app import LOOPBACK_NAMES, application
from pinchpoint.serve.index import Index
from serving import asked, served

pytest.importorskip("starlette", reason="Starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"
TELEMETRY = (
    "unix_ns,device,sm_active_ratio,power_w,cpu_ratio\n"
    "1000000000,0,0.25,100,\n1000000000,,,,0.5\n2000000000,0,0.5,,\n3000000000,0,0.7"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    shutil.copy(DEMO, outside / "secret.json.gz")
    root = tmp_path_factory.mktemp("site")
    shutil.copy(DEMO, root / "before.json.gz")
    (root / "deep").mkdir()
    shutil.copy(DEMO, root / "deep" / 'a <b> & "c".json.gz')
    (root / "package.json").write_text('{"name": "not a trace"}')
    (root / ".hidden.json").write_text('{"traceEvents": []}')
    (root / "cut.json").write_text('{"traceEvents": [')
    (root / "link.json.gz").symlink_to(outside / "secret.json.gz")
    (root / "linked").symlink_to(outside)
    run = root / "run"
    (run / "traces").mkdir(parents=True)
    (run / "run.json").write_text(
        json.dumps({"schema": "pinchpoint.run/1", "status": "running", "command": ["a", "<i>"]})
    )
    (run / "telemetry.csv").write_text(TELEMETRY)
    leaky = root / "leaky"
    (leaky / "traces").mkdir(parents=True)
    (leaky / "run.json").write_text('{"schema": "pinchpoint.run/1", "status": "ended"}')
    (leaky / "traces" / "x.json.gz").symlink_to(outside / "secret.json.gz")
    return root


@pytest.fixture(scope="module")
def port(root):
    with served(application(root, hosts=LOOPBACK_NAMES)) as port:
        yield port


def test_the_list_has_what_is_a_recording_and_nothing_else(port):
    answer = asked(port, "/")
    assert answer.status == 200
    assert 'href="/report/before.json.gz"' in answer.text
    assert "/report/deep/a%20%3Cb%3E%20%26%20%22c%22.json.gz" in answer.text
    assert "a &lt;b&gt; &amp;" in answer.text
    assert 'href="/run/run"' in answer.text
    for absent in ("package.json", "hidden", "link.json.gz", "linked", "secret", "<b>"):
        assert absent not in answer.text


def test_a_report_is_the_page_of_the_recording_under_its_own_policy(port):
    answer = asked(port, "/report/before.json.gz")
    assert answer.status == 200
    assert "sync-in-loop" in answer.text
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    assert policy.endswith("frame-ancestors 'none'")
    assert asked(port, "/report/before.json.gz").text == answer.text


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_not_utf_8_is_listed_and_opens(tmp_path):
    shutil.copy(DEMO, tmp_path / os.fsdecode(b"n\xff.json.gz"))
    index = Index(tmp_path / "index")
    with served(application(tmp_path, hosts=LOOPBACK_NAMES, index=index)) as port:
        listed = asked(port, "/")
        assert listed.status == 200
        assert 'href="/report/n%FF.json.gz"' in listed.text
        assert "sync-in-loop" in asked(port, "/report/n%FF.json.gz").text
        assert 'name="a" value="n%FF.json.gz"' in listed.text
        for name in ("n%FF.json.gz", "n%25FF.json.gz"):  # as a link, and as browsers send a form
            assert asked(port, f"/compare?a={name}&b={name}").status == 200
    assert [os.fsencode(name) for name in index.all()] == [b"n\xff.json.gz"]


def test_a_name_with_a_line_feed_is_listed_and_opens(tmp_path):
    shutil.copy(DEMO, tmp_path / "a\nb.json.gz")
    with served(application(tmp_path, hosts=LOOPBACK_NAMES)) as port:
        assert 'href="/report/a%0Ab.json.gz"' in asked(port, "/").text
        assert "sync-in-loop" in asked(port, "/report/a%0Ab.json.gz").text


def test_two_recordings_are_compared(port):
    other = "deep/a%20%3Cb%3E%20%26%20%22c%22.json.gz"
    answer = asked(port, f"/compare?a=before.json.gz&b={other}")
    assert answer.status == 200
    assert "where the step goes" in answer.text
    assert asked(port, "/compare?a=before.json.gz").status == 404


def test_a_run_in_progress_refreshes_and_shows_its_newest_samples(port):
    answer = asked(port, "/run/run")
    assert '<meta http-equiv="refresh" content="2">' in answer.text
    assert "a &lt;i&gt;" in answer.text
    assert "SM active" in answer.text
    assert "50.0 %" in answer.text  # the last whole row; the one being written does not count
    assert 'd="M0.0 22.0L100.0 15.0"' in answer.text
    assert "100 W" in answer.text
    assert "No new sample" in answer.text
    assert "refresh" not in asked(port, "/run/run/traces").text


@pytest.mark.parametrize(
    "address",
    [
        "/report/../outside/secret.json.gz",
        "/report/..%2foutside%2fsecret.json.gz",
        "/report/%2e%2e/%2e%2e/etc/passwd",
        "/report/%2fetc%2fpasswd",
        "/report//etc/passwd",
        "/report/deep/%2e%2e/before.json.gz",
        "/report/..%5c..%5cetc%5cpasswd",
        "/report/link.json.gz",
        "/report/linked/secret.json.gz",
        "/report/leaky",
        "/run/linked",
        "/report/before.json.gz%00",
        "/report/absent.json.gz",
        "/report/",
        "/report/package.json",
        "/report/cut.json",
        "/report/" + "a" * 5000,
        "/compare?a=../x&b=%2e%2e%2fx",
        "/elsewhere",
    ],
)
def test_what_is_not_below_the_root_or_no_recording_is_a_page_that_says_so(port, address):
    answer = asked(port, address)
    assert answer.status == 404
    assert "This cannot be shown" in answer.text
    assert "root:" not in answer.text
    assert "sync-in-loop" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(port, method):
    answer = asked(port, "/", method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "localhost.:1"])
def test_other_names_for_this_machine_are_refused(port, host):
    assert asked(port, "/", Host=host).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "localhost:80", "127.0.0.1", "[::1]:9", "LOCALHOST"])
def test_names_of_this_machine_are_answered(port, host):
    assert asked(port, "/", Host=host).status == 200


def test_pages_of_other_sites_may_link_here_and_no_more(port):
    assert asked(port, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert asked(port, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200


@pytest.mark.parametrize("address", ["/", "/report/before.json.gz", "/report/absent", "/" * 9000])
def test_every_answer_has_the_headers(port, address):
    headers = asked(port, address).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers


def test_with_a_key_nothing_answers_without_it(root):
    with served(application(root, hosts=None, key="k3y")) as port:
        assert asked(port, "/").status == 404
        assert asked(port, "/report/before.json.gz").status == 404
        assert 'href="/k3y/report/before.json.gz"' in asked(port, "/k3y/").text
        assert asked(port, "/k3y/report/before.json.gz", Host="gpu7:1").status == 200


def test_a_run_folder_can_be_the_root(root):
    with served(application(root / "run", hosts=LOOPBACK_NAMES)) as port:
        assert 'href="/run/"' in asked(port, "/").text
        assert "SM active" in asked(port, "/run/").text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["/no/such/folder"], "no such folder"),
        ([".", "--host", "0.0.0.0"], "lets other machines read"),
        ([".", "--host", "example.org"], "lets other machines read"),
        ([".", "--port", "99999"], "no port"),
        ([".", "--host", "192.0.2.1", "--allow-network"], "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_one_line(words, problem, capsys):
    assert main(["serve", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert problem in lines[0]


@pytest.mark.parametrize(
    ("more", "has_secret"),
    [
        ([], False),
        (["--key"], True),
        (["--host", "0.0.0.0", "--allow-network"], True),
        (["--host", "::", "--allow-network"], True),
        (["--host", "localhost", "--allow-network"], False),
    ],
)
def test_beyond_this_machine_the_link_has_a_secret(more, has_secret, tmp_path, monkeypatch):
    module = sys.modules["pinchpoint.cli.sharing.serve"]
    secrets = []
    monkeypatch.setattr(module, "_serve", lambda *given, local: secrets.append(given[3]))
    assert main(["serve", str(tmp_path), *more]) == 0
    assert bool(secrets[0]) is has_secret
    assert not has_secret or len(secrets[0]) >= 20


def test_a_folder_that_this_user_may_not_look_into_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda *_: False)  # as root may look into all
    assert main(["serve", str(tmp_path)]) == 2
    assert "may not look into it" in capsys.readouterr().err


def test_the_whole_disk_is_not_served(tmp_path, capsys):
    link = tmp_path / "root"
    link.symlink_to("/")
    assert main(["serve", str(link)]) == 2
    assert "the whole disk" in capsys.readouterr().err


def test_without_the_extra_the_hint_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", "."]) == 2
    assert "pip install starlette uvicorn" in capsys.readouterr().err
