/* What a recording holds beside allocations: what was held as the program ran, failures, the program's marks and ranges.
 *
 * Each is read when it is first asked for. A place among the events is how many came before it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

const jsonOf = id => JSON.parse(document.getElementById(id).textContent);

/* The names of a recording's marks and ranges, in that order, are the same for all its devices. */
const namesOf = memoized(group => jsonOf(`g${group}.names`));

function memoized(make) {
    const made = new Map();
    return key => {
        if (!made.has(key))
            made.set(key, make(key));
        return made.get(key);
    };
}

class Records {
    constructor(trace) {
        this.trace = trace;
    }

    column(name) {
        return new Column(`${this.trace.input}.${name}`);
    }

    /* What was held after each event, as the program ran; null where that was not recorded. */
    get held() {
        return this.heldThen ??= this.readHeld();
    }

    readHeld() {
        const { events, about } = this.trace, held = new Float64Array(events), column = this.column("held");
        if (!about.held)
            return null;
        for (let i = 0, at = 0, now = 0; i <= about.held; i++) {
            const next = i < about.held ? at + column.next() : events;
            held.fill(now, Math.min(at, events), Math.min(next, events));
            at = next;
            if (i < about.held) {
                now = column.next();
                column.next();
            }
        }
        return held;
    }

    get failures() {
        return this.failed ??= this.readFailures();
    }

    readFailures() {
        const column = this.column("failures"), all = [];
        for (let i = 0, at = 0, time = 0; i < this.trace.about.failures; i++) {
            at += column.next();
            time += column.next();
            all.push({ at, time, size: column.next(), stream: column.next() });
        }
        return all;
    }

    /* At most the last event, so that each has a moment to be shown at. */
    moment(at) {
        return Math.min(at, this.trace.events - 1);
    }

    get marks() {
        return this.allMarks ??= this.readMarks();
    }

    readMarks() {
        const column = this.column("marks"), names = this.trace.about.marks ? namesOf(this.trace.about.group) : [], all = [];
        for (let i = 0, at = 0, time = 0; i < this.trace.about.marks; i++) {
            at += column.next();
            time += column.next();
            all.push({ name: names[i], at: this.moment(at), time, thread: column.next() });
        }
        return all;
    }

    get ranges() {
        return this.allRanges ??= this.readRanges();
    }

    /* From the moment before their first event to that of their last one. Each thread's nested ranges have lanes of their own. */
    readRanges() {
        const { about } = this.trace, column = this.column("ranges"), all = [], lanes = new Map();
        const names = about.ranges ? namesOf(about.group) : [];
        for (let i = 0, at = 0, begin = 0; i < about.ranges; i++) {
            const from = at += column.next(), to = from + column.next();
            const time = begin += column.next(), duration = column.next(), word = column.next(), thread = column.next();
            const depth = Math.floor(word / 2), key = `${thread} ${depth}`;
            if (!lanes.has(key))
                lanes.set(key, { thread, depth });
            all.push({ name: names[about.marks + i], from: this.moment(from), to: this.moment(Math.max(from, to - 1)), empty: to === from,
                time, duration, open: word % 2 === 1, thread, key });
        }
        [...lanes.values()].sort((a, b) => a.thread - b.thread || a.depth - b.depth).forEach((lane, i) => lane.number = i);
        for (const range of all)
            range.lane = lanes.get(range.key).number;
        this.lanes = lanes.size;
        return all;
    }

    /* By name: how often, how long, and the most that was live and held within. `held` may be null. */
    byRange(live, held) {
        const peaks = new Peaks(live), most = held && new Peaks(held), rows = new Map();
        for (const range of this.ranges) {
            if (!rows.has(range.name))
                rows.set(range.name, { name: range.name, count: 0, time: 0, live: -1, held: 0, growth: 0, at: range });
            const row = rows.get(range.name), before = range.from ? live[range.from - 1] : 0;
            const peak = range.empty ? before : peaks.over(range.from, range.to);
            row.count++;
            row.time += range.duration;
            row.growth = Math.max(row.growth, range.empty ? 0 : live[range.to] - before);
            if (most)
                row.held = Math.max(row.held, most.over(range.from, range.to));
            if (peak > row.live) {
                row.live = peak;
                row.at = range;
            }
        }
        return [...rows.values()].sort((a, b) => b.live - a.live || b.count - a.count);
    }
}

/* The largest of a stretch of numbers, soon: that of each block of them is kept. */
class Peaks {
    static BLOCK = 512;

    constructor(values) {
        this.values = values;
        this.blocks = new Float64Array(Math.ceil(values.length / Peaks.BLOCK)).fill(-Infinity);
        for (let i = 0; i < values.length; i++) {
            const block = Math.floor(i / Peaks.BLOCK);
            if (values[i] > this.blocks[block])
                this.blocks[block] = values[i];
        }
    }

    over(from, to) {
        const { values, blocks } = this, { BLOCK } = Peaks;
        let most = -Infinity;
        for (let i = from; i <= to;)
            if (i % BLOCK === 0 && i + BLOCK <= to + 1) {
                most = Math.max(most, blocks[i / BLOCK]);
                i += BLOCK;
            } else {
                most = Math.max(most, values[i++]);
            }
        return most;
    }
}
