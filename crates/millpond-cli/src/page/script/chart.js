// Live and reserved bytes over events.

/** Space around the plot for what is written there. */
const EDGE = { left: 44, right: 14, top: 26, bottom: 26 };
/** A view is never of fewer events. */
const LEAST_VIEW = 10;
/** Allocators that would flatten all others are off at first: those with so many times what is live. */
const OFF_ABOVE = 2.5;
/** How far a pointer moves before it drags. */
const DRAG = 5;

/** One series as it comes, with its differences summed up. */
class Series {
  constructor(data) {
    this.name = data.name;
    this.width = data.width_events;
    this.last = data.last_event;
    this.peak = { bytes: data.peak_bytes, event: data.peak_event };
    this.stopped = data.stopped;
    let sum = 0;
    this.least = Float64Array.from(data.least, (difference) => (sum += difference));
    this.most = Float64Array.from(data.above, (above, index) => this.least[index] + above);
  }

  /** Least and most within some events, both ends included. `null`: it had stopped before them. */
  within(from, to) {
    if (from > this.last) return null;
    const first = Math.max(0, Math.floor(from / this.width));
    const last = Math.min(this.least.length - 1, Math.floor(to / this.width));
    let [least, most] = [Infinity, 0];
    for (let bucket = first; bucket <= last; bucket += 1) {
      least = Math.min(least, this.least[bucket]);
      most = Math.max(most, this.most[bucket]);
    }
    return { least, most };
  }
}

class Chart {
  constructor(data) {
    this.data = data;
    this.events = Math.max(1, data.events);
    this.live = new Series(data.live);
    this.reserved = data.reserved.map((series) => new Series(series));
    this.visible = new Set(this.reserved.keys());
    for (const [index, series] of this.reserved.entries()) {
      if (series.peak.bytes > OFF_ABOVE * this.live.peak.bytes) this.visible.delete(index);
    }
    // All are alike, or alone: nothing is flattened.
    if (this.visible.size === 0) this.visible = new Set(this.reserved.keys());
    this.view = { from: 0, to: this.events };
    this.cursor = Math.min(this.live.peak.event, this.events - 1);
    this.redraw = onceAFrame(() => this.draw());
    this.build();
    this.map = data.maps.length > 0 ? new MemoryMap(this) : null;
  }

