// Where the time went: hypervolume against seconds, and the seconds of each phase.

const seconds = (s) => (s < 100 ? s.toFixed(s < 10 ? 1 : 0) + " s" : (s / 60).toFixed(1) + " min");

function drawRunTime(report) {
  const steps = report.hypervolume ?? [];
  const spent = report.spent;
  const section = byId("run-time");
  section.hidden = !steps.length && !spent;
  if (section.hidden) return;
  const parts = [];
  if (steps.length) {
    const last = steps[steps.length - 1][1];
    const nearly = steps.find((s) => s[1] >= 0.99 * last);
    parts.push(el("p", { class: "hint" },
      "How good the front was after how long: the share of the box between the ideal point and float's bytes, " +
      "float's time and four times the tolerated loss that some trial dominates. 99 % of the last value after " + seconds(nearly[0]) + "."));
    const wide = chartWidth();
    const end = Math.max(report.seconds ?? 0, steps[steps.length - 1][0]);
    const points = [...steps, [end, last]].map(([at, share]) => ({ at, share: 100 * share }));
    const chart = Plot.plot({
      width: wide,
      height: Math.round(Math.min(300, Math.max(220, wide * 0.3))),
      marginLeft: 44,
      marginRight: 24,
      marginBottom: 40,
      style: { background: "transparent", fontSize: "12px", fontFamily: "inherit" },
      ariaLabel: "Hypervolume of the front against seconds",
      x: { label: "seconds since the run began", grid: true, domain: [0, end] },
      y: { label: "hypervolume (%)", grid: true, zero: true },
      marks: [
        Plot.line(points, { x: "at", y: "share", curve: "step-after", stroke: "var(--accent)", strokeWidth: 2 }),
        Plot.dot(points.slice(0, -1), { x: "at", y: "share", r: 3, fill: "var(--accent)", title: (p) => seconds(p.at) + ": " + p.share.toFixed(1) + " %" }),
      ],
    });
    parts.push(el("div", { class: "chart" }, named(chart)));
  }
  if (spent) {
    const whole = d3.sum(Object.values(spent.phases), (p) => p.wall_s);
    const rows = Object.entries(spent.phases).map(([name, p]) =>
      el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, seconds(p.wall_s)), el("td", {}, seconds(p.exclusive_s)),
        el("td", {}, Math.round((100 * p.wall_s) / whole) + " %")));
    const head = ["phase", "time", "of it timing alone", "share"].map((t) => el("th", { scope: "col" }, t));
    parts.push(el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
    parts.push(el("p", { class: "hint" },
      "Outside jobs that must run alone, the " + spent.workers + " workers were idle " + Math.round(100 * spent.idle_share) + " % of the time."));
  }
  byId("run-time-content").replaceChildren(...parts);
}
