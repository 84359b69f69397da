"""Tests of what the library says at the end, and of which process: for tool.py."""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import glob
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

from guests import ENV, GUEST, Guest, VPOOL, is_plain, vpool
from schema import fits

SILENCE = r"^vpool: (\w+) \(process \d+\) made no CUDA allocation .*`vpool doctor -- PROGRAM`"


def no_allocation_is_told():
    # The last: a script that has started others, and then gives way, as pyenv's does.
    for words, program in ((["true"], "true"), (["--sim", GUEST, "open"], "guest"), (["sh", "-c", "exec true"], "true"),
                           (["sh", "-c", "/bin/true; ls >/dev/null; exec true"], "true")):
        status, _, err = vpool("run", *words)
        assert status == 0 and err.count("\n") == 1 and re.match(SILENCE, err)[1] == program, (words, err)
    assert vpool("run", "--quiet", "true")[2] == ""
    # What a program starts beside itself says nothing; who starts others leaves it to them.
    assert vpool("run", "sh", "-c", "true; /bin/true; ls | sed d")[2] == ""
    status, _, err = vpool("run", "--sim", "sh", "-c", f"ls >/dev/null; {GUEST} open alloc=3; ls >/dev/null")
    assert "made no CUDA" not in err and err.count("peak live 3.0 MiB") == 1, err


def ranks_say_which_they_are():
    for env, rank in (({"RANK": "3", "WORLD_SIZE": "8"}, "3"), ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, "1"),
                      ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "0"), ({"SLURM_PROCID": "12", "SLURM_NTASKS": "16"}, "12"),
                      ({"RANK": "0", "WORLD_SIZE": "1"}, None), ({"RANK": "x", "WORLD_SIZE": "8"}, None), ({"RANK": "3"}, None)):
        done = subprocess.run([VPOOL, "run", "--sim", GUEST, "open", "alloc=3"], env={**ENV, **env}, capture_output=True, text=True)
        lines = done.stderr.splitlines()
        wanted = rf"vpool: rank {rank}, guest \d+: " if rank else r"vpool: (?!rank)"
        assert len(lines) == (5 if rank else 6) and all(re.match(wanted, line) for line in lines), (env, lines)
        assert re.search(r"process \d+ \(guest\), policy vpool$", lines[0]), lines


def statistics_of_several_processes_are_all_kept():
    with tempfile.TemporaryDirectory() as folder:
        file = folder + "/stats.json"

        def written():
            found = {}
            for path in glob.glob(folder + "/*"):
                with open(path) as content:
                    found[os.path.basename(path)] = json.load(content)
            return found
        # One after the other is the same run twice; beside each other they are several.
        for _ in range(2):
            assert vpool("run", "--sim", f"--stats={file}", GUEST, "open", "alloc=3")[0] == 0
            assert list(written()) == ["stats.json"]
            time.sleep(0.1)
        script = f"{GUEST} open alloc=1 sleep=0.5 & {GUEST} open alloc=2 sleep=0.5 & {GUEST} open alloc=4 sleep=0.5 & wait"
        err = vpool("run", "--sim", f"--stats={file}", "sh", "-c", script)[2]
        found = written()
        assert sorted(s["devices"][0]["peak_live_bytes"] >> 20 for s in found.values()) == [1, 2, 4], found
        assert "stats.json" in found and all(name in ("stats.json", f"stats-{s['pid']}.json") for name, s in found.items()), found
        assert err.count("belongs to another process") == 2 and "the statistics of this one are in" in err, err
        assert vpool("run", "--sim", f"--stats={folder}/%p", "sh", "-c", script)[2] == ""


SCHEMAS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../docs")


def what_is_written_is_as_described():
    def schema(name):
        with open(os.path.join(SCHEMAS, name)) as file:
            return json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        for words in ["open"], ["open", "alloc=3", "async=4", "capture"], ["open", "alloc=3", "free"]:
            assert vpool("run", "--sim", f"--stats={folder}/stats", GUEST, *words)[0] == 0
            with open(folder + "/stats") as file:
                fits(json.load(file), schema("stats.schema.json"))
    fits(json.loads(vpool("top", "--json")[1]), schema("top.schema.json"))
    with Guest("open", "alloc=3", "sleep=60", last="alloc=3", env={"RANK": "1", "WORLD_SIZE": "2"}) as guest:
        found = json.loads(vpool("top", "--json", "-d", "0.1", guest.pid)[1])
        fits(found, schema("top.schema.json"))
        assert found["processes"][0]["rank"] == "1" and "pci" in found["processes"][0]["devices"][0], found


