// Search by name. The sums are those of the whole recording, whatever is drawn.

// The entries whose whole name, or where none has it, whose short name holds a text.
function entriesWith(head, text) {
  const wanted = text.toLowerCase(), hit = new Uint8Array(head.names.length);
  let some = 0;
  head.names.forEach((name, entry) => { if (name.toLowerCase().includes(wanted)) some += hit[entry] = 1; });
  if (some) return hit;
  for (const [entry, short] of Object.entries(head.short)) if (short.toLowerCase().includes(wanted)) hit[entry] = 1;
  return hit;
}

// Marks the matches of a text; what to say of them.
function searched(view, text) {
  const { head } = view, wanted = text.trim();
  view.searching = wanted !== "";
  if (!view.searching) {
    view.matches = new Int32Array(0);
    return "";
  }
  const hit = entriesWith(head, wanted);
  view.matches = slicesNamed(hit, view);
  let events = 0, total = 0;
  hit.forEach((yes, entry) => { if (yes) { events += head.events[entry]; total += head.total_ns[entry]; } });
  const drawn = view.matches.length;
  return `${thousands(events)} events, ${inUnits(total)} together`
    + (drawn < events ? `; ${thousands(drawn)} of them are drawn one by one` : "");
}

// The match after or before a slice, by time; -1 where there is none.
function nextMatch(view, by) {
  const order = [...view.matches].sort((a, b) => view.start[a] - view.start[b]);
  if (!order.length) return -1;
  const here = order.indexOf(view.selected);
  if (here >= 0) return order[(here + by + order.length) % order.length];
  const after = order.findIndex((i) => view.start[i] >= view.from);
  if (by > 0) return order[after < 0 ? 0 : after];
  return order[(after <= 0 ? order.length : after) - 1];
}
