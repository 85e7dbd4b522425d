// Why the fully quantized model loses what it loses: what each cause costs, then the layers.

const LAYERS_IN_FRONT = 10; // rows of the table that are not folded away

function drawDiagnosis(report, hooks) {
  const found = report.diagnosis;
  byId("diagnosis").hidden = !found && !report.findings.length;
  const steps = found?.steps ?? [];
  byId("diagnosis-hint").textContent = steps.length
    ? "Error of the output, as a share of its variance, from the fully quantized model on the device down to float. Each bar is what one cause costs, the ones above it being cured." +
      (found.changed === null ? "" : " On these few samples " + percent(found.changed) + " " + report.change_words + ".")
    : found
      ? "This run has no chain of causes; the findings are below."
      : report.status === "running"
        ? "The diagnosis comes at the end of the run."
        : report.settings.analysis?.diagnose === false
          ? "The diagnosis was switched off (analysis.diagnose)."
          : (report.status === "budget" ? "The budget was used up before the diagnosis." : "This run has no diagnosis.") + " The command seqto diagnose makes one.";
  drawSteps(steps, found?.start ?? 0);
  drawDiagnosedLayers(report, found?.layers ?? [], hooks);
  drawCauses(report, found);
  drawSkipped(found?.skipped ?? []);
}

// Plot breaks a label where its text does; words are not cut.
function twoLines(name, most) {
  if (name.length <= most) return name;
  const end = name.lastIndexOf(" ", most);
  return end < 0 ? name : name.slice(0, end) + "\n" + name.slice(end + 1);
}

function drawSteps(steps, start) {
  const box = byId("steps-chart");
  box.hidden = !steps.length;
  if (!steps.length) return box.replaceChildren();
  const wide = chartWidth();
  const narrow = wide < 560;
  const rows = [
    { label: "fully quantized", low: 0, high: start, text: percent(start), all: true },
    ...steps.map((s) => ({
      label: s.label, low: Math.min(s.before, s.after), high: Math.max(s.before, s.after), worse: s.after > s.before,
      text: (s.after > s.before ? "+" : "−") + percent(Math.abs(s.before - s.after)) + (s.cure && !narrow ? "  " + s.cure : ""),
    })),
    { label: "float", low: 0, high: 0, text: "0\u00a0%", all: true },
  ];
  const names = rows.map((r) => r.label);
  const most = d3.max(rows, (r) => r.high);
  const chart = Plot.plot({
    width: wide,
    height: 34 + (narrow ? 34 : 26) * rows.length,
    marginLeft: narrow ? 130 : 200,
    marginRight: narrow ? 24 : 30,
    marginTop: 24,
    marginBottom: 10,
    style: { background: "transparent", fontSize: "12px", fontFamily: "inherit" },
    ariaLabel: "What each cause of the output's error costs",
    x: { axis: "top", label: null, tickFormat: (v) => percent(v), grid: true, ticks: narrow ? 3 : 6, domain: [0, most * (narrow ? 1.3 : 1.45)] },
    y: { label: null, domain: names, tickSize: 0, tickFormat: (name) => (narrow ? twoLines(name, 20) : name) },
    marks: [
      Plot.barX(rows, { y: "label", x1: "low", x2: "high", fill: (r) => (r.all ? "var(--damage)" : r.worse ? "var(--bad)" : "var(--accent)"), rx: 2, insetTop: 3, insetBottom: 3 }),
      Plot.text(rows, { y: "label", x: "high", text: "text", textAnchor: "start", dx: 6, fill: "currentColor" }),
      Plot.ruleX([0], { stroke: "currentColor" }),
    ],
  });
  // the same as a table, for those who cannot see the picture
  const table = el("table", { class: "unseen" }, el("tbody", {}, ...rows.map((r) => el("tr", {}, el("th", { scope: "row" }, r.label), el("td", {}, r.text)))));
  chart.setAttribute("aria-hidden", "true");
  box.replaceChildren(named(chart), table);
}

