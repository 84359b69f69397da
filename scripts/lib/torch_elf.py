"""One of PyTorch's libraries, taken apart: its symbols, who calls what through the PLT, and which calls may throw."""
# SPDX-License-Identifier: Apache-2.0
import bisect
import functools
import struct

import capstone
from elftools.elf.elffile import ELFFile

JUMP_SLOT, GLOB_DAT, ABSOLUTE = ({"x86_64": 7, "aarch64": 1026}, {"x86_64": 6, "aarch64": 1025},
                                 {"x86_64": 1, "aarch64": 257})
RELA = struct.Struct("<QQq")


class Reader:
    """Numbers out of a byte string, as DWARF writes them."""

    def __init__(self, data, at):
        self.data, self.at = data, at

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def uleb(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value


class Library:
    def __init__(self, path, machine):
        self.machine, self.file = machine, open(path, "rb")
        self.elf = ELFFile(self.file)
        mode = (capstone.CS_ARCH_X86, capstone.CS_MODE_64) if machine == "x86_64" else (capstone.CS_ARCH_ARM64,
                                                                                         capstone.CS_MODE_ARM)
        self.decoder = capstone.Cs(*mode)
        self.decoder.skipdata = True

    def section(self, name):
        return self.elf.get_section_by_name(name)

    @functools.cached_property
    def dynamic(self):
        """Each dynamic symbol: its name and whether it is defined here, in the table's order."""
        section, names = self.section(".dynsym").data(), self.section(".dynstr").data()
        found = []
        for at in range(0, len(section), 24):
            name, _, _, index, _, _ = struct.unpack_from("<IBBHQQ", section, at)
            found.append((names[name:names.index(b"\0", name)].decode(), index != 0))
        return found

    @functools.cached_property
    def exported(self):
        return {name for name, defined in self.dynamic if defined}

    def relocations(self, section, kinds):
        section = self.section(section)
        for offset, info, _ in RELA.iter_unpack(section.data() if section else b""):
            if info & 0xFFFFFFFF in kinds:
                yield offset, self.dynamic[info >> 32][0]

    @functools.cached_property
    def slots(self):
        """The symbols that are called through the PLT, by their entry in the GOT."""
        return dict(self.relocations(".rela.plt", (JUMP_SLOT[self.machine],)))

    @functools.cached_property
    def got(self):
        """The symbols whose address the code takes from the GOT, or calls through it (-fno-plt), by the entry."""
        return dict(self.relocations(".rela.dyn", (GLOB_DAT[self.machine],)))

    @functools.cached_property
    def bound(self):
        """All symbols that the dynamic linker binds, so that a preloaded definition comes first."""
        data = {name for _, name in self.relocations(".rela.dyn", (ABSOLUTE[self.machine],))}
        return data | set(self.slots.values()) | set(self.got.values())

    @functools.cached_property
    def stubs(self):
        """The symbol that each stub of the PLT leads to, by the stub's address."""
        found = {}
        for section in map(self.section, (".plt", ".plt.sec")):
            if section is None:
                continue
            base, data = section["sh_addr"], section.data()
            if self.machine == "aarch64":
                found.update({base + 32 + 16 * i: name for i, name in enumerate(self.slots.values())})
                continue
            for at in range(0, len(data) - 5, 16):
                jump = data.find(b"\xff\x25", at, at + 10)
                if jump >= 0:
                    slot = base + jump + 6 + struct.unpack_from("<i", data, jump + 2)[0]
                    if slot in self.slots:
                        found[base + at] = self.slots[slot]
        return found

    @functools.cached_property
    def functions(self):
        """(address, name, size), sorted; empty where the library was stripped."""
        table = self.section(".symtab")
        if not table:
            return []
        return sorted((symbol["st_value"], symbol.name, symbol["st_size"]) for symbol in table.iter_symbols()
                      if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"])

    def function_at(self, address):
        """The name; "" between functions, as where an optimiser of binaries has left what it moved elsewhere."""
        at = bisect.bisect_right(self.functions, (address, "\x7f")) - 1
        start, name, size = self.functions[at] if at >= 0 else (0, "", 0)
        return name if address < start + size else ""

    def start_of(self, name):
        return next((address for address, called, _ in self.functions if called == name), None)

    @functools.cached_property
    def code(self):
        texts = [section for section in self.elf.iter_sections()
                 if section["sh_flags"] & 4 and section["sh_type"] == "SHT_PROGBITS" and "text" in section.name]
        return sorted((address, name, words) for text in texts for address, _, name, words in
                      self.decoder.disasm_lite(text.data(), text["sh_addr"]))

    def through_got(self):
        """The calls through entries of the GOT."""
        pages, held, starts = {}, {}, {address for address, _, _ in self.functions}
        for address, name, words in self.code:
            if address in starts:
                held.clear()
            if self.machine == "x86_64":
                if name in ("call", "jmp") and "[rip + " in words:
                    length = 6  # ff 15, ff 25 and four bytes
                    symbol = self.got.get(address + length + int(words.partition("[rip + ")[2].rstrip("]"), 16))
                    if symbol:
                        yield address, symbol, name == "jmp"
                continue
            register, _, rest = words.partition(", ")
            if name == "adrp":
                pages[register] = int(rest.lstrip("#"), 16)
            elif name == "ldr" and rest.startswith("[x") and rest.endswith("]"):
                base, _, offset = rest.strip("[]").partition(", #")
                held.pop(register, None)
                if base in pages and (symbol := self.got.get(pages[base] + int(offset or "0", 0))):
                    held[register] = symbol
            elif name in ("blr", "br") and words in held:
                yield address, held[words], name == "br"
            elif register in held:
                del held[register]

    @functools.cached_property
    def calls(self):
        """(address, symbol or function called, is it a jump), in the order of addresses."""
        found, direct = [], ("call", "jmp") if self.machine == "x86_64" else ("bl", "b")
        starts = {address: name for address, name, _ in self.functions}
        for address, name, words in self.code:
            if name in direct and words.startswith(("0x", "#0x")):
                target = int(words.lstrip("#"), 16)
                called = self.stubs.get(target) or starts.get(target)
                if called:
                    found.append((address, called, name == direct[1]))
        return sorted(found + list(self.through_got()))

    def sites(self, symbol):
        """Where a symbol is called: (address, function)."""
        return [(address, function) for address, called, _ in self.calls
                if called == symbol and (function := self.function_at(address))]

    def before(self, address, count):
        """The instructions right before an address."""
        at = bisect.bisect_left(self.code, (address,))
        return self.code[max(0, at - count):at]

    @functools.cached_property
    def frames(self):
        entries = self.elf.get_dwarf_info().EH_CFI_entries()
        return [(entry.header["initial_location"], entry.header["address_range"], entry.lsda_pointer)
                for entry in entries if hasattr(entry, "lsda_pointer")]

    def unwinds_into(self, address):
        """Does an exception of the call at this address run a clean-up of its function?"""
        for begin, length, lsda in self.frames:
            if not begin <= address < begin + length or not lsda:
                continue
            section = next(section for section in self.elf.iter_sections() if "gcc_except_table" in section.name
                           and section["sh_addr"] <= lsda < section["sh_addr"] + section["sh_size"])
            reader = Reader(section.data(), lsda - section["sh_addr"])
            if reader.byte() != 0xFF:
                return False
            if reader.byte() != 0xFF:
                reader.uleb()
            if reader.byte() != 1:
                return False
            end = reader.uleb()
            end += reader.at
            while reader.at < end:
                start, size, pad, _ = (reader.uleb() for _ in range(4))
                if start <= address - begin < start + size:
                    return pad != 0
        return False
