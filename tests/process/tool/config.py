"""Tests of the configuration file, for tool.py."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys
import tempfile

from guests import ENV, GUEST, LIBRARY, RUNTIMES, SIM, vpool

FOLDER = tempfile.TemporaryDirectory()
FILE = os.path.join(FOLDER.name, "vpool.conf")


def guest(text, *words, program=GUEST, **more):
    """(values in force, what else it said) of a program under the library with this file."""
    if text is not None:
        with open(FILE, "w") as file:
            file.write(text)
    env = {**ENV, "VPOOL_CONFIG": FILE, "VPOOL_LOG": "info", "LD_PRELOAD": ":".join(RUNTIMES + [LIBRARY]), "LD_LIBRARY_PATH": SIM,
           "VPOOL_SIM": "backing=ledger", **more}
    done = subprocess.run([program, *words, "open", "alloc=1"], env={k: v for k, v in env.items() if v is not None},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    values = dict(re.findall(r"^vpool: (VPOOL_\w+)=(.*?)(?: \(default\))?$", done.stderr, re.M))
    return values, [line for line in done.stderr.splitlines() if (FILE in line or "ignored" in line)
                    and not line.startswith("vpool: VPOOL_CONFIG=")]


def options_go_by_program_name():
    for head, counts in (("", True), ("[guest]", True), ("[*]", True), ("[other, gu?st]", True), ("[g*t]", True), ("[other]", False),
                         ("[gues]", False), ("[guest?]", False), ("[python3 train*.py]", False)):
        values, said = guest(f"{head}\nlimit = 64M\n")
        assert values["VPOOL_LIMIT"] == ("64M" if counts else "0") and not said, (head, values, said)
    values, said = guest("slack = 1\nwait=late\n[guest]\nVPOOL_SLACK = 2   # two\n idle-trim\t=\t\"30\"\nvpool_page = no\n[other]\nslack = 9\n[guest]\nwait =\n")
    assert not said and (values["VPOOL_SLACK"], values["VPOOL_IDLE_TRIM"], values["VPOOL_PAGE"], values["VPOOL_WAIT"]) == ("2", "30", "0", "auto")


def the_environment_counts_first():
    assert guest("slack = 1\nlimit = 64M\n", VPOOL_SLACK="7")[0]["VPOOL_SLACK"] == "7"
    assert guest("slack = 1\n", VPOOL_SLACK="")[0]["VPOOL_SLACK"] == "1", "an empty one counts as unset"
    assert guest("log = info\n[guest]\nslack = 3", VPOOL_LOG=None)[0]["VPOOL_SLACK"] == "3"


def wrong_lines_are_told_by_number():
    values, said = guest("limit = lots\n\nlimitt = 5\n[guest\nslack = 1\n[guest]\nslack = 2\nnothing\nslack = \"3\nconfig = x\nsim = x\n[]\n")
    # Behind a section that cannot be read, lines are nobody's.
    assert values["VPOOL_SLACK"] == "2", values
    for number, text in ((1, r"limit = lots is not valid \(allowed: 0, 1M"), (3, "limitt is not an option"), (4, "a section ends in"),
                         (8, "neither OPTION = VALUE"), (9, "quotes"), (10, "config is not an option"), (11, "sim is not an option"), (12, "names programs")):
        assert any(re.search(rf"^vpool: {re.escape(FILE)}:{number}: .*{text}.*ignored$", line) for line in said), (number, said)
    assert len(said) == 8, said
    assert not guest(None, VPOOL_LOG="quiet")[1]
    status, out, _ = vpool("doctor", "--sim", VPOOL_CONFIG=FILE)
    assert status == 1 and f"!!  {FILE}:1: limit = lots is not valid" in out and out.count(FILE + ":") == 8, out
    # An empty name is none: the file of the machine need not be there.
    assert "VPOOL_CONFIG" not in vpool("doctor", "--sim", VPOOL_CONFIG="")[1]
    out = vpool("doctor", "--sim", VPOOL_CONFIG=FOLDER.name)[1]
    assert out.count("VPOOL_CONFIG") == 1 and f"!!  VPOOL_CONFIG: {FOLDER.name}: it is not a plain text file; it is ignored\n" in out, out
    # A program that does not use CUDA is told nothing.
    done = subprocess.run(["true"], env={**ENV, "VPOOL_CONFIG": FILE, "LD_PRELOAD": ":".join(RUNTIMES + [LIBRARY])}, capture_output=True)
    assert not done.stderr, done


def the_mark_of_an_editor_is_passed_over():
    values, said = guest("\ufeff[other]\nslack = 1\n")
    assert values["VPOOL_SLACK"] == "5" and not said, (values, said)
    values, said = guest("\ufeffslack = 1\r\n[guest]\r\nlimit = 64M\r\n")
    assert (values["VPOOL_SLACK"], values["VPOOL_LIMIT"]) == ("1", "64M") and not said, (values, said)


def the_programs_locale_changes_nothing():
    """What is wrong is told once the program has chosen its locale: of Turkish no i has a capital among ASCII's."""
    turkish = os.path.join(FOLDER.name, "tr_TR.UTF-8")
    if subprocess.run(["localedef", "-i", "tr_TR", "-f", "UTF-8", turkish], capture_output=True).returncode:
        print("# not tried: no localedef, or no tr_TR")
        return
    values, said = guest("limit = 64MIB\nwait = late\nspill = 1GIB\npage = OFF\nidle-trim = 3\n", LOCPATH=FOLDER.name, LC_ALL="tr_TR.UTF-8",
                         VPOOL_LOG="INFO")
    assert not said and (values["VPOOL_LIMIT"], values["VPOOL_IDLE_TRIM"]) == ("64M", "3"), (values, said)


