"use strict";
// Sorting, filtering and copying of the tables; without this script they are complete as they are.
(() => {
  const FIRST_ROWS = 12;  // of a long table, until the reader asks for more
  const SCALE = {
    ns: 1e-9, "µs": 1e-6, ms: 1e-3, min: 60, h: 3600,
    KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40,
  };
  const figure = (text) => {  // of "1,024", "4.10 ms" or "1.06 GiB"; what is none sorts last
    const [, number, unit] = /^([-+]?[\d.,]+(?:e[-+]?\d+)?)\s*(\S*)/.exec(text) ?? [];
    return number === undefined ? -Infinity : Number(number.replaceAll(",", "")) * (SCALE[unit] ?? 1);
  };
  for (const table of document.querySelectorAll("section .scroll > table")) {
    const rows = [...table.rows].slice(1);
    if (rows.length < 2) continue;
    const body = table.tBodies[0];
    let refresh = () => {};
    const value = (row, column) => {
      const cell = row.cells[column];
      return cell ? (cell.dataset.value ?? cell.textContent) : "";
    };

    const sort = (column, header) => {
      const descending = header.getAttribute("aria-sort") !== "descending";
      const numbers = header.classList.contains("number");
      const compare = (a, b) => {
        const x = value(a, column), y = value(b, column);
        if (!numbers) return x.localeCompare(y);
        const [first, second] = [figure(x), figure(y)];
        return first === second ? 0 : first - second;
      };
      rows.sort((a, b) => (descending ? -1 : 1) * compare(a, b));
      for (const other of table.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", descending ? "descending" : "ascending");
      body.append(...rows);
      refresh();
    };
    [...table.rows[0].cells].forEach((header, column) => {
      if (!header.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.addEventListener("click", () => sort(column, header));
      header.replaceChildren(button);
    });

    const tools = document.createElement("div");
    tools.className = "tabletools";
    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = "filter rows";
    filter.setAttribute("aria-label", "Filter rows");
    const more = document.createElement("button");
    more.type = "button";
    const leftOut = Number(table.dataset.leftOut ?? 0);
    more.textContent = leftOut
      ? `show ${rows.length} of ${rows.length + leftOut} rows` : `show all ${rows.length} rows`;
    let all = rows.length <= FIRST_ROWS + 3;
    const matching = () => rows.filter((row) => row.textContent.toLowerCase().includes(filter.value.toLowerCase()));
    refresh = () => {
      const shown = new Set(all || filter.value ? matching() : rows.slice(0, FIRST_ROWS));
      for (const row of rows) row.hidden = !shown.has(row);
      more.hidden = all || filter.value !== "";
    };
    filter.addEventListener("input", refresh);
    more.addEventListener("click", () => { all = true; refresh(); rows[FIRST_ROWS].scrollIntoView({ block: "nearest" }); });
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "copy as CSV";
    copy.addEventListener("click", async () => {
      const quoted = (text) => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
      const heads = [...table.rows[0].cells].map((cell) => quoted(
        cell.textContent + (cell.dataset.unit ? ` (${cell.dataset.unit})` : "")));
      const lines = matching().map((row) =>
        [...row.cells].map((cell, column) => quoted(value(row, column))).join(","));
      const csv = [heads.join(","), ...lines].join("\n");
      try {
        await navigator.clipboard.writeText(csv);
        copy.textContent = "copied";
      } catch {  // not allowed here: let the reader take it
        const area = document.createElement("textarea");
        area.value = csv;
        area.rows = 8;
        area.style.width = "100%";
        tools.after(area);
        area.select();
      }
    });
    tools.append(filter, copy);
    table.parentElement.before(tools);
    table.parentElement.after(more);
    refresh();
  }
})();
