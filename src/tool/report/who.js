/* Who holds the memory: in a sentence, as a flame graph, by line, at the end, by range, and what differs between two inputs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

let flame = null;

/* ---- in words ---- */

const nameOfInput = about => about.devices > 1 ? `${about.name}, device ${about.device}` : about.name;

/* Who calls the line that holds most, where that is one caller in the main: many programs allocate in one place for all. */
function mainCaller(trace) {
    const stacks = trace.calls, self = bySelf(trace, QUESTIONS.peak(trace)), [line] = byLine(stacks, self), callers = new Map();
    for (let stack = 1; stack < stacks.count; stack++) {
        if (!self.number[stack] || stacks.lineOf(stack) !== line.frame)
            continue;
        let outer = stacks.parent[stacks.line[stack]];
        while (outer && stacks.frameOf(outer).kind === "p" && isInstalled(stacks.frameOf(outer).file))
            outer = stacks.parent[outer];
        callers.set(stacks.frameOf(outer), (callers.get(stacks.frameOf(outer)) ?? 0) + self.bytes[stack]);
    }
    const [frame, bytes] = [...callers].sort((a, b) => b[1] - a[1])[0] ?? [];
    return frame && frame !== UNKNOWN_FRAME && bytes > line.bytes / 2 ? frame.text : null;
}

function sentence(trace) {
    const { peak } = trace.about, [first, second] = peak.holders;
    const when = `At the peak, ${formatBytes(peak.bytes)} alive ${formatTime(peak.us)} after the start`;
    const short = text => text.length > 90 ? `${text.slice(0, 89)}…` : text;
    if (!first || !peak.bytes)
        return [`${when}. `, el("span", { class: "quiet" }, "Which line holds it is not known: record with --stacks (VPOOL_STACKS).")];
    const part = holder => `${formatBytes(holder.bytes)} (${formatShare(holder.bytes / peak.bytes)}) in ${formatNumber(holder.blocks)} block${holder.blocks === 1 ? "" : "s"}`;
    const name = holder => holder.known ? el("b", { title: holder.line }, short(holder.line)) : "what no stack is known of";
    const caller = first.known && mainCaller(trace);
    const words = [`${when}, `, name(first), ` holds most: ${part(first)}`, ...caller ? [", most of it for ", el("b", {}, short(caller))] : []];
    if (second)
        words.push("; then ", name(second), ` with ${formatBytes(second.bytes)}`);
    return [...words, "."];
}

/* ---- the flame graph ---- */

const SPANS = ["allocated", "temporary"];

/* The span that is asked about: what was chosen, or else what is in view. */
const spanNow = () => chosen.span ?? { from: axis.from, to: axis.to };

/* The parts of the flame graph: one, or one for each stream or device. */
function rootsOf(trace, question) {
    const { event } = chosen, { calls } = trace, span = spanNow();
    const of = other => QUESTIONS[question](other, other === trace ? event : other.eventAt(trace.time[event]),
        other === trace ? span : { from: other.eventAt(trace.time[span.from]), to: other.eventAt(trace.time[span.to]) });
    if (chosen.by === "device")
        return devicesOf(trace).map(other => ({ name: `device ${other.about.device}`, stacks: calls, self: bySelf(other, of(other)).bytes }));
    const blocks = of(trace);
    if (chosen.by !== "stream")
        return [{ name: "all", stacks: calls, self: bySelf(trace, blocks).bytes }];
    const streams = new Map();
    for (const block of blocks) {
        const stream = trace.stream[block];
        if (!streams.has(stream))
            streams.set(stream, []);
        streams.get(stream).push(block);
    }
    return [...streams].sort((a, b) => a[0] - b[0]).map(([stream, some]) => ({ name: `stream ${stream}`, stacks: calls, self: bySelf(trace, some).bytes }));
}

