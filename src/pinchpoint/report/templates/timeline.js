// Puts the parts of the timeline together: what every button, key and link does.
function liveTimeline(view) {
  const { canvas, head } = view;
  const byId = (id) => document.getElementById(id);
  const section = byId("timeline"), panel = byId("selected"), search = byId("search"), found = byId("found");
  const tip = byId("tip"), help = byId("timeline-help");
  const button = (name) => document.querySelector(`[data-do=${name}]`);
  const isLarge = () => section.classList.contains("large");
  let areaNext = false, headsAt = "";

  const zoom = (factor, x = (view.width + view.gutter) / 2) => {
    const centre = view.tick(x);
    view.show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  };
  const moveBy = (share) => {
    const by = share * (view.to - view.from);
    view.show(view.from + by, view.to + by);
  };
  const zoomTo = (i) => {
    const length = Math.max(view.duration[i], 20);
    view.show(view.start[i] - 2 * length, view.start[i] + 3 * length);
  };
  const choose = (i) => {
    view.selected = i;
    panel.replaceChildren();
    if (i >= 0) {
      view.bringToView(i);
      describe(view, i, panel, (other) => address.jump(() => { choose(other); near(other); }));
    }
    view.redraw();
  };
  // Into sight, and as much nearer as it takes to see it.
  const near = (i) => {
    if (view.duration[i] * 200 < view.to - view.from) return zoomTo(i);
    const half = (view.to - view.from) / 2;
    if (view.start[i] < view.from || view.start[i] > view.to) view.show(view.start[i] - half, view.start[i] + half);
  };
  const find = (text) => {
    if (search.value !== text) search.value = text;
    if (text.trim()) [view.mark, view.place] = [null, -1];
    found.textContent = searched(view, text);
    view.redraw();
  };
  const setArea = (area) => {
    view.area = area;
    describeArea(view, byId("area"), (name) => address.jump(() => find(name)), () => address.jump(() => setArea(null)));
    view.redraw();
  };

  // A place is shown with as much around it as an eighth of a step, or as it takes itself.
  const context = head.steps.length
    ? (head.steps.at(-1)[2] - head.steps[0][1]) / head.steps.length / head.tick_ns / 8 : 0;
  const goTo = (mark, place) => {
    const { starts, ends, slices } = placesOf(mark, view);
    if (view.mark !== mark) {
      [view.mark, view.matches, view.searching] = [mark, Int32Array.from(slices || []).sort(), slices !== null];
      search.value = "";
    }
    if (!starts.length) {
      view.place = -1;
      found.textContent = `${mark.label}: too short to be drawn one by one`;
      return view.redraw();
    }
    view.place = ((place % starts.length) + starts.length) % starts.length;
    const from = starts[view.place], length = ends[view.place] - from;
    choose(slices ? slices[view.place] : -1);
    const half = Math.max(length * 2.5, context, 20) / 2;
    view.show(from + length / 2 - half, from + length / 2 + half);
    found.textContent = `${mark.label}: ${thousands(view.place + 1)} of ${thousands(starts.length)}${ofHowMany(mark, starts.length)}, `
      + inUnits(length * head.tick_ns);
  };
  const ofHowMany = (mark, drawn) => {
    if (mark.names) {
      const events = mark.names.reduce((sum, entry) => sum + head.events[entry], 0);
      return events > drawn ? ` that are drawn one by one (of ${thousands(events)})` : "";
    }
    return mark.count > drawn ? ` (of ${thousands(mark.count)}, near ones joined)` : "";
  };
  const clear = () => {
    [view.mark, view.place] = [null, -1];
    find("");
  };
  const step = (by) => address.jump(() => {
    if (view.mark) return goTo(view.mark, view.place + by);
    const next = nextMatch(view, by);
    if (next < 0) return;
    choose(next);
    near(next);
  });
  const neighbour = (by) => {
    if (view.selected < 0) return choose(Math.min(view.firstSeen(view.lanes[0].tracks[0]), head.slices - 1));
    const next = view.selected + by;
    if (next < 0 || next >= head.slices || view.track[next] !== view.track[view.selected]) return;
    choose(next);
    near(next);
  };
  const another = (i) => { if (view.selected >= 0 && i >= 0) choose(i); };
  // The slice of a neighbouring lane that is nearest in time.
  const otherLane = (by) => {
    if (view.selected < 0) return neighbour(0);
    const lane = view.lanes[view.lanes.indexOf(view.laneOf(view.selected)) + by];
    if (!lane) return;
    const { first, end } = lane.tracks[0];
    choose(Math.min(notBefore(view.start, view.start[view.selected], first, end), end - 1));
    near(view.selected);
  };
  const follow = (on) => {
    const arrow = view.selected >= 0 && arrowsOf(view, view.selected).find((one) => one.on === on);
    if (arrow) address.jump(() => { choose(arrow.slice); near(arrow.slice); });
  };
  const toggle = (lane, flag) => {
    lane[flag] = !lane[flag];
    view.layOut();
    view.redraw();
  };
  const ofSelection = (flag) => toggle(view.selected < 0 ? view.lanes[0] : view.laneOf(view.selected), flag);
  const pressed = (name, yes) => button(name).setAttribute("aria-pressed", String(yes));
  const large = (yes) => {
    section.classList.toggle("large", yes);
    pressed("large", yes);
    if (yes) canvas.focus({ preventScroll: true }); else section.scrollIntoView({ block: "start" });
  };
  const showPath = (yes) => {
    view.pathShown = yes && head.path.length > 0;
    pressed("path", view.pathShown);
    view.redraw();
  };

  const act = {
    zoom, moveBy,
    in: () => zoom(0.6), out: () => zoom(1 / 0.6), left: () => moveBy(-0.3), right: () => moveBy(0.3),
    whole: () => address.jump(() => view.show(0, head.ticks)),
    selected: () => { if (view.selected >= 0) address.jump(() => zoomTo(view.selected)); },
    next: () => step(1), previous: () => step(-1), back: () => follow(false), on: () => follow(true),
    before: () => neighbour(-1), after: () => neighbour(1),
    caller: () => another(view.selected < 0 ? -1 : view.caller(view.selected)),
    called: () => another(view.selected < 0 ? -1 : view.called(view.selected)),
    laneAbove: () => otherLane(-1), laneBelow: () => otherLane(1),
    lower: () => view.scrollTo(view.scroll + view.shown / 2), higher: () => view.scrollTo(view.scroll - view.shown / 2),
    fold: () => ofSelection("folded"), pin: () => ofSelection("pinned"),
    search: () => { search.focus(); search.select(); },
    help: () => help.showModal(),
    large: () => large(!isLarge()),
    area: () => { areaNext = !areaNext; pressed("area", areaNext); },
    markArea: () => address.jump(() => setArea(view.selected < 0 ? { from: view.from, to: view.to, lanes: null }
      : { from: view.start[view.selected], to: Math.max(view.end(view.selected), view.start[view.selected] + 1), lanes: null })),
    path: () => address.jump(() => {
      showPath(!view.pathShown);
      const { path } = otherEdges(view);
      if (view.pathShown) view.show(view.start[path[0]], view.end(path.at(-1)));
    }),
    escape: () => {
      if (view.selected < 0 && !view.mark && !view.searching && !view.area && isLarge()) return large(false);
      setArea(null);
      choose(-1);
      clear();
    },
    areaWanted: () => areaNext,
    stretch: (drag, at) => {
      const [from, to] = [view.tick(drag.x), view.tick(at.x)].sort((a, b) => a - b);
      const [high, low] = [drag.y, at.y].sort((a, b) => a - b);
      const touched = view.lanes.flatMap((lane, number) =>
        view.laneTop(lane) < low && view.laneTop(lane) + lane.height > high ? [number] : []);
      const lanes = drag.everyLane || !touched.length || touched.length === view.lanes.length ? null : touched;
      view.area = { from: Math.max(from, 0), to: Math.min(to, head.ticks), lanes };
      byId("area").textContent = inUnits((view.area.to - view.area.from) * head.tick_ns);
      view.redraw();
    },
    stretched: () => {
      if (areaNext) act.area();
      address.jump(() => setArea(view.area));
    },
    hover: (at) => {
      const i = at ? view.sliceAt(at.x, at.y) : -1;
      tip.hidden = i < 0;
      if (i < 0) return;
      tip.textContent = tipOf(view, i);
      tip.style.left = `${Math.max(Math.min(at.x + 14, view.width - tip.offsetWidth - 4), 0)}px`;
      tip.style.top = `${at.y + 18 + tip.offsetHeight > view.shown ? at.y - tip.offsetHeight - 8 : at.y + 18}px`;
    },
    click: ({ x, y }) => {
      const finding = view.findingAt(y);
      if (!finding) return address.jump(() => choose(view.sliceAt(x, y)));
      address.jump(() => goTo(finding, x < view.gutter ? firstPlace(finding, view) : nearestPlace(placesOf(finding, view), view.tick(x))));
    },
  };

  const byKey = new Map(head.marks.map((mark) => [mark.key, mark]));
  const address = keepAddress(view, () => viewAsText(view, search.value.trim()), (said) => {
    for (const [number, lane] of view.lanes.entries()) {
      [lane.folded, lane.pinned] = [said.folded.includes(number), said.pinned.includes(number)];
    }
    view.countersSet = said.counters;
    view.layOut();
    clear();
    const mark = byKey.get(said.mark);
    if (mark) goTo(mark, said.at); else find(said.find);
    showPath(said.path);
    setArea(said.area);
    choose(said.event);
    if (said.window) view.show(...said.window);
    const clock = byId(`clock-${said.clock}`);
    if (clock) clock.checked = true;
  });
  for (const clock of document.querySelectorAll(".clock input")) clock.addEventListener("change", () => address.moved());

  watchKeys(act, section, isLarge);
  watchWheel(view, act, isLarge);
  watchPointers(view, act);
  for (const one of document.querySelectorAll("[data-do]")) one.addEventListener("click", act[one.dataset.do]);
  search.addEventListener("input", () => find(search.value));
  search.addEventListener("change", () => address.moved());
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { event.preventDefault(); clear(); canvas.focus(); }
  });
  button("path").hidden = !head.path.length;
  for (const [number, start, end, why] of head.shown_steps.filter(([, , , why]) => /^(typical|exceptional)$/.test(why[0]))) {
    const jump = pressable(`${why[0]} step`, () => address.jump(() => view.show(view.tickOf(start), view.tickOf(end))));
    jump.title = `step ${number}${why.length > 1 ? `, also for ${why.slice(1).join(", ")}` : ""}`;
    byId("kept-steps").append(jump, " ");
  }
  for (const link of document.querySelectorAll("button.at")) {
    const mark = byKey.get(link.dataset.mark);
    if (!mark) continue;
    link.hidden = false;
    link.addEventListener("click", () => {
      address.jump(() => goTo(mark, firstPlace(mark, view)));
      section.scrollIntoView({ block: "start" });
      canvas.focus({ preventScroll: true });
    });
  }
  const placeHeads = laneHeads(view, byId("heads"), toggle, () => {
    view.countersSet = !view.countersShown;
    view.layOut();
    view.redraw();
  });
  view.drawn = () => {
    const now = [view.scroll, view.top, view.shown, view.width, view.countersShown, ...view.lanes.map((lane) => lane.y * 4 + lane.folded * 2 + lane.pinned)].join();
    if (now !== headsAt) placeHeads();
    headsAt = now;
    address.moved();
  };
  const dressed = () => { view.resize(); drawKinds(view, byId("kinds")); };
  byId("board").style.setProperty("--all-lanes", `${view.pinTop + view.height + 40}px`);
  new ResizeObserver(() => view.resize()).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", dressed);
  dressed();
  address.read();
  if (location.hash.startsWith("#timeline=")) section.scrollIntoView({ block: "start" });
}

// The legend: kinds that occur, those of the device and those of the host.
function drawKinds(view, box) {
  const used = new Set(view.head.kind);
  box.replaceChildren();
  for (const lane of ["device", "host"]) {
    const items = view.head.kinds.flatMap(([label, of], kind) => of === lane && used.has(kind) ? [[label, kind]] : []);
    if (!items.length) continue;
    box.append(element("b", lane));
    for (const [label, kind] of items) {
      const key = element("i");
      key.style.background = view.kindColours[kind];
      box.append(element("span", "", key, label));
    }
  }
}

(async () => {
  const data = document.getElementById("data");
  if (!data || typeof DecompressionStream === "undefined") return;
  const read = await readTimeline(data.textContent);
  document.getElementById("live").hidden = false;
  document.getElementById("still").style.display = "none";
  const view = new TimelineView(document.getElementById("canvas"), read);
  liveTimeline(view);
  document.getElementById("timeline").dataset.ready = performance.now();  // ms since the page was asked for
  window.pinchpointTimeline = view;  // for tests and for a reader's console
})();
