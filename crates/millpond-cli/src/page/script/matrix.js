// Who wins where.

function matrixPart(matrix) {
  const card = element("div", { class: "card matrix-card" });
  const place = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": matrix.title });
  if (matrix.rows.length === 1) {
    // One trace: all measures at once.
    place.append(matrixTable(matrix, matrix.measures.map((measure) => ({ measure, row: 0, isNamedByMeasure: true }))));
    card.append(place);
    return card;
  }
  const help = element("p", { class: "help" });
  const buttons = matrix.measures.map((measure) => {
    const button = element("button", { type: "button", "aria-pressed": "false" }, measure.name);
    button.addEventListener("click", () => show(measure));
    return button;
  });
  const show = (measure) => {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", matrix.measures[index] === measure));
    help.replaceChildren(originLabel(measure.origin) ?? "", " ", measure.help);
    place.replaceChildren(matrixTable(matrix, matrix.rows.map((_, row) => ({ measure, row }))));
  };
  card.append(element("div", { class: "choice", role: "group", "aria-label": "Compared by" }, ...buttons), help, place);
  if (matrix.measures.length > 0) show(matrix.measures[0]);
  return card;
}

function matrixTable(matrix, lines) {
  const corner = matrix.rows.length === 1 ? "" : matrix.row_name;
  const head = element("tr", {}, element("th", { scope: "col", class: "text" }, corner),
    ...matrix.columns.map((name) => element("th", { scope: "col", class: "number" }, name)));
  const rows = lines.map(({ measure, row, isNamedByMeasure }) => {
    const cells = measure.cells[row];
    const numbers = cells.map((cell) => cell.value);
    const { name: unit, write } = notation(measure.unit, numbers.filter((number) => number !== null));
    const best = bestOf(numbers, measure.better);
    const heading = isNamedByMeasure
      ? element("th", { scope: "row", title: measure.help }, measure.name, unit ? element("span", { class: "unit" }, ` ${unit}`) : null, originLabel(measure.origin))
      : element("th", { scope: "row" }, matrix.rows[row], unit ? element("span", { class: "unit" }, ` ${unit}`) : null);
    return element("tr", {}, heading, ...cells.map((cell) => matrixCell(cell, best, write)));
  });
  return element("table", { class: matrix.columns.length > 5 ? "matrix wide" : "matrix" }, element("thead", {}, head), element("tbody", {}, ...rows));
}

function matrixCell(cell, best, write) {
  if (cell.value === null) {
    return element("td", { class: "number nothing" }, cell.note ?? "–");
  }
  const isBest = cell.value === best;
  const behind = best > 0 && !isBest ? behindText(cell.value / best) : "";
  const shade = best > 0 && !isBest ? Math.min(1, Math.log2(cell.value / best) / 3) : 0;
  const made = element("td", { class: isBest ? "number best" : "number", "data-value": cell.value },
    element("span", { class: "value" }, write(cell.value)),
    element("span", { class: "behind" }, isBest ? "best" : behind));
  made.style.setProperty("--behind", shade.toFixed(3));
  return made;
}

function behindText(ratio) {
  if (ratio >= 2) return `×${fixed(ratio, ratio < 10 ? 1 : 0)}`;
  const percents = (ratio - 1) * 100;
  return percents < 0.05 ? "+0 %" : `+${fixed(percents, percents < 10 ? 1 : 0)} %`;
}