/* What the question is, for people. */
function wordsOf(trace, question) {
    const { from, to } = spanNow(), { time } = trace;
    return {
        moment: `alive after event ${formatNumber(chosen.event)}, ${formatTime(time[chosen.event])}`,
        peak: `alive at the peak, event ${formatNumber(trace.peak)}, ${formatTime(time[trace.peak])}`,
        end: "alive at the end",
        allocated: `asked for from event ${formatNumber(from)} to ${formatNumber(to)}${chosen.span?.name ? `, ${chosen.span.name}` : ""}`,
        temporary: `asked for and freed again from event ${formatNumber(from)} to ${formatNumber(to)}${chosen.span?.name ? `, ${chosen.span.name}` : ""}`,
    }[question];
}

/* What does not change with the moment is not drawn anew with it. */
function showWho(moved = false) {
    const { input: trace, question } = chosen;
    if (!(trace instanceof Trace))
        return showHolders();
    if (moved && question !== "moment")
        return;
    const roots = rootsOf(trace, question);
    flame.show(roots);
    $("asked").textContent = `${formatBytes(flame.sum)} ${wordsOf(trace, question)}`;
    $("span-clear").hidden = !chosen.span || !SPANS.includes(question);
    const blocks = QUESTIONS[question](trace, chosen.event, spanNow()), rows = byLine(trace.calls, bySelf(trace, blocks));
    $("lines-box").hidden = !trace.hasStacks;
    if (trace.hasStacks)
        showLines($("lines"), trace, rows, flame.sum);
    if (chosen.search)
        showFound();
}

/* The same of a dump's device, which knows its largest holders. */
function showHolders() {
    const { run } = chosen, known = Boolean(run?.calls);
    for (const id of ["who", "lines-box"])
        $(id).hidden = !known;
    if (!known)
        return;
    flame.show([{ name: "all", stacks: run.calls, self: run.self.bytes }]);
    $("asked").textContent = `${formatBytes(flame.sum)} of ${formatBytes(run.about.live_bytes ?? 0)} alive, by the largest holders`;
    $("span-clear").hidden = true;
    showLines($("lines"), run, byLine(run.calls, run.self), flame.sum);
    if (chosen.search)
        showFound();
}

/* A button that shows a stack, innermost frame first. */
function stackDetails(stacks, stack, text) {
    const details = el("details", { class: "stack" }, el("summary", {}, el("span", {}, text)));
    details.addEventListener("toggle", () => {
        if (details.open && details.children.length === 1)
            details.append(el("ol", {}, ...stacks.framesOf(stack).map(frame => el("li", { title: frame.file }, frame.text))));
    });
    return details;
}

/* A name, of which two lines are shown; all of it when it is pointed at. */
const nameCell = text => el("td", { class: "name" }, el("span", { title: text }, text));

const SHOWN = 10;

/* The first rows of a table, and a button for the rest of them. */
function fillSome(table, head, rows, make, most = SHOWN) {
    const all = table.dataset.all === "1", shown = all ? rows.slice(0, 500) : rows.slice(0, most);
    fill(table, head, shown.map(make));
    if (rows.length <= most)
        return;
    const button = el("button", { type: "button" }, all ? "fewer" : `all ${formatNumber(rows.length)}`);
    button.addEventListener("click", () => {
        table.dataset.all = all ? "0" : "1";
        fillSome(table, head, rows, make, most);
    });
    table.append(el("caption", { class: "more" }, button));
}

function showLines(table, trace, rows, sum) {
    fillSome(table, ["line", "", "bytes", "share", "blocks"], rows, line => row(
        el("td", { class: "name" }, stackDetails(trace.calls, line.stack, line.frame.text)),
        el("td", { class: "wide" }, el("i", { class: "meter", style: `width: ${line.bytes / rows[0].bytes * 100}%; background: var(--map-live)` })),
        formatBytes(line.bytes), sum ? formatShare(line.bytes / sum) : "–", formatNumber(line.blocks)));
}

/* ---- at the end ---- */

