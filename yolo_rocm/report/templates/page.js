"use strict";
(() => {
  // tables sort by a click on a heading and show the rows that hold every word of the filter
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = cell.textContent;
      cell.textContent = "";
      cell.appendChild(button);
      button.addEventListener("click", () => {
        const up = cell.getAttribute("aria-sort") ? cell.getAttribute("aria-sort") === "descending" : !cell.classList.contains("number");
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => row.cells[column].dataset.v;
        const numeric = cell.classList.contains("number");
        const rows = [...body.rows].sort((a, b) => {
          if (numeric) {
            if (key(a) === undefined || key(b) === undefined) return (key(a) === undefined) - (key(b) === undefined);
            return (Number(key(a)) - Number(key(b))) * (up ? 1 : -1);
          }
          return a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true }) * (up ? 1 : -1);
        });
        body.append(...rows);
      });
    });
    const finder = table.parentElement.parentElement.querySelector(".finder");
    const input = finder.querySelector("input[type=search]"), more = finder.querySelector("input.untimed");
    function filter() {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let seen = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word)) || (more && !more.checked && row.classList.contains("untimed"));
        seen += row.hidden ? 0 : 1;
      }
      finder.querySelector(".count").textContent = seen < body.rows.length ? `${seen} of ${body.rows.length} rows` : `${seen} rows`;
    }
    for (const each of [input, more]) if (each) each.addEventListener("input", filter);
    filter();
  }

  // paper has nothing to click on
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const each of closed) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of closed) each.open = false; });
})();
