"""Tests of `vpool doctor`, for tool.py."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

from guests import COMPARE, ENV, GUEST, LIBRARY, RUNTIMES, VPOOL, is_plain, one_line, vpool


def lines_of(*args, **env):
    """Exit status, and the lines of the doctor itself, by their marks."""
    status, out, err = vpool("doctor", *args, **env)
    lines = [line for line in out.splitlines() if not re.fullmatch(r"(open|\w+=\d+)", line)]
    assert is_plain(out) and all(re.match("(ok|--|!!)  .", line) for line in lines), out
    marks = {mark: [line[4:] for line in lines if line.startswith(mark)] for mark in ("ok", "--", "!!")}
    assert status == bool(marks["!!"]), (status, out)
    return status, marks


def has(lines, text):
    return any(re.search(text, line) for line in lines)


def doctor_finds_all_well():
    status, said = lines_of("--sim")
    assert status == 0, said
    assert has(said["ok"], "driver API 13.0") and has(said["ok"], f"library {re.escape(LIBRARY)}"), said
    assert has(said["ok"] + said["--"], r"device 0.* virtual memory management"), said
    assert has(said["ok"], "allocates from the pool, by .*cuMemAlloc.*cuMemAllocAsync"), said
    assert has(said["--"], "PyTorch keeps its own cache") and has(said["ok"], "sets TF_GPU_ALLOCATOR=cuda_malloc_async"), said
    said = lines_of("--sim", VPOOL_ADOPT="async")[1]
    assert has(said["ok"], "sets PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync") and not has(said["--"], "keeps its own cache"), said


def doctor_misses_the_driver():
    if subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], env=ENV, stderr=subprocess.DEVNULL).returncode == 0:
        return
    status, said = lines_of()
    assert status == 1 and has(said["!!"], "no driver: "), said


def doctor_knows_what_a_device_lacks():
    without_pools = "JAX and TensorFlow are told to use memory pools, and fail without them: set VPOOL_ADOPT=0"
    for sim, text in ("vmm=0", "lacks virtual memory management"), ("vmm=0", f": {without_pools}"), ("driver=11020", "too old"):
        status, said = lines_of("--sim", VPOOL_SIM=sim)
        assert status == 1 and has(said["!!"], text), said
    said = lines_of("--sim", VPOOL_SIM="vmm=0", VPOOL_ADOPT="async")[1]
    assert has(said["!!"], f": PyTorch, {without_pools}"), said
    for leaves in {"VPOOL_ADOPT": "0"}, {"VPOOL_POLICY": "native"}:
        said = lines_of("--sim", VPOOL_SIM="vmm=0", **leaves)[1]
        assert not has(said["!!"], without_pools), said


def doctor_reads_the_environment():
    status, said = lines_of("--sim", VPOOL_WAIT="sometimes", VPOOL_POLICI="vpmm", VPOOL_ADOPT="0")
    assert status == 1 and has(said["!!"], "VPOOL_WAIT=sometimes is not valid") and has(said["!!"], "did you mean VPOOL_POLICY"), said
    assert has(said["--"], "VPOOL_ADOPT=0"), said
    status, said = lines_of("--sim", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert status == 1 and has(said["!!"], "PYTORCH_CUDA_ALLOC_CONF is set and kept"), said


def doctor_needs_no_driver_for_the_environment():
    said = lines_of(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")[1]
    assert has(said["!!"], "PYTORCH_CUDA_ALLOC_CONF is set and kept") and sum("is set and kept" in line for line in said["!!"]) == 1, said
    for agrees in "backend:cudaMallocAsync", "max_split_size_mb:128", "expandable_segments:False", "expandable_segments:True,backend:cudaMallocAsync":
        assert not has(lines_of(PYTORCH_CUDA_ALLOC_CONF=agrees)[1]["!!"], "is set and kept"), agrees
    for kept in {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128", "VPOOL_POISON": "1"}:
        assert has(lines_of(**kept)[1]["!!"], "PYTORCH_ALLOC_CONF is set and kept"), kept
    assert not has(lines_of(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", VPOOL_ADOPT="0")[1]["!!"], "is set and kept")


def doctor_misses_what_is_preloaded():
    said = lines_of("--sim", LD_PRELOAD=":".join(RUNTIMES + ["/nowhere/libvpool.so"]))[1]
    assert has(said["!!"], "LD_PRELOAD names /nowhere/libvpool.so: No such file") and not has(said["ok"], "LD_PRELOAD names"), said


def doctor_knows_file_capabilities():
    if os.geteuid() or not shutil.which("setcap"):
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(shutil.which("true"), folder + "/able")
        if subprocess.run(["setcap", "cap_net_bind_service+ep", program], stderr=subprocess.DEVNULL).returncode:
            return
        done = subprocess.run([VPOOL, "run", "--quiet", program], env=ENV, user=65534, capture_output=True, text=True)
        assert "has file capabilities" in done.stderr or "Permission denied" in done.stderr, done


def doctor_knows_both_libraries():
    def of(library, **more):
        return lines_of("--sim", LD_PRELOAD=":".join(RUNTIMES + [library]), **more)
    for library, policy in (LIBRARY, "vpool"), (COMPARE, "vpool"), (COMPARE, "es"):
        status, said = of(library, VPOOL_POLICY=policy)
        assert status == 0 and has(said["ok"], f"LD_PRELOAD names {os.path.basename(library)}: "), (library, policy, said)
    status, said = of(LIBRARY, VPOOL_POLICY="es")
    assert status == 1 and has(said["!!"], "LD_PRELOAD names libvpool.so, but .* only libvpool-compare.so has"), said
    status, said = lines_of("--sim", GUEST, "open", "alloc=3", VPOOL_POLICY="es")
    assert status == 0 and has(said["ok"], f"library {re.escape(COMPARE)}") and has(said["ok"], "was served 1 allocation"), said


def doctor_tells_what_a_program_did():
    status, said = lines_of("--sim", "--", GUEST, "open", "alloc=3", "async=4", "capture")
    assert status == 0, said
    assert has(said["ok"], r"the program .* was served 2 allocations on 1 device, by cuMemAlloc, .*cuMemAllocAsync; peak live 7.0 MiB"), said
    assert has(said["--"], "cuMemAllocAsync went on to CUDA 1 times: the stream captures"), said
    status, said = lines_of("--sim", GUEST, "fork", "open", "alloc=3", "exit=5")
    assert status == 0 and has(said["ok"], "its child .* was served 1 allocation") and has(said["--"], "exit status 5"), said


def doctor_tells_what_was_not_served():
    status, said = lines_of("--sim", "true")
    assert status == 1 and has(said["!!"], "no process used CUDA") and not has(said["!!"], "not seen in the program"), said
    status, said = lines_of("--sim", "sleep", "1")
    assert status == 1 and has(said["!!"], "libvpool.so was in the program"), said
    loads = "import ctypes, time; ctypes.CDLL('libcuda.so.1'); time.sleep(1)"
    status, said = lines_of("--sim", "--", sys.executable, "-c", loads)
    assert status == 1 and has(said["!!"], "and the driver, but no process used CUDA through it: .*RTLD_DEEPBIND"), said
    status, said = lines_of("--sim", "--", "/nowhere/program")
    assert status == 1 and has(said["!!"], "^the program could not be started$") and not has(said["--"], "ended with"), said
    assert not has(said["!!"], "through libvpool.so"), said
    status, said = lines_of("--sim", GUEST, "open", "alloc=3", "kill=9")
    assert status == 1 and has(said["!!"], "ended by signal 9"), said
    status, said = lines_of("--sim", GUEST, "open", "alloc=3", VPOOL_POLICY="native")
    assert status == 1 and has(said["!!"], "vpool served nothing") and has(said["--"], "cuMemAlloc went on"), said


def doctor_tells_of_what_is_ended_from_outside():
    """As by `timeout 60 vpool doctor -- PROGRAM`: the program ends by the signal, and what it did is told."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and so would the doctor
    for number in signal.SIGTERM, signal.SIGHUP:
        doctor = subprocess.Popen([VPOOL, "doctor", "--sim", GUEST, "open", "alloc=3", "sleep=60"], env=ENV, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = ""
        while "alloc=3" not in said:
            line = doctor.stdout.readline()
            assert line, said
            said += line
        doctor.send_signal(number)
        out, err = doctor.communicate(timeout=300)
        assert doctor.returncode == 0 and f"--  the program was ended by signal {int(number)}" in out and "not known" not in out, (out, err)
        assert "was served 1 allocation" in out, (out, err)


def doctor_passes_on_what_ends_it_while_it_starts_the_program():
    preload = ":".join([*RUNTIMES, os.environ["TEST_ENDS_FORKING"]])
    status, out, _ = vpool("doctor", "--sim", GUEST, "open", "alloc=3", "sleep=60", LD_PRELOAD=preload)
    assert status >= 0 and "  the program was ended by signal 15" in out, (status, out)


def doctor_leaves_ignored_signals_ignored():
    """As those of a shell's background job are: the program is started as it is without the doctor."""
    asks = "import signal; print([int(signal.getsignal(s) == signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGQUIT)])"
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        for ignored in (1, 0), (0, 1), (0, 0):
            for number, is_ignored in zip(before, ignored):
                signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
            assert str(list(ignored)) in vpool("doctor", "--sim", "--", sys.executable, "-c", asks)[1], ignored
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def doctor_sees_obstacles():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "static")
        # An ELF program without an interpreter, that does nothing but exit(0).
        code = bytes.fromhex("31ffb83c0000000f05")
        header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, 0x400078, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 120 + len(code), 120 + len(code), 4096)
        with open(program, "wb") as file:
            file.write(header + segment + code)
        os.chmod(program, 0o755)
        status, said = lines_of("--sim", program)
        assert status == 1 and has(said["!!"], "linked statically"), said
        assert "linked statically" in vpool("run", program)[2]
        script = os.path.join(folder, "script")
        with open(script, "w") as file:
            file.write(f"#!{program}\n")
        os.chmod(script, 0o755)
        assert "linked statically" in vpool("run", script)[2]


