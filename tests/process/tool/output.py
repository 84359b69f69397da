#!/usr/bin/env python3
"""Where the vpool command writes: what cannot be written is told and ends it, and what is no file stays what it is. TAP.

usage: output.py VPOOL
"""
# SPDX-License-Identifier: Apache-2.0
import gzip
import itertools
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../common"))
import tap

VPOOL = os.path.realpath(sys.argv[1])
ENV = {k: v for k, v in os.environ.items() if not k.startswith("VPOOL_")}
# A sanitizer's runtime comes first in programs that are run.
RUNTIMES = ENV.get("TEST_PRELOAD", "").split(":")[:-1]
if RUNTIMES:
    ENV["LD_PRELOAD"] = ":".join(RUNTIMES)
TRACE = "op,id,size,stream,us\na,1,4194304,0,0\na,2,8388608,0,1\nf,1,0,0,2\n"
PRINTING = [
    ["--help"], ["--version"], ["help"], ["help", "waits"], ["help", "--man", "vpool"], ["help", "--completion", "zsh"],
    ["help", "run"], ["run", "--help"],
    ["options"], ["options", "--markdown"], ["top", "--once"], ["top", "--json"], ["top", "--prometheus"],
    ["replay", "TRACE"], ["replay", "--json", "TRACE"], ["replay", "--json", "--policy=native", "TRACE"],
    ["plan", "TRACE"], ["plan", "--json", "TRACE"], ["plan", "show"], ["plan", "show", "--json"], ["report", "-o-", "TRACE"],
    ["export", "--perfetto", "TRACE"], ["export", "--snapshot", "TRACE"], ["export", "--rmm", "TRACE"], ["doctor", "--sim"],
]


def vpool(*args, **more):
    done = subprocess.run([VPOOL, *args], env=ENV, stderr=subprocess.PIPE, text=True, timeout=300, **more)
    # Of programs of other tests, or of another build beside this one.
    done.stderr = re.sub("^vpool top: not shown: [0-9]+ under another version of libvpool.so\n", "", done.stderr)
    return done


def commands(folder):
    trace = os.path.join(folder, "t.csv")
    with open(trace, "w") as file:
        file.write(TRACE)
    return [[trace if word == "TRACE" else word for word in words] for words in PRINTING]


def what_is_not_printed_is_told():
    with tempfile.TemporaryDirectory() as folder:
        for words in commands(folder):
            with open("/dev/full", "w") as full:
                done = vpool(*words, stdout=full)
            assert done.returncode == 1, (words, done)
            assert re.fullmatch("vpool \\w+: standard output: No space left on device\n", done.stderr), (words, done)


def a_closed_output_is_told():
    with tempfile.TemporaryDirectory() as folder:
        for words in commands(folder):
            done = vpool(*words, preexec_fn=lambda: os.close(1))
            assert done.returncode == 1, (words, done)
            assert re.fullmatch("vpool \\w+: standard output: Bad file descriptor\n", done.stderr), (words, done)
    # A program that is run has what it would have without the command.
    done = vpool("run", "--quiet", "--", "sh", "-c", "! [ -e /proc/self/fd/1 ]", preexec_fn=lambda: os.close(1))
    assert done.returncode == 0, done


def a_pipe_without_a_reader_ends_it():
    """By the signal, and without a word; whoever ignores that is told."""
    with tempfile.TemporaryDirectory() as folder:
        for words in commands(folder):
            for ignored in False, True:
                come, go = os.pipe()
                os.close(come)
                with os.fdopen(go, "w") as pipe:
                    done = vpool(*words, stdout=pipe, **{"restore_signals": not ignored})
                told = "vpool \\w+: standard output: Broken pipe\n" if ignored else ""
                assert done.returncode == (1 if ignored else -signal.SIGPIPE) and re.fullmatch(told, done.stderr), (words, ignored, done)