def what_is_spilled_is_told():
    """One line, the summary, the statistics, a dump, the table, JSON and Prometheus."""
    spill = {"VPOOL_SPILL": "64M", "VPOOL_SPILL_TEST": "2M"}
    with tempfile.TemporaryDirectory() as folder:
        dump = {"VPOOL_DUMP": "exit", "VPOOL_DUMP_FILE": folder + "/dump.json"}
        status, _, err = vpool("run", "--sim", GUEST, "open", "alloc=3", "alloc=4", "alloc=1", **spill, **dump)
        assert status == 0 and err.count("of live blocks are in host memory now (VPOOL_SPILL)") == 1, err
        assert "  spilled: 2 blocks, at most 8.0 MiB in the host's memory at once" in err, err
        with open(folder + "/dump.json") as file, open(os.path.join(SCHEMAS, "dump.schema.json")) as described:
            written = json.load(file)
            fits(written, json.load(described))
        assert [r["asked"] >> 20 for r in written["devices"][0]["regions"] if r.get("spilled")] == [3, 4], written
        vpool("run", "--sim", f"--stats={folder}/stats", GUEST, "open", "alloc=3", "alloc=70", **spill)
        with open(folder + "/stats") as file, open(os.path.join(SCHEMAS, "stats.schema.json")) as described:
            written = json.load(file)
            fits(written, json.load(described))
        device = written["devices"][0]
        assert device["spilled_bytes"] == 4 << 20 and device["spilled_blocks"] == 1, device
    with Guest("open", "alloc=3", "sleep=60", last="alloc=3", env=spill) as guest:
        found = json.loads(vpool("top", "--json", "-d", "0.1", guest.pid)[1])["processes"][0]["devices"][0]
        assert found["spilled_bytes"] == 4 << 20, found  # in handles of 2 MiB
        assert found["held_bytes"] == 0 and found["free_bytes"] == found["spilled_bytes"] - (3 << 20), found
        assert " SPILLED " in vpool("top", "--once", guest.pid)[1]
        assert re.search(r'^vpool_spilled_bytes{.*} \d+$', vpool("top", "--prometheus")[1], re.M)


def killed(number, *words, **env):
    """A guest that a signal ends once it sleeps: (status, stderr)."""
    with subprocess.Popen([VPOOL, "run", "--sim", *words, "sleep=60"], env={**ENV, **env}, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                          preexec_fn=lambda: number != signal.SIGKILL and signal.signal(number, signal.SIG_DFL)) as process:
        for line in process.stdout:
            if line.strip() == "alloc=3":
                break
        time.sleep(0.05)
        process.send_signal(number)
        err = process.communicate(timeout=300)[1]
    return process.returncode, err


def little_memory_and_several_devices_are_told():
    """Less than a MiB is not rounded to nothing, and who holds what says of which device."""
    status, _, err = vpool("run", "--sim", "--stacks", GUEST, "open", "bytes=3000", "alloc=2", "open=1", "alloc=3",
                           VPOOL_SIM="devices=2")
    assert status == 0 and "at exit: 3.0 MiB live, 4.0 MiB held" in err, err
    assert re.search("^vpool:   alive on device 0 +2.0 MiB in 1 block,", err, re.M), err
    assert re.search("^vpool:   alive on device 1 +3.0 MiB in 1 block,", err, re.M), err
    assert re.search("^vpool:   the peak of all devices was ", err, re.M), err
    status, _, err = vpool("run", "--sim", GUEST, "open", "bytes=3000")
    assert status == 0 and "peak live 2.9 KiB, peak held 2.0 MiB" in err and "at exit: 2.9 KiB live" in err, err


