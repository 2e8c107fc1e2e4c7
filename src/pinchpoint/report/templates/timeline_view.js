// Draws the timeline. It knows no events of mouse or keyboard.
//
// A track is one line of pixels, written once and repeated for the height of the row: a million
// slices cost what is seen of them.
class TimelineView extends TimelineLayout {
  static HUES = { blue: 213, violet: 272, teal: 184, green: 140, olive: 62, red: 4, orange: 30, grey: 0, pink: 325, brown: 20 };
  static EDGE = 2;  // pixels of strong colour below each slice, to tell kinds apart

  constructor(canvas, data) {
    super(canvas, data);
    this.paint = canvas.getContext("2d", { alpha: false });
    this.matches = new Int32Array(0);
    this.searching = false;
    this.area = null;  // ticks from and to, and lanes; null: all lanes
    this.mark = null;  // what a link chose
    this.place = -1;  // which of its places
    this.pathShown = false;
    this.hovered = -1;
    this.drawn = () => {};  // called after each frame
    // Two names of one kind should look apart where they touch.
    this.shade = this.head.names.map((name) => {
      let hash = 7;
      for (let i = 0; i < Math.min(name.length, 60); i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
      return (hash >>> 0) % 3;
    });
  }

  resize() {
    const scale = window.devicePixelRatio || 1;
    this.scale = scale;
    this.width = this.canvas.clientWidth;
    this.shown = this.canvas.clientHeight;
    if (!this.width || !this.shown) return;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.shown * scale);
    this.image = this.paint.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    for (const line of ["line", "edge", "backdrop"]) this[line] = new Uint32Array(this.canvas.width);
    this.gutter = this.width < 600 ? 96 : 170;
    this.layOut();
    this.dress();
    this.show(this.from, this.to);
  }

