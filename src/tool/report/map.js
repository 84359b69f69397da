/* The map of all regions at a moment. Addresses run from left to right, row by row, over all that was ever mapped; what was
 * never mapped is left out. Small regions share a pixel: each pixel is the mixture of what lies in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

const ROW = { height: 11, gap: 3, most: 44, least: 6 };

const rgbOf = name => {
    const hex = colourOf(name);
    return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
};

/* From new to old, evenly. */
function rampOf(names, steps) {
    const stops = names.map(rgbOf), ramp = [];
    for (let i = 0; i < steps; i++) {
        const at = i / (steps - 1) * (stops.length - 1), k = Math.min(stops.length - 2, Math.floor(at));
        ramp.push([0, 1, 2].map(c => stops[k][c] + (stops[k + 1][c] - stops[k][c]) * (at - k)));
    }
    return ramp;
}

const STREAM_COLOURS = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
const AGE_COLOURS = ["age0", "age1", "age2", "age3"];
const AGES = 64;

class RegionMap {
    constructor(canvas) {
        this.canvas = canvas;
        this.context = canvas.getContext("2d");
        this.pixels = document.createElement("canvas");
        this.selected = -1;
    }

    /* Which addresses there are to show. */
    layout(run, by) {
        this.stretches = run.stretches(by);
        this.bytes = 0;
        for (const stretch of this.stretches) {
            stretch.offset = this.bytes;
            this.bytes += stretch.end - stretch.addr;
        }
        this.resize();
    }

    resize() {
        const box = this.canvas.parentElement.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
        /* As many rows as make three pixels of a granule, within reason. */
        const wanted = Math.ceil(this.bytes / (2 << 20) / Math.max(1, box.width) * 3);
        this.rows = Math.max(ROW.least, Math.min(ROW.most, wanted));
        this.rowBytes = this.bytes / this.rows || 1;
        this.wide = Math.max(1, Math.round(box.width * ratio));
        this.width = box.width;
        const height = this.rows * (ROW.height + ROW.gap) - ROW.gap;
        this.canvas.style.height = `${height}px`;
        this.canvas.width = this.wide;
        this.canvas.height = Math.round(height * ratio);
        this.ratio = ratio;
        this.pixels.width = this.wide;
        this.pixels.height = this.rows;
        this.mixed = new Float32Array(this.wide * this.rows * 3);
        this.image = new ImageData(this.wide, this.rows);
        this.image.data.fill(255);
        this.readColours();
    }

    readColours() {
        this.colours = {
            none: rgbOf("none"), page: rgbOf("page"), mark: rgbOf("ink"),
            states: STATES.map(state => rgbOf(`map-${state}`)),
            streams: STREAM_COLOURS.map(rgbOf),
            ages: rampOf(AGE_COLOURS, AGES),
        };
    }

    /* Where an address is, in bytes from the first that is shown. */
    offset(address) {
        const all = this.stretches;
        let low = 0, high = all.length - 1;
        while (low < high) {
            const middle = (low + high + 1) >> 1;
            if (all[middle].addr <= address)
                low = middle;
            else
                high = middle - 1;
        }
        return all[low].offset + address - all[low].addr;
    }

    address(offset) {
        const stretch = this.stretches.findLast(s => s.offset <= offset);
        return stretch ? stretch.addr + offset - stretch.offset : -1;
    }

    colourFor(regions, i, by) {
        const state = regions.state[i];
        if (by === "stream" && state !== ZOMBIE && regions.stream[i] >= 0 && (state === LIVE || regions.age[i] >= 0))
            return state === LIVE ? this.colours.streams[regions.stream[i] % STREAM_COLOURS.length] : this.colours.states[state];
        if (by === "age" && state !== ZOMBIE && regions.age[i] >= 0)
            return this.colours.ages[Math.min(AGES - 1, Math.floor(Math.log2(regions.age[i] + 1) / this.oldest * AGES))];
        return this.colours.states[state];
    }

    /* Mixes a colour into [from, to), in pixels over all rows. Its first pixel is a little paler, where there is room, so that neighbours can be told apart. */
    paint(from, to, colour, apart) {
        const { mixed } = this, [r, g, b] = colour;
        const mix = (pixel, share) => {
            const at = pixel * 3;
            mixed[at] += (r - mixed[at]) * share;
            mixed[at + 1] += (g - mixed[at + 1]) * share;
            mixed[at + 2] += (b - mixed[at + 2]) * share;
        };
        const first = Math.floor(from), last = Math.floor(to);
        if (first === last) {
            mix(first, to - from);
            return;
        }
        mix(first, (first + 1 - from) * (apart && to - from > 4 ? 0.45 : 1));
        for (let pixel = first + 1, at = pixel * 3; pixel < last; pixel++) {
            mixed[at++] = r;
            mixed[at++] = g;
            mixed[at++] = b;
        }
        if (to > last && last * 3 < mixed.length)
            mix(last, to - last);
    }