def a_report_says_whose_figures_it_tells():
    with tempfile.TemporaryDirectory() as folder:
        status, _, err = vpool("run", "--sim", f"--report={folder}/page.html", "sh", "-c", f"{GUEST} open alloc=3; {GUEST} open alloc=4 alloc=1")
        assert status == 0 and re.search(r"^vpool: 2 processes allocated memory; the longest record is sh-\d+:\n"
                                         r"vpool: 6\.0 MiB held at most for 5\.0 MiB alive", err, re.M), err
        err = vpool("run", "--sim", f"--report={folder}/page.html", GUEST, "open", "alloc=3")[2]
        assert "processes allocated" not in err, err


def a_percent_sign_is_written_twice():
    """In all names of files alike."""
    with tempfile.TemporaryDirectory() as folder:
        status, _, err = vpool("run", "--sim", f"--stats={folder}/50%%p-%p", f"--trace={folder}/t%%", "--dump=exit",
                               f"--dump-file={folder}/d%%p", GUEST, "open", "alloc=3")
        names = sorted(os.listdir(folder))
        assert status == 0 and names[1:] == ["d%p", "t%"] and re.fullmatch(r"50%p-\d+", names[0]), (names, err)
        status, _, err = vpool("run", "--sim", f"--report={folder}/page.html", f"--trace={folder}/r%%%p.csv", GUEST, "open", "alloc=3")
        assert status == 0 and os.path.exists(f"{folder}/page.html") and "look: open" in err, err


def figures_without_a_file_are_told():
    status, _, err = vpool("run", "--sim", "--stats=/nowhere/stats.json", GUEST, "open", "alloc=3")
    assert status == 0 and "/nowhere/stats.json cannot be written: " in err and err.count("peak live 3.0 MiB") == 1, err


