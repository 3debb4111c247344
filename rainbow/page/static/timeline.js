// The timeline of a cluster: a bar for each task on each worker, those that share it one below the other.
// While it is moved the last picture is shifted.
const box = document.querySelector("[data-timeline]"), tip = document.querySelector("#tip");
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const clock = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
const date = new Intl.DateTimeFormat(undefined, {month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", hourCycle: "h23"});
const TOP = 20, STEPS = [60, 300, 900, 1800, 3600, 7200, 21600, 43200, 86400];
let told = null, from = 0, to = 0, canvas = null, kept = null, keptAt = 0, drag = null, late = 0, chosen = -1, rows = [], place = [], deep = [];

function stack() {
  const ends = told.lanes.map(() => []);
  place = [];
  for (const at of told.start.map((_, at) => at).sort((a, b) => told.start[a] - told.start[b])) {
    const open = ends[told.lane[at]], free = open.findIndex(end => end <= told.start[at]);
    place[at] = free < 0 ? open.length : free;
    open[place[at]] = told.end[at] ?? Infinity;
  }
  deep = ends.map(open => open.length);
}
function layout() {
  const lanes = Math.max(1, told.lanes.length), most = deep.reduce((a, b) => Math.max(a, b), 1);
  const high = Math.max(3, Math.min(16, Math.floor(460 / lanes)), Math.min(5 * most, Math.floor(20000 / lanes)));
  rows = [];
  const ends = [];
  told.planned.forEach(one => {
    let at = ends.findIndex(end => end <= one.start);
    if (at < 0 || at > 29) at = Math.min(29, ends.length);
    ends[at] = one.end || to; rows.push(at);
  });
  const bar = at => high / deep[told.lane[at]], top = at => TOP + told.lane[at] * high + place[at] * bar(at);
  return {high, bar, top, bars: TOP + lanes * high, height: TOP + lanes * high + (ends.length ? 14 + ends.length * 10 : 0)};
}
function paint() {
  const ratio = devicePixelRatio || 1, width = box.clientWidth, {bar, top, bars, height} = layout();
  canvas.width = width * ratio; canvas.height = height * ratio;
  canvas.style.setProperty("height", height + "px");
  const draw = canvas.getContext("2d", {alpha: false});
  draw.scale(ratio, ratio);
  draw.fillStyle = color("--card"); draw.fillRect(0, 0, width, height);
  const scale = width / (to - from), x = at => (at - from) * scale;
  const step = STEPS.find(one => one * scale > 80) || 86400;
  draw.font = "11px system-ui, sans-serif"; draw.strokeStyle = color("--line"); draw.fillStyle = color("--dim");
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  for (let at = Math.ceil((from - shift) / step) * step + shift; at < to; at += step) {
    draw.beginPath(); draw.moveTo(x(at), TOP); draw.lineTo(x(at), height); draw.stroke();
    draw.fillText((step >= 43200 ? date : clock).format(at * 1000), x(at) + 3, 13);
  }
  const shades = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(at => color("--k" + at)), groups = shades.map(() => []);
  const {start, end, user, kind, at: now} = told;
  for (let at = 0; at < start.length; at++) {
    if ((end[at] ?? now) >= from && start[at] <= to) groups[Math.min(8, user[at])].push(at);
  }
  groups.forEach((members, of) => {
    draw.fillStyle = shades[of];
    for (const at of members) {
      const left = x(start[at]);
      draw.fillRect(left, top(at), Math.max(1, x(end[at] ?? now) - left - 0.5), bar(at) > 4 ? bar(at) - 1 : bar(at));
    }
  });
  draw.strokeStyle = color("--bg"); draw.lineWidth = 1.5; draw.beginPath();
  for (let at = 0; at < start.length; at++) {
    if (kind[at] !== 1) continue;
    const left = x(start[at]), right = Math.max(left + 1, x(end[at] ?? now)), y = top(at), high = bar(at);
    for (let on = Math.max(0, left); on < Math.min(width, right); on += 6) { draw.moveTo(on, y + high); draw.lineTo(on + high / 2, y); }
  }
  draw.stroke();
  told.planned.forEach((one, at) => {
    const y = bars + 12 + rows[at] * 10, shade = shades[Math.min(8, Math.max(0, told.users.indexOf(one.requestor)))];
    draw.fillStyle = shade; draw.globalAlpha = .3;
    const low = x(one.low ?? one.start), high = x(one.high ?? one.end ?? to);
    draw.fillRect(low, y, Math.max(2, high - low), 8);
    draw.globalAlpha = .75; draw.fillRect(x(one.start), y + 2, Math.max(2, x(one.end ?? to) - x(one.start)), 4);
    draw.globalAlpha = 1;
  });
  draw.strokeStyle = color("--bad"); draw.lineWidth = 1; draw.beginPath(); draw.moveTo(x(now), TOP); draw.lineTo(x(now), height); draw.stroke();
  draw.fillStyle = color("--bad"); draw.fillText("now", x(now) - 26, height - 4); // before the line, as what is planned begins at it
  if (chosen >= 0) {
    draw.strokeStyle = color("--ink"); draw.lineWidth = 2;
    const left = x(start[chosen]);
    draw.strokeRect(left, top(chosen), Math.max(2, x(end[chosen] ?? now) - left), bar(chosen));
  }
  kept = document.createElement("canvas");
  kept.width = canvas.width; kept.height = canvas.height;
  kept.getContext("2d", {alpha: false}).drawImage(canvas, 0, 0);
  keptAt = from;
}
function shift(by) {
  from += by; to += by;
  const draw = canvas.getContext("2d", {alpha: false}), ratio = devicePixelRatio || 1;
  draw.fillStyle = color("--card"); draw.fillRect(0, 0, canvas.width, canvas.height);
  draw.drawImage(kept, (keptAt - from) * box.clientWidth / (to - from) * ratio / (draw.getTransform().a || 1), 0, kept.width / (draw.getTransform().a || 1), kept.height / (draw.getTransform().d || 1));
  clearTimeout(late); late = setTimeout(paint, 120);
}
function zoom(by, around = (from + to) / 2) {
  const span = Math.max(60, Math.min(86400 * 14, (to - from) * by)), part = (around - from) / (to - from);
  from = around - span * part; to = from + span; paint();
}
function words(at) {
  const [, name] = told.jobs[told.job[at]];
  const ends = told.end[at] === null ? "still runs" : `ended ${clock.format(told.end[at] * 1000)}`;
  return `${name || told.jobs[told.job[at]][0]} · ${told.users[told.user[at]]} · ${told.lanes[told.lane[at]]} · ${clock.format(told.start[at] * 1000)}, ${ends}${told.kind[at] === 1 ? ", failed" : ""}`;
}
function under(event) {
  const {bar, top} = layout(), y = event.offsetY, at = from + event.offsetX * (to - from) / box.clientWidth, near = 3 * (to - from) / box.clientWidth;
  for (let k = 0; k < told.start.length; k++) if (top(k) <= y && y < top(k) + bar(k) && told.start[k] - near <= at && (told.end[k] ?? told.at) + near >= at) return k;
  return -1;
}
function choose(at) { if (at !== chosen) { chosen = at; paint(); tip.textContent = at < 0 ? "" : words(at); } }
function open() { if (chosen >= 0) location.href = `/jobs/${told.jobs[told.job[chosen]][0]}`; }
function next(by) {
  const order = told.start.map((_, at) => at).filter(at => (told.end[at] ?? told.at) >= from && told.start[at] <= to).sort((a, b) => told.lane[a] - told.lane[b] || told.start[a] - told.start[b]);
  if (order.length) choose(order[Math.max(0, Math.min(order.length - 1, order.indexOf(chosen) + by))]);
}
function legend() {
  const users = document.querySelector("#users");
  users.replaceChildren();
  [...told.users.slice(0, 8), ...(told.users.length > 8 ? [`${told.users.length - 8} others`] : [])].forEach((user, at) => {
    const mark = document.createElement("span");
    mark.className = `c${at + 1}`; mark.textContent = "■";
    users.append(mark, ` ${user.slice(0, 30)} `);
  });
}
function make() {
  canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-roledescription", "timeline");
  canvas.setAttribute("aria-describedby", "tip");
  canvas.setAttribute("aria-label", "Timeline. Left and right move in time, plus and minus zoom, up and down go from bar to bar, Enter opens. The table below says the same.");
  box.append(canvas);
  canvas.addEventListener("pointerdown", event => { drag = {x: event.clientX, moved: 0}; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", event => {
    if (!drag) { tip.textContent = (at => at < 0 ? "" : words(at))(under(event)); return; }
    const by = event.clientX - drag.x;
    drag.x = event.clientX; drag.moved += Math.abs(by);
    if (by) shift(-by * (to - from) / box.clientWidth);
  });
  canvas.addEventListener("pointerup", event => { const was = drag; drag = null; if (was && was.moved < 4) { chosen = under(event); open(); } });
  canvas.addEventListener("wheel", event => { if (!event.ctrlKey) return; event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : .8, from + event.offsetX * (to - from) / box.clientWidth); }, {passive: false});
  canvas.addEventListener("keydown", event => {
    const span = to - from, does = {ArrowLeft: () => shift(-span / 10), ArrowRight: () => shift(span / 10), "+": () => zoom(.7), "-": () => zoom(1.4), ArrowDown: () => next(1), ArrowUp: () => next(-1), Enter: open}[event.key];
    if (does) { event.preventDefault(); does(); }
  });
}
async function load() {
  const answer = await fetch(box.dataset.timeline, told ? {headers: {"X-Live": "1"}} : {});
  if (answer.status === 204) return void setTimeout(load, 1000 * (answer.headers.get("Retry-After") || 5));
  if (!answer.ok) return;
  const first = !told;
  told = await answer.json();
  if (first) {
    const hours = +new URLSearchParams(box.dataset.timeline.split("?")[1]).get("hours");
    from = told.at - 3600 * hours; to = told.at + 900 * hours;
    make();
  }
  chosen = -1;
  stack();
  legend();
  if (!drag) paint();
  performance.mark("timeline-ready");
}
if (box) {
  load();
  document.addEventListener("rainbow-changed", load);
  addEventListener("resize", () => told && paint());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => told && paint());
}
