/* The facts of the page, as report.c wrote them: an index in JSON, and columns of numbers in base64.
 *
 * A number is a varint: seven bits a byte, the lowest first. A signed one is folded (0, -1, 1, -2, …) before.
 * "At event i" is always the moment after it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/* ---- columns ---- */

function bytesOf(id) {
    const text = document.getElementById(id).textContent;
    if (Uint8Array.fromBase64)
        return Uint8Array.fromBase64(text);
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++)
        bytes[i] = binary.charCodeAt(i);
    return bytes;
}

class Column {
    constructor(id) {
        this.bytes = bytesOf(id);
        this.at = 0;
    }

    /* Beyond 28 bits by multiplication: shifts would wrap at 32. */
    next() {
        const bytes = this.bytes;
        let byte = bytes[this.at++];
        let n = byte & 127;
        for (let shift = 7; byte > 127; shift += 7) {
            byte = bytes[this.at++];
            n += shift < 28 ? (byte & 127) << shift : (byte & 127) * 2 ** shift;
        }
        return n;
    }

    signed() {
        const n = this.next();
        return n % 2 ? -(n + 1) / 2 : n / 2;
    }
}

/* ---- what is there at a moment ---- */

/*
 * Items that each last from an event to an event, ordered by their begin. To know those of a moment without walking all, the list is
 * kept for every STRIDE events, or as many as it has items: all lists together have no more than there are events.
 */
class Lasting {
    static STRIDE = 4096;

    constructor(from, to, events) {
        this.from = from;
        this.to = to;
        this.frames = [];
        let alive = [], next = 0, frame = null;
        for (let event = 0; event < events; this.frames.push(frame), event += Lasting.STRIDE) {
            if (frame && event - frame.event < frame.alive.length)
                continue;
            for (; next < from.length && from[next] <= event; next++)
                alive.push(next);
            alive = alive.filter(item => to[item] > event);
            frame = { event, alive: Uint32Array.from(alive), next };
        }
    }

    /* The numbers of the items at an event, in order of their begin; not to be changed. A moment is asked for several times. */
    at(event) {
        if (this.event !== event) {
            this.items = this.find(event);
            this.event = event;
        }
        return this.items;
    }

    find(event) {
        const frame = this.frames[Math.floor(event / Lasting.STRIDE)], items = [];
        for (const item of frame.alive)
            if (this.to[item] > event)
                items.push(item);
        for (let item = frame.next; item < this.from.length && this.from[item] <= event; item++)
            if (this.to[item] > event)
                items.push(item);
        return items;
    }
}

/* ---- a trace ---- */

/* What the program did: the same under every policy. */
class Trace {
    constructor(about, input) {
        const { events, blocks, streams } = about;
        Object.assign(this, { about, input, events, blocks, streams });
        this.blockOf = new Uint32Array(events);
        this.begin = new Uint32Array(blocks);
        this.end = new Uint32Array(blocks).fill(events);
        this.asked = new Float64Array(blocks);
        this.stream = new Uint32Array(blocks);
        this.streamOf = new Uint32Array(events);
        this.time = new Float64Array(events);
        this.readEvents();
        this.lasting = new Lasting(this.begin, this.end, events);
        this.records = new Records(this);
        this.runs = about.runs.map(run => new Run(this, run));
    }

    readEvents() {
        const column = name => new Column(`${this.input}.${name}`);
        const back = column("blocks"), sizes = column("sizes"), streams = column("streams"), times = column("times");
        let made = 0, time = 0;
        for (let event = 0; event < this.events; event++) {
            const ago = back.next();
            this.time[event] = time += times.next();
            this.streamOf[event] = this.streams > 1 ? streams.next() : 0;
            const block = this.blockOf[event] = ago ? made - ago : made++;
            if (ago) {
                this.end[block] = event;
            } else {
                this.begin[block] = event;
                this.asked[block] = sizes.next();
                this.stream[block] = this.streamOf[event];
            }
        }
    }

    /* The stack that each block was asked for with; read when it is first wanted. */
    stackOf(block) {
        return (this.stackNumbers ??= this.readStacks())[block];
    }

