// What is said of a selected event, and the table of a selected area.

const MOST_ROWS = 100;  // of the table of an area
const MOST_LINKS = 12;  // events that one line of the panel leads to

// Facts of one event below the timeline; `go` selects another one and shows it.
function describe(view, i, panel, go) {
  const { head } = view, list = document.createElement("dl");
  const line = (what, ...values) => {
    const fact = document.createElement("dd");
    fact.append(...values);
    list.append(element("div", "", element("dt", what), fact));
  };
  const linkTo = (slice, text) => pressable(text, () => go(slice));
  const title = document.createElement("b"), entry = view.name[i];
  title.textContent = view.title(i);
  panel.append(title);
  if (!view.count[i] && head.short[entry] !== undefined) {
    panel.append(element("details", "", element("summary", "full name"), element("code", view.fullName(i))));
  }
  panel.append(list);
  const start = view.nsOf(view.start[i]), length = view.duration[i] * head.tick_ns, lane = view.laneOf(i);
  line("takes", `${inUnits(length)} (${thousands(length)} ns)`);
  // Steps reach from completion to completion: that says little about a host that runs ahead.
  const step = lane.kind === "device" && head.steps.find(([, from, to]) => from <= start && start < to);
  line("starts at", `${(start / 1e6).toFixed(4)} ms${step ? `, in step ${step[0]}` : ""}`);
  line("on", lane.label);
  if (view.count[i]) return;
  line("kind", head.kinds[head.kind[entry]][0]);
  line("all of this name", `${thousands(head.events[entry])} events, ${inUnits(head.total_ns[entry])} together, `
    + `longest ${inUnits(head.longest_ns[entry])}`);
  if (view.source[i]) line("source", element("code", head.sources[view.source[i] - 1]));
  const callers = [];
  for (let c = view.caller(i); c >= 0 && callers.length < 8; c = view.caller(c)) callers.push(c);
  if (callers.length) line("inside", ...callers.flatMap((c) => [linkTo(c, view.title(c).slice(0, 60)), " "]));
  if (view.detail[i]) {
    for (const [what, text] of Object.entries(head.details[view.detail[i] - 1])) line(what, text);
  }
  const byWords = Map.groupBy ? Map.groupBy(arrowsOf(view, i), (arrow) => arrow.words) : grouped(arrowsOf(view, i));
  for (const [words, arrows] of byWords) {
    const links = arrows.slice(0, MOST_LINKS).flatMap(({ slice }) => [
      linkTo(slice, `${view.title(slice).slice(0, 80)}, ${apart(view, i, slice)}`), " "]);
    line(words, ...links, arrows.length > MOST_LINKS ? `and ${thousands(arrows.length - MOST_LINKS)} more` : "");
  }
  const ids = new Set(head.places.filter((place) => place.slice === i).map((place) => place.id));
  if (ids.size) {
    line("finding", ...[...ids].flatMap((id) => {
      const link = element("a", id);
      link.href = `#finding-${id}`;
      return [link, " "];
    }));
  }
  line("row", view.rowText(i));
}

function grouped(arrows) {
  const found = new Map();
  for (const arrow of arrows) found.set(arrow.words, [...(found.get(arrow.words) || []), arrow]);
  return found;
}

// How much later or earlier another slice begins.
function apart(view, i, other) {
  const ns = (view.start[other] - view.start[i]) * view.head.tick_ns;
  return ns < 0 ? `${inUnits(-ns)} before` : `${inUnits(ns)} after`;
}

// One line for the pointer.
function tipOf(view, i) {
  const text = `${view.title(i)} · ${inUnits(view.duration[i] * view.head.tick_ns)}`;
  return view.count[i] ? text : `${text} · ${view.head.kinds[view.head.kind[view.name[i]]][0]}`;
}

