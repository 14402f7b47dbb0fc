"use strict";
// Charts of report pages: uPlot has the axes, the zoom and the cursor; cells and spans are drawn in
// its hooks. Times are milliseconds since the start of the page's data.
Report.charts = [];

Report.colour = (name) => {
  // Canvases take no var(--…): an element resolves it.
  const probe = Report.element("i", {});
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};

Report.hue = (index, strong) => `hsl(${(index * 137.5 + 205) % 360} 65% ${strong ? 42 : 58}%)`;

Report.span = (milliseconds) => {
  const size = Math.abs(milliseconds) * 1e6;
  return (milliseconds < 0 ? "-" : "+") + (size ? Report.duration(size) : "0");
};

// A chart in a box: it takes the width of the page, follows the theme and obeys the keyboard.
Report.chart = (box, height, options, data, redrawn) => {
  box.classList.add("chart");
  box.tabIndex = 0;
  box.setAttribute("role", "img");
  const width = () => Math.max(300, box.clientWidth || document.body.clientWidth - 32);
  const axis = (more) => ({ stroke: () => Report.ink, grid: { stroke: () => Report.grid }, ticks: { stroke: () => Report.grid }, ...more });
  const all = {
    width: width(),
    height,
    ...options,
    scales: { x: { time: false }, ...options.scales },
    axes: [axis({ values: (u, splits) => splits.map(Report.span), space: 90 }), axis(options.y)],
  };
  const chart = new uPlot(all, data, box);
  const full = () => {
    const xs = options.range || [data[0][0], data[0][data[0].length - 1]];
    chart.setScale("x", { min: xs[0], max: xs[1] });
  };
  box.addEventListener("keydown", (event) => {
    const { min, max } = chart.scales.x;
    const step = (max - min) / 4;
    const moves = { "+": [step, -step], "-": [-step, step], ArrowLeft: [-step, -step], ArrowRight: [step, step] };
    const move = event.ctrlKey || event.metaKey || event.altKey ? null : moves[event.key];
    if (move) chart.setScale("x", { min: min + move[0], max: max + move[1] });
    else if (event.key === "0") full();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  new ResizeObserver(() => {
    if (Math.abs(width() - chart.width) > 1) chart.setSize({ width: width(), height });
  }).observe(box);
  Report.charts.push(chart);
  return chart;
};

Report.theme = () => {
  Report.ink = Report.colour("text");
  Report.grid = Report.colour("line");
  Report.mark = Report.colour("mark");
  Report.dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  for (const chart of Report.charts) chart.redraw(false, true);
};

// Lines of rates: counts of bins, shown per second.
Report.rates = (box, rates, origin) => {
  const xs = rates.rows[0].map((_, index) => rates.start - origin + index * rates.width);
  const rows = rates.rows.map((row) => row.map((count) => (count * 1000) / rates.width));
  const last = xs[xs.length - 1] + rates.width;
  xs.push(last); // the end of the last step
  for (const row of rows) row.push(row[row.length - 1]);
  const label = (u, value) => (value === null ? "–" : Report.number(value) + "/s");
  const series = rates.names.map((name, index) => ({
    label: name,
    stroke: Report.hue(index),
    width: 1.5,
    paths: uPlot.paths.stepped({ align: 1 }),
    points: { show: false },
    value: label,
  }));
  const time = { label: "time", value: (u, value) => (value === null ? "–" : `${Report.span(value)}  ${Report.clock(origin + value)}`) };
  const y = { values: (u, splits) => splits.map((one) => Report.number(one)), size: 70, label: "hits per second" };
  return Report.chart(box, 260, { y, series: [time, ...series], range: [xs[0], last] }, [xs, ...rows]);
};

// A heatmap: data has start, width, bins, cells (bin, row, count, …) and the label of each row.
Report.heatmap = (box, under, data, labels, origin) => {
  const first = data.start - origin;
  const most = data.cells.reduce((all, count, index) => (index % 3 === 2 && count > all ? count : all), 1);
  const shade = (count) => {
    const part = Math.log(count + 1) / Math.log(most + 1);
    return Report.dark ? `hsl(${280 - 230 * part} 80% ${22 + 55 * part}%)` : `hsl(${50 - 110 * part} 80% ${82 - 60 * part}%)`;
  };
  const draw = (u) => {
    const { ctx } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    for (let i = 0; i < data.cells.length; i += 3) {
      const [at, row, count] = data.cells.slice(i, i + 3);
      const left = Math.floor(u.valToPos(first + at * data.width, "x", true));
      const right = Math.ceil(u.valToPos(first + (at + 1) * data.width, "x", true));
      const top = Math.floor(u.valToPos(row + 1, "y", true));
      const bottom = Math.ceil(u.valToPos(row, "y", true));
      ctx.fillStyle = shade(count);
      ctx.fillRect(left, top, Math.max(1, right - left), bottom - top);
    }
    ctx.restore();
  };
  const found = new Map();
  for (let i = 0; i < data.cells.length; i += 3) found.set(data.cells[i] + ":" + data.cells[i + 1], data.cells[i + 2]);
  const point = (u) => {
    const { left, top } = u.cursor;
    if (left < 0) return;
    const bin = Math.floor((u.posToVal(left, "x") - first) / data.width);
    const row = Math.floor(u.posToVal(top, "y"));
    const count = found.get(bin + ":" + row);
    under.textContent = count === undefined ? "" :
      `${Report.clock(data.start + bin * data.width)}  ${labels[row]}: ${Report.number(count)}`;
  };
  const range = [first, first + data.bins * data.width];
  const step = Math.max(1, Math.ceil(labels.length / 16));
  const splits = () => labels.map((_, row) => row).filter((row) => row % step === 0);
  const y = { splits, values: (u, rows) => rows.map((row) => labels[row]), size: 130 };
  const options = {
    y,
    range,
    series: [{}, { show: true, points: { show: false }, paths: () => null }],
    scales: { y: { range: [0, labels.length] } },
    legend: { show: false },
    cursor: { points: { show: false } },
    hooks: { draw: [draw], setCursor: [point] },
  };
  return Report.chart(box, Math.min(420, Math.max(160, labels.length * 14 + 60)), options, [range, [0, 0]]);
};

// Bars of a histogram, one for each bucket.
Report.bars = (box, labels, counts) => {
  const xs = labels.map((_, index) => index);
  const value = (u, index) => (index === null ? "–" : labels[index]);
  const options = {
    width: Math.max(300, Math.min(box.clientWidth || 600, 900)),
    height: 200,
    scales: { x: { time: false, range: [-0.6, labels.length - 0.4] }, y: { range: (u, low, high) => [0, high || 1] } },
    axes: [
      {
        stroke: () => Report.ink, grid: { show: false }, ticks: { stroke: () => Report.grid }, space: 90,
        splits: (u) => {
          const step = Math.max(1, Math.ceil((labels.length * 100) / u.width));
          return xs.filter((index) => index % step === 0);
        },
        values: (u, splits) => splits.map((index) => labels[index]),
      },
      { stroke: () => Report.ink, grid: { stroke: () => Report.grid }, ticks: { stroke: () => Report.grid }, size: 70, values: (u, splits) => splits.map(Report.number) },
    ],
    series: [
      { label: "bucket", value },
      { label: "hits", fill: Report.hue(0), stroke: Report.hue(0), paths: uPlot.paths.bars({ size: [0.9, 60] }), points: { show: false } },
    ],
  };
  Report.charts.push(new uPlot(options, [xs, counts], box));
};