    readStacks() {
        const numbers = new Uint32Array(this.blocks);
        if (this.hasStacks)
            for (let block = 0, column = new Column(`${this.input}.stacks`); block < this.blocks; block++)
                numbers[block] = column.next();
        return numbers;
    }

    get hasStacks() {
        return this.about.stacks > 1;
    }

    /* Null where none were recorded. */
    get calls() {
        return this.hasStacks ? stacksOf(this.about.group, this.about.stacks) : null;
    }

    /* The event at which most is asked for and not freed. */
    get peak() {
        return this.about.peak.event;
    }

    isAlloc(event) {
        return this.begin[this.blockOf[event]] === event;
    }

    /* Microseconds from the first event to the last. */
    get duration() {
        return this.time[this.events - 1];
    }

    /* The last event that is not later than a time. */
    eventAt(time) {
        let low = 0, high = this.events - 1;
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (this.time[middle] <= time)
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }
}

const CALLS = ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease",
    "cuEventRecord", "cuEventQuery", "cuStreamWaitEvent"];

const WASTE = ["internal", "pinned", "pending", "idle"];

/* How one policy served it. */
class Run {
    constructor(trace, about) {
        Object.assign(this, { trace, about, policy: about.policy });
        this.readPlaces(this.column("places"));
        this.readMappings(this.column("mappings"));
        this.readSamples(this.column("samples"));
        this.readCalls(this.column("calls"));
        this.addUp();
    }

    column(name) {
        return new Column(`${this.trace.input}.${this.policy}.${name}`);
    }

    readPlaces(column) {
        const { trace } = this, { blocks } = trace;
        this.place = new Float64Array(blocks);      // 0: the pool did not serve it
        this.taken = new Float64Array(blocks);
        let last = 0;
        for (let block = 0; block < blocks; block++) {
            const more = column.next();
            if (!more)
                continue;
            this.taken[block] = trace.asked[block] + more - 1;
            this.place[block] = last += column.signed() * trace.about.quantum;
        }
    }

    readMappings(column) {
        const { mappings: count, granularity } = this.about;
        this.mapping = { addr: new Float64Array(count), size: new Float64Array(count), home: new Float64Array(count),
            from: new Uint32Array(count), to: new Uint32Array(count), current: new Uint8Array(count) };
        const { addr, size, home, from, to, current } = this.mapping;
        for (let i = 0; i < count; i++) {
            from[i] = (i ? from[i - 1] : 0) + column.next();
            const length = column.next();
            current[i] = length % 2;
            to[i] = from[i] + Math.floor(length / 2);
            addr[i] = (i ? addr[i - 1] : 0) + column.signed() * granularity;
            size[i] = column.next() * granularity;
            home[i] = addr[i] + column.signed() * granularity;
        }
        this.mapped = new Lasting(from, to, this.trace.events);
    }

    readSamples(column) {
        const count = this.about.samples;
        this.sample = { event: new Uint32Array(count), live: new Float64Array(count) };
        for (const name of WASTE)
            this.sample[name] = new Float64Array(count);
        for (let i = 0; i < count; i++) {
            this.sample.event[i] = (i ? this.sample.event[i - 1] : 0) + column.next();
            this.sample.live[i] = column.next();
            for (const name of WASTE)
                this.sample[name][i] = column.next();
        }
    }

    readCalls(column) {
        const count = this.about.calls;
        this.calls = { event: new Uint32Array(count), ns: new Float64Array(count), count: CALLS.map(() => new Uint32Array(count)) };
        for (let i = 0; i < count; i++) {
            this.calls.event[i] = (i ? this.calls.event[i - 1] : 0) + column.next();
            for (let kind = 0; kind < CALLS.length; kind++)
                this.calls.count[kind][i] = column.next();
            this.calls.ns[i] = column.next();
        }
    }

    /* Live and held bytes after each event. */
    addUp() {
        const { trace, mapping } = this, { events } = trace;
        this.live = new Float64Array(events);
        this.held = new Float64Array(events + 1);
        for (let i = 0; i < mapping.from.length; i++)
            if (mapping.current[i]) {
                this.held[mapping.from[i]] += mapping.size[i];
                this.held[mapping.to[i]] -= mapping.size[i];
            }
        let live = 0;
        for (let event = 0; event < events; event++) {
            const block = trace.blockOf[event];
            if (this.place[block])
                live += trace.begin[block] === event ? trace.asked[block] : -trace.asked[block];
            this.live[event] = live;
            if (event)
                this.held[event] += this.held[event - 1];
        }
    }

