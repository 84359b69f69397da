/* Reads a page of `vpool report` as a browser does, without drawing: node page.js PAGE. Prints as JSON what the page's own
 * code makes of the facts, for report.py to compare.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
"use strict";
const vm = require("vm");
const { load } = require("./load.js");

const { elements, code: data } = load(process.argv[2], ["Trace", "Records", "Stacks"]);
const context = vm.createContext({ document: { getElementById: id => elements[id] }, atob, TextDecoder, Intl });
vm.runInContext(data, context);

/* A moment is sound if the regions cover what they should, once. */
vm.runInContext(`
function soundness(run, event) {
    const bytes = run.bytes(event), sum = bytes.live + bytes.internal + bytes.pinned + bytes.unused;
    const faults = sum === bytes.held ? [] : [\`\${sum} bytes are told of, \${bytes.held} are held\`];
    for (const layout of ["address", "memory"]) {
        const regions = run.regions(event, layout), free = freeStretches(regions).reduce((a, b) => a + b, 0);
        let live = 0;
        for (let i = 0; i < regions.count; i++)
            live += regions.state[i] === LIVE ? regions.size[i] : 0;
        if (live + free !== bytes.held || live !== bytes.live + bytes.internal)
            faults.push(\`by \${layout}: \${live} live and \${free} free of \${bytes.held} held\`);
    }
    return faults;
}
function tell(about, input) {
    if (about.kind === "dump")
        return new Dump(about, input).runs.map(run => ({ regions: run.all.count, sizes: sizesOf(run.all),
            blocks: run.all.ref.filter((_, i) => run.all.state[i] === LIVE).map(ref => [ref.asked, lineAmong(run.framesOf(ref)).text, run.framesOf(ref).length]),
            lines: run.calls ? byLine(run.calls, run.self).map(line => [line.frame.text, line.bytes, line.blocks]) : [] }));
    const trace = new Trace(about, input);
    return trace.runs.map(run => {
        const faults = [], last = run.sample.event.length - 1;
        for (let k = 0; k <= 40; k++)
            faults.push(...soundness(run, Math.floor((trace.events - 1) * k / 40)));
        for (let i = 0; i <= last; i++) {
            const { sample } = run, event = sample.event[i], sum = WASTE.reduce((n, name) => n + sample[name][i], sample.live[i]);
            if (sum !== run.held[event] || sample.live[i] !== run.live[event])
                faults.push(\`the sample of event \${event} is not what the events say\`);
        }
        return {
            policy: run.policy, faults: faults.slice(0, 5),
            peak_live_bytes: run.live.reduce((a, b) => Math.max(a, b), 0), peak_held_bytes: run.held.reduce((a, b) => Math.max(a, b), 0),
            ran: trace.records.held?.reduce((a, b) => Math.max(a, b), 0), marks: trace.records.marks, failures: trace.records.failures,
            ranges: trace.records.byRange(run.live, run.held), hasStacks: trace.hasStacks,
            lines: Object.fromEntries(Object.keys(QUESTIONS).map(question => {
                const span = { from: Math.floor(trace.events / 4), to: Math.floor(trace.events / 2) }, blocks = QUESTIONS[question](trace, trace.peak, span);
                return [question, trace.hasStacks ? byLine(trace.calls, bySelf(trace, blocks)).map(line => [line.frame.text, line.bytes, line.blocks]) : []];
            })),
            total: trace.hasStacks ? trace.calls.total(bySelf(trace, QUESTIONS.peak(trace)).bytes)[0] : 0,
            driver_calls: run.calls.count.map(counts => counts.reduce((a, b) => a + b, 0)),
        };
    });
}`, context);
const index = JSON.parse(elements.index.textContent);
context.inputs = index.inputs;
process.stdout.write(vm.runInContext("JSON.stringify(inputs.map(tell))", context) + "\n");
