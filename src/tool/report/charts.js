/* Charts over time: canvases one under another with one axis, one cursor and one view (the events from `view.from` to `view.to`).
 *
 * A chart is drawn when the view, the size or the colours change. The cursor is an element that moves above it, so that
 * scrubbing draws nothing anew.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

const MARGIN = { left: 58, right: 108, top: 10, bottom: 6 };
const NARROW = 640;

const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/* ---- axes ---- */

/* Round numbers from `least` to `most`, about `count` of them. Of bytes, round in their unit; below a whole one, in that
   under it. */
function ticks(most, count, bytes, least = 0) {
    if (!(most > 0))
        return [0];
    const unit = bytes ? 1024 ** Math.min(UNITS.length - 1, Math.floor(Math.log(most) / Math.log(1024) + 1e-9)) : 1;
    const rough = (most - least) / unit / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = unit * (unit > 1 && rough < 1 ? 2 ** Math.ceil(Math.log2(rough)) : [1, 2, 5, 10].map(n => n * power).find(n => n >= rough));
    const all = [];
    for (let n = Math.ceil(least / step); n * step <= most + (most - least) * 1e-4; n++)
        all.push(n * step);
    return all;
}

/* Where events are on the page, by number or by time. */
class Axis {
    constructor(trace) {
        this.trace = trace;
        this.byTime = false;
        this.reset();
    }

    reset() {
        this.from = 0;
        this.to = Math.max(1, this.trace.events - 1);
    }

    get zoomed() {
        return this.from > 0 || this.to < this.trace.events - 1;
    }

    /* From an event to a share of the width, and back. */
    share(event) {
        if (!this.byTime)
            return (event - this.from) / (this.to - this.from);
        const { time } = this.trace, begin = time[this.from];
        return (time[event] - begin) / Math.max(1, time[this.to] - begin);
    }

    event(share) {
        if (!this.byTime)
            return Math.round(Math.min(this.to, Math.max(this.from, this.from + share * (this.to - this.from))));
        const { time } = this.trace, begin = time[this.from];
        return Math.min(this.to, Math.max(this.from, this.trace.eventAt(begin + share * (time[this.to] - begin))));
    }

    /* By a factor below 1 nearer, around an event. */
    zoom(factor, around) {
        const last = Math.max(1, this.trace.events - 1);
        const width = Math.min(last, Math.max(Math.min(20, last), (this.to - this.from) * factor));
        const from = Math.round(Math.max(0, Math.min(last - width, around - (around - this.from) / (this.to - this.from) * width)));
        this.from = from;
        this.to = Math.round(from + width);
    }

    /* From an event to an event, and a little around them. */
    show(from, to) {
        const last = Math.max(1, this.trace.events - 1), around = Math.max(2, Math.round((to - from) * 0.05));
        this.from = Math.max(0, Math.min(from - around, last - 1));
        this.to = Math.min(last, Math.max(to + around, this.from + 1));
    }

    /* Moves the view so that an event is in it. */
    reveal(event) {
        const width = this.to - this.from;
        if (event >= this.from && event <= this.to)
            return false;
        this.from = Math.max(0, Math.min(this.trace.events - 1 - width, Math.round(event - width / 2)));
        this.to = this.from + width;
        return true;
    }

    /* About `count` round places in the view. */
    ticks(count) {
        const { time } = this.trace;
        const [from, to] = this.byTime ? [time[this.from], time[this.to]] : [this.from, this.to];
        const width = Math.max(1, to - from);
        return ticks(from + width, count, false, from).filter(value => value <= to)
            .map(value => ({ share: (value - from) / width, text: this.byTime ? formatTime(value) : formatNumber(value) }));
    }
}

/* ---- a chart ---- */

class Chart {
    /* `draw(chart)` draws what is in it. */
    constructor(canvas, axis, draw) {
        Object.assign(this, { canvas, axis, draw });
        this.context = canvas.getContext("2d");
    }

