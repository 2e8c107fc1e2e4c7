// Draws the timeline. It knows no events of mouse or keyboard.
class TimelineView {
  static ROW = 17;
  static RULER = 24;
  static COUNTER = 44;
  static FINDING = 15;

  constructor(canvas, data) {
    Object.assign(this, data);
    this.canvas = canvas;
    this.paint = canvas.getContext("2d");
    this.from = 0;
    this.to = this.head.ticks;
    this.scroll = 0;
    this.folded = new Set();
    this.selected = -1;
    this.matches = new Int32Array(0);
    this.searching = false;
    this.measure = null;
    this.mark = null;  // what a link chose
    this.place = -1;  // which of its places
    this.findings = this.head.marks.filter((mark) => mark.key.startsWith("finding "));
    this.lanes = this.head.lanes.map((lane) => ({ ...lane, tracks: [] }));
    this.head.tracks.forEach(([lane, depth, first, count]) => {
      this.lanes[lane].tracks.push({ depth, first, end: first + count });
    });
    this.hues = this.head.names.map((name) => {
      let hash = 7;
      for (let i = 0; i < Math.min(name.length, 60); i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
      return (hash >>> 0) % 360;
    });
    this.layOut();
  }

  layOut() {
    let y = TimelineView.RULER + this.findings.length * TimelineView.FINDING + 6;
    this.counterTop = y;
    y += this.head.counters.length * TimelineView.COUNTER;
    this.lanes.forEach((lane, i) => {
      lane.top = y;
      const deepest = Math.max(...lane.tracks.map((track) => track.depth));
      y += (this.folded.has(i) ? 1 : deepest + 1) * TimelineView.ROW + 8;
      lane.bottom = y;
    });
    this.height = y;
  }

  resize() {
    const scale = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.shown = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.shown * scale);
    this.paint.setTransform(scale, 0, 0, scale, 0, 0);
    this.gutter = this.width < 600 ? 84 : 150;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries(
      ["paper", "card", "ink", "soft", "line", "device", "idle", "exposed"].map((n) => [n, colour(n)]));
    this.dark = matchMedia("(prefers-color-scheme: dark)").matches;
    this.fills = this.hues.map((hue) => `hsl(${hue} ${this.dark ? "45% 32%" : "60% 78%"})`);
    this.show(this.from, this.to);
  }

