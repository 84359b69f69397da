"""Tests of what is for a whole node: all users' processes and containers in `vpool top`, and Prometheus; for tool.py."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import tap
from guests import ENV, GUEST, Guest, MIB, RUNTIMES, VPOOL, one_line, page, top, until, vpool
from terminal import Terminal

SERIES = re.compile(r'(vpool_[a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\})? ([0-9.]+)')
# What `promtool check metrics` minds: units that are no base units, in any part of a name.
NO_UNITS = {"ns", "nanoseconds", "us", "microseconds", "ms", "milliseconds", "minutes", "hours", "kb", "mb", "gb", "kilobytes",
            "megabytes", "gigabytes", "kibibytes", "mebibytes", "gibibytes", "bits", "percent"}


def metrics(text):
    """{name: [(labels, value)]}, after Prometheus's rules for the text and for names have been looked at."""
    found, kinds, helped, last = {}, {}, set(), None
    assert text.endswith("\n") and "\n\n" not in text
    for line in text.splitlines():
        help, kind = re.fullmatch(r"# HELP (vpool_[a-z_]+) (.+)", line), re.fullmatch(r"# TYPE (vpool_[a-z_]+) (gauge|counter)", line)
        if help:
            assert help[1] not in helped, line
            helped.add(help[1])
            last = help[1]
        elif kind:
            assert kind[1] == last and kind[1] not in kinds, line
            kinds[kind[1]] = kind[2]
        else:
            series = SERIES.fullmatch(line)
            assert series and series[1] == last and series[1] in kinds, line
            labels = dict(re.findall(r'([a-z]+)="((?:[^"\\]|\\.)*)"', series[2] or ""))
            found.setdefault(series[1], []).append((labels, float(series[3])))
    for name, kind in kinds.items():
        words = name.split("_")
        assert (kind == "counter") == name.endswith("_total"), name
        assert not NO_UNITS & set(words) and not {"gauge", "counter", "count", "sum", "bucket"} & set(words), name
        assert all(words.index(unit) in (len(words) - 1, len(words) - 2) for unit in ("bytes", "seconds") if unit in words), name
    for name, series in found.items():
        assert len({tuple(sorted(labels.items())) for labels, _ in series}) == len(series), name
        assert len({tuple(labels) for labels, _ in series}) == 1, name
    return found


def of(series, pid):
    return [(labels, value) for labels, value in series if labels["pid"] == str(pid)]


def metrics_can_be_read():
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5", env={"RANK": "3", "WORLD_SIZE": "8"}) as guest, \
            tempfile.TemporaryDirectory() as folder:
        assert until(lambda: of(metrics(vpool("top", "--prometheus", guest.pid)[1]).get("vpool_allocs_total", []), guest.pid))
        status, out, err = vpool("top", "--prometheus", guest.pid)
        assert status == 0 and not err
        found = metrics(out)
        (labels, live), = found["vpool_live_bytes"]
        assert live == 5 * MIB and found["vpool_allocs_total"][0][1] == 1 and found["vpool_device_memory_bytes"][0][1] > live
        assert labels["program"] == "guest" and labels["rank"] == "3" and labels["container"] == "" and labels["policy"] == "vpool"
        assert labels["user"] and labels["device"] == "0" and re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}", labels["pci"]), labels
        with open(os.path.join(os.path.dirname(__file__), "../../../docs/cluster.md")) as documented:
            assert set(found) >= set(re.findall(r"`(vpool_[a-z_]+)`", documented.read()))
        assert found["vpool_driver_seconds_total"][0][1] < 10 and abs(found["vpool_start_time_seconds"][0][1] - time.time()) < 60
        file = os.path.join(folder, "vpool.prom")
        assert vpool("top", f"--prometheus={file}", guest.pid)[0] == 0
        assert set(metrics(open(file).read())) == set(found) and os.listdir(folder) == ["vpool.prom"], os.listdir(folder)
        assert vpool("exporter", f"--file={file}", "--once")[0] == 0
        assert of(metrics(open(file).read())["vpool_live_bytes"], guest.pid)[0][1] == 5 * MIB
        assert os.listdir(folder) == ["vpool.prom"] and os.stat(file).st_mode & 0o777 == 0o644
        assert vpool("top", f"--prometheus={folder}/none/file")[0] == vpool("exporter", f"--file={folder}/none/file", "--once")[0] == 1


