// The page, from its data.

const PARTS = { chart: chartPart, matrix: matrixPart, table: tablePart, timeline: timelinePart };

function pageOf(data) {
  const sections = data.sections.map((section, number) =>
    element("section", { id: `section-${number}`, "aria-labelledby": `heading-${number}` },
      element("h2", { id: `heading-${number}` }, section.title),
      section.subtitle ? element("p", { class: "subtitle" }, section.subtitle) : null,
      ...section.notes.map((note) => element("p", { class: "help" }, note)),
      ...section.parts.map((part) => PARTS[part.kind](part))));
  const contents = data.sections.map((section, number) =>
    element("li", {}, element("a", { href: `#section-${number}` }, section.title)));
  return [
    element("a", { class: "skip", href: "#section-0" }, "Skip to the results"),
    element("header", {},
      element("div", { class: "top" }, element("p", { class: "mark" }, "millpond"), themeButton()),
      element("h1", {}, data.title),
      element("p", { class: "subtitle" }, data.subtitle),
      contents.length > 1 ? element("nav", { "aria-label": "Contents" }, element("ul", {}, ...contents)) : null),
    element("main", {}, ...sections),
    element("footer", {}, ...data.notes.map((note) => element("p", {}, note))),
  ];
}

document.body.append(...pageOf(JSON.parse(document.getElementById("data").textContent)));
document.documentElement.dataset.ready = "yes";
