// One state (table, set, run, model to compare with); samples, numbers and chart are redrawn from it.
(() => {
  const {
    axis, band, crossMarker, css, draw, el, entry, escapeText, fillMenu, icon, interval, listItem, make, percent, press,
    setSlider, showTable, wirePage,
  } = Charts;
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const SHARES = [
    { key: "forgotten", colour: "--forget", symbol: "square" },
    { key: "kept", colour: "--ink", symbol: "circle" },
  ];
  const state = { table: 0, set: 0, index: 0, beside: "original" };
  const table = () => DATA.tables[state.table];
  const set = () => table().sets[state.set];
  const point = () => set().points[state.index];
  const model = (role) => table().models[`${role} ${set().seed}`];
  const shareName = (key) => (key === "kept" ? "kept classes"
    : `forgotten ${table().forgotten.length > 1 ? "classes" : "class"} ${table().forgotten.join(", ")}`);

  /* ---------- the sheets ---------- */

  function drawRow({ name, share }) {
    const lost = table().forgotten.includes(name);
    const label = make("span", lost ? `${name} ` : String(name));
    if (lost) label.append(make("em", "forgotten"));
    const row = listItem(label, make("b", share === null ? "–" : percent(share, 1)));
    if (lost) row.className = "forgotten";
    return row;
  }

  function drawSheet(id, shown, fallback) {
    const sheet = shown?.sheet ?? null;
    const rows = sheet?.rows ?? [];
    const style = el(`${id}-sheet`).style;
    style.setProperty("--rows", Math.max(1, rows.length));
    style.setProperty("--columns", sheet?.columns ?? 1);
    style.setProperty("--framed", rows.filter((row) => table().forgotten.includes(row.name)).length);
    el(`${id}-title`).textContent = shown?.title ?? fallback;
    el(`${id}-rows`).replaceChildren(...rows.map(drawRow));
    el(`${id}-empty`).textContent = sheet ? "" : shown?.empty ?? "This model is not stored.";
    const image = el(`${id}-img`);
    image.hidden = !sheet;
    image.alt = sheet?.alt ?? "";
    if (sheet) image.src = `data:image/png;base64,${sheet.png}`;
    else image.removeAttribute("src");
  }

  function drawSheets() {
    el("beside-switch").hidden = !(model("original") && model("retrained"));
    const role = model(state.beside) ? state.beside : "original";
    press("beside-switch", "beside", (name) => name === role);
    drawSheet("run", point(), "");
    drawSheet("beside", model(role), "Original");
  }

  /* ---------- the read-out ---------- */

  const count = (n) => n.toLocaleString("en");

  function shareEntries(shown, original) {
    const [still, stillLow, stillHigh] = shown.forgotten;
    const [kept, keptLow, keptHigh] = shown.kept;
    entry("Still recognised ↓", percent(still), interval(stillLow, stillHigh));
    entry("UA ↑", percent(1 - still), interval(1 - stillHigh, 1 - stillLow));
    entry("Kept recognised ↑", percent(kept), interval(keptLow, keptHigh));
    const change = original?.kept ? 100 * (kept - original.kept[0]) : null;
    entry("… change from original", change === null ? "–" : change.toFixed(2), change === null ? "not scored" : "points");
  }

  function distanceEntries(shown, original) {
    for (const { features, n, reference, value } of shown.distances) {
      const same = original?.distances.find((d) => d.features === features && d.n === n && d.reference === reference);
      const before = same ? `original ${same.value}` : "original not measured at this N";
      entry("Fréchet ↓", String(value), `${before}; ${features}, N = ${count(n)} against ${count(reference)}`);
    }
  }

  function drawReadout() {
    const shown = point();
    const original = model("original");
    el("readout").replaceChildren();
    if (shown.diverged) {
      const text = `${shown.diverged} It counts as zeros.`;
      el("readout").append(make("dt", "This run", "unseen"), make("dd", text, "state"));
    } else {
      shareEntries(shown, original);
      distanceEntries(shown, original);
    }
    if (shown.delta === null) entry("Δ to retrained ↓", "–", "no retrained model");
    else entry("Δ to retrained ↓", (100 * shown.delta).toFixed(2), "points in (fidelity, UA)");
    entry("Time ↓", `${shown.seconds.toFixed(1)} s`, "unlearning call");
  }

  function drawSlider() {
    const shown = point();
    setSlider(set().points.length, state.index, shown.run);
    el("gamma-name").textContent = set().gamma ? "Unlearning intensity" : "Setting";
    el("ends").hidden = !set().gamma;
    const text = shown.diverged
      ?? SHARES.map(({ key }) => `${shareName(key)} recognised ${percent(shown[key][0], 1)}`).join(", ");
    el("gamma-slider").setAttribute("aria-valuetext", `${shown.run}: ${text}`);
  }

  /* ---------- the chart ---------- */

  // A line along γ joins runs with equal other settings. Without γ, settings have no common scale: equal spacing.
  function line() {
    const { points, gamma } = set();
    if (!gamma) return points.map((p, i) => ({ x: i, p }));
    return points.filter((p) => p.family === point().family && p.knob !== null).map((p) => ({ x: p.knob, p }));
  }

  function shareTraces(places, { key, colour, symbol }) {
    const known = places.filter(({ p }) => p[key]);
    const x = known.map((place) => place.x);
    const at = (part) => known.map(({ p }) => 100 * p[key][part]);
    const paint = css(colour);
    return [
      band(x, at(1), at(2), paint, 0.12),
      { x, y: at(0), mode: "lines+markers", line: { color: paint, width: 2 }, hoverinfo: "text",
        marker: { color: paint, size: 6, symbol },
        hovertext: known.map(({ p }) => `<b>${escapeText(p.run)}</b><br>${escapeText(shareName(key))} recognised `
          + `${percent(p[key][0])} (${interval(p[key][1], p[key][2])})`) },
    ];
  }

  function drawChart() {
    const places = line();
    const lost = places.filter(({ p }) => p.diverged);
    const crosses = { x: lost.map((place) => place.x), y: lost.map(() => 0), mode: "markers", hoverinfo: "text",
      hovertext: lost.map(({ p }) => escapeText(`${p.run}: ${p.diverged}`)),
      marker: crossMarker() };
    const here = places.find(({ p }) => p === point());
    const original = model("original");
    const before = SHARES.filter(({ key }) => original?.[key]).map(({ key, colour }) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: 100 * original[key][0], y1: 100 * original[key][0],
      line: { color: css(colour), width: 1, dash: "dot" },
    }));
    const marker = { type: "line", x0: here.x, x1: here.x, y0: 0, y1: 1, yref: "paper",
      line: { color: css("--accent"), width: 1.5 } };
    const [low, high] = [Math.min(...places.map(({ x }) => x)), Math.max(...places.map(({ x }) => x))];
    // Text labels need room next to the outermost points.
    const pad = (set().gamma ? 0.03 : 0.14) * (high - low) || 0.5;
    const ticks = set().gamma ? {} : { automargin: true, tickvals: places.map(({ x }) => x),
      ticktext: places.map(({ p }) => escapeText(p.run.length > 18 ? `${p.run.slice(0, 17)}…` : p.run)) };
    el("share-title").textContent = set().gamma ? "Recognised images against γ"
      : `Recognised images by setting of ${set().name}`;
    el("share-family").textContent = set().gamma && point().family ? `Runs with ${point().family}.` : "";
    el("share-chart").dataset.selected = point().run;
    return draw("share-chart", [...SHARES.flatMap((share) => shareTraces(places, share)), crosses], {
      xaxis: axis(set().gamma ? "γ, unlearning intensity" : "", [low - pad, high + pad], ticks),
      yaxis: axis("recognised (%)", [-3, 103]), shapes: [marker, ...before],
    });
  }

  function drawKey() {
    const stroke = (colour, dash) => ({ width: 26, d: "M-13 0H13",
      path: { stroke: css(colour), "stroke-width": 2.2, "stroke-dasharray": dash } });
    const names = SHARES.map(({ key, colour }) =>
      listItem(icon(stroke(colour, "none")), make("span", shareName(key))));
    const before = model("original") ? [listItem(icon(stroke("--muted", "2 3")), make("span", "original"))] : [];
    el("share-key").replaceChildren(...names, ...before);
  }

  /* ---------- state changes ---------- */

  function select(index) {
    state.index = index;
    drawSlider();
    drawSheets();
    drawReadout();
    drawKey();
    return drawChart();
  }

  function chooseSet(index) {
    state.set = index;
    el("set-select").value = String(index);
    return select(set().start);
  }

  function chooseTable(index) {
    state.table = index;
    showTable(index);
    fillMenu("set-select", table().sets);
    el("frontier-label").hidden = table().sets.length < 2;
    return chooseSet(0);
  }

  const redraw = () => select(state.index);

  function wire() {
    el("table-select").addEventListener("change", (event) => chooseTable(Number(event.target.value)));
    el("set-select").addEventListener("change", (event) => chooseSet(Number(event.target.value)));
    el("gamma-slider").addEventListener("input", (event) => select(Number(event.target.value)));
    el("beside-switch").addEventListener("click", (event) => {
      if (!event.target.dataset.beside) return;
      state.beside = event.target.dataset.beside;
      drawSheets();
    });
    wirePage(redraw);
  }

  el("chooser").hidden = DATA.tables.length < 2;
  for (const id of ["panel", "share-figure"]) el(id).hidden = false;
  el("explorer").classList.remove("plain");
  wire();
  chooseTable(0).then(() => { document.documentElement.dataset.ready = "true"; }); // tests and printers wait for this
})();