    redraw() {
        const { canvas } = this, box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
        if (!box.width)
            return;
        canvas.width = Math.round(box.width * ratio);
        canvas.height = Math.round(box.height * ratio);
        this.offset = canvas.offsetLeft;
        this.narrow = box.width < NARROW;
        this.left = this.narrow ? 56 : MARGIN.left;
        this.right = box.width - (this.narrow ? 8 : MARGIN.right);
        this.top = MARGIN.top;
        this.bottom = box.height - MARGIN.bottom;
        this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
        this.context.clearRect(0, 0, box.width, box.height);
        this.context.font = `11px ${colourOf("font")}`;
        this.draw(this);
    }

    get width() {
        return this.right - this.left;
    }

    x(event) {
        return this.left + this.axis.share(event) * this.width;
    }

    y(value) {
        return this.bottom - value / this.most * (this.bottom - this.top);
    }

    /* Sets the scale, and draws its lines and numbers. */
    scale(most, bytes) {
        const { context } = this;
        const values = ticks(most || 1, (this.bottom - this.top) / 38, bytes);
        this.most = (most || 1) * 1.04;
        context.lineWidth = 1;
        context.textAlign = "right";
        context.textBaseline = "middle";
        for (const value of values) {
            const y = Math.round(this.y(value)) + 0.5;
            context.strokeStyle = colourOf(value ? "grid" : "line");
            context.beginPath();
            context.moveTo(this.left, y);
            context.lineTo(this.right, y);
            context.stroke();
            context.fillStyle = colourOf("faint");
            if (value || !bytes)
                context.fillText(bytes ? formatBytes(value) : shortNumber(value), this.left - 8, y);
        }
    }

    /*
     * The extremes of a series in each column of pixels, `low` and `high`, and its `last` value there. `at[i]` is the event of
     * item i; null if items are events.
     */
    columns(values, at) {
        const count = Math.max(1, Math.ceil(this.width));
        const low = new Float64Array(count).fill(NaN), high = new Float64Array(count).fill(NaN), last = new Float64Array(count);
        const { from, to } = this.axis;
        let i = from, end = to;
        if (at) {
            i = at.findIndex(event => event >= from);
            i = Math.max(0, (i < 0 ? at.length : i) - 1);
            end = at.length - 1;
        }
        for (; i <= end; i++) {
            const event = at ? at[i] : i, value = values[i];
            if (event > to)
                break;
            const column = Math.min(count - 1, Math.max(0, Math.floor(this.axis.share(Math.max(from, event)) * count)));
            if (!(low[column] <= value))
                low[column] = value;
            if (!(high[column] >= value))
                high[column] = value;
            last[column] = value;
        }
        /* Between events all stays as it was. */
        for (let c = 0, before = NaN; c < count; c++) {
            if (Number.isNaN(low[c]))
                low[c] = high[c] = last[c] = before;
            else if (before < low[c])
                low[c] = Math.min(low[c], before);
            before = last[c];
        }
        return { low, high, last };
    }

    /* The area between two series of columns; without a lower one, from zero. */
    area(upper, lower, colour) {
        const { context } = this, count = upper.length;
        context.fillStyle = colour;
        context.beginPath();
        for (let c = 0; c < count; c++)
            context.lineTo(this.left + c, this.y(upper[c] || 0));
        context.lineTo(this.right, this.y(upper[count - 1] || 0));
        context.lineTo(this.right, this.y(lower ? lower[count - 1] || 0 : 0));
        for (let c = count - 1; c >= 0; c--)
            context.lineTo(this.left + c, this.y(lower ? lower[c] || 0 : 0));
        context.fill();
    }

    line({ low, high, last }, colour, width) {
        const { context } = this;
        context.strokeStyle = colour;
        context.lineWidth = width;
        context.lineJoin = "round";
        context.beginPath();
        for (let c = 0; c < low.length; c++) {
            if (Number.isNaN(low[c]))
                continue;
            const x = this.left + c + 0.5;
            if (high[c] > low[c]) {
                context.lineTo(x, this.y(low[c]));
                context.lineTo(x, this.y(high[c]));
            }
            context.lineTo(x, this.y(last[c]));
        }
        context.stroke();
    }