function showLeaks(trace) {
    const blocks = QUESTIONS.end(trace), self = bySelf(trace, blocks), rows = [], first = new Map();
    for (const block of blocks) {
        const stack = trace.stackOf(block);
        if (!first.has(stack))
            first.set(stack, block);
    }
    for (let stack = 0; stack < self.bytes.length; stack++)
        if (self.number[stack])
            rows.push({ stack, bytes: self.bytes[stack], blocks: self.number[stack], first: first.get(stack) });
    rows.sort((a, b) => b.bytes - a.bytes);
    const sum = rows.reduce((all, leak) => all + leak.bytes, 0);
    $("leaks-words").textContent = rows.length
        ? `${formatBytes(sum)} in ${formatNumber(blocks.length)} blocks were not freed when the recording ended. At the exit of a program that is usual; what grows from step to step is not.`
        : "Everything was freed.";
    fillSome($("leaks"), rows.length ? ["asked for by", "bytes", "blocks", "first at"] : null, rows, leak => row(
        el("td", { class: "name" }, trace.hasStacks ? stackDetails(trace.calls, leak.stack, trace.calls.lineOf(leak.stack).text) : "unknown"),
        formatBytes(leak.bytes), formatNumber(leak.blocks), momentButton(trace.begin[leak.first], formatTime(trace.time[trace.begin[leak.first]]))));
}

function momentButton(event, text) {
    const button = el("button", { type: "button", class: "inline" }, text);
    button.addEventListener("click", () => setMoment(event));
    return button;
}

/* ---- by range ---- */

function chooseSpan(range) {
    chosen.span = { from: range.from, to: range.to, name: range.name };
    if (!SPANS.includes(chosen.question))
        choose("question", "allocated");
    axis.show(range.from, range.to);
    setMoment(range.from);
    soon(redrawCharts);
    soon(() => showWho());
}

function showRanges(trace, run) {
    const { records } = trace, held = records.held;
    $("ranges-box").hidden = !trace.about.ranges;
    if (!trace.about.ranges)
        return;
    const rows = records.byRange(run.live, held ?? run.held);
    fillSome($("ranges"), ["range", "times", "in all", "peak live", held ? "peak held, as it ran" : "peak held, replayed", "most grown by", ""], rows, range => {
        const button = el("button", { type: "button", class: "inline" }, "show");
        button.addEventListener("click", () => chooseSpan(range.at));
        return row(nameCell(range.name), formatNumber(range.count), formatTime(range.time), formatBytes(Math.max(0, range.live)), formatBytes(range.held),
            formatBytes(range.growth), button);
    });
}

/* ---- devices ---- */

function devicesOf(trace) {
    return index.inputs.map((about, i) => [about, i]).filter(([about]) => about.kind === "trace" && about.group === trace.about.group).map(([, i]) => inputOf(i));
}

/* A row for each device of the recording, with its chart over the same time. */
function showDevices(trace) {
    const all = index.inputs.map((about, number) => ({ about, number })).filter(({ about }) => about.group === trace.about.group && about.kind === "trace");
    $("devices-box").hidden = all.length < 2;
    if (all.length < 2)
        return;
    const most = Math.max(...all.map(({ about }) => about.peak.bytes)), ran = all.some(({ about }) => about.as_it_ran);
    fill($("devices"), ["device", "live over time", "peak live", ...ran ? ["peak held, as it ran"] : [], "peak held, replayed", "failed"], all.map(({ about, number }) => {
        const input = el("input", { type: "radio", name: "device", checked: number === trace.input });
        input.addEventListener("change", () => showInput(number));
        const points = about.course.map((bytes, i) => `${(i / (about.course.length - 1) * 100).toFixed(2)}% ${(100 - bytes / most * 96).toFixed(1)}%`).join(",");
        const chart = el("div", { class: "course", role: "img", "aria-label": `live up to ${formatBytes(about.peak.bytes)}`, style: `clip-path: polygon(0% 100%,${points},100% 100%)` });
        return row(el("td", {}, el("label", { class: "row" }, input, `device ${about.device}`)), el("td", { class: "wide" }, chart), formatBytes(about.peak.bytes),
            ...ran ? [about.as_it_ran ? formatBytes(about.as_it_ran.peak_held_bytes) : "–"] : [], formatBytes(about.runs[0].peak_held_bytes),
            formatNumber(about.failures || 0));
    }));
}