def doctor_sees_a_full_folder_of_pages():
    """As where a container has little of it, and others' files take that."""
    if os.geteuid() or RUNTIMES or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        return
    script = 'mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero >/dev/shm/full && exec "$0" doctor --sim'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, VPOOL], env={**ENV, "VPOOL_PAGE": "1"}, capture_output=True,
                          text=True, timeout=300)
    assert "--  /dev/shm: No space left on device: processes do not see each other there" in done.stdout, done


def doctor_cleans_up():
    """In the folder for such things that the environment names, wherever the program goes."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/sub")
        script = 'cd sub && echo "$VPOOL_STATS" && exec "$0" open alloc=3'
        done = subprocess.run([VPOOL, "doctor", "--sim", "--", "sh", "-c", script, GUEST], env={**ENV, "TMPDIR": "."}, cwd=folder,
                              capture_output=True, text=True, timeout=300)
        assert f"\n{os.path.realpath(folder)}/vpool-doctor-" in done.stdout and "was served 1 allocation" in done.stdout, done
        assert os.listdir(folder) == ["sub"], os.listdir(folder)
    # As that of a job that is over.
    status, said = lines_of("--sim", TMPDIR="/nonexistent")
    assert not status, said


def doctor_refuses_wrong_arguments():
    one_line("doctor", "--nothing")
    for size in "lots", "1K", "65T", "0", "-1":
        one_line("doctor", f"--sim={size}")
        one_line("run", f"--sim={size}", "true")


TESTS = [doctor_finds_all_well,
         doctor_sees_a_full_folder_of_pages,
         doctor_misses_the_driver,
         doctor_knows_what_a_device_lacks,
         doctor_reads_the_environment,
         doctor_needs_no_driver_for_the_environment,
         doctor_misses_what_is_preloaded,
         doctor_knows_file_capabilities,
         doctor_knows_both_libraries,
         doctor_tells_what_a_program_did,
         doctor_tells_what_was_not_served,
         doctor_tells_of_what_is_ended_from_outside,
         doctor_passes_on_what_ends_it_while_it_starts_the_program,
         doctor_leaves_ignored_signals_ignored,
         doctor_sees_obstacles,
         doctor_cleans_up,
         doctor_refuses_wrong_arguments]