    /* Names at the right edge, each beside what it names, moved apart where they would overlap. */
    names(all) {
        const { context } = this, height = 14;
        const placed = all.map(name => ({ ...name, y: this.y(name.value) })).sort((a, b) => a.y - b.y);
        for (let i = 1; i < placed.length; i++)
            placed[i].y = Math.max(placed[i].y, placed[i - 1].y + height);
        for (let i = placed.length - 1, most = this.bottom - 2; i >= 0; i--, most -= height)
            placed[i].y = Math.min(placed[i].y, most);
        /* Without room beside the chart, within it: the page's colour around the letters keeps them apart from what is below. */
        context.textAlign = this.narrow ? "right" : "left";
        context.textBaseline = "middle";
        context.lineJoin = "round";
        for (const { text, colour, y, strong } of placed) {
            context.font = `${strong || this.narrow ? "600 " : ""}11px ${colourOf("font")}`;
            if (this.narrow) {
                context.strokeStyle = colourOf("page");
                context.lineWidth = 4;
                context.strokeText(text, this.right - 4, y);
            }
            context.fillStyle = colour;
            context.fillText(text, this.narrow ? this.right - 4 : this.right + 8, y);
        }
    }

    /* The program's marks and failures as lines from top to bottom, and the span that was chosen. */
    marks(trace) {
        const { context } = this;
        if (chosen.span) {
            const from = Math.max(this.left, this.x(chosen.span.from)), to = Math.min(this.right, this.x(chosen.span.to));
            context.globalAlpha = 0.13;
            context.fillStyle = colourOf("accent");
            context.fillRect(from, this.top, Math.max(1, to - from), this.bottom - this.top);
            context.globalAlpha = 1;
        }
        context.lineWidth = 1;
        const lines = (all, colour, dash) => {
            context.strokeStyle = colourOf(colour);
            context.setLineDash(dash);
            context.beginPath();
            for (let i = 0, before = -3; i < all.length; i++) {
                const { right } = this, at = this.x(this.trace.records.moment(all[i].at));
                const x = Math.min(Math.round(at), Math.floor(right) - 1) + 0.5; // the last moment is within, too
                if (at < this.left - 0.5 || at > right + 0.5 || x - before < 3)
                    continue;
                context.moveTo(x, this.top);
                context.lineTo(x, this.bottom);
                before = x;
            }
            context.stroke();
            context.setLineDash([]);
        };
        this.trace = trace;
        lines(trace.records.marks, "mark", [3, 3]);
        lines(trace.records.failures, "pinned", []);
    }
}

const shortNumber = n => n >= 1e6 ? `${n / 1e6} M` : n >= 1e4 ? `${n / 1e3} k` : formatNumber(n);

/* ---- the three charts of a trace ---- */

const POLICY_COLOURS = { vpool: "held", bfc: "c1", es: "c2", gmlake: "c3", vpmm: "c4", native: "c5", stalloc: "c6" };

function drawMemory(chart, trace, run) {
    const { from, to } = chart.axis;
    let most = 0;
    const ran = trace.records.held;
    for (const values of [...trace.runs.map(other => other.held), ...ran ? [ran] : []])
        for (let event = from; event <= to; event++)
            if (values[event] > most)
                most = values[event];
    chart.scale(most, true);
    const live = chart.columns(run.live, null), names = [];
    const held = trace.runs.map(other => chart.columns(other.held, null));
    chart.area(held[trace.runs.indexOf(run)].high, null, colourOf("free"));
    chart.area(live.high, null, colourOf("live"));
    trace.runs.forEach((other, i) => {
        const colour = colourOf(POLICY_COLOURS[other.policy] ?? "held");
        const text = trace.runs.length > 1 ? `replayed: ${other.policy}` : "held, replayed";
        chart.line(held[i], colour, other === run ? 1.75 : 1.25);
        names.push({ text, colour, value: held[i].last[held[i].last.length - 1], strong: other === run });
    });
    if (ran) {
        const line = chart.columns(ran, null), colour = colourOf("ran");
        chart.line(line, colour, 1.75);
        names.push({ text: "held, as it ran", colour, value: line.last[line.last.length - 1], strong: true });
    }
    names.push({ text: "live", colour: colourOf("live-ink"), value: live.last[live.last.length - 1] / 2, strong: false });
    chart.marks(trace);
    chart.names(names);
}

