"""The source as the checks of the house read it: which files there are, of which kind, and the functions in them."""
# SPDX-License-Identifier: Apache-2.0
import ast
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# By how the name ends. Other files that begin with #! are scripts; what is left is text or data.
C, PYTHON, SHELL, OTHER = "c", "python", "shell", "other"
KINDS = {".c": C, ".h": C, ".cpp": C, ".cu": C, ".cuh": C, ".S": OTHER, ".def": OTHER, ".py": PYTHON, ".sh": SHELL,
         ".js": OTHER, ".css": OTHER, ".map": OTHER, ".map.in": OTHER, "meson.build": OTHER, "meson_options.txt": OTHER}


def git(*arguments):
    """What git says; None where there is no git, or no history."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def paths():
    """All files of the tree: those that git knows or would; without git, those outside build folders."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        return sorted(path for path in map(Path, set(listed.splitlines())) if (ROOT / path).is_file())
    found = []
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith((".git", "build", "__pycache__"))]
        found += [Path(folder, name).relative_to(ROOT) for name in names]
    return sorted(found)


def kind_of(path, text):
    for end, kind in KINDS.items():
        if str(path).endswith(end):
            return kind
    if text.startswith("#!"):
        return PYTHON if "python" in text.split("\n", 1)[0] else SHELL
    return None


def sources():
    """(path, kind, text) of every source file that is ours."""
    for path in paths():
        if path.parts[0] == "third_party":
            continue
        try:
            text = (ROOT / path).read_text()
        except UnicodeDecodeError:
            continue
        kind = kind_of(path, text)
        if kind:
            yield path, kind, text


# ---- functions: (name, first line, lines) ----

def functions(kind, text):
    return {C: c_functions, PYTHON: python_functions, SHELL: shell_functions}.get(kind, lambda _: [])(text)


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def shell_functions(text):
    for found in re.finditer(r"^(\w+) *\(\)\s*\{.*?^\}", text, re.S | re.M):
        yield found[1], text.count("\n", 0, found.start()) + 1, found[0].count("\n") + 1


TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w*)(?:[^\n\\]|\\.|\\\n)*", re.M | re.S)


def blank(text):
    """As many line ends, and nothing else."""
    return "\n" * text.count("\n")


def c_code(text):
    """C without comments, strings and directives, and of each #if its first branch alone, line by line as it was."""
    text = TOKEN.sub(lambda found: blank(found[0]) or " ", text)
    kept, at, left_out, nested = [], 0, 0, []
    for found in DIRECTIVE.finditer(text):
        between = text[at:found.start()]
        kept.append((blank(between) if left_out else between) + blank(found[0]))
        at = found.end()
        word = found[1]
        if word in ("if", "ifdef", "ifndef"):
            nested.append(False)
        elif word in ("else", "elif") and nested and not nested[-1]:
            nested[-1] = True
            left_out += 1
        elif word == "endif" and nested:
            left_out -= nested.pop()
    return "".join(kept) + text[at:]


ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
HOLDER = re.compile(r"\b(struct|union|enum|class|namespace|extern)\b")


def c_functions(text):
    """A block is a function's if a parenthesis stands before it, where functions are defined: outside of other blocks,
    or in those of C++ that hold some."""
    code = c_code(text)
    begin = depth = 0        # where what stands before a block begins; blocks within a function or an initializer
    started = None
    for found in re.finditer(r"[{};]", code):
        at, mark = found.start(), found[0]
        if mark == "{" and depth:
            depth += 1
        elif mark == "{":
            head = ATTRIBUTE.sub("", code[begin:at]).strip()
            if "(" in head and not re.search(r"(?<![=!<>])=(?!=)", head.split("(")[0]):
                words = re.findall(r"(\w+)\s*\(([^()]*)", head)
                # The macros that make functions (Test, GUEST, SIM_API) name them in their arguments.
                name = f"{words[0][0]}({words[0][1].strip()})" if words[0][0][:1].isupper() else words[0][0]
                first = begin + len(code[begin:at]) - len(code[begin:at].lstrip())
                started, depth = (name, code.count("\n", 0, first) + 1), 1
            elif not HOLDER.search(head) or "=" in head:
                depth = 1                # an initializer
            begin = at + 1
        elif mark == "}" and depth:
            depth -= 1
            if not depth and started:
                yield *started, code.count("\n", 0, at) + 2 - started[1]
                started = None
            begin = at + 1
        elif not depth:
            begin = at + 1