    /* The sample of an event, or the last before it. */
    sampleAt(event) {
        const events = this.sample.event;
        let low = 0, high = events.length - 1;
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (events[middle] <= event)
                low = middle;
            else
                high = middle - 1;
        }
        return low;
    }

    /* Stretches of addresses that were ever mapped, in order; or of chunks, each where it is at home. */
    stretches(layout) {
        const { addr, size, home } = this.mapping;
        return unite(layout === "memory" ? home : addr, size);
    }

    /* The current mappings of a moment, by address; the same holds. */
    current(event) {
        const { mapping } = this;
        if (this.currentEvent === event)
            return this.currentItems;
        this.currentEvent = event;
        return this.currentItems = this.mapped.at(event).filter(i => mapping.current[i]).sort((a, b) => mapping.addr[a] - mapping.addr[b]);
    }

    /*
     * All regions of a moment, what lies under others first, each state in order. By address: zombies, then free memory, then what is live. By
     * memory: chunks, each where it is at home, and over them the parts of live blocks. `ref` is the block of a live one.
     */
    regions(event, layout, zombies = layout === "address") {
        const { trace, mapping } = this, regions = new Regions(), current = this.current(event);
        const place = layout === "memory" ? mapping.home : mapping.addr, byPlace = (a, b) => place[a] - place[b];
        if (zombies)
            for (const i of this.mapped.at(event).filter(k => !mapping.current[k]).sort(byPlace))
                regions.add(place[i], mapping.size[i], ZOMBIE, -1, -1, 0, -1);
        for (const i of [...current].sort(byPlace))
            regions.add(place[i], mapping.size[i], FREE, -1, -1, 0, -1);
        for (const block of trace.lasting.at(event)) {
            const add = (addr, size) => regions.add(addr, size, LIVE, trace.stream[block], event - trace.begin[block], trace.asked[block], block);
            if (!this.place[block])
                continue;
            if (layout === "address")
                add(this.place[block], this.taken[block]);
            else
                this.eachPart(current, this.place[block], this.place[block] + this.taken[block],
                    (i, from, to) => add(mapping.home[i] + from - mapping.addr[i], to - from));
        }
        return regions;
    }

    /* Cuts [from, to) at the edges of the mappings that it lies in. */
    eachPart(current, from, to, found) {
        const { addr, size } = this.mapping;
        let low = 0, high = current.length - 1;
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (addr[current[middle]] <= from)
                low = middle;
            else
                high = middle - 1;
        }
        for (; low < current.length && addr[current[low]] < to; low++) {
            const i = current[low], begin = Math.max(from, addr[i]), end = Math.min(to, addr[i] + size[i]);
            if (begin < end)
                found(i, begin, end);
        }
    }

    /*
     * Where the bytes are at an event, exactly. Which wholly free chunks wait for a stream is known at samples alone: here they
     * are one figure, `unused`.
     */
    bytes(event) {
        const { trace, mapping } = this, current = this.current(event);
        const bytes = { live: this.live[event], held: this.held[event], internal: 0, pinned: 0, unused: 0, blocks: 0 };
        const liveIn = new Map();
        for (const block of trace.lasting.at(event)) {
            if (!this.place[block])
                continue;
            bytes.internal += this.taken[block] - trace.asked[block];
            bytes.blocks++;
            this.eachPart(current, this.place[block], this.place[block] + this.taken[block],
                (i, from, to) => liveIn.set(i, (liveIn.get(i) ?? 0) + to - from));
        }
        for (const i of current)
            if (liveIn.has(i))
                bytes.pinned += mapping.size[i] - liveIn.get(i);
            else
                bytes.unused += mapping.size[i];
        return bytes;
    }

    /*
     * Who had a free byte last: the block, or -1. The byte is known by the place of its chunk's home. A block lives within one
     * stretch of time of the mapping that it lies in.
     */
    lastAt(home, event) {
        const { trace, place, taken, mapping } = this, places = [];
        for (let i = 0; i < mapping.from.length && mapping.from[i] <= event; i++)
            if (mapping.current[i] && home >= mapping.home[i] && home < mapping.home[i] + mapping.size[i])
                places.push({ address: mapping.addr[i] + home - mapping.home[i], from: mapping.from[i], to: mapping.to[i] });
        let found = -1, latest = -1;
        for (let block = 0; block < trace.blocks && trace.begin[block] <= event; block++) {
            const end = trace.end[block];
            if (end > event || end <= latest)
                continue;
            for (const { address, from, to } of places)
                if (address >= place[block] && address < place[block] + taken[block] && trace.begin[block] >= from && end <= to) {
                    latest = end;
                    found = block;
                }
        }
        return found;
    }

    /* The home of an address that is mapped now. */
    homeOf(address, event) {
        const { mapping } = this;
        const i = this.current(event).find(k => address >= mapping.addr[k] && address < mapping.addr[k] + mapping.size[k]);
        return i === undefined ? -1 : mapping.home[i] + address - mapping.addr[i];
    }
}

