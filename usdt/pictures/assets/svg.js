
"use strict";
{
  const WIDTH = 1180, LEFT = 10, CHARACTER = 7.2;
  const byId = (id) => document.getElementById(id);
  const boxes = [...byId("boxes").children].map((g) => {
    const [title, rect, text] = g.children;
    return {
      g, rect, text, title: title.textContent, colour: rect.getAttribute("fill"),
      name: title.textContent.slice(0, title.textContent.lastIndexOf(" — ")),
      x: Number(g.dataset.x), w: Number(g.dataset.w), y: Number(rect.getAttribute("y")),
    };
  });
  const root = boxes[0];

  function zoom(box) {
    for (const one of boxes) {
      const below = one.y > box.y && one.x <= box.x + 1e-6 && one.x + one.w >= box.x + box.w - 1e-6;
      const inside = one.y <= box.y && one.x >= box.x - 1e-6 && one.x + one.w <= box.x + box.w + 1e-6;
      one.g.style.display = below || inside ? "" : "none";
      if (!below && !inside) continue;
      one.g.style.opacity = below ? 0.5 : 1;
      const x = LEFT + (below ? 0 : WIDTH * (one.x - box.x) / box.w);
      const width = below ? WIDTH : WIDTH * one.w / box.w;
      one.rect.setAttribute("x", x);
      one.rect.setAttribute("width", width);
      one.text.setAttribute("x", x + 3);
      const most = Math.floor((width - 6) / CHARACTER);
      const cut = most > 2 ? one.name.slice(0, most - 1) + "…" : "";
      one.text.textContent = one.name.length <= most ? one.name : cut;
    }
  }

  function search(words) {
    let pattern = null;
    try { pattern = new RegExp(words, "i"); } catch { /* a plain text */ }
    const wanted = words.toLowerCase();
    const found = boxes.filter((box) => words && box !== root &&
      (box.name.toLowerCase().includes(wanted) || (pattern && pattern.test(box.name))));
    for (const box of boxes) box.rect.setAttribute("fill", found.includes(box) ? "#e040e0" : box.colour);
    let sum = 0, end = 0;  // of boxes that are beside one another, from left to right
    for (const box of found.sort((a, b) => a.x - b.x || b.w - a.w)) {
      sum += Math.max(0, box.x + box.w - Math.max(end, box.x));
      end = Math.max(end, box.x + box.w);
    }
    byId("found").textContent = words ? `${words}: ${(100 * sum).toFixed(2)}%` : " ";
  }

  const ask = () => {
    const words = window.prompt("Search functions: a text, or a regular expression", "");
    if (words !== null) search(words);
  };
  const reset = () => { search(""); zoom(root); };
  for (const box of boxes) {
    box.g.style.cursor = "pointer";
    box.g.addEventListener("click", () => zoom(box));
    box.g.addEventListener("mouseover", () => { byId("details").textContent = box.title; });
  }
  byId("search").addEventListener("click", ask);
  byId("reset").addEventListener("click", reset);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/") { event.preventDefault(); ask(); }
    if (event.key === "Escape") reset();
  });
}
