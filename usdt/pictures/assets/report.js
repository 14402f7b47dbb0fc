"use strict";
// Fills the sections of a report page from its data.
{
  const data = pageData("report");
  const { element, table, numbers, texts, duration, number } = Report;
  const origin = data.origin;
  const section = (name) => document.getElementById(name);
  const add = (name, ...children) => section(name).append(...children);
  const note = (text) => element("p", { class: "note" }, text);
  const box = (label) => element("div", { "aria-label": label });
  const under = () => element("p", { class: "under", "aria-live": "polite" });
  const threads = (row) => (row.pid === row.tid ? String(row.pid) : `${row.pid}/${row.tid}`);
  Report.theme();

  if (section("overview")) {
    add("overview", element("ul", { class: "figures" }, ...data.figures.map(([what, value]) => element("li", {}, element("b", {}, typeof value === "number" ? number(value) : value), what))));
  }

  if (section("rates")) {
    const chart = box("Hits per second of each probe");
    add("rates", chart);
    Report.rates(chart, data.rates, origin);
    const columns = [texts("probe", (row) => row.name), numbers("hits", (row) => row.hits), numbers("per second", (row) => row.rate), numbers("lost", (row) => row.lost)];
    add("rates", note(`Each step is ${duration(data.rates.width * 1e6)} long. Click a name to show it alone. + - ← → 0: zoom and move.`), table(columns, data.probes));
  }

  if (section("latency")) {
    const found = data.latencies;
    const choice = element("select", { "aria-label": "Span of the heatmap" }, ...found.names.map((one, index) => element("option", { value: index }, one.name)));
    choice.hidden = found.names.length < 2;
    const chart = box("Durations over time");
    const line = under();
    const show = () => {
      const one = found.names[choice.value];
      const labels = one.edges.slice(0, -1).map((edge, index) => `[${duration(edge)}, ${duration(one.edges[index + 1])})`);
      chart.replaceChildren();
      Report.charts = Report.charts.filter((known) => known.root.isConnected);
      Report.heatmap(chart, line, { ...found, cells: one.cells }, labels, origin);
    };
    choice.addEventListener("change", show);
    add("latency", element("div", { class: "tools" }, choice), chart, line);
    show();
    const columns = [texts("span", (row) => row.name), ...found.columns.map((name, index) => numbers(name, (row) => row.numbers[index], index ? duration : number)), numbers("total", (row) => row.sum, duration)];
    add("latency", table(columns, found.names), note("A span is counted where it ends. Percentiles are within 0.8 %."));
  }

  let timeline = null;
  if (section("timeline")) {
    const chart = box("Spans of each thread");
    const line = under();
    add("timeline", element("div", { class: "tall" }, chart), line);
    timeline = Report.timeline(chart, line, data.timeline, [data.first, data.last], origin);
    const { spans, hits, all } = data.timeline;
    const kept = [[spans.length, all.spans, "spans"], [hits.length, all.hits, "hits outside spans"]].filter(([, total]) => total);
    add("timeline", note("Shown: " + kept.map(([shown, total, what]) => `${number(shown)} of ${number(total)} ${what}`).join(", ") +
      (spans.length < all.spans ? "; the longest of all, and the longest of each thread" : "") +
      (timeline.left ? `; ${timeline.left} more threads` : "") + ". Drag to zoom, double-click to reset; + - ← → 0."));
  }

  if (section("slowest")) {
    const columns = [
      numbers("duration", (row) => row.duration, (value, row) => duration(value) + (row.open ? " (open)" : "")),
      numbers("at", (row) => row.time, Report.span), texts("span", (row) => row.name), texts("host", (row) => row.host),
      texts("thread", (row) => row.comm + " " + threads(row)), texts("arguments", (row) => row.text),
    ];
    const rows = table(columns, data.slowest);
    const input = element("input", { type: "search", id: "filter", placeholder: "Filter (f)", "aria-label": "Filter spans", autocomplete: "off", spellcheck: "false" });
    const count = element("output", { "aria-live": "polite" });
    const filter = () => {
      const wanted = input.value.toLowerCase();
      const has = (text) => text.toLowerCase().includes(wanted);
      const left = rows.filter((row) => has([row.name, row.host, row.comm, threads(row), row.text].join(" ")));
      count.textContent = wanted ? `${left} of ${data.slowest.length}` : "";
      if (timeline) timeline.chart.markSpans(wanted ? has : null);
    };
    input.addEventListener("input", filter);
    add("slowest", element("div", { class: "tools" }, input, count), rows);
  }

  data.results.forEach((found, index) => {
    const name = "results" + index;
    if (found.rates) {
      const chart = box("Hits per second");
      add(name, chart);
      Report.rates(chart, found.rates, origin);
    }
    if (found.heatmap) {
      const chart = box("Values over time");
      const line = under();
      add(name, chart, line);
      Report.heatmap(chart, line, found.heatmap, found.heatmap.labels, origin);
    }
    const columns = found.columns.map((column, at) => numbers(column.name, (row) => row.numbers[at], column.time ? duration : number));
    const keys = found.keys.map((key, at) => texts(key, (row) => row.keys[at]));
    add(name, table([...columns, texts("probe", (row) => row.probe), ...keys], found.rows));
    if (found.rows.length < found.all) add(name, note(`The ${found.rows.length} largest of ${number(found.all)} are shown.`));
    for (const one of found.histograms || []) {
      const chart = box(one.title);
      add(name, element("h3", {}, one.title), chart);
      if (one.counts.length) Report.bars(chart, one.labels, one.counts);
    }
  });

  const help = element("dialog", { class: "report", "aria-label": "Keys" }, element("h2", {}, "Keys"), element("dl", {},
    ...[["1 … 9", "go to a section"], ["f", "filter spans"], ["/", "search in the flame graph"], ["t", "light or dark"], ["+ - ← → 0", "in a chart: zoom, move, show all"], ["?", "this help"]]
      .flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)])), element("form", { method: "dialog" }, element("button", {}, "Close")));
  document.body.append(help);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (typing && event.key === "Escape") event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const links = document.querySelectorAll("nav.report a");
    if (event.key >= "1" && event.key <= "9" && links[event.key - 1]) links[event.key - 1].click();
    else if (event.key === "f" && section("filter")) section("filter").focus();
    else if (event.key === "t") document.getElementById("theme").click();
    else if (event.key === "?") help.showModal();
    else return;
    event.preventDefault();
  });
  new MutationObserver(Report.theme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", Report.theme);
}
