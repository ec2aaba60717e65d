"use strict";
// Each figure of a curve is plotted by uPlot in place of its image: hover, crosshair, zoom, smoothing.
(() => {
  const { curves } = JSON.parse(document.getElementById("data").textContent);
  const probe = document.body.appendChild(document.createElement("i"));
  const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const smoothed = (values, weight) => {
    let mean = null;
    return values.map((value) => (value == null ? value : (mean = mean === null ? value : weight * mean + (1 - weight) * value)));
  };
  const plots = [];
  const number = (value) => (value == null ? "–" : value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(2) : Math.abs(value) >= 1000 ? value.toFixed(0) : value.toPrecision(4));
  const tick = (value) => (value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(6))));

  for (const figure of document.querySelectorAll("[data-curve]")) {
    const curve = curves[figure.dataset.curve];
    const lines = curve.lines.map((line) => [line.points.map(([step]) => step), line.points.map(([, value]) => value)]);
    const data = lines.length > 1 ? uPlot.join(lines) : lines[0];
    const [steps] = data;
    const line = (plot, x, y, width, height, name, dash) => {
      const { ctx } = plot;
      ctx.save();
      ctx.strokeStyle = colour(name);
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(x, y);
      ctx.lineTo(x + width, y + height);
      ctx.stroke();
      ctx.restore();
    };
    const drawn = (plot) => {
      const { left, top, width, height } = plot.bbox;
      const inside = (step) => step >= plot.scales.x.min && step <= plot.scales.x.max;
      for (const step of curve.marks.filter(inside)) line(plot, plot.valToPos(step, "x", true), top + height - 8, 0, 8, "quiet", []);
      if (curve.kept !== null && inside(curve.kept)) line(plot, plot.valToPos(curve.kept, "x", true), top, 0, height, "ink", [3, 5]);
      if (curve.level) {
        const y = plot.valToPos(curve.level[0], "y", true);
        if (y >= top && y <= top + height) line(plot, left, y, width, 0, "quiet", [6, 5]);
      }
    };
    const axis = { stroke: () => colour("quiet"), grid: { stroke: () => colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const dashes = [undefined, [7, 4], [2, 3]];
    const borders = ["solid", "dashed", "dotted"];
    const seen = {};
    const kinds = curve.lines.map(({ slot }) => (seen[slot] = (seen[slot] ?? -1) + 1) % 3);
    const series = curve.lines.map(({ name, points, slot }, place) => {
      const few = points.length === 1 || (curve.dotted && points.length <= 60);
      return { label: lines.length > 1 ? name : "value", stroke: () => colour(`c${slot % 6}`), width: 2, dash: dashes[kinds[place]], spanGaps: true, points: { ...(few ? { show: true, size: 8 } : {}), fill: () => colour("panel") }, value: (_, value) => number(value) };
    });
    const holder = document.createElement("div");
    figure.querySelector("img").after(holder);
    figure.classList.add("plotted");
    const size = () => ({ width: holder.clientWidth, height: 230 });
    const unit = document.createElement("p");
    unit.className = "quiet";
    unit.textContent = curve.unit + (curve.level ? ` (${curve.level[1]})` : "");
    holder.before(unit);
    const plot = new uPlot({
      ...size(),
      scales: { x: { time: false, range: (_, low, high) => (steps.length === 1 || low === steps[0] && high === steps.at(-1) ? [0, Math.max(curve.last, steps.at(-1), 1)] : [low, high]) } },
      axes: [{ ...axis, size: 32 }, { ...axis, size: 56, values: (_, values) => values.map(tick) }],
      series: [{ label: "step", value: (_, step) => (step == null ? "–" : step.toLocaleString("en")) }, ...series],
      legend: { markers: { dash: (_, place) => borders[kinds[place - 1]] } },
      cursor: { y: false, sync: { key: "steps" }, points: { size: 8 } },
      hooks: { draw: [drawn] },
    }, data, holder);
    plots.push([plot, data]);
    new ResizeObserver(() => plot.setSize(size())).observe(holder);
  }
  addEventListener("theme", () => plots.forEach(([plot]) => plot.redraw()));
  for (const control of document.querySelectorAll(".smooth")) {
    control.hidden = false;
    control.querySelector("input").addEventListener("input", (event) => {
      const weight = Number(event.target.value);
      for (const [plot, [steps, ...values]] of plots) plot.setData([steps, ...values.map((one) => (weight ? smoothed(one, weight) : one))], false);
      for (const [plot] of plots) plot.redraw();
    });
  }
})();
