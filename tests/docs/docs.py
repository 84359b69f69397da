#!/usr/bin/env python3
"""Is what the pages say true? Runs their commands, follows their links, and looks up the names in them. Reports in TAP.

usage: docs.py SOURCE BUILD

A command is a line of a block that is marked as sh. It runs without a GPU, on the simulated driver, in a temporary folder
that looks like a clone with a build in it; the blocks of a page run one after another in the same folder, as a reader would
run them. train.py stands for the reader's program: it is one of the examples in C. What cannot run is in NOT_RUN, and its
names are looked up like all others.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS / "common")]
import tap

SOURCE, BUILD = (Path(argument).resolve() for argument in sys.argv[1:3])
VPOOL = BUILD / "vpool"
PAGES = [SOURCE / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md",
                                    "tests/traces/README.md")] + sorted((SOURCE / "docs").glob("*.md"))

# What is not run, and why. Each must be there.
NOT_RUN = [
    (r"(\./)?scripts/test\b", "runs this test"),
    (r"(meson|ninja) ", "scripts/test does it, for every part"),
    (r"(\./)?scripts/soak\b", "scripts/test runs it"),
    (r"(\./)?scripts/gpu-check\b", "needs a GPU"),
    (r"(\./)?scripts/(wheel|deb)\b", "takes a minute and a network; scripts/try-packages runs it"),
    (r"(pip|apt-get) install ", "scripts/try-packages does it, in systems of its own"),
    (r"(\./)?scripts/bench\b", "takes minutes; scripts/bench is its own check"),
    (r"(\./)?scripts/fuzz\b", "needs clang and a build of its own; what it found runs in the suite fuzz"),
    (r"(\./)?scripts/mutate$", "takes an hour; scripts/test runs its --check"),
    (r"(\w+=\S+ )*python3 examples/", "needs a GPU and PyTorch; scripts/gpu-check and scripts/bench run it"),
]

LANGUAGES = {"sh", "text", "json", "c", "python"}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LIMIT_S = 600
README_MOST, CONTRIBUTING_MOST, CONTRIBUTING_LINES, GLOSSARY_MOST = 10000, 6000, 110, 25

# A dump of an allocation that fails takes one that does.
TRAIN = """import os, subprocess
program = ["build/examples/train_runtime", "--steps", "3"]
if os.environ.get("VPOOL_DUMP") == "oom":
    subprocess.run(program, env=os.environ | {"VPOOL_SIM": "capacity=32M"})
else:
    os.execv(program[0], program)
"""


def name_of(page):
    return str(page.relative_to(SOURCE))


def prose(page):
    """The page without its blocks."""
    return FENCE.sub("", page.read_text())


def blocks(page):
    return [text for language, text in FENCE.findall(page.read_text()) if language == "sh"]


def lines_of(block):
    """The commands of a block, each on one line and without its comment."""
    lines = (re.sub(r"\s+# .*|^# .*", "", line).strip() for line in block.replace("\\\n", " ").splitlines())
    return [line for line in lines if line]


def not_run(line):
    return next((pattern for pattern, _ in NOT_RUN if re.match(pattern, line)), None)


def output_of(*argv):
    done = subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, cwd=SOURCE)
    return done.stdout


def fail_on(faults):
    assert not faults, "\n" + "\n".join(faults)


# ---- the commands ----

def environment(folder):
    """As a reader's, but that CUDA is the simulated one."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("VPOOL_", "LD_", "XLA_", "TF_", "PYTORCH_", "CUDA_"))}
    return env | {"PATH": f"{folder}/bin:{BUILD}:{env['PATH']}", "LD_LIBRARY_PATH": str(BUILD / "sim"), "HOME": str(folder)}


def lay_out(folder):
    for entry in SOURCE.iterdir():
        if not entry.name.startswith((".", "build")):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(BUILD)
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(shutil.which("python3"))
    (folder / "train.py").write_text(TRAIN)
    # The build is there already. What runs this test would not like another to build beside it.
    (folder / "bin/ninja").write_text("#!/bin/sh\n")
    (folder / "bin/ninja").chmod(0o755)


