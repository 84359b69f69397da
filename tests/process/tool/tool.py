#!/usr/bin/env python3
"""The vpool command as a user meets it. Reports in TAP.

usage: tool.py SUBJECT VPOOL GUEST LIBRARY     run, lines, top, holders, config, node, doctor or help
From the environment: TEST_PRELOAD (a sanitizer's runtime may stand in it before libvpool.so), TEST_BUILD.
"""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import config
import doctor
import holders
import lines
import node
import spilled
import tap
from guests import COMMANDS, COMPARE, ENV, GUEST, Guest, LIBRARY, MIB, RUNTIMES, SIM, VPOOL, is_plain, one_line, page, top, until, vpool
from terminal import LEFT, Terminal

SUBJECT = sys.argv[1]
PUBLISHED = "vpmm", "bfc", "es", "gmlake"


# ---- run ----

def run_ends_as_its_program():
    assert vpool("run", "sh", "-c", "exit 7")[0] == 7
    assert vpool("run", "--", "sh", "-c", "kill -TERM $$")[0] == -signal.SIGTERM
    assert vpool("run", "--sim", "--quiet", GUEST, "open", "alloc=1", f"kill={int(signal.SIGUSR1)}")[0] == -signal.SIGUSR1
    assert vpool("run", "/nowhere/at/all")[0] == 127
    assert vpool("run", "/tmp")[0] == 126
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(os.path.join(folder, "pipe"), 0o755)
        assert vpool("run", os.path.join(folder, "pipe"))[0] == 126
    for words in ["--sim", "1G", "--", "true"], ["--stats", "s.json", "true"]:
        status, _, err = vpool("run", *words)
        assert status == 127 and err.endswith(f"write a value after '=': {words[0]}={words[1]}\n"), err


def run_is_its_program():
    with subprocess.Popen([VPOOL, "run", "sh", "-c", "echo $$; cat"], env=ENV, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        out, _ = process.communicate("what came in\n")
    assert out == f"{process.pid}\nwhat came in\n", out


def run_prints_the_summary():
    status, _, err = vpool("run", "--sim", GUEST, "open", "alloc=3", "async=4")
    assert status == 0 and "2 allocations" in err and "peak live 7.0 MiB" in err, err
    status, _, err = vpool("run", "--sim", "--quiet", GUEST, "open", "alloc=3")
    assert status == 0 and not err, err


def run_sets_options():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "stats")
        status, _, err = vpool("run", "--sim", f"--stats={file}", "--policy", "vpmm", "--wait=late", "--sync-free", GUEST,
                               "open", "alloc=4")
        with open(file) as stats:
            stats = json.load(stats)
        assert status == 0 and stats["policy"] == "vpmm" and stats["devices"][0]["allocs"] == 1, (stats, err)
    out = vpool("run", "--wait=late", "--sync-free", "--adopt=0", "env")[1].splitlines()
    assert {"VPOOL_WAIT=late", "VPOOL_SYNC_FREE=1", "VPOOL_ADOPT=0", "VPOOL_STATS=1"} <= set(out), out