  build() {
    const button = (label, text, act) =>
      element("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.tooltip = element("div", { class: "tooltip", hidden: true });
    this.selection = element("div", { class: "selection", hidden: true });
    this.plot = element("div", {
      class: "plot chart", tabindex: "0", role: "slider", "aria-label": `${this.data.title}: moment`,
      "aria-valuemin": 0, "aria-valuemax": this.events - 1, "aria-orientation": "horizontal",
    }, this.canvas, this.selection, this.tooltip);
    this.range = element("p", { class: "range" });
    this.legend = element("div", { class: "legend", role: "group", "aria-label": "Allocators shown" },
      this.legendOfLive(), ...this.reserved.map((series, index) => this.legendButton(series, index)));
    const off = this.reserved.filter((_, index) => !this.visible.has(index)).map((series) => series.name);
    const width = Math.max(...this.reserved.map((series) => series.width), this.live.width);
    this.element = element("figure", { class: "card chart-card" },
      element("div", { class: "bar" },
        element("h3", {}, this.data.title),
        element("div", { class: "buttons" },
          button("Zoom out", "−", () => this.zoom(2, this.cursor)),
          button("Zoom in", "+", () => this.zoom(0.5, this.cursor)),
          button("Show all events", "All", () => this.setView(0, this.events)),
          button("Go to the peak of what is live", "Peak", () => this.moveCursor(this.live.peak.event)))),
      this.legend,
      off.length > 0 ? element("p", { class: "help" }, `Off at first, because it would flatten the others: ${off.join(", ")}.`) : null,
      this.plot, this.range,
      element("p", { class: "help" },
        `Drag or turn the wheel to zoom, click to choose the moment of the memory map. Keys: arrows move it, + and − zoom, Shift with arrows shifts, 0 shows all. `,
        width > 1 ? `A point stands for ${count(width)} events and shows the least and the most of them, so no peak is lost.` : "Every event is a point."));
    this.listen();
  }

  legendOfLive() {
    return element("span", { class: "entry live" }, element("i", { class: "swatch live" }), "live ",
      element("b", { "data-peak-bytes": this.live.peak.bytes, title: `${count(this.live.peak.bytes)} bytes at event ${count(this.live.peak.event)}` }, this.peakText(this.live)));
  }

  legendButton(series, index) {
    const button = element("button", {
      type: "button", class: "entry", "aria-pressed": this.visible.has(index), "data-name": series.name,
      title: `${series.name} reserved ${count(series.peak.bytes)} bytes at the most, at event ${count(series.peak.event)}${series.stopped ? `, and stopped at ${series.stopped}` : ""}`,
    }, lineSwatch(index), `${series.name} `,
    element("b", { "data-peak-bytes": series.peak.bytes }, this.peakText(series)),
    series.stopped ? element("span", { class: "stopped" }, " ran out") : null);
    button.addEventListener("click", () => {
      if (!this.visible.delete(index)) this.visible.add(index);
      button.setAttribute("aria-pressed", this.visible.has(index));
      this.redraw();
    });
    return button;
  }

  peakText(series) {
    return bytesText(series.peak.bytes, byteScale(Math.max(...this.reserved.map((one) => one.peak.bytes), this.live.peak.bytes)));
  }

  listen() {
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.plot.addEventListener("blur", () => { this.tooltip.hidden = true; });
    this.plot.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.plot.addEventListener("pointerdown", (event) => this.press(event));
    this.plot.addEventListener("pointermove", (event) => this.hover(event));
    this.plot.addEventListener("pointerup", (event) => this.release(event));
    this.plot.addEventListener("pointercancel", () => this.forgetDrag());
    this.plot.addEventListener("pointerleave", () => { if (!this.drag) this.tooltip.hidden = true; });
    document.addEventListener("themechange", this.redraw);
    new ResizeObserver(this.redraw).observe(this.plot);
  }

  // Events and places.

  inner() {
    return { left: EDGE.left, top: EDGE.top, wide: Math.max(1, this.plot.clientWidth - EDGE.left - EDGE.right), high: Math.max(1, this.plot.clientHeight - EDGE.top - EDGE.bottom) };
  }

  xOf(event) {
    const { left, wide } = this.inner();
    return left + ((event - this.view.from) / (this.view.to - this.view.from)) * wide;
  }

  eventAt(x) {
    const { left, wide } = this.inner();
    const event = this.view.from + ((x - left) / wide) * (this.view.to - this.view.from);
    return Math.min(Math.max(event, this.view.from), this.view.to);
  }

  setView(from, to) {
    const long = Math.min(Math.max(to - from, Math.min(LEAST_VIEW, this.events)), this.events);
    const begin = Math.min(Math.max(0, (from + to - long) / 2), this.events - long);
    this.view = { from: begin, to: begin + long };
    this.tooltip.hidden = true;
    this.redraw();
  }

  /** Makes the view this many times as long, and leaves an event where it is. */
  zoom(factor, around) {
    const { from, to } = this.view;
    const fixedAt = Math.min(Math.max(around, from), to);
    const long = Math.min(Math.max((to - from) * factor, LEAST_VIEW), this.events);
    const begin = fixedAt - ((fixedAt - from) / (to - from)) * long;
    const clamped = Math.min(Math.max(begin, 0), this.events - long);
    this.setView(clamped, clamped + long);
  }

  moveCursor(event) {
    this.cursor = Math.min(Math.max(Math.round(event), 0), this.events - 1);
    const { from, to } = this.view;
    if (this.cursor < from || this.cursor > to) this.setView(this.cursor - (to - from) / 2, this.cursor + (to - from) / 2);
    this.redraw();
  }

  // What the reader does.

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const long = this.view.to - this.view.from;
    const shift = (by) => this.setView(this.view.from + by, this.view.to + by);
    const step = Math.max(1, Math.round(long / 100));
    const sideways = (direction) => (event.shiftKey ? shift(direction * long / 4) : this.moveCursor(this.cursor + direction * step));
    const acts = {
      ArrowLeft: () => sideways(-1), ArrowRight: () => sideways(1),
      ArrowUp: () => this.zoom(0.5, this.cursor), ArrowDown: () => this.zoom(2, this.cursor),
      "+": () => this.zoom(0.5, this.cursor), "=": () => this.zoom(0.5, this.cursor),
      "-": () => this.zoom(2, this.cursor), "−": () => this.zoom(2, this.cursor),
      0: () => this.setView(0, this.events),
      PageUp: () => this.moveCursor(this.cursor - 10 * step), PageDown: () => this.moveCursor(this.cursor + 10 * step),
      Home: () => this.moveCursor(0), End: () => this.moveCursor(this.events - 1),
      Escape: () => this.forgetDrag(),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    if (event.key === "Escape") return;
    requestAnimationFrame(() => this.showTooltip(this.xOf(this.cursor), EDGE.top, this.cursor, this.cursor));
  }

  wheel(event) {
    const isAll = this.view.to - this.view.from >= this.events;
    // What cannot zoom out further scrolls the page.
    if (event.deltaY === 0 || (event.deltaY > 0 && isAll)) return;
    event.preventDefault();
    this.zoom(Math.exp(Math.min(Math.max(event.deltaY, -200), 200) / 300), this.eventAt(this.localX(event)));
  }

  localX(event) {
    return event.clientX - this.plot.getBoundingClientRect().left;
  }

  press(event) {
    if (event.button !== 0) return;
    this.drag = { from: this.localX(event), isMoved: false };
    this.plot.setPointerCapture(event.pointerId);
  }

  hover(event) {
    const x = this.localX(event);
    if (!this.drag) {
      // What a pixel stands for.
      const [from, to] = [this.eventAt(Math.floor(x)), this.eventAt(Math.floor(x) + 1)];
      this.showTooltip(x, event.clientY - this.plot.getBoundingClientRect().top, Math.floor(from), Math.max(Math.floor(from), Math.ceil(to) - 1));
      return;
    }
    this.drag.isMoved ||= Math.abs(x - this.drag.from) > DRAG;
    if (!this.drag.isMoved) return;
    const { left, wide, top, high } = this.inner();
    const ends = [this.drag.from, x].map((end) => Math.min(Math.max(end, left), left + wide)).sort((one, other) => one - other);
    this.tooltip.hidden = true;
    this.selection.hidden = false;
    Object.assign(this.selection.style, { left: `${ends[0]}px`, width: `${ends[1] - ends[0]}px`, top: `${top}px`, height: `${high}px` });
  }

  release(event) {
    if (!this.drag) return;
    const [from, to] = [this.eventAt(this.drag.from), this.eventAt(this.localX(event))];
    const isDrag = this.drag.isMoved;
    this.forgetDrag();
    if (isDrag) this.setView(Math.min(from, to), Math.max(from, to));
    else this.moveCursor(Math.floor(to));
  }

  forgetDrag() {
    this.drag = null;
    this.selection.hidden = true;
    this.tooltip.hidden = true;
  }

  showTooltip(x, y, from, to) {
    const last = Math.min(to, this.events - 1);
    const shown = [[this.live, "live", null], ...[...this.visible].sort((one, other) => one - other).map((index) => [this.reserved[index], this.reserved[index].name, index])];
    const spans = shown.map(([series]) => series.within(from, last));
    const scale = byteScale(Math.max(0, ...spans.map((span) => span?.most ?? 0)));
    const rows = shown.map(([, name, index], place) => {
      const span = spans[place];
      return element("tr", { "data-name": name, "data-least": span?.least, "data-most": span?.most },
        element("th", { scope: "row" }, index === null ? element("i", { class: "swatch live" }) : lineSwatch(index), name),
        element("td", {}, span ? spanText(span.least, span.most, scale) : "stopped"));
    });
    const events = from >= last ? `event ${count(from)}` : `events ${count(from)}–${count(last)}`;
    Object.assign(this.tooltip.dataset, { from, to: last });
    this.tooltip.replaceChildren(element("p", {}, events), element("table", {}, ...rows));
    this.tooltip.hidden = false;
    placeTooltip(this.tooltip, this.plot, x, y);
  }

  // What is drawn.

  draw() {
    const { context } = fitted(this.canvas);
    if (this.plot.clientWidth === 0) return;
    const columns = this.columns();
    const most = Math.max(1, ...columns.flatMap((one) => one.spans.map((span) => span?.most ?? 0)));
    this.axis = axisOf(most);
    this.drawAxes(context);
    for (const { spans, index } of columns) {
      if (index === null) this.drawLive(context, spans);
      else this.drawReserved(context, spans, index);
    }
    this.drawCursor(context);
    this.say();
    this.map?.draw();
  }

  /** Least and most for each pixel of the width, of what is live and of each allocator that is shown. */
  columns() {
    const { wide } = this.inner();
    const perPixel = (this.view.to - this.view.from) / wide;
    const spansOf = (series) => Array.from({ length: Math.floor(wide) }, (_, pixel) => {
      const from = Math.floor(this.view.from + pixel * perPixel);
      return series.within(from, Math.max(from, Math.ceil(this.view.from + (pixel + 1) * perPixel) - 1));
    });
    return [{ spans: spansOf(this.live), index: null },
      ...[...this.visible].sort((one, other) => one - other).map((index) => ({ spans: spansOf(this.reserved[index]), index }))];
  }

  yOf(bytes) {
    const { top, high } = this.inner();
    return top + high * (1 - bytes / this.axis.most);
  }

  drawAxes(context) {
    const { left, wide, top, high } = this.inner();
    context.font = `11px ${styled("--font")}`;
    context.fillStyle = styled("--faint");
    context.strokeStyle = styled("--grid");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const bytes of this.axis.ticks) {
      const y = Math.round(this.yOf(bytes)) + 0.5;
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(left + wide, y);
      context.stroke();
      context.fillText(bytesIn(this.axis.scale, bytes), left - 8, y);
    }
    context.fillText(this.axis.scale.name, left - 8, 8);
    context.textBaseline = "top";
    for (const event of ticksBetween(this.view.from, this.view.to, Math.max(2, Math.floor(wide / 110)))) {
      const x = this.xOf(event);
      context.textAlign = x > left + wide - 30 ? "right" : x < left + 20 ? "left" : "center";
      context.fillRect(Math.round(x), top + high, 1, 4);
      context.fillText(count(event), x, top + high + 8);
    }
  }