/* ---- the difference of two ---- */

/* What an input holds, by what names it in both: rows by key of { text, bytes, blocks }. */
function holdersOf(input, when) {
    const rows = new Map();
    const add = (key, text, bytes, blocks) => {
        const one = rows.get(key) ?? { text, bytes: 0, blocks: 0 };
        one.bytes += bytes;
        one.blocks += blocks;
        rows.set(key, one);
    };
    if (input instanceof Trace) {
        const blocks = QUESTIONS[when](input, 0);
        if (input.hasStacks)
            for (const line of byLine(input.calls, bySelf(input, blocks)))
                add(`${line.frame.file}|${line.frame.text}`, line.frame.text, line.bytes, line.blocks);
        else
            for (const block of blocks)
                add(...sizeClass(input.asked[block]), input.asked[block], 1);
    } else {
        for (const run of input.runs) {
            if (run.calls)
                for (const line of byLine(run.calls, run.self))
                    add(`${line.frame.file}|${line.frame.text}`, line.frame.text, line.bytes, line.blocks);
            for (let i = 0; i < run.all.count && !run.calls; i++)
                if (run.all.state[i] === LIVE)
                    add(...sizeClass(run.all.asked[i] || run.all.size[i]), run.all.asked[i] || run.all.size[i], 1);
        }
    }
    return rows;
}

function sizeClass(bytes) {
    const power = Math.floor(Math.log2(Math.max(1, bytes)));
    return [`size ${power}`, `blocks from ${formatBytes(2 ** power)}`];
}

function showDifference() {
    const others = index.inputs.map((about, number) => ({ about, number })).filter(({ number }) => inputs[number] !== chosen.input);
    $("difference-box").hidden = !others.length;
    if (!others.length)
        return;
    /* Of two recordings each is compared with the other, unless one says otherwise. */
    const two = others.length === 1 && (others[0].about.kind !== "trace" || others[0].about.group !== chosen.input.about.group);
    const number = inputs[chosen.other] === chosen.input || chosen.other === null ? two ? others[0].number : null : chosen.other;
    $("other").replaceChildren(el("option", { value: "" }, "…"), ...others.map(({ about, number: one }) => el("option", { value: one, selected: one === number }, nameOfInput(about))));
    const table = $("difference"), words = $("difference-words");
    if (number === null) {
        fill(table, null, []);
        words.textContent = "Choose what to compare with.";
        return;
    }
    const other = inputOf(number), when = chosen.compared, before = holdersOf(other, when), now = holdersOf(chosen.input, when);
    const rows = [...new Set([...before.keys(), ...now.keys()])].map(key => {
        const a = before.get(key)?.bytes ?? 0, b = now.get(key)?.bytes ?? 0;
        return { text: (now.get(key) ?? before.get(key)).text, a, b, more: b - a };
    }).sort((x, y) => Math.abs(y.more) - Math.abs(x.more) || y.b - x.b);
    const sum = rows.reduce((all, one) => all + one.more, 0), most = Math.max(1, ...rows.map(one => Math.abs(one.more)));
    words.textContent = `${formatBytes(Math.abs(sum))} ${sum < 0 ? "less" : "more"} than ${nameOfInput(other.about)}${chosen.input instanceof Trace ? `, ${when === "peak" ? "at the peak of each" : "at the end of each"}` : ""}.`;
    fillSome(table, ["", "", nameOfInput(other.about), "here", "difference"], rows.filter(one => one.more || one.a), one => row(
        nameCell(one.text),
        el("td", { class: "wide" }, el("i", { class: "meter", style: `width: ${Math.abs(one.more) / most * 100}%; background: var(--${one.more > 0 ? "pinned" : "c2"})` })),
        formatBytes(one.a), formatBytes(one.b), `${one.more > 0 ? "+" : one.more < 0 ? "−" : ""}${formatBytes(Math.abs(one.more))}`));
}

