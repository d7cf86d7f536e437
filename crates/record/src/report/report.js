// Makes the charts of a report interactive: choice of the x axis, smoothing, logarithmic y axes, zoom, a crosshair that
// all charts share, series that can be hidden. Without this script the page shows static drawings of the same data.
//
// The data (`figures.rs` writes it) is {runs, figures, marks, glyphs}. Every point, and every mark, has a step; `runs[i].axis`
// tells the epoch and the seconds at a step. `figures[i]` belongs to the i-th figure of class `chart`.
(() => {
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const comparing = data.runs.length > 1;
const view = { axis: "step", weight: 0, chosen: false, log: false, zoom: null, at: null, hidden: new Set(), active: null };
/** Points up to which each has a marker. */
const MARKED = 60;
/** Series up to which the legend has the values at the crosshair. */
const NAMED = 3;
/** In pixels: how close to the crosshair a mark is named; how far a drag must go; closer checkpoints are not told apart. */
const NEAR = 6, DRAG = 5, APART = 7;
const RIGHT = 14, TOP = 10, EDGE = 4;
/** Half the width of a layer that has one point, in pixels. */
const BAR = 14;

// Elements ---------------------------------------------------------------------------------------------------------

function html(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
}

function drawn(parent, tag, attributes = {}, text) {
    const element = document.createElementNS(parent.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
}

// Numbers ----------------------------------------------------------------------------------------------------------

const trimmed = text => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
const power = text => text.replace(/\.?0*e\+?/, "e");

/** A value in full, with four significant digits. */
function significant(value) {
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size < 1e-3 || size >= 1e6) return power(value.toExponential(3));
    return value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(size))));
}

/** A tick's value, with the digits needed for ticks of an axis with this span. */
function label(value, span) {
    const size = Math.max(Math.abs(value), span);
    const digits = unit => Math.min(9, Math.max(0, 2 - Math.floor(Math.log10(span / unit))));
    if (value === 0) return "0";
    // A narrow zoom needs all digits.
    if (size >= 1e9 && span >= 1e5) return power(value.toExponential(digits(10 ** Math.floor(Math.log10(size)))));
    if (size >= 1e6 && span >= 1e5) return trimmed((value / 1e6).toFixed(digits(1e6))) + "M";
    if (size >= 1e4 && span >= 1e3) return trimmed((value / 1e3).toFixed(digits(1e3))) + "k";
    if (size < 1e-3) return power(value.toExponential(digits(10 ** Math.floor(Math.log10(size)))));
    return trimmed(value.toFixed(digits(1)));
}

/** `42s`, `3m07s`, `2h05m`, `3d04h`. */
function clock(seconds) {
    const s = Math.round(seconds);
    if (Math.abs(seconds) < 10) return trimmed(seconds.toFixed(seconds < 1 ? 2 : 1)) + "s";
    const parts = (a, unit, b, rest) => a + unit + String(b).padStart(2, "0") + rest;
    if (s < 60) return s + "s";
    if (s < 3600) return parts(Math.floor(s / 60), "m", s % 60, "s");
    if (s < 86400) return parts(Math.floor(s / 3600), "h", Math.floor(s / 60) % 60, "m");
    return parts(Math.floor(s / 86400), "d", Math.floor(s / 3600) % 24, "h");
}

/** A tick's time, from the first unit that is not zero to the last one: `3m`, `3m07s`, `2h05m`, `6h56m04.5s`. */
function clockTick(seconds, span) {
    const digits = span < 10 ? Math.min(6, 2 - Math.floor(Math.log10(span))) : 0;
    const time = Number(seconds.toFixed(digits));
    const part = (length, of) => Math.floor(time / length) % of;
    const units = [[part(86400, Infinity), "d"], [part(3600, 24), "h"], [part(60, 60), "m"], [trimmed((time % 60).toFixed(digits)), "s"]];
    const used = units.map(([value]) => Number(value) !== 0);
    const [first, last] = [used.indexOf(true), used.lastIndexOf(true)];
    if (first < 0) return "0s";
    const padded = (value, i) => i === 0 ? value : String(value).replace(/^\d(?!\d)/, "0$&");
    return units.slice(first, last + 1).map(([value, unit], i) => padded(value, i) + unit).join("");
}

const percent = value => trimmed((100 * value).toFixed(2)) + " %";
const FORMATS = {
    number: { text: significant, tick: label },
    percent: { text: percent, tick: (value, span) => label(100 * value, 100 * span) + " %" },
    seconds: { text: v => significant(1e3 * v) + " ms", tick: (v, span) => label(1e3 * v, 1e3 * span) + " ms" },
};
const AXES = {
    step: { name: "step", text: v => "step " + Math.round(v), tick: label, steps: rough => wholeStep(Math.max(1, rough)) },
    epoch: { name: "epoch", text: v => "epoch " + trimmed(v.toFixed(2)), tick: label, steps: wholeStep },
    time: { name: "time", text: v => clock(v), tick: clockTick, steps: timeStep },
};