function drawWaste(chart, run) {
    const { sample } = run, sums = WASTE.map(() => new Float64Array(sample.event.length));
    for (let i = 0; i < sample.event.length; i++)
        for (let k = 0, sum = 0; k < WASTE.length; k++)
            sums[k][i] = sum += sample[WASTE[k]][i];
    const columns = sums.map(values => chart.columns(values, sample.event));
    const top = columns[columns.length - 1];
    chart.scale(top.high.reduce((most, value) => value > most ? value : most, 0), true);
    const names = [];
    for (let k = WASTE.length - 1; k >= 0; k--) {
        const lower = k ? columns[k - 1].high : null, upper = columns[k].high, end = upper.length - 1;
        chart.area(upper, lower, colourOf(WASTE[k]));
        names.push({ text: WASTE[k], colour: colourOf(`${WASTE[k]}-ink`), value: (upper[end] + (lower ? lower[end] : 0)) / 2 });
    }
    chart.marks(run.trace);
    chart.names(names);
}

/* Calls in groups that mean something: memory is got, mapped, given back; events are the price of several streams. */
const GROUPS = [
    { name: "create", calls: ["cuMemCreate", "cuMemAddressReserve"], colour: "g0" },
    { name: "map, access", calls: ["cuMemMap", "cuMemSetAccess"], colour: "g1" },
    { name: "unmap, release", calls: ["cuMemUnmap", "cuMemRelease"], colour: "g2" },
    { name: "events, waits", calls: ["cuEventRecord", "cuEventQuery", "cuStreamWaitEvent"], colour: "g3" },
];
for (const group of GROUPS)
    group.kinds = group.calls.map(name => CALLS.indexOf(name));

function drawCalls(chart, run) {
    const { calls } = run, wide = 4, count = Math.max(1, Math.floor(chart.width / wide));
    const bins = GROUPS.map(() => new Float64Array(count));
    for (let i = 0; i < calls.event.length; i++) {
        const event = calls.event[i];
        if (event < chart.axis.from || event > chart.axis.to)
            continue;
        const bin = Math.min(count - 1, Math.floor(chart.axis.share(event) * count));
        GROUPS.forEach((group, g) => {
            for (const kind of group.kinds)
                bins[g][bin] += calls.count[kind][i];
        });
    }
    let most = 0;
    for (let bin = 0; bin < count; bin++)
        most = Math.max(most, bins.reduce((sum, values) => sum + values[bin], 0));
    chart.scale(most, false);
    const wideNow = chart.width / count, colours = GROUPS.map(group => colourOf(group.colour));
    for (let bin = 0; bin < count; bin++)
        for (let g = 0, sum = 0; g < GROUPS.length; g++) {
            if (!bins[g][bin])
                continue;
            chart.context.fillStyle = colours[g];
            const y = chart.y(sum + bins[g][bin]);
            chart.context.fillRect(chart.left + bin * wideNow, y, wideNow - 1, chart.y(sum) - y);
            sum += bins[g][bin];
        }
    chart.marks(run.trace);
    chart.names(GROUPS.map((group, g) => ({ text: group.name, colour: colourOf(`${group.colour}-ink`),
        value: most * (g + 0.5) / GROUPS.length * 0.8 })));
}

/* ---- marks and ranges ---- */

