"""The table of scripts/torch-symbols: what preload/torch.c relies on, for each version.

usage: torch_table.py MACHINE VERSION FOLDER [VERSION FOLDER...]      a folder has the libraries of one version
"""
# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
from pathlib import Path

from torch_elf import Library

CURRENT, STREAM = "_ZN3c104cuda20getCurrentCUDAStreamEa", "_ZNK3c104cuda10CUDAStream6streamEv"
ROUND = {"_ZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig24roundup_power2_divisionsEm": "`CUDAAllocatorConfig`",
         "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig24roundup_power2_divisionsEm": "`AcceleratorAllocatorConfig`"}
REPORT = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
REFUSE = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"
GET_ENV = {"_ZN3c105utils7get_envEPKc": "old", "_ZN3c105utils7get_envB5cxx11EPKc": "C++11"}
TYPE, TABLE = "_ZTIN3c1016OutOfMemoryErrorE", "_ZTVN3c1016OutOfMemoryErrorE"
ERROR = {"_ZN3c105ErrorC1ENS_14SourceLocationESs": "old",
         "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE": "C++11"}
GRAPH_POOL = "_ZN2at4cuda17graph_pool_handleEv"
CAPTURE = "_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode"
POOLS = ["_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEb",
         "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbb",
         "_ZN3c104cuda7MemPoolC1EPNS0_20CUDACachingAllocator13CUDAAllocatorEbbb",
         "_ZN2at4cuda7MemPoolC1EPN3c104cuda20CUDACachingAllocator13CUDAAllocatorEbbb",
         "_ZN2at4cuda7MemPoolC1ESt10shared_ptrIN3c104cuda20CUDACachingAllocator13CUDAAllocatorEEbbb"]


def short(function):
    """The last name of a function: DeviceCachingAllocator::malloc is malloc."""
    whole = subprocess.run(["c++filt"], input=function, stdout=subprocess.PIPE, text=True).stdout.strip()
    whole = whole.replace("(anonymous namespace)", "").partition("(")[0]
    parts = [part for part in whole.split("::") if part]
    return parts[-1] + " (async backend)" if "CudaMallocAsync" in whole else parts[-1] if parts else "?"


def names(sites):
    return ", ".join(dict.fromkeys(f"`{name}`" for _, function in sites if (name := short(function))[0] != "_")) or "none"