def writing_commands(folder, name):
    trace = os.path.join(folder, "t.csv")
    with open(trace, "w") as file:
        file.write(TRACE)
    return [["report", "-o", name, trace], ["export", "--perfetto", "-o", name, trace], ["plan", "-o", name, trace],
            ["exporter", f"--file={name}", "--once"], ["top", f"--prometheus={name}"]]


def a_pipe_stays_a_pipe():
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        for words in writing_commands(folder, pipe):
            read = []

            def hear():
                with open(pipe, "rb") as file:
                    read.append(file.read())
            reader = threading.Thread(target=hear, daemon=True)
            reader.start()
            done = vpool(*words, stdout=subprocess.DEVNULL)
            reader.join(30)
            assert done.returncode == 0 and read and read[0], (words, done)
            assert stat.S_ISFIFO(os.stat(pipe).st_mode), words
        assert sorted(os.listdir(folder)) == ["pipe", "t.csv"], os.listdir(folder)


def the_names_of_open_files_stay():
    """Where standard output is a file, /dev/stdout leads to a file: it must not be replaced all the same."""
    with tempfile.TemporaryDirectory() as folder:
        # As root a command that is wrong would take /dev/stdout away from the whole machine.
        for name in ["/proc/self/fd/1"] + ["/dev/stdout", "/dev/fd/1"] * (os.geteuid() != 0):
            for words in writing_commands(folder, name):
                with open(os.path.join(folder, "out"), "w+") as out:
                    done = vpool(*words, stdout=out)
                    assert done.returncode == 0, (words, done)
                    assert os.fstat(out.fileno()).st_size > 100, words


def little():
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


def why_a_file_is_not_written_is_told_wherever_that_fails():
    """Nothing is left to be written at its end where its last line was what filled the buffer."""
    with tempfile.TemporaryDirectory() as folder:
        trace, name = os.path.join(folder, "t.csv"), os.path.join(folder, "out")
        for events in range(60, 100):
            with open(trace, "w") as file:
                file.write("op,id,size,stream,us\n" + "".join(f"a,{i},1024,0,{i}\n" for i in range(events)))
            done = vpool("export", "--rmm", "-o", name, trace, stdout=subprocess.DEVNULL, preexec_fn=little)
            assert done.returncode == 1 and "File too large" in done.stderr and not os.path.exists(name), (events, done)


def a_file_is_whole_or_not_there():
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "out")
        for words in writing_commands(folder, name):
            for before in None, "before":
                if before:
                    with open(name, "w") as file:
                        file.write(before)
                done = vpool(*words, stdout=subprocess.DEVNULL, preexec_fn=little)
                assert done.returncode == 1 and "File too large" in done.stderr, (words, done)
                left = sorted(os.listdir(folder))
                assert left == (["out", "t.csv"] if before else ["t.csv"]), (words, left)
                if before:
                    with open(name) as file:
                        assert file.read() == before, words
                    os.unlink(name)
            assert vpool(*words, stdout=subprocess.DEVNULL).returncode == 0, words
            os.unlink(name)


def a_limit_on_files_is_the_programs_own():
    """The command goes on where a file grows too long, and a program that it starts ends by that as ever."""
    script = ["sh", "-c", "ulimit -f 0; echo too long >file"]
    with tempfile.TemporaryDirectory() as folder:
        bare = subprocess.run(script, cwd=folder, stderr=subprocess.DEVNULL, timeout=300).returncode
        done = vpool("run", "--quiet", "--", *script, cwd=folder)
        assert done.returncode == bare == -25, (bare, done)


def what_is_read_is_not_written_over():
    with tempfile.TemporaryDirectory() as folder:
        trace, link = os.path.join(folder, "t.csv"), os.path.join(folder, "link")
        os.symlink("t.csv", link)
        for name in trace, link, os.path.join(folder, ".", "t.csv"):
            for words in writing_commands(folder, name)[:3]:
                done = vpool(*words, stdout=subprocess.DEVNULL)
                assert done.returncode == 2 and "would be overwritten" in done.stderr, (words, done)
                with open(trace) as file:
                    assert file.read() == TRACE, words