/* The names of marks stand in a row of their own, and below them each thread's ranges, the outer ones above. */
const SPAN = { row: 16, lanes: 8 };

const marksHeight = trace => trace.about.marks ? SPAN.row : 0;

function spansHeight(trace) {
    const { ranges, lanes } = trace.records;
    return marksHeight(trace) + (ranges.length ? Math.min(SPAN.lanes, lanes) * SPAN.row : 0) + 2;
}

function drawSpans(chart, trace) {
    const { context, left, right } = chart, { marks, ranges } = trace.records, top = marksHeight(trace), painted = [];
    const colours = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"].map(colourOf), ink = colourOf("ink"), page = colourOf("page");
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (const range of ranges) {
        const from = Math.max(left, chart.x(range.from)), to = Math.min(right, chart.x(range.to));
        if (range.empty || range.lane >= SPAN.lanes || to < left || from > right || to <= (painted[range.lane] ?? -1))
            continue;
        const y = top + range.lane * SPAN.row, wide = Math.max(1, to - from);
        painted[range.lane] = Math.floor(to);
        context.globalAlpha = 0.55;
        context.fillStyle = colours[hashOf(range.name) % colours.length];
        context.fillRect(from, y, wide > 3 ? wide - 1 : wide, SPAN.row - 2);
        context.globalAlpha = 1;
        clipText(context, range.name, from + 4, y + SPAN.row / 2 - 1, wide - 8, ink);
    }
    context.strokeStyle = colourOf("mark");
    for (let i = 0, free = left - 1; i < marks.length; i++) {
        const x = chart.x(marks[i].at);
        if (x < left || x > right || x < free)
            continue;
        context.beginPath();
        context.moveTo(Math.round(x) + 0.5, 0);
        context.lineTo(Math.round(x) + 0.5, top);
        context.stroke();
        context.fillStyle = page;
        /* At the right edge the name stands to the left of its line, where there is room. */
        const wide = Math.min(140, context.measureText(marks[i].name).width + 6), back = x - 4 - wide;
        const from = right - x - 4 < wide && back > free ? back : x + 4;
        free = from + clipText(context, marks[i].name, from, top / 2, Math.min(140, from < x ? wide : right - from), ink) + 8;
    }
}

function hashOf(text) {
    let hash = 7;
    for (let i = 0; i < text.length; i++)
        hash = (hash * 31 + text.charCodeAt(i)) >>> 0;
    return hash;
}

/* As much of a text as goes into so many pixels; how many it took. */
function clipText(context, text, x, y, wide, colour) {
    const letters = Math.floor(wide / 6);
    if (letters < 2)
        return 0;
    const shown = text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
    context.fillStyle = colour;
    context.fillText(shown, x, y);
    return context.measureText(shown).width;
}

/* The range, or the mark, at a point. */
function spanAt(chart, trace, x, y) {
    const top = marksHeight(trace), lane = Math.floor((y - top) / SPAN.row);
    if (y < top)
        return trace.records.marks.findLast(mark => Math.abs(chart.x(mark.at) - x) < 4 || (x > chart.x(mark.at) && x < chart.x(mark.at) + Math.min(140, mark.name.length * 6)));
    return trace.records.ranges.find(range => range.lane === lane && chart.x(range.from) - 1 <= x && x <= chart.x(range.to) + 1);
}

function drawAxis(chart) {
    const { context, axis } = chart;
    const count = Math.max(2, Math.floor(chart.width / 110)), y = 4;
    context.fillStyle = colourOf("faint");
    context.textBaseline = "top";
    for (const { share, text } of axis.ticks(count)) {
        const x = chart.left + share * chart.width;
        context.textAlign = share < 0.02 ? "left" : share > 0.98 ? "right" : "center";
        context.fillText(text, x, y);
    }
    if (!chart.narrow) {
        context.textAlign = "left";
        context.fillText(axis.byTime ? "time" : "event", chart.right + 8, y);
    }
}
