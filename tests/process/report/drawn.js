/* Draws with the charts of a page of `vpool report`, into a canvas that only keeps what is drawn: node drawn.js PAGE.
 * Prints as JSON the events of the first trace, where the lines of its marks and failures are, by colour, between which
 * ends of the axis; and for scales of many sizes what is written at them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
"use strict";
const vm = require("vm");
const { load } = require("./load.js");

const { elements, code: wanted } = load(process.argv[2], ["Trace", "Records", "Stacks", "Chart"]);
const context = vm.createContext({
    document: { getElementById: id => elements[id], documentElement: {} }, atob, TextDecoder, Intl, window: {}, chosen: {},
    getComputedStyle: () => ({ getPropertyValue: name => name }),
});
vm.runInContext(wanted, context);
context.inputs = JSON.parse(elements.index.textContent).inputs;
vm.runInContext(`
class Paper {
    lines = []; texts = [];
    setTransform() {} clearRect() {} setLineDash() {} beginPath() {} stroke() {} fillRect() {}
    moveTo(x) { this.lines.push([this.strokeStyle, x]); }
    lineTo() {}
    fillText(text) { this.texts.push(text); }
}
function drawn(draw, axis = null) {
    const paper = new Paper();
    const chart = new Chart({ getContext: () => paper, getBoundingClientRect: () => ({ width: 1280.4, height: 240 }) }, axis, draw);
    chart.redraw();
    return { lines: paper.lines, texts: paper.texts, from: chart.left, to: chart.right };
}
function told() {
    const trace = new Trace(inputs[0], 0), scales = {};
    for (let size = 1 << 20; size < 2 ** 43; size *= 1.07)
        scales[Math.round(size)] = drawn(chart => chart.scale(size, true)).texts;
    return { events: trace.events, scales, ...drawn(chart => chart.marks(trace), new Axis(trace)) };
}`, context);
process.stdout.write(vm.runInContext("JSON.stringify(told())", context) + "\n");
