// The map of a cluster's nodes: one square for each, drawn on a canvas for each kind.
const root = document.querySelector("[data-map]"), tip = document.querySelector("#tip");
const AWAY = {N: "no agent yet", L: "lost", O: "offline", Q: "quarantined", D: "draining"};
const WORDS = {taken: "with tasks", core: "cores in use", memory: "memory in use", gpu: "gpus in use"};
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const level = letter => letter === "A" ? 10 : letter >= "0" && letter <= "9" ? +letter : -1;
let told = null, by = "", views = [];

function nameOf(runs, at) {
  for (const run of runs) {
    const many = run.length > 1 ? run[2] : 1;
    if (at < many) return run.length > 1 ? run[0] + (run[1] + at) : run[0];
    at -= many;
  }
  return "";
}
class View {
  constructor(box, at) {
    this.box = box; this.at = at; this.chosen = -1; this.count = 0;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "map of nodes");
    this.canvas.setAttribute("aria-describedby", "tip");
    box.append(this.canvas);
    this.canvas.addEventListener("pointermove", event => this.choose(this.under(event)));
    this.canvas.addEventListener("click", event => { this.choose(this.under(event)); this.open(); });
    this.canvas.addEventListener("focus", () => this.choose(Math.max(0, this.chosen)));
    this.canvas.addEventListener("keydown", event => this.key(event));
  }
  get kind() { return told.kinds[this.at]; }
  draw() {
    const {kind, canvas} = this, nodes = kind.nodes, ratio = devicePixelRatio || 1;
    this.step = nodes <= 200 ? 26 : nodes <= 2000 ? 14 : nodes <= 20000 ? 9 : 4;
    const width = this.box.clientWidth;
    this.columns = Math.max(1, Math.floor(width / this.step));
    const height = Math.ceil(nodes / this.columns) * this.step;
    canvas.width = width * ratio; canvas.height = height * ratio;
    canvas.style.setProperty("height", height + "px");
    const draw = canvas.getContext("2d", {alpha: false}), size = this.step - (this.step > 8 ? 2 : 1);
    draw.scale(ratio, ratio);
    draw.fillStyle = color("--bg"); draw.fillRect(0, 0, width, height);
    const shades = [color("--idle"), ...["u1", "u1", "u3", "u3", "u5", "u5", "u7", "u7", "u9", "u10"].map(one => color("--" + one))];
    const bad = color("--hatch2"), line = color("--hatch"), dim = color("--dim");
    const line_of = kind.levels[by] || kind.levels.taken;
    const away = [], groups = shades.map(() => []);
    for (let at = 0; at < nodes; at++) { const of = level(line_of[at]); (of < 0 ? away : groups[of]).push(at); }
    groups.forEach((members, of) => {
      draw.fillStyle = shades[of];
      for (const at of members) draw.fillRect(at % this.columns * this.step, Math.floor(at / this.columns) * this.step, size, size);
    });
    for (const at of away) {
      const x = at % this.columns * this.step, y = Math.floor(at / this.columns) * this.step, drains = line_of[at] === "D";
      draw.fillStyle = drains ? color("--card") : bad; draw.fillRect(x, y, size, size);
      draw.strokeStyle = drains ? dim : line; draw.beginPath();
      draw.moveTo(x, y + size); draw.lineTo(x + size, y);
      if (!drains) { draw.moveTo(x, y + size / 2); draw.lineTo(x + size / 2, y); draw.moveTo(x + size / 2, y + size); draw.lineTo(x + size, y + size / 2); }
      draw.stroke();
    }
    this.size = size; this.last = -1;
    this.kept = document.createElement("canvas");
    this.kept.width = canvas.width; this.kept.height = canvas.height;
    this.kept.getContext("2d", {alpha: false}).drawImage(canvas, 0, 0);
    this.mark();
    canvas.setAttribute("aria-label", `${nodes} nodes: ${kind.taken} with tasks, ${kind.idle} idle, ${kind.away} away. Arrow keys move, Enter opens.`);
  }
  mark() {
    const draw = this.canvas.getContext("2d", {alpha: false});
    if (this.last >= 0) { draw.save(); draw.resetTransform(); draw.drawImage(this.kept, 0, 0); draw.restore(); }
    this.last = this.chosen;
    if (this.chosen < 0) return;
    draw.strokeStyle = color("--ink"); draw.lineWidth = 2;
    draw.strokeRect(this.chosen % this.columns * this.step, Math.floor(this.chosen / this.columns) * this.step, this.size, this.size);
  }
  under(event) {
    const at = Math.floor(event.offsetY / this.step) * this.columns + Math.min(this.columns - 1, Math.floor(event.offsetX / this.step));
    return at >= 0 && at < this.kind.nodes ? at : -1;
  }
  choose(at) {
    if (at === this.chosen) return;
    this.chosen = at; this.mark();
    tip.textContent = at < 0 ? "" : this.words(at);
  }
  words(at) {
    const parts = [];
    for (const [what, line] of Object.entries(this.kind.levels)) {
      const of = level(line[at]);
      if (of < 0) return `${nameOf(this.kind.names, at)}: ${AWAY[line[at]]}`;
      parts.push(what === "taken" ? (of ? "with tasks" : "idle") : `${what} ${of ? "up to " + of * 10 : 0} % in use`);
    }
    return `${nameOf(this.kind.names, at)}: ${parts.join(", ")}`;
  }
  key(event) {
    const by = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -1e9, End: 1e9}[event.key];
    if (event.key === "Enter") this.open();
    if (!by) return;
    event.preventDefault();
    this.choose(Math.max(0, Math.min(this.kind.nodes - 1, this.chosen + by)));
  }
  open() { if (this.chosen >= 0) location.href = `${root.dataset.open}?worker=${encodeURIComponent(nameOf(this.kind.names, this.chosen))}`; }
}
function choices() {
  const known = [...new Set(told.kinds.flatMap(kind => Object.keys(kind.levels)))];
  by = by || (told.whole ? "taken" : known.includes("core") ? "core" : "taken");
  if (document.querySelector("#colors") || known.length < 2) return;
  const label = document.createElement("label"), pick = document.createElement("select");
  label.textContent = "Color by ";
  pick.id = "colors";
  for (const one of known) { const option = new Option(WORDS[one] || one, one, one === by, one === by); pick.add(option); }
  pick.onchange = () => { by = pick.value; views.forEach(view => view.draw()); };
  label.append(pick);
  root.prepend(label);
}
async function load() {
  const answer = await fetch(root.dataset.map, told ? {headers: {"X-Live": "1"}} : {});
  if (answer.status === 204) return void setTimeout(load, 1000 * (answer.headers.get("Retry-After") || 5));
  if (!answer.ok) return;
  told = await answer.json();
  choices();
  if (!views.length) views = [...root.querySelectorAll("[data-kind]")].map((box, at) => new View(box, at));
  views.filter(view => told.kinds[view.at]).forEach(view => view.draw());
  performance.mark("map-ready");
}
if (root) {
  load();
  document.addEventListener("rainbow-changed", load);
  addEventListener("resize", () => told && views.forEach(view => view.draw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => told && views.forEach(view => view.draw()));
}
