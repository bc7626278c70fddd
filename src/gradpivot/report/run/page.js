// One state (selected frontier and run); all charts are redrawn from it.
(() => {
  const {
    MODEL_SYMBOLS, axis, band, crossMarker, css, draw, drawMetricsKey, el, entry, escapeText, interval, make, percent,
    press, seriesColour, seriesSymbol, setSlider, styled, wirePage,
  } = Charts;
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const METRICS = styled(DATA.metrics);
  const WHOLE = [-3, -3, 103, 103];
  const walkable = DATA.frontiers.map((f, i) => (f.gamma ? i : -1)).filter((i) => i >= 0);
  const first = walkable.length ? walkable[0] : -1;
  const state = {
    frontier: first,
    index: first < 0 ? -1 : DATA.frontiers[first].start,
    view: DATA.zoom ? "zoom" : "whole",
    hidden: new Set(),
  };

  const selectedFrontier = () => DATA.frontiers[state.frontier];
  const selectedPoint = () => selectedFrontier()?.points[state.index];

  function score(point, metric) {
    return point[metric] ? 100 * point[metric][0] : null;
  }

  function hoverText(name, point) {
    const lines = [`<b>${escapeText(name)}</b>${point.run ? ` ${escapeText(point.run)}` : ""}`];
    if (point.diverged) lines.push(escapeText(point.diverged));
    for (const { key, name: metric } of METRICS) {
      if (!point[key]) continue;
      const [value, low, high] = point[key];
      lines.push(`${metric} ${percent(value)}  (${interval(low, high)})`);
    }
    return lines.join("<br>");
  }

  /* ---------- the frontier ---------- */

  function frontierTraces(frontier, k) {
    const visible = !state.hidden.has(k);
    const colour = seriesColour(k);
    const alive = frontier.points.map((_, i) => i).filter((i) => frontier.points[i].ra && frontier.points[i].ua);
    const lost = frontier.points.filter((p) => p.diverged);
    const symbol = seriesSymbol(k);
    const size = /circle|square/.test(symbol) ? 9 : 11; // so that all look equally large
    const front = frontier.front.map((i) => frontier.points[i]);
    return [
      { x: front.map((p) => score(p, "ra")), y: front.map((p) => score(p, "ua")), mode: "lines", hoverinfo: "skip",
        line: { color: colour, width: 1.8 }, visible, meta: { frontier: k } },
      { x: alive.map((i) => score(frontier.points[i], "ra")), y: alive.map((i) => score(frontier.points[i], "ua")),
        mode: "markers", hoverinfo: "text", hovertext: alive.map((i) => hoverText(frontier.name, frontier.points[i])),
        marker: { color: colour, symbol, size, line: { color: css("--paper"), width: 1 } },
        visible, meta: { frontier: k, indices: alive } },
      // All diverged runs of a method share one mark at the origin.
      { x: lost.length ? [0] : [], y: lost.length ? [0] : [], mode: "markers", hoverinfo: "text",
        hovertext: [lost.map((p) => hoverText(frontier.name, p)).join("<br>")],
        marker: { symbol: "x-thin", size: 9 + 3 * k, line: { color: colour, width: 2 } },
        visible, meta: { frontier: k } },
    ];
  }

  function modelTraces() {
    return DATA.models.filter((m) => m.ra && m.ua).map((m) => ({
      x: [score(m, "ra")], y: [score(m, "ua")], mode: "markers", hoverinfo: "text", hovertext: [hoverText(m.name, m)],
      marker: { symbol: MODEL_SYMBOLS[m.name], size: m.name === "retrained" ? 15 : 12, color: css("--ink"),
        line: { color: css("--paper"), width: 1 } },
    }));
  }

  function highlightTrace() {
    const point = selectedPoint();
    const bar = (metric) => {
      const [value, low, high] = point[metric];
      return { type: "data", symmetric: false, color: css("--muted"), thickness: 1, width: 0, visible: true,
        array: [100 * (high - value)], arrayminus: [100 * (value - low)] };
    };
    const trace = { name: "selected", x: [], y: [], mode: "markers", hoverinfo: "skip",
      marker: { symbol: "circle-open", size: 20, color: css("--ink"), line: { width: 2.2, color: css("--ink") } } };
    if (!point) return trace;
    if (!point.ra || !point.ua) return { ...trace, x: [0], y: [0] };
    return { ...trace, x: [score(point, "ra")], y: [score(point, "ua")], error_x: bar("ra"), error_y: bar("ua") };
  }

  function drawFrontier() {
    const box = state.view === "zoom" ? DATA.zoom : WHOLE;
    const traces = [...DATA.frontiers.flatMap(frontierTraces), ...modelTraces(), highlightTrace()];
    el("frontier-chart").dataset.selected = selectedPoint()?.run ?? "";
    updateOutsideText(box);
    return draw("frontier-chart", traces, {
      xaxis: axis("RA, accuracy on the retain set (%)", [box[0], box[2]]),
      yaxis: axis("UA, error on the forget set (%)", [box[1], box[3]]),
      uirevision: state.view, // a manual zoom survives the slider, not a change of view
    });
  }

  function updateOutsideText(box) {
    const points = DATA.frontiers.filter((_, k) => !state.hidden.has(k)).flatMap((f) => f.points);
    const inside = (p) => {
      const [x, y] = p.diverged ? [0, 0] : [score(p, "ra"), score(p, "ua")];
      return x !== null && y !== null && x >= box[0] && x <= box[2] && y >= box[1] && y <= box[3];
    };
    const outside = points.filter((p) => !inside(p)).length;
    const lost = selectedPoint() && !inside(selectedPoint()) ? " The selected run is one of them." : "";
    el("outside").textContent = outside ? `${outside} of ${points.length} ${points.length === 1 ? "run is" : "runs are"} outside this view.${lost}` : "";
  }

  /* ---------- scores against γ ---------- */

  // In a grid over γ and, say, the learning rate, a line joins runs with equal other settings.
  const siblings = () => selectedFrontier().points
    .filter((p) => p.family === selectedPoint().family).sort((a, b) => a.knob - b.knob);

  function metricTraces(frontier, metric) {
    const known = siblings().filter((p) => p.knob !== null && p[metric.key]);
    const x = known.map((p) => p.knob);
    const at = (part) => known.map((p) => 100 * p[metric.key][part]);
    const colour = css(metric.colour);
    return [
      band(x, at(1), at(2), colour),
      { x, y: at(0), mode: "lines+markers", line: { color: colour, width: 2, dash: metric.dash }, hoverinfo: "text",
        marker: { color: colour, size: 6, symbol: metric.symbol },
        hovertext: known.map((p) => hoverText(frontier.name, p)) },
    ];
  }

  function drawMetrics() {
    const frontier = selectedFrontier();
    const lost = siblings().filter((p) => p.diverged && p.knob !== null);
    const family = selectedPoint().family;
    el("metrics-family").textContent = family ? `Runs with ${family}.` : "";
    const crosses = { x: lost.map((p) => p.knob), y: lost.map(() => 0), mode: "markers", hoverinfo: "text",
      hovertext: lost.map((p) => hoverText(frontier.name, p)),
      marker: crossMarker() };
    const knob = selectedPoint().knob;
    el("metrics-chart").dataset.selected = knob ?? "";
    const marker = { type: "line", x0: knob, x1: knob, y0: 0, y1: 1, yref: "paper",
      line: { color: css("--accent"), width: 1.5 } };
    return draw("metrics-chart", [...METRICS.flatMap((m) => metricTraces(frontier, m)), crosses], {
      xaxis: axis("γ, unlearning intensity", [-0.03, 1.03]), yaxis: axis("%", [-3, 103]),
      shapes: knob === null ? [] : [marker],
    });
  }

  /* ---------- the gradients over the steps ---------- */

  function drawConflict() {
    const frontier = selectedFrontier();
    const history = selectedPoint().history;
    const others = frontier.points.filter((p, i) => i !== state.index && p.history);
    const traces = others.map((p) => ({ x: p.history.step, y: p.history.cosine, mode: "lines", hoverinfo: "skip",
      line: { color: css("--muted"), width: 1 }, opacity: 0.22 }));
    if (history) {
      traces.push({ name: "selected", x: history.step, y: history.cosine, mode: "lines", connectgaps: false,
        line: { color: css("--accent"), width: 1.8 }, hovertemplate: "step %{x}: cosine %{y:.2f}<extra></extra>" });
    }
    el("conflict-chart").dataset.selected = history ? selectedPoint().run : "";
    updateConflictText(history);
    return draw("conflict-chart", traces, {
      xaxis: axis("Step", undefined, { rangemode: "tozero" }),
      yaxis: axis("cos ∠(f, r)", [-1.05, 1.05], { tickvals: [-1, -0.5, 0, 0.5, 1] }),
      shapes: [
        { type: "rect", xref: "paper", x0: 0, x1: 1, y0: -1.05, y1: 0, fillcolor: css("--forget"), opacity: 0.06,
          line: { width: 0 }, layer: "below" },
        { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { color: css("--ink"), width: 1 } },
      ],
    });
  }

  function updateConflictText(history) {
    const run = selectedPoint().run;
    const share = history?.conflict ?? null;
    el("conflict-key").textContent = share === null
      ? `${run} recorded no cosine.`
      : `${run}: the gradients conflict on ${percent(share, 0)} of the steps.`;
    el("thinned").textContent = history?.every > 1 ? ` Every ${history.every}th step is drawn.` : "";
  }

  /* ---------- the read-out ---------- */

  function scoreEntries(point) {
    for (const { key, name } of METRICS) {
      if (!point[key]) { entry(name, "–"); continue; }
      const [value, low, high] = point[key];
      const flag = point.undetermined.includes(key) ? ", undetermined" : "";
      entry(`${name} ${DATA.arrow}`, percent(value), interval(low, high) + flag);
    }
    for (const [term, value, note] of point.more) entry(term, value, note);
  }

  function uphillEntries(uphill) {
    if (!uphill) { entry("Steps raising a loss", "–", "not recorded"); return; }
    entry("Steps raising L_f", percent(uphill.forget, 0), "⟨Δθ, f⟩ > 0");
    entry("… L_r", percent(uphill.retain, 0), "⟨Δθ, r⟩ > 0");
    entry("… either", percent(uphill.either, 0), `of ${uphill.steps} steps`);
  }

  function drawReadout() {
    const point = selectedPoint();
    el("readout").replaceChildren();
    if (point.diverged) {
      const text = `${point.diverged}. It counts as zeros.`;
      el("readout").append(make("dt", "This run", "unseen"), make("dd", text, "state"));
    } else scoreEntries(point);
    if (point.delta === null) entry("Δ to retrained ↓", "–", "no retrained model");
    else entry("Δ to retrained ↓", (100 * point.delta).toFixed(2), "points");
    entry("Time ↓", point.seconds === null ? "–" : `${point.seconds.toFixed(2)} s`);
    uphillEntries(point.history?.uphill);
  }

  function drawSlider() {
    const point = selectedPoint();
    setSlider(selectedFrontier().points.length, state.index, point.run);
    const known = METRICS.filter((m) => point[m.key]);
    const text = point.diverged ?? known.map((m) => `${m.name} ${percent(point[m.key][0])}`).join(", ");
    el("gamma-slider").setAttribute("aria-valuetext", `${point.run}: ${text}`);
  }

  /* ---------- legends ---------- */

  function drawLegend() {
    Charts.drawLegend(DATA.frontiers.map((frontier, k) => ({
      name: frontier.name, lost: frontier.points.filter((p) => p.diverged).length, hidden: state.hidden.has(k),
      toggle: () => toggle(k),
    })), DATA.models.map((m) => m.name));
  }

  function toggle(k) {
    if (!state.hidden.delete(k)) state.hidden.add(k);
    drawLegend();
    drawFrontier();
  }

  /* ---------- state changes ---------- */

  function select(frontier, index) {
    state.frontier = frontier;
    state.index = index;
    el("frontier-select").value = String(frontier);
    drawSlider();
    drawReadout();
    return Promise.all([drawFrontier(), drawMetrics(), drawConflict()]);
  }

  function drawAll() {
    drawLegend();
    drawMetricsKey("metrics-key", METRICS);
    return first < 0 ? drawFrontier() : select(state.frontier, state.index);
  }

  function clicked(event) {
    const { curveNumber, pointNumber } = event.points[0];
    const meta = el("frontier-chart").data[curveNumber].meta;
    if (meta?.indices && DATA.frontiers[meta.frontier].gamma) select(meta.frontier, meta.indices[pointNumber]);
  }

  function setView(view) {
    state.view = view;
    press("views", "view", (name) => name === view);
    drawFrontier();
  }

  /* ---------- wiring ---------- */

  function wire() {
    el("gamma-slider").addEventListener("input", (event) => select(state.frontier, Number(event.target.value)));
    el("frontier-select").addEventListener("change", (event) => {
      const frontier = Number(event.target.value);
      select(frontier, DATA.frontiers[frontier].start);
    });
    el("views").addEventListener("click", (event) => event.target.dataset.view && setView(event.target.dataset.view));
    wirePage(drawAll);
  }

  function hideMissing() {
    el("views").hidden = !DATA.zoom;
    el("frontier-label").hidden = walkable.length < 2;
    document.querySelector(".explorer").classList.toggle("plain", first < 0);
    for (const id of ["panel", "metrics-figure", "conflict-figure"]) el(id).hidden = first < 0;
    // One point is no curve.
    el("metrics-figure").hidden ||= walkable.every((i) => DATA.frontiers[i].points.length < 2);
  }

  hideMissing();
  wire();
  Promise.resolve(drawAll()).then(() => {
    el("frontier-chart").on("plotly_click", clicked);
    document.documentElement.dataset.ready = "true"; // tests and printers wait for this
  });
})();
