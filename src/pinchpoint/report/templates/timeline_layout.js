// Where everything is: from times and lanes to pixels and back.
class TimelineLayout {
  static ROW = 17;
  static RULER = 24;
  static COUNTER = 44;
  static FINDING = 15;

  constructor(canvas, data) {
    Object.assign(this, data);
    this.canvas = canvas;
    this.from = 0;
    this.to = this.head.ticks;
    this.scroll = 0;
    this.selected = -1;
    this.findings = this.head.marks.filter((mark) => mark.key.startsWith("finding "));
    this.lanes = this.head.lanes.map((lane) => ({ ...lane, tracks: [], folded: false, pinned: false }));
    this.head.tracks.forEach(([lane, depth, first, count]) => {
      this.lanes[lane].tracks.push({ depth, first, end: first + count });
    });
    for (const lane of this.lanes) lane.levels = Math.max(...lane.tracks.map((track) => track.depth)) + 1;
    this.countersSet = null;  // whether counters are shown, once a reader has said so
    this.layOut();
  }

  // Unless a reader says otherwise, where they leave two thirds of the room to the lanes.
  get countersShown() {
    return this.countersSet ?? this.head.counters.length * TimelineLayout.COUNTER <= (this.shown || 400) / 3;
  }

  // The row that names the counters, or where the first of them begins.
  counterTop(i = -1) {
    return this.top + 4 - this.scroll + (i < 0 ? 0 : TimelineLayout.ROW + i * TimelineLayout.COUNTER);
  }

  // Ruler, findings and pinned lanes stay; counters and the other lanes scroll below them.
  layOut() {
    this.pinTop = TimelineLayout.RULER + this.findings.length * TimelineLayout.FINDING + 6;
    const put = (lane, y) => {
      lane.y = y;
      lane.height = (lane.folded ? 1 : lane.levels) * TimelineLayout.ROW + 8;
      return y + lane.height;
    };
    const counters = this.head.counters.length;
    let pinned = 0, y = 4 + (counters && TimelineLayout.ROW + 4 + this.countersShown * counters * TimelineLayout.COUNTER);
    for (const lane of this.lanes) if (lane.pinned) pinned = put(lane, pinned); else y = put(lane, y);
    const room = Math.max((this.shown || 400) - this.pinTop, 0);
    this.top = this.pinTop + Math.min(pinned, room / 2);
    this.height = y;
    this.scroll = Math.min(this.scroll, this.mostScroll());
  }

  mostScroll() { return Math.max(this.height - (this.shown - this.top), 0) || 0; }

  laneTop(lane) { return lane.pinned ? this.pinTop + 4 + lane.y : this.top + lane.y - this.scroll; }

  // The part of the canvas that a lane may use.
  zone(lane) { return lane.pinned ? [this.pinTop, this.top] : [this.top, this.shown]; }

  pixel(tick) {
    return this.gutter + (tick - this.from) / (this.to - this.from) * (this.width - this.gutter);
  }

  tick(pixel) {
    return this.from + (pixel - this.gutter) / (this.width - this.gutter) * (this.to - this.from);
  }

  tickOf(ns) { return (ns - this.head.start_ns) / this.head.tick_ns; }
  nsOf(tick) { return this.head.start_ns + tick * this.head.tick_ns; }
  end(i) { return this.start[i] + this.duration[i]; }
  laneOf(i) { return this.lanes[this.head.tracks[this.track[i]][0]]; }

  // The middle of a slice's row on the canvas; of a folded lane all are in one row.
  rowOf(i) {
    const [lane, depth] = this.head.tracks[this.track[i]];
    const own = this.lanes[lane];
    return this.laneTop(own) + ((own.folded ? 0 : depth) + 0.5) * TimelineLayout.ROW;
  }

  firstSeen(track, from = this.from) {
    const i = notBefore(this.start, from, track.first, track.end);
    const before = i - 1;
    return before >= track.first && this.end(before) > from ? before : i;
  }

  fullName(i) { return this.head.names[this.name[i]]; }

  title(i) {
    return this.count[i] ? `${thousands(this.count[i])} short events` : this.nameOf(this.name[i]);
  }

  nameOf(entry) { return this.head.short[entry] ?? this.head.names[entry]; }

  // The lane under a y, or undefined.
  laneAt(y) {
    return this.lanes.find((lane) => {
      const top = this.laneTop(lane), [low, high] = this.zone(lane);
      return y >= Math.max(top - 4, low) && y < Math.min(top + lane.height - 4, high);
    });
  }

  // The finding whose row is under a y, or undefined.
  findingAt(y) {
    return this.findings[Math.floor((y - TimelineLayout.RULER) / TimelineLayout.FINDING)];
  }

  // The slice at a place, with three pixels of tolerance, or -1.
  sliceAt(x, y) {
    const lane = this.laneAt(y);
    if (!lane || x < this.gutter) return -1;
    const depth = Math.floor((y - this.laneTop(lane)) / TimelineLayout.ROW);
    const track = lane.tracks.find((t) => t.depth === depth);
    if (!track) return -1;
    const reach = 3 * (this.to - this.from) / (this.width - this.gutter);
    const at = this.tick(x);
    const i = notBefore(this.start, at, track.first, track.end);
    if (i > track.first && this.end(i - 1) >= at - reach) return i - 1;
    return i < track.end && this.start[i] <= at + reach ? i : -1;
  }

  // The slice around a slice: on the same lane, one level up.
  caller(i) {
    const [lane, depth] = this.head.tracks[this.track[i]];
    const track = this.lanes[lane].tracks.find((t) => t.depth === depth - 1);
    if (!track) return -1;
    const at = notBefore(this.start, this.start[i] + 1, track.first, track.end) - 1;
    return at >= track.first && this.end(at) >= this.start[i] ? at : -1;
  }

  // The first slice inside a slice, or -1.
  called(i) {
    const [lane, depth] = this.head.tracks[this.track[i]];
    const track = this.lanes[lane].tracks.find((t) => t.depth === depth + 1);
    if (!track) return -1;
    const at = notBefore(this.start, this.start[i], track.first, track.end);
    return at < track.end && this.start[at] < this.end(i) ? at : -1;
  }

  // As the tables of the recording count rows, from 0.
  rowText(i) {
    let row = this.row[i];
    for (const [table, rows] of this.head.tables) {
      if (row < rows) return `${table} ${row}`;
      row -= rows;
    }
    return "";
  }

  // The slice that draws a row of a table alone, or -1.
  sliceOfRow(table, row) {
    let wanted = row;
    for (const [other, rows] of this.head.tables) {
      if (other === table) break;
      wanted += rows;
    }
    for (let i = 0; i < this.head.slices; i++) if (this.row[i] === wanted && !this.count[i]) return i;
    return -1;
  }
}