/** The smallest round step that is not below `rough`. */
function roundStep(rough, multiples = [1, 2, 2.5, 5, 10]) {
    const decade = 10 ** Math.floor(Math.log10(rough));
    return multiples.map(m => m * decade).find(step => step >= rough * (1 - 1e-9));
}

/** The same, as a whole number or a part of 1. */
function wholeStep(rough) {
    return roundStep(rough, [1, 2, 5, 10]);
}

function timeStep(rough) {
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
    if (rough < 1) return roundStep(rough);
    return steps.find(step => step >= rough) ?? 86400 * roundStep(rough / 86400);
}

/** Round values from `low` to `high`, about `count` of them. */
function ticks(low, high, count, step = roundStep((high - low) / count)) {
    if (!(step > 0) || !isFinite(step)) return [low];
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && found.length < 24; i++) {
        found.push(i * step);
    }
    return found;
}

/** Powers of ten and, where there are few decades, 2 and 5 times them. */
function decades(low, high) {
    const found = [], few = Math.log10(high / low) < 2.5;
    for (let n = Math.floor(Math.log10(low)); n <= Math.ceil(Math.log10(high)); n++) {
        for (const m of few ? [1, 2, 5] : [1]) found.push(m * 10 ** n);
    }
    const inside = found.filter(v => v >= low && v <= high);
    return inside.length > 9 ? inside.filter((_, i) => i % Math.ceil(inside.length / 8) === 0) : inside;
}

// Data -------------------------------------------------------------------------------------------------------------

/** The index of the last value that is not above `value`; -1 if there is none. */
function below(values, value) {
    let [low, high] = [0, values.length];
    while (low < high) {
        const middle = (low + high) >> 1;
        if (values[middle] <= value) low = middle + 1; else high = middle;
    }
    return low - 1;
}

/** Where a step is on the chosen axis. */
function place(run, step) {
    const axis = data.runs[run].axis;
    if (view.axis === "step") return step;
    const [steps, values] = [axis.step, axis[view.axis]];
    const i = Math.min(Math.max(below(steps, step), 0), steps.length - 1);
    if (step <= steps[0] || i === steps.length - 1) return values[i];
    return values[i] + (values[i + 1] - values[i]) * (step - steps[i]) / (steps[i + 1] - steps[i]);
}

/** The step at a value of the chosen axis. */
function stepAt(run, value) {
    const axis = data.runs[run].axis;
    if (view.axis === "step") return value;
    const [steps, values] = [axis.step, axis[view.axis]];
    const i = Math.min(Math.max(below(values, value), 0), steps.length - 2);
    return steps[i] + (steps[i + 1] - steps[i]) * (value - values[i]) / (values[i + 1] - values[i] || 1);
}

/** The positions of a series' points on the chosen axis. */
function places(series) {
    series.places ??= {};
    return series.places[view.axis] ??= series.step.map(step => place(series.run, step));
}

/** The exponential moving average, corrected for its start at zero. */
function smoothed(values, weight) {
    let [sum, share] = [0, 0];
    return values.map(value => {
        if (value === null) return null;
        sum = weight * sum + (1 - weight) * value;
        share = weight * share + (1 - weight);
        return sum / share;
    });
}

/** What a series' line shows. */
function shown(series) {
    if (!series.smooth || view.weight === 0) return series.y;
    if (series.weight !== view.weight) {
        series.weight = view.weight;
        series.ema = smoothed(series.y, view.weight);
    }
    return series.ema;
}

const nameOf = (figure, series) => (comparing ? "run " + series.run : figure.title + " " + series.name);
const isHidden = (figure, series) => view.hidden.has(nameOf(figure, series));

/** The first and last position of all points. */
function extent() {
    let [low, high] = [Infinity, -Infinity];
    for (const series of data.figures.flatMap(figure => figure.series)) {
        const x = places(series);
        [low, high] = [Math.min(low, x[0]), Math.max(high, x[x.length - 1])];
    }
    if (low > high) return [0, 1];
    return high > low ? [low, high] : [low - 0.5, low + 0.5];
}

// A chart ----------------------------------------------------------------------------------------------------------

/** A stacked figure's series with `low` and `high` edges, from below. */
function stack(figure) {
    let base = null;
    return figure.series.filter(series => !isHidden(figure, series)).map(series => {
        const low = base ?? series.y.map(() => 0);
        base = series.y.map((value, i) => low[i] + (value ?? 0));
        return { ...series, y: base, own: series.y, low, high: base, area: true };
    });
}

