"use strict";
// Shared by all pages: colours, symbols, Plotly layouts, legends, sortable tables, printing. Text from results is
// set through textContent or escaped, never as markup.
const Charts = (() => {
  // Same order as the page's metrics.
  const METRIC_STYLES = [
    { colour: "--ink", dash: "solid", symbol: "circle" },
    { colour: "--forget", dash: "solid", symbol: "square" },
    { colour: "--muted", dash: "dot", symbol: "circle" },
    { colour: "--forget", dash: "dot", symbol: "square" },
  ];
  const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "pentagon"];
  const MODEL_SYMBOLS = { original: "hexagon", retrained: "star" };
  // Outlines for the legend, in a box of ±6; the names are Plotly's.
  const OUTLINES = {
    circle: "M5 0A5 5 0 1 1-5 0A5 5 0 1 1 5 0", square: "M-4.5-4.5H4.5V4.5H-4.5Z", "triangle-up": "M0-5.5L5 4H-5Z",
    diamond: "M0-6L5.5 0L0 6L-5.5 0Z", "triangle-down": "M0 5.5L5-4H-5Z",
    pentagon: "M0-5.5L5.3-1.7L3.3 4.5H-3.3L-5.3-1.7Z",
    cross: "M-2-5H2V-2H5V2H2V5H-2V2H-5V-2H-2Z", hexagon: "M0-6L5.2-3V3L0 6L-5.2 3V-3Z",
    star: "M0-7L1.9-2.2L7-2.1L3 1.1L4.3 6L0 3.2L-4.3 6L-3 1.1L-7-2.1L-1.9-2.2Z",
  };
  const DASHES = { solid: "none", dot: "2 3", dash: "7 4" };
  const CONFIG = {
    displayModeBar: false, responsive: true, showTips: false, displayNotifier: false, doubleClick: "reset",
  };

  const el = (id) => document.getElementById(id);
  const isPrinting = () => document.documentElement.classList.contains("printing");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const seriesColour = (k) => css(`--series-${k % 7}`);
  // After seven methods the pairing of colour and symbol shifts.
  const seriesSymbol = (k) => SYMBOLS[(k + Math.floor(k / 7)) % 7];
  // Plotly reads text between two dollar signs as math unless they are entities.
  const escapeText = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;")
    .replace(/\$/g, "&#36;");
  const percent = (value, digits = 2) => `${(100 * value).toFixed(digits)} %`;
  const interval = (low, high) => `${(100 * low).toFixed(2)} to ${(100 * high).toFixed(2)}`;

  function make(tag, text, className) {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (className) node.className = className;
    return node;
  }

  function icon(paint) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", paint.width ?? 14);
    svg.setAttribute("height", 14);
    svg.setAttribute("viewBox", `${-(paint.width ?? 14) / 2} -7 ${paint.width ?? 14} 14`);
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    for (const [name, value] of Object.entries(paint.path)) path.style.setProperty(name, value);
    path.setAttribute("d", paint.d);
    svg.append(path);
    return svg;
  }

  function listItem(...children) {
    const item = make("li");
    item.append(...children);
    return item;
  }

  // Buttons that show and hide the series, then the models.
  function drawLegend(entries, models) {
    const focus = [...el("legend").querySelectorAll("button")].indexOf(document.activeElement);
    const buttons = entries.map(({ name, lost, hidden, toggle }, k) => {
      const button = make("button");
      button.type = "button";
      button.setAttribute("aria-pressed", String(!hidden));
      button.append(icon({ d: OUTLINES[seriesSymbol(k)], path: { fill: seriesColour(k) } }),
        make("span", name + (lost ? ` (${lost} diverged)` : "")));
      button.addEventListener("click", toggle);
      return listItem(button);
    });
    const stars = models.map((name) =>
      listItem(icon({ d: OUTLINES[MODEL_SYMBOLS[name]], path: { fill: css("--ink") } }), make("span", name)));
    el("legend").replaceChildren(...buttons, ...stars);
    // Rebuilding the legend drops the keyboard focus; restore it.
    if (focus >= 0) el("legend").querySelectorAll("button")[focus]?.focus();
  }

  const styled = (metrics) => metrics.map((m, i) => ({ ...METRIC_STYLES[i % METRIC_STYLES.length], ...m }));

  function drawMetricsKey(id, metrics) {
    el(id).replaceChildren(...metrics.map((m) => {
      const path = { stroke: css(m.colour), "stroke-width": 2.2, "stroke-dasharray": DASHES[m.dash] };
      return listItem(icon({ width: 26, d: "M-13 0H13", path }), make("span", m.name));
    }));
  }

  /* ---------- chart layout ---------- */

  function layout(changes) {
    const font = { family: css("--sans"), size: isPrinting() ? 10 : 12.5, color: css("--muted") };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font, showlegend: false, hovermode: "closest",
      margin: { l: 52, r: 10, t: 10, b: 46 },
      hoverlabel: {
        bgcolor: css("--raised"), bordercolor: css("--line"), font: { ...font, color: css("--ink") }, align: "left",
      },
      // On a touch screen a drag must scroll the page.
      dragmode: matchMedia("(pointer: fine)").matches ? "zoom" : false,
      ...changes,
    };
  }

  function draw(id, traces, changes) {
    // Print at a fixed width that fits A4 and Letter, or a chart's own.
    const width = Number(el(id).dataset.printWidth ?? 660);
    const size = isPrinting() ? { autosize: false, width, height: el(id).clientHeight } : { autosize: true };
    return Plotly.react(el(id), traces, layout({ ...size, ...changes }), CONFIG);
  }

  function axis(title, range, changes) {
    return {
      title: { text: title, standoff: 8 }, range, gridcolor: css("--line"), zeroline: false, showline: true,
      linecolor: css("--line"), ticks: "", ...changes,
    };
  }

  // The interval around a line.
  const band = (x, low, high, colour, opacity = 0.1) => ({
    x: [...x, ...[...x].reverse()], y: [...low, ...[...high].reverse()], fill: "toself", mode: "none",
    hoverinfo: "skip", fillcolor: colour, opacity, line: { width: 0 },
  });
  const crossMarker = () => ({ symbol: "x-thin", size: 9, line: { color: css("--warn"), width: 2 } });

  /* ---------- controls ---------- */

  function entry(term, value, note) {
    const dd = make("dd", value);
    if (note) dd.append(make("small", note));
    el("readout").append(make("dt", term), dd);
  }

  function setSlider(count, index, run) {
    const slider = el("gamma-slider");
    slider.max = count - 1;
    slider.value = index;
    slider.disabled = slider.max === "0";
    el("gamma-value").textContent = run;
    el("gamma-value").classList.toggle("long", run.length > 10);
  }

  function press(id, name, pressed) {
    for (const button of el(id).children) button.setAttribute("aria-pressed", String(pressed(button.dataset[name])));
  }

  function fillMenu(id, entries) {
    el(id).replaceChildren(...entries.map(({ name }, i) => {
      const option = make("option", name);
      option.value = String(i);
      return option;
    }));
  }

  function showTable(index) {
    for (const part of document.querySelectorAll("[data-table]")) part.hidden = Number(part.dataset.table) !== index;
  }

  function wirePage(redraw) {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    wirePrinting(redraw);
    wireTables();
  }

  /* ---------- tables and printing ---------- */

  const cellText = (row, column) => row.cells[column].textContent.replace(/\*$/, "").trim();
  const isMissing = (text) => text === "–" || text.startsWith("✗");

  function sortBy(table, column, head) {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => compare(cellText(a, column), cellText(b, column), down ? -1 : 1));
    table.tBodies[0].append(...rows);
  }

  function compare(a, b, sign) {
    // Missing values go last in both directions.
    if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
    // "94.43 (1.91)" and "2 of 10" sort by the number they begin with.
    const [x, y] = [parseFloat(a), parseFloat(b)];
    const numbers = /^[-+]?\d/.test(a) && /^[-+]?\d/.test(b) && x !== y;
    return sign * (numbers ? x - y : a.localeCompare(b, undefined, { numeric: true }));
  }

  function wireTables() {
    for (const table of document.querySelectorAll("table[id]")) {
      [...table.tHead.rows[0].cells].forEach((head, column) =>
        head.querySelector("button").addEventListener("click", () => sortBy(table, column, head)));
    }
  }

  // Printing uses light colours and a fixed width: redraw, and open collapsed sections.
  function wirePrinting(redraw) {
    const set = (printing) => {
      document.documentElement.classList.toggle("printing", printing);
      if (printing) document.querySelectorAll("details").forEach((d) => { d.open = true; });
      redraw();
    };
    addEventListener("beforeprint", () => set(true));
    addEventListener("afterprint", () => set(false));
  }

  return {
    MODEL_SYMBOLS, OUTLINES, axis, band, crossMarker, css, draw, drawLegend, drawMetricsKey, el, entry, escapeText,
    fillMenu, icon, interval, listItem, make, percent, press, seriesColour, seriesSymbol, setSlider, showTable, styled,
    wirePage,
  };
})();
