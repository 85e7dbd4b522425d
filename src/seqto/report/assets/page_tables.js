// Tables: one builder with sortable columns, used for trials, layers and comparisons.

function sortableTable(options) {
  const { columns, rows, sort, onSort, rowProps } = options;
  const column = columns.find((c) => c.key === sort?.key);
  const shown = column ? sorted(rows, column, sort.down) : rows;
  const heads = columns.map((c) => {
    const state = sort?.key === c.key ? (sort.down ? "descending" : "ascending") : "none";
    const arrow = state === "none" ? "" : sort.down ? " ▾" : " ▴";
    const inside = c.sort && onSort ? el("button", { type: "button", "data-sort": c.key, click: () => onSort(c.key) }, c.title + arrow) : c.title;
    return el("th", { scope: "col", class: c.number ? "number" : null, "aria-sort": c.sort && onSort ? state : null, title: c.help }, inside);
  });
  const body = shown.map((row) =>
    el("tr", rowProps?.(row), ...columns.map((c) => el("td", { class: c.class ?? (c.number ? "number" : null) }, c.cell(row)))),
  );
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body));
}

function sorted(rows, column, down) {
  const missing = (v) => v === null || v === undefined;
  return [...rows].sort((a, b) => {
    const [x, y] = [column.sort(a), column.sort(b)];
    if (missing(x) || missing(y)) return missing(x) - missing(y); // what was not measured comes last
    const order = typeof x === "string" ? x.localeCompare(y) : x - y;
    return down ? -order : order;
  });
}

function replaceTable(id, table) {
  const box = byId(id);
  if (!box.firstChild) return box.replaceChildren(table); // asking for its place would lay out the page
  const [top, left] = [box.scrollTop, box.scrollLeft];
  const held = box.contains(document.activeElement) ? document.activeElement.getAttribute("data-sort") ?? document.activeElement.getAttribute("data-pin") : null;
  const kind = document.activeElement?.hasAttribute?.("data-sort") ? "data-sort" : "data-pin";
  box.replaceChildren(table);
  box.scrollTop = top;
  box.scrollLeft = left;
  if (held !== null) box.querySelector("[" + kind + '="' + CSS.escape(held) + '"]')?.focus({ preventScroll: true });
}

function meter(value, most, hue, text) {
  if (value === null || value === undefined) return NONE;
  const share = most > 0 ? Math.max(0, Math.min(100, (100 * value) / most)) : 0;
  return el("div", { class: "meter" }, el("i", { "--share": share.toFixed(1) + "%", "--hue": hue }), el("span", {}, text));
}

function profileFor(report, trial) {
  const own = trial && report.profile.find((p) => p.plan_key === trial.key);
  const profile = own ?? report.profile[0];
  if (!profile) return null;
  const total = d3.sum(profile.layers_ms, (v) => v ?? 0);
  return { of: (i) => (total && profile.layers_ms[i] !== null ? profile.layers_ms[i] / total : null), name: own ? "trial " + trial.number : profile.scheme };
}

function layerColumns(report, pins, mark, hooks) {
  const tops = Object.fromEntries(["qdq_err", "xmodel_err", "damage", "parameters"].map((key) => [key, d3.max(report.layers, (l) => l[key] ?? 0)]));
  const most = (key) => tops[key];
  const error = (key, title, hue, help) => ({
    key, title, help, sort: (l) => l[key], cell: (l) => meter(l[key], most(key), hue, figure(l[key])),
  });
  const profile = profileFor(report, pins[0]);
  const columns = [
    { key: "index", title: "#", number: true, sort: (l) => l.index, cell: (l) => l.index + 1 },
    { key: "name", title: "layer", class: "name", sort: (l) => l.name,
      cell: (l) => [hooks ? el("button", { type: "button", class: "plain", "data-layer-button": l.index, click: () => hooks.showLayer(l.index) }, l.name) : l.name,
        " ", el("small", {}, l.op_type + (l.depthwise ? ", depthwise" : ""))] },
    ...pins.map((t, i) => ({
      key: "pin" + i, title: "AB"[i] + ": trial " + t.number, sort: (l) => report.schemeAt(t, l.index),
      cell: (l) => schemeChip(report, report.schemeAt(t, l.index), mark && i === 1 && differs(report, pins, l.index)),
    })),
    error("qdq_err", "qdq error", "var(--qdq)", "the layer's output before and after its own rounding"),
    error("xmodel_err", "xmodel error", "var(--xmodel)", "against the fully quantized model"),
    error("damage", "damage", "var(--damage)", "at the model's output when only this layer is quantized"),
    { key: "parameters", title: "float bytes", sort: (l) => l.parameters,
      cell: (l) => meter(l.parameters, most("parameters"), "var(--bytes)", l.parameters ? size(4 * l.parameters) : "0") },
  ];
  const hidden = ["qdq_err", "xmodel_err", "damage"].filter((key) => report.layers.every((l) => l[key] === null));
  if (profile) {
    const top = d3.max(report.layers, (l) => profile.of(l.index) ?? 0);
    columns.push({ key: "time", title: "time share", help: "of " + profile.name, sort: (l) => profile.of(l.index),
      cell: (l) => meter(profile.of(l.index), top, "var(--time)", percent(profile.of(l.index))) });
  }
  return columns.filter((c) => !hidden.includes(c.key));
}

