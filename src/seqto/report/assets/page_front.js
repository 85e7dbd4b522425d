// The front, drawn with Observable Plot as SVG so that every dot can have focus and a name.

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
  if (shown && y.low) marks.push(Plot.ruleX(rows, { x: x.of, y1: y.low, y2: y.high, clip: true, ...look }));
  if (shown && x.low) marks.push(Plot.ruleY(rows, { y: y.of, x1: x.low, x2: x.high, clip: true, ...look }));
  return marks;
}

// What the chart shows: all, a frame that was dragged, or the trials that are of use.
const LEAST_TOP = 5; // per cent: an axis of losses that ends earlier hides what a user may tolerate

function extent(values) {
  const [low, high] = d3.extent(values);
  const room = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.06 || 1;
  return [low - room, high + room];
}

function frameOf(report, view, rows, metrics) {
  if (typeof view.zoom !== "string") return view.zoom;
  const floats = metrics.map((m) => (report.baseline ? m.float(report) : null));
  const frame = metrics.map((m, i) => extent([...rows.map(m.of), ...(view.zoom === "all" && floats[i] !== null ? [floats[i]] : [])]));
  // a few useless trials must not press the useful ones flat
  const picked = report.picks.filter((p) => p.shown).map((p) => report.trial(p.trial));
  const useful = [...report.measured.filter(report.onFront), ...picked].filter(Boolean);
  [view.x, view.y].forEach((name, i) => {
    if (name !== "loss") {
      // float and what is nearly as large stay at the edge: the front fills the picture
      const values = useful.map(metrics[i].of).filter((v) => v !== null);
      if (view.zoom === "trials" && values.length > 2) frame[i][1] = Math.min(frame[i][1], extent(values)[1]);
      return;
    }
    frame[i][0] = 0;
    const top = Math.max(LEAST_TOP, 1.25 * (d3.max(picked, metrics[i].of) ?? 0));
    if (view.zoom === "trials") frame[i][1] = Math.min(frame[i][1], top);
  });
  return { x: frame[0], y: frame[1] };
}

const inside = (value, [low, high]) => value >= low && value <= high;
const held = (value, [low, high]) => Math.min(high, Math.max(low, value));

const FLOAT_LABEL_UP = -16; // pixels from the float model's mark to its name
const LABEL_LETTER = 6.6; // pixels that a letter of a name takes

// Where the float model is marked: at the edge where it lies beyond the frame.
function floatMark(report, x, y, frame) {
  if (!report.baseline || x.float(report) === null || y.float(report) === null) return null;
  const [fx, fy] = [x.float(report), y.float(report)];
  const right = fx > frame.x[1];
  const beyond = !inside(fx, frame.x) || !inside(fy, frame.y);
  return {
    x: held(fx, frame.x), y: held(fy, frame.y), anchor: right ? "end" : "middle",
    text: beyond ? "float " + (right ? x.sayFloat(report) + " →" : "(beyond)") : "float",
  };
}

function landmarks(report, view, rows, x, y, frame) {
  const marks = [];
  const still = { pointerEvents: "none" };
  const float = floatMark(report, x, y, frame);
  if (float) {
    const beyond = float.text !== "float";
    const place = [{ x: float.x, y: float.y }];
    marks.push(Plot.dot(place, { x: "x", y: "y", symbol: "diamond", r: 7, fill: "currentColor", fillOpacity: beyond ? 0.55 : 1, ...still }));
    marks.push(Plot.text(place, { className: "float-label", x: "x", y: "y", text: () => float.text, dy: FLOAT_LABEL_UP, textAnchor: float.anchor, fill: "currentColor", ...still }));
  }
  const at = (number) => rows.filter((t) => t.number === number && inside(x.of(t), frame.x) && inside(y.of(t), frame.y));
  marks.push(
    Plot.dot(at(report.fully_quantized), {
      x: x.of, y: y.of, symbol: "times", r: 7, stroke: "var(--bad)", strokeWidth: 3, ...still,
    }),
    ...report.picks.filter((p) => p.shown).map((p) => Plot.dot(at(p.trial), {
      x: x.of, y: y.of, symbol: "star", r: 8, fill: "#ffd24a", stroke: "#3b2f00", strokeWidth: 1.2, ...still,
    })),
  );
  view.pins.forEach((number, i) => {
    const hue = i === 0 ? "var(--pin-a)" : "var(--pin-b)";
    marks.push(
      Plot.dot(at(number), { x: x.of, y: y.of, r: 12, stroke: hue, strokeWidth: 3, ...still }),
      Plot.text(at(number), {
        x: x.of, y: y.of, text: () => "AB"[i], dx: i === 0 ? -18 : 18, fontWeight: 700, fontSize: 14, fill: hue,
        stroke: "var(--card)", strokeWidth: 4, ...still,
      }),
    );
  });
  return marks;
}

