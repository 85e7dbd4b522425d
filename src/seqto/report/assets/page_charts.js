// The two charts, drawn with Observable Plot as SVG so that every dot can have focus and a name.

function steps(rows, x, y) {
  const sorted = [...rows].sort((a, b) => x.of(a) - x.of(b) || y.of(a) - y.of(b));
  const kept = [];
  for (const row of sorted) if (!kept.length || y.of(row) < y.of(kept.at(-1))) kept.push(row);
  return kept;
}

// Loss, size and latency always, then the run's other objectives; only what was measured.
function axisNames(report) {
  const names = [...new Set(["loss", "size", "latency", ...report.objectives])];
  return names.filter((name) => ["loss", "size"].includes(name) || report.measured.some((t) => METRICS[name].of(t) !== null));
}

function thirdMetric(report, view) {
  const rest = axisNames(report).filter((name) => name !== view.x && name !== view.y);
  return rest.find((name) => report.measured.some((t) => METRICS[name].of(t) !== null)) ?? null;
}

function bars(rows, x, y, report, shown) {
  const marks = [];
  const look = { stroke: "currentColor", strokeWidth: 1, strokeOpacity: (t) => (report.onFront(t) ? 0.55 : 0.16) };
  if (shown && y.low) marks.push(Plot.ruleX(rows, { x: x.of, y1: y.low, y2: y.high, ...look }));
  if (shown && x.low) marks.push(Plot.ruleY(rows, { y: y.of, x1: x.low, x2: x.high, ...look }));
  return marks;
}

function landmarks(report, view, rows, x, y) {
  const marks = [];
  const still = { pointerEvents: "none" };
  if (report.baseline && x.float(report) !== null && y.float(report) !== null) {
    const place = [{ x: x.float(report), y: y.float(report) }];
    marks.push(Plot.dot(place, { x: "x", y: "y", symbol: "diamond", r: 7, fill: "currentColor", ...still }));
    marks.push(Plot.text(place, { x: "x", y: "y", text: () => "float", dy: -15, fill: "currentColor", ...still }));
  }
  const at = (number) => rows.filter((t) => t.number === number);
  marks.push(
    Plot.dot(at(report.fully_quantized), {
      x: x.of, y: y.of, symbol: "times", r: 7, stroke: "var(--bad)", strokeWidth: 3, ...still,
    }),
    Plot.dot(at(report.recommended.balanced), {
      x: x.of, y: y.of, symbol: "star", r: 9, fill: "#ffd24a", stroke: "#3b2f00", strokeWidth: 1.2, ...still,
    }),
  );
  view.pins.forEach((number, i) => {
    const hue = i === 0 ? "var(--pin-a)" : "var(--pin-b)";
    marks.push(
      Plot.dot(at(number), { x: x.of, y: y.of, r: 12, stroke: hue, strokeWidth: 3, ...still }),
      Plot.text(at(number), {
        x: x.of, y: y.of, text: () => "AB"[i], dy: i === 0 ? -21 : 21, fontWeight: 700, fontSize: 14, fill: hue,
        stroke: "var(--card)", strokeWidth: 4, ...still,
      }),
    );
  });
  return marks;
}

function drawFront(report, view, hooks) {
  const box = byId("front-chart");
  const held = document.activeElement?.getAttribute?.("data-trial");
  const [x, y] = [METRICS[view.x], METRICS[view.y]];
  const known = report.measured.filter((t) => x.of(t) !== null && y.of(t) !== null);
  const rows = view.frontOnly ? known.filter(report.onFront) : known;
  const hidden = report.measured.length - known.length;
  byId("front-note").textContent = hidden ? hidden + " measured trials have no figure for these axes yet and are not shown." : "";
  if (!rows.length) {
    box.replaceChildren(el("p", { class: "hint" }, "No trial with these two figures yet."));
    return;
  }
  const third = thirdMetric(report, view);
  const hue = third && METRICS[third];
  const wide = Math.max(280, box.clientWidth);
  const stretched = (name) => (view.stretch && name === "loss" ? { type: "sqrt" } : {});
  const chart = Plot.plot({
    width: wide,
    height: Math.round(Math.min(460, Math.max(300, wide * 0.5))),
    marginLeft: 48,
    marginRight: 24,
    marginTop: 28,
    marginBottom: 40,
    style: { background: "transparent", fontSize: "12px", fontFamily: "inherit" },
    ariaLabel: "Trials by " + x.name + " and " + y.name,
    x: { label: x.label, grid: true, nice: true, ticks: Math.min(10, Math.floor(wide / 80)), ...stretched(view.x) },
    y: { label: y.label, grid: true, nice: true, ticks: 7, ...stretched(view.y) },
    r: { type: "identity" },
    color: hue
      ? { type: "linear", scheme: "viridis", label: hue.label + ", as colour", legend: true, unknown: "#999", reverse: view.dark }
      : undefined,
    marks: [
      ...bars(rows, x, y, report, view.intervals),
      Plot.line(steps(rows, x, y), { x: x.of, y: y.of, curve: "step-after", stroke: "var(--accent)", strokeWidth: 2 }),
      Plot.dot(rows, {
        className: "points", sort: null, x: x.of, y: y.of, r: (t) => (report.onFront(t) ? 6.5 : 4.5),
        fill: hue ? (t) => hue.of(t) : (t) => (report.onFront(t) ? "var(--accent)" : "var(--damage)"),
        fillOpacity: (t) => (report.onFront(t) ? 1 : 0.6), stroke: "currentColor",
        strokeWidth: (t) => (report.onFront(t) ? 1.6 : 0.5),
      }),
      ...landmarks(report, view, rows, x, y),
    ],
  });
  box.replaceChildren(chart, frontKey());
  wirePoints(box, rows, report, view, hooks);
  if (held) box.querySelector('[data-trial="' + CSS.escape(held) + '"]')?.focus({ preventScroll: true });
}