function linesOf(figure) {
    if (figure.stacked) return stack(figure);
    return figure.series.filter(series => !isHidden(figure, series));
}

/** The range of the y axis for what is visible between `from` and `to`, and whether it shows no value. */
function height(figure, lines, [from, to]) {
    const log = view.log && figure.log;
    let [low, high] = [Infinity, -Infinity];
    for (const series of lines) {
        const x = places(series);
        const [first, last] = [Math.max(0, below(x, from)), Math.min(x.length - 1, below(x, to) + 1)];
        for (const values of [series.y, series.low ?? [], series.high ?? []]) {
            for (let i = first; i <= last; i++) {
                const value = values[i];
                if (value == null || (log && value <= 0)) continue;
                [low, high] = [Math.min(low, value), Math.max(high, value)];
            }
        }
    }
    if (low > high) return [log ? 0.1 : 0, 1, true];
    if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
    // A constant begins or ends at zero; the mean of equal values differs from them by rounding.
    if (high - low <= 1e-9 * Math.max(Math.abs(high), Math.abs(low))) {
        [low, high] = low === 0 && high === 0 ? [0, 1] : [Math.min(low, 0), Math.max(high, 0)];
    }
    const span = high - low;
    const [nearZero, belowZero] = [low >= 0 && low < 0.35 * span, high <= 0 && -high < 0.35 * span];
    return [nearZero ? 0 : low - 0.06 * span, belowZero ? 0 : high + (figure.stacked ? 0.02 : 0.06) * span];
}

/** A path through the points; it has gaps where a value is missing. A point between gaps is a dot, by the line's round ends. */
function path(x, values, toX, toY, first, last) {
    let text = "", pen = "M";
    for (let i = first; i <= last; i++) {
        const y = values[i] == null ? NaN : toY(values[i]);
        if (!isFinite(y)) { pen = "M"; continue; }
        text += pen + toX(x[i]).toFixed(1) + " " + y.toFixed(1) + (pen === "M" ? "h0" : "");
        pen = "L";
    }
    return text;
}

/** An area between two edges; a bar if there is one point. */
function area(x, low, high, toX, toY, first, last) {
    const forth = [], back = [];
    for (let i = first; i <= last; i++) {
        if (low[i] == null || high[i] == null) continue;
        for (const by of x.length === 1 ? [-BAR, BAR] : [0]) {
            forth.push((toX(x[i]) + by).toFixed(1) + " " + toY(high[i]).toFixed(1));
            back.push((toX(x[i]) + by).toFixed(1) + " " + toY(low[i]).toFixed(1));
        }
    }
    return forth.length ? "M" + forth.join("L") + "L" + back.reverse().join("L") + "Z" : "";
}

/** The marks to draw, and whether checkpoints are left out because they could not be told apart. A few at one place are one mark. */
function toldApart(marks) {
    const isSave = ({ mark }) => mark.kind === "checkpoint";
    const shown = marks.filter(mark => !isSave(mark)), groups = [];
    for (const save of marks.filter(isSave).sort((a, b) => a.x - b.x)) {
        const last = groups.at(-1);
        if (last && save.x - last.at(-1).x < APART) last.push(save); else groups.push([save]);
    }
    const together = groups.filter(group => group.at(-1).x - group[0].x < APART);
    for (const group of together) {
        const { x, mark } = group.at(-1);
        shown.push({ x, mark: { ...mark, text: group.map(({ mark }) => mark.text).join("; ") } });
    }
    return { shown, crowded: together.length < groups.length };
}

class Chart {
    constructor(element, figure) {
        this.element = element;
        this.figure = figure;
        this.svg = element.querySelector("svg");
        this.title = figure.title = element.querySelector(".title").textContent;
        this.makeLegend();
        this.tip = html("div", { class: "tip", hidden: "" });
        element.append(this.tip);
        for (const [name, value] of [["tabindex", "0"], ["role", "application"], ["aria-roledescription", "chart"]]) {
            this.svg.setAttribute(name, value);
        }
        this.listen();
    }

    makeLegend() {
        const caption = this.element.querySelector("figcaption");
        caption.querySelectorAll(".key, .value").forEach(key => key.remove());
        this.keys = [];
        const single = this.figure.series.length === 1 || comparing;
        for (const series of this.figure.series) {
            const value = html("span", { class: this.figure.series.length <= NAMED ? "value" : "" });
            this.keys.push({ series, value });
            if (single) {
                if (!comparing) caption.append(value);
                continue;
            }
            const kind = this.figure.stacked ? "layer" : "";
            const pressed = String(!isHidden(this.figure, series));
            const button = html("button", { type: "button", class: `key s${series.colour} ${kind}`, "aria-pressed": pressed }, series.name, value);
            button.addEventListener("click", () => toggle(nameOf(this.figure, series)));
            this.keys.at(-1).button = button;
            caption.append(button);
        }
    }

