// Times in the reader's zone, live sections, keys. Nothing here is needed to read a page.
const $ = (what, where = document) => where.querySelector(what);
const all = (what, where = document) => [...where.querySelectorAll(what)];
const PAUSE = 2000, POLL = 15000, CALM = 10000;

// times
const short = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
const day = new Intl.DateTimeFormat(undefined, {year: "numeric", month: "2-digit", day: "2-digit"});
function localTimes(where) {
  const today = day.format(new Date());
  for (const one of all("time[datetime]", where)) {
    const at = new Date(one.dateTime);
    const date = day.format(at);
    one.textContent = (one.hasAttribute("data-long") || date !== today ? date + " " : "") + short.format(at);
  }
}

// live sections: the same page is asked for again, and what has changed in it is put in place
const live = $("#live");
let asked = 0, due = 0, calm = 0, isAsking = false;
function say(text, on) { if (live && live.textContent !== text) { live.textContent = text; live.className = on ? "on" : ""; } }
function refresh(again = true) {
  if (isAsking || document.hidden || !all("[data-live]").length) return;
  const wait = asked + PAUSE - Date.now();
  clearTimeout(due); clearTimeout(calm);
  if (wait > 0) { due = setTimeout(refresh, wait); return; }
  if (again) calm = setTimeout(refresh, CALM, false); // the last news may have come while the server counted
  asked = Date.now(); isAsking = true;
  const ask = new XMLHttpRequest();
  ask.open("GET", location.pathname + location.search);
  ask.setRequestHeader("X-Live", "1");
  ask.responseType = "document";
  ask.timeout = 20000;
  ask.onloadend = () => {
    isAsking = false;
    if (ask.status === 204) { asked += 1000 * (ask.getResponseHeader("Retry-After") || 5) - PAUSE; refresh(); return; } // many look on: news waits, too
    const is = ask.status === 200 && ask.response && $("#main", ask.response) && !$("#tokens", ask.response);
    all("[data-live]").forEach(one => one.classList.toggle("stale", !is));
    if (!is) { say(ask.status === 200 ? "signed out: reload to sign in" : "not live: the server does not answer, next look in 15 s", false); return; }
    for (const one of all("[data-live]")) patch(one, ask.response.getElementById(one.id));
    const at = ask.response.getElementById("asof");
    if (at) $("#asof").replaceWith(adopt(at));
    document.dispatchEvent(new CustomEvent("rainbow-changed"));
  };
  ask.send();
}
const adopt = node => { const made = document.importNode(node, true); localTimes(made); return made; };
function patch(old, fresh) {
  if (!fresh) { if (!old.matches(":hover")) old.replaceChildren(); return; }
  const made = adopt(fresh);
  if (old.isEqualNode(made)) return;
  const rows = $("table[data-rows]", old);
  const held = old.matches(":hover") || old.contains(document.activeElement) || $("input:checked", old);
  if (rows && held && $("table[data-rows]", made)) return keepRows(old, rows, $("table[data-rows]", made));
  const focus = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const end = $("pre[data-end]", old), atEnd = end && end.scrollTop + end.clientHeight > end.scrollHeight - 8;
  old.replaceWith(made);
  if (focus) all("a", made).find(one => one.getAttribute("href") === focus)?.focus();
  if (atEnd) all("pre[data-end]", made).forEach(one => { one.scrollTop = one.scrollHeight; });
}
function keepRows(section, old, fresh) {
  // the row under the pointer stays where it is: cells change in place, new rows wait until they are asked for
  const known = new Map(all("tbody tr", old).map(row => [row.dataset.key, row]));
  let added = 0;
  for (const row of all("tbody tr", fresh)) {
    const before = known.get(row.dataset.key);
    if (!before) { added += 1; continue; }
    [...row.cells].forEach((cell, at) => {
      const here = before.cells[at];
      if (here && !$("input", here) && !here.isEqualNode(cell) && !here.contains(document.activeElement)) here.replaceWith(cell.cloneNode(true));
    });
  }
  let button = $("button.new", section);
  if (added && !button) {
    button = document.createElement("button");
    button.className = "new plain"; button.type = "button";
    button.onclick = () => location.reload();
    section.prepend(button);
  }
  if (button) button.textContent = `${added} new`;
}