def what_comes_by_a_pipe_is_read_as_a_file_is():
    """Plain and gzipped, from standard input and from a named pipe, and dumps, too: what it is is known without taking anything from it."""
    dump = json.dumps({"format": "vpool-dump", "version": 1, "devices": []}).encode()
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        for words, content in itertools.product([["replay"], ["plan"], ["report", "-o-"], ["export", "--rmm"]], [TRACE.encode(), gzip.compress(TRACE.encode()), dump]):
            if content == dump and words[0] in ("replay", "plan"):
                continue
            for name in "-", "/dev/stdin", pipe:
                writer = subprocess.Popen(["sh", "-c", f"cat >{'&1' if name != pipe else pipe}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                writer.stdin.write(content)
                writer.stdin.close()
                done = vpool(*words, name, stdin=writer.stdout, stdout=subprocess.DEVNULL)
                writer.stdout.close()
                assert done.returncode == 0 and not done.stderr and writer.wait(300) == 0, (words, name, content[:20], done)


def what_comes_by_a_socket_is_read_as_a_file_is():
    """As sshd and Node.js give it: such a standard input cannot be opened anew by its name."""
    dump = json.dumps({"format": "vpool-dump", "version": 1, "devices": []}).encode()
    for words, content in itertools.product([["replay"], ["plan"], ["report", "-o-"], ["export", "--rmm"]], [TRACE.encode(), gzip.compress(TRACE.encode()), dump]):
        if content == dump and words[0] in ("replay", "plan"):
            continue
        for name in "-", "/dev/stdin":
            ours, theirs = socket.socketpair()
            with ours, theirs:
                ours.sendall(content)
                ours.shutdown(socket.SHUT_WR)
                done = vpool(*words, name, stdin=theirs, stdout=subprocess.DEVNULL)
                assert done.returncode == 0 and not done.stderr, (words, name, content[:20], done)


def what_only_another_user_may_open_is_read():
    """A file and a pipe that a shell of root's gives to a command of somebody else's, as below sudo."""
    if os.geteuid() or subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", "test", "-x", VPOOL]).returncode:
        return
    with tempfile.TemporaryFile() as file:
        file.write(TRACE.encode())
        file.flush()
        os.fchmod(file.fileno(), 0o600)
        for words in ["replay"], ["plan"], ["report", "-o-"], ["export", "--rmm"]:
            reading, writing = os.pipe()
            os.write(writing, TRACE.encode())
            os.close(writing)
            for end in file.fileno(), reading:
                done = vpool(*words, "-", stdin=end, stdout=subprocess.DEVNULL, user=65534)
                assert done.returncode == 0 and not done.stderr, (words, end, done)
            os.close(reading)


def what_a_file_says_moves_no_cursor():
    """Whoever wrote a file that is refused shall not write to the terminal."""
    esc, ours, rmm = "\x1b]0;x\x07", TRACE.splitlines()[0], "Thread,Time,Action,Pointer,Size,Stream"
    plan = "vpool-plan,1\nmade,0.1.0,t\nplanner,vpool\ndevice,0,1,512,512\n"
    with tempfile.TemporaryDirectory() as folder:
        trace, wrong = os.path.join(folder, "t.csv"), os.path.join(folder, "wrong")
        with open(trace, "w") as file:
            file.write(TRACE)
        for text in f"{ours}\na,1,{esc},0,0\n", f"{ours}\n{esc},1,5,0,0\n", f"{rmm}\n1,0,{esc},0x1,5,0\n", f"{plan}r,{esc},0,0\n", f"{plan}{esc}\n", \
                f"{ours}\nl,1,00,/no%1b]0;x%07/such.so,0\nn,1,c,1:10,0\ns,1,0,1,0\na,1,5,0,0,1\n":
            with open(wrong, "w") as file:
                file.write(text)
            words = ["replay", "--policy=stalloc", "--plan", wrong, trace] if text.startswith(plan) else ["export", "--collapsed", wrong]
            done = vpool(*words, stdout=subprocess.DEVNULL)
            assert done.stderr and done.stderr[:-1].isprintable(), (text, done)


def what_is_endless_is_not_read_to_its_end():
    with tempfile.TemporaryDirectory() as folder:
        trace, long = os.path.join(folder, "t.csv"), os.path.join(folder, "long")
        with open(trace, "w") as file:
            file.write(TRACE)
        with open(long, "w") as file:
            file.write("x" * (1 << 20))
        for name in "/dev/zero", "/dev/urandom", long:
            for words in ["replay", name], ["report", "-o-", name], ["plan", name], ["export", "--rmm", name], \
                    ["replay", "--policy=stalloc", "--plan", name, trace], ["plan", "show", name]:
                done = vpool(*words, stdout=subprocess.DEVNULL)
                assert done.returncode == 1 and done.stderr.count("\n") == 1 and name in done.stderr, (words, done)


def a_line_without_an_end_is_not_read_for_one():
    """It would take all memory; and of what has no room for it the beginning would be taken for all of it."""
    with tempfile.TemporaryDirectory() as folder:
        trace, plan, long = (os.path.join(folder, name) for name in ("t.csv", "plan", "long"))
        for name, text in (trace, TRACE), (long, TRACE + "a,3," + "1" * (1 << 20)):
            with open(name, "w") as file:
                file.write(text)
        for words in ["replay"], ["report", "-o-"], ["plan"], ["export", "--rmm"]:
            done = vpool(*words, long, stdout=subprocess.DEVNULL)
            assert done.returncode == 1 and done.stderr == f"vpool {words[0]}: {long}:5: a line of more than 65536 bytes\n", (words, done)
        assert vpool("plan", "-o", plan, trace, stdout=subprocess.DEVNULL).returncode == 0
        with open(plan, "r+") as file:
            lines = len(file.readlines())
            file.write("r,")
            file.truncate(1 << 27)      # a hole
        done = vpool("replay", "--policy=stalloc", "--plan", plan, trace, stdout=subprocess.DEVNULL)
        assert done.returncode == 1 and done.stderr == f"vpool replay: {plan}:{lines + 1}: a line is too long\n", done


def what_begins_as_a_dump_is_read_until_it_is_none():
    with tempfile.TemporaryDirectory() as folder:
        end = os.path.join(folder, "fifo")
        os.mkfifo(end)
        for begin in b"{", b'{"format": "vpool-dump", x', b'{"a":1}':
            writer = subprocess.Popen([sys.executable, "-c", """
import sys
with open(sys.argv[1], "wb") as file:
    file.write(bytes.fromhex(sys.argv[2]))
    while True:
        file.write(b"z" * 65536)
""", end, begin.hex()], stderr=subprocess.DEVNULL)
            try:
                done = vpool("export", "--rmm", "/dev/stdin", stdin=open(end, "rb"), stdout=subprocess.DEVNULL)
                assert done.returncode == 1 and "not JSON" in done.stderr, (begin, done)
            finally:
                writer.kill()
                writer.wait()


TESTS = [
    what_comes_by_a_socket_is_read_as_a_file_is,
    what_only_another_user_may_open_is_read,
    what_a_file_says_moves_no_cursor,
    what_is_endless_is_not_read_to_its_end,
    a_line_without_an_end_is_not_read_for_one,
    what_begins_as_a_dump_is_read_until_it_is_none,
    what_is_not_printed_is_told,
    a_closed_output_is_told,
    a_pipe_without_a_reader_ends_it,
    a_pipe_stays_a_pipe,
    the_names_of_open_files_stay,
    a_file_is_whole_or_not_there,
    why_a_file_is_not_written_is_told_wherever_that_fails,
    a_limit_on_files_is_the_programs_own,
    what_comes_by_a_pipe_is_read_as_a_file_is,
    what_is_read_is_not_written_over,
]

tap.run(TESTS)
