#!/usr/bin/env python3
"""What is installed, and the wheel and Debian's package made of that: are they whole, and do they work? Reports in TAP.

usage: packages.py SOURCE BUILD
"""
# SPDX-License-Identifier: Apache-2.0
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
SOURCE, BUILD = (Path(argument).resolve() for argument in sys.argv[1:3])
sys.path[:0] = [str(SOURCE / "tests/common"), str(SOURCE / "scripts/lib")]
import elf_needs
import packages
import tap

FOLDER = Path(tempfile.mkdtemp(prefix="vpool-packages-"))
PROGRAM = """
import ctypes, vpool
assert vpool.preloaded() and vpool.version() == vpool.__version__ == "{release}", (vpool.version(), vpool.__version__)
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert not cuda.cuInit(0) and not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not cuda.cuCtxSetCurrent(context)
assert not cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(3 << 20))
assert vpool.stats().live_bytes == 3 << 20 and vpool.snapshot()["devices"]
print("served", vpool.__file__)
"""


def staged(name):
    """An installation of the build, afresh."""
    return packages.stage(BUILD, FOLDER / name, strip=False)


def call(*words, path="/usr/bin:/bin", **more):
    """With an empty environment."""
    env = {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}
    done = subprocess.run([str(word) for word in words], env=env, cwd=FOLDER, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def works(tool, package):
    """The command and the Python package, of a place that nothing in the environment names."""
    release = packages.release()
    assert call(tool, "version") == (0, f"vpool {release}\n", ""), call(tool, "version")
    status, out, err = call(tool, "run", "--sim", sys.executable, "-c", PROGRAM.format(release=release),
                            PYTHONPATH=str(package))
    assert status == 0 and str(package) in out and "peak live 3.0 MiB" in err, (status, out, err)
    assert call(tool, "replay", SOURCE / "tests/traces/rmm.csv")[0] == 0, "the simulated driver is not found"
    status, out, err = call(tool, "run", "--sim", "--quiet", "--policy=bfc", sys.executable, "-c", "import vpool; vpool.stats()",
                            PYTHONPATH=str(package))
    assert (status, out, err) == (0, "", ""), (status, out, err)
    status, out, err = call(tool, "help")
    pages = re.search(r"docs/…, are in (/.*)\.$", out, re.M)
    assert pages and Path(pages[1], "docs/design.md").exists(), out


def an_installation_is_whole():
    prefix = staged("installed")
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    lib = str(next(prefix.rglob("libvpool.so")).parent.relative_to(prefix))
    wanted = {"bin/vpool", "bin/vpool-snapshot-to-trace", "include/vpool.h", f"{lib}/libvpool.so", f"{lib}/libvpool-compare.so",
              f"{lib}/vpool/libcuda.so.1", f"{lib}/vpool/libcudart.so.13", "share/man/man1/vpool.1", "share/man/man7/libvpool.7",
              "share/bash-completion/completions/vpool.bash", "share/zsh/site-functions/_vpool",
              "share/fish/vendor_completions.d/vpool.fish", "share/doc/vpool/SECURITY.md"}
    assert wanted <= files, wanted - files
    pages = {f"share/doc/vpool/docs/{path.name}" for path in (SOURCE / "docs").iterdir()}
    assert pages <= files, pages - files
    more = {name for name in files - wanted - pages if not re.match(rf"share/doc/vpool/\w+(\.md)?$|{lib}/vpool/", name)}
    assert not more, f"installed, and nobody expects it: {more}"
    # What the help names is there.
    for name in re.findall(r"(?<![\w/])(?:docs|scripts)/[\w.-]+\w", "".join(call(prefix / "bin/vpool", "help", topic)[1] for topic in
                                                                  ("waits", "frameworks", "dumps", "why-not", "replay"))):
        assert (prefix / "share/doc/vpool" / name).exists() or (prefix / "bin" / f"vpool-{Path(name).name}").exists(), name


def no_installation_goes_into_the_clone():
    """A clone is often ~/vpool, and so is a prefix."""
    done = subprocess.run(["meson", "setup", FOLDER / "own", SOURCE, f"--prefix={SOURCE}", "-Dtests=disabled"], capture_output=True, text=True)
    assert done.returncode and "the prefix is the clone itself" in done.stdout, done


def an_installation_builds_no_test():
    said = subprocess.run(["ninja", "-C", BUILD, "-n", "-t", "inputs", "all"], capture_output=True, text=True).stdout
    assert "vpool" in said and "tests/" not in said, re.findall(r".*tests/.*", said)[:5]


def needs_are_read_as_others_read_them():
    for path in BUILD / "vpool", BUILD / "libvpool.so", Path(sys.executable).resolve():
        if shutil.which("objdump"):
            said = subprocess.run(["objdump", "-p", path], capture_output=True, text=True).stdout
            assert sorted(elf_needs.Elf(path).libraries()) == sorted(re.findall(r"NEEDED\s+(\S+)", said)), path
            versions = set(re.findall(r"0x\w+ 0x\w+ \d+ (\S+)", said.partition("Version References")[2]))
            assert {name for _, name in elf_needs.Elf(path).versions()} == versions, path
    tool = SOURCE / "scripts/lib/elf_needs.py"
    assert not elf_needs.others_of(BUILD / "libvpool.so")
    for most, status in ("99.0", 0), ("2.2.5", 1):
        assert subprocess.run([sys.executable, tool, "--most", most, BUILD / "vpool"], stdout=subprocess.DEVNULL).returncode == status


def the_wheels_glibc_has_all_that_is_called():
    """The wheel is for 2.28; what is newer here must have been there under an older version, or in a library that libc took up."""
    moved = re.compile(r"pthread_\w+|sem_\w+|dl\w+|[fl]?stat(at)?(64)?|mknod(at)?|shm_\w+|timer_\w+|__libc_start_main|__isoc23_\w+|"
                       r"exp|exp2|log|log2|pow|fmod|f?cntl(64)?|hypot")
    for path in [BUILD / name for name in ("vpool", "libvpool.so", "libvpool-compare.so", "sim/libcuda.so.1", "sim/libcudart.so.13")
                 if shutil.which("objdump")]:
        said = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
        found = re.findall(r"\*UND\*.*\(?GLIBC_(2\.\d+)\)? +(\w+)", said)
        assert found, path
        newer = [name for version, name in found if int(version[2:]) > 28 and not moved.fullmatch(name)]
        assert not newer, f"{path}: glibc 2.28 has no {', '.join(newer)}"


def a_wheel_can_be_installed():
    wheel = packages.wheel(staged("wheel"), FOLDER / "dist")
    release = packages.release()
    assert re.fullmatch(rf"vpool-{release}-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name), wheel
    with zipfile.ZipFile(wheel) as archive:
        record = archive.read(f"vpool-{release}.dist-info/RECORD").decode().splitlines()
        assert len(record) == len(archive.namelist()) == len(set(archive.namelist()))
        for line in record[:-1]:
            name, digest, size = line.rsplit(",", 2)
            content = archive.read(name)
            sum = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert digest == f"sha256={sum}" and int(size) == len(content), line
        assert f"\nVersion: {release}\n" in archive.read(f"vpool-{release}.dist-info/METADATA").decode()
    again = packages.wheel(staged("wheel"), FOLDER / "again")
    assert again.read_bytes() == wheel.read_bytes(), "the same installation makes another wheel"
    target = FOLDER / "site"
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True).returncode:
        shutil.unpack_archive(wheel, target, "zip")
        (target / "vpool/bin/vpool").chmod(0o755)
    else:
        subprocess.run([*pip, "--quiet", "install", "--no-index", "--no-deps", "--target", target, wheel], check=True,
                       env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"})
        status, out, _ = call(target / "bin/vpool", "version", PYTHONPATH=str(target))
        assert status == 0 and out == f"vpool {release}\n", out
        assert call(target / "bin/vpool-snapshot-to-trace", "--help")[0] == 0
    works(target / "vpool/bin/vpool", target)
    assert call(sys.executable, "-m", "vpool", "run", "sh", "-c", "exit 7", PYTHONPATH=str(target))[0] == 7


def pip_makes_a_wheel_of_a_clone():
    """As pyproject.toml tells it to. Nothing is compiled here."""
    text = (SOURCE / "pyproject.toml").read_text()
    words = dict(re.findall(r'^(build-backend|backend-path) = \[?"([^"]+)"', text, re.M))
    path = SOURCE / words["backend-path"] / f"{words['build-backend']}.py"
    made, folder = staged("pip"), FOLDER / "of-pip"
    program = (f"import sys; sys.path.insert(0, {str(path.parent)!r}); import {path.stem} as backend, pathlib\n"
               f"backend.packages.build = lambda *words, **more: None\n"
               f"backend.packages.stage = lambda *words: pathlib.Path({str(made)!r})\n"
               f"print(backend.build_wheel({str(folder)!r}))")
    status, out, err = call(sys.executable, "-c", program)
    assert status == 0 and (folder / out.strip()).exists() and out.endswith(".whl\n"), (status, out, err)
    assert (folder / out.strip()).read_bytes() == packages.wheel(staged("pip-again"), FOLDER / "pip-dist").read_bytes()


def a_debian_package_can_be_unpacked():
    if not shutil.which("dpkg-deb"):
        return
    prefix = staged("deb")
    # Wherever this build would be installed to, the package's own is usr/.
    root = FOLDER / "deb-root"
    root.mkdir()
    shutil.move(prefix, root / "usr")
    package = packages.deb(root / "usr", root, FOLDER / "dist", "-z0")
    fields = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    assert f"Version: {packages.release()}\n" in fields and "Package: vpool\n" in fields, fields
    newest = max(map(elf_needs.glibc_of, packages.elf_files(root)))
    assert f"Depends: libc6 (>= {newest[0]}.{newest[1]})" in fields, fields
    assert ("zlib1g" in fields) == ("libz.so.1" in elf_needs.Elf(root / "usr/bin/vpool").libraries()), fields
    subprocess.run(["dpkg-deb", "-x", package, FOLDER / "unpacked"], check=True)
    usr = FOLDER / "unpacked/usr"
    works(usr / "bin/vpool", usr / "lib/python3/dist-packages")
    assert (usr / "share/doc/vpool/copyright").exists() and (usr / "share/man/man1/vpool.1.gz").exists()
    listed = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True).stdout
    assert all(line.split()[1] == "root/root" for line in listed.splitlines()), listed


def what_is_optional_holds_no_build_up():
    """On a cluster nobody can install packages: without an apt-get, with one that refuses, and where nothing is missing."""
    def installs(lines, apt=None):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(shutil.which("dirname"), f"{folder}/dirname")
            os.symlink(shutil.which("env"), f"{folder}/env")
            os.symlink(shutil.which("basename"), f"{folder}/basename")
            if apt:
                for name in "apt-get", "sudo":
                    Path(folder, name).write_text(f"#!/bin/sh\n{apt}\n")
                    os.chmod(f"{folder}/{name}", 0o755)
            script = f"set -euo pipefail; source {SOURCE}/scripts/lib/setup.sh; {lines}; install_missing; echo went on"
            return subprocess.run([shutil.which("bash"), "-c", script], env={"PATH": folder}, capture_output=True, text=True, timeout=300)
    for apt in None, "exit 100":
        done = installs("optional=(libdw1)", apt)
        assert done.returncode == 0 and "going on without libdw1" in done.stdout and done.stdout.endswith("went on\n"), (apt, done)
        done = installs("missing=(meson); optional=(libdw1)", apt)
        assert done.returncode == 1 and "meson" in done.stderr and "went on" not in done.stdout, (apt, done)
    done = installs("missing=(meson); optional=(libdw1)", "exit 0")
    assert done.returncode == 0 and "installing meson libdw1" in done.stdout, done
    assert installs(":").stdout == "went on\n"


def the_release_has_one_place():
    release = packages.release()
    files = [*(SOURCE / "python").rglob("*.py"), *(SOURCE / "scripts").rglob("*")]
    assert not [path for path in files if path.is_file() and "__pycache__" not in path.parts and release in path.read_text()]


try:
    tap.run([an_installation_is_whole, no_installation_goes_into_the_clone, an_installation_builds_no_test, needs_are_read_as_others_read_them,
             the_wheels_glibc_has_all_that_is_called,
             a_wheel_can_be_installed, pip_makes_a_wheel_of_a_clone, a_debian_package_can_be_unpacked, what_is_optional_holds_no_build_up,
             the_release_has_one_place])
finally:
    shutil.rmtree(FOLDER)
