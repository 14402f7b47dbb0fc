"use strict";
// Flame graphs: each <section data-flame="NAME"> shows the columns of pageData(NAME).
for (const section of document.querySelectorAll("section[data-flame]")) {
  const data = pageData(section.dataset.flame);
  const find = (selector) => section.querySelector(selector);
  const [input, select, chartElement] = ["input", "select", ".flame-chart"].map(find);
  const [details, found] = [".flame-details", ".flame-found"].map(find);
  const HIGHLIGHT = "#e040e0";
  let term = "";

  const amount = (value, unit) => {
    if (unit !== "nanoseconds") return value.toLocaleString("en") + (unit === "bytes" ? " B" : "");
    for (const [size, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]])
      if (value >= size) return (value / size).toPrecision(4) + " " + name;
    return value + " ns";
  };
  const percent = (share) => (100 * share).toFixed(2) + "%";

  // The boxes as objects; those without width in what is shown are left out.
  const tree = (weight) => {
    const boxes = data.parent.map((_, index) => ({
      index, name: data.names[data.function[index]], value: weight.values[index], children: [],
    }));
    data.parent.forEach((parent, index) => {
      if (parent >= 0 && boxes[index].value > 0) boxes[parent].children.push(boxes[index]);
    });
    return boxes[0];
  };
  const label = (box) => {
    const index = box.data.index;
    const parts = data.weights.map((weight) => {
      const share = weight.values[0] ? weight.values[index] / weight.values[0] : 0;
      return `${weight.name}: ${amount(weight.values[index], weight.unit)} (${percent(share)})`;
    });
    const change = data.change && data.change[index];
    if (data.change) parts.push((change > 0 ? "+" : "") + percent(change) + " of all");
    return `${box.data.name} — ${parts.join(", ")}`;
  };

  // A plain text matches wherever it is; what is a regular expression matches as one, too.
  const matcher = (text) => {
    const plain = text.toLowerCase();
    let pattern = null;
    try { pattern = new RegExp(text, "i"); } catch { /* an incomplete pattern is a plain text */ }
    return (name) => name.toLowerCase().includes(plain) || (pattern !== null && pattern.test(name));
  };

  let chart = null;
  let root = null;
  const weightNow = () => data.weights[Number(select.value || 0)];

  const draw = () => {
    if (chart) chart.destroy();
    chartElement.replaceChildren();
    chart = flamegraph.default()
      .width(Math.max(200, chartElement.clientWidth || 960))
      .cellHeight(18)
      .minFrameSize(0.5)
      .transitionDuration(0)
      .inverted(false)
      .sort(true)
      .label(label)
      .onClick(() => window.setTimeout(keys, 0));
    chart.setColorMapper((box) => (box.highlight ? HIGHLIGHT : data.palette[data.colour[box.data.index]]));
    chart.setSearchMatch((box, text) => text !== "" && matcher(text)(box.data.name));
    chart.setSearchHandler((_, sum, total) => {
      found.textContent = `${amount(sum, weightNow().unit)}, ${percent(total ? sum / total : 0)}`;
    });
    chart.setDetailsElement(details);
    root = tree(weightNow());
    d3.select(chartElement).datum(root).call(chart);
    if (term) chart.search(term);
    keys();
  };

  // Boxes can be reached by Tab, and zoomed by Enter.
  const keys = () => d3.select(chartElement).selectAll("g.frame")
    .attr("tabindex", 0)
    .attr("role", "button")
    .on("focus", (_, box) => { details.textContent = label(box); })
    .on("keydown", (event, box) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      chart.zoomTo(box);
    });

  // Boxes are thousands of elements: those below the window are drawn once they come into view.
  const drawn = () => { if (!chart) draw(); };
  const search = () => {
    drawn();
    term = input.value;
    if (term) return chart.search(term);
    found.textContent = "";
    return chart.clear();
  };
  const reset = () => {
    drawn();
    input.value = term = "";
    found.textContent = "";
    chart.clear();
    chart.resetZoom();
  };

  input.addEventListener("input", search);
  find("form").addEventListener("submit", (event) => event.preventDefault());
  select.addEventListener("change", draw);
  find(".flame-reset").addEventListener("click", reset);
  section.addEventListener("keydown", (event) => { if (event.key === "Escape") reset(); });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    input.focus();
  });
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (chart && window.innerWidth !== width) draw();
    width = window.innerWidth;
  });
  window.addEventListener("beforeprint", drawn);
  const begin = () => {
    if (chartElement.getBoundingClientRect().top < window.innerHeight) return drawn();
    const observer = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      drawn();
    });
    return observer.observe(chartElement);
  };
  document.addEventListener("DOMContentLoaded", begin);  // other scripts fill what is above
}
