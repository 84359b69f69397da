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
        parts.push(el("thead", {}, el("tr", {}, ...head.map(text => el("th", { scope: "col" }, text)))));
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
const chosen = { input: null, run: null, event: 0, colour: "state", layout: "memory", byTime: false };
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

function showInput(number) {
    const about = index.inputs[number];
    inputs[number] ??= about.kind === "dump" ? new Dump(about, number) : new Trace(about, number);
    chosen.input = inputs[number];
    chosen.run = chosen.input.runs[0];
    document.title = `${about.name} – vpool report`;
    $("title").textContent = about.name;
    for (const [i, button] of [...$("inputs").children].entries())
        button.setAttribute("aria-pressed", i === number);
    const isTrace = about.kind === "trace";
    for (const id of ["tracks", "scrub", "did", "numbers", "layout"])
        $(id).hidden = !isTrace;
    $("compared").hidden = !isTrace || chosen.input.runs.length < 2;
    $("details").hidden = isTrace;
    $("notice").hidden = true;
    $("footer").textContent = `vpool ${index.vpool}` + (isTrace
        ? ". Arrow keys step through the events, with shift farther; + and − zoom, 0 shows all; p plays. With ctrl, the wheel zooms." : "");
    (isTrace ? showTrace : showDump)();
}

/* ---- a trace ---- */

function showTrace() {
    const trace = chosen.input, { streams } = trace;
    $("subtitle").textContent = `${formatNumber(trace.events)} events in ${formatTime(trace.duration)} on ${streams} stream${streams > 1 ? "s" : ""}, `
        + "replayed on the simulated driver. Driver times are modelled.";
    axis = new Axis(trace);
    axis.byTime = chosen.byTime;
    charts = [
        new Chart($("memory"), axis, chart => drawMemory(chart, trace, chosen.run)),
        new Chart($("waste"), axis, chart => drawWaste(chart, chosen.run)),
        new Chart($("calls"), axis, chart => drawCalls(chart, chosen.run)),
        new Chart($("ticks"), axis, drawAxis),
    ];
    /* The moment of the peak is what one wants to see first. */
    chosen.event = peakOf(chosen.run.live);
    $("event").max = trace.events - 1;
    showPolicies();
    showRun();
}

function peakOf(values) {
    let peak = 0;
    for (let i = 1; i < values.length; i++)
        if (values[i] > values[peak])
            peak = i;
    return peak;
}

const remapCalls = run => ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"].reduce((sum, name) => sum + run.about.driver_calls[name], 0);

function showPolicies() {
    const { runs } = chosen.input, most = Math.max(...runs.map(run => run.about.peak_held_bytes));
    fill($("policies"), ["policy", "", "peak held", "peak live", "held ÷ live", "memory calls", "driver time", "waits"], runs.map((run, i) => {
        const { about } = run, colour = POLICY_COLOURS[run.policy] ?? "held";
        const input = el("input", { type: "radio", name: "policy", checked: run === chosen.run });
        input.addEventListener("change", () => {
            chosen.run = runs[i];
            showRun();
        });
        return row(el("td", {}, el("label", {}, input, swatch(colour), run.policy)),
            el("td", { class: "wide" }, el("i", { class: "meter", style: `width: ${about.peak_held_bytes / most * 100}%; background: var(--${colour})` })),
            formatBytes(about.peak_held_bytes), formatBytes(about.peak_live_bytes),
            about.peak_live_bytes ? (about.peak_held_bytes / about.peak_live_bytes).toFixed(3) : "–",
            formatNumber(remapCalls(run)), formatTime(about.driver_ns / 1e3), formatNumber(about.driver_calls.cuStreamWaitEvent));
    }));
}

