"use strict";
// The timeline of report pages: rows of threads, spans by depth, hits as ticks.
Report.timeline = (box, under, data, range, origin) => {
  const HEIGHT = 14;
  const MOST = 400; // rows
  const depths = data.threads.map(() => 1);
  for (const [thread, depth] of data.spans) depths[thread] = Math.max(depths[thread], depth + 1);
  const used = new Set([...data.spans.map((span) => span[0]), ...data.hits.map((hit) => hit[0])]);
  const starts = data.threads.map(() => -1);
  let rows = 0;
  for (const thread of data.order) {
    if (!used.has(thread) || rows + depths[thread] > MOST) continue;
    starts[thread] = rows;
    rows += depths[thread];
  }
  const who = (thread) => `${thread.comm} ${thread.pid === thread.tid ? thread.pid : thread.pid + "/" + thread.tid}`;
  let wanted = null; // names and texts that are marked
  const draw = (u) => {
    const { ctx } = u;
    const { left, width, top, height } = u.bbox;
    const y = (row) => u.valToPos(rows - row, "y", true);
    const tall = Math.max(2, y(1) - y(0) - 2 * devicePixelRatio);
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.fillStyle = Report.ink;
    for (const [thread, time] of data.hits) {
      if (starts[thread] < 0) continue;
      const x = u.valToPos(time, "x", true);
      if (x >= left && x <= left + width) ctx.fillRect(x, y(starts[thread]), devicePixelRatio, tall);
    }
    for (const span of data.spans) {
      const [thread, depth, time, duration, name, text] = span;
      if (starts[thread] < 0) continue;
      const from = Math.max(left - 2, u.valToPos(time, "x", true));
      const to = Math.min(left + width + 2, u.valToPos(time + duration / 1e6, "x", true));
      if (to < left || from > left + width) continue;
      const marked = wanted && wanted(data.words[name] + " " + data.words[text]);
      ctx.globalAlpha = wanted && !marked ? 0.25 : 1;
      ctx.fillStyle = marked ? Report.mark : Report.hue(name, !Report.dark);
      ctx.fillRect(from, y(starts[thread] + depth), Math.max(devicePixelRatio, to - from), tall);
    }
    ctx.restore();
  };
  const threadAt = (row) => starts.findIndex((start, thread) => start >= 0 && start <= row && row < start + depths[thread]);
  const point = (u) => {
    if (u.cursor.left < 0) return;
    const row = rows - 1 - Math.floor(u.posToVal(u.cursor.top, "y"));
    const time = u.posToVal(u.cursor.left, "x");
    const near = (u.scales.x.max - u.scales.x.min) * 0.003;
    const thread = threadAt(row);
    if (thread < 0) return;
    const depth = row - starts[thread];
    const span = data.spans.find((one) => one[0] === thread && one[1] === depth && time >= one[2] - near && time <= one[2] + one[3] / 1e6 + near);
    const hit = span || data.hits.find((one) => one[0] === thread && Math.abs(one[1] - time) <= near);
    const at = span ? span[2] : hit ? hit[1] : time;
    const what = span ? `${data.words[span[4]]}  ${Report.duration(span[3])}  ${data.words[span[5]]}` : hit ? `${data.words[hit[2]]}  ${data.words[hit[3]]}` : "";
    under.textContent = `${data.threads[thread].host}  ${who(data.threads[thread])}  ${Report.span(at)}  ${what}`;
  };
  const shown = data.order.filter((thread) => starts[thread] >= 0);
  const y = {
    splits: () => shown.map((thread) => rows - starts[thread] - 0.5),
    values: (u, splits) => splits.map((_, index) => who(data.threads[shown[index]]).slice(0, 24)),
    size: 170, space: 1, grid: { show: false }, ticks: { show: false },
  };
  const chart = Report.chart(box, rows * HEIGHT + 60, {
    y,
    range,
    series: [{}, { points: { show: false }, paths: () => null }],
    scales: { y: { range: [0, Math.max(1, rows)] } },
    legend: { show: false },
    cursor: { points: { show: false }, drag: { x: true, y: false } },
    hooks: { draw: [draw], setCursor: [point] },
  }, [range, [0, 0]]);
  chart.markSpans = (test) => {
    wanted = test;
    chart.redraw(false, true);
  };
  return { chart, left: used.size - shown.length };
};