// Events by name in an area: how many touch it, and their time inside it. Of the whole recording
// these are the sums of all events, drawn or not.
function sumsOf(view, { from, to, lanes }) {
  const { head } = view, names = head.names.length;
  if (!lanes && from <= 0 && to >= head.ticks) {
    const rows = head.names.map((_, entry) => [entry, head.events[entry], head.total_ns[entry], head.longest_ns[entry]]);
    return { rows, folded: 0 };
  }
  const count = new Float64Array(names), total = new Float64Array(names), longest = new Float64Array(names);
  let folded = 0;
  view.lanes.forEach((lane, number) => {
    if (lanes && !lanes.includes(number)) return;
    for (const track of lane.tracks) {
      for (let i = view.firstSeen(track, from); i < track.end && view.start[i] < to; i++) {
        if (view.count[i]) { folded += view.count[i]; continue; }
        const ns = (Math.min(view.end(i), to) - Math.max(view.start[i], from)) * head.tick_ns;
        count[view.name[i]]++;
        total[view.name[i]] += ns;
        longest[view.name[i]] = Math.max(longest[view.name[i]], ns);
      }
    }
  });
  const rows = [];
  for (let entry = 0; entry < names; entry++) if (count[entry]) rows.push([entry, count[entry], total[entry], longest[entry]]);
  return { rows, folded };
}

// The same sums of all lanes by `pinchpoint sql`: a query to start another question from.
function queryOf(view, { from, to }) {
  const a = Math.round(view.nsOf(from)), b = Math.round(view.nsOf(to));
  const tables = ["host_ops", "api_calls", "device_ops"]
    .map((table) => `SELECT name, start_ns AS a, start_ns + duration_ns AS b FROM ${table}`).join(" UNION ALL ");
  return `SELECT name, count(*) AS events, sum(least(b, ${b}) - greatest(a, ${a})) AS ns FROM (${tables})`
    + ` WHERE a < ${b} AND b > ${a} GROUP BY name ORDER BY ns DESC`;
}

// `find` searches a name; `drop` gives the area up.
function describeArea(view, box, find, drop) {
  box.replaceChildren();
  if (!view.area) return;
  const { area, head } = view, { rows, folded } = sumsOf(view, area);
  const order = rows.sort((a, b) => b[2] - a[2]);
  const events = order.reduce((sum, row) => sum + row[1], 0);
  const whole = !area.lanes && area.from <= 0 && area.to >= head.ticks;
  const said = `${inUnits((area.to - area.from) * head.tick_ns)} from ${(view.nsOf(area.from) / 1e6).toFixed(4)} ms, `
    + `${area.lanes ? `${area.lanes.length} of ${view.lanes.length} lanes` : "all lanes"}: ${thousands(events)} events of `
    + `${thousands(order.length)} names${whole ? "" : "; time inside the area"}. `
    + (folded ? `Grey stretches that reach into it stand for ${thousands(folded)} more, whose names are not on this page. ` : "");
  box.append(element("p", said, pressable("drop the area", drop)));
  const file = document.querySelector("h1").textContent.replaceAll("'", "'\\''");
  box.append(element("details", "", element("summary", "as SQL, of all lanes"),
    element("code", `pinchpoint sql '${file}' "${queryOf(view, area)}"`)));
  const table = document.createElement("table"), top = element("tr");
  for (const title of ["name", "count", "total", "mean", "max"]) {
    const cell = element("th", title);
    cell.scope = "col";
    if (title !== "name") cell.className = "number";
    top.append(cell);
  }
  table.append(element("thead", "", top));
  const body = document.createElement("tbody");
  for (const [entry, count, total, longest] of order.slice(0, MOST_ROWS)) {
    const name = pressable(view.nameOf(entry), () => find(head.names[entry]));
    name.title = head.names[entry];
    const line = element("tr", "", element("td", "", name));
    for (const text of [thousands(count), inUnits(total), inUnits(total / count), inUnits(longest)]) {
      const cell = element("td", text);
      cell.className = "number";
      line.append(cell);
    }
    body.append(line);
  }
  table.append(body);
  const scroll = element("div", "", table);
  scroll.className = "scroll";
  box.append(scroll);
  if (order.length > MOST_ROWS) box.append(element("p", `and ${thousands(order.length - MOST_ROWS)} more names with less time`));
}