function showRun() {
    const { input: trace, run } = chosen, { about } = run;
    const share = about.peak_held_bytes ? about.peak_live_bytes / about.peak_held_bytes : 1;
    $("figures").replaceChildren(
        figure(formatBytes(about.peak_live_bytes), "peak live"),
        figure(formatBytes(about.peak_held_bytes), `peak held by ${run.policy}`),
        figure(formatShare(share), "live of what is held, at the peaks"),
        figure(formatNumber(remapCalls(run)), "calls that map or give back memory"),
        figure(formatTime(about.driver_ns / 1e3), "in the driver, modelled"));
    if (about.ooms || about.passed_on) {
        $("notice").hidden = false;
        $("notice").textContent = [about.ooms ? `${formatNumber(about.ooms)} allocations found no memory.` : "",
            about.passed_on ? `${formatNumber(about.passed_on)} allocations are left to CUDA by ${run.policy} and are not in the figures.` : ""].join(" ").trim();
    } else {
        $("notice").hidden = true;
    }
    $("memory").setAttribute("aria-label", `Memory over time: live up to ${formatBytes(about.peak_live_bytes)}, held up to ${formatBytes(about.peak_held_bytes)}`);
    $("waste").setAttribute("aria-label", "What is held and not live over time, by reason; the table at the end of the page has the numbers");
    $("calls").setAttribute("aria-label", `Driver calls over time: ${formatNumber(remapCalls(run))} calls that map or give back memory`);
    regionMap.layout(run, chosen.layout);
    redrawCharts();
    showTable(trace, run);
    setMoment(chosen.event);
}