function diagnosedColumns(report, hooks) {
  const indexOf = new Map(report.layers.map((l) => [l.name, l.index]));
  return [
    { key: "layer", title: "layer", class: "name", cell: (r) =>
      indexOf.has(r.layer) ? el("button", { type: "button", class: "plain", click: () => hooks.showLayer(indexOf.get(r.layer)) }, r.layer) : r.layer },
    { key: "causes", title: "cause", cell: (r) => r.causes.join(", ") || NONE },
    { key: "damage", title: "damage", number: true, help: "error of the output with this layer alone quantized, of the output's variance", cell: (r) => percent(r.damage) },
    { key: "device", title: "error on the device", number: true, help: "of the layer's own output", cell: (r) => percent(r.device_err) },
    { key: "exact", title: "in exact arithmetic", number: true, cell: (r) => percent(r.exact_err) },
    { key: "cured", title: "after the cure", number: true, cell: (r) => percent(r.cured_err) },
    { key: "cure", title: "cure", cell: (r) => r.cure || NONE },
  ];
}

function drawDiagnosedLayers(report, rows, hooks) {
  if (!rows.length) return fill("diagnosis-layers");
  const columns = diagnosedColumns(report, hooks);
  const table = (part, label) => el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": label }, sortableTable({ columns, rows: part }));
  const rest = rows.slice(LAYERS_IN_FRONT);
  fill("diagnosis-layers",
    el("h3", {}, "The layers that matter, worst first"),
    table(rows.slice(0, LAYERS_IN_FRONT), "Layers that matter"),
    rest.length ? el("details", {}, el("summary", {}, rest.length + " more layers"), table(rest, "Other layers")) : null);
}

function drawCauses(report, found) {
  const causes = found?.causes ?? report.findings.map((f) => ({ cause: f.kind, message: f.message, layers: f.layers ?? [] }));
  byId("causes").hidden = !causes.length;
  byId("causes-title").textContent = found ? "All causes that were looked for" : "What the run noted";
  fill("findings", ...causes.map((c) => el("div", { class: "finding" }, el("strong", {}, String(c.cause).replaceAll("_", " ")), ": ", whole(c.message))));
}

function drawSkipped(rows) {
  byId("skipped").hidden = !rows.length;
  fill("skipped-table", rows.length ? sortableTable({
    rows,
    columns: [
      { key: "what", title: "what", cell: (r) => r.what },
      { key: "count", title: "count", number: true, cell: (r) => r.count },
      { key: "reason", title: "reason", class: "name wide", cell: (r) => r.reason },
    ],
  }) : null);
}

// What is known of one layer: shown when it is clicked in the map or in the graph.
function layerDetails(report, view, layer, close) {
  const row = report.diagnosis?.layers.find((r) => r.layer === layer.name);
  const causes = (report.diagnosis?.causes ?? []).filter((c) => c.layers.includes(layer.name));
  const pins = view.pins.map(report.trial).filter(Boolean);
  const bytes = layer.parameters ? size(4 * layer.parameters) + " as float" : "no weights";
  return [
    el("button", { type: "button", class: "close", "aria-label": "Close", click: close }, "×"),
    el("strong", {}, layer.name), " ", el("small", {}, layer.op_type + (layer.depthwise ? ", depthwise" : "") + ", " + bytes),
    el("p", {}, ...pins.flatMap((t, i) => ["AB"[i] + ", trial " + t.number + ": ", schemeChip(report, report.schemeAt(t, layer.index)), " "])),
    row ? el("p", {}, "damage " + percent(row.damage) + "; error on the device " + percent(row.device_err) + ", in exact arithmetic " + percent(row.exact_err) +
      (row.cure ? "; cure: " + row.cure + (row.cured_err === null ? "" : " (" + percent(row.cured_err) + ")") : "")) : null,
    causes.length ? el("ul", {}, ...causes.map((c) => el("li", {}, whole(c.message)))) : el("p", { class: "hint" }, row?.causes.length ? null : "No cause was found that names this layer."),
  ].filter(Boolean);
}

function drawLayerFindings(report, view, hooks) {
  const layer = view.layer === null ? null : report.layers[view.layer];
  byId("layer-findings").hidden = !layer;
  if (layer) fill("layer-findings", ...layerDetails(report, view, layer, () => hooks.showLayer(null)));
}
