// The picks: buttons, tiles and command of one, and the table right below the front.

function tile(value, text, mood) {
  return el("div", { class: "tile " + (mood ?? "") }, el("b", {}, value), el("span", {}, whole(text)));
}

function speedTile(trial) {
  const { verdict, text } = trial.speed;
  const ratio = trial.latency_ms.ratio;
  const value = { faster: times(1 / ratio), slower: times(ratio), "about as fast": "≈\u00a01\u00a0×" }[verdict] ?? "?";
  const named = verdict === "uncertain" ? text : text + ": ";
  return tile(value, named + (verdict === "uncertain" ? "" : trial.times), { faster: "good", slower: "bad" }[verdict]);
}

function tiles(report, trial) {
  const made = [];
  const before = report.baseline;
  if (before && trial.size_bytes) {
    const factor = before.size_bytes / trial.size_bytes;
    made.push(tile(times(factor >= 1 ? factor : 1 / factor), (factor >= 1 ? "smaller: " : "larger: ") + size(before.size_bytes) + " → " + size(trial.size_bytes), factor >= 1 ? "good" : "bad"));
  }
  if (trial.latency_ms) made.push(speedTile(trial));
  const unseen = trial.report_split?.loss;
  const loss = unseen ?? trial.loss;
  const samples = loss ? loss.samples.toLocaleString("en") : "";
  if (loss) made.push(tile(percent(loss.value), report.change_words + "; 95 % between " + percent(loss.low).replace(/\s%$/, "") + " and " + percent(loss.high) +
    (unseen ? ", on " + samples + " held-out samples" + (trial.loss ? "; in search " + percent(trial.loss.value) : "") : ", on " + samples + " samples of the search")));
  const accuracy = unseen ? trial.report_split.accuracy : trial.accuracy;
  if (accuracy !== null && accuracy !== undefined) {
    const was = unseen ? trial.report_split.baseline_accuracy ?? before?.report_split.accuracy : trial.baseline_accuracy ?? before?.accuracy;
    made.push(tile(percent(accuracy), "accuracy" + (was === null || was === undefined ? "" : "; float " + percent(was)) + (unseen ? ", held-out samples" : "")));
  }
  made.push(tile(trial.kept + " / " + report.layers.filter((l) => l.quantizable).length, "layers kept float"));
  return made;
}

function drawRecommendation(report, view) {
  byId("sentence").textContent = whole(report.sentence);
  fill("warnings", ...report.warnings.map((w) => el("li", {}, whole(w))));
  const rows = report.picks;
  if (!rows.some((r) => r.trial === view.pick)) view.pick = rows[0]?.trial ?? null;
  const row = rows.find((r) => r.trial === view.pick);
  const trial = row && report.trial(row.trial);
  fill("tiles", ...(trial ? tiles(report, trial) : []));
  fill("picks", ...rows.filter((r) => r.shown || r.trial === view.pick).map((r) => el("button", {
    type: "button", "data-pick": r.picks[0], "aria-pressed": String(r.trial === view.pick),
    click: () => { view.pick = r.trial; drawRecommendation(report, view); byId("picks").querySelector('[aria-pressed="true"]').focus(); },
  }, r.title + ": trial " + r.trial)));
  byId("pick-question").textContent = row ? whole(row.question + (row.given_up ? ": " + row.given_up : "") + (row.holds ? "; " + row.holds : "")) + "." : "";
  byId("command-box").hidden = !trial;
  byId("command-title").textContent = row ? "To get this model (" + row.title + "):" : "";
  byId("command").textContent = row ? report.commands[row.picks[0]] : "";
}

function latencyCell(t) {
  if (!t.latency_ms) return NONE;
  const { verdict } = t.speed;
  const low = t.latency_ms.ratio_low ?? t.latency_ms.ratio;
  const high = t.latency_ms.ratio_high ?? t.latency_ms.ratio;
  if (verdict === "uncertain") return el("span", { title: t.speed.text }, "uncertain, " + low.toFixed(1) + "–" + high.toFixed(1) + "×");
  const word = verdict === "about as fast" ? verdict : t.latency_ms.ratio.toFixed(2) + "×";
  return el("span", { title: t.speed.text }, word, el("small", {}, " " + milliseconds(t.latency_ms.median) + ", float " + milliseconds(t.latency_ms.float_median)));
}

function pickColumns(report, view, hooks) {
  const trialOf = (r) => (r.trial === null ? null : report.trial(r.trial));
  const of = (get) => (r) => { const t = trialOf(r); return t ? get(t) : NONE; };
  const held = report.trials.some((t) => t.report_split);
  const labels = report.trials.some((t) => t.accuracy !== null);
  const unseen = (t) => (held ? t.report_split : t);
  return [
    { key: "pin", title: "pin", cell: of((t) => pinButton(t, view, hooks, "picks")) },
    { key: "title", title: "pick", class: "name", cell: (r) => [el("strong", {}, r.title), r.question ? el("small", {}, " " + whole(r.question)) : null,
      r.given_up ? el("small", {}, el("em", {}, whole(r.given_up))) : null,
      r.holds ? el("small", {}, whole(r.holds)) : null] },
    { key: "trial", title: "trial", number: true, cell: (r) => r.trial ?? NONE },
    held ? { key: "held", title: "held-out changed (95 %)", number: true, cell: of((t) => interval(t.report_split?.loss)) } : null,
    { key: "search", title: held ? "in search" : "changed in search (95 %)", number: true, cell: of((t) => (held ? percent(t.loss?.value) : interval(t.loss))) },
    { key: "size", title: "size", number: true, cell: (r) => size(trialOf(r)?.size_bytes ?? report.baseline?.size_bytes) },
    report.trials.some((t) => t.latency_ms) ? { key: "latency", title: "time (float = 1)", number: true, cell: (r) => (r.trial === null ? "1×" : of(latencyCell)(r)) } : null,
    ...(report.device.devices ?? []).map((d) => ({ key: "on-" + d.name, title: "on " + d.name, number: true, cell: of((t) => t.on_devices[d.name] ?? NONE) })),
    labels ? { key: "accuracy", title: "accuracy", number: true, cell: (r) => percent(r.trial === null ? (held ? report.baseline?.report_split.accuracy : report.baseline?.accuracy) : unseen(trialOf(r))?.accuracy) } : null,
  ].filter(Boolean);
}

function drawPickTable(report, view, hooks) {
  const columns = pickColumns(report, view, hooks);
  const landmarks = [{ title: "float", trial: null }];
  const full = report.fully_quantized;
  if (full !== null && !report.picks.some((r) => r.shown && r.trial === full)) landmarks.push({ title: "fully quantized", trial: full });
  const rowProps = (r) => ({ class: view.pins.includes(r.trial) ? "pinned" : null });
  replaceTable("pick-table", sortableTable({ columns, rows: [...landmarks, ...report.picks.filter((r) => r.shown)], rowProps }));
  const more = report.picks.filter((r) => !r.shown);
  const box = byId("more-picks");
  box.hidden = !more.length;
  box.querySelector("summary").textContent = "More: " + more.map((r) => r.title).join(", ");
  fill("more-table", more.length ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "More picks" }, sortableTable({ columns, rows: more, rowProps })) : null);
}