def a_signal_brings_the_summary():
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        status, err = killed(number, GUEST, "open", "alloc=3")
        assert status == -number and "peak live 3.0 MiB" in err and err.count("policy vpool") == 1, (number, status, err)
    assert killed(signal.SIGTERM, "--quiet", GUEST, "open", "alloc=3") == (-signal.SIGTERM, "")
    assert killed(signal.SIGKILL, GUEST, "open", "alloc=3")[0] == -signal.SIGKILL
    # The program's own handler stays.
    with subprocess.Popen([VPOOL, "run", "--sim", GUEST, f"handler={int(signal.SIGTERM)}", "open", "alloc=3", "sleep=0.5"], env=ENV,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.strip() == "alloc=3":
                break
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "mine" in out and "peak live" in err, (process.returncode, out, err)
    with tempfile.TemporaryDirectory() as folder:
        status, _ = killed(signal.SIGTERM, "--quiet", f"--trace={folder}/trace", f"--stats={folder}/stats", GUEST, "open", "alloc=3")
        assert status == -signal.SIGTERM and json.load(open(folder + "/stats"))["devices"]
        assert vpool("replay", folder + "/trace")[0] == 0


def what_was_not_recorded_is_not_pointed_at():
    with tempfile.TemporaryDirectory() as folder:
        for trace, there in (folder + "/no/trace", False), (folder + "/trace", True):
            err = vpool("run", "--sim", f"--trace={trace}", GUEST, "open", "alloc=3")[2]
            assert "peak live" in err and ("vpool report" in err) == there, err


def on_a_terminal(columns, **env):
    """What a guest's library says on a terminal of that width."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([VPOOL, "run", "--sim", GUEST, "open", "alloc=3"], env={**ENV, "TERM": "xterm", **env},
                          stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        text = b""
        try:
            while chunk := os.read(main, 65536):
                text += chunk
        except OSError:
            pass
        process.wait()
    os.close(main)
    return text.decode().replace("\r\n", "\n")


def lines_are_broken_between_words():
    plain = vpool("run", "--sim", GUEST, "open", "alloc=3")[2]
    assert is_plain(plain) and max(map(len, plain.splitlines())) > 100, plain
    for columns in 40, 80, 400:
        text = on_a_terminal(columns, NO_COLOR="1")
        assert is_plain(text) and max(map(len, text.splitlines())) <= columns, (columns, text)
        assert re.sub(r"\d+", "0", text).split() == re.sub(r"\d+", "0", plain).split(), (columns, text)
    assert len(on_a_terminal(400, NO_COLOR="1").splitlines()) == 6


def colour_obeys():
    coloured = on_a_terminal(80)
    assert coloured.count("\033[1mvpool:\033[m") == 6, coloured
    assert max(len(re.sub(r"\033\[[0-9;]*m", "", line)) for line in coloured.splitlines()) <= 80, coloured
    for env in {"NO_COLOR": "1"}, {"TERM": "dumb"}:
        assert "\033" not in on_a_terminal(80, **env), env
    assert "\033" in on_a_terminal(80, NO_COLOR="")


def what_was_meant_is_told():
    for words, text in ((["rnu", "true"], "did you mean run?"), (["reprot"], "did you mean report?"), (["tpo"], "did you mean top?"),
                        (["run", "--polcy=bfc", "true"], "did you mean --policy?"), (["top", "--jsn"], "did you mean --json?"),
                        (["replay", "--capcity", "1G"], "did you mean --capacity?"), (["doctor", "--smi"], "did you mean --sim?"),
                        (["--versoin"], ""), (["coffee"], "unknown command 'coffee' ("), (["run", "--policy"], "needs a value"),
                        (["top", "--json=3"], "takes no value"), (["report", "--outptu=x"], "did you mean --output?"),
                        (["help", "statistic"], "did you mean statistics?"), (["help", "coffee"], "(vpool help lists all)"),
                        (["replay", "--policy=gmlak", "x.csv"], "did you mean gmlake?"),
                        (["top", "--sort=z"], "l, h, f, e, a, c, w, p or u")):
        status, out, err = vpool(*words)
        assert status == 2 and text in err and err.count("\n") == 1 and not out, (words, err)
    assert vpool("-V")[1] == vpool("version")[1] == vpool("--version")[1] and vpool("-h")[1] == vpool("help")[1]
    for command in "doctor", "export", "exporter", "help", "options", "replay", "report", "run", "top", "version":
        assert vpool(command, "-h") == vpool(command, "--help"), command


def tables_have_room_for_names():
    """The columns behind a trace's name stand below their heads, and without a trace there is no table."""
    with tempfile.TemporaryDirectory() as folder:
        long = f"{folder}/a_trace_whose_name_is_longer_than_most.csv"
        for path in long, f"{folder}/short.csv":
            with open(path, "w") as file:
                file.write("op,id,size,stream,us\na,1,3145728,0,0\n")
        with open(f"{folder}/dump.json", "w") as file:
            file.write("{}")
        for command, column in (["replay"], "policy"), (["plan", "--seconds", "0"], "planner"):
            status, out, err = vpool(*command, f"{folder}/short.csv", long)
            head, *rows = out.splitlines()
            assert status == 0 and not err and len(rows) == 2, (out, err)
            assert all(row[head.index(column):].startswith("vpool ") for row in rows), out
            assert vpool(*command, "/nowhere")[:2] == (1, ""), command
            assert "report and export take dumps" in vpool(*command, f"{folder}/dump.json")[2], command


def a_programs_name_moves_no_cursor():
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/a\x1b[31mb\nc"
        shutil.copy(GUEST, program)
        # Without symbols its places are told by its own name.
        if shutil.which("strip"):
            subprocess.run(["strip", program], check=True)
        for word in "--stats=1", f"--report={folder}/page.html":
            status, _, err = vpool("run", "--sim", "--stacks=1K", word, program, "open", "alloc=3")
            lines = err.removesuffix("\n").split("\n")
            assert not status and "held most" in err and all(line.startswith("vpool: ") and line.isprintable() for line in lines), err


TESTS = [no_allocation_is_told, ranks_say_which_they_are, statistics_of_several_processes_are_all_kept,
         what_is_written_is_as_described, what_is_spilled_is_told, little_memory_and_several_devices_are_told,
         a_report_says_whose_figures_it_tells, a_percent_sign_is_written_twice, figures_without_a_file_are_told, a_signal_brings_the_summary, what_was_not_recorded_is_not_pointed_at,
         lines_are_broken_between_words, colour_obeys, what_was_meant_is_told, tables_have_room_for_names, a_programs_name_moves_no_cursor]