// one connection for all tabs: the visible tab that holds the lock listens, and tells the others
const told = "BroadcastChannel" in window ? new BroadcastChannel("rainbow") : null;
const watched = document.body.dataset.watch;
function heard(names) { if (!watched || names.includes("*") || names.includes(watched)) refresh(); }
if (told) told.onmessage = ({data}) => { if (data.names) heard(data.names); say(data.text, data.on); };
function tell(names, text, on) { say(text, on); told?.postMessage({names, text, on}); if (names) heard(names); }
let source = null, timer = 0, release = null;
function listen() {
  source = new EventSource(`/ui/events?seen=${document.body.dataset.news}`); // it begins with what has changed since
  source.onopen = () => { clearInterval(timer); timer = 0; tell(null, "live", true); };
  source.addEventListener("changed", event => tell(JSON.parse(event.data), "live", true));
  source.addEventListener("end", () => { stop(); tell(["*"], "signed out: reload to sign in", false); });
  source.onerror = () => {
    // after 429 a browser does not try again by itself: ask now and then instead
    tell(null, source?.readyState === 2 ? "not live: looks again every 15 s" : "reconnecting …", false);
    if (!timer) timer = setInterval(() => { tell(["*"], "not live: looks again every 15 s", false); if (source?.readyState === 2) { source.close(); listen(); } }, POLL);
  };
}
function stop() { source?.close(); source = null; clearInterval(timer); timer = 0; release?.(); release = null; }
function take() {
  if (document.hidden) return stop();
  if (source || release) return;
  if (!navigator.locks) return listen();
  const aborted = new AbortController();
  release = () => aborted.abort();
  navigator.locks.request("rainbow-live", {signal: aborted.signal}, () => new Promise(done => { release = done; listen(); })).catch(() => {});
  say("live", true);
  setTimeout(() => { if (!source) refresh(); }, PAUSE); // another tab listens, and may have told of it before
}
if (live && $("[data-live]")) {
  document.addEventListener("visibilitychange", () => { take(); if (!document.hidden) refresh(); });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", event => { if (event.persisted) take(); });
  take();
}

if (live && !$("[data-live]")) say("");

// keys
const KEYS = [["/", "search"], ["j, k", "next row, row before"], ["Enter", "open the row"], ["g f", "fleet"], ["g j", "jobs"], ["g c", "clusters"], ["g a", "accounts"], ["g m", "where would it run"], ["g t", "try priorities"], ["Esc", "leave a field, close this"], ["?", "these keys"]];
const PLACES = {f: "/fleet", j: "/jobs", c: "/clusters", a: "/accounts", m: "/match", t: "/try"};
let before = "", row = -1;
function help() {
  let box = $("dialog.keys");
  if (!box) {
    box = document.createElement("dialog");
    box.className = "keys";
    box.setAttribute("aria-label", "Keys");
    const list = document.createElement("dl");
    list.className = "facts";
    for (const [key, does] of KEYS) {
      const name = document.createElement("dt"), text = document.createElement("dd"), k = document.createElement("kbd");
      k.textContent = key; name.append(k); text.textContent = does; list.append(name, text);
    }
    const shut = document.createElement("button");
    shut.textContent = "Close"; shut.onclick = () => box.close();
    box.append(list, shut);
    document.body.append(box);
  }
  box.open ? box.close() : box.showModal();
}
function move(by) {
  const rows = all("main table tbody tr").filter(one => one.offsetParent);
  if (!rows.length) return;
  row = Math.max(0, Math.min(rows.length - 1, row + by));
  all("tr.at").forEach(one => one.classList.remove("at"));
  rows[row].classList.add("at");
  ($("th a", rows[row]) || $("a", rows[row]))?.focus();
  rows[row].scrollIntoView({block: "nearest"});
}
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest?.("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape") { field?.blur(); $("#who")?.removeAttribute("open"); return; }
  if (field) return;
  const key = event.key;
  if (before === "g" && PLACES[key]) { location.href = PLACES[key]; return; }
  before = key;
  if (key === "?") help();
  else if (key === "/") { const search = $("form[role=search] input:not([type=hidden])"); if (search) { event.preventDefault(); search.focus(); } else location.href = "/jobs"; }
  else if (key === "j") move(1);
  else if (key === "k") move(-1);
});
document.addEventListener("keydown", event => {
  const tile = event.target.closest?.("[data-roving] a");
  const by = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1, Home: -1e9, End: 1e9}[event.key];
  if (!tile || !by) return;
  const tiles = all("a", tile.closest("[data-roving]"));
  let to = tiles.indexOf(tile);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const wide = tiles.findIndex(one => one.offsetTop > tiles[0].offsetTop);
    to += by * (wide > 0 ? wide : tiles.length);
  } else to += by;
  to = Math.max(0, Math.min(tiles.length - 1, to));
  tile.tabIndex = -1; tiles[to].tabIndex = 0; tiles[to].focus();
  event.preventDefault();
});
all("pre[data-end]").forEach(one => { one.scrollTop = one.scrollHeight; });
localTimes(document);
