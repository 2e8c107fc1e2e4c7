// Arrows: what leads to an event and what follows from it, drawn and as a list.

const MOST_ARROWS = 200;  // of one event: a graph launch starts thousands of kernels

// Which slices lead where, found once: by the slice that a link points to.
function linksBack(view) {
  if (view.back) return view.back;
  const { link, head } = view, first = new Int32Array(head.slices + 1);
  for (let i = 0; i < head.slices; i++) if (link[i]) first[i + link[i] + 1]++;
  for (let i = 0; i < head.slices; i++) first[i + 1] += first[i];
  const next = first.slice(), from = new Int32Array(first[head.slices]);
  for (let i = 0; i < head.slices; i++) if (link[i]) from[next[i + link[i]]++] = i;
  view.back = { first, from };
  return view.back;
}

// The critical path as positions by slice, and the waits by the slices at their ends.
function otherEdges(view) {
  if (view.others) return view.others;
  const path = Array.from(summed(view.head.path)), into = new Map(), out = new Map();
  const add = (map, key, value) => { if (map.has(key)) map.get(key).push(value); else map.set(key, [value]); };
  for (const [from, to, how] of view.head.edges) {
    add(out, from, [to, how]);
    add(into, to, [from, how]);
  }
  view.others = { path, into, out, at: new Map(path.map((slice, k) => [slice, k])) };
  return view.others;
}

// Every arrow of a slice: the slice at its other end, whether it leads there (on) or from there,
// in words, and the colour.
function arrowsOf(view, i) {
  const found = [];
  const add = (slice, on, words, colour) => found.push({ slice, on, words, colour });
  const onDevice = view.laneOf(i).kind === "device";
  const { path, into, out, at } = otherEdges(view);
  if (view.link[i]) {
    add(i + view.link[i], false, onDevice ? "started by" : "differentiates", onDevice ? "device" : "good");
  }
  const back = linksBack(view);
  for (let k = back.first[i]; k < back.first[i + 1]; k++) {
    const device = view.laneOf(back.from[k]).kind === "device";
    add(back.from[k], true, device ? "starts" : "differentiated by", device ? "device" : "good");
  }
  for (const [slice, how] of into.get(i) || []) add(slice, false, how ? "waited for" : "waits for the event of", "idle");
  for (const [slice, how] of out.get(i) || []) add(slice, true, how ? "ends the wait of" : "is waited for by", "idle");
  if (at.has(i)) {
    const here = at.get(i);
    if (here) add(path[here - 1], false, "on the critical path after", "exposed");
    if (here + 1 < path.length) add(path[here + 1], true, "on the critical path before", "exposed");
  }
  return found;
}

function drawArrows(view) {
  const { paint } = view;
  paint.save();
  paint.beginPath();
  paint.rect(view.gutter, view.pinTop, view.width - view.gutter, view.shown - view.pinTop);
  paint.clip();
  if (view.pathShown) drawPath(view);
  if (view.selected >= 0) {
    for (const { slice, on, colour } of arrowsOf(view, view.selected).slice(0, MOST_ARROWS)) {
      const [from, to] = on ? [view.selected, slice] : [slice, view.selected];
      drawArrow(view, from, to, view.colours[colour]);
    }
    view.outline(view.selected, view.colours.ink);
  }
  paint.restore();
}

// From where one ends to where the other begins; where both run at once, from where one begins.
function drawArrow(view, from, to, colour) {
  const { paint } = view;
  const leaves = Math.min(view.end(from), view.start[to] > view.start[from] ? view.start[to] : view.start[from]);
  const arrives = view.start[to] >= view.start[from] ? view.start[to] : view.end(to);
  const x0 = view.pixel(leaves), x1 = view.pixel(arrives), y0 = view.rowOf(from), y1 = view.rowOf(to);
  if (Math.max(x0, x1) < view.gutter || Math.min(x0, x1) > view.width) return;
  const bend = Math.min(Math.max(Math.abs(x1 - x0) / 2, 20), 120);
  paint.strokeStyle = paint.fillStyle = colour;
  paint.lineWidth = 1.6;
  paint.beginPath();
  paint.moveTo(x0, y0);
  paint.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
  paint.stroke();
  paint.beginPath();
  paint.moveTo(x1, y1);
  paint.lineTo(x1 - 7, y1 - 4);
  paint.lineTo(x1 - 7, y1 + 4);
  paint.fill();
  paint.lineWidth = 1;
}

// A bar on each event of the path, and a line from one to the next.
function drawPath(view) {
  const { path } = otherEdges(view), { paint } = view, half = TimelineLayout.ROW / 2;
  paint.strokeStyle = paint.fillStyle = view.colours.exposed;
  path.forEach((slice, k) => {
    const next = path[k + 1], y = view.rowOf(slice), [low, high] = view.zone(view.laneOf(slice));
    const x0 = Math.max(view.pixel(view.start[slice]), view.gutter), x1 = Math.min(view.pixel(view.end(slice)), view.width);
    if (x1 >= x0 && y > low && y < high) paint.fillRect(x0, y - half, Math.max(x1 - x0, 1), 3);
    if (next === undefined || view.start[next] < view.from || view.end(slice) > view.to) return;
    const y1 = view.rowOf(next);
    if (y1 === y) return;
    paint.beginPath();
    paint.moveTo(Math.min(view.pixel(view.end(slice)), view.width), y - half);
    paint.lineTo(Math.max(view.pixel(view.start[next]), view.gutter), y1 - half);
    paint.stroke();
  });
}
