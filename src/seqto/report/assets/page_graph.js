// The model as a graph: layers from top to bottom, an edge where one reads another's result.
// The layout is made once; pins, colours and the search only change what the nodes look like.

const NODE = { width: 168, height: 34, gap: 14, rank: 62 };
const SVG = "http://www.w3.org/2000/svg";

function svgEl(tag, props, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(props)) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
}

// The longest way from an input decides the row; constants stand right above their first reader.
function graphRanks(layers) {
  const ranks = new Array(layers.length).fill(0);
  const readers = layers.map(() => []);
  layers.forEach((layer, i) => layer.inputs.forEach((p) => readers[p].push(i)));
  const waiting = layers.map((layer) => layer.inputs.length);
  const ready = layers.map((_, i) => i).filter((i) => !waiting[i]);
  for (let next = 0; next < ready.length; next++) {
    for (const r of readers[ready[next]]) {
      ranks[r] = Math.max(ranks[r], ranks[ready[next]] + 1);
      if (--waiting[r] === 0) ready.push(r);
    }
  }
  layers.forEach((layer, i) => {
    if (!layer.inputs.length && readers[i].length) ranks[i] = Math.max(0, d3.min(readers[i], (r) => ranks[r]) - 1);
  });
  return ranks;
}

// Rows of cells: a layer, or the lane of an edge that passes by. Cells of a row stand in the order
// of the mean of what they hang on, row by row, downwards and upwards.
function graphLayout(layers) {
  const ranks = graphRanks(layers);
  const rows = d3.range((d3.max(ranks) ?? 0) + 1).map(() => []);
  const cells = layers.map((_, i) => ({ layer: i, row: ranks[i], width: NODE.width, up: [], down: [], x: 0 }));
  cells.forEach((cell) => rows[cell.row].push(cell));
  const edges = []; // [upper cell, lower cell]: of neighbouring rows
  const join = (a, b) => { a.down.push(b); b.up.push(a); edges.push([a, b]); };
  const readers = layers.map(() => []);
  layers.forEach((layer, i) => layer.inputs.forEach((p) => { if (ranks[p] < ranks[i]) readers[p].push(i); }));
  layers.forEach((layer, p) => {
    // all that read a layer further down share its lane; a constant has an edge to its first reader
    // only, or those of a table that every block reads would fill the picture
    const shared = layer.inputs.length || p === 0 ? readers[p] : readers[p].filter((i) => ranks[i] === ranks[p] + 1);
    let last = cells[p];
    for (const i of d3.sort(shared, (i) => ranks[i])) {
      for (let row = last.row + 1; row < ranks[i]; row++) {
        const lane = { layer: null, row, width: 0, up: [], down: [], x: 0 };
        rows[row].push(lane);
        join(last, lane);
        last = lane;
      }
      join(last, cells[i]);
    }
  });
  const place = (row, side) => {
    for (const cell of row) cell.goal = cell[side].length ? d3.median(cell[side], (c) => c.x) : cell.x;
    row.sort((a, b) => a.goal - b.goal);
    let right = -Infinity;
    let off = 0;
    for (const cell of row) {
      cell.x = Math.max(cell.goal, right + cell.width / 2);
      right = cell.x + cell.width / 2 + NODE.gap;
      off += cell.x - cell.goal;
    }
    for (const cell of row) cell.x -= off / row.length;
  };
  for (const row of rows) place(row, "up");
  for (let sweep = 0; sweep < 2; sweep++) {
    for (let r = rows.length - 2; r >= 0; r--) place(rows[r], "down");
    for (let r = 1; r < rows.length; r++) place(rows[r], "up");
  }
  const left = d3.min(cells, (c) => c.x) ?? 0;
  const lanes = rows.flat();
  const edge = Math.min(left - NODE.width / 2, d3.min(lanes, (c) => c.x) ?? 0) - 8;
  for (const cell of lanes) cell.x -= edge;
  return {
    cells, edges, height: rows.length * NODE.rank + 8,
    width: (d3.max(lanes, (c) => c.x + c.width / 2) ?? 0) + 8,
  };
}

