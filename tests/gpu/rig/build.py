"""Builds libvpool.so with Meson and the test programs with nvcc."""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys
import sysconfig

PROGRAM_SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # tests/gpu
ROOT = os.path.dirname(os.path.dirname(PROGRAM_SOURCES))

# Program, source, how it gets the CUDA runtime, and which of CUDA's libraries it uses.
PROGRAMS = [
    ("context", "context.cu", "static"),
    ("pairs", "pairs.cu", "static"),
    ("churn-static", "churn.cu", "static"),
    ("churn-shared", "churn.cu", "shared"),
    ("stress", "stress.cu", "static"),
    ("planted", "planted.cu", "static"),
    ("failed", "failed.cu", "static"),
    ("peers", "peers.cu", "static"),
    ("gather", "gather.cu", "static"),
    ("copies", "copies.cu", "static"),
    ("spilled", "spilled.cu", "static"),
    ("managed_alloc.so", "managed_alloc.cu", "shared"),
    ("libraries", "libraries.cu", "shared", "cublas", "cufft", "cusolver", "curand"),
]


class BuildError(Exception):
    """A build step that failed, with the end of what it said."""


# Python's packages bring a meson and a ninja that need not be on the PATH.
ENVIRONMENT = os.environ | {"PATH": os.environ.get("PATH", "") + ":" + os.path.dirname(sys.executable)}


def call(argv, limit=300):
    try:
        done = subprocess.run(argv, cwd=ROOT, env=ENVIRONMENT, timeout=limit, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise BuildError(str(problem)) from problem
    if done.returncode:
        raise BuildError(f"{' '.join(argv)}\n" + "\n".join(done.stdout.splitlines()[-40:]))


def library(build):
    """libvpool.so, the tool, the examples and the benchmarks, in the build folder."""
    if not os.path.exists(os.path.join(build, "build.ninja")):
        call(["meson", "setup", build, ROOT, "--buildtype=release", "-Dtests=disabled"])
    call(["meson", "compile", "-C", build, "--ninja-args=everything"])
    path = os.path.join(build, "libvpool.so")
    if not os.path.exists(path):
        raise BuildError(f"the build made no {path}")
    return path


def is_of(build, tree):
    """Is this that tree's build folder?"""
    try:
        with open(os.path.join(build, "meson-info/meson-info.json")) as file:
            return os.path.realpath(json.load(file)["directories"]["source"]) == os.path.realpath(tree)
    except (OSError, ValueError, KeyError):
        return False


def other_library(tree, build):
    """The libvpool.so of another source tree, built here as this one is: compilers differ by more than versions do."""
    if os.path.exists(os.path.join(build, "build.ninja")) and not is_of(build, tree):
        shutil.rmtree(build)
    if not os.path.exists(os.path.join(build, "build.ninja")):
        call(["meson", "setup", build, tree, "--buildtype=release", "-Dtests=disabled"])
    call(["ninja", "-C", build, "libvpool.so"])
    return os.path.join(build, "libvpool.so")


def nvcc():
    found = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if not found:
        raise BuildError("nvcc is neither on the PATH nor in /usr/local/cuda/bin")
    return found


def folders(kind):
    """Where CUDA's headers ("include") or libraries ("lib") lie: in the toolkit, and among Python's packages."""
    toolkit = os.path.dirname(os.path.dirname(os.path.realpath(nvcc())))
    packages = sysconfig.get_paths()["purelib"]
    return [folder for pattern in (f"{toolkit}/{kind}64", f"{toolkit}/{kind}", f"{toolkit}/targets/*/{kind}",
                                   f"{packages}/nvidia/*/{kind}")
            for folder in sorted(glob.glob(pattern))]


def folder_of(library):
    """Where lib<library>.so.N lies. None: left to the loader."""
    return next((folder for folder in folders("lib") if glob.glob(f"{folder}/lib{library}.so.*")), None)


def runtime_folder():
    return folder_of("cudart")


def compile_one(into, architecture, name, source, runtime, *libraries):
    program, source = os.path.join(into, name), os.path.join(PROGRAM_SOURCES, source)
    sources = glob.glob(PROGRAM_SOURCES + "/*.cu*") + glob.glob(PROGRAM_SOURCES + "/../common/*.h")
    newest = max(os.path.getmtime(path) for path in sources)
    if os.path.exists(program) and os.path.getmtime(program) > newest:
        return
    argv = [nvcc(), "-O2", "-std=c++17", "-cudart", runtime, "-o", program, source]
    if name.endswith(".so"):
        argv += ["-shared", "-Xcompiler", "-fPIC"]
    if architecture:
        argv.insert(1, "-arch=" + architecture)
    if libraries:
        argv += [f"-I{folder}" for folder in folders("include")]
    for library in ("cudart", *libraries) if runtime == "shared" else libraries:
        folder = folder_of(library)
        if folder:
            argv += ["-L" + linkable(folder, library, into), "-Xlinker", "-rpath", "-Xlinker", folder]
        if library != "cudart":
            argv.append("-l" + library)
    call(argv)


def linkable(folder, library, into):
    """A folder where the linker finds lib<library>.so; Python's packages have the numbered name alone."""
    if os.path.exists(f"{folder}/lib{library}.so"):
        return folder
    links = os.path.join(into, "lib")
    os.makedirs(links, exist_ok=True)
    link = os.path.join(links, f"lib{library}.so")
    if not os.path.lexists(link):
        os.symlink(sorted(glob.glob(f"{folder}/lib{library}.so.*"))[-1], link)
    return links


def programs(into, architecture, names=None):
    """The test programs, or those named; returns what went wrong, by program."""
    os.makedirs(into, exist_ok=True)
    problems = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        started = {pool.submit(compile_one, into, architecture, *program): program[0]
                   for program in PROGRAMS if names is None or program[0] in names}
        for future, name in started.items():
            try:
                future.result()
            except BuildError as problem:
                problems[name] = str(problem)
    return problems
