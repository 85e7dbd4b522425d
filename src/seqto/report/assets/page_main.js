// State, events and the live view. All that is shown follows from `report` (facts) and `view`
// (what the reader chose); a new report from a running study redraws and keeps the choices.

let report = decode(JSON.parse(byId("seqto-data").textContent));

const darkMedia = window.matchMedia("(prefers-color-scheme: dark)");
const view = {
  x: "size", y: "loss", intervals: true, frontOnly: false, stretch: false, compareAll: false,
  zoom: "trials", layer: null, pins: [], chosen: false, pick: null, filter: "", onlyFront: false, dark: darkMedia.matches,
  graph: { colour: "scheme", query: "", scale: null, focus: 0, chosen: null },
  trialSort: { key: "number", down: false }, layerSort: { key: "index", down: false },
};

const hooks = {
  pin(number) {
    const at = view.pins.indexOf(number);
    // the first pin stays as the one to compare with; a third takes the place of the second
    if (at >= 0) view.pins = view.pins.filter((n) => n !== number);
    else view.pins = [...view.pins.slice(0, 1), number];
    view.chosen = true;
    byId("announce").textContent = (at >= 0 ? "Unpinned trial " : "Pinned trial ") + number;
    drawPinned();
  },
  unpinAll() {
    view.pins = [];
    view.chosen = true;
    drawPinned();
  },
  zoom(frame) {
    view.zoom = frame;
    drawFront(report, view, hooks);
  },
  showLayer(index) {
    const held = view.layer;
    view.layer = index;
    drawLayerFindings(report, view, hooks);
    if (index !== null) byId("layers").scrollIntoView({ block: "start" });
    else document.querySelector('#layer-table [data-layer-button="' + held + '"]')?.focus({ preventScroll: true });
  },
  showNode(index) {
    view.graph.chosen = index;
    drawNodeDetails(report, view, hooks);
  },
  sort(which, key) {
    const now = view[which];
    view[which] = { key, down: now.key === key ? !now.down : false };
    if (which === "trialSort") drawTrials(report, view, hooks);
    else drawLayers(report, view, hooks);
  },
};

function drawHeader() {
  const model = report.model;
  byId("model-name").textContent = report.name;
  document.title = report.name + " – seqto";
  const status = byId("status");
  status.textContent = { running: "running", done: "finished", budget: "budget used up", interrupted: "interrupted" }[report.status] ?? report.status;
  status.className = "pill " + report.status;
  const counts = report.counts;
  const facts = [
    report.baseline ? "float " + size(report.baseline.size_bytes) : null,
    report.layers.length + " layers",
    counts.trials + " trials" + (counts.failed ? ", " + counts.failed + " failed" : ""),
    report.front.length + " on the front",
    report.device.devices ? "devices " + report.device.devices.map((d) => d.name).join(", ") : report.device.name ? "device " + report.device.name : null,
    report.int8_products || null,
    model.sha256 ? "sha256 " + String(model.sha256).slice(0, 12) : null,
  ];
  byId("facts").textContent = facts.filter(Boolean).join(" · ");
}

function drawPins() {
  fill("pins", ...view.pins.map(report.trial).filter(Boolean).map((t, i) =>
    el("article", { class: i ? "pin b" : "pin", "data-pinned": t.number },
      el("header", {}, el("strong", {}, "AB"[i] + ": trial " + t.number), el("span", {}, picksOf(report, t.number)),
        el("button", { type: "button", "aria-label": "Unpin trial " + t.number, click: () => hooks.pin(t.number) }, "unpin")),
      el("dl", {},
        t.report_split ? [el("dt", {}, "held-out"), el("dd", {}, interval(t.report_split.loss))] : null,
        el("dt", {}, "in search"), el("dd", {}, interval(t.loss)),
        el("dt", {}, "size"), el("dd", {}, size(t.size_bytes)),
        el("dt", {}, "latency"), el("dd", {}, METRICS.latency.say(t)),
        t.accuracy === null ? null : [el("dt", {}, "accuracy"),
          el("dd", {}, t.report_split?.accuracy != null ? percent(t.report_split.accuracy) + " held-out, " + percent(t.accuracy) + " in search" : percent(t.accuracy) + " in search")],
        el("dt", {}, "layers"), el("dd", {}, planSummary(report, t)),
        t.note ? [el("dt", {}, "note"), el("dd", {}, t.note)] : null))));
}

// Long sections are drawn once the rest of the page can be used, and again only if they were drawn.
const LONG = [drawGraph, drawLayers, drawLayerFindings, drawTrials];
let drawnLong = false;

