"""Self-test of tools/wrap: comments before and after."""
import importlib.machinery
import importlib.util
import os

TOOL = os.path.join(os.path.dirname(os.path.realpath(__file__)), "wrap")


def load():
    loader = importlib.machinery.SourceFileLoader("wrap", TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("wrap", loader))
    loader.exec_module(module)
    return module


wrap = load().wrap
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
LONG = f"{WORDS} {WORDS}"


def test_short_comments_stay():
    text = "/* a */\nint a; /* b */\n/*\n *  x --> y\n */\nint b;\n"
    assert wrap(text) == text


def test_comment_behind_code_moves_above():
    assert wrap(f"\tint a; /* {WORDS} {WORDS[:20]} */\n") == \
        f"\t/* {WORDS} one two\n\t * three four f */\n\tint a;\n"
    assert wrap(f"void f(int a, int b, int c);    /* {WORDS} */\n") == \
        f"/* {WORDS} */\nvoid f(int a, int b, int c);\n"


def test_comment_of_several_lines_behind_code():
    assert wrap(f"int aaaaaaaaaaaaaaaaaa; /* {WORDS}\n\t\t more */\n") == \
        f"/* {WORDS} more */\nint aaaaaaaaaaaaaaaaaa;\n"


def test_comment_alone_is_filled():
    out = wrap(f"/* {LONG} */\n").split("\n")
    assert all(len(line) <= 100 for line in out)
    assert out[0].startswith("/* one") and out[1].startswith(" * ") and out[1].endswith(" */")
    assert " ".join(out).replace("/* ", "").replace(" */", "").replace(" * ", " ").split() == \
        LONG.split()


def test_end_of_comment_takes_a_word_with_it():
    line = "x" * 92 + " yyy"     # 96 and "/* " fit, " */" does not
    assert wrap(f"/* {line} */\n") == f"/* {'x' * 92}\n * yyy */\n"


def test_glossary_keeps_its_indent():
    out = wrap(f"/* Words:\n *   seg    {LONG}\n *   span   short\n */\n")
    lines = out.split("\n")
    assert lines[1].startswith(" *   seg    one two")
    assert lines[2].startswith(" *          ") and not lines[2].startswith(" *           ")
    assert lines[3] == " *   span   short"


def test_list_keeps_its_indent():
    lines = wrap(f"/*\n * - {LONG}\n * - short\n */\n").split("\n")
    assert lines[1].startswith(" * - one") and lines[2].startswith(" *   ")
    assert lines[3] == " * - short"


def test_paragraph_takes_the_next_lines():
    out = wrap(f"/*\n * {LONG}\n * tail.\n *\n * other\n */\n")
    lines = out.split("\n")
    assert lines[2].endswith(" tail.") and lines[3] == " *" and lines[4] == " * other"


def test_drawing_is_not_taken():
    lines = wrap(f"/*\n * {LONG}\n * a --> b\n */\n").split("\n")
    assert lines[3] == " * a --> b"


def test_drawing_that_is_too_wide_stays():
    text = "/* a.\n *\n *  wake \u2500\u25ba " + "task " * 20 + ".\n *  next\n */\n"
    assert wrap(text) == text


def test_two_blanks_after_a_full_stop_stay():
    assert "Alpha.  Beta" in wrap(f"/* Alpha.  Beta {LONG} */\n")


def test_strings_are_no_comments():
    text = 'const char *s = "/* ' + "x" * 100 + '";\n'
    assert wrap(text) == text


def test_twice_is_once():
    text = f"/* A.  {LONG}\n *   seg   {LONG} */\nint a; /* {LONG} */\n"
    assert wrap(wrap(text)) == wrap(text)