/* ---- regions ---- */

const ZOMBIE = 0, FREE = 1, PENDING = 2, LIVE = 3;
const STATES = ["zombie", "free", "pending", "live"];

/* A list of regions, by columns: it is made anew for each moment. -1 stands for what is not known. */
class Regions {
    constructor() {
        Object.assign(this, { addr: [], size: [], state: [], stream: [], age: [], asked: [], ref: [] });
    }

    add(addr, size, state, stream, age, asked, ref) {
        this.addr.push(addr);
        this.size.push(size);
        this.state.push(state);
        this.stream.push(stream);
        this.age.push(age);
        this.asked.push(asked);
        this.ref.push(ref);
    }

    get count() {
        return this.addr.length;
    }

    /* The uppermost at an address, or -1. */
    at(address) {
        for (let i = this.count - 1; i >= 0; i--)
            if (address >= this.addr[i] && address < this.addr[i] + this.size[i])
                return i;
        return -1;
    }
}

/* Ranges that overlap or touch become one; in order. */
function unite(addr, size) {
    const order = Array.from(addr.keys()).sort((a, b) => addr[a] - addr[b]);
    const united = [];
    for (const i of order) {
        const last = united[united.length - 1];
        if (last && addr[i] <= last.end)
            last.end = Math.max(last.end, addr[i] + size[i]);
        else
            united.push({ addr: addr[i], end: addr[i] + size[i] });
    }
    return united;
}

/* What of the ranges `free` (in order, apart) no live region covers: the free stretches, as sizes. */
function freeStretches(regions) {
    const held = { addr: [], size: [] }, live = [];
    for (let i = 0; i < regions.count; i++) {
        if (regions.state[i] !== ZOMBIE) {
            held.addr.push(regions.addr[i]);
            held.size.push(regions.size[i]);
        }
        if (regions.state[i] === LIVE)
            live.push(i);
    }
    live.sort((a, b) => regions.addr[a] - regions.addr[b]);
    const sizes = [];
    let next = 0;
    for (const { addr, end } of unite(held.addr, held.size)) {
        let at = addr;
        for (; next < live.length && regions.addr[live[next]] < end; next++) {
            if (regions.addr[live[next]] > at)
                sizes.push(regions.addr[live[next]] - at);
            at = regions.addr[live[next]] + regions.size[live[next]];
        }
        if (end > at)
            sizes.push(end - at);
    }
    return sizes;
}

/* Counts and bytes by powers of two: of live blocks as asked for, and of free stretches. */
function sizesOf(regions) {
    const buckets = new Map();
    const bucket = size => {
        const power = Math.floor(Math.log2(Math.max(size, 1)));
        if (!buckets.has(power))
            buckets.set(power, { power, live: 0, liveBytes: 0, free: 0, freeBytes: 0 });
        return buckets.get(power);
    };
    for (let i = 0; i < regions.count; i++)
        if (regions.state[i] === LIVE) {
            const size = regions.asked[i] || regions.size[i], b = bucket(size);
            b.live++;
            b.liveBytes += size;
        }
    let largest = 0;
    for (const size of freeStretches(regions)) {
        const b = bucket(size);
        b.free++;
        b.freeBytes += size;
        largest = Math.max(largest, size);
    }
    return { buckets: [...buckets.values()].sort((a, b) => b.power - a.power), largest };
}