    draw() {
        const { svg, figure } = this;
        const width = Math.max(240, Math.round(svg.clientWidth || this.element.clientWidth - 28));
        const tall = width < 420 ? 210 : 250;
        const marks = data.marks.filter(mark => !view.hidden.has("run " + mark.run));
        const bottom = data.marks.length ? 44 : 32;
        const lines = linesOf(figure);
        const range = view.zoom ?? extent();
        const [low, high, none] = height(figure, lines, range);
        const log = view.log && figure.log;
        const format = FORMATS[figure.format];
        const levels = log ? decades(low, high) : ticks(low, high, 5);
        const texts = levels.map(value => format.tick(value, log ? value : high - low));
        const left = Math.max(36, 14 + 6.8 * Math.max(...texts.map(text => text.length)));
        const base = tall - bottom, [from, to] = range;
        const ratio = log ? value => Math.log(value / low) / Math.log(high / low) : value => (value - low) / (high - low);
        const toX = value => left + (value - from) / (to - from) * (width - RIGHT - left);
        const toY = value => base - ratio(value) * (base - TOP);
        Object.assign(this, { left, width, base, toX, toY, range, lines });

        svg.replaceChildren();
        svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
        svg.setAttribute("height", tall);
        svg.setAttribute("aria-label", `${this.title} by ${AXES[view.axis].name}. Arrow keys move the crosshair, plus and minus zoom, Escape resets.`);
        levels.forEach((value, i) => {
            const y = toY(value);
            drawn(svg, "line", { class: "grid", x1: left, x2: width - RIGHT, y1: y, y2: y });
            drawn(svg, "text", { x: left - 8, y: y + 4, "text-anchor": "end" }, texts[i]);
        });
        this.drawAxis(bottom);
        // Clips what is outside of the zoom.
        const wide = width - RIGHT - left + 2 * EDGE;
        const plot = drawn(svg, "svg", { x: left - EDGE, y: 0, width: wide, height: base, viewBox: `${left - EDGE} 0 ${wide} ${base}` });
        // Below lines, and above areas.
        if (!figure.stacked) this.drawMarks(marks, plot);
        lines.forEach(series => this.drawSeries(plot, series));
        if (figure.stacked) this.drawMarks(marks, plot);
        if (none && log && lines.length) {
            drawn(svg, "text", { x: (left + width - RIGHT) / 2, y: (TOP + base) / 2, "text-anchor": "middle" }, "no positive values");
        }
        this.over = drawn(svg, "g");
        this.cross();
    }

    drawAxis(bottom) {
        const { svg, left, width, base, toX, range: [from, to] } = this;
        const axis = AXES[view.axis];
        const rough = (to - from) / Math.max(3, Math.round((width - left) / 75));
        const values = ticks(from, to, 6, axis.steps(rough));
        drawn(svg, "line", { class: "axis", x1: left, x2: width - RIGHT, y1: base, y2: base });
        const under = base + bottom - 14;
        for (const value of values) {
            const x = toX(value), text = axis.tick(value, to - from);
            drawn(svg, "line", { class: "axis", x1: x, x2: x, y1: base, y2: base + 4 });
            // The last one stays within the drawing.
            const anchor = x + 3.5 * text.length > width - 2 ? "end" : "middle";
            drawn(svg, "text", { x: anchor === "end" ? width - 2 : x, y: under, "text-anchor": anchor }, text);
        }
    }

    drawMarks(marks, plot) {
        const { svg, base, toX, range: [from, to] } = this;
        this.marks = marks.map(mark => ({ at: place(mark.run, mark.step), mark }))
            .filter(({ at }) => at >= from && at <= to).map(({ at, mark }) => ({ x: toX(at), mark }));
        const apart = toldApart(this.marks);
        this.crowded = apart.crowded;
        for (const { x, mark } of apart.shown) {
            const colour = data.runs[mark.run].colour, kind = comparing ? `m${colour}` : mark.kind;
            if (mark.kind !== "checkpoint" && (mark.kind !== "end" || mark.bad)) {
                drawn(plot, "line", { class: `rule ${comparing ? `s${colour}` : kind}`, x1: x, x2: x, y1: TOP, y2: base });
            }
            const glyph = drawn(svg, "path", { class: `mark ${kind}`, transform: `translate(${x.toFixed(1)} ${base + 11})`, d: data.glyphs[mark.kind] });
            drawn(glyph, "title", {}, mark.text);
        }
    }

