// Keeps the page of a run, or of several, up to date: the server tells what is new, and the script of the charts takes it in.
//
// The data is {events, from}: the address of the stream, and the place that the page has. A page that nobody sees does not
// listen: browsers have few connections to one server.
(() => {
"use strict";

const live = JSON.parse(document.getElementById("live").textContent);
const [word, states] = ["connection", "states"].map(id => document.getElementById(id));
const kept = "view " + location.pathname + location.search;
let from = live.from, source = null;

const tell = (name, detail) => document.dispatchEvent(new CustomEvent("report:" + name, { detail }));
const nodes = text => [...new DOMParser().parseFromString(text, "text/html").body.childNodes];

function say(text, kind) {
    word.textContent = text;
    word.className = kind;
}

/** Puts `text` into the element. Parts that are there already stay, with what is selected and how far they are scrolled. */
function put(id, text) {
    const element = document.getElementById(id);
    if (element.shown === text) return;
    element.shown = text;
    const old = [...element.childNodes];
    const all = nodes(text).map(node => {
        const at = old.findIndex(own => own.isEqualNode(node));
        return at < 0 ? node : old.splice(at, 1)[0];
    });
    old.forEach(own => own.remove());
    all.forEach((node, i) => { if (element.childNodes[i] !== node) element.insertBefore(node, element.childNodes[i] ?? null); });
}

function takeIn(event) {
    const news = JSON.parse(event.data);
    from = event.lastEventId;
    put("head", news.head);
    if (news.around) put("rest", news.around.rest);
    tell("news", news);
}

/** Loads the page again, with the same view: the file of the run is another one. */
function reload() {
    stop();
    const view = {};
    tell("view", view);
    try { sessionStorage.setItem(kept, JSON.stringify(view)); } catch { /* It is not allowed here. */ }
    location.reload();
}

function restore() {
    try {
        const view = sessionStorage.getItem(kept);
        sessionStorage.removeItem(kept);
        if (view) tell("show", JSON.parse(view));
    } catch { /* It is not allowed here. */ }
}

function stop() {
    source?.close();
    source = null;
}

function listen() {
    if (source || document.hidden) return;
    source = new EventSource(live.events + (live.events.includes("?") ? "&" : "?") + "from=" + from);
    source.addEventListener("open", () => say("live", "good"));
    source.addEventListener("news", takeIn);
    source.addEventListener("reload", reload);
    source.addEventListener("states", event => { states.textContent = event.data; });
    // It is told again when the run is back.
    source.addEventListener("gone", event => { states.textContent = ""; say(event.data, "bad"); });
    source.addEventListener("error", () => {
        const over = source?.readyState === EventSource.CLOSED;
        say(over ? "the board has ended" : "no connection; trying again", "bad");
        if (over) source = null;
    });
}

restore();
listen();
document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else listen(); });
})();
