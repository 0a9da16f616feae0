// Tables that can be sorted.

const ORIGINS = { counted: "counted", measured: "measured", modelled: "modelled", mixed: "measured + modelled" };

/** Where a figure comes from, as a small label. */
function originLabel(origin) {
  return ORIGINS[origin] ? element("span", { class: `origin ${origin}` }, ORIGINS[origin]) : null;
}

function tablePart(table) {
  const notations = table.columns.map((column, index) =>
    notation(column.unit, table.rows.map((row) => row.cells[index]).filter((cell) => typeof cell === "number")));
  const bests = table.columns.map((column, index) => bestOf(table.rows.filter((row) => row.is_compared).map((row) => row.cells[index]), column.better));
  const body = element("tbody");
  const rows = table.rows.map(({ cells, is_compared: isCompared }) => {
    const made = cells.map((cell, index) => tableCell(cell, index, notations[index], isCompared ? bests[index] : undefined));
    return { cells, row: element("tr", {}, ...made) };
  });
  body.append(...rows.map((row) => row.row));

  const headings = table.columns.map((column, index) => {
    const unit = notations[index].name;
    const button = element("button", { type: "button", title: column.help },
      element("span", { class: "name" }, column.name, unit ? element("span", { class: "unit" }, ` ${unit}`) : null),
      element("span", { class: "arrow", "aria-hidden": "true" }));
    const heading = element("th", { scope: "col", "aria-sort": "none", class: column.unit === "text" ? "text" : "number" },
      button, originLabel(column.origin));
    button.addEventListener("click", () => {
      const falling = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      rows.sort((one, other) => compareCells(one.cells[index], other.cells[index], falling));
      body.append(...rows.map((row) => row.row));
    });
    return heading;
  });

  const helps = table.columns.filter((column) => column.unit !== "text");
  return element("div", { class: "card table-card" },
    element("h3", {}, table.title),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.title },
      element("table", { class: helps.length === 0 ? "texts" : "figures" }, element("thead", {}, element("tr", {}, ...headings)), body)),
    ...table.notes.map((note) => element("p", { class: "warning" }, note)),
    helps.length === 0 ? null : element("details", {}, element("summary", {}, "What the columns mean"),
      element("dl", {}, ...helps.flatMap((column) => [
        element("dt", {}, column.name, " ", originLabel(column.origin)),
        element("dd", {}, column.help),
      ]))));
}

function tableCell(cell, index, notation, best) {
  if (typeof cell === "number") {
    const isBest = cell === best;
    return element("td", { class: isBest ? "number best" : "number", "data-value": cell },
      notation.write(cell), isBest ? element("span", { class: "hidden" }, " (best)") : null);
  }
  if (index === 0) return element("th", { scope: "row" }, cell ?? "–");
  return element("td", { class: typeof cell === "string" ? "words" : "number nothing" }, cell ?? "–");
}

/** What is missing comes last, in either order. */
function compareCells(one, other, falling) {
  if (one === null || other === null) return (one === null) - (other === null);
  const order = typeof one === "number" ? one - other : one.localeCompare(other);
  return falling ? -order : order;
}