    drawSeries(plot, series) {
        const { toX, toY, range: [from, to] } = this;
        const x = places(series), colour = `s${series.colour}`, values = shown(series);
        const [first, last] = [Math.max(0, below(x, from)), Math.min(x.length - 1, below(x, to) + 1)];
        const log = view.log && this.figure.log;
        const safe = log ? v => (v > 0 ? toY(v) : this.base) : toY;
        if (series.low) {
            drawn(plot, "path", { class: series.area ? `layer ${colour}` : `band ${colour}`, d: area(x, series.low, series.high, toX, safe, first, last) });
        }
        if (series.area) return;
        if (values !== series.y && !series.low) {
            drawn(plot, "path", { class: `raw ${colour}${comparing ? " pale" : ""}`, d: path(x, series.y, toX, toY, first, last) });
        }
        drawn(plot, "path", { class: `line ${colour}${series.dashed ? " dashed" : ""}`, d: path(x, values, toX, toY, first, last) });
        if (!series.smooth && last - first < MARKED || x.length === 1) {
            for (let i = first; i <= last; i++) {
                if (values[i] == null || (log && values[i] <= 0)) continue;
                drawn(plot, "circle", { class: `dot m${series.colour}`, cx: toX(x[i]), cy: toY(values[i]), r: series.step.length === 1 ? 3.5 : 2.5 });
            }
        }
    }

    /** The point of a series that is nearest to the crosshair; `null` if the series does not reach it. */
    nearest(series) {
        const x = places(series), slack = 8 * (this.range[1] - this.range[0]) / this.width;
        let i = below(x, view.at);
        if (i + 1 < x.length && (i < 0 || x[i + 1] - view.at < view.at - x[i])) i++;
        const ends = view.at < x[0] - slack || view.at > x[x.length - 1] + slack;
        return ends || (series.own ?? series.y)[i] == null ? null : i;
    }

    /** Draws the crosshair, and the values at it. */
    cross() {
        const { over, figure } = this;
        if (!over) return;
        over.replaceChildren();
        const visible = view.at !== null && view.at >= this.range[0] && view.at <= this.range[1];
        this.keys.forEach(({ value }) => { value.textContent = ""; });
        if (!visible) {
            this.tip.hidden = true;
            return;
        }
        const at = this.toX(view.at), format = FORMATS[figure.format], rows = [];
        drawn(over, "line", { class: "cross", x1: at, x2: at, y1: TOP, y2: this.base });
        for (const series of this.lines) {
            const i = this.nearest(series);
            if (i === null) continue;
            const line = shown(series), value = (series.own ?? line)[i], raw = series.y[i];
            const x = places(series)[i], y = this.toY(line[i]), inside = x >= this.range[0] && x <= this.range[1];
            if (inside && isFinite(y) && !series.area) drawn(over, "circle", { class: `dot m${series.colour}`, cx: this.toX(x), cy: y, r: 4 });
            const extra = series.low && !series.area ? `${format.text(series.low[i])} – ${format.text(series.high[i])}`
                : line !== series.y ? `now ${format.text(raw)}` : "";
            rows.push({ series, text: format.text(value), extra });
            const key = this.keys.find(key => key.series.name === series.name && key.series.run === series.run);
            if (this.keys.length <= NAMED) key.value.textContent = format.text(value);
        }
        this.show(rows, at);
    }

    /** Shows the tooltip in the chart that the pointer or the focus is in. */
    show(rows, at) {
        this.tip.hidden = view.active !== this;
        if (this.tip.hidden) return;
        const swatch = colour => html("i", { class: `m${colour}` });
        this.tip.replaceChildren(html("b", {}, this.heading()));
        const ordered = this.figure.stacked ? rows.toReversed() : rows;
        for (const { series, text, extra } of ordered) {
            this.tip.append(html("div", {}, swatch(series.colour), html("span", {}, series.name), html("strong", {}, text)));
            if (extra && rows.length < 5) this.tip.append(html("small", {}, extra));
        }
        if (this.figure.stacked && rows.length > 1) {
            const total = rows.reduce((sum, { series }) => sum + series.own[this.nearest(series)], 0);
            this.tip.append(html("div", {}, html("i"), html("span", {}, "together"), html("strong", {}, FORMATS[this.figure.format].text(total))));
        }
        const near = this.marks.filter(({ x }) => Math.abs(x - at) <= NEAR);
        near.slice(0, 4).forEach(({ mark }) => this.tip.append(html("em", {}, mark.text)));
        if (near.length > 4) this.tip.append(html("em", {}, `and ${near.length - 4} more`));
        const [outer, inner] = [this.element, this.svg].map(element => element.getBoundingClientRect());
        const x = inner.left - outer.left + at * inner.width / this.width;
        const room = this.element.clientWidth, wide = this.tip.offsetWidth;
        const side = x + 14 + wide < room ? x + 14 : x - 14 - wide;
        this.tip.style.left = Math.max(4, Math.min(side, room - wide - 4)) + "px";
        this.tip.style.top = inner.top - outer.top + TOP + "px";
        this.said = [this.heading(), ...rows.map(row => `${row.series.name} ${row.text}`), ...near.slice(0, 4).map(({ mark }) => mark.text)].join(", ");
    }

