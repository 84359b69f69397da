#!/usr/bin/env python3
"""Does clang see whether the library's locks are held (base/thread_safety.h)? Reports in TAP; skipped where there is no clang.

usage: locks.py BUILD CUDA_HEADERS

As the sources are it has nothing to say. Then each case of BROKEN takes a lock away from a function, and clang must refuse the file.
"""
# SPDX-License-Identifier: Apache-2.0
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "common"))
import tap

ROOT = Path(__file__).resolve().parent.parent.parent
INCLUDES = [ROOT / "src", ROOT / "include", ROOT / "third_party", ROOT / "preload", Path(sys.argv[1]) / "preload", Path(sys.argv[2])]

# A file, what stands there, and what breaks it; what clang says of that.
BROKEN = {
    "what is asked for is summed up without the lock": (
        "src/process/borrow.c",
        "        const uint64_t want = asks ? worth_asking(pool, lack, &last) : 0;\n",
        "        vp_step_out();\n        const uint64_t want = asks ? worth_asking(pool, lack, &last) : 0;\n        vp_step_in();\n",
        "calling function 'worth_asking' requires holding mutex 'vp_library_lock'"),
    "a way out keeps the lock": (
        "src/process/query.c", "    vp_leave();\n", "", "mutex 'vp_library_lock' is not held on every path"),
    "the answer of vp_enter() is not looked at": (
        "src/process/ties.c", "    if (!vp_enter())\n        return;\n", "    vp_enter();\n", "requires holding mutex 'vp_library_lock'"),
    "a list of the state is read without the lock": (
        "src/process/foreign.c", "!handle || !vp_enter()", "!handle", "requires holding mutex 'vp_library_lock'"),
    "a pool is called without the lock": (
        "src/process/bare.c", "!bare || captures() || !vp_enter_briefly()", "!bare || captures()",
        "calling function 'vp_bare_crowded' requires holding mutex 'vp_library_lock'"),
    "chunks are copied without the lock": (
        "src/watch/snapshot.c", "static VP_LOCKED void add_chunks(", "static void add_chunks(",
        "calling function 'vp_mapping_at' requires holding mutex 'vp_library_lock'"),
    "a stream cache is looked at without its own lock": (
        "src/pool/stream_cache.c", "    cache_lock(cache);\n", "", "requires holding mutex 'cache->lock'"),
    "driver calls of ours do not end": (
        "src/process/fast.c", "    vp_calls_end();\n", "", "mutex 'vp_own_calls' is not held on every path"),
    "the trace is written without its lock": (
        "src/watch/trace.c", "    if (!vp_trace_lock())\n        return;\n", "", "requires holding mutex 'vp_trace_guard'"),
    "the peak is added to without its lock": (
        "src/watch/stack_peak.c", "    vp_lock_take(&vp_stack_peak_guard);\n", "", "requires holding mutex 'vp_stack_peak_guard'"),
}


def refused(path, text=None):
    """What clang says of a file, or of one that were in its place."""
    command = ["clang", "-std=gnu11", "-fsyntax-only", "-fno-color-diagnostics", "-D_GNU_SOURCE", '-DVP_VERSION=""',
               "-Wthread-safety", "-Werror=thread-safety", "-Werror=ignored-attributes", "-Wno-unknown-warning-option"]
    command += [f"-I{folder}" for folder in INCLUDES]
    source = text if text is not None else (ROOT / path).read_text()
    run = subprocess.run(command + [f"-I{(ROOT / path).parent}", "-x", "c", "-"], input=source, capture_output=True, text=True)
    return run.stderr if run.returncode else ""


def case(name):
    path, there, broken, message = BROKEN[name]

    def test():
        text = (ROOT / path).read_text()
        assert there in text, f"{path}: not found: {there!r}"
        said = refused(path)
        assert not said, f"{path}, as it is: {said}"
        said = refused(path, text.replace(there, broken, 1))
        assert message in said, f"{path}: {said or 'clang sees nothing'}"

    test.__name__ = name.replace(" ", "_")
    return test


def the_child_of_a_fork_finds_each_lock_free():
    texts = {path: path.read_text() for top in ("src", "preload") for path in (ROOT / top).rglob("*.[ch]")}
    everything = "\n".join(texts.values())
    listed = "".join(re.findall(r"struct vp_lock \*const \w+\[\] = \{(.*?)\};", texts[ROOT / "src/watch/watch.c"], re.S))
    for path, text in texts.items():
        for indented, name in re.findall(r"^( *)(?:static )?(?:_Alignas\(64\) )?struct vp_lock (\w+);", text, re.M):
            assert f"vp_lock_reset(&{name})" in everything or re.search(rf"&{name}\b", listed) or (indented and f".{name})" in text), f"{path}: {name} stays taken"


if __name__ == "__main__":
    if shutil.which("clang"):
        tap.run([the_child_of_a_fork_finds_each_lock_free] + [case(name) for name in BROKEN])
    else:
        print("1..0 # SKIP there is no clang")
