// Where blocks lie at a moment: every address at which there ever was a block, side by side, in rows like lines of text.

const LIVES = [
  { name: "under 1 % of the events", below: 0.01 },
  { name: "under 10 %", below: 0.1 },
  { name: "under 50 %", below: 0.5 },
  { name: "longer", below: Infinity },
];

class MemoryMap {
  /** `chart` has the cursor, `live` and `reserved` series, and `maps`. */
  constructor(chart) {
    this.chart = chart;
    this.maps = chart.data.maps.map((map) => unpackedMap(map));
    this.shown = 0;
    this.canvas = element("canvas", { role: "img" });
    this.tooltip = element("div", { class: "tooltip", hidden: true, role: "status" });
    this.summary = element("p", { class: "readout map-summary" });
    this.note = element("p", { class: "help" });
    this.select = element("select", { "aria-label": "Allocator of the memory map" },
      ...chart.data.reserved.map((series, index) => element("option", { value: index }, series.name)));
    this.select.addEventListener("change", () => this.show(Number(this.select.value)));
    this.slider = element("input", { type: "range", min: 0, max: chart.data.events - 1, step: 1, "aria-label": "Moment: number of the event" });
    this.slider.addEventListener("input", () => chart.moveCursor(Number(this.slider.value)));
    this.moment = element("output", { class: "moment" });
    this.history = new History(this);
    this.element = element("figure", { class: "card map-card" },
      element("div", { class: "bar" }, element("h3", {}, "Memory map"), this.select),
      element("div", { class: "slider" }, this.slider, this.moment),
      element("h4", {}, "At this moment"),
      this.summary,
      element("div", { class: "plot map" }, this.canvas, this.tooltip),
      this.history.title,
      this.history.element,
      element("div", { class: "lives" }, element("span", {}, "Blocks that live"),
        ...LIVES.map((life, index) => element("span", { class: "life" }, element("i", { class: `swatch life-${index}` }), life.name)),
        element("span", { class: "life" }, element("i", { class: "swatch unused" }), "no block drawn"),
        element("span", { class: "life" }, element("i", { class: "swatch gap" }), "addresses left out")),
      this.note);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.tooltip.hidden = true; });
  }

  show(index) {
    this.shown = index;
    this.select.value = index;
    const map = this.maps[index];
    const blocks = map.bytes.length;
    const gaps = map.stretches.length - 1;
    this.note.textContent = `Drawn from left to right and from top to bottom, then once more with events to the right and addresses upwards: ${bytesText(map.total)} of addresses, all at which ${this.name()} ever put a block`
      + (gaps > 0 ? `, in ${count(map.stretches.length)} stretches. The ${gaps === 1 ? "gap" : "gaps"} between them, ${bytesText(map.span - map.total)} in all, ${gaps === 1 ? "is" : "are"} left out and marked.` : ", without a gap.")
      + ` Addresses are not memory: under those without a block there may be none. `
      + (blocks < map.blocks
        ? `Of ${count(map.blocks)} blocks ${count(blocks)} are kept, ${percent(map.share)} of all live bytes over time: the largest at the peak of what is live, and those with the most bytes for the longest.`
        : `All ${count(blocks)} blocks are kept.`);
    this.draw();
  }

  name() {
    return this.chart.data.reserved[this.shown].name;
  }

  draw() {
    const map = this.maps[this.shown];
    const event = this.chart.cursor;
    this.slider.value = event;
    this.moment.textContent = `event ${count(event)}`;
    this.slider.setAttribute("aria-valuetext", this.moment.textContent);
    const { context, width, height } = fitted(this.canvas);
    this.layout = layoutOf(map, width, height);
    this.drawRows(context);
    const colours = LIVES.map((_, index) => styled(`--life-${index}`));
    this.live = map.liveAt(event);
    let drawn = 0;
    for (const block of this.live) {
      drawn += map.bytes[block];
      context.fillStyle = colours[lifeOf(map.lasts[block] / this.chart.data.events)];
      for (const [x, y, long] of this.rectangles(map.offset[block], map.bytes[block])) {
        // A hairline tells neighbours apart where there is room for one.
        context.fillRect(x, y, Math.max(long > 3 ? long - 0.75 : long, 0.5), this.layout.high);
      }
    }
    this.drawGaps(context, map);
    this.history.draw();
    this.say(event, drawn);
  }

  /** What the canvas shows, in words. */
  say(event, drawn) {
    const live = this.chart.live.within(event, event);
    const reserved = this.chart.reserved[this.shown].within(event, event);
    if (!reserved || !live) {
      this.summary.textContent = `${this.name()} had stopped before event ${count(event)}: ${this.chart.data.reserved[this.shown].stopped ?? ""}`;
      this.canvas.setAttribute("aria-label", this.summary.textContent);
      return;
    }
    const scale = byteScale(Math.max(reserved.most, live.most));
    const share = live.most > 0 ? drawn / live.most : 1;
    // Within a point that stands for several events less may have been live than at its most.
    const about = live.least === live.most || share >= 1 ? "" : "at least ";
    const text = `${this.name()}: ${spanText(live.least, live.most, scale)} live, ${spanText(reserved.least, reserved.most, scale)} reserved. `
      + `Drawn: ${count(this.live.length)} ${this.live.length === 1 ? "block" : "blocks"}, ${bytesText(drawn, scale)}, ${about}${percent(share)} of what is live.`;
    this.summary.textContent = text;
    Object.assign(this.summary.dataset, { event, drawnBytes: drawn, drawnBlocks: this.live.length });
    this.canvas.setAttribute("aria-label", `Memory map after event ${count(event)}. ${text}`);
  }

  drawRows(context) {
    const { rows, pitch, high, width, total, perRow } = this.layout;
    context.fillStyle = styled("--unused");
    for (let row = 0; row < rows; row += 1) {
      const share = Math.min(1, (total - row * perRow) / perRow);
      if (share > 0) context.fillRect(0, row * pitch, width * share, high);
    }
  }

  drawGaps(context, map) {
    const { perRow, pitch, high, width } = this.layout;
    context.fillStyle = styled("--gap");
    let at = 0;
    for (const [, bytes] of map.stretches.slice(0, -1)) {
      at += bytes;
      const row = Math.floor(at / perRow);
      const x = ((at - row * perRow) / perRow) * width;
      context.fillRect(Math.max(0, x - 1), row * pitch - 2, 2, high + 4);
    }
  }

  /** Where some addresses are on the canvas: left, top and length in each row. */
  * rectangles(offset, bytes) {
    const { perRow, pitch, width } = this.layout;
    const end = offset + bytes;
    for (let at = offset; at < end;) {
      const row = Math.floor(at / perRow);
      const until = Math.min(end, (row + 1) * perRow);
      yield [((at - row * perRow) / perRow) * width, row * pitch, ((until - at) / perRow) * width];
      at = until;
    }
  }

  point(pointer) {
    const { perRow, pitch, width, total } = this.layout;
    const offset = (Math.floor(pointer.offsetY / pitch) + Math.min(pointer.offsetX / width, 0.9999)) * perRow;
    const map = this.maps[this.shown];
    this.tooltip.hidden = offset >= total;
    if (this.tooltip.hidden) return;
    const block = this.live.find((one) => map.offset[one] <= offset && offset < map.offset[one] + map.bytes[one]);
    const address = map.addressOf(block === undefined ? offset : map.offset[block]);
    const lines = block === undefined
      ? [["no block drawn here", ""]]
      : [["block", bytesText(map.bytes[block])],
        ["from event", count(map.from[block])],
        map.from[block] + map.lasts[block] < this.chart.data.events
          ? ["freed at", count(map.from[block] + map.lasts[block])] : ["never freed", ""]];
    this.tooltip.replaceChildren(element("table", {}, ...[...lines, ["address", address]].map(([name, value]) =>
      element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)))));
    placeTooltip(this.tooltip, this.canvas, pointer.offsetX, pointer.offsetY);
  }
}

