/* Stacks: a tree of calls, whose numbers rise from the outermost frame inwards; 0 is what no stack is known of.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

const KINDS = { p: "Python", c: "native", t: "" };

class Stacks {
    /* By stack its parent, its frame among `frames`, and the stack that ends in its line. */
    constructor(frames, parent, frame, line) {
        Object.assign(this, { frames, parent, frame, line, count: parent.length });
        this.listChildren();
    }

    /* A recording's. */
    static read(group, count) {
        const frames = jsonOf(`g${group}.frames`).map(([text, file, kind]) => ({ text, file, kind, installed: isInstalled(file) })), column = new Column(`g${group}.stacks`);
        const [parent, frame, line] = [0, 1, 2].map(() => new Uint32Array(count));
        for (let i = 1; i < count; i++) {
            parent[i] = i - column.next();
            frame[i] = column.next();
            line[i] = i - column.next();
        }
        return new Stacks(frames, parent, frame, line);
    }

    /* The callees of a stack are children[first[stack]] to children[first[stack + 1] - 1]. */
    listChildren() {
        const { count, parent } = this, first = this.first = new Uint32Array(count + 1);
        this.children = new Uint32Array(Math.max(0, count - 1));
        for (let i = 1; i < count; i++)
            first[parent[i] + 1]++;
        for (let i = 0; i < count; i++)
            first[i + 1] += first[i];
        const next = first.slice();
        for (let i = 1; i < count; i++)
            this.children[next[parent[i]]++] = i;
    }

    frameOf(stack) {
        return stack ? this.frames[this.frame[stack]] : UNKNOWN_FRAME;
    }

    /* The line that people look for. */
    lineOf(stack) {
        return this.frameOf(this.line[stack]);
    }

    /* From the innermost frame outwards. */
    framesOf(stack) {
        const all = [];
        for (let at = stack; at; at = this.parent[at])
            all.push(this.frames[this.frame[at]]);
        return all;
    }

    /* What each stack has with all that it calls, from what it has itself. */
    total(self) {
        const total = self.slice();
        for (let i = this.count - 1; i > 0; i--)
            total[this.parent[i]] += total[i];
        return total;
    }
}

/* A recording's, read once for all its devices. */
const stacksRead = new Map();
function stacksOf(group, count) {
    if (!stacksRead.has(group))
        stacksRead.set(group, Stacks.read(group, count));
    return stacksRead.get(group);
}

/* A frame of a dump. */
function frameShown(one) {
    const base = path => path.replace(/.*\//, ""), file = one.file ?? one.module ?? "";
    const text = one.text ?? one.name ?? (one.function ? `${file ? `${base(file)}${one.line ? `:${one.line}` : ""} ` : ""}${one.function}`
        : `${base(file) || "?"}+${one.address ?? "?"}`);
    return { text, file, kind: one.text !== undefined ? "t" : one.module !== undefined ? "c" : "p", installed: isInstalled(file) };
}

/* How much a frame is the line that people look for: vp_stacks_line() in read/stacks.c. */
function rankOf({ kind, file }) {
    return kind === "p" ? isInstalled(file) ? 2 : 3 : kind === "c" && !/(^|\/)lib(cu|vpool|nv)[^/]*$/.test(file) ? 1 : 0;
}

/* Of frames, the innermost first. */
function lineAmong(frames) {
    return frames.reduce((best, frame) => rankOf(frame) > rankOf(best) ? frame : best, frames[0] ?? UNKNOWN_FRAME);
}

/* Those of a dump's holders: each has its frames, the innermost first. */
function stacksOfHolders(holders) {
    const frames = [], numbers = new Map(), parent = [0], frame = [0], line = [0], known = new Map(), ends = [];
    for (const { stack: all } of holders) {
        let at = 0;
        for (const one of [...all].reverse()) {
            const shown = frameShown(one), name = `${shown.file}|${shown.text}`;
            if (!numbers.has(name))
                numbers.set(name, frames.push(shown) - 1);
            const key = `${at} ${numbers.get(name)}`;
            if (!known.has(key)) {
                known.set(key, parent.push(at) - 1);
                frame.push(numbers.get(name));
                const outer = line[at];
                line.push(outer && rankOf(frames[frame[outer]]) > rankOf(frames[numbers.get(name)]) ? outer : parent.length - 1);
            }
            at = known.get(key);
        }
        ends.push(at);
    }
    const bytes = new Float64Array(parent.length), number = new Uint32Array(parent.length);
    holders.forEach((holder, i) => {
        bytes[ends[i]] += holder.bytes;
        number[ends[i]] += holder.blocks;
    });
    return { stacks: new Stacks(frames, Uint32Array.from(parent), Uint32Array.from(frame), Uint32Array.from(line)), self: { bytes, number } };
}

/* Code that others wrote, or Python's own: as stacks.c has it. */
const isInstalled = file => !file || (file.startsWith("<") && !/^<(stdin|string|ipython-input)/.test(file)) || /\/(site|dist)-packages\/|\/lib\/python3/.test(file);

const UNKNOWN_FRAME = { text: "no stack recorded", file: "", kind: "t" };

/* ---- what is counted ---- */

/* The blocks of a trace that a question is about: a list of their numbers, or the bounds of one. */
const QUESTIONS = {
    moment: (trace, event) => trace.lasting.at(event),
    peak: trace => trace.lasting.find(trace.peak),
    end: trace => trace.lasting.find(trace.events - 1),
    allocated: (trace, event, { from, to }) => within(trace, from, to, () => true),
    temporary: (trace, event, { from, to }) => within(trace, from, to, block => trace.end[block] <= to),
};

function within(trace, from, to, fits) {
    const found = [];
    let low = 0, high = trace.blocks;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (trace.begin[middle] < from)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < trace.blocks && trace.begin[low] <= to; low++)
        if (fits(low))
            found.push(low);
    return found;
}

/* Bytes and blocks of each stack, of some blocks. */
function bySelf(trace, blocks) {
    const count = Math.max(1, trace.about.stacks), bytes = new Float64Array(count), number = new Uint32Array(count);
    for (const block of blocks) {
        const stack = trace.stackOf(block);
        bytes[stack] += trace.asked[block];
        number[stack]++;
    }
    return { bytes, number };
}

/* The same by line: rows of { frame, bytes, blocks, stack (its largest), most }, the largest first. */
function byLine(stacks, { bytes, number }) {
    const rows = new Map();
    for (let stack = 0; stack < bytes.length; stack++) {
        if (!number[stack])
            continue;
        const frame = stacks ? stacks.lineOf(stack) : UNKNOWN_FRAME;
        if (!rows.has(frame))
            rows.set(frame, { frame, bytes: 0, blocks: 0, stack, most: -1, stacks: 0 });
        const row = rows.get(frame);
        row.bytes += bytes[stack];
        row.blocks += number[stack];
        row.stacks++;
        if (bytes[stack] > row.most) {
            row.most = bytes[stack];
            row.stack = stack;
        }
    }
    return [...rows.values()].sort((a, b) => b.bytes - a.bytes);
}
