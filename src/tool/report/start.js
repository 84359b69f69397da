/* The beginning: choices, the theme, the state in the address, and the first input.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/* ---- choices ---- */

function choice(fieldset, name, options, now, changed) {
    for (const option of options) {
        const input = el("input", { type: "radio", name, value: option, checked: option === now });
        input.addEventListener("change", () => {
            changed(option);
            saveState();
        });
        fieldset.append(el("label", {}, input, el("span", {}, option)));
    }
}

/* What a choice does when it is made elsewhere than in its fieldset. */
function choose(name, option) {
    chosen[name] = option;
    for (const input of document.querySelectorAll(`input[name="${name}"]`))
        input.checked = input.value === option;
}

/* ---- the state in the address ---- */

/* Whatever is chosen, so that a link shows the same again. */
function stateNow() {
    const { input } = chosen, state = { input: inputs.indexOf(input) };
    if (input instanceof Trace) {
        Object.assign(state, { event: chosen.event, policy: chosen.run.policy, question: chosen.question, by: chosen.by, layout: chosen.layout,
            axis: chosen.byTime ? "time" : "events" });
        if (axis.zoomed)
            state.view = `${axis.from}-${axis.to}`;
        if (chosen.span)
            state.span = `${chosen.span.from}-${chosen.span.to}`;
        if (flame.zoomed)
            state.zoom = `${flame.zoomed.root}-${flame.zoomed.stack}`;
    }
    state.colour = chosen.colour;
    if (chosen.search)
        state.search = chosen.search;
    if (chosen.other !== null)
        Object.assign(state, { other: chosen.other, compared: chosen.compared });
    return new URLSearchParams(state).toString();
}

let saving = 0, restoring = false;

/* A browser takes no more than some addresses a second. */
function saveState() {
    clearTimeout(saving);
    if (!restoring && chosen.input)
        saving = setTimeout(() => {
            try {
                history.replaceState(null, "", `#${stateNow()}`);
            } catch {}
        }, 250);
}

const pairOf = (text, most) => {
    const pair = /^(\d+)-(\d+)$/.exec(text ?? "");
    return pair && Number(pair[2]) <= most ? [Number(pair[1]), Number(pair[2])] : null;
};

/* What an address says and does not hold here is passed over. */
function restoreState() {
    const state = new URLSearchParams(location.hash.slice(1)), number = Number(state.get("input") ?? 0);
    const allowed = (name, options, apply) => options.includes(state.get(name)) && apply(state.get(name));
    restoring = true;
    allowed("colour", ["state", "stream", "age"], option => choose("colour", option));
    allowed("layout", ["memory", "address"], option => choose("layout", option));
    allowed("question", Object.keys(QUESTIONS), option => choose("question", option));
    allowed("by", ["stack", "device", "stream"], option => choose("by", option));
    allowed("compared", ["peak", "end"], option => choose("compared", option));
    allowed("axis", ["events", "time"], option => {
        chosen.byTime = option === "time";
        for (const input of document.querySelectorAll('input[name="axis"]'))
            input.checked = input.value === option;
    });
    const other = Number(state.get("other") ?? NaN);
    chosen.other = index.inputs[other] ? other : null;
    $("search").value = chosen.search = state.get("search") ?? "";
    showInput(index.inputs[number] ? number : 0);
    if (chosen.input instanceof Trace && [...state].length)
        restoreMoment(state);
    restoring = false;
}

function restoreMoment(state) {
    const { events, runs } = chosen.input, view = pairOf(state.get("view"), events - 1), span = pairOf(state.get("span"), events - 1);
    const run = runs.find(one => one.policy === state.get("policy"));
    if (run && run !== chosen.run) {
        chosen.run = run;
        showPolicies();
        showRun();
    }
    if (view && view[0] < view[1])
        axis.show(...view);
    if (span && span[0] <= span[1])
        chosen.span = { from: span[0], to: span[1] };
    if (/^\d+$/.test(state.get("event") ?? ""))
        setMoment(Number(state.get("event")));
    const zoom = pairOf(state.get("zoom"), Math.max(0, chosen.input.about.stacks - 1));
    if (zoom && flame.roots[zoom[0]]?.stacks)
        flame.zoomed = { root: zoom[0], stack: zoom[1] };
    redrawCharts();
    showWho();
    if (chosen.search)
        showFound();
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
        flame.readColours();
        flame.draw();
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
            const button = el("button", { type: "button", "aria-pressed": "false" }, nameOfInput(about));
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
    choice($("colours"), "colour", ["state", "stream", "age"], "state", option => {
        chosen.colour = option;
        redrawMap();
    });
    choice($("question"), "question", Object.keys(QUESTIONS), "moment", option => {
        chosen.question = option;
        flame.zoomed = null;
        showWho();
        redrawCharts();
    });
    choice($("by"), "by", ["stack", "stream", ...index.inputs.some(about => about.devices > 1) ? ["device"] : []], "stack", option => {
        chosen.by = option;
        flame.zoomed = null;
        showWho();
    });
    choice($("compared-when"), "compared", ["peak", "end"], "peak", option => {
        chosen.compared = option;
        showDifference();
    });
    listenToTheme();
    regionMap = new RegionMap($("map"));
    flame = new FlameGraph($("flame"));
    restoreState();
    showLegend();
    listenToMap();
    listenToSpans();
    listenToFlame();
    listenToSearch();
    listenToTracks();
    listenToKeys();
    listenToPlay();
    let width = innerWidth;
    addEventListener("resize", () => soon(() => {
        if (width === innerWidth)
            return;
        width = innerWidth;
        regionMap.resize();
        flame.measure();
        flame.draw();
        redrawCharts();
        redrawMap();
    }));
    addEventListener("hashchange", () => {
        restoreState();
        showLegend();
    });
    requestAnimationFrame(() => performance.mark("ready"));
}

start();