/** A map as it comes, with its differences summed up. */
function unpackedMap(map) {
  let event = 0;
  const from = map.from.map((after) => (event += after));
  const { offset, bytes, lasts, stretches } = map;
  const total = stretches.reduce((sum, [, long]) => sum + long, 0);
  const last = stretches.at(-1) ?? [0, 0];
  const addressOf = (at) => {
    let begin = 0;
    for (const [address, long] of stretches) {
      if (at < begin + long) return `0x${(BigInt(map.base) + BigInt(address) + BigInt(Math.floor(at - begin))).toString(16)}`;
      begin += long;
    }
    return "";
  };
  const liveAt = (moment) => {
    const live = [];
    for (let block = 0; block < from.length && from[block] <= moment; block += 1) {
      if (moment < from[block] + lasts[block]) live.push(block);
    }
    return live;
  };
  return { from, offset, bytes, lasts, stretches, total, span: last[0] + last[1], blocks: map.blocks, share: map.share, addressOf, liveAt };
}

function layoutOf(map, width, height) {
  const rows = Math.max(1, Math.round(height / 24));
  const pitch = height / rows;
  // A whole number, so that a row's end is exactly the next one's beginning.
  return { rows, pitch, high: pitch - 6, width, total: map.total, perRow: Math.max(1, Math.ceil(map.total / rows)) };
}

function lifeOf(share) {
  return LIVES.findIndex((life) => share < life.below);
}
