// The view as the address of the page: it can be sent, and Back returns to it.
//
//   #timeline=12.5-80.25&event=api_calls.17&find=gemm&mark=finding%20sync-in-loop&at=3
//   &area=13-14&lanes=0.2&folded=1&pinned=0&counters=0&path=1&clock=recorded
//
// Times are milliseconds since the recording began.

const QUIET_MS = 300;  // a view that rests this long is written down; browsers allow few writes

const asRecorded = () => document.getElementById("clock-recorded");

function viewAsText(view, search) {
  const ms = (tick) => +(tick * view.head.tick_ns / 1e6).toFixed(6);
  const parts = [["timeline", `${ms(view.from)}-${ms(view.to)}`]];
  if (view.selected >= 0 && !view.count[view.selected]) parts.push(["event", view.rowText(view.selected).replace(" ", ".")]);
  if (search) parts.push(["find", search]);
  if (view.mark) parts.push(["mark", view.mark.key], ["at", view.place]);
  if (view.area) parts.push(["area", `${ms(view.area.from)}-${ms(view.area.to)}`]);
  if (view.area && view.area.lanes) parts.push(["lanes", view.area.lanes.join(".")]);
  for (const flag of ["folded", "pinned"]) {
    const lanes = view.lanes.flatMap((lane, number) => lane[flag] ? [number] : []);
    if (lanes.length) parts.push([flag, lanes.join(".")]);
  }
  if (view.countersSet !== null) parts.push(["counters", Number(view.countersSet)]);
  if (view.pathShown) parts.push(["path", 1]);
  if (asRecorded()?.checked) parts.push(["clock", "recorded"]);
  return "#" + parts.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
}

// What an address says; null where it is none of a view. Numbers that are none are left out.
function viewFromText(view, text) {
  if (!text.startsWith("#timeline=")) return null;
  const said = new URLSearchParams(text.slice(1));
  const stretch = (key) => {
    const ticks = (said.get(key) || "").split("-").map((ms) => Number(ms || NaN) * 1e6 / view.head.tick_ns);
    return ticks.length === 2 && ticks.every(Number.isFinite) && ticks[0] < ticks[1] ? ticks : null;
  };
  const numbers = (key) => (said.get(key) || "").split(".").filter(Boolean).map(Number)
    .filter((number) => Number.isInteger(number) && view.lanes[number]);
  const window_ = stretch("timeline"), area = stretch("area"), [table, row] = (said.get("event") || "").split(".");
  return {
    window: window_,
    event: row === undefined ? -1 : view.sliceOfRow(table, Number(row)),
    find: said.get("find") || "",
    mark: said.get("mark"),
    at: Math.trunc(Number(said.get("at"))) || 0,
    area: area && { from: area[0], to: area[1], lanes: said.get("lanes") ? numbers("lanes") : null },
    folded: numbers("folded"),
    pinned: numbers("pinned"),
    counters: said.has("counters") ? said.get("counters") === "1" : null,
    path: said.get("path") === "1",
    clock: said.get("clock") === "recorded" ? "recorded" : "unprofiled",
  };
}

// `text` writes the view, `apply` shows one. A jump makes an entry of its own in the history; what
// moves continuously is written into the entry that is there once it rests.
function keepAddress(view, text, apply) {
  const whole = text();
  let timer = 0, allowed = true, last = whole;
  const write = (how) => {
    clearTimeout(timer);
    const now = text();
    if (!allowed || now === last) return;
    try {
      history[how](null, "", now);
      last = now;
    } catch {  // a frame that may not: then there is no address to share
      allowed = false;
    }
  };
  const rest = () => write(location.hash.startsWith("#timeline=") ? "replaceState" : "pushState");
  const read = () => {
    const said = viewFromText(view, location.hash || whole);
    if (!said) return;
    apply(said);
    last = text();
  };
  addEventListener("popstate", read);
  return {
    read,
    jump: (act) => { rest(); act(); write("pushState"); },
    moved: () => { clearTimeout(timer); timer = setTimeout(rest, QUIET_MS); },
  };
}