  // Colours of the page and of kinds, as the scheme has them.
  dress() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries(
      ["paper", "card", "ink", "soft", "line", "device", "idle", "exposed", "good"].map((n) => [n, colour(n)]));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const [spread, soft, vivid] = dark ? [[22, 27, 32], 40, 58] : [[85, 79, 73], 62, 44];
    const fills = this.head.kinds.map(([, , css]) => spread.map((light) =>
      packed(TimelineView.HUES[css], css === "grey" ? 0 : soft, light)));
    const edges = this.head.kinds.map(([, , css]) => packed(TimelineView.HUES[css], css === "grey" ? 0 : 55, vivid));
    this.fills = Uint32Array.from(this.head.kind, (kind, entry) => fills[kind][this.shade[entry]]);
    this.edges = Uint32Array.from(this.head.kind, (kind) => edges[kind]);
    this.kindColours = edges.map((colour) => `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`);
    for (const name of ["card", "paper", "line", "exposed"]) this[`${name}Pixel`] = packedHex(this.colours[name]);
    this.dimmed = Uint32Array.from(this.fills, (fill) => mixed(fill, this.cardPixel, 0.65));
  }

  show(from, to) {
    const whole = this.head.ticks;
    const length = Math.min(Math.max(to - from, 20), whole);
    this.from = Math.min(Math.max(from, 0), whole - length);
    this.to = this.from + length;
    if (!this.waiting) this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  redraw() { this.show(this.from, this.to); }

  scrollTo(y) {
    this.scroll = Math.min(Math.max(y, 0), this.mostScroll());
    this.redraw();
  }

  draw() {
    if (!this.width || !this.shown) return;
    const { paint, scale } = this;
    this.labels = [];
    this.fillBackdrop();
    this.lanes.forEach((lane) => this.drawLane(lane));
    paint.putImageData(this.image, 0, 0);
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.font = "11px system-ui, sans-serif";
    paint.textBaseline = "middle";
    for (const [i, x, y, room, colour] of this.labels) this.drawText(this.title(i), x, y, room, colour);
    if (this.countersShown) this.head.counters.forEach((counter, i) => this.drawCounter(counter, i));
    this.drawPlaces();
    this.drawArea();
    drawArrows(this);
    this.drawFixed();
    this.drawRuler();
    this.drawn();
  }

  // Card and stripes of the steps, as one line of pixels that everything is drawn on.
  fillBackdrop() {
    const { backdrop, scale } = this;
    backdrop.fill(this.cardPixel);
    this.head.steps.forEach(([, start, end], i) => {
      if (i % 2) return;
      const x0 = Math.max(this.pixel(this.tickOf(start)), this.gutter) * scale, x1 = this.pixel(this.tickOf(end)) * scale;
      if (x1 > x0) backdrop.fill(this.paperPixel, x0, Math.min(x1, backdrop.length));
    });
    for (let at = 0; at < this.pixels.length; at += backdrop.length) this.pixels.set(backdrop, at);
  }

  drawLane(lane) {
    const top = this.laneTop(lane), [low, high] = this.zone(lane);
    if (top > high || top + lane.height < low) return;
    this.fillRows(top - 4, top - 3, low, high, this.line.fill(this.linePixel));
    for (const track of lane.tracks) {
      if (lane.folded && track.depth > 0) continue;
      const y = top + track.depth * TimelineLayout.ROW;
      if (y < high && y + TimelineLayout.ROW > low) this.drawTrack(track, y, low, high);
    }
  }

  fillRows(from, to, low, high, line) {
    const first = Math.round(Math.max(from, low) * this.scale), last = Math.round(Math.min(to, high) * this.scale);
    for (let y = first; y < last && y < this.canvas.height; y++) this.pixels.set(line, y * line.length);
  }

  drawTrack(track, y, low, high) {
    const { start, duration, line, edge, searching } = this;
    const left = this.gutter * this.scale;
    const scale = (line.length - left) / (this.to - this.from);
    const fills = searching ? this.dimmed : this.fills, edges = searching ? this.dimmed : this.edges;
    line.set(this.backdrop);
    edge.set(this.backdrop);
    let i = this.firstSeen(track);
    while (i < track.end && start[i] < this.to) {
      const x0 = left + (start[i] - this.from) * scale;
      const width = duration[i] * scale;
      const folded = this.count[i] !== 0;
      this.drawSlice(i, x0, width, folded ? this.linePixel : fills[this.name[i]], folded ? this.linePixel : edges[this.name[i]], y);
      if (width >= 1) { i++; continue; }
      // Everything that begins in this pixel is covered by it, but the last may reach further.
      const border = this.from + (Math.floor(x0) + 1 - left) / scale;
      const next = notBefore(start, border, i + 1, track.end);
      i = next - 1 > i && this.end(next - 1) > border ? next - 1 : next;
    }
    if (searching) this.drawMatches(track, left, scale, y);
    const bottom = y + TimelineLayout.ROW - 2;
    this.fillRows(y, bottom - TimelineView.EDGE, low, high, line);
    this.fillRows(bottom - TimelineView.EDGE, bottom, low, high, edge);
  }

  // Into the line of pixels; what has room for a label gets it once the pixels are on the canvas.
  drawSlice(i, x0, width, fill, edge, y, colour = this.colours.ink) {
    const first = Math.max(Math.floor(x0), Math.floor(this.gutter * this.scale));
    let last = Math.min(Math.max(Math.floor(x0 + width), Math.floor(x0) + 1), this.line.length);
    if (width > 4) last -= 1;
    for (let x = first; x < last; x++) { this.line[x] = fill; this.edge[x] = edge; }
    const room = (last - first) / this.scale;
    if (room > 28) this.labels.push([i, first / this.scale + 3, y, room - 6, colour]);
  }

  drawMatches(track, left, scale, y) {
    const { matches, start } = this;
    let k = notBefore(matches, this.firstSeen(track), 0, matches.length);
    while (k < matches.length && matches[k] < track.end && start[matches[k]] < this.to) {
      const i = matches[k], x0 = left + (start[i] - this.from) * scale;
      const width = Math.max(this.duration[i] * scale, 2);
      this.drawSlice(i, x0, width, this.exposedPixel, this.exposedPixel, y, "#1d2125");
      const border = this.from + (Math.floor(x0 + width) - left) / scale;
      k = Math.max(k + 1, notBefore(matches, notBefore(start, border, i, track.end), k, matches.length));
    }
  }

  drawText(text, x, y, room, colour = this.colours.ink) {
    const fits = Math.floor(room / 6.2);
    if (fits < 2) return;
    this.paint.fillStyle = colour;
    this.paint.fillText(text.length > fits ? text.slice(0, fits - 1) + "…" : text, x, y + TimelineLayout.ROW / 2 - 1);
  }

  drawCounter(counter, i) {
    const top = this.counterTop(i);
    if (top > this.shown || top + TimelineLayout.COUNTER < this.top) return;
    const { least, most } = counter;
    const y = (value) => top + TimelineLayout.COUNTER - 6 - (value - least) / (most - least) * (TimelineLayout.COUNTER - 12);
    const { paint } = this;
    paint.strokeStyle = this.colours.device;
    paint.beginPath();
    counter.times_ns.forEach((ns, k) => paint.lineTo(this.pixel(this.tickOf(ns)), y(counter.values[k])));
    paint.stroke();
  }

  outline(i, colour, wide = 2) {
    const x0 = Math.max(this.pixel(this.start[i]), this.gutter), x1 = Math.min(this.pixel(this.end(i)), this.width);
    const y = this.rowOf(i), [low, high] = this.zone(this.laneOf(i));
    if (x1 < this.gutter || x0 > this.width || y < low || y > high) return;
    this.paint.strokeStyle = colour;
    this.paint.lineWidth = wide;
    this.paint.strokeRect(x0, y - TimelineLayout.ROW / 2, Math.max(x1 - x0, 2), TimelineLayout.ROW - 2);
    this.paint.lineWidth = 1;
  }

  // What a link chose, over all lanes.
  drawPlaces() {
    const { paint } = this;
    if (!this.mark) return;
    paint.globalAlpha = 0.16;
    paint.fillStyle = this.colours.exposed;
    this.drawStretches(this.mark, this.pinTop, this.shown);
    paint.globalAlpha = 1;
    if (this.place < 0) return;
    const { starts, ends } = placesOf(this.mark, this);
    const x0 = this.pixel(starts[this.place]), x1 = Math.max(this.pixel(ends[this.place]), x0 + 2);
    paint.strokeStyle = this.colours.exposed;
    if (x1 > this.gutter && x0 < this.width) paint.strokeRect(x0, TimelineLayout.RULER - 5, x1 - x0, this.shown);
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

  drawArea() {
    if (!this.area) return;
    const { paint, area } = this;
    const x0 = Math.max(this.pixel(area.from), this.gutter), x1 = Math.min(this.pixel(area.to), this.width);
    if (x1 < x0) return;
    paint.fillStyle = this.colours.device;
    paint.strokeStyle = this.colours.device;
    const stretch = (top, bottom) => {
      paint.globalAlpha = 0.16;
      paint.fillRect(x0, top, x1 - x0, bottom - top);
      paint.globalAlpha = 1;
      paint.strokeRect(x0, top, x1 - x0, bottom - top);
    };
    if (!area.lanes) return stretch(this.pinTop, this.shown);
    for (const lane of area.lanes) {
      const top = this.laneTop(this.lanes[lane]), [low, high] = this.zone(this.lanes[lane]);
      if (top < high && top + this.lanes[lane].height > low) {
        stretch(Math.max(top - 4, low), Math.min(top + this.lanes[lane].height - 4, high));
      }
    }
  }

  // The column of names, and a row a finding with everything that it is made of.
  drawFixed() {
    const { paint, gutter } = this, room = gutter - 16;
    paint.fillStyle = this.colours.card;
    paint.fillRect(0, 0, gutter - 4, this.shown);
    this.head.counters.forEach((counter, i) => {
      const top = this.counterTop(i);
      if (!this.countersShown || top < this.top - 4) return;
      this.drawText(counter.label, 4, top + 4, room);
      this.drawText(counter.range, 4, top + 18, room, this.colours.soft);
    });
    paint.fillStyle = this.colours.card;
    paint.fillRect(0, 0, this.width, this.pinTop - 4);
    this.findings.forEach((mark, i) => {
      const top = TimelineLayout.RULER + i * TimelineLayout.FINDING;
      paint.fillStyle = mark === this.mark ? this.colours.exposed : this.colours.idle;
      this.drawStretches(mark, top + 2, TimelineLayout.FINDING - 4);
      this.drawText(mark.label, 4, top - 1, room);
    });
    paint.fillStyle = this.colours.soft;
    if (this.top > this.pinTop) paint.fillRect(0, this.top - 2, this.width, 2);
  }

  drawRuler() {
    const { paint } = this;
    const rough = (this.to - this.from) * this.head.tick_ns * 90 / (this.width - this.gutter);
    const power = 10 ** Math.floor(Math.log10(rough));
    const every = power * [1, 2, 5, 10].find((m) => m * power >= rough);
    const [unit, size] = every >= 1e9 ? ["s", 1e9] : every >= 1e6 ? ["ms", 1e6] : every >= 1e3 ? ["µs", 1e3] : ["ns", 1];
    const end = this.nsOf(this.to);
    for (let ns = Math.ceil(this.nsOf(this.from) / every) * every; ns <= end; ns += every) {
      const x = this.pixel(this.tickOf(ns));
      paint.fillStyle = this.colours.line;
      paint.fillRect(x, 0, 1, TimelineLayout.RULER - 6);
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

  bringToView(i) {
    const lane = this.laneOf(i), depth = this.head.tracks[this.track[i]][1];
    if (depth > 0 && lane.folded) {
      lane.folded = false;
      this.layOut();
    }
    const y = this.rowOf(i), [low, high] = this.zone(lane);
    if (!lane.pinned && (y < low + 10 || y > high - 30)) this.scrollTo(this.scroll + y - (low + high) / 2);
  }
}

// A colour as the pixels of a canvas have it: red in the lowest byte.
function packed(hue, saturation, light) {
  const s = saturation / 100, l = light / 100;
  const part = (n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return (0xff000000 | (part(4) << 16) | (part(8) << 8) | part(0)) >>> 0;
}

function packedHex(hex) {
  const part = (at) => parseInt(hex.slice(at, at + 2), 16);
  return (0xff000000 | (part(5) << 16) | (part(3) << 8) | part(1)) >>> 0;
}

function mixed(colour, other, share) {
  let found = 0xff000000;
  for (const shift of [0, 8, 16]) {
    const a = (colour >>> shift) & 255, b = (other >>> shift) & 255;
    found |= Math.round(a + (b - a) * share) << shift;
  }
  return found >>> 0;
}