    /** The position of the crosshair on all axes, if there is one run. */
    heading() {
        if (comparing) return AXES[view.axis].text(view.at);
        const series = this.lines.find(series => this.nearest(series) !== null);
        if (!series) return AXES[view.axis].text(view.at);
        const step = series.step[this.nearest(series)], chosen = view.axis;
        const parts = axes.map(axis => {
            view.axis = axis;
            return AXES[axis].text(place(series.run, step));
        });
        view.axis = chosen;
        return parts.join(" · ");
    }

    // Pointer and keys

    listen() {
        const { svg } = this;
        svg.addEventListener("pointerdown", event => this.press(event));
        svg.addEventListener("pointermove", event => this.move(event));
        svg.addEventListener("pointerup", event => this.release(event));
        svg.addEventListener("pointercancel", () => { this.pressed = null; crossAt(null, null); });
        svg.addEventListener("pointerleave", event => {
            if (event.pointerType === "mouse" && this.pressed == null) crossAt(null, null);
        });
        svg.addEventListener("dblclick", () => zoomTo(null));
        svg.addEventListener("keydown", event => this.key(event));
        svg.addEventListener("focus", () => { if (svg.matches(":focus-visible")) crossAt(view.at ?? this.range[1], this); });
        svg.addEventListener("blur", () => { if (view.active === this) crossAt(null, null); });
    }

    /** The value of the x axis under the pointer. */
    under(event) {
        const box = this.svg.getBoundingClientRect();
        const x = (event.clientX - box.left) / box.width * this.width;
        const share = Math.min(1, Math.max(0, (x - this.left) / (this.width - RIGHT - this.left)));
        return this.range[0] + share * (this.range[1] - this.range[0]);
    }

    press(event) {
        if (event.pointerType === "mouse" && event.button === 0) {
            this.pressed = this.under(event);
            this.svg.setPointerCapture(event.pointerId);
        }
        crossAt(this.under(event), this);
    }

    move(event) {
        crossAt(this.under(event), this);
        if (this.pressed == null) return;
        const [a, b] = [this.toX(this.pressed), this.toX(view.at)];
        if (Math.abs(a - b) < DRAG) return;
        drawn(this.over, "rect", { class: "select", x: Math.min(a, b), width: Math.abs(a - b), y: TOP, height: this.base - TOP });
    }

    release(event) {
        const [a, b] = [this.pressed, this.under(event)];
        this.pressed = null;
        if (a != null && Math.abs(this.toX(a) - this.toX(b)) >= DRAG) zoomTo([Math.min(a, b), Math.max(a, b)]);
    }

    key(event) {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (by) this.moveBy(by * (event.shiftKey ? 10 : 1));
        else if (event.key === "Home") crossAt(this.range[0], this);
        else if (event.key === "End") crossAt(this.range[1], this);
        else if (event.key === "+" || event.key === "=") zoomBy(0.5);
        else if (event.key === "-") zoomBy(2);
        else return;
        event.preventDefault();
        say(this.said ?? "");
    }

    /** Moves the crosshair by points of the series that has the most. */
    moveBy(count) {
        const longest = this.lines.reduce((a, b) => (a && a.step.length >= b.step.length ? a : b), null);
        if (!longest) return;
        const x = places(longest), from = view.at ?? this.range[count < 0 ? 1 : 0];
        // Of points at the same place, the one before or behind all.
        let i = count > 0 ? below(x, from + 1e-9 * Math.abs(from)) + count : below(x, from - 1e-9 * Math.abs(from)) + count + 1;
        i = Math.min(Math.max(i, 0), x.length - 1);
        crossAt(Math.min(Math.max(x[i], this.range[0]), this.range[1]), this);
    }
}

// The page ---------------------------------------------------------------------------------------------------------

const usableAxes = () => ["step", "epoch", "time"].filter(axis => data.runs.every(run => run.axis[axis]?.length > 1) || axis === "step");
let axes = usableAxes();
const status = html("p", { class: "unseen", role: "status" });
const charts = [];
function redraw() {
    charts.forEach(chart => chart.draw());
    const crowded = charts.some(chart => chart.crowded);
    const word = key.querySelector(".checkpoints");
    if (word) word.textContent = crowded ? "checkpoints: not marked where they are too close; a zoom shows them" : "checkpoint";
}
const say = text => { status.textContent = text; };
let resetButton;

function crossAt(at, active) {
    [view.at, view.active] = [at, active];
    charts.forEach(chart => chart.cross());
}

