// Where blocks lay over all events of the view: addresses upwards, events to the right, as in the chart above.

class History {
  /** `map` has the blocks and what is shown of them. */
  constructor(map) {
    this.map = map;
    this.chart = map.chart;
    this.canvas = element("canvas", { role: "img", "aria-label": "Addresses of blocks over events, in the view of the chart" });
    this.title = element("h4");
    this.element = element("div", { class: "plot history" }, this.canvas);
    this.canvas.addEventListener("click", (event) => this.chart.moveCursor(Math.floor(this.chart.eventAt(event.offsetX))));
  }

  draw() {
    const map = this.map.maps[this.map.shown];
    const { context, width, height } = fitted(this.canvas);
    const { view, data } = this.chart;
    const inner = { left: EDGE.left, wide: width - EDGE.left - EDGE.right, top: 8, high: height - 16 };
    const yOf = (offset) => inner.top + inner.high * (1 - offset / Math.max(1, map.total));
    context.fillStyle = styled("--unused");
    context.fillRect(inner.left, inner.top, inner.wide, inner.high);
    context.save();
    context.beginPath();
    context.rect(inner.left, inner.top, inner.wide, inner.high);
    context.clip();
    const colours = LIVES.map((_, index) => styled(`--life-${index}`));
    for (let block = 0; block < map.from.length && map.from[block] <= view.to; block += 1) {
      const end = map.from[block] + map.lasts[block];
      if (end < view.from) continue;
      const [x, until] = [this.chart.xOf(map.from[block]), this.chart.xOf(end)];
      const [y, bottom] = [yOf(map.offset[block] + map.bytes[block]), yOf(map.offset[block])];
      context.fillStyle = colours[lifeOf(map.lasts[block] / data.events)];
      context.fillRect(x, y, Math.max(0.5, until - x), Math.max(0.5, bottom - y - (bottom - y > 4 ? 0.5 : 0)));
    }
    context.restore();
    this.drawEdges(context, map, inner, yOf);
  }

  drawEdges(context, map, { left, wide, top, high }, yOf) {
    context.fillStyle = styled("--gap");
    let at = 0;
    for (const [, bytes] of map.stretches.slice(0, -1)) {
      at += bytes;
      context.fillRect(left - 4, yOf(at) - 0.5, 4, 1);
    }
    context.font = `11px ${styled("--font")}`;
    context.fillStyle = styled("--faint");
    context.textAlign = "right";
    context.textBaseline = "middle";
    const axis = axisOf(Math.max(1, map.total));
    this.title.textContent = `Over the events of the chart: addresses in ${axis.scale.name}`;
    for (const bytes of axis.ticks.filter((tick) => tick <= map.total)) {
      context.fillText(bytesIn(axis.scale, bytes), left - 8, Math.min(yOf(bytes), top + high - 4));
    }
    const x = this.chart.xOf(this.chart.cursor + 0.5);
    if (x < left || x > left + wide) return;
    context.fillStyle = styled("--cursor");
    context.fillRect(Math.round(x) - 0.5, top, 1.5, high);
  }
}