// Names of the picks beside their dots, moved up where one would lie on another or on float's.
function labelPicks(chart, report, rows, x, y, frame) {
  const svg = chart.tagName === "svg" ? chart : chart.querySelector("svg:last-of-type");
  const [across, up] = [chart.scale("x"), chart.scale("y")];
  const width = Number(svg.getAttribute("width"));
  const taken = [];
  const float = floatMark(report, x, y, frame);
  if (float) {
    const [px, wide] = [across.apply(float.x), LABEL_LETTER * float.text.length];
    const to = float.anchor === "end" ? px : px + wide / 2;
    // Plot centres its texts on their line, names of picks stand on theirs
    taken.push({ from: to - wide, to, level: up.apply(float.y) + FLOAT_LABEL_UP + 4 });
  }
  for (const pick of report.picks.filter((p) => p.shown)) {
    const trial = rows.find((t) => t.number === pick.trial);
    if (!trial || !inside(x.of(trial), frame.x) || !inside(y.of(trial), frame.y)) continue;
    const [px, py] = [across.apply(x.of(trial)), up.apply(y.of(trial))];
    const title = width < 560 ? pick.title.split(", ")[0] : pick.title; // on a phone the first of its names
    const wide = LABEL_LETTER * title.length;
    const left = px + 14 + wide > width - 8;
    const from = left ? px - 14 - wide : px + 14;
    let level = py - 9;
    while (taken.some((t) => Math.abs(t.level - level) < 14 && t.from < from + wide && from < t.to)) level -= 14;
    if (level < 14) level = py + 18;
    taken.push({ from, to: from + wide, level });
    const label = document.createElementNS("http://www.w3.org/2000/svg", "text");
    label.setAttribute("class", "pick-label");
    label.setAttribute("x", left ? px - 12 : px + 12);
    label.setAttribute("y", level);
    label.setAttribute("text-anchor", left ? "end" : "start");
    label.textContent = title;
    svg.append(label);
  }
}

// Drag with a mouse to zoom; a double click shows all, and the trials again.
function wireZoom(chart, view, hooks) {
  const svg = chart.tagName === "svg" ? chart : chart.querySelector("svg:last-of-type");
  const scales = { x: chart.scale("x"), y: chart.scale("y") };
  const spot = (event) => { const box = svg.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  let start = null;
  let shape = null;
  svg.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button !== 0 || event.target.closest(".points circle")) return;
    start = spot(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (!start) return;
    const now = spot(event);
    if (!shape) {
      if (Math.hypot(now[0] - start[0], now[1] - start[1]) < 6) return;
      shape = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      shape.setAttribute("class", "zoom-box");
      svg.append(shape);
      hideTip();
    }
    const [left, top] = [Math.min(start[0], now[0]), Math.min(start[1], now[1])];
    const values = { x: left, y: top, width: Math.abs(now[0] - start[0]), height: Math.abs(now[1] - start[1]) };
    for (const [key, value] of Object.entries(values)) shape.setAttribute(key, value);
  });
  svg.addEventListener("pointerup", (event) => {
    const [from, to, drawn] = [start, spot(event), shape];
    start = shape = null;
    drawn?.remove();
    if (!drawn || Math.abs(to[0] - from[0]) < 6 || Math.abs(to[1] - from[1]) < 6) return;
    const span = (scale, a, b) => d3.extent([scale.invert(a), scale.invert(b)]);
    hooks.zoom({ x: span(scales.x, from[0], to[0]), y: span(scales.y, from[1], to[1]) });
  });
  svg.addEventListener("dblclick", () => hooks.zoom(view.zoom === "all" ? "trials" : "all"));
}