  /** An area: dark up to the least, lighter up to the most. */
  drawLive(context, spans) {
    const { left, top, high } = this.inner();
    for (const [key, colour] of [["most", "--live-most"], ["least", "--live-least"]]) {
      context.fillStyle = styled(colour);
      context.beginPath();
      context.moveTo(left, top + high);
      let pixel = 0;
      for (; pixel < spans.length && spans[pixel]; pixel += 1) {
        context.lineTo(left + pixel, this.yOf(spans[pixel][key]));
        context.lineTo(left + pixel + 1, this.yOf(spans[pixel][key]));
      }
      context.lineTo(left + pixel, top + high);
      context.fill();
    }
  }

  /** A line along the most, and a band down to the least. */
  drawReserved(context, spans, index) {
    const { left } = this.inner();
    const colour = styled(`--series-${index % 12}`);
    const line = new Path2D();
    const band = new Path2D();
    let end = 0;
    for (; end < spans.length && spans[end]; end += 1) {
      const y = this.yOf(spans[end].most);
      for (const path of [line, band]) {
        if (end === 0) path.moveTo(left, y);
        path.lineTo(left + end, y);
        path.lineTo(left + end + 1, y);
      }
    }
    for (let pixel = end - 1; pixel >= 0; pixel -= 1) {
      band.lineTo(left + pixel + 1, this.yOf(spans[pixel].least));
      band.lineTo(left + pixel, this.yOf(spans[pixel].least));
    }
    context.globalAlpha = 0.14;
    context.fillStyle = colour;
    context.fill(band);
    context.globalAlpha = 1;
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.setLineDash(dashOf(index));
    context.stroke(line);
    context.setLineDash([]);
    this.drawMarks(context, this.reserved[index], colour);
  }

