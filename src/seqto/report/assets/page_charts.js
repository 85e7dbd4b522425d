// Objectives against layers kept float, drawn with Observable Plot.

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
  const wide = chartWidth();
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
  box.replaceChildren(named(chart));
}
