/* The flame graph: what stacks have, as wide as they have it, the outermost frame on top. One tree, or one for each device or
 * stream side by side. What is narrower than a pixel is left out, so that a moment of twenty thousand stacks is drawn at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

const FLAME = { row: 19, most: 48, least: 0.7, letter: 6.1 };

class FlameGraph {
    constructor(canvas) {
        this.canvas = canvas;
        this.context = canvas.getContext("2d");
        this.pixels = document.createElement("canvas");
        this.rects = [];
        this.zoomed = null;         // { root, stack }: what fills the width
        this.selected = -1;
        this.found = null;          // frames that are searched for
    }

    /* Each as the four bytes of a pixel; and paler, for what is not meant. */
    readColours() {
        const page = rgbOf("page"), pair = name => {
            const rgb = rgbOf(name), word = share => (255 << 24 | [2, 1, 0].reduce((all, c) => all << 8 | Math.round(page[c] + (rgb[c] - page[c]) * share), 0)) >>> 0;
            return [word(1), word(0.45)];
        };
        this.colours = { p: ["f0", "f1", "f2"].map(pair), c: ["f3", "f4"].map(pair), t: [pair("f5")], installed: ["f6", "f7"].map(pair),
            root: pair("f8"), found: pair("found"), ink: colourOf("flame-ink"), mark: colourOf("ink"), font: colourOf("font") };
    }

    /* `roots`: { name, stacks, self }; what each has by stack. `unit` formats a sum. */
    show(roots) {
        this.roots = roots.map(root => ({ ...root, total: root.stacks ? root.stacks.total(root.self) : root.self }));
        this.sum = this.roots.reduce((sum, root) => sum + root.total[0], 0);
        if (this.zoomed && !this.roots[this.zoomed.root])
            this.zoomed = null;
        this.draw();
    }

    /* ---- places ---- */

    lay() {
        const { rects } = this;
        rects.length = 0;
        this.scale = this.width / Math.max(1, this.zoomed ? this.roots[this.zoomed.root].total[this.zoomed.stack] : this.sum);
        if (!this.zoomed) {
            this.put(-1, 0, 0, 0, this.width, this.sum);
            let x = 0;
            this.roots.forEach((root, i) => {
                if (this.roots.length > 1)
                    this.put(i, 0, 1, x, root.total[0] * this.scale, root.total[0]);
                this.layChildren(i, 0, this.roots.length > 1 ? 2 : 1, x);
                x += root.total[0] * this.scale;
            });
            return;
        }
        /* What leads to it, over the whole width, and then it. */
        const { root, stack } = this.zoomed, { stacks, total } = this.roots[root], outer = [];
        this.put(-1, 0, 0, 0, this.width, this.sum, true);
        for (let at = stack; at; at = stacks.parent[at])
            outer.unshift(at);
        if (this.roots.length > 1)
            outer.unshift(0);
        outer.forEach((at, i) => this.put(root, at, i + 1, 0, this.width, total[at], at !== stack));
        this.layChildren(root, stack, outer.length + 1, 0);
    }

    layChildren(root, stack, row, x) {
        const { stacks, total, self } = this.roots[root];
        if (!stacks || row >= FLAME.most)
            return;
        if (!stack && self[0] * this.scale >= FLAME.least) {
            this.put(root, 0, row, x, self[0] * this.scale, self[0], false, true);
            x += self[0] * this.scale;
        }
        for (let i = stacks.first[stack]; i < stacks.first[stack + 1]; i++) {
            const child = stacks.children[i], wide = total[child] * this.scale;
            if (wide >= FLAME.least) {
                this.put(root, child, row, x, wide, total[child]);
                this.layChildren(root, child, row + 1, x);
            }
            x += wide;
        }
    }

    put(root, stack, row, x, wide, bytes, faint = false, unknown = false) {
        this.rects.push({ root, stack, row, x, wide, bytes, faint, unknown });
    }

    /* ---- drawing ---- */

    /* The room that there is; asked for only when it may have changed, since it makes the browser lay out the page. */
    measure() {
        this.width = this.canvas.parentElement.getBoundingClientRect().width;
        this.rows = undefined;
    }

    draw() {
        const { canvas } = this, ratio = window.devicePixelRatio || 1;
        if (!this.width || !this.roots)
            return;
        this.lay();
        /* It grows with what is to be seen, and never shrinks: what stands below would jump. */
        const deepest = this.rects.reduce((most, rect) => Math.max(most, rect.row), 0) + 1;
        this.rows = Math.max(this.rows ?? 1, deepest);
        const wide = Math.round(this.width * ratio), high = Math.round(this.rows * FLAME.row * ratio);
        if (canvas.width !== wide || canvas.height !== high) {
            canvas.width = wide;
            canvas.height = high;
            canvas.style.height = `${this.rows * FLAME.row}px`;
        }
        this.colours ?? this.readColours();
        this.paint(wide, ratio);
        this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
        this.context.font = `11px ${this.colours.font}`;
        this.context.textBaseline = "middle";
        this.context.fillStyle = this.colours.ink;
        this.rects.forEach((rect, i) => this.write(rect, i === this.selected));
    }

    /* All rectangles, without words. */
    paint(wide, ratio) {
        const { pixels, context, rows } = this;
        if (pixels.width !== wide || pixels.height !== rows || !this.image) {
            pixels.width = wide;
            pixels.height = rows;
            this.image = new ImageData(wide, rows);
        }
        const words = new Uint32Array(this.image.data.buffer).fill(0);
        for (const rect of this.rects) {
            const from = Math.round(rect.x * ratio), to = Math.round((rect.x + rect.wide - (rect.wide > 3 ? 1 : 0)) * ratio), at = rect.row * wide;
            words.fill(this.colourFor(rect), at + Math.min(from, wide - 1), at + Math.min(Math.max(to, from + 1), wide));
        }
        pixels.getContext("2d").putImageData(this.image, 0, 0);
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.imageSmoothingEnabled = false;
        context.clearRect(0, 0, wide, this.canvas.height);
        for (let row = 0; row < rows; row++)
            context.drawImage(pixels, 0, row, wide, 1, 0, Math.round(row * FLAME.row * ratio), wide, Math.round((FLAME.row - 1) * ratio));
    }

    frameOf(rect) {
        const root = this.roots[rect.root];
        return rect.root < 0 || (!rect.stack && !rect.unknown) ? null : rect.stack ? root.stacks.frameOf(rect.stack) : UNKNOWN_FRAME;
    }

    textOf(rect) {
        const frame = this.frameOf(rect);
        return frame ? frame.text : rect.root < 0 ? `all: ${formatBytes(rect.bytes)}` : `${this.roots[rect.root].name}: ${formatBytes(rect.bytes)}`;
    }

    colourFor(rect) {
        const { colours, found } = this, frame = this.frameOf(rect);
        if (!frame)
            return colours.root[rect.faint || found ? 1 : 0];
        if (found?.has(frame))
            return colours.found[0];
        const some = frame.kind === "p" && frame.installed ? colours.installed : colours[frame.kind];
        return some[(rect.stack * 7) % some.length][rect.faint || found ? 1 : 0];
    }

    write(rect, selected) {
        const { context } = this, y = rect.row * FLAME.row, letters = Math.floor((Math.min(rect.wide, this.width) - 8) / FLAME.letter);
        if (letters >= 3) {
            const text = this.textOf(rect);
            context.fillText(text.length > letters ? `${text.slice(0, letters - 1)}…` : text, rect.x + 4, y + FLAME.row / 2);
        }
        if (selected) {
            context.strokeStyle = this.colours.mark;
            context.lineWidth = 1.5;
            context.strokeRect(rect.x + 0.75, y + 0.75, Math.max(2, rect.wide - 1.5), FLAME.row - 2.5);
        }
    }

    /* ---- what is pointed at ---- */

    at(x, y) {
        const row = Math.floor(y / FLAME.row);
        return this.rects.findIndex(rect => rect.row === row && x >= rect.x && x < rect.x + Math.max(rect.wide, 1));
    }

    zoom(index) {
        const rect = this.rects[index];
        this.zoomed = !rect || rect.root < 0 || rect.unknown ? null : { root: rect.root, stack: rect.stack };
        this.selected = -1;
        this.draw();
    }

    /* From the selected one with an arrow key: out, in (to the widest), and to both sides. */
    step(key) {
        const { rects } = this, now = rects[this.selected];
        if (!now)
            return this.selected = rects.length ? 0 : -1;
        const near = {
            ArrowUp: rect => rect.row === now.row - 1 && rect.x <= now.x + 0.01 && rect.x + rect.wide >= now.x + now.wide - 0.01,
            ArrowDown: rect => rect.row === now.row + 1 && rect.x >= now.x - 0.01 && rect.x + rect.wide <= now.x + now.wide + 0.01,
            ArrowRight: rect => rect.row === now.row && rect.x > now.x,
            ArrowLeft: rect => rect.row === now.row && rect.x < now.x,
        }[key];
        let best = -1;
        for (let i = 0; i < rects.length; i++) {
            if (!near(rects[i]))
                continue;
            const better = best < 0 || (key === "ArrowDown" ? rects[i].wide > rects[best].wide : key === "ArrowRight" ? rects[i].x < rects[best].x : rects[i].x > rects[best].x);
            if (better)
                best = i;
        }
        return this.selected = best < 0 ? this.selected : best;
    }
}
