// The charts of an audit: one line or bar style per model, readable without colour.
(() => {
  const { axis, css, draw, drawMetricsKey, el, escapeText, icon, listItem, make, wirePage } = Charts;
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const STYLES = {
    audited: { colour: "--series-0", dash: "solid", symbol: "circle", pattern: "" },
    retrained: { colour: "--series-1", dash: "dash", symbol: "square", pattern: "/" },
    original: { colour: "--muted", dash: "dot", symbol: "diamond", pattern: "." },
  };
  const BOX = "M-6-6H6V6H-6Z";
  const FILLS = { audited: BOX, retrained: `${BOX}M-6 0L0-6M-6 6L6-6M0 6L6 0`, original: `${BOX}M-3 0H-2M2 0H3` };

  function rolesOf(charts) {
    const found = new Set(charts.flatMap((chart) => chart.series.map(({ role }) => role)));
    return Object.keys(STYLES).filter((role) => found.has(role)).map((role) =>
      ({ ...STYLES[role], role, name: DATA.roles[role] }));
  }

  const percentTicks = (floor) => {
    const tickvals = [];
    for (let rate = 1; rate > floor * 0.99; rate /= 10) tickvals.push(rate);
    return { type: "log", tickvals, ticktext: tickvals.map((rate) => `${Number((100 * rate).toPrecision(3))}`) };
  };

  function lineTrace({ role, x, y }, mode, shape = "linear") {
    const { colour, dash, symbol } = STYLES[role];
    return { x, y, mode, cliponaxis: false, line: { color: css(colour), width: 2, dash, shape },
      marker: { color: css(colour), size: 6, symbol },
      hovertemplate: `${DATA.roles[role]}: %{y:.3~g} at %{x:.3~g}<extra></extra>` };
  }

  function drawRoc({ floor, series }, i) {
    const range = [Math.log10(floor), 0.02];
    const chance = { x: [floor, 1], y: [floor, 1], mode: "lines", hoverinfo: "skip",
      opacity: 0.5, line: { color: css("--muted"), width: 1 } };
    return draw(`roc-${i}`, [chance, ...series.map((s) => lineTrace(s, "lines", "hv"))], {
      xaxis: axis("False-positive rate (%)", range, percentTicks(floor)),
      yaxis: axis("True-positive rate (%)", range, percentTicks(floor)),
    });
  }

  function drawCurve({ x, y, series }, i) {
    const mode = series[0].x.length > 40 ? "lines" : "lines+markers";
    return draw(`curve-${i}`, series.map((s) => lineTrace(s, mode)), {
      xaxis: axis(escapeText(x), undefined), yaxis: axis(escapeText(y), undefined, { rangemode: "tozero" }),
    });
  }

  function drawBars({ classes, series }, i) {
    const short = (name) => escapeText(name.length > 16 ? `${name.slice(0, 15)}…` : name);
    const traces = series.map(({ role, y }) => {
      const colour = css(STYLES[role].colour);
      return { type: "bar", x: classes.map((_, k) => k), y, hoverinfo: "text",
        hovertext: y.map((value, k) => `${escapeText(classes[k])}<br>${DATA.roles[role]}: ${value.toFixed(1)} %`),
        marker: { color: colour, line: { color: colour, width: 1 },
          pattern: { shape: STYLES[role].pattern, fgcolor: colour, bgcolor: css("--paper"), size: 5, solidity: 0.4 },
        } };
    });
    return draw(`bar-${i}`, traces, {
      barmode: "group", bargap: 0.25,
      xaxis: axis("Predicted class", [-0.6, classes.length - 0.4], { automargin: true, showgrid: false,
        tickvals: classes.map((_, k) => k), ticktext: classes.map(short) }),
      yaxis: axis("Share of forgotten records (%)", undefined, { rangemode: "tozero" }),
    });
  }

  function drawBoxKey(id, roles) {
    el(id).replaceChildren(...roles.map(({ role, colour, name }) => {
      const path = { fill: role === "audited" ? css(colour) : "none", stroke: css(colour), "stroke-width": 1.2 };
      return listItem(icon({ d: FILLS[role], path }), make("span", name));
    }));
  }

  function drawKey(id, charts, drawer) {
    if (charts.length) drawer(id, rolesOf(charts));
  }

  function drawAll() {
    drawKey("roc-key", DATA.rocs, drawMetricsKey);
    drawKey("curve-key", DATA.curves, drawMetricsKey);
    drawKey("bar-key", DATA.bars, drawBoxKey);
    return Promise.all([...DATA.rocs.map(drawRoc), ...DATA.curves.map(drawCurve), ...DATA.bars.map(drawBars)]);
  }

  wirePage(drawAll);
  drawAll().then(() => { document.documentElement.dataset.ready = "true"; }); // tests and printers wait for this
})();