class Version:
    def __init__(self, name, folder, machine):
        self.name, self.machine, self.wrong = name, machine, []
        self.libraries = {path.name: Library(path, machine) for path in Path(folder).glob("*.so")}
        self.cuda = self.libraries.get("libc10_cuda.so")
        self.c10 = self.libraries.get("libc10.so")

    def need(self, what, holds, text):
        if not holds:
            self.wrong.append(what)
        return text if holds else f"**{text}**"

    def plt(self):
        """All that is taken over is called through the PLT."""
        wanted, bound = {CURRENT, STREAM, REPORT, REFUSE, "cudaMalloc", "cudaFree"}, self.cuda.bound
        missing = wanted - bound | (set() if bound & set(ROUND) else {"roundup_power2_divisions"})
        how = "JUMP_SLOT" if wanted <= set(self.cuda.slots.values()) else "GLOB_DAT (built with `-fno-plt`)"
        return self.need("PLT", not missing, "no: " + " ".join(sorted(missing)) if missing else how)

    def rounding(self):
        found = [text for symbol, text in ROUND.items() if symbol in self.cuda.bound]
        return self.need("roundup", len(found) == 1, ", ".join(found) or "none")

    def round_sites(self):
        return [site for symbol in ROUND for site in self.cuda.sites(symbol)]

    def round_place(self):
        """Nothing has chosen a block before, as far as the function's own text goes; and an exception unwinds."""
        sites, early = self.round_sites(), True
        for address, function in sites:
            start = self.cuda.start_of(function)
            for call, called, _ in self.cuda.calls:
                if start <= call < address and any(word in called for word in ("get_free_block", "alloc_block",
                                                                               "alloc_found_block")):
                    early = False
        unwinds = bool(sites) and all(self.cuda.unwinds_into(address) for address, _ in sites)
        text = names(sites) + (", before a block is chosen" if early else ", LATE") + (
            "; an exception unwinds" if unwinds else "; NO clean-up")
        return self.need("roundup's place", sites and early and unwinds, text)

    def reports(self):
        sites = self.cuda.sites(REPORT)
        return self.need("reports", {short(f) for _, f in sites} in (
            {"alloc_found_block", "free"}, {"alloc_found_block", "free_locked"}), names(sites))

    def refusals(self):
        return self.need("refusal", self.cuda.sites(REFUSE), names(self.cuda.sites(REFUSE)))

    def pairs(self):
        """Functions that ask for the current stream and then for its handle."""
        streams = {function for _, function in self.cuda.sites(STREAM)}
        both = [site for site in self.cuda.sites(CURRENT) if site[1] in streams]
        own = [site for site in both if "CudaMallocAsync" not in site[1]]
        wanted, found = {"allocate", "raw_alloc"}, {short(function) for _, function in own}
        inside = {"cudaMallocMaybeCapturing", "alloc_block"}  # which may have the other inlined
        return self.need("pairs", wanted <= found and inside & found, names(own))

    def by_registers(self):
        """getCurrentCUDAStream() answers in registers: its argument is the first one."""
        good = True
        for address, function in self.cuda.sites(CURRENT):
            if "CudaMallocAsync" in function:
                continue
            if self.machine == "aarch64":
                good &= not any(words.startswith("x8,") for _, _, words in self.cuda.before(address, 3))
            else:
                first = [(name, words) for _, name, words in self.cuda.before(address, 8)
                         if words.startswith(("edi,", "rdi,"))]
                good &= not first or "rsp" not in first[-1][1] or first[-1][0] != "lea"
        return self.need("registers", good, "in registers" if good else "through a pointer")

    def mallocs(self):
        return names(self.cuda.sites("cudaMalloc"))

    def environment(self):
        sites = [site for symbol in GET_ENV for site in self.cuda.sites(symbol)]
        text = names(sites)
        if not sites and "getenv" in self.cuda.bound:  # up to 2.5: unseen
            return self.need("environment", True, "none: by `getenv`")
        return self.need("environment", "BackendStaticInitializer" in text or "parseEnvForBackend" in text, text)

    def error(self):
        kind = [text for symbol, text in ERROR.items() if symbol in self.c10.exported]
        where = [library for library in (self.cuda, self.c10) if TYPE in library.exported]
        table = any(TABLE in library.exported for library in (self.cuda, self.c10))
        return self.need("OutOfMemoryError", kind and where and table, f"exported; {', '.join(kind)} strings")

    def pools(self):
        found = [symbol for library in self.libraries.values() for symbol in POOLS if symbol in library.exported]
        unknown = [symbol for library in self.libraries.values() for symbol in library.exported
                   if "4cuda7MemPoolC1E" in symbol and symbol not in POOLS]
        return self.need("MemPool", not unknown, ", ".join(
            f"`{'c10' if symbol.startswith('_ZN3c10') else 'at'}::cuda::MemPool(…{symbol.rpartition('E')[2]})`"
            for symbol in dict.fromkeys(found)) or "none")

    def graphs(self):
        python = self.libraries.get("libtorch_python.so")
        good = python and {GRAPH_POOL, CAPTURE} <= python.bound
        return self.need("graphs", good, "both through the dynamic linker" if good else "not found")


ROWS = [
    ("what libc10_cuda.so calls is bound by", Version.plt),
    ("`roundup_power2_divisions` is of", Version.rounding),
    ("called from", Version.round_place),
    ("`reportMemoryUsageToProfiler` called from", Version.reports),
    ("`reportOutOfMemoryToProfiler` called from", Version.refusals),
    ("`getCurrentCUDAStream`, then `stream()`, in", Version.pairs),
    ("`CUDAStream` is returned", Version.by_registers),
    ("`cudaMalloc` called from", Version.mallocs),
    ("`c10::utils::get_env` called from", Version.environment),
    ("`c10::OutOfMemoryError`", Version.error),
    ("constructor of", Version.pools),
    ("`graph_pool_handle`, `capture_begin`", Version.graphs),
]


def main(machine, *folders):
    versions, wrong = [], 0
    for name, folder in zip(folders[::2], folders[1::2]):
        version = Version(name, folder, machine)
        if version.cuda:
            versions.append(version)
        else:
            print(f"torch-symbols: the wheel of torch {name} for {machine} has no libc10_cuda.so", file=sys.stderr)
    if not versions:
        return 1
    table = [[title] + [row(version) for version in versions] for title, row in ROWS]
    print(f"| {machine} | " + " | ".join(version.name for version in versions) + " |")
    print("|---" * (1 + len(versions)) + "|")
    for cells in table:
        print("| " + " | ".join(cells) + " |")
    for version in versions:
        for what in version.wrong:
            wrong = 1
            print(f"torch-symbols: {version.name}: {what} is not as the library needs it", file=sys.stderr)
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