function zoomTo(range) {
    const [low, high] = extent();
    const least = (high - low) * 1e-4;
    if (range) range = [Math.max(low, range[0]), Math.min(high, range[1])];
    if (range && range[1] - range[0] < least) return;
    view.zoom = range && range[0] <= low && range[1] >= high ? null : range;
    resetButton.disabled = view.zoom === null;
    redraw();
}

/** Zooms around the crosshair, else around the centre. */
function zoomBy(factor) {
    const [from, to] = view.zoom ?? extent();
    const centre = view.at ?? (from + to) / 2;
    zoomTo([centre - (centre - from) * factor, centre + (to - centre) * factor]);
}

/** Chooses the x axis; the zoom stays at the same steps of the first run. */
function setAxis(axis) {
    const steps = view.zoom?.map(value => stepAt(0, value));
    [view.axis, view.at] = [axis, null];
    view.zoom = steps ? steps.map(step => place(0, step)) : null;
    redraw();
}

function toggle(name) {
    if (!view.hidden.delete(name)) view.hidden.add(name);
    for (const chart of charts) {
        for (const { series, button } of chart.keys) button?.setAttribute("aria-pressed", String(!isHidden(chart.figure, series)));
    }
    document.querySelectorAll(".runs button").forEach((button, run) => button.setAttribute("aria-pressed", String(!view.hidden.has("run " + run))));
    redraw();
}

function tools() {
    const bar = html("div", { class: "tools", role: "group", "aria-label": "Charts" });
    const choices = axes.map(axis => {
        const input = html("input", { type: "radio", name: "axis", value: axis });
        input.checked = axis === view.axis;
        input.addEventListener("change", () => setAxis(axis));
        return html("label", {}, input, html("span", {}, AXES[axis].name));
    });
    if (axes.length > 1) bar.append(html("fieldset", { class: "choice" }, html("legend", { class: "unseen" }, "x axis"), ...choices));
    const button = (text, name, action) => {
        const made = html("button", { type: "button", "aria-label": name, title: name }, text);
        made.addEventListener("click", action);
        return made;
    };
    resetButton = button("Reset", "Reset zoom (Escape)", () => zoomTo(null));
    resetButton.disabled = view.zoom === null;
    bar.append(html("span", { class: "zoom", role: "group", "aria-label": "Zoom" }, button("−", "Zoom out", () => zoomBy(2)), button("+", "Zoom in", () => zoomBy(0.5)), resetButton));
    if (data.figures.some(figure => figure.series.some(series => series.smooth))) {
        const slider = html("input", { type: "range", min: 0, max: 0.99, step: 0.01 });
        const value = html("output", {}, view.weight.toFixed(2));
        slider.value = view.weight;
        slider.addEventListener("input", () => {
            view.weight = Number(slider.value);
            view.chosen = true;
            value.textContent = view.weight.toFixed(2);
            redraw();
        });
        bar.append(html("label", { class: "slider" }, "smoothing", slider, value));
    }
    const log = html("input", { type: "checkbox" });
    log.checked = view.log;
    log.addEventListener("change", () => { view.log = log.checked; redraw(); });
    if (data.figures.some(figure => figure.log)) bar.append(html("label", { class: "check" }, log, "log scale"));
    return bar;
}

function runKey() {
    const line = html("div", { class: "runs", role: "group", "aria-label": "Runs" });
    data.runs.forEach((run, i) => {
        const button = html("button", { type: "button", class: `key s${run.colour}${run.dashed ? " dashed" : ""}`, "aria-pressed": "true" }, run.name);
        button.addEventListener("click", () => toggle("run " + i));
        line.append(button);
    });
    return line;
}

/** The smoothing that suits the length of the longest series, until another one is chosen. */
function usualWeight() {
    if (view.chosen) return view.weight;
    const longest = Math.max(0, ...data.figures.flatMap(figure => figure.series).filter(series => series.smooth).map(series => series.y.length));
    return longest > 200 ? 0.9 : longest > 30 ? 0.6 : 0;
}

/** What the tools depend on. */
const toolsKind = () => [...axes, data.figures.some(figure => figure.log), usualWeight(), data.figures.some(figure => figure.series.some(series => series.smooth))].join();

const grid = document.querySelector(".charts");
if (!grid) return;
view.weight = usualWeight();
let bar = tools(), kind = toolsKind();
const key = grid.parentElement.querySelector(".marks") ?? html("p", { class: "marks" });
key.append(html("span", { class: "hint" }, "drag to zoom, double click to reset; by keyboard ← → + − Esc"));
grid.before(...(comparing ? [runKey()] : []), bar, key, status);
grid.querySelectorAll("figure.chart").forEach((element, i) => charts.push(new Chart(element, data.figures[i])));
redraw();
document.addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    crossAt(null, null);
    zoomTo(null);
});
// A finger leaves the crosshair where it was, until it touches something else.
document.addEventListener("pointerdown", event => { if (!event.target.closest("figure.chart")) crossAt(null, null); });
let awaited = 0;
new ResizeObserver(() => {
    cancelAnimationFrame(awaited);
    awaited = requestAnimationFrame(redraw);
}).observe(grid);
document.documentElement.classList.add("scripted");