/* ---- search ---- */

/* Whatever has text: frames with their files, marks, ranges, and the other inputs. */
function findText(trace, words) {
    const fits = text => text.toLowerCase().includes(words), frames = new Set(), found = [];
    const calls = trace instanceof Trace ? trace.calls : chosen.run?.calls;
    if (calls)
        for (const frame of calls.frames)
            if (fits(frame.text) || fits(frame.file))
                frames.add(frame);
    const { marks, ranges } = trace.records ?? { marks: [], ranges: [] };
    for (const mark of marks)
        if (fits(mark.name))
            found.push({ kind: "mark", text: mark.name, note: formatTime(mark.time), go: () => setMoment(mark.at) });
    const names = new Set();
    for (const range of ranges)
        if (!names.has(range.name) && fits(range.name)) {
            names.add(range.name);
            found.push({ kind: "range", text: range.name, note: formatTime(range.time), go: () => chooseSpan(range) });
        }
    index.inputs.forEach((about, i) => {
        if (fits(nameOfInput(about)) && inputs[i] !== trace)
            found.push({ kind: "input", text: nameOfInput(about), note: "", go: () => showInput(i) });
    });
    return { frames, found };
}

/* Does the frame stand further out in the same stack, too? Then its bytes are counted there. */
function isRepeated(stacks, stack) {
    for (let outer = stacks.parent[stack]; outer; outer = stacks.parent[outer])
        if (stacks.frame[outer] === stacks.frame[stack])
            return true;
    return false;
}

function showFound() {
    const { input: trace } = chosen, words = chosen.search.trim().toLowerCase();
    $("found").hidden = !words;
    if (!words) {
        flame.found = null;
        flame.draw();
        return;
    }
    const { frames, found } = findText(trace, words);
    flame.found = frames.size ? frames : new Set();
    flame.draw();
    /* Stacks with such a frame, each counted once, where the outermost of them stands. */
    const rows = new Map();
    let bytes = 0;
    flame.roots.forEach((root, number) => {
        if (!root.stacks || !frames.size)
            return;
        const within = new Uint8Array(root.stacks.count);
        for (let stack = 1; stack < root.stacks.count; stack++) {
            const frame = root.stacks.frameOf(stack), own = frames.has(frame), outer = within[root.stacks.parent[stack]];
            within[stack] = own || outer ? 1 : 0;
            if (own && !outer)
                bytes += root.total[stack];
            if (!own || !root.total[stack])
                continue;
            const one = rows.get(frame) ?? { frame, bytes: 0, root: number, stack, most: 0 };
            one.bytes += isRepeated(root.stacks, stack) ? 0 : root.total[stack];
            if (root.total[stack] > one.most)
                Object.assign(one, { most: root.total[stack], root: number, stack });
            rows.set(frame, one);
        }
    });
    const lines = [...rows.values()].sort((a, b) => b.bytes - a.bytes).map(one => ({ kind: "frame", text: one.frame.text, note: formatBytes(one.bytes),
        go: () => { flame.zoomed = { root: one.root, stack: one.stack }; flame.draw(); saveState(); } }));
    const all = [...lines, ...found];
    $("found-words").textContent = `${formatNumber(frames.size)} frames, with ${formatBytes(bytes)} of ${formatBytes(flame.sum)} here; ${formatNumber(found.length)} marks, ranges and inputs.`;
    fillSome($("found-list"), null, all, one => {
        const button = el("button", { type: "button", class: "inline" }, one.text);
        button.addEventListener("click", one.go);
        return row(el("td", { class: "name" }, button), one.kind, one.note);
    }, 8);
}