const differs = (report, pins, i) => pins.length === 2 && report.schemeAt(pins[0], i) !== report.schemeAt(pins[1], i);

function drawLayers(report, view, hooks) {
  const pins = view.pins.map(report.trial).filter(Boolean);
  const profile = profileFor(report, pins[0]);
  byId("layers-hint").textContent =
    "In graph order. Bars are relative to the largest layer" +
    (profile ? "; time shares come from the profile of " + profile.name : "; no latency profile was made in this run") +
    (pins.length ? "." : ". Pin a trial above to see how it keeps each layer.") + " Click a layer for its findings.";
  replaceTable("layer-table", sortableTable({
    columns: layerColumns(report, pins, true, hooks), rows: report.layers, sort: view.layerSort, onSort: (key) => hooks.sort("layerSort", key),
  }));
}

function drawCompare(report, view) {
  const pins = view.pins.map(report.trial).filter(Boolean);
  byId("compare").hidden = pins.length !== 2;
  if (pins.length !== 2) return;
  const apart = report.layers.filter((l) => differs(report, pins, l.index));
  byId("compare-title").textContent =
    "Trial " + pins[0].number + " and trial " + pins[1].number + ": " +
    (apart.length ? apart.length + " layers are kept differently" : "all layers are kept alike");
  const columns = layerColumns(report, pins, view.compareAll).filter((c) => !["xmodel_err", "qdq_err", "time"].includes(c.key));
  const rows = view.compareAll ? report.layers : apart;
  replaceTable("compare-table", sortableTable({ columns, rows, rowProps: (l) => ({ "data-layer": l.index }) }));
}

function trialColumns(report, view, hooks) {
  const split = report.trials.some((t) => t.report_split);
  const columns = [
    { key: "pin", title: "pin", cell: (t) => pinButton(t, view, hooks) },
    { key: "number", title: "trial", number: true, sort: (t) => t.number, cell: (t) => t.number },
    { key: "kept", title: "float layers", number: true, sort: (t) => t.kept, cell: (t) => t.kept },
    { key: "held", title: "held-out changed (95 %)", number: true, help: "on the report split, which no search looks at",
      sort: (t) => t.report_split?.loss?.value, cell: (t) => interval(t.report_split?.loss) },
    { key: "loss", title: "changed in search (95 %)", number: true, sort: (t) => t.loss?.value, cell: (t) => interval(t.loss) },
    { key: "size", title: "size", number: true, sort: (t) => t.size_bytes || null, cell: (t) => size(t.size_bytes) },
    { key: "latency", title: "time (float = 1)", number: true, sort: (t) => t.latency_ms?.ratio, cell: latencyCell },
    { key: "accuracy", title: "accuracy in search", number: true, sort: (t) => t.accuracy, cell: (t) => percent(t.accuracy) },
    ...report.columns.map(({ name, title }) => ({
      key: name, title, number: true, sort: (t) => t.cells[name][0], cell: (t) => t.cells[name][1],
    })),
    { key: "outcome", title: "outcome", sort: outcome, cell: (t) => picksOf(report, t.number) || outcome(t) },
    { key: "note", title: "note", class: "name wide", sort: (t) => t.note, cell: (t) => t.note },
  ];
  const labels = report.trials.some((t) => t.accuracy !== null);
  return columns.filter((c) => (c.key !== "held" || split) && (c.key !== "accuracy" || labels));
}

