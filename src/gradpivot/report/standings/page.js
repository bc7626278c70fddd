// One state (selected table, visible layers); all charts are redrawn from it.
(() => {
  const {
    MODEL_SYMBOLS, OUTLINES, axis, band, crossMarker, css, draw, drawMetricsKey, el, escapeText, fillMenu, icon,
    listItem, make, percent, press, seriesColour, seriesSymbol, showTable, styled, wirePage,
  } = Charts;
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const METRICS = styled(DATA.metrics);
  const WHOLE = [-3, 103];
  const VOLUMES = [
    { key: "hypervolume", name: "H", colour: "--series-0" },
    { key: "hypervolume_without_mia", name: "H without MIA", colour: "--series-5" },
    { key: "hypervolume_svc", name: "H with MIA-SVC", colour: "--series-6" },
  ];
  const state = { table: 0, dial: 0, view: "near", layers: new Set(), hidden: new Set() };
  const table = () => DATA.tables[state.table];
  const metrics = () => METRICS.filter(({ key }) => table().metrics.includes(key));
  const hundred = (values) => values.map((value) => 100 * value);

  /* ---------- the plane ---------- */

  function hoverRun(series, i) {
    const { runs } = series;
    const scores = metrics().map(({ key, name }) => `${name} ${percent(runs[key][i])}`).join(", ");
    return `<b>${escapeText(series.name)}</b> ${escapeText(table().sets[runs.set[i]])}<br>`
      + `${escapeText(table().labels[runs.label[i]])}<br>${scores}`;
  }

  function hoverMean(series, i) {
    const { means } = series;
    const lost = means.diverged[i] ? `, ${means.diverged[i]} diverged` : "";
    return `<b>${escapeText(series.name)}</b> mean of ${means.runs[i]} runs${lost}<br>`
      + `${escapeText(table().labels[means.label[i]])}<br>RA ${percent(means.x[i])}, UA ${percent(means.y[i])}`;
  }

  function stairs(corners) {
    if (!corners.length) return { x: [], y: [] };
    const x = [0], y = [corners[0][1]];
    corners.forEach(([right, top], i) => {
      x.push(right, right);
      y.push(top, i + 1 < corners.length ? corners[i + 1][1] : 0);
    });
    return { x: hundred(x), y: hundred(y) };
  }

  function seriesTraces(series, k) {
    const colour = seriesColour(k);
    const symbol = seriesSymbol(k);
    const shown = (layer) => !state.hidden.has(series.name) && state.layers.has(layer);
    const { runs, means } = series;
    return [
      { x: hundred(runs.x), y: hundred(runs.y), mode: "markers", hoverinfo: "text", visible: shown("runs"),
        hovertext: runs.x.map((_, i) => hoverRun(series, i)), marker: { color: colour, size: 4, opacity: 0.35 } },
      { ...stairs(series.front), mode: "lines", hoverinfo: "skip", visible: shown("fronts"),
        line: { color: colour, width: 1.8 } },
      { x: hundred(means.x), y: hundred(means.y), mode: "markers", hoverinfo: "text", visible: shown("means"),
        hovertext: means.x.map((_, i) => hoverMean(series, i)),
        marker: { color: colour, symbol, size: 9, line: { color: css("--paper"), width: 1 } } },
    ];
  }

  function drawPlane() {
    const { series, common, models, view } = table();
    const range = state.view === "near" ? view : WHOLE;
    const traces = series.flatMap(seriesTraces);
    traces.push({ ...stairs(common), mode: "lines", hoverinfo: "skip", visible: state.layers.has("means"),
      line: { color: css("--ink"), width: 1.4, dash: "dot" } });
    for (const m of models) {
      traces.push({ x: [100 * m.x], y: [100 * m.y], mode: "markers", hoverinfo: "text",
        hovertext: [`<b>${escapeText(m.name)}</b> mean<br>RA ${percent(m.x)}, UA ${percent(m.y)}`],
        marker: { symbol: MODEL_SYMBOLS[m.name], size: 14, color: css("--ink"),
          line: { color: css("--paper"), width: 1 } } });
    }
    const gap = table().gap ? "100 − gap to the retrained model" : "";
    el("plane-axes").textContent = gap ? "Both axes show 100 − the gap to the retrained model." : "";
    el("thinned").textContent = table().every > 1
      ? `Every ${table().every}th run is drawn; means, steps and tables use all runs.` : "";
    return draw("plane-chart", traces, {
      xaxis: axis(`RA, ${gap || "accuracy on the retain set"} (%)`, range),
      yaxis: axis(`UA, ${gap || "error on the forget set"} (%)`, WHOLE),
      uirevision: `${state.table} ${state.view}`,
    });
  }

  function drawLegend() {
    Charts.drawLegend(table().series.map(({ name, diverged }) => ({
      name, lost: diverged, hidden: state.hidden.has(name), toggle: () => toggle(name),
    })), table().models.map((m) => m.name));
  }

  function toggle(name) {
    if (!state.hidden.delete(name)) state.hidden.add(name);
    drawLegend();
    drawPlane();
  }

  /* ---------- hypervolumes ---------- */

  function drawVolumes() {
    const { volumes } = table();
    const names = volumes.names;
    el("volume-chart").style.height = `${80 + 46 * Math.max(1, names.length)}px`;
    const known = VOLUMES.filter((v) => volumes[v.key]);
    el("volume-key").replaceChildren(...known.map((v) =>
      listItem(icon({ d: OUTLINES.square, path: { fill: css(v.colour) } }), make("span", v.name))));
    const traces = known.map((v) => {
      const rows = names.map((_, i) => i).filter((i) => volumes[v.key][i]);
      const at = (part) => rows.map((i) => 100 * volumes[v.key][i][part]);
      const [mean, low, high] = [at(0), at(1), at(2)];
      return {
        type: "bar", orientation: "h", y: rows, x: mean, marker: { color: css(v.colour) }, hoverinfo: "text",
        hovertext: rows.map((name, i) => `<b>${escapeText(names[name])}</b> ${v.name}<br>${mean[i].toFixed(2)}`
          + (volumes[v.key][name][3] > 1 ? ` (${low[i].toFixed(2)} to ${high[i].toFixed(2)})` : " (one set)")),
        error_x: { type: "data", symmetric: false, color: css("--ink"), thickness: 1.4, width: 3,
          array: mean.map((value, i) => high[i] - value), arrayminus: mean.map((value, i) => value - low[i]) },
      };
    });
    const short = (name) => escapeText(name.length > 22 ? `${name.slice(0, 21)}…` : name);
    return draw("volume-chart", traces, {
      barmode: "group", bargap: 0.25, margin: { l: 10, r: 16, t: 6, b: 42 },
      xaxis: axis("hypervolume × 100", [0, 103]),
      yaxis: axis("", [names.length - 0.5, -0.5], { automargin: true, tickvals: names.map((_, i) => i),
        ticktext: names.map(short), showgrid: false }),
    });
  }

  /* ---------- the scores along γ ---------- */

  function dialTraces(dial, metric) {
    const known = dial.values.map((_, i) => i).filter((i) => dial[metric.key][i]);
    const x = known.map((i) => dial.values[i]);
    const at = (part) => known.map((i) => 100 * dial[metric.key][i][part]);
    const colour = css(metric.colour);
    return [
      band(x, at(1), at(2), colour),
      { x, y: at(0), mode: "lines+markers", line: { color: colour, width: 2, dash: metric.dash }, hoverinfo: "text",
        marker: { color: colour, size: 6, symbol: metric.symbol },
        hovertext: known.map((i) => `γ = ${dial.values[i]}: ${metric.name} ${percent(dial[metric.key][i][0])}`
          + `<br>n = ${dial[metric.key][i][3]}`) },
    ];
  }

  function drawDial() {
    const { dials } = table();
    el("dial-figure").hidden = dials.length === 0;
    if (!dials.length) return Promise.resolve();
    state.dial = Math.min(state.dial, dials.length - 1);
    fillMenu("dial-select", dials);
    el("dial-select").value = String(state.dial);
    const dial = dials[state.dial];
    const lost = dial.values.filter((_, i) => dial.diverged[i]);
    const crosses = { x: lost, y: lost.map(() => 0), mode: "markers", hoverinfo: "text",
      hovertext: dial.diverged.filter(Boolean).map((n) => `${n} diverged`),
      marker: crossMarker() };
    const [low, high] = [dial.values[0], dial.values.at(-1)];
    const pad = 0.03 * (high - low);
    return draw("dial-chart", [...metrics().flatMap((m) => dialTraces(dial, m)), crosses], {
      xaxis: axis("γ, unlearning intensity", [low - pad, high + pad]), yaxis: axis("%", [-3, 103]),
    });
  }

  /* ---------- state changes ---------- */

  function drawAll() {
    drawLegend();
    drawMetricsKey("dial-key", metrics());
    showTable(state.table);
    press("views", "view", (view) => view === state.view);
    press("layers", "layer", (layer) => state.layers.has(layer));
    return Promise.all([drawPlane(), drawVolumes(), drawDial()]);
  }

  function choose(index) {
    state.table = index;
    // With many methods single runs hide everything else, so they start switched off.
    state.layers = new Set(table().series.length > 8 ? ["means"] : ["runs", "means", "fronts"]);
    return drawAll();
  }

  function wire() {
    el("table-select").addEventListener("change", (event) => choose(Number(event.target.value)));
    el("dial-select").addEventListener("change", (event) => { state.dial = Number(event.target.value); drawDial(); });
    el("views").addEventListener("click", (event) => {
      if (!event.target.dataset.view) return;
      state.view = event.target.dataset.view;
      drawAll();
    });
    el("layers").addEventListener("click", (event) => {
      const { layer } = event.target.dataset;
      if (!layer) return;
      if (!state.layers.delete(layer)) state.layers.add(layer);
      drawAll();
    });
    wirePage(drawAll);
  }

  el("chooser").hidden = DATA.tables.length < 2;
  wire();
  choose(0).then(() => { document.documentElement.dataset.ready = "true"; }); // tests and printers wait for this
})();