function redrawCharts() {
    if (chosen.input instanceof Trace) {
        charts.forEach(chart => chart.redraw());
        $("reset").hidden = !axis.zoomed;
        for (const id of ["cursor", "hover"])
            $(id).style.top = `${$("memory").offsetTop}px`;
        placeCursor($("cursor"), chosen.event);
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
    unused: "Free in whole chunks. What of it waits for a stream is in the chart.",
};

function showBytes(bytes) {
    const rows = [["live", "map-live", bytes.live, `Asked for and not freed${bytes.blocks === undefined ? "" : `: ${formatNumber(bytes.blocks)} blocks`}.`],
        ...WASTE.map(name => [name, name, bytes[name], REASONS[name]]), ["idle, pending", "idle", bytes.unused, REASONS.unused]];
    fill($("bytes"), null, [
        ...rows.filter(([, , n]) => n !== undefined).map(([name, colour, n, why]) => row(el("td", {}, el("span", { class: "row" }, swatch(colour), name)),
            formatBytes(n), bytes.held ? formatShare(n / bytes.held) : "–", el("td", { class: "why" }, why))),
        row(el("th", { scope: "row" }, "held"), el("td", {}, el("b", {}, formatBytes(bytes.held))), "", el("td", { class: "why" }, "From the device, in all.")),
    ]);
}

/* Who holds it: of each block the size, the stream and what is known of its age. */
function showLargest(regions) {
    const isTrace = chosen.input instanceof Trace;
    const live = Array.from(regions.state.keys()).filter(i => regions.state[i] === LIVE);
    const size = i => regions.asked[i] || regions.size[i];
    const rows = live.sort((a, b) => size(b) - size(a)).slice(0, 8).map(i => row(formatBytes(size(i)), regions.stream[i] < 0 ? "–" : String(regions.stream[i]),
        ...isTrace ? [`${formatNumber(regions.age[i])} events`] : [], hex(regions.addr[i])));
    fill($("largest"), ["size", "stream", ...isTrace ? ["age"] : [], "address"], rows);
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

/* ---- the map: legend, pointer, keyboard ---- */

function showLegend() {
    const isTrace = chosen.input instanceof Trace, item = (colour, text) => el("span", {}, swatch(colour), text);
    const common = [item("map-free", "free"), ...isTrace ? [] : [item("map-pending", "free, waits for a stream")],
        ...isTrace && chosen.layout === "memory" ? [item("none", "not held")] : [item("map-zombie", "old mapping, kept for later")]];
    const { colour } = chosen;
    if (colour === "state") {
        $("legend").replaceChildren(item("map-live", "live"), ...common);
    } else if (colour === "stream") {
        const streams = isTrace ? Array.from({ length: Math.min(chosen.input.streams, STREAM_COLOURS.length) }, (_, i) => i)
            : [...new Set(chosen.run.all.stream.filter((s, i) => s >= 0 && chosen.run.all.state[i] === LIVE))].sort((a, b) => a - b).slice(0, STREAM_COLOURS.length);
        $("legend").replaceChildren(...streams.map(s => item(STREAM_COLOURS[s % STREAM_COLOURS.length], isTrace || s ? `stream ${s}` : "cudaMalloc")), ...common);
    } else {
        const ramp = el("i", { class: "ramp", style: `background: linear-gradient(90deg, ${AGE_COLOURS.map(name => `var(--${name})`).join(",")})` });
        $("legend").replaceChildren(el("span", {}, isTrace ? "just allocated" : "just freed", ramp, isTrace ? `${formatNumber(oldestAge())} events ago` : `freed ${formatNumber(oldestAge())} frees ago`), ...common);
    }
}

/* What the scale of ages ends with: events of a trace, frees of a dump. */
function oldestAge() {
    return chosen.input instanceof Trace ? chosen.input.events : chosen.run.all.age.reduce((most, age) => Math.max(most, age), 0);
}

function redrawMap() {
    if (!chosen.run)
        return;
    showLegend();
    if (chosen.input instanceof Trace)
        showMoment();
    else
        drawDump();
}

function hideTip() {
    $("tip").hidden = true;
}

/* Beside a point of the window, and within it. */
function showTip(x, y, title, lines) {
    const tip = $("tip"), table = el("table");
    fill(table, null, lines.map(([name, value]) => row(name, value)));
    tip.replaceChildren(el("b", {}, title), table);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
    const top = y + 20 + box.height > innerHeight ? y - 12 - box.height : y + 20;
    tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

const hex = address => `0x${address.toString(16)}`;

function describeRegion(i, address) {
    const { regions } = regionMap, { input, run, event } = chosen;
    const state = regions.state[i], lines = [], ref = regions.ref[i];
    if (state === LIVE && regions.asked[i])
        lines.push(["asked for", formatBytes(regions.asked[i])]);
    if (input instanceof Trace && state === LIVE) {
        lines.push(["stream", String(regions.stream[i])], ["age", `${formatNumber(regions.age[i])} events, ${formatTime(input.time[event] - input.time[input.begin[ref]])}`],
            ["allocated", `event ${formatNumber(input.begin[ref])}`], ["freed", input.end[ref] < input.events ? `event ${formatNumber(input.end[ref])}` : "never"]);
    } else if (input instanceof Trace && state === FREE) {
        const last = run.lastAt(chosen.layout === "memory" ? address : run.homeOf(address, event), event);
        lines.push(...last < 0 ? [["used", "not yet"]] : [["last used for", formatBytes(input.asked[last])], ["stream", String(input.stream[last])],
            ["free for", `${formatNumber(event - input.end[last])} events, ${formatTime(input.time[event] - input.time[input.end[last]])}`]]);
    } else if (state !== ZOMBIE) {
        if (regions.stream[i] >= 0)
            lines.push(["stream", regions.stream[i] ? String(regions.stream[i]) : state === LIVE ? "none (cudaMalloc)" : "none (cudaFree)"]);
        if (regions.age[i] >= 0)
            lines.push(["freed", `${formatNumber(regions.age[i])} frees ago`]);
        if (ref.waits_for?.length)
            lines.push(["waits for", ref.waits_for.map(s => s ? `stream ${s}` : "a cudaFree").join(", ")]);
    }
    const block = input instanceof Trace && state === LIVE;
    lines.push(["address", hex(block ? run.place[ref] : regions.addr[i])]);
    const names = ["old mapping", "chunk, free here", "free, waits for a stream", "live"];
    return { title: `${formatBytes(block ? run.taken[ref] : regions.size[i])} ${input instanceof Trace ? names[state] : state === FREE ? "free" : names[state]}`, lines };
}

function selectRegion(i, address, x, y) {
    if (regionMap.selected !== i) {
        regionMap.selected = i;
        regionMap.draw(regionMap.regions, chosen.colour, oldestAge());
    }
    if (i < 0) {
        hideTip();
        return;
    }
    const { title, lines } = describeRegion(i, address);
    showTip(x, y, title, lines);
}

function listenToMap() {
    const canvas = $("map");
    canvas.addEventListener("pointermove", e => {
        const box = canvas.getBoundingClientRect(), address = regionMap.addressAt(e.clientX - box.left, e.clientY - box.top);
        soon(() => selectRegion(address < 0 ? -1 : regionMap.regions.at(address), address, e.clientX, e.clientY));
    });
    canvas.addEventListener("pointerleave", () => soon(() => selectRegion(-1)));
    canvas.addEventListener("blur", () => selectRegion(-1));
    canvas.addEventListener("keydown", e => {
        const direction = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
        if (e.key === "Escape")
            selectRegion(-1);
        if (!direction)
            return;
        e.preventDefault();
        const i = regionMap.neighbour(direction), box = canvas.getBoundingClientRect();
        if (i >= 0) {
            const { x, y } = regionMap.pointOf(i);
            selectRegion(i, regionMap.regions.addr[i], box.left + x, box.top + y);
        }
    });
}

/* ---- time: pointer, wheel, keyboard ---- */

function eventUnder(e) {
    const chart = charts[0], box = chart.canvas.getBoundingClientRect();
    return axis.event(Math.min(1, Math.max(0, (e.clientX - box.left - chart.left) / chart.width)));
}

function describeMoment(event, x, y) {
    const { run, input: trace } = chosen, bytes = bytesAt(run, event);
    const held = trace.runs.length > 1 ? trace.runs.map(other => [`held, ${other.policy}`, formatBytes(other.held[event])]) : [["held", formatBytes(bytes.held)]];
    showTip(x, y, `event ${formatNumber(event)} · ${formatTime(trace.time[event])}`,
        [...held, ["live", formatBytes(bytes.live)], ...WASTE.map(name => [name, formatBytes(bytes[name])])]);
    placeCursor($("hover"), event);
}

function listenToTracks() {
    let pressed = false;
    for (const id of ["memory", "waste", "calls"]) {
        const canvas = $(id);
        canvas.addEventListener("pointerdown", e => {
            pressed = true;
            canvas.setPointerCapture(e.pointerId);
            setMoment(eventUnder(e));
        });
        canvas.addEventListener("pointermove", e => {
            const event = eventUnder(e);
            if (pressed)
                setMoment(event);
            else
                soon(() => describeMoment(event, e.clientX, e.clientY));
        });
        canvas.addEventListener("pointerup", () => pressed = false);
        canvas.addEventListener("pointercancel", () => pressed = false);
        canvas.addEventListener("pointerleave", () => soon(() => {
            hideTip();
            $("hover").hidden = true;
        }));
        canvas.addEventListener("dblclick", () => zoomOut());
        canvas.addEventListener("wheel", e => {
            if (!e.ctrlKey && !e.metaKey)
                return;
            e.preventDefault();
            axis.zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) * 0.006), eventUnder(e));
            soon(redrawCharts);
        }, { passive: false });
    }
    $("reset").addEventListener("click", zoomOut);
}