  /** A dot on the peak, a cross where it stopped. */
  drawMarks(context, series, colour) {
    const isSeen = (event) => event >= this.view.from && event <= this.view.to;
    if (isSeen(series.peak.event)) {
      context.fillStyle = colour;
      context.beginPath();
      context.arc(this.xOf(series.peak.event + 0.5), this.yOf(series.peak.bytes), 3, 0, 2 * Math.PI);
      context.fill();
    }
    if (series.stopped && isSeen(series.last)) {
      const [x, y] = [this.xOf(series.last), this.yOf(series.most.at(-1))];
      context.lineWidth = 2;
      context.beginPath();
      for (const slope of [-1, 1]) {
        context.moveTo(x - 5, y - 5 * slope);
        context.lineTo(x + 5, y + 5 * slope);
      }
      context.stroke();
    }
  }

  drawCursor(context) {
    const { top, high, left, wide } = this.inner();
    const x = this.xOf(this.cursor + 0.5);
    if (x < left || x > left + wide) return;
    context.fillStyle = styled("--cursor");
    context.fillRect(Math.round(x) - 0.5, top, 1.5, high);
    context.beginPath();
    context.moveTo(x - 5, top - 6);
    context.lineTo(x + 5, top - 6);
    context.lineTo(x, top + 1);
    context.fill();
  }