/* ---- a dump ---- */

/* Callers come first, so that no stack calls itself, whatever the file says. */
function stacksByNumber(stacks) {
    const known = new Map();
    for (const s of stacks)
        if (!known.has(s.stack) && (!s.parent || known.has(s.parent)))
            known.set(s.stack, s);
    return known;
}

/* One device of a dump: a moment without history. What the dump does not say is absent here, too. */
class DumpDevice {
    constructor(dump, about) {
        Object.assign(this, { dump, about, policy: dump.policy });
        this.all = new Regions();
        const regions = [...about.regions ?? []].filter(region => region.state !== "hole");
        for (const r of regions) {
            const state = r.state === "free" ? (r.waits_for?.length ? PENDING : FREE) : r.state === "live" ? LIVE : ZOMBIE;
            this.all.add(Number(r.addr), r.size, state, r.stream ?? -1, r.age ?? -1, r.asked ?? 0, r);
        }
    }

    /* Who asked for what is live, as far as the dump tells its holders; null where it does not. */
    get calls() {
        return this.holders?.stacks ?? null;
    }

    get self() {
        return this.holders.self;
    }

    /* The frames of the stack that asked for a region, the innermost first; none where the dump does not tell. */
    framesOf(region) {
        const { dump } = this, stacks = dump.byStack ??= stacksByNumber(dump.stacks ?? []);
        const frames = dump.byFrame ??= new Map((dump.frames ?? []).map(f => [f.frame, frameShown(f)])), all = [];
        for (let s = stacks.get(region.stack); s; s = stacks.get(s.parent))
            all.push(frames.get(s.frame) ?? UNKNOWN_FRAME);
        return all;
    }

    get holders() {
        return this.known ??= this.about.holders?.length ? stacksOfHolders(this.about.holders) : {};
    }

    stretches() {
        return unite(this.all.addr, this.all.size);
    }

    regions() {
        return this.all;
    }
}

/* Native frames get the names that were found for them. */
function nameFrames(dump, rows) {
    const names = new Map(rows.map(([module, address, text]) => [`${module} ${address}`, text]));
    const holders = (dump.devices ?? []).flatMap(device => device.holders ?? []).flatMap(holder => holder.stack);
    for (const frame of [...holders, ...dump.frames ?? []])
        if (frame.module)
            frame.name = names.get(`${frame.module} ${frame.address}`);
}

class Dump {
    constructor(about, input) {
        this.about = about;
        this.dump = JSON.parse(new TextDecoder().decode(bytesOf(`${input}.dump`)));
        nameFrames(this.dump, JSON.parse(new TextDecoder().decode(bytesOf(`${input}.names`))));
        this.runs = (this.dump.devices ?? []).map(device => new DumpDevice(this.dump, device));
    }
}

/* ---- numbers for people ---- */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/* "23.57 GiB"; with four significant digits at most. */
function formatBytes(bytes) {
    let unit = 0, n = bytes;
    for (; Math.abs(n) >= 1024 && unit < UNITS.length - 1; unit++)
        n /= 1024;
    const digits = unit === 0 || Number.isInteger(n) ? 0 : Math.abs(n) >= 100 ? 1 : 2;
    return `${n.toFixed(digits)} ${UNITS[unit]}`;
}

const NUMBER = new Intl.NumberFormat("en"), formatNumber = n => NUMBER.format(n);

/* Microseconds. */
function formatTime(us) {
    if (us < 1000)
        return `${us.toFixed(us % 1 ? 1 : 0)} µs`;
    if (us < 1e6)
        return `${(us / 1e3).toFixed(us < 1e4 ? 2 : 1)} ms`;
    const seconds = Math.round(us / 1e6), hours = seconds < 3600 ? "" : `${formatNumber(Math.floor(seconds / 3600))} h `;
    return us < 6e7 ? `${(us / 1e6).toFixed(us < 1e7 ? 3 : 2)} s` : `${hours}${Math.floor(seconds / 60) % 60} min ${seconds % 60} s`;
}

const formatShare = share => share === 1 ? "100 %" : `${(share * 100).toFixed(share > 0.9995 || share < 0.1 ? 2 : 1)} %`;