function edgePath([from, to]) {
  const top = (cell) => cell.row * NODE.rank + 4;
  const [y0, y1] = [top(from) + NODE.height, top(to)];
  const half = ((y0 + y1) / 2).toFixed(1);
  const [a, b] = [from.x.toFixed(1), to.x.toFixed(1)];
  return "M" + a + "," + y0 + "C" + a + "," + half + " " + b + "," + half + " " + b + "," + y1 + (to.layer === null ? "v" + NODE.height : "");
}

// The end of a name says more than its beginning: /model.22/cv3/conv/Conv.
const tail = (name, most) => (name.length > most ? "…" + name.slice(1 - most) : name);

const GRAPH_COLOURS = {
  scheme: { title: "how trial A keeps it", hue: null },
  damage: { title: "damage at the output", hue: "var(--xmodel)", say: figure },
  time: { title: "share of the time", hue: "var(--time)", say: percent },
  bytes: { title: "bytes as float", hue: "var(--bytes)", say: (x) => (x ? size(x) : "no weights") },
};

function graphValue(report, key, profile) {
  if (key === "damage") return (l) => l.damage;
  if (key === "bytes") return (l) => 4 * l.parameters;
  return (l) => profile?.of(l.index) ?? null;
}

function graphChoices(report, pins) {
  const known = { scheme: pins.length > 0, damage: report.layers.some((l) => l.damage !== null), time: profileFor(report, pins[0]) !== null, bytes: true };
  return Object.keys(GRAPH_COLOURS).filter((key) => known[key]);
}

let drawnGraph = null; // {layers, nodes}: the nodes of the layout that is in the page

