"""Self-test of tools/arrows: small trees with one thing wrong each."""
import importlib.machinery
import importlib.util
import os
import subprocess

import pytest

TOOL = os.path.join(os.path.dirname(os.path.realpath(__file__)), "arrows")


def load():
    loader = importlib.machinery.SourceFileLoader("arrows", TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("arrows", loader))
    loader.exec_module(module)
    return module


arrows = load()


def complaints(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return arrows.check(str(tmp_path))


@pytest.mark.parametrize("file, header", [
    ("loop/loop.h", "base/buf.h"),
    ("link/sock.c", "loop/loop.h"),
    ("link/sock.c", "link/priv.h"),
    ("relay/tcp.c", "link/link.h"),
    ("relay/tcp.c", "loop/loop.h"),
    ("policy/auth.c", "exchange/exchange.h"),
    ("route/match.c", "exchange/exchange.h"),
    ("wire/h1.c", "link/link.h"),
    ("wire/h1.c", "exchange/exchange.h"),
    ("origin/pool.c", "wire/wire.h"),
    ("origin/tunnel.c", "relay/relay.h"),
    ("origin/upstream.c", "route/route.h"),
    ("serve/steps.c", "policy/policy.h"),
    ("serve/steps.c", "base/why.tbl"),
    ("ops/conf.c", "serve/serve.h"),
    ("ops/conf.c", "route/route.h"),
    ("main.c", "ops/ops.h"),
    ("keeper.c", "base/panic.h"),
    ("main.c", "keeper.h"),
])
def test_allowed(tmp_path, file, header):
    assert complaints(tmp_path, {file: f'#include "{header}"\n'}) == []


@pytest.mark.parametrize("file, header, words", [
    ("base/buf.c", "loop/loop.h", "base/ may not look into loop/"),
    ("loop/epoll.c", "link/link.h", "loop/ may not look into link/"),
    ("link/dial.c", "exchange/exchange.h", "link/ may not look into exchange/"),
    ("exchange/pipe.c", "link/link.h", "exchange/ may not look into link/"),
    ("exchange/pipe.c", "wire/wire.h", "exchange/ may not look into wire/"),
    ("relay/tcp.c", "exchange/exchange.h", "relay/ may not look into exchange/"),
    ("policy/auth.c", "route/route.h", "policy/ may not look into route/"),
    ("route/match.c", "policy/policy.h", "route/ may not look into policy/"),
    ("wire/h1.c", "origin/origin.h", "wire/ may not look into origin/"),
    ("origin/cache.c", "policy/policy.h", "origin/ may not look into policy/"),
    ("origin/cache.c", "serve/serve.h", "origin/ may not look into serve/"),
    ("serve/steps.c", "ops/ops.h", "serve/ may not look into ops/"),
    ("main.c", "loop/loop.h", "src/ may not look into loop/"),
    ("wire/h1.c", "link/priv.h", "of link/ only link/link.h"),
    ("wire/h1.c", "link/dial.h", "of link/ only link/link.h"),
    ("wire/h1.c", "../link/link.h", 'a path with ".."'),
    ("serve/steps.c", "keeper.h", 'write "room/file.h"'),
    ("wire/h1.c", "wire.h", 'write "room/file.h"'),
    ("wire/h1.c", "attic/old.h", "there is no room attic/"),
    ("attic/old.c", "base/buf.h", "there is no room attic/"),
])
def test_forbidden(tmp_path, file, header, words):
    found = complaints(tmp_path, {file: f'#include <stdio.h>\n#include "{header}"\n'})
    assert len(found) == 1
    assert words in found[0]
    assert found[0].startswith(f"src/{file}:")


def test_names_the_line(tmp_path):
    found = complaints(tmp_path, {"base/buf.c": '\n\n  #  include "loop/loop.h"\n'})
    assert found[0].startswith("src/base/buf.c:3: ")


def test_library_behind_its_room(tmp_path):
    assert complaints(tmp_path, {"loop/uring.c": "#include <liburing.h>\n"}) == []
    found = complaints(tmp_path, {"wire/h1.c": "#include <liburing.h>\n"})
    assert found == ["src/wire/h1.c:1: <liburing.h> belongs to loop/"]


def test_circle_of_headers(tmp_path):
    found = complaints(tmp_path, {"base/a.h": '#include "base/b.h"\n',
                                  "base/b.h": '#include "base/c.h"\n',
                                  "base/c.h": '#include "base/a.h"\n'})
    assert found == ["src/base/a.h:1: headers in a circle: "
                     "base/a.h -> base/b.h -> base/c.h -> base/a.h"]


def test_circle_of_rooms_is_refused():
    with pytest.raises(ValueError, match="circle of rooms: a -> b -> a"):
        arrows.closure({"base": [], "a": ["b"], "b": ["a"]})


def test_exit_code(tmp_path):
    source = tmp_path / "src" / "base" / "buf.c"
    source.parent.mkdir(parents=True)
    source.write_text('#include "base/buf.h"\n')
    assert subprocess.run([TOOL, str(tmp_path)]).returncode == 0
    source.write_text('#include "ops/ops.h"\n')
    bad = subprocess.run([TOOL, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert bad.returncode == 1
    assert "src/base/buf.c:1" in bad.stdout