function zoomOut() {
    axis.reset();
    soon(redrawCharts);
}

/* What shift makes of a step: a hundredth of the view. */
const stride = () => Math.max(1, Math.round((axis.to - axis.from) / 100));

const KEYS = {
    ArrowRight: e => setMoment(chosen.event + (e.shiftKey ? stride() : 1)),
    ArrowLeft: e => setMoment(chosen.event - (e.shiftKey ? stride() : 1)),
    PageDown: () => setMoment(chosen.event + stride() * 10),
    PageUp: () => setMoment(chosen.event - stride() * 10),
    Home: () => setMoment(0),
    End: () => setMoment(chosen.input.events - 1),
    "+": () => zoomKey(0.5),
    "=": () => zoomKey(0.5),
    "-": () => zoomKey(2),
    0: zoomOut,
    p: () => $("play").click(),
};

function zoomKey(factor) {
    axis.zoom(factor, chosen.event);
    soon(redrawCharts);
}

function listenToKeys() {
    /* Everywhere but where a key has its own meaning; in the slider, the arrows are ours, too. */
    document.addEventListener("keydown", e => {
        const inSlider = e.target === $("event");
        const taken = e.target.closest("button, summary, a, input, #map") && !inSlider;
        const key = KEYS[e.key];
        if (!key || taken || e.ctrlKey || e.metaKey || e.altKey || !(chosen.input instanceof Trace))
            return;
        if (!inSlider && ["PageDown", "PageUp", "Home", "End"].includes(e.key))
            return;
        e.preventDefault();
        key(e);
    });
    $("event").addEventListener("input", () => setMoment(Number($("event").value)));
}