def files_that_are_none_are_told():
    for path, text in (FILE + "none", "No such file"), (FOLDER.name, "not a plain text file"), ("/dev/zero", "not a plain text file"):
        values, said = guest("", VPOOL_CONFIG=path)
        assert len(said) == 1 and text in said[0] and values["VPOOL_SLACK"] == "5", (path, said)
    values, said = guest("slack = 1\n" + "#" * 20000)
    assert values["VPOOL_SLACK"] == "5" and "longer than" in said[0], said
    with open(FILE, "wb") as file:
        file.write(b"slack = 1\n\0")
    assert "not a plain text file" in guest(None)[1][0]
    os.mkfifo(FILE + ".pipe")
    assert "not a plain text file" in guest("", VPOOL_CONFIG=FILE + ".pipe")[1][0]


def a_script_counts_under_python():
    long = "train_" + 80 * "m" + "_model.py"
    script = os.path.join(FOLDER.name, long)
    with open(script, "w") as file:
        file.write("import ctypes\ncuda, c, p = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p(), ctypes.c_uint64()\n"
                   "assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0)\n"
                   "assert not cuda.cuCtxSetCurrent(c) and not cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(5))\n")
    for section, counts in ("train_*_model.py", True), (long, True), ("python*", True), ("other.py", False):
        values = guest(f"[{section}]\nslack = 2\n", "-B", script, program=sys.executable)[0]
        assert values["VPOOL_SLACK"] == ("2" if counts else "5"), (section, values)
    module = long[:-len(".py")]
    for words, names, others in ((["-X", "dev", script], long, "dev"), (["-Xdev", "-W", "ignore", script], long, "ignore"),
                                 (["-BW", "ignore", script], long, "ignore"), (["-Wignore", "-u", script], long, "open"),
                                 (["-B", "-m", module], module, "open"), ([f"-Bm{module}"], module, "open"),
                                 (["-Bc", f"exec(open('{script}').read())", "other.py"], "python*", "other.py")):
        for section, counts in (names, True), (others, False):
            values = guest(f"[{section}]\nslack = 2\n", *words, program=sys.executable, PYTHONPATH=FOLDER.name)[0]
            assert values["VPOOL_SLACK"] == ("2" if counts else "5"), (section, words, values)


TESTS = [options_go_by_program_name, the_environment_counts_first, wrong_lines_are_told_by_number, the_mark_of_an_editor_is_passed_over,
         the_programs_locale_changes_nothing, files_that_are_none_are_told, a_script_counts_under_python]
