// The table of all runs. The server filters, sorts and words it; it tells when something has changed, and the table is asked
// for again.
(() => {
"use strict";

const element = id => document.getElementById(id);
const [table, filter, warnings, count, word, compare] = ["table", "filter", "warnings", "count", "connection", "compare"].map(element);
/** At most so many runs are compared (`board/routes.rs`). */
const MOST = 16;
const asked = new URLSearchParams(location.hash.slice(1));
const view = { filter: asked.get("filter") ?? "", sort: asked.get("sort") ?? "-started", chosen: new Set() };
/** The lines of the table that are shown, by run, and their columns as a text. */
let lines = new Map(), columns = "";
const [thead, tbody] = ["thead", "tbody"].map(tag => table.appendChild(document.createElement(tag)));
let source = null, busy = false, again = false, timer = 0;

function html(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
}

function say(text, kind) {
    word.textContent = text;
    word.className = kind;
}

/** The conditions that are typed: those between blanks, with quotes for what has blanks. */
const conditions = () => [...view.filter.matchAll(/(?:"[^"]*"|'[^']*'|\S)+/g)].map(([text]) => text);

function query() {
    const all = new URLSearchParams(conditions().map(text => ["filter", text]));
    all.append("sort", view.sort);
    return all.toString();
}

/** Asks for the table; once more where something has changed meanwhile. */
async function refresh() {
    if (busy) {
        again = true;
        return;
    }
    busy = true;
    try {
        const answer = await fetch("runs.json?" + query(), { cache: "no-store" });
        if (answer.ok) show(await answer.json());
        else warnings.textContent = (await answer.text()).trim();
    } catch {
        say("no connection; trying again", "bad");
    }
    busy = false;
    if (again) {
        again = false;
        refresh();
    }
}

function show(found) {
    const complaints = [...found.warnings, ...found.rows.flatMap(row => row.problems)];
    warnings.textContent = complaints.join("\n");
    const shown = found.rows.length === found.total ? "" : ` of ${found.total}`;
    count.textContent = `${found.rows.length}${shown} ${found.total === 1 ? "run" : "runs"}` + (found.reading ? `, reading ${found.reading}` : "");
    const focused = document.activeElement?.dataset.focus;
    showHeads(found.columns);
    // A line stays the same element: a click, the focus and what is selected outlive what is new.
    const all = new Map(found.rows.map(row => [row.id, lines.get(row.id) ?? line(row, found.columns)]));
    lines.forEach((own, id) => { if (!all.has(id)) own.remove(); });
    lines = all;
    found.rows.forEach((row, i) => {
        const own = lines.get(row.id);
        fill(own, row, found.columns);
        if (tbody.children[i] !== own) tbody.insertBefore(own, tbody.children[i] ?? null);
    });
    // What was moved has lost it.
    if (focused && document.activeElement?.dataset.focus !== focused) {
        [...table.querySelectorAll("[data-focus]")].find(other => other.dataset.focus === focused)?.focus({ preventScroll: true });
    }
    // A run that is filtered out stays chosen, one that is gone does not.
    for (const id of view.chosen) if (!found.ids.includes(id)) view.chosen.delete(id);
    showChosen();
}

/** Makes the heads, where other columns or another order are shown; lines of other columns are made again. */
function showHeads(found) {
    const before = columns;
    columns = JSON.stringify(found);
    if (columns !== before) {
        lines.forEach(own => own.remove());
        lines.clear();
    }
    if (columns === before && thead.dataset.sort === view.sort) return;
    thead.dataset.sort = view.sort;
    thead.replaceChildren(html("tr", {}, html("th", {}, html("span", { class: "unseen" }, "compare")), ...found.map(head)));
}

function head({ head, key, right }) {
    const cell = html("th", right ? {} : { class: "words" });
    if (!key) {
        cell.append(head);
        return cell;
    }
    const [down, own] = [view.sort === "-" + key, view.sort.replace(/^-/, "") === key];
    const button = html("button", { type: "button", "data-focus": "sort " + key, title: `sort by ${key}` }, head, own ? (down ? " ↓" : " ↑") : "");
    cell.setAttribute("aria-sort", own ? (down ? "descending" : "ascending") : "none");
    button.addEventListener("click", () => {
        // Texts begin with the smallest, numbers with the largest.
        view.sort = own ? (down ? key : "-" + key) : (right ? "-" + key : key);
        keep();
        refresh();
    });
    cell.append(button);
    return cell;
}

function line(row, columns) {
    const box = html("input", { type: "checkbox", "aria-label": "compare " + row.cells[0], "data-focus": "choose " + row.id });
    box.checked = view.chosen.has(row.id);
    box.addEventListener("change", () => {
        if (box.checked) view.chosen.add(row.id); else view.chosen.delete(row.id);
        showChosen();
    });
    const cells = columns.map(({ head, right }, i) => {
        const within = i === 0 ? [html("a", { href: `run/${row.id}/`, "data-focus": "run " + row.id })] : head === "STATE" ? [html("span")] : [];
        // On a narrow screen, rows are cards and each value has its own head.
        return html("td", { "data-head": head.toLowerCase(), class: right ? "" : "words" }, ...within);
    });
    return html("tr", {}, html("td", {}, box), ...cells);
}

/** Writes what is new into a line. */
function fill(own, row, columns) {
    own.dataset.state = row.state;
    row.cells.forEach((text, i) => {
        const cell = own.children[i + 1], place = cell.firstElementChild ?? cell;
        if (place.textContent !== text) place.textContent = text;
        if (columns[i].head === "STATE") [place.className, place.title] = ["state " + row.kind, row.reason ?? ""];
    });
}

function showChosen() {
    const n = view.chosen.size;
    const usable = n >= 2 && n <= MOST;
    compare.textContent = n > MOST ? `at most ${MOST} runs are compared` : n < 2 ? "choose runs to compare" : `compare ${n} runs`;
    if (usable) compare.setAttribute("href", "compare/?" + [...view.chosen].map(id => "run=" + id).join("&"));
    else compare.removeAttribute("href");
}

/** Keeps filter and order in the address, for a page that is loaded again. */
function keep() {
    const all = new URLSearchParams();
    if (view.filter) all.append("filter", view.filter);
    if (view.sort !== "-started") all.append("sort", view.sort);
    history.replaceState(null, "", "#" + all);
}

function listen() {
    if (source || document.hidden) return;
    source = new EventSource("events");
    source.addEventListener("open", () => say("live", "good"));
    source.addEventListener("runs", refresh);
    source.addEventListener("error", () => {
        const over = source?.readyState === EventSource.CLOSED;
        say(over ? "the board has ended" : "no connection; trying again", "bad");
        if (over) source = null;
    });
}

filter.value = view.filter;
filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
        view.filter = filter.value;
        keep();
        refresh();
    }, 200);
});
refresh();
listen();
// A page that nobody sees does not listen: browsers have few connections to one server.
document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return listen();
    source?.close();
    source = null;
});
})();