def run_keeps_what_is_preloaded():
    before = ":".join(RUNTIMES + [os.path.join(SIM, "libcudart.so.13")])
    out = vpool("run", "--quiet", "sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD=before)[1]
    assert out == f"{before}:{LIBRARY}\n", out


def preload_of(*args, **more):
    """What LD_PRELOAD is to a program under `vpool run`, without a sanitizer's runtime."""
    out = vpool("run", "--quiet", *args, "sh", "-c", "echo $LD_PRELOAD", **more)[1]
    return [path for path in out.strip().split(":") if path not in RUNTIMES]


def run_takes_the_library_that_has_the_policy():
    for policy in PUBLISHED:
        assert preload_of(f"--policy={policy}") == preload_of(VPOOL_POLICY=policy.upper()) == [COMPARE], policy
        status, _, err = vpool("run", "--sim", "--policy", policy, GUEST, "open", "alloc=3")
        assert status == 0 and f"policy {policy}\n" in err and "libvpool" not in err, err
    for policy in "vpool", "native", "nothing":
        assert preload_of(VPOOL_POLICY=policy) == [LIBRARY], policy
    assert preload_of("--policy=vpool", VPOOL_POLICY="bfc") == [LIBRARY]
    # What is there already stays where it has the policy, and makes way where not.
    other = os.path.join(SIM, "libcudart.so.13")
    before = RUNTIMES + [LIBRARY, other]
    assert preload_of(LD_PRELOAD=":".join(before)) == [LIBRARY, other]
    assert preload_of("--policy=bfc", LD_PRELOAD=":".join(before)) == [COMPARE, other]
    assert preload_of("--policy=vpool", LD_PRELOAD=":".join(RUNTIMES + [COMPARE])) == [COMPARE]


def preloaded(libraries, **more):
    """The guest under these, without the command: the policies that its summaries name, and what else it says."""
    env = {**ENV, **more, "LD_PRELOAD": ":".join(RUNTIMES + libraries), "LD_LIBRARY_PATH": SIM, "VPOOL_STATS": "1"}
    done = subprocess.run([GUEST, "open", "alloc=3", "async=4"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done
    said = [line for line in done.stderr.splitlines() if re.match(r"vpool: (?!0\.|device|  )", line)]
    assert done.stderr.count("2 allocations, ") == 1, done
    return re.findall(r", policy (\w+)$", done.stderr, re.M), said


def the_library_names_the_one_with_the_policy():
    for policy in PUBLISHED:
        assert preloaded([COMPARE], VPOOL_POLICY=policy) == ([policy], [])
        names, said = preloaded([LIBRARY], VPOOL_POLICY=policy)
        assert names == ["vpool"] and len(said) == 1 and f"VPOOL_POLICY={policy} is in libvpool-compare.so" in said[0], said
    for library in LIBRARY, COMPARE:
        assert preloaded([library]) == (["vpool"], []), library
    assert not preloaded([LIBRARY], VPOOL_POLICY="bfc", VPOOL_LOG="quiet")[1]


def the_first_of_two_libraries_serves():
    assert preloaded([COMPARE, LIBRARY], VPOOL_POLICY="bfc") == (["bfc"], [])
    names, said = preloaded([LIBRARY, COMPARE], VPOOL_POLICY="bfc")
    assert names == ["vpool"] and len(said) == 1, (names, said)
    for both in [LIBRARY, COMPARE], [COMPARE, LIBRARY]:
        assert preloaded(both) == (["vpool"], []), both


def run_sizes_the_device():
    assert vpool("run", "--sim=16M", "--quiet", GUEST, "open", "alloc=32")[0] == 99
    assert vpool("run", "--sim=64M", "--quiet", GUEST, "open", "alloc=32")[0] == 0


def run_finds_what_was_installed():
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(folder + "/bin")
        command = shutil.copy(VPOOL, folder + "/bin/vpool")
        done = subprocess.run([command, "run", "true"], env=ENV, capture_output=True, text=True)
        assert done.returncode == 1 and "libvpool.so is neither" in done.stderr, done
        # An installation that was moved as a whole.
        libs = os.path.join(folder, os.environ["TEST_LIBDIR"])
        os.makedirs(libs + "/vpool")
        shutil.copy(LIBRARY, libs)
        shutil.copy(os.path.join(SIM, "libcuda.so.1"), libs + "/vpool")
        done = subprocess.run([command, "run", "--sim", GUEST, "open", "alloc=3"], env=ENV, capture_output=True, text=True)
        assert done.returncode == 0 and "peak live 3.0 MiB" in done.stderr, done
        published = [command, "run", "--sim", "--policy=bfc", GUEST, "open", "alloc=3"]
        done = subprocess.run(published, env=ENV, capture_output=True, text=True)
        assert done.returncode == 1 and "libvpool-compare.so is neither" in done.stderr, done
        shutil.copy(COMPARE, libs)
        done = subprocess.run(published, env=ENV, capture_output=True, text=True)
        assert done.returncode == 0 and "policy bfc" in done.stderr, done


def run_finds_what_lies_beside_it_without_proc():
    if RUNTIMES or os.geteuid() or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        return  # no name spaces to be had, or a runtime that needs /proc
    hidden = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    for words in (["run"], ["doctor"]):
        done = subprocess.run([*hidden, VPOOL, *words, "--sim", "--", GUEST, "open", "alloc=3"], env=ENV, capture_output=True, text=True)
        assert done.returncode == 0 and "3.0 MiB" in done.stdout + done.stderr, done


def run_keeps_files_in_the_folder_of_the_command():
    """Programs change folders, by themselves or by a shell, before the library opens the file, or before it writes it."""
    names = {"s.json", "t.csv", "d.json", "p.plan"}
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/apart")
        done = subprocess.run([VPOOL, "run", "--sim", "--quiet", "--stats=s.json", "--trace=t.csv", "--dump=exit", "--dump-file", "d.json",
                               "--plan=p.plan", "sh", "-c", 'cd apart; exec "$0" open alloc=3', GUEST], env=ENV, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0 and not os.listdir(f"{folder}/apart") and set(os.listdir(folder)) == names | {"apart"}, (done, os.listdir(folder))
        out = subprocess.run([VPOOL, "run", "--stats=yes", "--plan=auto", "--trace=no", "env"], env=ENV, cwd=folder, capture_output=True, text=True).stdout
        assert "VPOOL_STATS=yes" in out and "VPOOL_PLAN=auto" in out and "VPOOL_TRACE=no" in out, out


def run_keeps_a_trace_from_its_own_page():
    with tempfile.TemporaryDirectory() as folder:
        status, _, err = vpool("run", "--sim", f"--report={folder}/both", f"--trace={folder}/both", GUEST, "open", "alloc=3")
        with open(f"{folder}/both") as file:
            assert status and "would be overwritten" in err and file.readline() == "op,id,size,stream,us\n", err


def run_finds_what_it_recorded_whatever_the_time():
    with tempfile.TemporaryDirectory() as folder:
        script = '"$0" open alloc=3; touch -d 2001-01-01 "${VPOOL_TRACE%/*}"/*'
        status, _, err = vpool("run", "--sim", f"--report={folder}/page", "sh", "-c", script, GUEST)
        assert status == 0 and os.path.exists(f"{folder}/page"), err


def run_tells_where_its_traces_are_where_it_is_interrupted():
    """A page that nobody reads takes for ever."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/page")
        with subprocess.Popen([VPOOL, "run", "--sim", f"--report={folder}/page", GUEST, "open", "alloc=3"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, env={**ENV, "TMPDIR": folder}, text=True) as process:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            assert until(lambda: any(Path(folder).glob("vpool-run-*/*.csv")) and not children.read_text()) is not None
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            err = process.communicate(timeout=300)[1]
        kept = re.fullmatch("vpool run: what was recorded is kept for vpool report: (.*)\n", err)
        assert process.returncode == -signal.SIGINT and kept and os.listdir(kept[1]), (process.returncode, err)


def run_tells_of_a_trace_that_had_no_room():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["sh", "-c", 'ulimit -f 0; exec "$0" "$@"', VPOOL, "run", "--sim", f"--report={folder}/page", GUEST, "open",
                               "alloc=3"], env={**ENV, "TMPDIR": folder, "VPOOL_SIM": "backing=ledger"}, capture_output=True, text=True)
        assert done.returncode == 1 and "the file is empty" in done.stderr and not os.listdir(folder), (done, os.listdir(folder))
        assert "cannot be read, so there is no page" in done.stderr and "doctor" not in done.stderr, done


def run_refuses_wrong_arguments():
    one_line("run")
    one_line("run", "--nothing", "true")
    one_line("run", "--policy")
    one_line("run", "--policy=nothing", "true")
    one_line("run", "--sim=lots", "true")
    one_line("run", "--handle=1", "true")
    for dump in "nothing", "exit,nothing", "every:0":
        one_line("run", f"--dump={dump}", "true")
    one_line("run", "--trace=yes", "true")
    one_line("run", "--cuda-headers=pypi", "true")
    # Without its value an option would take what ends the options for it.
    with tempfile.TemporaryDirectory() as folder:
        for words in ["--report", "--", "true"], ["--trace", "--", "true"], ["--report=", "true"]:
            done = subprocess.run([VPOOL, "run", *words], env=ENV, cwd=folder, capture_output=True, text=True, timeout=300)
            assert done.returncode == 2 and "needs a value" in done.stderr and not os.listdir(folder), (words, done)


# ---- top ----

def top_shows_a_program_at_once():
    def seconds():
        """From the start to the first sight of it."""
        begin = time.monotonic()
        with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
            assert until(lambda: top(guest.pid)) is not None
            return time.monotonic() - begin

    # Within a second; a machine that has much else to do may need another try.
    assert any(seconds() < 1 + 2 * bool(RUNTIMES) for _ in range(10))
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
        shown = top(guest.pid)
        device = shown["devices"][0]
        assert shown["pid"] == guest.pid and shown["program"] == "guest" and shown["policy"] == "vpool", shown
        assert device["live_bytes"] == 5 * MIB and device["held_bytes"] >= 5 * MIB and device["allocs"] == 1, device
        assert device["free_bytes"] == device["held_bytes"] - device["live_bytes"], device
        file = os.stat(page(guest.pid))
        assert file.st_mode & 0o777 == 0o600 and file.st_size == 4096, file
        status, out, err = vpool("top", "--once", guest.pid)
        assert status == 0 and str(guest.pid) in out and "5.0M" in out and is_plain(out) and not err, (out, err)


def top_forgets_the_dead():
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
        assert top(guest.pid)
        guest.process.send_signal(signal.SIGKILL)
        guest.process.wait()
        # Its page may be gone already: any program that starts under vpool meanwhile sweeps, one of another test too.
        assert top() is None or guest.pid not in [p["pid"] for p in json.loads(vpool("top", "--json")[1])["processes"]]
        assert not os.path.exists(page(guest.pid))
        assert vpool("top", "--json", guest.pid)[0] == 1


def a_page_goes_with_its_program():
    with Guest("open", "alloc=5", "line", last="alloc=5") as guest:
        assert os.path.exists(page(guest.pid))
        guest.process.communicate("\n")
        assert guest.process.returncode == 0 and not os.path.exists(page(guest.pid))


def a_page_is_not_taken_for_anothers():
    """Neither for a later process of the same id, nor for the program that an exec puts in its place."""
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
        shutil.copyfile(page(guest.pid), page(os.getpid()))
        shown = [p["pid"] for p in json.loads(vpool("top", "--json")[1])["processes"]]
        assert shown.count(guest.pid) == 1, shown
        assert not os.path.exists(page(os.getpid()))
        # The same, by the time alone at which the process began.
        with open(page(guest.pid), "rb") as file, open("/proc/self/stat") as stat:
            content = bytearray(file.read())
            content[32:40] = struct.pack("Q", int(stat.read().split()[27]))
        with open(page(os.getpid()), "wb") as file:
            file.write(content)
        vpool("top", "--once")
        assert not os.path.exists(page(os.getpid()))
    with Guest("open", "alloc=5", "exec", last="alloc=5") as guest:
        assert until(lambda: b"sleep" in open(f"/proc/{guest.pid}/cmdline", "rb").read())
        assert top(guest.pid) is None and not os.path.exists(page(guest.pid))


def the_next_program_sweeps():
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as dead:
        dead.process.kill()
        dead.process.wait()
        with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
            assert not os.path.exists(page(dead.pid)) and os.path.exists(page(guest.pid))


def the_page_of_a_program_with_a_mask_can_be_read():
    before = os.umask(0o777)
    try:
        with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
            assert os.stat(page(guest.pid)).st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def half_made_pages_are_swept():
    """Once they are old: with a shared /dev/shm another container's process may be at it, whose id is nobody's here."""
    child = subprocess.Popen(["true"])
    child.wait()

    def is_left(content, *times):
        with open(page(child.pid), "wb") as file:
            file.write(content)
            file.flush()
            os.utime(file.fileno(), *times)
        vpool("top", "--once")
        return os.path.exists(page(child.pid))

    for content in b"", b"x" * 100, bytes(4096):
        assert any(is_left(content) for _ in range(10)), "whatever an earlier version sweeps meanwhile"
        assert not is_left(content, (0, 0)), content


def a_link_is_not_followed():
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "precious")
        with open(target, "w") as file:
            file.write("precious")
        script = f'ln -s {target} /dev/shm/vpool-{os.geteuid()}-$$ && exec "$0" "$@"'
        done = subprocess.Popen(["sh", "-c", script, VPOOL, "run", "--sim", "--quiet", GUEST, "open", "alloc=5"], env=ENV,
                                stdout=subprocess.DEVNULL)
        assert done.wait() == 0 and open(target).read() == "precious"
        assert not os.path.lexists(page(done.pid))


def pages_can_be_refused():
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5", env={"VPOOL_PAGE": "0"}) as guest:
        assert not os.path.exists(page(guest.pid))
        assert vpool("top", "--once", guest.pid)[0] == 1
    done = subprocess.run(["sh", "-c", f'ulimit -f 0; exec "$0" "$@"', VPOOL, "run", "--sim", "--quiet", GUEST, "open",
                           "alloc=5"], env={**ENV, "VPOOL_SIM": "backing=ledger"}, stdout=subprocess.DEVNULL)
    assert done.returncode == 0, done


def parent_of(pid):
    """None if it is gone: programs of others come and go."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def a_forked_child_has_its_own():
    with Guest("fork", "open", "alloc=5", "sleep=60", last="alloc=5") as guest:
        shown = [p for p in json.loads(vpool("top", "--json")[1])["processes"] if parent_of(p["pid"]) == guest.pid]
        assert len(shown) == 1 and shown[0]["devices"][0]["live_bytes"] == 5 * MIB, shown
        assert not os.path.exists(page(guest.pid))
        os.kill(shown[0]["pid"], signal.SIGKILL)
    vpool("top", "--once")


def top_tells_of_another_version():
    with Guest("open", "alloc=1", "sleep=60", last="alloc=1") as guest:
        with open(page(guest.pid), "r+b") as file:
            file.seek(8)
            version, = struct.unpack("I", file.read(4))
            file.seek(8)
            file.write(struct.pack("I", version + 1))
        status, out, err = vpool("top", "--once", strangers=True)
        assert status == 0 and str(guest.pid) not in out, out
        assert re.search("not shown: [1-9]\\d* under another version of libvpool.so", err), err


def top_sees_the_fast_path():
    with Guest("open", "pairs=20", last="open") as guest:
        assert until(lambda: top(guest.pid), 3)
        rate = top("-d", "1.5", guest.pid)["devices"][0]["allocs_per_s"]
        assert rate > 1000, rate


def top_keeps_a_terminal_tidy():
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
        terminal = Terminal(guest.pid)
        assert terminal.read("5.0M").startswith("\033[?1049h")
        terminal.press(b"l")
        terminal.read("by live")
        terminal.size(6, 40)
        os.kill(terminal.pid, signal.SIGWINCH)
        # What was drawn before it may come first.
        assert until(lambda: max(terminal.picture()) <= 40)
        terminal.press(b"d")
        terminal.read("takes no dumps")
        terminal.press(b"q")
        terminal.read(LEFT)
        assert terminal.end() == 0
        assert terminal.before[3] & termios.ECHO and termios.tcgetattr(terminal.fd)[3] & termios.ECHO
    terminal = Terminal(kind="dumb")
    assert "\033" not in terminal.read("PID") and terminal.end() == 0
    os.close(terminal.fd)
    for number in signal.SIGTERM, signal.SIGINT:
        terminal = Terminal()
        terminal.read("PID")
        os.kill(terminal.pid, number)
        terminal.read(LEFT)
        assert terminal.end() == number
        os.close(terminal.fd)


def top_trims():
    with Guest("open", "alloc=24", "async=1", "free", "free", "line", "alloc=1", "sleep=60", last="async=1") as guest:
        # What it has freed it holds: not so much that it goes back by itself.
        assert until(lambda: top(guest.pid)["devices"][0]["live_bytes"] == 0), top(guest.pid)
        assert top(guest.pid)["devices"][0]["held_bytes"] >= 24 * MIB
        terminal = Terminal(guest.pid)
        terminal.read("guest")
        terminal.press(b"t")
        terminal.read("gives idle memory back")
        guest.process.stdin.write("\n")
        guest.process.stdin.flush()
        assert until(lambda: top(guest.pid)["devices"][0]["held_bytes"] < 24 * MIB), top(guest.pid)
        terminal.press(b"q")
        terminal.end()


def top_asks_for_dumps():
    with tempfile.TemporaryDirectory() as folder:
        asked = {"VPOOL_DUMP": "signal", "VPOOL_DUMP_FILE": f"{folder}/%n.json"}
        with Guest("open", "alloc=5", "sleep=60", last="alloc=5", env=asked) as guest:
            terminal = Terminal(guest.pid)
            terminal.read("guest")
            terminal.press(b"d")
            terminal.read("was asked for a dump")
            assert until(lambda: os.path.exists(f"{folder}/1.json"))
            with open(f"{folder}/1.json") as file:
                assert json.load(file)["reason"] == "signal"
            terminal.press(b"q")
            terminal.end()


def top_signals_nobody():
    """A program that has set a handler of its own since then, or none, is asked without a signal."""
    with tempfile.TemporaryDirectory() as folder:
        asked = {"VPOOL_DUMP": "signal", "VPOOL_DUMP_FILE": f"{folder}/%n.json"}
        with Guest("open", f"handler={int(signal.SIGUSR2)}", "alloc=5", "sleep=60", last="alloc=5", env=asked) as guest:
            terminal = Terminal(guest.pid)
            terminal.read("guest")
            terminal.press(b"d")
            terminal.read("was asked for a dump")
            assert until(lambda: os.path.exists(f"{folder}/1.json"))
            terminal.press(b"q")
            terminal.end()
            assert guest.process.poll() is None
            guest.process.kill()
            assert guest.process.stdout.read() == ""


def top_refuses_wrong_arguments():
    one_line("top", "--nothing")
    one_line("top", "-d", "0")
    one_line("top", "--sort", "x")
    one_line("top", "me")


# ---- help ----

def every_command_has_help():
    for command in COMMANDS:
        status, out, err = vpool(command, "--help")
        assert status == 0 and out.startswith("usage: vpool " + command) and is_plain(out) and not err, (command, out, err)
        assert command == "options" or vpool("help", command)[1] == out, command
    assert vpool("--help")[1] == vpool("help")[1]
    assert all(re.search(rf"^  {command} ", vpool("help")[1], re.M) for command in COMMANDS)


def every_policy_is_named_where_it_is_taken():
    policies = [*re.findall(r"\w+", re.search(r"VPOOL_POLICY \(([^;]+);", vpool("options")[1])[1]), "bare"]
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as trace:
        trace.write("op,id,size,stream,us\na,1,4194304,0,0\n")
        trace.flush()
        for words in ["replay"], ["report", "-o-"], ["export", "--rmm"]:
            told = re.search(r"  --policy P(.*?)\(default", vpool(words[0], "--help")[1], re.S)[1]
            for policy in policies:
                taken = vpool(*words, "--policy", policy, trace.name)[0] == 0
                assert taken == bool(re.search(rf"\b{policy}\b", told)), (words, policy, told)


def options_are_listed():
    status, out, _ = vpool("options")
    assert status == 0 and "  VPOOL_HANDLE (64K..1G; default 256M)\n" in out and "  VPOOL_STATS (1, FILE)\n" in out, out
    assert "| `VPOOL_WAIT` | auto, early, late, never | auto |" in vpool("options", "--markdown")[1]
    assert out in vpool("help", "options")[1]


def topics_are_told():
    topics = re.findall(r"^  ([a-z-]+) ", vpool("help")[1].split("explains:")[1], re.M)
    assert {"options", "waits", "frameworks", "policies", "dumps", "why-not"} <= set(topics), topics
    for topic in topics:
        status, out, _ = vpool("help", topic)
        assert status == 0 and len(out) > 200 and is_plain(out), (topic, out)
        assert all(len(line) <= 80 for line in out.splitlines()), topic
    for command in re.findall(r"^  ([a-z]+) ", vpool("help")[1].split("vpool COMMAND")[0], re.M):
        assert all(len(line) <= 80 for line in vpool(command, "--help")[1].splitlines()), command


def the_manual_is_whole():
    pages = {"vpool": vpool("help", "--man", "vpool")[1], "libvpool": vpool("help", "--man", "libvpool")[1]}
    variables = re.findall(r"`(VPOOL_\w+)`", vpool("options", "--markdown")[1])
    assert len(variables) > 10
    assert all(f".It Ev {variable}\n" in pages["libvpool"] for variable in variables)
    assert all(f".Ss vpool {command}\n" in pages["vpool"] for command in COMMANDS)
    for name, text in pages.items():
        for checker in ["mandoc", "-Tlint", "-Wwarning"], ["groff", "-mdoc", "-Tutf8", "-ww", "-z"]:
            if shutil.which(checker[0]):
                done = subprocess.run(checker, input=text, capture_output=True, text=True)
                assert not done.stdout and not done.stderr, (name, checker, done.stdout, done.stderr)


def words_are_completed():
    with tempfile.NamedTemporaryFile("w", suffix=".bash") as file:
        file.write(vpool("help", "--completion")[1])
        file.flush()
        for words, wanted, unwanted in ((["to"], "top", "run"), (["run", "--sy"], "--sync-free", "--sim"),
                                        (["run", "--policy", "=", "g"], "gmlake", "vpmm"), (["help", "wa"], "waits", "run"),
                                        (["top", "--p"], "--prometheus", "--once"), (["run", "prog", "--s"], "", "--sim")):
            script = (f"source {file.name}; COMP_WORDS=(vpool {' '.join(words)}); COMP_CWORD={len(words)}; _vpool; "
                      'echo "${COMPREPLY[@]}"')
            out = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
            assert wanted in out.stdout.split() + [""] and unwanted not in out.stdout.split() and not out.stderr, (words, out)


def other_shells_complete_too():
    """As far as they are here; what they are given can be read in any case."""
    with tempfile.TemporaryDirectory() as folder:
        for shell, name in ("fish", "vpool.fish"), ("zsh", "_vpool"):
            status, text, err = vpool("help", "--completion", shell)
            assert status == 0 and not err and all(f"{command}" in text for command in COMMANDS), (shell, err)
            assert "--policy" in text or "-l policy" in text, shell
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
        if shutil.which("fish"):
            def fish(words):
                script = f"source {folder}/vpool.fish; complete -C '{words}'"
                return [line.split("\t")[0] for line in subprocess.run(["fish", "-c", script], env={**ENV, "HOME": folder},
                                                                       capture_output=True, text=True).stdout.splitlines()]
            assert fish("vpool to") == ["top"] and "--sync-free" in fish("vpool run --sy") and fish("vpool help wa") == ["waits"]
            assert "--policy=gmlake" in fish("vpool run --policy=g"), fish("vpool run --policy=g")
        if shutil.which("zsh"):
            script = f"fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; print $_comps[vpool]; autoload -X +X _vpool"
            done = subprocess.run(["zsh", "-f", "-c", script], env={**ENV, "HOME": folder}, capture_output=True, text=True)
            assert done.stdout.startswith("_vpool") and subprocess.run(["zsh", "-n", f"{folder}/_vpool"]).returncode == 0, done
    assert vpool("help", "--completion")[1] == vpool("help", "--completion", "bash")[1]
    one_line("help", "--completion", "csh")


def wrong_arguments_get_one_line():
    one_line()
    one_line("nothing")
    one_line("help", "nothing")
    one_line("help", "--nothing")
    assert "vpool or libvpool" in vpool("help", "--man")[2] and "'csh'" in vpool("help", "--completion", "csh")[2]
    one_line("help", "--man", "nothing")
    one_line("help", "waits", "frameworks")
    one_line("options", "nothing")
    one_line("version", "nothing")
    one_line("replay", "--nothing")


TESTS = {
    "run": [run_ends_as_its_program, run_is_its_program, run_prints_the_summary, run_sets_options, run_keeps_what_is_preloaded,
            run_takes_the_library_that_has_the_policy, the_library_names_the_one_with_the_policy, the_first_of_two_libraries_serves,
            run_sizes_the_device, run_finds_what_was_installed, run_finds_what_lies_beside_it_without_proc,
            run_keeps_files_in_the_folder_of_the_command, run_keeps_a_trace_from_its_own_page, run_finds_what_it_recorded_whatever_the_time, run_tells_where_its_traces_are_where_it_is_interrupted, run_tells_of_a_trace_that_had_no_room,
            run_refuses_wrong_arguments],
    "top": [*spilled.TESTS, top_shows_a_program_at_once, top_forgets_the_dead, a_page_goes_with_its_program, a_page_is_not_taken_for_anothers,
            the_next_program_sweeps, the_page_of_a_program_with_a_mask_can_be_read,
            half_made_pages_are_swept, a_link_is_not_followed, pages_can_be_refused, a_forked_child_has_its_own,
            top_tells_of_another_version, top_sees_the_fast_path, top_keeps_a_terminal_tidy, top_trims, top_asks_for_dumps,
            top_signals_nobody, top_refuses_wrong_arguments],
    "config": config.TESTS,
    "holders": holders.TESTS,
    "lines": lines.TESTS,
    "node": node.TESTS,
    "doctor": doctor.TESTS,
    "help": [every_command_has_help, every_policy_is_named_where_it_is_taken, options_are_listed, topics_are_told, the_manual_is_whole, words_are_completed, other_shells_complete_too, wrong_arguments_get_one_line],
}

tap.run(TESTS[SUBJECT])
