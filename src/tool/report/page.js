/* The page: what is chosen (an input, a policy, a moment, colours), and what follows from it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

const $ = id => document.getElementById(id);

/* An element with attributes and children; strings are text, never markup. */
function el(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
        if (name === "style")
            element.style.cssText = value;
        else if (value !== false && value !== undefined)
            element.setAttribute(name, value === true ? "" : value);
    element.append(...children.filter(child => child !== undefined && child !== null));
    return element;
}

const swatch = colour => el("i", { class: "swatch", style: `background: var(--${colour})` });

const row = (...cells) => el("tr", {}, ...cells.map(cell => cell instanceof Node && /^T[DH]$/.test(cell.tagName) ? cell : el("td", {}, cell)));

function fill(table, head, rows) {
    const parts = [];
    if (head)
        parts.push(el("thead", {}, el("tr", {}, ...head.map(text => el("th", { scope: "col", class: text === "asked for by" && "name" }, text)))));
    parts.push(el("tbody", {}, ...rows));
    table.replaceChildren(...parts);
}

/* "12.3" and "GiB" apart, the unit in small. */
function figure(text, what) {
    const [, number, unit] = text.match(/^(\S+)\s*(.*)$/);
    return el("div", { class: "figure" }, el("b", {}, number, el("small", {}, unit)), el("span", {}, what));
}

/* ---- what is chosen ---- */

const index = JSON.parse($("index").textContent);
const inputs = [];              // read when they are first shown
const chosen = { input: null, run: null, event: 0, colour: "state", layout: "memory", byTime: false,
    question: "moment", by: "stack", span: null, search: "", other: null, compared: "peak" };
let axis = null, charts = [], regionMap = null;

/* At most once a frame, however often the pointer moves. */
const later = new Set();
function soon(job) {
    if (!later.size)
        requestAnimationFrame(() => {
            const jobs = [...later];
            later.clear();
            jobs.forEach(each => each());
        });
    later.add(job);
}

const inputOf = number => inputs[number] ??= index.inputs[number].kind === "dump" ? new Dump(index.inputs[number], number) : new Trace(index.inputs[number], number);

function showInput(number) {
    const about = index.inputs[number];
    chosen.input = inputOf(number);
    chosen.run = chosen.input.runs[0];
    chosen.span = null;
    document.title = `${nameOfInput(about)} – vpool report`;
    $("title").textContent = nameOfInput(about);
    for (const [i, button] of [...$("inputs").children].entries())
        button.setAttribute("aria-pressed", i === number);
    const isTrace = about.kind === "trace";
    for (const id of ["tracks", "scrub", "did", "numbers", "layout", "who", "leaks-box", "says", "compared-when", "question", "by"])
        $(id).hidden = !isTrace;
    $("compared").hidden = !isTrace || (chosen.input.runs.length < 2 && !about.as_it_ran);
    for (const id of ["devices-box", "ranges-box"])
        $(id).hidden = true;
    $("details").hidden = isTrace;
    $("notice").hidden = true;
    $("footer").textContent = `vpool ${index.vpool}` + (isTrace
        ? ". Arrow keys step through the events, with shift farther; + and − zoom, 0 shows all; p plays; / searches. With ctrl, the wheel zooms." : "");
    flame.zoomed = null;
    flame.measure();
    (isTrace ? showTrace : showDump)();
    showDifference();
    saveState();
}

/* ---- a trace ---- */

