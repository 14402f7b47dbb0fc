"use strict";
// Texts, numbers and tables of report pages. Texts become text nodes only.
const Report = {};

Report.element = (name, attributes, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

Report.duration = (ns) => {
  if (ns === null) return "?";
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (ns >= size) return (ns / size).toFixed(ns / size < 100 ? 2 : 0) + " " + unit;
  }
  return Math.round(ns) + " ns";
};

Report.number = (value) => {
  if (value === null) return "?";
  const digits = Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : 1;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
};

// Milliseconds since 1970 as date and time; the time since the start if they are no date.
Report.clock = (milliseconds) => {
  const date = new Date(milliseconds);
  return isNaN(date) ? "?" : date.toISOString().replace("T", " ").replace("Z", " UTC");
};

// A table that sorts by a click on a heading. Columns: {name, get, show, kind}.
Report.table = (columns, rows) => {
  const body = Report.element("tbody");
  const state = { column: -1, down: true, filter: () => true };
  const heads = columns.map((column, index) => {
    const button = Report.element("button", { type: "button" }, column.name);
    button.addEventListener("click", () => {
      state.down = state.column === index ? !state.down : column.kind === "number";
      state.column = index;
      fill();
    });
    return Report.element("th", { scope: "col" }, button);
  });
  const order = (a, b) => {
    const [one, other] = [a, b].map(columns[state.column].get);
    const sign = one === other ? 0 : one === null || one < other ? -1 : 1;
    return state.down ? -sign : sign;
  };
  const fill = () => {
    const shown = rows.filter(state.filter);
    if (state.column >= 0) shown.sort(order);
    heads.forEach((head, index) => {
      const sorted = state.down ? "descending" : "ascending";
      head.setAttribute("aria-sort", index === state.column ? sorted : "none");
    });
    body.replaceChildren(...shown.map((row) => Report.element("tr", {}, ...columns.map((column) => {
      const value = column.get(row);
      const text = column.show ? column.show(value, row) : String(value);
      return Report.element("td", { class: column.kind || "text" }, text);
    }))));
    return shown.length;
  };
  fill();
  const head = Report.element("thead", {}, Report.element("tr", {}, ...heads));
  const table = Report.element("div", { class: "table", tabindex: "0" }, Report.element("table", {}, head, body));
  table.filter = (wanted) => {
    state.filter = wanted;
    return fill();
  };
  return table;
};

Report.numbers = (name, get, show) => ({ name, get, show: show || Report.number, kind: "number" });
Report.texts = (name, get) => ({ name, get, kind: "text" });