def nobody_is_told_of_twice():
    """Whoever owns a page may copy it, and write into it what he likes: the figures of all others stay good."""
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
        copies = [page(guest.pid + 100000), page(guest.pid).replace(f"-{os.geteuid()}-", f"-{os.geteuid() + 1}-")]
        try:
            for copy in copies:
                shutil.copyfile(page(guest.pid), copy)
            found = metrics(vpool("top", "--prometheus", guest.pid)[1])
            assert all(len(found[name]) == 1 for name in found), found
            with open(page(guest.pid), "r+b") as file:      # `devices`: behind the program's name, five counters and one of 8 bytes
                at = (file.read().index(b"guest\0") + 32 + 5 * 4 + 7) // 8 * 8 + 8
                file.seek(at)
                assert file.read(4) == b"\1\0\0\0"
                file.seek(at)
                file.write(b"\20\0\0\0")
            found = metrics(vpool("top", "--prometheus", guest.pid)[1])
            assert [series[1] for series in found["vpool_live_bytes"]] == [5 * MIB], found["vpool_live_bytes"]
        finally:
            for copy in copies:
                if os.path.exists(copy):
                    os.unlink(copy)


class Exporter:
    """`vpool exporter` on a port of its own."""

    def __init__(self, address="127.0.0.1:0"):
        self.process = subprocess.Popen([VPOOL, "exporter", f"--listen={address}"], env=ENV, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        self.port = int(re.search(r":(\d+)/metrics$", self.url)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


def the_exporter_answers():
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest, Exporter() as exporter:
        answer = urllib.request.urlopen(exporter.url, timeout=300)
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", answer.headers
        assert of(metrics(answer.read().decode())["vpool_live_bytes"], guest.pid)[0][1] == 5 * MIB
        for path, status in ("/nothing", 404), ("/metrics/x", 404), ("/", 200), ("/metrics?a=b", 200):
            try:
                assert urllib.request.urlopen(exporter.url.replace("/metrics", path), timeout=300).status == status
            except urllib.error.HTTPError as error:
                assert error.code == status, (path, error)
        # What is no request, is slow, or breaks off, is survived.
        for text in b"", b"\0" * 20000, b"POST /metrics HTTP/1.1\r\n\r\n", b"GET", b"GET \r\n\r\n", b"HEAD /metrics HTTP/1.0\r\n\r\n":
            with socket.create_connection(("127.0.0.1", exporter.port), timeout=300) as client:
                try:
                    client.sendall(text)
                    client.shutdown(socket.SHUT_WR)
                    got = client.recv(100)
                except OSError:     # it has seen enough
                    got = b""
            assert not text.startswith(b"POST") or b" 405 " in got, got
            assert not text.startswith(b"HEAD") or b" 200 " in got, got
        assert urllib.request.urlopen(exporter.url, timeout=300).status == 200
        assert vpool("exporter", f"--listen=127.0.0.1:{exporter.port}")[0] == 1


def this_machine_has_a_name_and_each_metric_a_line():
    with open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../docs/cluster.md")) as page:
        told = page.read()
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5"), Exporter("localhost:0") as exporter:
        assert exporter.url.startswith("http://127.0.0.1:"), exporter.url
        found = metrics(urllib.request.urlopen(exporter.url, timeout=300).read().decode())
        assert len(found) > 20 and all(f"`{name}`" in told for name in found), [name for name in found if f"`{name}`" not in told]


@tap.by_the_clock
def nobody_keeps_the_exporter_from_others():
    with Exporter() as exporter:
        idle = [socket.create_connection(("127.0.0.1", exporter.port), timeout=300) for _ in range(100)]
        try:
            for client in idle[::10]:     # each answer takes a while, under a sanitizer above all
                try:
                    client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")     # and never takes the answer
                except OSError:     # it had to make room
                    pass
            begin = time.monotonic()
            assert urllib.request.urlopen(exporter.url, timeout=300).status == 200 and time.monotonic() - begin < 1.5
            assert len(os.listdir(f"/proc/{exporter.process.pid}/fd")) < 80
        finally:
            for client in idle:
                client.close()


def the_exporter_refuses_wrong_arguments():
    one_line("exporter", "--listen=local:80")
    one_line("exporter", "--listen=localhost2:80")
    one_line("exporter", "--listen=127.0.0.1:70000")
    one_line("exporter", "--listen=")
    one_line("exporter", "--once")
    one_line("exporter", "--file=x", "--listen=80")
    one_line("exporter", "here")
    one_line("exporter", "--file=x", "-d", "0")


def shown(pid=None, **env):
    found = json.loads(vpool("top", "--json", **env)[1])["processes"]
    return [p for p in found if pid in (None, p["pid"])]


def root_sees_other_users():
    if os.geteuid() or RUNTIMES:
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        other = subprocess.Popen([VPOOL, "run", "--sim", "--quiet", GUEST, "open", "alloc=5", "sleep=60"], env=ENV, user=65534,
                                 group=65534, extra_groups=[], cwd=folder, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            for line in other.stdout:
                if line.strip() == "alloc=5":
                    break
            else:
                return      # the build is not for others to read
            process, = shown(other.pid)
            assert process["user"] == "nobody" and process["devices"][0]["live_bytes"] == 5 * MIB and "container" not in process
            assert "nobody" in vpool("top", "--once", other.pid)[1]
            assert of(metrics(vpool("top", "--prometheus")[1])["vpool_held_bytes"], other.pid)[0][0]["user"] == "nobody"
            # Another user sees nothing of it, and root is not led astray by what others put there.
            mine = subprocess.run([VPOOL, "top", "--json"], env=ENV, user=65533, group=65533, extra_groups=[], capture_output=True, text=True)
            assert json.loads(mine.stdout)["processes"] == [], mine
            forged = f"/dev/shm/vpool-65533-{other.pid}"
            shutil.copyfile(f"/dev/shm/vpool-65534-{other.pid}", forged)
            os.chown(forged, 65533, 65533)
            try:
                assert len(shown(other.pid)) == 1
            finally:
                os.unlink(forged)
        finally:
            other.kill()
            other.wait()
            other.stdout.close()
            os.unlink(f"/dev/shm/vpool-65534-{other.pid}")


def root_sees_into_containers():
    """One with processes, mounts and a /dev/shm of its own."""
    if os.geteuid() or RUNTIMES or subprocess.run(["unshare", "-p", "-m", "-f", "true"], stderr=subprocess.DEVNULL).returncode:
        return
    script = 'mount -t tmpfs tmpfs /dev/shm && mount -t proc proc /proc && exec "$0" "$@"'
    inside = subprocess.Popen(["unshare", "-p", "-m", "-f", "sh", "-c", script, VPOOL, "run", "--sim", "--quiet", GUEST, "open",
                               "alloc=7", "sleep=60"], env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        for line in inside.stdout:
            if line.strip() == "alloc=7":
                break
        with open(f"/proc/{inside.pid}/task/{inside.pid}/children") as file:
            pid = int(file.read())
        process, = shown(pid)
        assert process["container"].startswith("ns") and process["devices"][0]["live_bytes"] == 7 * MIB, process
        assert not os.path.exists(page(pid)) and not os.path.exists(page(1))
        assert re.search(rf"^ *{pid} .*ns\d+", vpool("top", "--once", pid)[1], re.M)
        terminal = Terminal(pid)
        terminal.read("guest")
        terminal.press(b"t")
        terminal.read("gives idle memory back")
        terminal.press(b"q")
        terminal.end()
    finally:
        subprocess.run(["kill", "-9", str(pid)])
        inside.wait()
        inside.stdout.close()


def a_small_screen_shows_the_command():
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
        for columns in 60, 80, 120:
            terminal = Terminal(guest.pid)
            terminal.size(24, columns)
            wanted = "POLICY.*COMMAND.*guest open" if columns >= 80 else "COMMAND.*guest open"
            text = ""
            def seen():
                nonlocal text
                text = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", terminal.read(r"\033\[H(.*\n)+.*\033\[J"))
                return re.search(wanted, text, re.S) and max(map(len, text.replace("\r", "").splitlines()[-10:])) <= columns
            assert until(seen), (columns, text)
            assert columns < 80 or "vpool" in text and "alloc=5" in text, text
            terminal.press(b"q")
            terminal.end()


def wide_figures_keep_their_columns():
    """Thousands of failures, a rank of five digits, the policy with the longest name."""
    env = {"RANK": "12345", "WORLD_SIZE": "20000", "VPOOL_POLICY": "stalloc", "VPOOL_LOG": "quiet"}
    with Guest("open", *1200 * ["try=99999"], "alloc=1", "sleep=60", last="alloc=1", env=env) as guest:
        assert until(lambda: top(guest.pid)["devices"][0]["ooms"] == 1200), top(guest.pid)
        head, row = vpool("top", "--once", guest.pid)[1].splitlines()[2:4]
        for name in "RANK", "OOM", "HELD":
            end = head.index(f" {name} ") + len(name) + 1
            assert row[end - 1] != " " and row[end] == " ", (name, head, row)
        terminal = Terminal(guest.pid)
        terminal.size(24, 80)
        terminal.read(" 12345 .* 1200 stalloc guest", 10)
        terminal.press(b"q")
        terminal.end()


def top_has_a_process_that_makes_no_call_count():
    """What its stream's cache has is not alive, and idle memory goes back though it never calls again."""
    with Guest("open", "async=24", "async=4", "leave", "leave", "line", last="async=4") as guest:
        device = None

        def counted():
            nonlocal device
            device = top(guest.pid)["devices"][0]
            return device["live_bytes"] == 0
        assert until(counted, 5) is not None, device
        assert device["held_bytes"] >= 28 * MIB and device["frees"] == 2, device
        terminal = Terminal(guest.pid)
        terminal.read("guest")
        terminal.press(b"t")
        assert until(lambda: top(guest.pid)["devices"][0]["held_bytes"] < 24 * MIB, 5) is not None, top(guest.pid)
        terminal.press(b"q")
        terminal.end()


def a_large_screen_shows_the_devices():
    with Guest("open", "alloc=5", "sleep=60", last="alloc=5") as guest:
        terminal = Terminal(guest.pid)
        terminal.size(50, 160)
        terminal.read(r"GPU [0-9a-f:]+ \[#+-* *\] 5.0M live \(#\), [0-9.]+M held \(-\) of [0-9.]+[MG], 1 process", 10)
        terminal.read(r" [0-9.]+M\|.*[#-].*\n       \|.*[#-]", 10)
        terminal.read(r" 0B\|.*#", 10)
        terminal.size(20, 80)
        terminal.press(b"?")
        terminal.read("have it write a dump")
        terminal.read("newest on the right", 10)
        terminal.press(b"?")
        terminal.read("COMMAND")
        terminal.press(b"q")
        terminal.end()


TESTS = [metrics_can_be_read, nobody_is_told_of_twice, the_exporter_answers, this_machine_has_a_name_and_each_metric_a_line, nobody_keeps_the_exporter_from_others,
         the_exporter_refuses_wrong_arguments, root_sees_other_users,
         root_sees_into_containers, a_small_screen_shows_the_command, wide_figures_keep_their_columns, top_has_a_process_that_makes_no_call_count, a_large_screen_shows_the_devices]
