"""Self-test of tools/tidy: how the output of clang-tidy is cut into findings."""
import importlib.machinery
import importlib.util
import json
import os

TOOL = os.path.join(os.path.dirname(os.path.realpath(__file__)), "tidy")


def load():
    loader = importlib.machinery.SourceFileLoader("tidy", TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tidy", loader))
    loader.exec_module(module)
    return module


tidy = load()


def test_findings_keep_their_lines():
    text = ("/a/b.c:3:4: warning: bad [bugprone-x]\n  int x;\n      ^\n/a/b.c:2:1: note: from here\n"
            "/a/c.h:1:1: error: worse [bugprone-y]\n")
    found = tidy.findings(text)
    assert [key for key, _ in found] == ["/a/b.c:3:4: warning: bad [bugprone-x]",
                                         "/a/c.h:1:1: error: worse [bugprone-y]"]
    assert len(found[0][1]) == 4
    assert len(found[1][1]) == 1


def test_clean_output_has_none():
    assert tidy.findings("") == []
    assert tidy.findings("12 warnings generated.\n") == []


def test_only_sources_of_src(tmp_path):
    inside = os.path.join(tidy.ROOT, "src", "base", "x.c")
    commands = [{"directory": str(tmp_path), "file": inside},
                {"directory": str(tmp_path), "file": os.path.join(tidy.ROOT, "fuzz", "f.c")},
                {"directory": str(tmp_path), "file": "local.c"}]
    (tmp_path / "compile_commands.json").write_text(json.dumps(commands))
    assert tidy.sources(str(tmp_path), []) == [inside]
    assert tidy.sources(str(tmp_path), [inside]) == [inside]
    assert tidy.sources(str(tmp_path), ["/elsewhere.c"]) == []


def test_findings_in_libraries_are_not_ours():
    build = os.path.join(tidy.ROOT, "build", "asan")
    assert tidy.is_ours("../../src/base/x.c:1:2: error: bad", build)
    assert tidy.is_ours(f"{tidy.ROOT}/src/base/x.c:1:2: error: bad", build)
    assert not tidy.is_ours("/usr/include/liburing.h:1318:28: error: bad", build)
