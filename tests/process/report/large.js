/* What the scripts of a page of `vpool report` make of large recordings: node large.js PAGE. Ends with 1, and says so, where that is
 * not right. What is large is made here: of the page the scripts alone are used.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
"use strict";
const assert = require("assert");
const vm = require("vm");
const { load } = require("./load.js");

const { code } = load(process.argv[2], ["Trace", "Records", "Stacks", "Chart"]);
const elements = {};
const context = vm.createContext({ document: { getElementById: id => elements[id], documentElement: {} }, atob, TextDecoder, Intl, window: {},
    getComputedStyle: () => ({ getPropertyValue: name => name }) });
vm.runInContext(code, context);
const page = name => vm.runInContext(name, context);

function put(id, numbers) {
    const bytes = [];
    for (let n of numbers) {
        for (; n > 127; n = Math.floor(n / 128))
            bytes.push(n % 128 + 128);
        bytes.push(n);
    }
    elements[id] = { textContent: Buffer.from(bytes).toString("base64") };
}

/* A recording of allocations that are never freed, each on a stream of its own, with so many microseconds between. */
function recording(events, us) {
    const all = Array.from({ length: events }, (_, i) => i);
    put("0.blocks", all.map(() => 0));
    put("0.sizes", all.map(() => 512));
    put("0.streams", all);
    put("0.times", all.map(i => i ? us : 0));
    const Trace = page("Trace");
    return new Trace({ events, blocks: events, streams: events, stacks: 0, runs: [] }, 0);
}

const CASES = {
    streams_have_their_own_numbers() {
        const trace = recording(70000, 1);
        assert.equal(trace.stream[65536], 65536);
        assert.equal(trace.streamOf[69999], 69999);
    },
    what_lasts_is_kept_in_little() {
        const events = 100000, from = [], to = [], Lasting = page("Lasting");
        for (let event = 0; event < events; event++)
            if (event % 3) {
                from.push(event);
                to.push(event % 7 ? events : event + 1 + event % 9000);
            }
        const lasting = new Lasting(from, to, events), frames = [...new Set(lasting.frames)];
        assert(frames.reduce((sum, frame) => sum + frame.alive.length, 0) <= 2 * events);
        for (const event of [0, 1, 4095, 4096, 50001, 99999])
            assert.deepEqual([...lasting.at(event)], from.map((_, i) => i).filter(i => from[i] <= event && to[i] > event));
    },
    the_numbers_of_an_axis_are_those_in_view() {
        const trace = recording(1000, 3600000), Axis = page("Axis"), axis = new Axis(trace);
        axis.byTime = true;
        axis.show(500, 500);
        trace.time[axis.from] = trace.time[axis.to] - 20;
        const begin = Date.now(), ticks = axis.ticks(8);
        assert(ticks.length > 3 && ticks.length < 20 && ticks.every(({ share }) => share >= 0 && share <= 1), JSON.stringify(ticks));
        assert(Date.now() - begin < 1000);
        axis.byTime = false;
        assert.deepEqual(axis.ticks(2).map(({ text }) => text), ["498", "500", "502"]);
    },
    minutes_have_sixty_seconds() {
        const formatTime = page("formatTime");
        assert.deepEqual([59.99e6, 6e7, 119.7e6, 3599.4e6].map(formatTime), ["59.99 s", "1 min 0 s", "2 min 0 s", "59 min 59 s"]);
        assert.deepEqual([3599.6e6, 109122957774].map(formatTime), ["1 h 0 min 0 s", "30 h 18 min 43 s"]);
    },
};

let failed = 0;
for (const [name, run] of Object.entries(CASES))
    try {
        run();
    } catch (fault) {
        failed = 1;
        console.log(`${name}: ${fault.message}`);
    }
process.exit(failed);