function drawPinned() {
  drawFront(report, view, hooks);
  drawPickTable(report, view, hooks);
  drawPins();
  drawCompare(report, view);
  if (drawnLong) for (const part of LONG) part(report, view, hooks);
}

// One section at a time, so that a click in between is answered.
async function drawLong() {
  for (const part of LONG) {
    await new Promise((go) => setTimeout(go));
    part(report, view, hooks);
  }
  drawnLong = true;
  document.documentElement.dataset.complete = "true";
}

function draw() {
  hideTip();
  if (!view.chosen) {
    const best = report.picks[0]?.trial;
    view.pins = best === undefined ? [] : [best];
  }
  view.pins = view.pins.filter((n) => report.trial(n));
  drawHeader();
  drawRecommendation(report, view);
  drawAxes();
  drawPinned();
  drawObjectives(report);
  drawDiagnosis(report, hooks);
  drawRunTime(report);
  drawFailures(report);
  drawSettings(report);
}

function drawAxes() {
  const known = axisNames(report);
  for (const [id, key] of [["axis-x", "x"], ["axis-y", "y"]]) {
    if (!known.includes(view[key])) view[key] = known.find((n) => n !== view.x && n !== view.y);
    fill(id, ...known.map((n) => el("option", { value: n, selected: n === view[key] }, METRICS[n].name)));
    byId(id).value = view[key];
  }
}

function chooseAxis(key, other) {
  return (event) => {
    const before = view[key];
    view[key] = event.target.value;
    if (view[other] === view[key]) view[other] = before; // the same twice is no chart: swap
    if (typeof view.zoom !== "string") view.zoom = "trials"; // a frame is of the axes that were
    drawAxes();
    drawFront(report, view, hooks);
  };
}

function download() {
  // the mark at the start tells spreadsheets that this is UTF-8
  const blob = new Blob(["\ufeff", trialsCsv(report, shownTrials(report, view))], { type: "text/csv;charset=utf-8" });
  const link = el("a", { href: URL.createObjectURL(blob), download: "trials.csv" });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function copyCommand() {
  const button = byId("copy");
  try {
    await navigator.clipboard.writeText(byId("command").textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId("command"));
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

function setDark(dark) {
  view.dark = dark;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function wire() {
  byId("axis-x").addEventListener("change", chooseAxis("x", "y"));
  byId("axis-y").addEventListener("change", chooseAxis("y", "x"));
  const flag = (id, key, redraw) =>
    byId(id).addEventListener("change", (event) => { view[key] = event.target.checked; redraw(report, view, hooks); });
  flag("intervals", "intervals", drawFront);
  flag("front-only", "frontOnly", drawFront);
  flag("stretch", "stretch", drawFront);
  flag("compare-all", "compareAll", drawCompare);
  flag("only-front", "onlyFront", drawTrials);
  byId("filter").addEventListener("input", (event) => { view.filter = event.target.value; drawTrials(report, view, hooks); });
  byId("zoom").addEventListener("click", () => hooks.zoom(view.zoom === "all" ? "trials" : "all"));
  byId("csv").addEventListener("click", download);
  byId("copy").addEventListener("click", copyCommand);
  byId("theme").addEventListener("click", () => { setDark(!view.dark); drawFront(report, view, hooks); });
  darkMedia.addEventListener("change", (event) => { setDark(event.matches); drawFront(report, view, hooks); });
  wireGraph(view, hooks);
  let width = window.innerWidth;
  let waiting = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone's address bar changes the height only
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => { drawFront(report, view, hooks); drawObjectives(report); drawDiagnosis(report, hooks); drawRunTime(report); if (drawnGraph) scaleGraph(view); }, 120);
  });
}

// The live view: ask for the facts again, cheaply (304 when nothing is new), for as long as the
// page is open. The server never hears anything but these questions.
async function poll(tag) {
  const lamp = byId("live");
  lamp.hidden = false;
  let next = tag;
  try {
    const answer = await fetch("data.json", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      next = answer.headers.get("ETag");
      report = decode(await answer.json());
      draw();
    } else if (answer.status !== 304) throw new Error("status " + answer.status);
    lamp.textContent = "live";
    lamp.className = "pill live";
  } catch {
    lamp.textContent = "no answer from seqto; showing what was last known";
    lamp.className = "pill lost";
  }
  setTimeout(() => poll(next), document.hidden ? 10000 : report.status === "running" ? 1500 : 5000);
}

setDark(view.dark);
wire();
draw();
document.documentElement.dataset.ready = "true";
drawLong();
if (document.documentElement.dataset.live === "true") poll(null);