  /** What the chart shows, for those who do not see it, and for tests. */
  say() {
    const { from, to } = this.view;
    const live = this.live.within(this.cursor, this.cursor);
    const scale = byteScale(this.live.peak.bytes);
    const values = [...this.visible].map((index) => {
      const span = this.reserved[index].within(this.cursor, this.cursor);
      return `${this.reserved[index].name} ${span ? spanText(span.least, span.most, scale) : "stopped"}`;
    });
    this.plot.setAttribute("aria-valuenow", this.cursor);
    this.plot.setAttribute("aria-valuetext", `Event ${count(this.cursor)}: live ${live ? spanText(live.least, live.most, scale) : "unknown"}; reserved: ${values.join(", ")}`);
    Object.assign(this.plot.dataset, { from: Math.floor(from), to: Math.ceil(to), top: this.axis.most });
    this.range.textContent = to - from >= this.events
      ? `All ${count(this.events)} events`
      : `Events ${count(Math.floor(from))} to ${count(Math.ceil(to) - 1)} of ${count(this.events)}`;
  }
}

function chartPart(data) {
  const chart = new Chart(data);
  const parts = document.createDocumentFragment();
  parts.append(chart.element);
  if (chart.map) {
    parts.append(chart.map.element);
    requestAnimationFrame(() => chart.map.show(0));
  }
  return parts;
}

function dashOf(index) {
  return [[], [6, 3], [2, 2]][Math.floor(index / 6) % 3];
}

/** How a series is drawn, for legends. */
function lineSwatch(index) {
  const swatch = element("i", { class: "swatch line", "aria-hidden": "true" });
  swatch.style.setProperty("--colour", `var(--series-${index % 12})`);
  swatch.style.borderTopStyle = ["solid", "dashed", "dotted"][Math.floor(index / 6) % 3];
  return swatch;
}

/** Round numbers from 0 to at least `most`, in the unit that they are written in. */
function axisOf(most) {
  const full = byteScale(most);
  const step = niceStep((most / full.bytes) / 4) * full.bytes;
  const top = most * 1.04;
  const ticks = [];
  for (let bytes = 0; bytes <= top; bytes += step) ticks.push(bytes);
  const isWhole = Number.isInteger(step / full.bytes);
  return { most: top, ticks, scale: { ...full, decimals: isWhole ? 0 : step < full.bytes / 10 ? 2 : 1 } };
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= least);
}

/** Round event numbers within a view. */
function ticksBetween(from, to, most) {
  const step = Math.max(1, Math.ceil(niceStep((to - from) / most)));
  const ticks = [];
  for (let event = Math.ceil(from / step) * step; event <= to; event += step) ticks.push(event);
  return ticks;
}

/** Beside a point, and never outside of what it belongs to. */
function placeTooltip(tooltip, place, x, y) {
  const { offsetWidth: wide, offsetHeight: high } = tooltip;
  const left = x + 14 + wide <= place.clientWidth ? x + 14 : x - 14 - wide;
  tooltip.style.left = `${Math.min(Math.max(0, left), Math.max(0, place.clientWidth - wide))}px`;
  tooltip.style.top = `${Math.max(0, Math.min(y + 12, place.clientHeight - high))}px`;
}