/* A whole view in ten seconds, from where it is. */
function listenToPlay() {
    let playing = false, before = 0, at = 0;
    const step = now => {
        if (!playing || !(chosen.input instanceof Trace))
            return;
        at += (axis.to - axis.from) * (now - before) / 1e4;
        before = now;
        setMoment(Math.round(at));
        if (at < axis.to)
            requestAnimationFrame(step);
        else
            stop();
    };
    const stop = () => {
        playing = false;
        $("play").setAttribute("aria-pressed", "false");
    };
    $("play").addEventListener("click", () => {
        if (playing)
            return stop();
        playing = true;
        at = chosen.event >= axis.to ? axis.from : chosen.event;
        before = performance.now();
        $("play").setAttribute("aria-pressed", "true");
        requestAnimationFrame(step);
    });
    $("event").addEventListener("pointerdown", stop);
    $("play").setAttribute("aria-pressed", "false");
}

/* ---- choices ---- */

function choice(fieldset, name, options, now, changed) {
    for (const option of options) {
        const input = el("input", { type: "radio", name, value: option, checked: option === now });
        input.addEventListener("change", () => changed(option));
        fieldset.append(el("label", {}, input, el("span", {}, option)));
    }
}

/* The system's theme unless one was chosen. A page from a file may be refused its storage: then it forgets. */
function listenToTheme() {
    const dark = matchMedia("(prefers-color-scheme: dark)"), names = ["auto", "light", "dark"];
    let theme = "auto";
    try {
        theme = names.includes(localStorage.getItem("vpool-theme")) ? localStorage.getItem("vpool-theme") : "auto";
    } catch {}
    const apply = () => {
        document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
        $("theme").textContent = { auto: "◐ auto", light: "○ light", dark: "● dark" }[theme];
        $("theme").setAttribute("aria-label", `Theme: ${theme}`);
        if (!chosen.input)
            return;
        regionMap.readColours();
        redrawCharts();
        redrawMap();
    };
    dark.addEventListener("change", apply);
    $("theme").addEventListener("click", () => {
        theme = names[(names.indexOf(theme) + 1) % names.length];
        try {
            localStorage.setItem("vpool-theme", theme);
        } catch {}
        apply();
    });
    apply();
}

function start() {
    if (index.inputs.length > 1)
        index.inputs.forEach((about, i) => {
            const button = el("button", { type: "button", "aria-pressed": "false" }, about.name);
            button.addEventListener("click", () => {
                showInput(i);
                showLegend();
            });
            $("inputs").append(button);
        });
    choice($("axis"), "axis", ["events", "time"], "events", option => {
        axis.byTime = chosen.byTime = option === "time";
        redrawCharts();
    });
    choice($("layout"), "layout", ["memory", "address"], "memory", option => {
        chosen.layout = option;
        regionMap.layout(chosen.run, option);
        redrawMap();
    });
    choice($("colours"), "colours", ["state", "stream", "age"], "state", option => {
        chosen.colour = option;
        redrawMap();
    });
    listenToTheme();
    regionMap = new RegionMap($("map"));
    showInput(0);
    showLegend();
    listenToMap();
    listenToTracks();
    listenToKeys();
    listenToPlay();
    let width = innerWidth;
    addEventListener("resize", () => soon(() => {
        if (width === innerWidth)
            return;
        width = innerWidth;
        regionMap.resize();
        redrawCharts();
        redrawMap();
    }));
    requestAnimationFrame(() => performance.mark("ready"));
}

start();