  show(from, to) {
    const whole = this.head.ticks;
    const length = Math.min(Math.max(to - from, 20), whole);
    this.from = Math.min(Math.max(from, 0), whole - length);
    this.to = this.from + length;
    if (!this.waiting) this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  scrollTo(y) {
    this.scroll = Math.min(Math.max(y, 0), Math.max(this.height - this.shown, 0));
    this.show(this.from, this.to);
  }

  pixel(tick) {
    return this.gutter + (tick - this.from) / (this.to - this.from) * (this.width - this.gutter);
  }

  tick(pixel) {
    return this.from + (pixel - this.gutter) / (this.width - this.gutter) * (this.to - this.from);
  }

  tickOf(ns) { return (ns - this.head.start_ns) / this.head.tick_ns; }
  nsOf(tick) { return this.head.start_ns + tick * this.head.tick_ns; }

  draw() {
    const { paint, colours } = this;
    paint.fillStyle = colours.card;
    paint.fillRect(0, 0, this.width, this.shown);
    paint.font = "11px system-ui, sans-serif";
    paint.textBaseline = "middle";
    this.drawSteps();
    this.head.counters.forEach((counter, i) => this.drawCounter(counter, i));
    this.lanes.forEach((lane, i) => this.drawLane(lane, i));
    this.drawPlaces();
    this.drawLabels();
    this.drawRuler();
    if (this.measure) this.drawMeasure();
  }

  drawSteps() {
    this.head.steps.forEach(([, start, end], i) => {
      const x0 = Math.max(this.pixel(this.tickOf(start)), this.gutter), x1 = this.pixel(this.tickOf(end));
      if (i % 2 || x1 < this.gutter || x0 > this.width) return;
      this.paint.fillStyle = this.colours.paper;
      this.paint.fillRect(x0, 0, x1 - x0, this.shown);
    });
  }

  drawCounter(counter, i) {
    const top = this.counterTop + i * TimelineView.COUNTER - this.scroll;
    if (top > this.shown || top + TimelineView.COUNTER < 0) return;
    const { least, most } = counter;
    const y = (value) => top + TimelineView.COUNTER - 6 - (value - least) / (most - least) * (TimelineView.COUNTER - 12);
    const { paint } = this;
    paint.strokeStyle = this.colours.device;
    paint.beginPath();
    counter.times_ns.forEach((ns, k) => paint.lineTo(this.pixel(this.tickOf(ns)), y(counter.values[k])));
    paint.stroke();
  }

  drawLane(lane, number) {
    const top = lane.top - this.scroll;
    if (top > this.shown || lane.bottom - this.scroll < TimelineView.RULER) return;
    this.paint.fillStyle = this.colours.line;
    this.paint.fillRect(0, top - 4, this.width, 1);
    for (const track of lane.tracks) {
      if (this.folded.has(number) && track.depth > 0) continue;
      const y = top + track.depth * TimelineView.ROW;
      if (y < this.shown && y > this.counterTop - TimelineView.ROW) this.drawTrack(track, y);
    }
  }

  firstSeen(track) {
    const i = notBefore(this.start, this.from, track.first, track.end);
    const before = i - 1;
    return before >= track.first && this.start[before] + this.duration[before] > this.from ? before : i;
  }

  drawTrack(track, y) {
    const { start, duration, gutter } = this;
    const scale = (this.width - gutter) / (this.to - this.from);
    let i = this.firstSeen(track);
    while (i < track.end && start[i] < this.to) {
      const x0 = gutter + (start[i] - this.from) * scale;
      const width = duration[i] * scale;
      this.drawSlice(i, x0, Math.max(width, 1), y);
      if (width >= 1) { i++; continue; }
      // Everything that begins in this pixel is covered by it, but the last may reach further.
      const edge = this.from + (Math.floor(x0) + 1 - gutter) / scale;
      const next = notBefore(start, edge, i + 1, track.end);
      i = next - 1 > i && start[next - 1] + duration[next - 1] > edge ? next - 1 : next;
    }
    if (this.searching) this.drawMatches(track, y);
  }

  drawSlice(i, x0, width, y) {
    const { paint } = this;
    const left = Math.max(x0, this.gutter), right = Math.min(x0 + width, this.width);
    if (right <= this.gutter) return;
    paint.globalAlpha = this.searching ? 0.35 : 1;
    paint.fillStyle = this.count[i] ? this.colours.line : this.fills[this.name[i]];
    paint.fillRect(left, y, Math.max(right - left - (width > 3 ? 0.6 : 0), 0.8), TimelineView.ROW - 2);
    paint.globalAlpha = 1;
    if (right - left > 28) this.drawText(this.title(i), left + 3, y, right - left - 6);
    if (i === this.selected) this.outline(left, right, y, this.colours.ink);
  }

  drawText(text, x, y, room, colour = this.colours.ink) {
    const fits = Math.floor(room / 6.4);
    this.paint.fillStyle = colour;
    this.paint.fillText(text.length > fits ? text.slice(0, Math.max(fits - 1, 0)) + "…" : text,
      x, y + TimelineView.ROW / 2);
  }

  drawMatches(track, y) {
    let k = notBefore(this.matches, this.firstSeen(track), 0, this.matches.length);
    let last = -1;
    for (; k < this.matches.length; k++) {
      const i = this.matches[k];
      if (i >= track.end || this.start[i] > this.to) break;
      const x0 = Math.max(this.pixel(this.start[i]), this.gutter);
      const x1 = Math.min(this.pixel(this.start[i] + this.duration[i]), this.width);
      if (x1 < last + 1) continue;
      last = Math.max(x1, x0 + 2);
      this.paint.fillStyle = this.colours.exposed;
      this.paint.fillRect(x0, y, Math.max(x1 - x0, 2), TimelineView.ROW - 2);
      if (x1 - x0 > 28) this.drawText(this.title(i), x0 + 3, y, x1 - x0 - 6, "#1d2125");
      if (i === this.selected) this.outline(x0, x1, y, this.colours.ink);
    }
  }

  outline(left, right, y, colour) {
    this.paint.strokeStyle = colour;
    this.paint.lineWidth = 2;
    this.paint.strokeRect(left, y, Math.max(right - left, 2), TimelineView.ROW - 2);
    this.paint.lineWidth = 1;
  }

  // A row a finding, with everything that it is made of; and what a link chose, over all lanes.
  drawPlaces() {
    const { paint } = this;
    if (this.mark) {
      paint.globalAlpha = 0.16;
      paint.fillStyle = this.colours.exposed;
      this.drawStretches(this.mark, this.counterTop, this.shown);
      const { starts, ends } = placesOf(this.mark, this);
      if (this.place >= 0) {
        const x0 = this.pixel(starts[this.place]), x1 = Math.max(this.pixel(ends[this.place]), x0 + 2);
        paint.globalAlpha = 1;
        paint.strokeStyle = this.colours.exposed;
        if (x1 > this.gutter && x0 < this.width) {
          paint.strokeRect(x0, TimelineView.RULER - 5, x1 - x0, this.shown);
        }
      }
      paint.globalAlpha = 1;
    }
    this.findings.forEach((mark, i) => {
      const top = TimelineView.RULER + i * TimelineView.FINDING;
      paint.fillStyle = this.colours.card;
      paint.fillRect(this.gutter, top, this.width - this.gutter, TimelineView.FINDING);
      paint.fillStyle = mark === this.mark ? this.colours.exposed : this.colours.idle;
      this.drawStretches(mark, top + 2, TimelineView.FINDING - 4);
    });
  }

  // Places that touch on the screen are one rectangle.
  drawStretches(mark, top, height) {
    const { starts, ends } = placesOf(mark, this);
    let left = -1, right = -1;
    for (let k = 0; k <= starts.length; k++) {
      const x0 = k < starts.length ? Math.max(this.pixel(starts[k]), this.gutter) : Infinity;
      if (x0 <= right + 1 && k < starts.length) {
        right = Math.max(right, Math.min(this.pixel(ends[k]), this.width));
        continue;
      }
      if (right > this.gutter && left < this.width) this.paint.fillRect(left, top, right - left, height);
      if (k === starts.length) break;
      [left, right] = [x0, Math.max(Math.min(this.pixel(ends[k]), this.width), x0 + 1.5)];
      if (this.pixel(ends[k]) < this.gutter) right = -1;
    }
  }

  drawLabels() {
    const { paint } = this;
    paint.fillStyle = this.colours.card;
    paint.fillRect(0, 0, this.gutter - 4, this.shown);
    const room = this.gutter - 16;
    this.findings.forEach((mark, i) => {
      this.drawText(mark.label, 4, TimelineView.RULER + i * TimelineView.FINDING - 1, room);
    });
    this.head.counters.forEach((counter, i) => {
      const top = this.counterTop + i * TimelineView.COUNTER - this.scroll;
      this.drawText(counter.label, 4, top + 4, room);
      this.drawText(counter.range, 4, top + 18, room, this.colours.soft);
    });
    this.lanes.forEach((lane, i) => {
      const top = lane.top - this.scroll;
      if (top > this.shown || top < this.counterTop - 4) return;
      const sign = lane.tracks.length > 1 ? (this.folded.has(i) ? "▸ " : "▾ ") : "";
      this.drawText(sign + lane.label, 4, top, room);
    });
  }

  drawRuler() {
    const { paint } = this;
    paint.fillStyle = this.colours.card;
    paint.fillRect(0, 0, this.width, TimelineView.RULER - 6);
    const rough = (this.to - this.from) * this.head.tick_ns * 90 / (this.width - this.gutter);
    const power = 10 ** Math.floor(Math.log10(rough));
    const every = power * [1, 2, 5, 10].find((m) => m * power >= rough);
    const end = this.nsOf(this.to);
    for (let ns = Math.ceil(this.nsOf(this.from) / every) * every; ns <= end; ns += every) {
      const x = this.pixel(this.tickOf(ns));
      paint.fillStyle = this.colours.line;
      paint.fillRect(x, 0, 1, TimelineView.RULER - 6);
      const [unit, size] = every >= 1e9 ? ["s", 1e9] : every >= 1e6 ? ["ms", 1e6]
        : every >= 1e3 ? ["µs", 1e3] : ["ns", 1];
      paint.fillStyle = this.colours.soft;
      paint.fillText(`${+(ns / size).toFixed(1)} ${unit}`, x + 3, 8);
    }
    let free = 0;
    for (const [number, start] of this.head.steps) {
      const x = this.pixel(this.tickOf(start));
      if (x < Math.max(this.gutter, free) || x > this.width) continue;
      free = x + 52;
      paint.fillStyle = this.colours.ink;
      paint.fillRect(x, 14, 1, 8);
      paint.fillText(`step ${number}`, x + 3, 18);
    }
  }

  drawMeasure() {
    const [a, b] = this.measure.map((tick) => this.pixel(tick));
    this.paint.globalAlpha = 0.18;
    this.paint.fillStyle = this.colours.device;
    this.paint.fillRect(Math.min(a, b), 0, Math.abs(b - a), this.shown);
    this.paint.globalAlpha = 1;
  }

  title(i) {
    return this.count[i] ? `${this.count[i].toLocaleString("en")} short events` : this.head.names[this.name[i]];
  }

  // The lane under a y, or -1.
  laneAt(y) {
    const inside = y + this.scroll;
    return y < this.counterTop ? -1
      : this.lanes.findIndex((lane) => inside >= lane.top - 4 && inside < lane.bottom - 4);
  }

  // The finding whose row is under a y, or undefined.
  findingAt(y) {
    return this.findings[Math.floor((y - TimelineView.RULER) / TimelineView.FINDING)];
  }

  // The slice at a place, with three pixels of tolerance, or -1.
  sliceAt(x, y) {
    const lane = this.lanes[this.laneAt(y)];
    if (!lane) return -1;
    const depth = Math.floor((y + this.scroll - lane.top) / TimelineView.ROW);
    const track = lane.tracks.find((t) => t.depth === depth);
    if (!track) return -1;
    const reach = 3 * (this.to - this.from) / (this.width - this.gutter);
    const at = this.tick(x);
    const i = notBefore(this.start, at, track.first, track.end);
    if (i > track.first && this.start[i - 1] + this.duration[i - 1] >= at - reach) return i - 1;
    return i < track.end && this.start[i] <= at + reach ? i : -1;
  }

  // The slice around a slice: on the same lane, one level up.
  caller(i) {
    const [lane, depth] = this.head.tracks[this.track[i]];
    const track = this.lanes[lane].tracks.find((t) => t.depth === depth - 1);
    if (!track) return -1;
    const at = notBefore(this.start, this.start[i] + 1, track.first, track.end) - 1;
    return at >= track.first && this.start[at] + this.duration[at] >= this.start[i] ? at : -1;
  }

  bringToView(i) {
    const [lane, depth] = this.head.tracks[this.track[i]];
    if (depth > 0 && this.folded.delete(lane)) this.layOut();
    const y = this.lanes[lane].top + depth * TimelineView.ROW;
    if (y < this.scroll + this.counterTop || y > this.scroll + this.shown - 30) {
      this.scrollTo(y - this.shown / 2);
    }
  }
}