function pinButton(trial, view, hooks, where = "trials") {
  const place = view.pins.indexOf(trial.number);
  return el("button", {
    type: "button", "data-pin": trial.number, "data-where": where, "aria-pressed": String(place >= 0),
    "aria-label": (place >= 0 ? "Unpin" : "Pin") + " trial " + trial.number, click: () => hooks.pin(trial.number),
  }, place >= 0 ? "AB"[place] : "○");
}

function matches(report, trial, words) {
  if (!words.length) return true;
  const text = [trial.number, trial.note, trial.key, outcome(trial), picksOf(report, trial.number), planSummary(report, trial),
    trial.error?.message].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function shownTrials(report, view) {
  const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = report.trials.filter((t) => (!view.onlyFront || report.onFront(t)) && matches(report, t, words));
  const column = trialColumns(report, view, {}).find((c) => c.key === view.trialSort.key);
  return column?.sort ? sorted(kept, column, view.trialSort.down) : kept;
}

function drawTrials(report, view, hooks) {
  const rows = shownTrials(report, view);
  byId("trial-count").textContent = rows.length + " of " + report.trials.length + " trials";
  replaceTable("trial-table", sortableTable({
    columns: trialColumns(report, view, hooks), rows, sort: view.trialSort, onSort: (key) => hooks.sort("trialSort", key),
    rowProps: (t) => ({
      "data-number": t.number,
      class: [report.onFront(t) ? "front" : "", view.pins.includes(t.number) ? "pinned" : "", t.error ? "failed" : ""].join(" ").trim() || null,
    }),
  }));
}

const some = (names) => (names.length > 6 ? names.slice(0, 6).join(", ") + " and " + (names.length - 6) + " more" : names.join(", "));

function drawFailures(report) {
  const failed = report.trials.filter((t) => t.error);
  byId("failures").hidden = !failed.length;
  if (!failed.length) return fill("failure-table");
  const list = (names) => some(names) || NONE;
  return fill("failure-table", el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-labelledby": "h-failures" }, sortableTable({
    rows: failed,
    columns: [
      { key: "number", title: "trial", number: true, cell: (t) => t.number },
      { key: "stage", title: "stage", cell: (t) => t.error.stage },
      { key: "message", title: "message", class: "name", cell: (t) => t.error.message },
      { key: "ops", title: "op types", cell: (t) => list(t.error.ops) },
      { key: "layers", title: "layers", class: "name", cell: (t) => list(t.error.layers) },
    ],
  })));
}

const plainValue = (v) => (v === null || v === undefined ? NONE : typeof v === "object" ? JSON.stringify(v) : String(v));

function flatten(value, prefix = "") {
  return Object.entries(value ?? {}).flatMap(([key, v]) =>
    v && typeof v === "object" && !Array.isArray(v) ? flatten(v, prefix + key + ".") : [[prefix + key, Array.isArray(v) ? v.map(plainValue).join(", ") || NONE : plainValue(v)]],
  );
}

// where and as what the recommended trial's layers ran; names only where they are not all the same
function placementRows(placement) {
  const rows = (label, groups) => groups.map(([value, layers]) => [label + value,
    layers.length + (layers.length === 1 ? " layer" : " layers") + " of trial " + placement.trial + (groups.length > 1 ? ": " + some(layers) : "")]);
  return Object.fromEntries([...rows("ran on ", Object.entries(placement?.providers ?? {})),
    ...rows("ran as ", Object.entries(placement?.kernels ?? {}))]);
}

function drawSettings(report) {
  // one block a section of the settings: they flow into as many columns as there is room for
  const nested = Object.entries(report.settings).filter(([, v]) => v && typeof v === "object" && !Array.isArray(v));
  const rest = Object.fromEntries(Object.entries(report.settings).filter(([k]) => !nested.some(([n]) => n === k)));
  const groups = [["Settings", rest], ...nested.map(([name, value]) => ["Settings: " + name, value]), ["Environment", report.environment],
    ...Object.entries(report.nodes ?? {}).map(([name, value]) => ["Node " + name, value]),
    ["Device", { ...report.device, ...placementRows(report.placement) }], ["Data", report.data], ["Model", report.model]];
  // what is not set is left out; report.json has every key
  fill("settings-tables", ...groups.filter(([, value]) => flatten(value).some(([, v]) => v !== NONE)).map(([title, value]) =>
    el("div", {}, el("h3", {}, title), el("table", {}, el("tbody", {}, ...flatten(value).filter(([, v]) => v !== NONE).map(([k, v]) => el("tr", {}, el("td", {}, k), el("td", {}, v))))))));
}
