// Who did what when.

const LINE_HEIGHT = 30;
const AXIS_HEIGHT = 22;
const LABEL_WIDTH = 76;

function timelinePart(timeline) {
  const canvas = element("canvas", { class: "timeline", tabindex: "0", role: "img", "aria-label": `${timeline.title}: ${timeline.lines.length} lines over ${fixed(timeline.seconds, 1)} seconds` });
  canvas.style.height = `${timeline.lines.length * LINE_HEIGHT + AXIS_HEIGHT}px`;
  canvas.style.width = "100%";
  canvas.style.display = "block";
  const readout = element("p", { class: "readout", "aria-live": "polite" }, "Point at a moment to read it.");
  const view = { from: 0, to: timeline.seconds };
  const draw = onceAFrame(() => drawTimeline(canvas, timeline, view));
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - LABEL_WIDTH) / Math.max(1, box.width - LABEL_WIDTH);
    return view.from + Math.min(1, Math.max(0, share)) * (view.to - view.from);
  };
  const zoom = (factor, middle) => {
    const width = Math.min(timeline.seconds, Math.max(timeline.seconds / 100000, (view.to - view.from) * factor));
    view.from = Math.max(0, Math.min(timeline.seconds - width, middle - (middle - view.from) * (width / (view.to - view.from))));
    view.to = view.from + width;
    draw();
  };
  const move = (share) => {
    const width = view.to - view.from;
    view.from = Math.max(0, Math.min(timeline.seconds - width, view.from + share * width));
    view.to = view.from + width;
    draw();
  };
  canvas.addEventListener("mousemove", (event) => {
    readout.textContent = momentText(timeline, at(event));
  });
  canvas.addEventListener("click", (event) => zoom(event.shiftKey ? 2 : 0.5, at(event)));
  const middle = () => (view.from + view.to) / 2;
  const button = (label, name, act) => element("button", { type: "button", "aria-label": name, onclick: act }, label);
  const buttons = element("div", { class: "buttons" },
    button("−", "Show more time", () => zoom(2, middle())),
    button("+", "Show less time", () => zoom(0.5, middle())),
    button("◀", "Earlier", () => move(-0.5)),
    button("▶", "Later", () => move(0.5)),
    button("All", "Show all of it", () => zoom(Infinity, middle())));
  const legend = element("div", { class: "legend" }, ...timeline.kinds.map((kind, number) => {
    const patch = element("span", { class: "patch" });
    patch.style.cssText = `display:inline-block;width:12px;height:12px;border-radius:3px;background:var(${kindColour(number)})`;
    return element("span", { class: "entry", title: kind.help }, patch, kind.name);
  }));
  new ResizeObserver(draw).observe(canvas);
  document.addEventListener("themechange", draw);
  return element("div", { class: "card timeline-card" },
    element("div", { class: "bar" }, element("h3", {}, timeline.title), buttons), legend, readout, canvas);
}

/** Waiting is grey, moving warns, and computing stands out. */
function kindColour(number) {
  return ["--live-least", "--series-1", "--series-0", "--series-2"][number % 4];
}

function momentText(timeline, moment) {
  const doing = timeline.lines.map((line) => {
    const span = line.spans.find(([from, to]) => from <= moment && moment < to);
    return `${line.name}: ${span ? timeline.kinds[span[2]].name : "not there"}`;
  });
  return `${fixed(moment, 2)} s · ${doing.join(" · ")}`;
}

function drawTimeline(canvas, timeline, view) {
  const { context, width, height } = fitted(canvas);
  const place = (seconds) => LABEL_WIDTH + ((seconds - view.from) / (view.to - view.from)) * (width - LABEL_WIDTH);
  const colours = timeline.kinds.map((_, number) => styled(kindColour(number)));
  context.font = `12px ${styled("--font")}`;
  context.textBaseline = "middle";
  timeline.lines.forEach((line, number) => {
    const top = number * LINE_HEIGHT;
    context.fillStyle = styled("--soft");
    context.fillText(line.name, 0, top + LINE_HEIGHT / 2, LABEL_WIDTH - 8);
    for (const [from, to, kind] of line.spans) {
      if (to < view.from || from > view.to) continue;
      const left = Math.max(LABEL_WIDTH, place(from));
      const right = Math.min(width, place(to));
      context.fillStyle = colours[kind];
      context.fillRect(left, top + 4, Math.max(0.5, right - left), LINE_HEIGHT - 8);
    }
  });
  context.fillStyle = styled("--faint");
  const step = niceSeconds((view.to - view.from) / Math.max(2, (width - LABEL_WIDTH) / 90));
  for (let second = Math.ceil(view.from / step) * step; second <= view.to; second += step) {
    context.fillRect(place(second), height - AXIS_HEIGHT, 1, 5);
    const text = `${fixed(second, step < 1 ? 2 : 0)} s`;
    // The last one may have no room behind its mark.
    const left = Math.min(place(second) + 3, width - context.measureText(text).width);
    context.fillText(text, left, height - AXIS_HEIGHT / 2);
  }
  canvas.dataset.from = view.from;
  canvas.dataset.to = view.to;
}

function niceSeconds(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least);
}
