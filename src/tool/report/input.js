/* Pointer and keyboard: what the map, the charts, the flame graph and the page do when they are touched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

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
function showTip(x, y, title, lines, frames = []) {
    const tip = $("tip"), table = el("table"), most = 14;
    fill(table, null, lines.map(([name, value]) => row(name, value)));
    const rest = frames.length - most;
    tip.replaceChildren(el("b", {}, title), table, ...frames.length ? [el("ol", {}, ...frames.slice(0, most).map(frame => el("li", {}, frame.text)),
        ...rest > 0 ? [el("li", {}, `… ${rest} more`)] : [])] : []);
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
    const frames = block && input.hasStacks ? input.calls.framesOf(input.stackOf(ref)) : input instanceof Dump ? run.framesOf(ref) : [];
    return { frames, title: `${formatBytes(block ? run.taken[ref] : regions.size[i])} ${input instanceof Trace ? names[state] : state === FREE ? "free" : names[state]}`, lines };
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
    const { title, lines, frames } = describeRegion(i, address);
    showTip(x, y, title, lines, frames);
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
    const { run, input: trace } = chosen, bytes = bytesAt(run, event), ran = trace.records.held;
    const held = trace.runs.map(other => [`held, replayed${trace.runs.length > 1 ? ` by ${other.policy}` : ""}`, formatBytes(other.held[event])]);
    const within = trace.records.ranges.filter(range => range.from <= event && event <= range.to && !range.empty).slice(-4).map(range => ["in", range.name]);
    showTip(x, y, `event ${formatNumber(event)} · ${formatTime(trace.time[event])}`,
        [...within, ...ran ? [["held, as it ran", formatBytes(ran[event])]] : [], ...held, ["live", formatBytes(bytes.live)], ...WASTE.map(name => [name, formatBytes(bytes[name])])]);
    placeCursor($("hover"), event);
}

/* Ranges and marks under the pointer: what they are, and a click shows them. */
function listenToSpans() {
    const canvas = $("spans");
    const under = e => {
        const box = canvas.getBoundingClientRect();
        return spanAt(charts[3], chosen.input, e.clientX - box.left, e.clientY - box.top);
    };
    canvas.addEventListener("pointermove", e => soon(() => {
        const found = under(e);
        if (!found)
            return hideTip();
        const { live } = chosen.run;
        if (found.lane === undefined)
            return showTip(e.clientX, e.clientY, found.name, [["mark at", formatTime(found.time)], ["live", formatBytes(live[found.at])]]);
        const peak = new Peaks(live.subarray(found.from, found.to + 1)).over(0, found.to - found.from);
        showTip(e.clientX, e.clientY, found.name, [["from", formatTime(found.time)], ["for", found.open ? "not ended" : formatTime(found.duration)],
            ["peak live", formatBytes(peak)], ["grown by", formatBytes(live[found.to] - (found.from ? live[found.from - 1] : 0))],
            ["events", formatNumber(found.empty ? 0 : found.to - found.from + 1)], ["thread", String(found.thread)]]);
    }));
    canvas.addEventListener("pointerleave", () => soon(hideTip));
    canvas.addEventListener("click", e => {
        const found = under(e);
        if (found)
            found.lane === undefined ? setMoment(found.at) : chooseSpan(found);
    });
}

function listenToFlame() {
    const canvas = $("flame");
    const describe = (i, x, y) => {
        if (flame.selected !== i) {
            flame.selected = i;
            flame.draw();
        }
        if (i < 0)
            return hideTip();
        const rect = flame.rects[i], root = flame.roots[rect.root], frame = flame.frameOf(rect);
        const lines = [["here", formatBytes(rect.bytes)], ["of all", flame.sum ? formatShare(rect.bytes / flame.sum) : "–"]];
        if (frame?.file)
            lines.push([KINDS[frame.kind] || "file", frame.file]);
        if (root?.stacks && rect.stack)
            lines.push(["of its own", formatBytes(root.self[rect.stack])]);
        return showTip(x, y, flame.textOf(rect), lines);
    };
    canvas.addEventListener("pointermove", e => {
        const box = canvas.getBoundingClientRect(), { clientX: x, clientY: y } = e;
        soon(() => describe(flame.at(x - box.left, y - box.top), x, y));
    });
    canvas.addEventListener("pointerleave", () => soon(() => describe(-1)));
    canvas.addEventListener("blur", () => describe(-1));
    canvas.addEventListener("click", e => {
        const box = canvas.getBoundingClientRect();
        zoomFlame(flame.at(e.clientX - box.left, e.clientY - box.top));
    });
    canvas.addEventListener("keydown", e => {
        if (e.key === "Escape")
            zoomFlame(-1);
        if (e.key === "Enter")
            zoomFlame(flame.selected);
        if (!e.key.startsWith("Arrow"))
            return;
        e.preventDefault();
        const i = flame.step(e.key), rect = flame.rects[i], box = canvas.getBoundingClientRect();
        flame.draw();
        if (rect)
            describe(i, box.left + rect.x + Math.min(rect.wide / 2, 40), box.top + rect.row * FLAME.row + FLAME.row);
    });
}

function zoomFlame(i) {
    flame.zoom(i);
    hideTip();
    saveState();
}

function listenToSearch() {
    $("search").addEventListener("input", () => {
        chosen.search = $("search").value;
        soon(showFound);
        saveState();
    });
    $("span-clear").addEventListener("click", () => {
        chosen.span = null;
        showWho();
        saveState();
    });
    $("other").addEventListener("change", () => {
        chosen.other = $("other").value === "" ? null : Number($("other").value);
        showDifference();
        saveState();
    });
}

function listenToTracks() {
    let pressed = false, begun = -1;
    for (const id of ["memory", "waste", "calls"]) {
        const canvas = $(id);
        canvas.addEventListener("pointerdown", e => {
            pressed = true;
            canvas.setPointerCapture(e.pointerId);
            begun = e.shiftKey ? eventUnder(e) : -1;
            setMoment(eventUnder(e));
        });
        canvas.addEventListener("pointermove", e => {
            const event = eventUnder(e);
            if (pressed && begun >= 0)
                markSpan(begun, event);
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

/* A span is drawn with shift. */
function markSpan(from, to) {
    chosen.span = { from: Math.min(from, to), to: Math.max(from, to) };
    if (!SPANS.includes(chosen.question))
        choose("question", "allocated");
    soon(redrawCharts);
    soon(() => showWho());
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
    "/": () => $("search").focus(),
};

function zoomKey(factor) {
    axis.zoom(factor, chosen.event);
    soon(redrawCharts);
}

function listenToKeys() {
    /* Everywhere but where a key has its own meaning; in the slider, the arrows are ours, too. */
    document.addEventListener("keydown", e => {
        const inSlider = e.target === $("event");
        const taken = e.target.closest("button, summary, a, input, select, #map, #flame") && !inSlider;
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