function showTrace() {
    const trace = chosen.input, { streams, about } = trace;
    $("subtitle").textContent = `${formatNumber(trace.events)} events in ${formatTime(trace.duration)} on ${streams} stream${streams > 1 ? "s" : ""}. `
        + (about.as_it_ran ? "What was held is shown as it ran, and replayed on the simulated driver; places, waste and driver times are replayed."
            : "What is held is replayed on the simulated driver; what the program held as it ran was not recorded. Driver times are modelled.");
    $("says").replaceChildren(...sentence(trace));
    axis = new Axis(trace);
    axis.byTime = chosen.byTime;
    charts = [
        new Chart($("memory"), axis, chart => drawMemory(chart, trace, chosen.run)),
        new Chart($("waste"), axis, chart => drawWaste(chart, chosen.run)),
        new Chart($("calls"), axis, chart => drawCalls(chart, chosen.run)),
        new Chart($("spans"), axis, chart => drawSpans(chart, trace)),
        new Chart($("ticks"), axis, drawAxis),
    ];
    $("spans-track").hidden = !about.marks && !about.ranges;
    $("spans").style.height = `${spansHeight(trace)}px`;
    /* The moment of the peak is what one wants to see first. */
    chosen.event = about.peak.event;
    $("event").max = trace.events - 1;
    showPolicies();
    showDevices(trace);
    showLeaks(trace);
    showRun();
}

const remapCalls = run => ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"].reduce((sum, name) => sum + run.about.driver_calls[name], 0);

function showPolicies() {
    const { runs, about: { as_it_ran: ran, peak } } = chosen.input, most = Math.max(ran?.peak_held_bytes ?? 0, ...runs.map(run => run.about.peak_held_bytes));
    const meter = (bytes, colour) => el("td", { class: "wide" }, el("i", { class: "meter", style: `width: ${bytes / most * 100}%; background: var(--${colour})` }));
    const ratio = (held, live) => live ? (held / live).toFixed(3) : "–";
    const rows = runs.map((run, i) => {
        const { about } = run, colour = POLICY_COLOURS[run.policy] ?? "held";
        const input = el("input", { type: "radio", name: "policy", checked: run === chosen.run });
        input.addEventListener("change", () => {
            chosen.run = runs[i];
            showRun();
            saveState();
        });
        return row(el("td", {}, el("label", {}, input, swatch(colour), `replayed: ${run.policy}`)), meter(about.peak_held_bytes, colour),
            formatBytes(about.peak_held_bytes), formatBytes(about.peak_live_bytes), ratio(about.peak_held_bytes, about.peak_live_bytes),
            formatNumber(remapCalls(run)), formatTime(about.driver_ns / 1e3), formatNumber(about.driver_calls.cuStreamWaitEvent), formatNumber(about.ooms));
    });
    if (ran)
        rows.unshift(row(el("td", {}, el("label", {}, swatch("ran"), "as it ran")), meter(ran.peak_held_bytes, "ran"), formatBytes(ran.peak_held_bytes),
            formatBytes(peak.bytes), ratio(ran.peak_held_bytes, peak.bytes), `${formatNumber(ran.driver_calls)} in all`, "–", "–", formatNumber(ran.failures)));
    fill($("policies"), ["", "", "peak held", "peak live", "held ÷ live", "memory calls", "driver time", "waits", "failed"], rows);
}

function showRun() {
    const { input: trace, run } = chosen, { about } = run, ran = trace.about.as_it_ran;
    const held = ran ? ran.peak_held_bytes : about.peak_held_bytes, live = ran ? trace.about.peak.bytes : about.peak_live_bytes;
    $("figures").replaceChildren(
        figure(formatBytes(live), "peak live"),
        ...ran ? [figure(formatBytes(ran.peak_held_bytes), "peak held, as it ran")] : [],
        ...ran?.peak_addressed_bytes ? [figure(formatBytes(ran.peak_addressed_bytes), "peak of addresses in bare segments, as it ran")] : [],
        figure(formatBytes(about.peak_held_bytes), `peak held, replayed by ${run.policy}`),
        figure(formatShare(held ? live / held : 1), `live of what is held, at the peaks, ${ran ? "as it ran" : "replayed"}`),
        figure(formatNumber(remapCalls(run)), "calls that map or give back memory, replayed"),
        figure(formatTime(about.driver_ns / 1e3), "in the driver, modelled"));
    const notes = [ran?.failures ? `${formatNumber(ran.failures)} allocation${ran.failures === 1 ? "" : "s"} found no memory as it ran.` : "",
        about.ooms ? `${formatNumber(about.ooms)} allocation${about.ooms === 1 ? "" : "s"} found no memory when replayed.` : "",
        about.passed_on ? `${formatNumber(about.passed_on)} allocations are left to CUDA by ${run.policy} and are not in the figures.` : "",
        trace.about.complaint ? `${trace.about.complaint}.` : ""].filter(Boolean);
    $("notice").hidden = !notes.length;
    $("notice").textContent = notes.join(" ");
    $("memory").setAttribute("aria-label", `Memory over time: live up to ${formatBytes(about.peak_live_bytes)}, held up to ${formatBytes(about.peak_held_bytes)} replayed${ran ? `, ${formatBytes(ran.peak_held_bytes)} as it ran` : ""}`);
    $("waste").setAttribute("aria-label", "What is held and not live over time, by reason; the table at the end of the page has the numbers");
    $("calls").setAttribute("aria-label", `Driver calls over time: ${formatNumber(remapCalls(run))} calls that map or give back memory`);
    regionMap.layout(run, chosen.layout);
    redrawCharts();
    showRanges(trace, run);
    showTable(trace, run);
    showWho();
    setMoment(chosen.event);
}