// A run that goes on ----------------------------------------------------------------------------------------------

/** Points of a series that has grown, above which neighbours become one. */
const LONG = 4000;

/** The nodes of HTML that the server wrote. */
const nodes = text => [...new DOMParser().parseFromString(text, "text/html").body.childNodes];

/** Adds the points of `more`. */
function grow(series, more, stacked) {
    if (!stacked && (series.low || more.low)) {
        series.low = (series.low ?? series.y).concat(more.low ?? more.y);
        series.high = (series.high ?? series.y).concat(more.high ?? more.y);
    }
    series.step = series.step.concat(more.step);
    series.y = series.y.concat(more.y);
    if (series.step.length > LONG) halve(series, stacked);
    series.places = series.weight = undefined;
}

/** Makes one point of two: their mean, with the least and the greatest value. */
function halve(series, stacked) {
    const pairs = (values, of) => values.filter((_, i) => i % 2 === 0).map((value, i) => {
        const other = values[2 * i + 1];
        return value == null || other == null ? value ?? other ?? null : of(value, other);
    });
    const [low, high] = [series.low ?? series.y, series.high ?? series.y];
    series.step = pairs(series.step, (a, b) => b);
    series.y = pairs(series.y, (a, b) => (a + b) / 2);
    if (stacked) return;
    series.low = pairs(low, Math.min);
    series.high = pairs(high, Math.max);
}

/** Adds a chart at its place in the order of titles. */
function addChart(title, figure, order) {
    const svg = nodes("<svg viewBox='0 0 560 260' role='img'></svg>")[0];
    const element = html("figure", { class: "chart" }, html("figcaption", {}, html("span", { class: "title" }, title)), svg);
    const rank = title => order.indexOf(title);
    const at = charts.findIndex(chart => rank(chart.title) > rank(title));
    if (at < 0) grid.append(element); else charts[at].element.before(element);
    charts.splice(at < 0 ? charts.length : at, 0, new Chart(element, figure));
    data.figures = charts.map(chart => chart.figure);
}

/** Takes in what `live.rs` tells: new points, and what is around the charts. The view stays. */
function takeIn(news) {
    news.axes.forEach((more, i) => {
        const own = data.runs[i].axis;
        for (const name of ["step", "epoch", "time"]) own[name] = news.anew ? more[name] : own[name].concat(more[name]);
    });
    news.figures.forEach((figure, i) => {
        const chart = charts.find(chart => chart.title === news.titles[i]);
        if (!chart) return addChart(news.titles[i], figure, news.order);
        const own = chart.figure.series, names = own.length;
        if (news.whole) chart.figure.series = figure.series;
        else for (const more of figure.series) {
            const series = own.find(series => series.name === more.name && series.run === more.run);
            if (series) grow(series, more, chart.figure.stacked); else own.push(more);
        }
        if (news.whole || own.length !== names) chart.makeLegend();
    });
    // Another axis moves all points.
    if (news.anew) data.figures.flatMap(figure => figure.series).forEach(series => { series.places = undefined; });
    if (news.around) {
        data.marks = news.around.marks;
        key.replaceChildren(...nodes(news.around.legend), ...key.querySelectorAll(".hint"));
    }
    refit();
}

/** Draws all again, with other tools where those that are there do not fit any more. */
function refit() {
    axes = usableAxes();
    if (!axes.includes(view.axis)) [view.axis, view.zoom] = ["step", null];
    view.weight = usualWeight();
    if (kind !== toolsKind()) {
        const made = tools();
        bar.replaceWith(made);
        [bar, kind] = [made, toolsKind()];
    }
    redraw();
}

document.addEventListener("report:news", event => takeIn(event.detail));
// A page that loads itself again keeps its view.
document.addEventListener("report:view", event => {
    const { axis, weight, chosen, log, zoom, hidden } = view;
    Object.assign(event.detail, { axis, weight, chosen, log, zoom, hidden: [...hidden] });
});
document.addEventListener("report:show", event => {
    Object.assign(view, event.detail, { hidden: new Set(event.detail.hidden) });
    kind = null;
    charts.forEach(chart => chart.makeLegend());
    document.querySelectorAll(".runs button").forEach((button, run) => button.setAttribute("aria-pressed", String(!view.hidden.has("run " + run))));
    refit();
});
})();