    draw(regions, by, oldest) {
        const { mixed, colours, wide, rows, context, ratio } = this;
        this.regions = regions;
        this.oldest = Math.log2(oldest + 2);
        const scale = wide / this.rowBytes;
        for (let at = 0; at < mixed.length;) {
            mixed[at++] = colours.none[0];
            mixed[at++] = colours.none[1];
            mixed[at++] = colours.none[2];
        }
        for (let i = 0; i < regions.count; i++) {
            const from = this.offset(regions.addr[i]) * scale;
            let size = regions.size[i];
            const apart = regions.state[i] === LIVE && (!i || regions.ref[i] !== regions.ref[i - 1]);
            /* Free neighbours, and neighbouring parts of a block, are painted as one: edges within a pixel would show. */
            while (regions.ref[i + 1] === regions.ref[i] && regions.state[i + 1] === regions.state[i] && regions.addr[i + 1] === regions.addr[i] + regions.size[i])
                size += regions.size[++i];
            this.paint(from, from + size * scale, this.colourFor(regions, i, by), apart);
        }
        const data = this.image.data;
        for (let pixel = 0, from = 0, to = 0; pixel < wide * rows; pixel++, to++) {
            data[to++] = mixed[from++];
            data[to++] = mixed[from++];
            data[to++] = mixed[from++];
        }
        this.pixels.getContext("2d").putImageData(this.image, 0, 0);
        context.imageSmoothingEnabled = false;
        context.clearRect(0, 0, wide, this.canvas.height);
        for (let row = 0; row < rows; row++)
            context.drawImage(this.pixels, 0, row, wide, 1, 0, row * (ROW.height + ROW.gap) * ratio, wide, ROW.height * ratio);
        this.outline();
    }

    /* A frame around the region that is pointed at, and around the other parts of its block. */
    outline() {
        const { context, regions, selected } = this;
        if (selected < 0 || selected >= regions.count)
            return;
        context.fillStyle = colourOf("ink");
        for (let i = 0; i < regions.count; i++)
            if (i === selected || (regions.ref[i] !== -1 && regions.ref[i] === regions.ref[selected]))
                this.frame(i);
    }

    frame(i) {
        const { context, ratio, regions } = this;
        const from = this.offset(regions.addr[i]), to = from + regions.size[i];
        for (let row = Math.floor(from / this.rowBytes); row * this.rowBytes < to; row++) {
            const left = Math.max(0, from - row * this.rowBytes) / this.rowBytes * this.wide;
            const right = Math.min(this.rowBytes, to - row * this.rowBytes) / this.rowBytes * this.wide;
            const y = row * (ROW.height + ROW.gap) * ratio;
            context.fillRect(left - ratio, y - ratio, Math.max(right - left, ratio) + 2 * ratio, ratio * 1.5);
            context.fillRect(left - ratio, y + (ROW.height - 0.5) * ratio, Math.max(right - left, ratio) + 2 * ratio, ratio * 1.5);
        }
    }

    /* The address under a point of the canvas, or -1 between rows. */
    addressAt(x, y) {
        const row = Math.floor(y / (ROW.height + ROW.gap));
        const offset = row * this.rowBytes + Math.min(0.9999, Math.max(0, x / this.width)) * this.rowBytes;
        return row >= 0 && row < this.rows && offset < this.bytes ? this.address(offset) : -1;
    }

    /* The middle of a region on the canvas. */
    pointOf(i) {
        const offset = this.offset(this.regions.addr[i]) + Math.min(this.regions.size[i], this.rowBytes) / 2;
        const row = Math.floor(offset / this.rowBytes);
        return { x: (offset / this.rowBytes - row) * this.width, y: row * (ROW.height + ROW.gap) + ROW.height };
    }

    /* The next region by address in a direction, for the keyboard: those that can be seen whole, no zombies. */
    neighbour(direction) {
        const { regions } = this;
        const order = Array.from({ length: regions.count }, (_, i) => i).filter(i => regions.state[i] >= PENDING || (regions.state[i] === FREE && regions.ref[i] !== -1))
            .sort((a, b) => regions.addr[a] - regions.addr[b]);
        if (!order.length)
            return -1;
        const address = this.selected >= 0 && this.selected < regions.count ? regions.addr[this.selected] : -1;
        if (direction > 0)
            return order.find(i => regions.addr[i] > address) ?? order[order.length - 1];
        return order.findLast(i => regions.addr[i] < address) ?? order[0];
    }
}