function redrawCharts() {
    if (chosen.input instanceof Trace) {
        charts.forEach(chart => chart.redraw());
        $("reset").hidden = !axis.zoomed;
        for (const id of ["cursor", "hover"])
            $(id).style.top = `${$("memory").offsetTop}px`;
        placeCursor($("cursor"), chosen.event);
        if (SPANS.includes(chosen.question) && !chosen.span)
            soon(() => showWho());
        saveState();
    }
}

function placeCursor(cursor, event) {
    const chart = charts[0], share = axis.share(event);
    cursor.hidden = share < 0 || share > 1;
    cursor.style.transform = `translateX(${chart.offset + chart.x(event)}px)`;
}

/* ---- the moment ---- */

function setMoment(event) {
    chosen.event = Math.max(0, Math.min(chosen.input.events - 1, event));
    if (axis.reveal(chosen.event))
        soon(redrawCharts);
    soon(showMoment);
    saveState();
}

function showMoment() {
    const { input: trace, run, event } = chosen;
    const regions = run.regions(event, chosen.layout);
    $("event").value = event;
    $("event").setAttribute("aria-valuetext", `event ${event}, ${formatTime(trace.time[event])}`);
    $("where").replaceChildren("event ", el("b", {}, formatNumber(event)), ` of ${formatNumber(trace.events - 1)} · ${formatTime(trace.time[event])}`);
    placeCursor($("cursor"), event);
    describeEvent(trace, run, event);
    regionMap.selected = -1;
    hideTip();
    regionMap.draw(regions, chosen.colour, oldestAge());
    showBytes(run.bytes(event));
    const byAddress = chosen.layout === "address" ? regions : run.regions(event, "address", false);
    showSizes(byAddress);
    showLargest(byAddress);
    showWho(true);
}

function describeEvent(trace, run, event) {
    const block = trace.blockOf[event], size = formatBytes(trace.asked[block]);
    const what = trace.isAlloc(event) ? `allocates ${size}` : `frees ${size}, held for ${formatNumber(event - trace.begin[block])} events`;
    const where = run.place[block] ? ` at 0x${run.place[block].toString(16)}` : ", which the pool did not serve";
    $("did").textContent = `This event ${what} on stream ${trace.streamOf[event]}${where}.`;
}

function bytesAt(run, event) {
    const at = run.sampleAt(event), bytes = { live: run.live[event], held: run.held[event] };
    for (const name of WASTE)
        bytes[name] = run.sample[name][at];
    return bytes;
}

const REASONS = {
    internal: "Rounding inside live blocks.",
    pinned: "Free, but a live block lies in the same chunk.",
    pending: "Free, and another stream has yet to get past its use.",
    idle: "Free in whole chunks, ready for the next request.",
    cached: "In bare segments: kept for the cache that has them, and in no block of it.",
    unused: "Free in whole chunks. What of it waits for a stream is in the chart.",
};

