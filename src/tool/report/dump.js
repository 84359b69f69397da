/* What of the page is of a dump: its figures, its devices, and what stood in the way. */
/* SPDX-License-Identifier: Apache-2.0 */

const REASON_WORDS = { exit: "at exit", oom: "out of memory", signal: "by a signal", every: "at an interval", request: "on request" };

function showDump() {
    const { dump, runs } = chosen.input;
    const about = [dump.program && `${dump.program}, pid ${dump.pid}`, dump.policy && `policy ${dump.policy}`, dump.time,
        REASON_WORDS[dump.reason] ?? dump.reason];
    $("subtitle").textContent = about.filter(Boolean).join(" · ");
    if (dump.request) {
        $("notice").hidden = false;
        $("notice").textContent = `An allocation of ${formatBytes(dump.request.asked)} on device ${dump.request.device} failed.`
            + runs.filter(run => run.about.device === dump.request.device).map(run => ` The largest that could be had was ${formatBytes(run.about.largest_request ?? run.about.largest_free ?? 0)}.`).join("");
    }
    showDevice(runs.find(run => run.about.device === dump.request?.device) ?? runs[0]);
}

function showDevice(run) {
    chosen.run = run;
    if (!run) {
        $("figures").replaceChildren(el("p", { class: "quiet" }, "No device of this process has a pool."));
        $("moment").hidden = true;
        return;
    }
    const { about } = run;
    $("moment").hidden = false;
    $("figures").replaceChildren(
        figure(formatBytes(about.live_bytes ?? 0), "live"),
        figure(formatBytes(about.held_bytes ?? 0), "held"),
        figure(formatBytes(about.peak_held_bytes ?? 0), `peak held, for ${formatBytes(about.peak_live_bytes ?? 0)} live`),
        ...about.spilled_bytes ? [figure(formatBytes(about.spilled_bytes), "spilled to the host's memory")] : [],
        ...about.asleep_bytes ? [figure(formatBytes(about.asleep_bytes), "asleep, and not held")] : [],
        ...about.addressed_bytes ? [figure(formatBytes(about.addressed_bytes), "of addresses in bare segments")] : [],
        figure(formatBytes(about.largest_request ?? about.largest_free ?? 0), about.device_total ? "largest block to be had" : "largest block to be had without new memory"),
        ...about.device_total ? [figure(formatBytes(about.device_free), `free of the device's ${formatBytes(about.device_total)}`)] : []);
    regionMap.layout(run, "address");
    drawDump();
    showBytes({ live: about.live_bytes ?? 0, held: about.held_bytes ?? 0, elsewhere: (about.spilled_bytes ?? 0) + (about.asleep_bytes ?? 0), ...about.waste });
    showSizes(run.all);
    showLargest(run.all);
    $("who").hidden = $("says").hidden = !run.calls;
    if (run.calls) {
        const [line] = byLine(run.calls, run.self);
        $("says").replaceChildren(el("b", {}, line.frame.text), ` holds most: ${formatBytes(line.bytes)} of ${formatBytes(about.live_bytes ?? 0)} alive, in ${formatNumber(line.blocks)} block${line.blocks === 1 ? "" : "s"}.`);
    }
    flame.measure();
    showWho();
    showDetails(run);
}

function drawDump() {
    regionMap.draw(chosen.run.all, chosen.colour, oldestAge());
}

function showDetails(run) {
    const { about, dump } = run, { chunks = [], obstacles = {} } = about, parts = [];
    const section = (title, head, rows) => {
        const table = el("table");
        fill(table, head, rows);
        parts.push(el("div", {}, el("h2", {}, title), el("div", { class: "scroll" }, table)));
    };
    if (chosen.input.runs.length > 1)
        section("Devices", ["device", "live", "held", ""], chosen.input.runs.map(other => {
            const button = el("button", { type: "button", disabled: other === run }, other === run ? "shown" : "show");
            button.addEventListener("click", () => showDevice(other));
            return row(String(other.about.device), formatBytes(other.about.live_bytes ?? 0), formatBytes(other.about.held_bytes ?? 0), button);
        }));
    if (obstacles.pinned?.length)
        section("Chunks most pinned", ["chunk", "size", "free in it", "live blocks"],
            obstacles.pinned.map(o => row(o.chunk, formatBytes(o.size), formatBytes(o.free_bytes), formatNumber(o.blocks))));
    if (obstacles.waits_for?.length)
        section("Streams most waited for", ["stream", "bytes"], obstacles.waits_for.map(o => row(o.stream ? String(o.stream) : "cudaFree", formatBytes(o.bytes))));
    if (chunks.length)
        section("Chunks", ["size", "count", "wholly free"], chunks.map(c => row(formatBytes(c.size), formatNumber(c.count), formatNumber(c.wholly_free))));
    const counts = [["allocations", about.allocs], ["frees", about.frees], ["out of memory", about.ooms], ["waits on the GPU", about.waits_gpu],
        ["waits on the host", about.waits_host]].filter(([, n]) => n !== undefined);
    section("Counts", null, [...counts.map(([name, n]) => row(name, formatNumber(n))),
        ...about.driver_us !== undefined ? [row("time in the driver", formatTime(about.driver_us))] : [],
        ...Object.entries(dump.passed_on ?? {}).map(([name, n]) => row(`${name}, passed on`, formatNumber(n)))]);
    $("details").replaceChildren(el("div", { class: "columns" }, ...parts));
}