function buildGraph(report, view, hooks) {
  const layout = graphLayout(report.layers);
  const lines = svgEl("g", { class: "edges" }, ...layout.edges.map((pair) => svgEl("path", { d: edgePath(pair) })));
  const nodes = layout.cells.map((cell) => {
    const layer = report.layers[cell.layer];
    const most = Math.floor((NODE.width - 20) / 6.6);
    const node = svgEl("g", {
      class: "node", "data-node": layer.index, role: "button", tabindex: layer.index === view.graph.focus ? 0 : -1,
      transform: "translate(" + (cell.x - NODE.width / 2).toFixed(1) + "," + (cell.row * NODE.rank + 4) + ")",
    },
    svgEl("rect", { width: NODE.width, height: NODE.height, rx: 6 }),
    svgEl("rect", { class: "band", width: 6, height: NODE.height, rx: 3 }),
    svgEl("text", { x: 13, y: 14, class: "op" }), svgEl("text", { x: 13, y: 27 }));
    const [op, name] = node.querySelectorAll("text");
    op.textContent = tail(layer.op_type + (layer.depthwise ? ", depthwise" : ""), most);
    name.textContent = tail(layer.name, most);
    return node;
  });
  const svg = svgEl("svg", { viewBox: "0 0 " + layout.width.toFixed(0) + " " + layout.height, role: "group", "aria-label": "Graph of " + report.layers.length + " layers" },
    lines, svgEl("g", {}, ...nodes));
  const at = (event) => event.target.closest?.("[data-node]");
  svg.addEventListener("click", (event) => { const node = at(event); if (node) hooks.showNode(Number(node.dataset.node)); });
  for (const kind of ["mouseover", "focusin"])
    svg.addEventListener(kind, (event) => { const node = at(event); if (node) showNodeTip(node, report, view); });
  for (const kind of ["mouseout", "focusout"]) svg.addEventListener(kind, () => (byId("graph-tip").hidden = true));
  svg.addEventListener("keydown", (event) => {
    const node = at(event);
    if (!node) return;
    const now = Number(node.dataset.node);
    const next = { ArrowDown: now + 1, ArrowRight: now + 1, ArrowUp: now - 1, ArrowLeft: now - 1, Home: 0, End: nodes.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") hooks.showNode(now);
    else if (event.key === "Escape") hooks.showNode(null);
    else if (next === undefined || !nodes[next]) return;
    else focusNode(view, next);
    event.preventDefault();
  });
  drawnGraph = { layers: report.layers, nodes, width: layout.width, height: layout.height, svg };
  fill("graph-box", svg);
  scaleGraph(view);
  focusNode(view, Math.min(view.graph.focus, nodes.length - 1), { focus: false });
}

function focusNode(view, index, { focus = true } = {}) {
  const { nodes } = drawnGraph;
  nodes[view.graph.focus]?.setAttribute("tabindex", -1);
  view.graph.focus = index;
  nodes[index].setAttribute("tabindex", 0);
  if (focus) nodes[index].focus({ preventScroll: true });
  const box = byId("graph-box");
  const [frame, spot] = [box.getBoundingClientRect(), nodes[index].getBoundingClientRect()];
  box.scrollBy({ top: spot.top - frame.top - frame.height / 2 + spot.height / 2, left: spot.left - frame.left - frame.width / 2 + spot.width / 2 });
}

const sameGraph = (a, b) => a && a.length === b.length && a.every((l, i) => l.name === b[i].name && l.inputs.length === b[i].inputs.length);

function drawGraph(report, view, hooks) {
  if (!report.layers.length) return;
  const pins = view.pins.map(report.trial).filter(Boolean);
  const choices = graphChoices(report, pins);
  if (!choices.includes(view.graph.colour)) view.graph.colour = choices[0];
  fill("graph-colour", ...choices.map((key) => el("option", { value: key, selected: key === view.graph.colour }, GRAPH_COLOURS[key].title)));
  byId("graph-colour").value = view.graph.colour;
  if (!sameGraph(drawnGraph?.layers, report.layers)) buildGraph(report, view, hooks);
  drawnGraph.layers = report.layers;
  const colour = GRAPH_COLOURS[view.graph.colour];
  const value = graphValue(report, view.graph.colour, profileFor(report, pins[0]));
  const top = colour.hue ? d3.max(report.layers, (l) => value(l) ?? 0) : 0;
  drawnGraph.nodes.forEach((node, i) => {
    const layer = report.layers[i];
    const code = pins.length ? report.schemeAt(pins[0], i) : "fp32";
    const hue = colour.hue ?? HUES[report.kinds[code]] ?? HUES.fp32;
    // the square root shows the small ones too
    const share = colour.hue ? (top ? 45 * Math.sqrt((value(layer) ?? 0) / top) : 0) : code === "fp32" ? 6 : 30;
    node.style.setProperty("--hue", hue);
    node.style.setProperty("--share", share.toFixed(1) + "%");
    node.setAttribute("aria-label", nodeName(report, view, layer));
  });
  drawGraphKey(report, pins, colour, top);
  scaleGraph(view);
  drawSearch(report, view);
  drawNodeDetails(report, view, hooks);
}

const nodeName = (report, view, layer) => {
  const pin = report.trial(view.pins[0]);
  return layer.name + ", " + layer.op_type + (pin ? ", " + report.schemeAt(pin, layer.index) : "");
};

function drawGraphKey(report, pins, colour, top) {
  if (colour.hue) {
    fill("graph-key", el("span", { class: "ramp", "--ramp": "linear-gradient(to right, var(--card), color-mix(in srgb, " + colour.hue + " 45%, var(--card)))" },
      colour.title + ": 0", el("i", {}), colour.say(top)));
    return;
  }
  const codes = planCounts(report, pins[0]);
  fill("graph-key", ...codes.map(([code, n]) => el("span", {}, schemeChip(report, code), " " + n)));
}

function scaleGraph(view) {
  const { svg, width, height } = drawnGraph;
  const fit = Math.min(1, Math.max(0.12, (byId("graph-box").clientWidth - 4) / width));
  const scale = view.graph.scale ?? Math.max(fit, 0.75);
  svg.setAttribute("width", Math.round(width * scale));
  svg.setAttribute("height", Math.round(height * scale));
  drawnGraph.scale = scale;
}

function searched(report, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  return report.layers.filter((l) => words.every((w) => (l.name + " " + l.op_type).toLowerCase().includes(w))).map((l) => l.index);
}

function drawSearch(report, view) {
  const found = new Set(searched(report, view.graph.query));
  const active = view.graph.query.trim() !== "";
  drawnGraph.svg.classList.toggle("searched", active);
  drawnGraph.nodes.forEach((node, i) => node.classList.toggle("found", found.has(i)));
  byId("graph-count").textContent = active ? found.size + (found.size === 1 ? " layer" : " layers") : "";
  return [...found];
}

function showNodeTip(node, report, view) {
  const layer = report.layers[Number(node.dataset.node)];
  const pins = view.pins.map(report.trial).filter(Boolean);
  const profile = profileFor(report, pins[0]);
  const tip = byId("graph-tip");
  fill("graph-tip",
    el("b", {}, layer.name),
    el("div", {}, layer.op_type + (layer.depthwise ? ", depthwise" : "") + ", " + (layer.parameters ? size(4 * layer.parameters) + " as float" : "no weights")),
    ...pins.map((t, i) => el("div", {}, "AB"[i] + ", trial " + t.number + ": " + report.schemeAt(t, layer.index))),
    layer.damage === null ? null : el("div", {}, "damage at the output " + figure(layer.damage)),
    profile && profile.of(layer.index) !== null ? el("div", {}, "time share " + percent(profile.of(layer.index)) + " of " + profile.name) : null);
  tip.hidden = false;
  const [frame, spot] = [tip.parentElement.getBoundingClientRect(), node.getBoundingClientRect()];
  const right = spot.right - frame.left + 10;
  tip.style.left = Math.max(0, right + tip.offsetWidth > frame.width ? spot.left - frame.left - tip.offsetWidth - 10 : right) + "px";
  tip.style.top = Math.min(Math.max(0, spot.top - frame.top), Math.max(0, frame.height - tip.offsetHeight)) + "px";
}

function drawNodeDetails(report, view, hooks) {
  const layer = view.graph.chosen === null ? null : report.layers[view.graph.chosen];
  byId("graph-layer").hidden = !layer;
  if (layer) fill("graph-layer", ...layerDetails(report, view, layer, () => hooks.showNode(null)));
}

function wireGraph(view, hooks) {
  byId("graph-colour").addEventListener("change", (event) => { view.graph.colour = event.target.value; drawGraph(report, view, hooks); });
  const zoom = (factor) => () => {
    if (!drawnGraph) return;
    view.graph.scale = factor === null ? null : Math.min(2, Math.max(0.1, drawnGraph.scale * factor));
    scaleGraph(view);
  };
  byId("graph-in").addEventListener("click", zoom(1.25));
  byId("graph-out").addEventListener("click", zoom(0.8));
  byId("graph-fit").addEventListener("click", () => {
    if (!drawnGraph) return;
    const box = byId("graph-box");
    view.graph.scale = Math.max(0.05, Math.min((box.clientWidth - 4) / drawnGraph.width, (box.clientHeight - 4) / drawnGraph.height, 1));
    scaleGraph(view);
  });
  const search = byId("graph-search");
  search.addEventListener("input", () => {
    view.graph.query = search.value;
    const found = drawnGraph ? drawSearch(report, view) : [];
    if (found.length) focusNode(view, found[0], { focus: false });
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !drawnGraph) return;
    const found = searched(report, view.graph.query);
    if (found.length) focusNode(view, found.find((i) => i > view.graph.focus) ?? found[0], { focus: false });
    event.preventDefault();
  });
}