function drawFront(report, view, hooks) {
  const box = byId("front-chart");
  const focused = document.activeElement?.getAttribute?.("data-trial");
  const [x, y] = [METRICS[view.x], METRICS[view.y]];
  const known = report.measured.filter((t) => x.of(t) !== null && y.of(t) !== null);
  const rows = view.frontOnly ? known.filter(report.onFront) : known;
  byId("zoom").textContent = view.zoom === "all" ? "Zoom to the trials" : "Show all";
  if (!rows.length) {
    byId("front-note").textContent = "";
    box.replaceChildren(el("p", { class: "hint" }, "No trial with these two figures yet."));
    return;
  }
  const frame = frameOf(report, view, rows, [x, y]);
  const seen = (t) => inside(x.of(t), frame.x) && inside(y.of(t), frame.y);
  byId("front-note").textContent = frontNote(report.measured.length - known.length, rows.length - rows.filter(seen).length);
  const third = thirdMetric(report, view);
  const hue = third && METRICS[third];
  const wide = chartWidth();
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
    x: { label: x.label, grid: true, domain: frame.x, ticks: Math.min(10, Math.floor(wide / 80)), ...stretched(view.x) },
    y: { label: y.label, grid: true, domain: frame.y, ticks: 7, ...stretched(view.y) },
    r: { type: "identity" },
    color: hue ? { type: "linear", scheme: "viridis", unknown: "#999", reverse: view.dark } : undefined,
    marks: [
      ...bars(rows, x, y, report, view.intervals),
      Plot.line(steps(rows, x, y), { x: x.of, y: y.of, curve: "step-after", stroke: "var(--accent)", strokeWidth: 2, clip: true }),
      Plot.dot(rows, {
        className: "points", sort: null, x: x.of, y: y.of, r: (t) => (report.onFront(t) ? 6.5 : 4.5),
        fill: hue ? (t) => hue.of(t) : (t) => (report.onFront(t) ? "var(--accent)" : "var(--damage)"),
        fillOpacity: (t) => (report.onFront(t) ? 1 : 0.6), stroke: "currentColor",
        strokeWidth: (t) => (report.onFront(t) ? 1.6 : 0.5), clip: true,
      }),
      ...landmarks(report, view, rows, x, y, frame),
    ],
  });
  box.replaceChildren(named(chart), frontKey(), ...(hue ? [colourKey(chart, hue, rows)] : []));
  labelPicks(chart, report, rows, x, y, frame);
  wireZoom(chart, view, hooks);
  wirePoints(box, rows, report, view, hooks, seen);
  if (focused) box.querySelector('[data-trial="' + CSS.escape(focused) + '"]')?.focus({ preventScroll: true });
}

function frontNote(unknown, beyond) {
  const notes = [];
  if (beyond) notes.push(beyond + (beyond === 1 ? " trial lies" : " trials lie") + " beyond the frame: double-click, or press “Show all”.");
  if (unknown) notes.push(unknown + " measured trials have no figure for these axes yet and are not shown.");
  return notes.join(" ");
}

// The third figure: its name, its ends with their figures, and which end is better.
function colourKey(chart, hue, rows) {
  const colour = chart.scale("color");
  const ends = d3.extent(rows.filter((t) => hue.of(t) !== null), hue.of);
  const stops = d3.range(0, 1.01, 0.1).map((share) => colour.apply(ends[0] + share * (ends[1] - ends[0])));
  const say = (value) => hue.format(value);
  return el("div", { class: "key colour" }, el("span", {}, "Colour: " + hue.name),
    el("span", { class: "ramp" }, say(ends[0]) + " (better)", el("i", { "--ramp": "linear-gradient(90deg, " + stops.join(", ") + ")" }), say(ends[1])));
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
    el("span", {}, sign("M0,-8L2,-2.5H8L3,1L5,7L0,3.5L-5,7L-3,1L-8,-2.5H-2Z", { fill: "#ffd24a", stroke: "#3b2f00" }), "pick"),
  );
}

function wirePoints(box, rows, report, view, hooks, seen) {
  const x = METRICS[view.x];
  const dots = [...box.querySelectorAll(".points circle")];
  const order = dots
    .map((dot) => ({ dot, trial: rows[d3.select(dot).datum()] }))
    .map((o) => (o.dot.setAttribute("data-trial", o.trial.number), o))
    .filter((o) => seen(o.trial)) // what lies beyond the frame is reached by zooming out
    .sort((a, b) => x.of(a.trial) - x.of(b.trial) || a.trial.number - b.trial.number);
  const start = Math.max(0, order.findIndex((o) => view.pins.includes(o.trial.number)));
  order.forEach(({ dot, trial }, i) => {
    const pinned = view.pins.includes(trial.number);
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
    trial.report_split ? el("div", {}, "held-out: " + report.changed + " " + interval(trial.report_split.loss)) : null,
    el("div", {}, (trial.report_split ? "in search: " : report.changed + " in search ") + METRICS.loss.say(trial)),
    el("div", {}, size(trial.size_bytes)),
    trial.latency_ms ? el("div", {}, whole(METRICS.latency.say(trial))) : null,
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

