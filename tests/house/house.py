#!/usr/bin/env python3
"""The rules of the house that a machine can keep: lengths, first lines, licences, subjects of commits. Reports in TAP.

A file that may break a rule stands in exceptions.txt, with the reason.
"""
# SPDX-License-Identifier: Apache-2.0
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "common")]
import tap
import tree

FILE_LINES, FUNCTION_LINES, SUBJECT = 600, 60, 72
SPDX = "SPDX-License-Identifier: Apache-2.0"

# The subjects of commits are kept short from here on.
BASE = "40b33b4"


def exceptions():
    """The files that may break a rule, and folders whose files may, by the rule's name."""
    found = {}
    for line in (HERE / "exceptions.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            rule, path, reason = line.split(maxsplit=2)
            found.setdefault(rule, {})[path] = reason
    return found


def judge(rule, faults):
    """Fails for each (file, what) that is no exception, and for each exception that is none any more."""
    allowed, used, wrong = exceptions().get(rule, {}), set(), []
    for path, what in faults:
        covers = [name for name in allowed if name == str(path) or name.endswith("/") and str(path).startswith(name)]
        used.update(covers)
        if not covers:
            wrong.append(f"{path}: {what}")
    wrong += [f"exceptions.txt: {rule} {name}: the rule is kept there" for name in sorted(set(allowed) - used)]
    assert not wrong, "\n".join(wrong)


def files_are_short():
    judge("file", ((path, f"{lines} lines; {FILE_LINES} at most") for path, _, text in tree.sources()
                   if (lines := len(text.splitlines())) > FILE_LINES))


def functions_are_short():
    judge("function", ((path, f"{name}, line {line}, has {lines} lines; {FUNCTION_LINES} at most")
                       for path, kind, text in tree.sources()
                       for name, line, lines in tree.functions(kind, text) if lines > FUNCTION_LINES))


def first_line(text):
    """The first line, or what follows #!."""
    lines = text.split("\n")
    return lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]


def first_lines_say_what_a_file_is():
    """A comment of at least three words, which begins as a sentence does."""
    says = re.compile(r"""(/\*|//|#(?!include|define|if|pragma|!)|r?\""")\W*\w+\W+\w+\W+\w+""")
    judge("first-line", ((path, f"its first line does not say what it is: {first_line(text)[:60]!r}")
                         for path, _, text in tree.sources()
                         if not says.match(first_line(text)) or SPDX in first_line(text)))


def files_name_their_licence():
    judge("spdx", ((path, f"no line {SPDX}") for path, _, text in tree.sources()
                   if SPDX not in "\n".join(text.split("\n")[:40])))


# What is preloaded; and the calls that libraries write hooks into, which wait for what they hold (base/os_memory.h).
PRELOADED = ("preload/", *(f"src/{name}/" for name in "base driver memory order pool process watch".split()))
HOOKED = re.compile(r"\b(?:munmap|mremap)\([^)]")


def nothing_preloaded_calls_what_is_hooked():
    judge("hooked", ((path, found[0]) for path, kind, text in tree.sources()
                     if str(path).startswith(PRELOADED) and kind == tree.C and (found := HOOKED.findall(text))))


def headers_are_read_once():
    judge("once", ((path, "no #pragma once") for path, _, text in tree.sources()
                   if path.suffix == ".h" and "\n#pragma once\n" not in text))


def subjects_are_short():
    log = tree.git("log", "--no-merges", "--format=%h %s", f"{BASE}..HEAD")
    if log is None:
        print(f"# no history since {BASE} here")
        return
    wrong = [f"{line} ({len(subject)} characters, {SUBJECT} at most)" for line in log.splitlines()
             if len(subject := line.split(" ", 1)[1]) > SUBJECT]
    wrong += [f"{line} (not in the imperative)" for line in log.splitlines()
              if re.match(r"\w+ (\w+: )?((Add|Fix|Mov|Renam|Remov|Chang|Updat|Test|Mak|Us)(ed|es|s|ing))\b", line)]
    assert not wrong, "\n".join(wrong)


def the_finder_finds():
    """The finder of functions, on what has misled such finders."""
    text = """/* a { */
    static const struct table all[] = { { "}", 1 }, { f(2), 2 } };
    struct holder {
        int (*call)(int);
    };
    static int __attribute__((format(printf, 1, 2))) one(const char *f, ...) {
        return f['{'];
    }
    #define MACRO(x) \\
        do { x } while (0)
    #ifdef OTHER
    struct holder *two(int a) {
    #else
    struct holder *two(void) {
    #endif
        struct holder h = { 0 };
        return g(h);
    }
    Test(suite, name, .init = open)
    {
    }
    struct worker {
        explicit worker(int i) : n{i} {}
        int three()
        {
            return 3;
        }
    };
    CUresult four(int x);
    """
    found = list(tree.c_functions(text))
    names = [name.split(",")[0] for name, _, _ in found]
    assert [name for name in names if name not in ("worker", "n")] == ["one", "two", "Test(suite", "three"], found
    assert dict((name, lines) for name, _, lines in found)["three"] == 4, found
    assert list(tree.python_functions("def f():\n    x\n    y\n")) == [("f", 1, 3)]
    assert list(tree.shell_functions("f()\n{\n    x\n}\n")) == [("f", 1, 4)]


tap.run([the_finder_finds, files_are_short, functions_are_short, first_lines_say_what_a_file_is, files_name_their_licence,
         headers_are_read_once, nothing_preloaded_calls_what_is_hooked, subjects_are_short])