def run_page(page):
    faults, folder = [], Path(tempfile.mkdtemp(prefix="vpool-docs-"))
    try:
        lay_out(folder)
        for block in blocks(page):
            lines = [line for line in lines_of(block) if not not_run(line)]
            done = subprocess.run(["timeout", str(LIMIT_S), "bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=folder,
                                  env=environment(folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace")
            if done.returncode:
                faults.append(f"{name_of(page)}: status {done.returncode} of\n{block}{done.stdout[-1000:]}")
    finally:
        shutil.rmtree(folder)
    return faults


def commands_run():
    """Those that pause processes by themselves: the doctor of another page would be right to complain of them."""
    pausing = [page for page in PAGES if any("vpool pause" in block for block in blocks(page))]
    with ThreadPoolExecutor(os.cpu_count() + 2) as pool:
        faults = list(pool.map(run_page, [page for page in PAGES if page not in pausing]))
    fail_on(sum(faults + [run_page(page) for page in pausing], []))


def each_exception_is_needed():
    used = {not_run(line) for page in PAGES for block in blocks(page) for line in lines_of(block)}
    fail_on([f"nothing is like {pattern}" for pattern, _ in NOT_RUN if pattern not in used])


def the_quickstarts_build_is_not_set_up_anew():
    """Meson 1.0 leaves a folder that is set up as it is, and says so in passing: options want a folder of their own."""
    fail_on([f"{name_of(page)}: {line}" for page in PAGES for _, text in FENCE.findall(page.read_text())
             for line in lines_of(text) if re.search(r"meson setup build(?! *$)\s", line)])


def shown_output_is_what_is_printed():
    found, faults = 0, []
    for page in PAGES:
        for command, shown in re.findall(r"^<!-- output: (.*?) -->\n(.*?)\n<!-- end of output -->$", page.read_text(),
                                         re.M | re.S):
            found += 1
            words = shlex.split(command)
            if output_of(VPOOL, *words[1:]).strip() != shown.strip():
                faults.append(f"{name_of(page)}: `{command}` prints something else")
    assert found
    fail_on(faults)


def the_picture_is_what_is_drawn():
    with tempfile.NamedTemporaryFile(suffix=".svg") as file:
        said = output_of(SOURCE / "scripts/draw-memory", "--vpool", VPOOL, "--out", file.name)
        assert Path(file.name).read_text() == (SOURCE / "docs/memory.svg").read_text(), f"run scripts/draw-memory: {said}"


def replayed_figures_are_what_is_printed():
    """The first table of docs/replay.md: of one pass, and the late calls of three."""
    traces, faults = sorted((SOURCE / "tests/traces").glob("*.csv.gz")), []
    shown = re.findall(r"^\| ([\w.-]+)((?: \| [\d.]+){6}) \|$", (SOURCE / "docs/replay.md").read_text(), re.M)
    passes = [json.loads(output_of(VPOOL, "replay", "--json", f"--repeat={n}", *traces)) for n in (1, 3)]
    assert len(shown) == len(traces), shown
    for (name, figures), once, thrice in zip(shown, *passes):
        live, held = once["peak_live_bytes"], once["peak_held_bytes"]
        calls = sum(once["driver_calls"][call] for call in ("create", "map", "set_access", "unmap", "release"))
        printed = (f" | {live / 2**20:.0f} | {held / 2**20:.0f} | {held / live:.4f} | {once['driver_us'] / 1000:.0f} | {calls} | "
                   f"{thrice['late_driver_calls']}")
        if (name, figures) != (once["trace"], printed):
            faults.append(f"docs/replay.md: | {once['trace']}{printed} |")
    fail_on(faults)


def the_statistics_are_what_is_written():
    """Those that docs/statistics.md shows; but for what goes by how soon work ends."""
    def figures(text):
        device = json.loads(text)["devices"][0]
        return {name: value for part in (device, device["slack"], device["driver_calls"]) for name, value in part.items()
                if isinstance(value, (int, float)) and not re.search("Event|waits|_us$|stitches|reactivations|reaps", name)}
    shown = figures(re.search(r"```json\n(.*?)```", (SOURCE / "docs/statistics.md").read_text(), re.S)[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stats.json")
        # Another test's program that lacks memory would be lent some.
        output_of("env", "VPOOL_LEND=0", VPOOL, "run", "--sim", f"--stats={path}", BUILD / "examples/train_driver")
        written = figures(path.read_text())
    fail_on([f"docs/statistics.md: {name} is {written.get(name)}, not {shown.get(name)}" for name in sorted(written | shown)
             if name not in shown or name not in written or abs(shown[name] - written[name]) > 8 + 0.3 * written[name]])


# ---- names ----

def told(page):
    """All that stands in code: the commands, and what is between backquotes."""
    return [line for block in blocks(page) for line in lines_of(block)] + re.findall(r"`([^`\n]+)`", prose(page))


def variables_exist():
    known = set(re.findall(r"VPOOL_\w+", output_of(VPOOL, "options") + (SOURCE / "include/vpool.h").read_text()))
    fail_on([f"{name_of(page)}: {name} is no option" for page in PAGES
             for name in sorted(set(re.findall(r"VPOOL_[A-Z_]*[A-Z]", page.read_text())) - known)])


HELP = {}


def help_of(program, command):
    """What a script, or a command of vpool, says of itself."""
    if (program, command) not in HELP:
        if program == "vpool":
            HELP[program, command] = output_of(VPOOL, command, "--help") if command else output_of(VPOOL, "help")
        else:
            text = (SOURCE / program).read_text()
            python = text.startswith("#!/usr/bin/env python3")
            HELP[program, command] = text + (output_of(SOURCE / program, "--help") if python else "")
    return HELP[program, command]


def unknown_words(words):
    """What is no command, topic or option of the program that these words call."""
    at = next((i for i, word in enumerate(words) if re.fullmatch(r"(\./)?scripts/[\w.-]+|(build/)?vpool", word)), None)
    if at is None:
        return []
    program, words = re.sub(r"^\./|^build/", "", words[at]), words[at + 1:]
    if program != "vpool" and not (SOURCE / program).is_file():
        return [program]
    words = words[:words.index("--")] if "--" in words else words
    words = [word for word in words if not word.isupper()]      # COMMAND and the like stand for something
    command = words[0] if program == "vpool" and words and not words[0].startswith("-") else None
    names = re.findall(r"^  ([\w-]+)  ", help_of("vpool", None), re.M)
    if command and (command not in names or (command == "help" and len(words) > 1 and words[1] not in names)):
        return [" ".join(words[:2])]
    options = {re.sub(r"[=\[].*", "", word) for word in words if word.startswith("--") and len(word) > 2}
    return sorted(option for option in options if not re.search(rf"{re.escape(option)}(?![\w-])", help_of(program, command)))


def all_options():
    """Every option that a script, a command or an example has."""
    commands = re.findall(r"^  ([\w-]+)  ", help_of("vpool", None).split("TOPIC")[0], re.M)
    texts = [output_of(VPOOL, command, "--help") for command in commands]
    texts += [help_of(f"scripts/{path.name}", None) for path in (SOURCE / "scripts").iterdir() if path.is_file()]
    texts += [path.read_text(errors="replace") for path in (SOURCE / "examples").rglob("*")
              if path.is_file() and "__pycache__" not in path.parts]
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", "\n".join(texts)))


def options_and_scripts_exist():
    faults, known = [], all_options()
    for page in PAGES:
        faults += [f"{name_of(page)}: there is no {option}" for option in re.findall(r"`(--[a-z][\w-]*)[^`]*`", prose(page))
                   if option not in known]
        for text in told(page):
            try:
                words = shlex.split(text.replace("…", ""))
            except ValueError:
                continue
            faults += [f"{name_of(page)}: `{text}`: there is no {word}" for word in unknown_words(words)]
    fail_on(faults)


def files_exist():
    """Each path into the source that stands between backquotes. A bare name counts from the page's own folder, too."""
    entries = [entry.name for entry in SOURCE.iterdir() if entry.is_dir() and not entry.name.startswith("build")]
    folders = "|".join(map(re.escape, entries))
    faults = []
    for page in PAGES:
        for text in re.findall(r"`([^`\s]+)`", prose(page)):
            if re.fullmatch(rf"(\./)?({folders})/[\w./*-]*", text) and not any(SOURCE.glob(text.removeprefix("./").rstrip("/"))):
                faults.append(f"{name_of(page)}: there is no {text}")
    fail_on(faults)


def members_are_explained():
    """Those of the JSON that the schemas describe, and those of its devices."""
    faults = []
    for name, page in ("stats", "statistics"), ("dump", "dumps"):
        schema, text = json.loads((SOURCE / f"docs/{name}.schema.json").read_text()), (SOURCE / f"docs/{page}.md").read_text()
        members = [*schema["properties"], *schema["$defs"]["device"]["properties"], *schema["$defs"]["device"]["properties"]["plan"]["properties"]]
        also = (SOURCE / "docs/statistics.md").read_text() if name == "dump" else ""
        faults += [f"docs/{page}.md: {member} is not explained" for member in members
                   if f"`{member}`" not in text + also and f'"{member}":' not in text]
    fail_on(faults)


# ---- links ----

def slugs(page):
    """The anchors that a page's headings have where it is shown."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_lead_somewhere():
    faults = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            path, _, anchor = target.partition("#")
            if re.match(r"\w+:", target):
                continue
            there = (page.parent / path).resolve() if path else page
            if not there.exists():
                faults.append(f"{name_of(page)}: {target} leads nowhere")
            elif anchor and anchor not in slugs(there):
                faults.append(f"{name_of(page)}: {target}: there is no such heading")
    fail_on(faults)


def every_page_is_listed():
    index = (SOURCE / "docs/README.md").read_text()
    fail_on([f"docs/README.md does not list {page.name}" for page in (SOURCE / "docs").glob("*.md")
             if page.name != "README.md" and f"({page.name})" not in index])


# ---- form ----

def commands_are_marked():
    """A block says what it is, so that no command escapes: none is made by indentation."""
    faults = []
    for page in PAGES:
        faults += [f"{name_of(page)}: a block of '{language}', not of {', '.join(sorted(LANGUAGES))}"
                   for language, _ in FENCE.findall(page.read_text()) if language not in LANGUAGES]
        faults += [f"{name_of(page)}: an indented block: {line}" for line in re.findall(r"\n\n    (.*)", prose(page))]
    fail_on(faults)


def pages_are_short():
    readme, contributing = SOURCE / "README.md", (SOURCE / "CONTRIBUTING.md").read_text()
    terms = re.findall(r"^\| (?!\|)[^|-][^|]*\|", (SOURCE / "docs/glossary.md").read_text(), re.M)
    faults = []
    for what, size, most in (("README.md, bytes", readme.stat().st_size, README_MOST),
                             ("CONTRIBUTING.md, characters", len(contributing), CONTRIBUTING_MOST),
                             ("CONTRIBUTING.md, lines", contributing.count("\n"), CONTRIBUTING_LINES),
                             ("docs/glossary.md, terms", len(terms), GLOSSARY_MOST)):
        if not 0 < size <= most:
            faults.append(f"{what}: {size}, at most {most}")
    fail_on(faults)


tap.run([commands_run, each_exception_is_needed, the_quickstarts_build_is_not_set_up_anew, shown_output_is_what_is_printed, the_picture_is_what_is_drawn,
         replayed_figures_are_what_is_printed, the_statistics_are_what_is_written, variables_exist,
         options_and_scripts_exist, files_exist, members_are_explained, links_lead_somewhere, every_page_is_listed, commands_are_marked, pages_are_short])
