"""Self-test of tools/runtests: programs that pass, fail, crash, hang, lie."""
import importlib.machinery
import importlib.util
import os
import subprocess
import time

import pytest

TOOL = os.path.join(os.path.dirname(os.path.realpath(__file__)), "runtests")


def load():
    loader = importlib.machinery.SourceFileLoader("runtests", TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("runtests", loader))
    loader.exec_module(module)
    return module


runtests = load()


def program(script, timeout=20):
    """Runs a shell script as a test program -> the suite's result."""
    result = runtests.Result("unit")
    test = {"name": "x", "cmd": ["/bin/sh", "-c", script], "env": {}, "timeout": timeout}
    runtests.add_program(result, *runtests.run_program(test, {}))
    return result


def numbers(result):
    return result.passed, result.failed, len(result.skipped)


@pytest.mark.parametrize("script, expected", [
    ("printf '1..2\\nok 1 - a\\nok 2 - b\\n'", (2, 0, 0)),
    ("printf '1..2\\nok 1 - a\\nnot ok 2 - b\\n'; exit 1", (1, 1, 0)),
    ("printf '1..2\\nok 1 - a\\nnot ok 2 # SKIP b\\n'", (1, 0, 1)),
    ("printf '1..2\\nok 1 - a\\nok 2 - b # skip why\\n'", (1, 0, 1)),
    ("printf '1..1\\nok 1 - a\\n1..1\\nok 1 - b\\n'", (2, 0, 0)),
    # crashes in the middle: what ran counts, and one failure
    ("printf '1..3\\nok 1 - a\\n'; kill -SEGV $$", (1, 1, 0)),
    # ends quietly in the middle
    ("printf '1..3\\nok 1 - a\\n'", (1, 1, 0)),
    # all good, but a leak report at the end
    ("printf '1..1\\nok 1 - a\\n'; exit 23", (1, 1, 0)),
    # group set-up failed: cmocka's words
    ("printf '1..2\\nnot ok 0 - g [  FAILED  ] GROUP SETUP\\n'; exit 2", (0, 2, 0)),
    # no test at all
    ("exit 0", (0, 1, 0)),
    ("exit 1", (0, 1, 0)),
])
def test_program(script, expected):
    assert numbers(program(script)) == expected


def test_failure_shows_all_output():
    result = program("echo before; printf '1..1\\nnot ok 1 - a\\n'; echo reason >&2; exit 1")
    text = "\n".join(result.output)
    assert "before" in text and "reason" in text and "unit: x" in text


def test_hanging_program_is_killed_with_its_children(tmp_path):
    pid_file = tmp_path / "pid"
    started = time.monotonic()
    result = program(f"sleep 100 & echo $! >{pid_file}; printf '1..1\\n'; wait", timeout=1)
    assert time.monotonic() - started < 50
    assert numbers(result) == (0, 1, 0)
    assert "hung, killed after 1 s" in result.output[0]
    child = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def pytest_run(tmp_path, text, words=()):
    (tmp_path / "test_it.py").write_text(text)
    return runtests.run_pytest("e2e", str(tmp_path), list(words), 1, {})


def test_pytest_is_added_up(tmp_path, capsys):
    result = pytest_run(tmp_path, """
import pytest
def test_a(): pass
def test_b(): assert 1 == 2, "the reason"
@pytest.mark.skip(reason="not here")
def test_c(): pass
@pytest.fixture
def broken(): raise RuntimeError("fixture")
def test_d(broken): pass
@pytest.fixture
def late():
    yield
    raise RuntimeError("teardown")
def test_e(late): pass
""")
    assert numbers(result) == (1, 3, 1)
    (test, reason), = result.skipped    # what stands before the file depends on the checkout
    assert test.endswith("test_it::test_c")
    assert reason == "not here"
    shown = capsys.readouterr().out
    assert "the reason" in shown


def test_pytest_that_cannot_be_read_fails(tmp_path):
    result = pytest_run(tmp_path, "import nothing_of_this_name\n")
    assert result.passed == 0
    assert result.failed >= 1


def test_pytest_without_tests_fails(tmp_path):
    assert numbers(pytest_run(tmp_path, "")) == (0, 1, 0)


def test_pytest_filter_that_matches_nothing_is_no_suite(tmp_path):
    assert pytest_run(tmp_path, "def test_a(): pass\n", ["zzz"]) is None


def test_worker_that_dies_is_a_failure(tmp_path):
    result = pytest_run(tmp_path, "import os\ndef test_a(): os.abort()\n")
    assert result.passed == 0
    assert result.failed >= 1


def test_sanitizer_report_is_a_failure(tmp_path):
    result = pytest_run(tmp_path, """
import os, re
def test_a():
    path = re.search(r"log_path=([^:]+)", os.environ["ASAN_OPTIONS"]).group(1)
    with open(path + ".123", "w") as f:
        f.write("heap-use-after-free")
""")
    assert numbers(result) == (1, 1, 0)


def test_green_suite_is_one_line(tmp_path, capsys):
    pytest_run(tmp_path, "def test_a(): print('noise')\n")
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("passed, failed, code, last", [
    (3, 0, 0, "3 passed, 0 failed"),
    (3, 1, 1, "3 passed, 1 failed"),
    (0, 0, 1, "0 passed, 0 failed"),
])
def test_last_line(capsys, passed, failed, code, last):
    result = runtests.Result("unit")
    result.passed, result.failed = passed, failed
    result.skipped = [("a::b", "no kernel")]
    assert runtests.summarize([result, None]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last
    assert lines[0] == "skipped (unit): a::b: no kernel"


def test_help_of_dev_names_every_command():
    dev = os.path.join(os.path.dirname(os.path.dirname(TOOL)), "dev")
    shown = subprocess.run([dev, "help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    for command in "run test build bench lint fmt fuzz sim soak".split():
        assert f"\n  {command}" in shown


def test_unknown_command_of_dev_fails():
    dev = os.path.join(os.path.dirname(os.path.dirname(TOOL)), "dev")
    ended = subprocess.run([dev, "nonsense"], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert ended.returncode == 1
    assert b"unknown command: nonsense" in ended.stderr