function frontKey() {
  const sign = (path, look) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "-8 -8 16 16");
    svg.setAttribute("aria-hidden", "true");
    const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
    shape.setAttribute("d", path);
    for (const [key, value] of Object.entries(look)) shape.setAttribute(key, value);
    svg.append(shape);
    return svg;
  };
  const disc = (r) => "M" + -r + ",0a" + r + "," + r + " 0 1 0 " + 2 * r + ",0a" + r + "," + r + " 0 1 0 " + -2 * r + ",0";
  const outline = { fill: "var(--damage)", stroke: "currentColor" };
  return el(
    "div",
    { class: "key" },
    el("span", {}, sign(disc(6), { ...outline, "stroke-width": 1.6 }), "on the front"),
    el("span", {}, sign(disc(4), { ...outline, "stroke-width": 0.5, "fill-opacity": 0.6 }), "other trial"),
    el("span", {}, sign("M0,-7L7,0L0,7L-7,0Z", { fill: "currentColor" }), "float"),
    el("span", {}, sign("M-5,-5L5,5M-5,5L5,-5", { stroke: "var(--bad)", "stroke-width": 3 }), "fully quantized"),
    el("span", {}, sign("M0,-8L2,-2.5H8L3,1L5,7L0,3.5L-5,7L-3,1L-8,-2.5H-2Z", { fill: "#ffd24a", stroke: "#3b2f00" }), "balanced"),
  );
}

function wirePoints(box, rows, report, view, hooks) {
  const x = METRICS[view.x];
  const dots = [...box.querySelectorAll(".points circle")];
  const order = dots
    .map((dot) => ({ dot, trial: rows[d3.select(dot).datum()] }))
    .sort((a, b) => x.of(a.trial) - x.of(b.trial) || a.trial.number - b.trial.number);
  const start = Math.max(0, order.findIndex((o) => view.pins.includes(o.trial.number)));
  order.forEach(({ dot, trial }, i) => {
    const pinned = view.pins.includes(trial.number);
    dot.setAttribute("data-trial", trial.number);
    dot.setAttribute("role", "button");
    dot.setAttribute("tabindex", i === start ? 0 : -1); // one stop for Tab, arrows go on from it
    dot.setAttribute("aria-pressed", pinned);
    dot.setAttribute("aria-label", pointName(report, trial));
    dot.addEventListener("click", () => hooks.pin(trial.number));
    for (const kind of ["mouseenter", "focus"]) dot.addEventListener(kind, () => showTip(dot, report, trial));
    for (const kind of ["mouseleave", "blur"]) dot.addEventListener(kind, hideTip);
    dot.addEventListener("keydown", (event) => {
      const jump = { ArrowRight: i + 1, ArrowUp: i + 1, ArrowLeft: i - 1, ArrowDown: i - 1, Home: 0, End: order.length - 1 }[event.key];
      if (event.key === "Enter" || event.key === " ") hooks.pin(trial.number);
      else if (event.key === "Escape") hooks.unpinAll();
      else if (jump === undefined || !order[jump]) return;
      else {
        dot.setAttribute("tabindex", -1);
        order[jump].dot.setAttribute("tabindex", 0);
        order[jump].dot.focus();
      }
      event.preventDefault();
    });
  });
}

const pointName = (report, t) =>
  "Trial " + t.number + ": " + report.changed + " " + METRICS.loss.say(t) + ", " + size(t.size_bytes) +
  (t.latency_ms ? ", " + METRICS.latency.say(t) : "") + ", " + t.kept + " layers float";

