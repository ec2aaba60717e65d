"use strict";
// The theme, which all pages share, and tables that a click on a heading sorts.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  // A page opened from disk may have no storage: the choice then lasts as long as the page.
  const stored = (value) => {
    try {
      if (value) localStorage.setItem("report-theme", value);
      return localStorage.getItem("report-theme");
    } catch { return null; }
  };
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const changed = () => { button.textContent = dark() ? "Light" : "Dark"; root.classList.toggle("dark", dark()); dispatchEvent(new Event("theme")); };
  const kept = stored();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; stored(root.dataset.theme); changed(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  changed();

  const key = (row, column) => {
    const cell = row.cells[column];
    const text = (cell.dataset.sort ?? cell.textContent.trim()).replace("−", "-").replace(/(\d),(?=\d{3})/g, "$1");
    return text === "" || Number.isNaN(Number(text)) ? text : Number(text);
  };
  const order = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (!head.textContent) return;
      const name = document.createElement("button");
      name.type = "button";
      name.textContent = head.textContent;
      head.replaceChildren(name);
      name.addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "descending" || !head.classList.contains("n") && !head.ariaSort ? 1 : -1;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows];
        table.tBodies[0].append(...rows.sort((a, b) => sign * order(key(a, column), key(b, column))));
      });
    });
  }
})();