function showBytes(bytes) {
    const rows = [["live", "map-live", bytes.live, `Asked for and not freed${bytes.blocks === undefined ? "" : `: ${formatNumber(bytes.blocks)} blocks`}.`],
        ...WASTE.map(name => [name, name, bytes[name], REASONS[name]]), ["cached", "idle", bytes.cached, REASONS.cached], ["idle, pending", "idle", bytes.unused, REASONS.unused]];
    const all = bytes.held + (bytes.elsewhere ?? 0);
    fill($("bytes"), null, [
        ...rows.filter(([, , n]) => n !== undefined).map(([name, colour, n, why]) => row(el("td", {}, el("span", { class: "row" }, swatch(colour), name)),
            formatBytes(n), all ? formatShare(n / all) : "–", el("td", { class: "why" }, why))),
        row(el("th", { scope: "row" }, "held"), el("td", {}, el("b", {}, formatBytes(bytes.held))), "", el("td", { class: "why" }, "From the device, in all.")),
        ...bytes.elsewhere ? [row(el("th", { scope: "row" }, "not held"), formatBytes(bytes.elsewhere), "", el("td", { class: "why" }, "Of these, spilled to the host's memory or asleep."))] : [],
    ]);
}

/* Of each block the size, the line that asked for it, the stream and what is known of its age. */
function showLargest(regions) {
    const isTrace = chosen.input instanceof Trace, { calls } = isTrace ? chosen.input : {}, { run } = chosen;
    const live = Array.from(regions.state.keys()).filter(i => regions.state[i] === LIVE);
    const size = i => regions.asked[i] || regions.size[i];
    const lineOf = i => (isTrace ? calls.lineOf(chosen.input.stackOf(regions.ref[i])) : lineAmong(run.framesOf(regions.ref[i]))).text;
    const withLines = Boolean(isTrace ? calls : run.dump.stacks?.length);
    const rows = live.sort((a, b) => size(b) - size(a)).slice(0, 500);
    fillSome($("largest"), ["size", ...withLines ? ["asked for by"] : [], "stream", ...isTrace ? ["age"] : [], "address"], rows, i => row(formatBytes(size(i)),
        ...withLines ? [nameCell(lineOf(i))] : [], regions.stream[i] < 0 ? "–" : String(regions.stream[i]),
        ...isTrace ? [`${formatNumber(regions.age[i])} events`] : [], hex(regions.addr[i])), 8);
}

function showSizes(regions) {
    const { buckets, largest } = sizesOf(regions);
    const most = Math.max(1, ...buckets.map(b => Math.max(b.liveBytes, b.freeBytes)));
    const meter = (bytes, colour) => el("i", { class: "meter", style: `width: ${bytes / most * 100}%; background: var(--${colour})` });
    fill($("sizes"), ["from", "", "live", "free"], buckets.map(b => row(formatBytes(2 ** b.power),
        el("td", {}, b.live ? meter(b.liveBytes, "map-live") : undefined, b.free ? meter(b.freeBytes, "idle") : undefined),
        b.live ? `${formatNumber(b.live)} · ${formatBytes(b.liveBytes)}` : "", b.free ? `${formatNumber(b.free)} · ${formatBytes(b.freeBytes)}` : "")));
    $("sizes").append(el("caption", { class: "quiet small", style: "caption-side: bottom; text-align: left; padding-top: 8px" },
        `Live blocks and free stretches by size, in powers of two. The largest free stretch is ${formatBytes(largest)}.`));
}

/* ---- the numbers, for those who do not see the charts ---- */

function showTable(trace, run) {
    const rows = [], points = Math.min(25, run.sample.event.length);
    for (let k = 0; k < points; k++) {
        const i = Math.round(k * (run.sample.event.length - 1) / Math.max(1, points - 1)), event = run.sample.event[i];
        rows.push(row(formatNumber(event), formatTime(trace.time[event]), formatBytes(run.live[event]), formatBytes(run.held[event]),
            ...WASTE.map(name => formatBytes(run.sample[name][i]))));
    }
    fill($("table"), ["event", "time", "live", "held", ...WASTE], rows);
}