function showTip(dot, report, trial) {
  const tip = byId("tip");
  const title = picksOf(report, trial.number);
  fill(
    "tip",
    el("b", {}, "Trial " + trial.number + (title ? ": " + title : "")),
    el("div", {}, report.changed + " " + METRICS.loss.say(trial)),
    el("div", {}, size(trial.size_bytes) + (trial.latency_ms ? "; " + METRICS.latency.say(trial) : "")),
    trial.accuracy === null ? null : el("div", {}, "accuracy " + percent(trial.accuracy)),
    el("div", {}, planSummary(report, trial)),
    trial.note ? el("div", {}, trial.note) : null,
  );
  tip.hidden = false;
  const frame = tip.parentElement.getBoundingClientRect();
  const spot = dot.getBoundingClientRect();
  const left = spot.left - frame.left + 16;
  const room = frame.width - tip.offsetWidth - 4;
  tip.style.left = Math.max(0, left > room ? spot.left - frame.left - tip.offsetWidth - 8 : left) + "px";
  tip.style.top = Math.max(0, spot.top - frame.top - tip.offsetHeight / 2) + "px";
}

function hideTip() {
  byId("tip").hidden = true;
}

// by position in the table of objectives
const OBJECTIVE_HUES = ["var(--xmodel)", "var(--qdq)", "var(--time)", "var(--bytes)", "var(--accent)", "var(--bad)"];
const OBJECTIVE_SYMBOLS = ["circle", "square", "triangle", "diamond", "star", "wye"];
const byPosition = (styles, name) => styles[Object.values(METRICS).findIndex((m) => m.name === name) % styles.length];

function drawObjectives(report) {
  const box = byId("objectives-chart");
  const points = [];
  for (const name of report.objectives) {
    const metric = METRICS[name];
    const known = report.measured.filter((t) => metric.of(t) !== null);
    const [low, high] = d3.extent(known, metric.of);
    for (const t of known)
      points.push({ t, name: metric.name, kept: t.kept, share: high > low ? (100 * (metric.of(t) - low)) / (high - low) : 0 });
  }
  if (!points.length) {
    box.replaceChildren(el("p", { class: "hint" }, "No trial is measured yet."));
    return;
  }
  // one trial a count is the paper's walk; a search that visits a count often has no such line
  const counts = points.filter((p) => p.name === points[0].name).map((p) => p.kept);
  const walk = new Set(counts).size === counts.length;
  const picks = d3.groups(Object.entries(report.recommended), ([, number]) => number).map(([number, group]) => ({
    kept: report.trial(number).kept,
    text: group.map(([pick]) => PICKS[pick] ?? pick).join(", "),
  }));
  const merged = d3.groups(picks, (p) => p.kept).map(([kept, same]) => ({ kept, text: same.map((p) => p.text).join(", ") }));
  const names = Object.values(METRICS).map((m) => m.name).filter((n) => points.some((p) => p.name === n));
  const most = d3.max(points, (p) => p.kept);
  const wide = Math.max(280, box.clientWidth);
  const strong = (p) => walk || report.onFront(p.t);
  const chart = Plot.plot({
    width: wide,
    height: Math.round(Math.min(400, Math.max(280, wide * 0.42))),
    marginTop: 26,
    marginLeft: 44,
    marginRight: 24,
    marginBottom: 40,
    style: { background: "transparent", fontSize: "12px", fontFamily: "inherit" },
    ariaLabel: "Objectives against the number of layers kept float",
    x: { label: "layers kept float", grid: true, ticks: d3.ticks(0, most, Math.min(12, Math.floor(wide / 70))).filter(Number.isInteger), tickFormat: String },
    y: { label: "lowest … highest (%)", grid: true, domain: [0, 100] },
    color: {
      domain: names,
      range: names.map((n) => byPosition(OBJECTIVE_HUES, n)),
    },
    symbol: { domain: names, range: names.map((n) => byPosition(OBJECTIVE_SYMBOLS, n)), legend: true },
    marks: [
      Plot.ruleX(merged, { x: "kept", stroke: "currentColor", strokeDasharray: "5 3", strokeWidth: 1.5 }),
      ...[-1, 1].map((side) =>
        Plot.text(merged.filter((p) => (p.kept < most / 2 ? 1 : -1) === side), {
          x: "kept", y: 100, text: "text", rotate: -90, textAnchor: "end", dx: 8 * side, fill: "currentColor", stroke: "var(--card)", strokeWidth: 4,
        })),
      walk ? Plot.line(d3.sort(points, (p) => p.kept), { x: "kept", y: "share", z: "name", stroke: "name", strokeWidth: 2 }) : null,
      Plot.dot(points, {
        x: "kept", y: "share", fill: "name", symbol: "name", r: walk ? 3.5 : 3,
        fillOpacity: (p) => (strong(p) ? 1 : 0.4), title: (p) => "trial " + p.t.number + ": " + p.name + " " + p.share.toFixed(0) + " %",
      }),
    ],
  });
  box.replaceChildren(chart);
}
