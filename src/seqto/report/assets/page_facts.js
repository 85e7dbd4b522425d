// What the page knows and how it says it. Texts come from strangers: they enter the page as text
// nodes only (`el`), never as markup.

const PLAN_BASE = 48; // a plan is one sign a layer: its code less this is the scheme's place

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key, value);
    else if (key.startsWith("--")) node.style.setProperty(key, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const byId = (id) => document.getElementById(id);

function fill(id, ...children) {
  byId(id).replaceChildren(...children.flat().filter((c) => c !== null && c !== undefined));
}

// Plot names its groups of marks; a name needs a role to be read.
function named(chart) {
  for (const group of chart.querySelectorAll("g[aria-label]")) group.setAttribute("role", "group");
  const svg = chart.tagName === "svg" ? chart : chart.querySelector("svg[aria-label]");
  svg?.setAttribute("role", "group");
  return chart;
}

// Asked once for each width of the window: every further question would lay out the long tables.
const widths = new Map();
function chartWidth() {
  if (!widths.has(window.innerWidth)) widths.set(window.innerWidth, Math.max(280, byId("front-chart").clientWidth));
  return widths.get(window.innerWidth);
}

const NONE = "–";
// a number and its unit stay on one line
const whole = (text) => text.replace(/(\d) (?=%|×|kB|MB|GB|ms)/g, "$1\u00a0");
const percent = (share) =>
  share === null || share === undefined
    ? NONE
    : (share * 100).toFixed(share > 0 && share < 0.001 ? 2 : 1).replace(/^-(0\.0+)$/, "$1") + "\u00a0%";
const size = (bytes) =>
  !bytes
    ? NONE
    : bytes < 999500
      ? (bytes / 1e3).toFixed(1) + "\u00a0kB"
      : bytes < 999.5e6
        ? (bytes / 1e6).toFixed(2) + "\u00a0MB"
        : (bytes / 1e9).toFixed(2) + "\u00a0GB";
const milliseconds = (ms) =>
  ms === null || ms === undefined ? NONE : (ms < 100 ? ms.toPrecision(3) : ms.toFixed(0)) + "\u00a0ms";
const times = (x) => (x > 0.8 && x < 1.25 ? x.toFixed(2) : x.toFixed(1)) + "\u00a0×";
const figure = (x) =>
  x === null || x === undefined ? NONE : x !== 0 && Math.abs(x) < 1e-3 ? x.toExponential(0) : String(+x.toPrecision(2));

const interval = (loss) =>
  loss ? percent(loss.value) + " (" + [loss.low, loss.high].map((v) => (v * 100).toFixed(loss.value > 0 && loss.value < 0.001 ? 2 : 1)).join("–") + ")" : NONE;

// How a figure of each format is drawn (scale, unit) and written.
const FORMATS = {
  share: { scale: 100, unit: "%", say: percent },
  bytes: { scale: 1e-6, unit: "MB", say: size },
  ratio: { scale: 1, unit: "× float", say: (x) => (x === null ? NONE : x.toFixed(2) + " × float") },
  milliseconds: { scale: 1, unit: "ms", say: milliseconds },
  number: { scale: 1, unit: "", say: figure },
};

// Two objectives have intervals.
const INTERVALS = {
  loss: {
    low: (t) => t.loss.low * 100,
    high: (t) => t.loss.high * 100,
    say: (t) => interval(t.loss),
  },
  latency: {
    low: (t) => t.latency_ms.ratio_low ?? t.latency_ms.ratio,
    high: (t) => t.latency_ms.ratio_high ?? t.latency_ms.ratio,
    say: (t) =>
      t.latency_ms ? t.speed.text + ": " + t.times : NONE,
  },
};

// Filled from the report's table of objectives by `decode`.
const METRICS = {};
const PICKS = {};

function metric(objective) {
  const format = FORMATS[objective.format] ?? FORMATS.number;
  const scaled = (x) => (x === null || x === undefined ? null : x * format.scale);
  return {
    label: objective.axis || objective.label + (format.unit ? " (" + format.unit + ")" : ""),
    name: objective.label,
    of: (t) => scaled(t.objectives[objective.name]),
    float: (report) => scaled(report.baseline.objectives[objective.name]),
    say: (t) => format.say(t.objectives[objective.name]),
    format: (value) => format.say(value / format.scale),
    sayFloat: (report) => format.say(report.baseline.objectives[objective.name]),
    ...INTERVALS[objective.name],
  };
}

// hues beside the written code, so that colour never stands alone
const HUES = { fp32: "#8b949e", fp16: "#56b4e9", static: "#e69f00", dynamic: "#cc79a7", weight: "#009e73", nbit: "#9b59d0" };

function decode(data) {
  for (const objective of data.objective_table) METRICS[objective.name] = metric(objective);
  Object.assign(PICKS, data.pick_titles);
  const byNumber = new Map(data.trials.map((t) => [t.number, t]));
  const front = new Set(data.front);
  return {
    ...data,
    byNumber,
    onFront: (t) => front.has(t.number),
    trial: (number) => byNumber.get(number) ?? null,
    schemeAt: (t, index) => data.schemes[t.plan.charCodeAt(index) - PLAN_BASE],
    // copies and unfinished trials would only hide the dots that count
    measured: data.trials.filter((t) => !t.error && !t.stopped_early && t.loss && t.same_as === null),
  };
}

function planCounts(report, trial) {
  const counts = new Map();
  report.layers.forEach((layer, i) => {
    if (!layer.quantizable) return;
    const code = report.schemeAt(trial, i);
    counts.set(code, (counts.get(code) ?? 0) + 1);
  });
  return [...counts].sort((a, b) => b[1] - a[1]);
}

function planSummary(report, trial) {
  const parts = planCounts(report, trial).map(([code, n]) => n + " × " + code);
  if (trial.transforms.length) parts.push("after " + trial.transforms.join(", "));
  return parts.join("; ") || "all layers float";
}

function picksOf(report, number) {
  const names = Object.entries(report.recommended)
    .filter(([, n]) => n === number)
    .map(([pick]) => PICKS[pick] ?? pick);
  if (report.fully_quantized === number) names.push("fully quantized");
  return names.join(", ");
}

function outcome(trial) {
  if (trial.error) return "failed: " + trial.error.stage;
  if (trial.same_as !== null) return "same model as " + trial.same_as;
  if (trial.stopped_early) return "stopped early";
  return "measured";
}

function schemeChip(report, code, differs) {
  return el("span", { class: differs ? "scheme differs" : "scheme", "--hue": HUES[report.kinds[code]] ?? "#8b949e" }, code);
}

// A cell that a spreadsheet would run as a formula gets a quote before it; numbers stay numbers.
function csvCell(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (typeof value === "string" && /^[\s]*[=+\-@\t\r]/.test(text)) text = "'" + text;
  return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

function trialsCsv(report, trials) {
  const columns = [
    ["trial", (t) => t.number],
    ["key", (t) => t.key],
    ["on_front", (t) => (report.onFront(t) ? 1 : 0)],
    ["recommended", (t) => picksOf(report, t.number)],
    ["outcome", (t) => outcome(t)],
    ["layers_float", (t) => t.kept],
    ["held_out_loss", (t) => t.report_split?.loss?.value],
    ["held_out_low", (t) => t.report_split?.loss?.low],
    ["held_out_high", (t) => t.report_split?.loss?.high],
    ["loss", (t) => t.loss?.value],
    ["loss_low", (t) => t.loss?.low],
    ["loss_high", (t) => t.loss?.high],
    ["samples", (t) => t.loss?.samples],
    ["accuracy", (t) => t.accuracy],
    ["size_bytes", (t) => t.size_bytes || null],
    ["latency_ms", (t) => t.latency_ms?.median],
    ["latency_ratio", (t) => t.latency_ms?.ratio],
    ...report.columns.map((column) => [column.name, (t) => t.cells[column.name][0]]),
    ["seconds", (t) => t.seconds],
    ["note", (t) => t.note],
    ["sha256", (t) => t.sha256],
  ];
  const rows = [columns.map(([name]) => name), ...trials.map((t) => columns.map(([, get]) => get(t)))];
  return rows.map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}
