"""Self-test of tools/style: small files with one thing wrong each."""
import importlib.machinery
import importlib.util
import os
import subprocess

import pytest

TOOL = os.path.join(os.path.dirname(os.path.realpath(__file__)), "style")


def load():
    loader = importlib.machinery.SourceFileLoader("style", TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("style", loader))
    loader.exec_module(module)
    return module


style = load()


def write(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run(tmp_path, text, name="src/wire/foo.c", **more):
    write(tmp_path, {name: text, **more})
    return style.check(str(tmp_path))


def function(lines, head="static void f(void)"):
    return head + "\n{\n" + "\ta();\n" * lines + "}\n"


GOOD = """\
/* foo.c -- a story; it's told in // one comment. */
#include "base/buf.h"

#define TWICE(x)                                                   \\
\tdo {                                                       \\
\t} while (0)

struct foo {
\tint a, b;
};

static const char *const names[] = { "a{", "b//" };
const int foo_table[] = { 1, 2 };
typedef void foo_fn(struct foo *f, bool on);

static inline int twice(int x)
{
\tif (x == '{')
\t\treturn 0;
\treturn x * 2;
}

struct foo *foo_new(const char *name, bool on)
{
\treturn 0;
}

__attribute__((noreturn)) void wire_die(void)
{
\tfoo_new("}", 1);
}
"""


def test_good_file(tmp_path):
    report = run(tmp_path, GOOD)
    assert report.bad == []
    assert report.warnings == []


def test_function_of_70_lines_passes_with_a_warning(tmp_path):
    report = run(tmp_path, function(70))
    assert report.bad == []
    assert report.warnings == ["src/wire/foo.c:1: warning: long-function: f has 70 lines"]


def test_function_of_71_lines_fails(tmp_path):
    report = run(tmp_path, "int x_;\n\n" + function(71), name="src/main.c")
    assert report.bad == ["src/main.c:3: long-function: f has 71 lines (limit 70)"]


def test_function_of_40_lines_is_fine(tmp_path):
    assert run(tmp_path, function(40)).warnings == []


def test_long_table_is_no_function(tmp_path):
    table = "static const int t[] = {\n" + "\t1,\n" * 200 + "};\n"
    assert run(tmp_path, table).bad == []


def test_functions_of_tests_may_be_longer(tmp_path):
    assert run(tmp_path, function(150), name="tests/unit/test_foo.c").bad == []
    assert len(run(tmp_path, function(151), name="tests/unit/test_foo.c").bad) == 1


def test_long_file(tmp_path):
    assert run(tmp_path, "\n" * 1000).bad == []
    assert run(tmp_path, "\n" * 1001).bad == [
        "src/wire/foo.c:1001: long-file: 1001 lines (limit 1000)"]


@pytest.mark.parametrize("text, rule", [
    ("typedef struct foo foo_t;\n", "typedef"),
    ("typedef struct {\n\tint a;\n} foo_t;\n", "typedef"),
    ("typedef const union u u_t;\n", "typedef"),
    ("int foo_a; // why\n", "comment"),
    ("/* TO" "DO: this */\n", "todo"),
    ("int foo_a; \n", "space"),
    ("int foo_a;\t\n", "space"),
    ("/* " + "x" * 98 + " */\n", "line"),
    ("\t" * 12 + "abcde;\n", "line"),
    ('static const char s[] = "' + "x" * 150 + '";\n', "line"),
    ('static const char *s[] = { "a", ' + "b, " * 30 + '"c" };\n', "line"),
    ("void foo_set(struct foo *f, bool a, bool b);\n", "two-bools"),
    ("void foo_set(bool a,\n\t     int n, const bool b)\n{\n}\n", "two-bools"),
    ("void bar(void)\n{\n}\n", "export"),
    ("int bar = 3;\n", "export"),
    ("const char *bar[4];\n", "export"),
    ("int bar_table[] = {\n\t1,\n};\n", "export"),
    ("struct foo *food(void)\n{\n\treturn 0;\n}\n", "export"),
])
def test_one_thing_wrong(tmp_path, text, rule):
    report = run(tmp_path, text)
    assert [line.split(": ")[1] for line in report.bad] == [rule]


@pytest.mark.parametrize("text", [
    "typedef int foo_fn(struct foo *f);\n",
    "static void bar(void)\n{\n}\n",
    "extern int bar;\n",
    "void bar(void);\n",
    "void foo(void)\n{\n}\n",
    "struct bar {\n\tint a;\n};\n",
    "enum bar { A, B };\n",
    "void foo_set(bool *a, bool *b);\n",
    "void foo_each(void (*f)(bool a, int n), bool b);\n",
    "/* foo.c -- x\n *\n * Exports: bar_*,\n *   baz_* */\nint bar_a;\nint baz_b;\n",
    'static const char s[] = "http://a";\n',
    'static const char s[] = "' + "x" * 130 + '";\n',
])
def test_nothing_wrong(tmp_path, text):
    assert run(tmp_path, text).bad == []


def test_base_may_define_what_its_header_declares(tmp_path):
    text = "void seg_free(void)\n{\n}\n"
    assert len(run(tmp_path, text, name="src/base/buf.c").bad) == 1
    header = {"src/base/buf.h": "void seg_free(void);\n"}
    assert run(tmp_path, text, name="src/base/buf.c", **header).bad == []


def test_a_room_may_define_the_words_of_its_contract(tmp_path):
    text = "void end_leave(void)\n{\n}\n"
    header = {"src/wire/wire.h": "/* end_leave() */\n"}
    assert len(run(tmp_path, text, **header).bad) == 1
    header = {"src/wire/wire.h": "void end_leave(void);\n"}
    assert run(tmp_path, text, **header).bad == []


def test_prefix_of_a_family_of_files(tmp_path):
    assert run(tmp_path, "void h1_serve(void)\n{\n}\n", name="src/wire/h1_server.c").bad == []


def test_many_parameters_warn(tmp_path):
    report = run(tmp_path, "void foo_a(int a, int b, int c, int d, int e, int f, int g);\n")
    assert report.bad == []
    assert len(report.warnings) == 1


def test_path_of_the_machine(tmp_path):
    report = run(tmp_path, f"see {tmp_path}/x\n", name="README.md")
    assert [line.split(": ")[1] for line in report.bad] == ["machine"]
    report = run(tmp_path, "see /home/someone/x\n", name="README.md")
    assert [line.split(": ")[1] for line in report.bad] == ["machine"]


def test_forbidden_words_of_this_clone(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    words = tmp_path / ".git" / "info" / "forbidden-words"
    words.parent.mkdir(exist_ok=True)
    words.write_text("# not in the tree\n\\bquux\\b\n")
    report = run(tmp_path, "a\nQuux b\nquuxes\n", name="docs/x.md")
    assert report.bad == ["docs/x.md:2: machine: Quux"]


def test_markdown_may_have_long_lines(tmp_path):
    assert run(tmp_path, "x" * 200 + "\n", name="README.md").bad == []


def test_script_without_suffix_is_read(tmp_path):
    report = run(tmp_path, "#!/bin/sh\nx \n", name="dev")
    assert report.bad == ["dev:2: space: at the end of the line"]


def test_built_things_are_not_read(tmp_path):
    assert run(tmp_path, "x \n", name="build/a.c").bad == []


def test_exit_code(tmp_path):
    write(tmp_path, {"src/wire/foo.c": "int foo_a;\n"})
    assert subprocess.run([TOOL, str(tmp_path)]).returncode == 0
    write(tmp_path, {"src/wire/foo.c": "int foo_a; \n"})
    bad = subprocess.run([TOOL, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert bad.returncode == 1
    assert bad.stdout == "src/wire/foo.c:1: space: at the end of the line\n"
