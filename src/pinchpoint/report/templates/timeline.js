// Mouse, keys, search, selection and findings.
function liveTimeline(view) {
  const { canvas, head } = view;
  const byId = (id) => document.getElementById(id);
  const panel = byId("selected"), search = byId("search"), found = byId("found");

  const zoom = (factor, x = (view.width + view.gutter) / 2) => {
    const centre = view.tick(x);
    view.show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  };
  const move = (share) => {
    const by = share * (view.to - view.from);
    view.show(view.from + by, view.to + by);
  };
  const zoomTo = (i) => {
    const length = Math.max(view.duration[i], 20);
    view.show(view.start[i] - 2 * length, view.start[i] + 3 * length);
  };

  const line = (list, what, value) => {
    const term = document.createElement("dt"), fact = document.createElement("dd");
    term.textContent = what;
    fact.append(value);
    list.append(term, fact);
  };
  const linkTo = (i, text) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => { select(i); zoomTo(i); });
    return button;
  };
  const select = (i) => {
    view.selected = i;
    panel.replaceChildren();
    if (i >= 0) {
      view.bringToView(i);
      describe(i);
    }
    view.show(view.from, view.to);
  };
  const linksTo = (ids) => {
    const links = document.createElement("span");
    for (const id of new Set(ids)) {
      const link = document.createElement("a");
      link.href = `#finding-${id}`;
      link.textContent = id;
      links.append(link, " ");
    }
    return links;
  };
  // As the tables of the recording count them, from 0.
  const rowOf = (i) => {
    let row = view.row[i];
    for (const [table, rows] of head.tables) {
      if (row < rows) return `${table} ${row}`;
      row -= rows;
    }
    return "";
  };
  const describe = (i) => {
    const title = document.createElement("b"), list = document.createElement("dl");
    title.textContent = view.title(i);
    panel.append(title, list);
    const start = view.nsOf(view.start[i]), length = view.duration[i] * head.tick_ns;
    line(list, "takes", `${inUnits(length)} (${length.toLocaleString("en")} ns)`);
    // Steps reach from completion to completion: that says little about a host that runs ahead.
    const lane = head.lanes[head.tracks[view.track[i]][0]];
    const step = lane.kind === "device" && head.steps.find(([, from, to]) => from <= start && start < to);
    line(list, "starts at", `${(start / 1e6).toFixed(4)} ms${step ? `, in step ${step[0]}` : ""}`);
    line(list, "on", lane.label);
    const callers = [];
    for (let c = view.caller(i); c >= 0 && callers.length < 8; c = view.caller(c)) callers.push(c);
    if (callers.length) {
      const path = document.createElement("span");
      callers.forEach((c) => path.append(linkTo(c, view.title(c).slice(0, 60)), " "));
      line(list, "inside", path);
    }
    if (view.link[i]) {
      const call = i + view.link[i];
      const after = start - view.nsOf(view.start[call]);
      line(list, "started by", linkTo(call, `${view.title(call)}, ${inUnits(Math.max(after, 0))} before`));
    }
    const places = head.places.filter((place) => place.slice === i);
    if (places.length) line(list, "finding", linksTo(places.map((place) => place.id)));
    if (!view.count[i]) line(list, "row", rowOf(i));
  };

  const find = () => {
    const wanted = search.value.trim().toLowerCase();
    if (wanted) view.mark = null;
    view.searching = wanted !== "";
    const hit = head.names.map((name) => view.searching && name.toLowerCase().includes(wanted));
    const matches = [];
    let total = 0;
    for (let i = 0; view.searching && i < head.slices; i++) {
      if (hit[view.name[i]] && !view.count[i]) { matches.push(i); total += view.duration[i]; }
    }
    view.matches = Int32Array.from(matches);
    found.textContent = view.searching
      ? `${matches.length.toLocaleString("en")} events, ${inUnits(total * head.tick_ns)} together` : "";
    view.show(view.from, view.to);
  };
  const step = (by) => {
    if (view.mark) return goTo(view.mark, view.place + by);
    if (!view.matches.length) return;
    const order = [...view.matches].sort((a, b) => view.start[a] - view.start[b]);
    const here = order.indexOf(view.selected);
    const next = order[here < 0 ? 0 : (here + by + order.length) % order.length];
    select(next);
    if (view.start[next] < view.from || view.start[next] > view.to
      || view.duration[next] * 200 < view.to - view.from) zoomTo(next);
  };
  const neighbour = (by) => {
    if (view.selected < 0) return select(view.firstSeen(view.lanes[0].tracks[0]) % head.slices);
    const next = view.selected + by;
    if (next >= 0 && next < head.slices && view.track[next] === view.track[view.selected]) {
      select(next);
      const half = (view.to - view.from) / 2;
      if (view.start[next] < view.from || view.start[next] > view.to) {
        view.show(view.start[next] - half, view.start[next] + half);
      }
    }
  };
  const up = () => { const c = view.selected < 0 ? -1 : view.caller(view.selected); if (c >= 0) select(c); };
  const down = () => {
    if (view.selected < 0) return;
    const [lane, depth] = head.tracks[view.track[view.selected]];
    const track = view.lanes[lane].tracks.find((t) => t.depth === depth + 1);
    if (!track) return;
    const i = notBefore(view.start, view.start[view.selected], track.first, track.end);
    if (i < track.end && view.start[i] < view.start[view.selected] + view.duration[view.selected]) select(i);
  };

  // A place is shown with as much around it as an eighth of a step, or as it takes itself.
  const context = head.steps.length
    ? (head.steps.at(-1)[2] - head.steps[0][1]) / head.steps.length / head.tick_ns / 8 : 0;
  const goTo = (mark, place) => {
    const places = placesOf(mark, view), { starts, ends, slices } = places;
    if (view.mark !== mark) {
      [view.mark, view.matches, view.searching] = [mark, Int32Array.from(slices || []).sort(), slices !== null];
      search.value = "";
    }
    if (!starts.length) {
      found.textContent = `${mark.label}: too short to be drawn one by one`;
      view.show(view.from, view.to);
      return;
    }
    view.place = (place + starts.length) % starts.length;
    const from = starts[view.place], length = ends[view.place] - from;
    select(slices ? slices[view.place] : -1);
    const half = Math.max(length * 2.5, context, 20) / 2;
    view.show(from + length / 2 - half, from + length / 2 + half);
    const stretches = mark.count > starts.length ? ` (of ${mark.count.toLocaleString("en")}, near ones joined)` : "";
    found.textContent = `${mark.label}: ${(view.place + 1).toLocaleString("en")} of `
      + `${starts.length.toLocaleString("en")}${stretches}, ${inUnits(length * head.tick_ns)}`;
  };
  const clear = () => {
    [view.mark, view.place, search.value] = [null, -1, ""];
    find();
  };

  const commands = {
    in: () => zoom(0.6), out: () => zoom(1 / 0.6), left: () => move(-0.3), right: () => move(0.3),
    whole: () => view.show(0, head.ticks), next: () => step(1), previous: () => step(-1),
    selected: () => { if (view.selected >= 0) zoomTo(view.selected); },
  };
  const keys = {
    w: "in", "+": "in", "=": "in", s: "out", "-": "out", a: "left", d: "right",
    Home: "whole", f: "selected", n: "next", p: "previous",
  };
  const arrows = {
    ArrowLeft: () => neighbour(-1), ArrowRight: () => neighbour(1), ArrowUp: up, ArrowDown: down,
    Escape: () => { select(-1); clear(); },
    PageDown: () => view.scrollTo(view.scroll + view.shown / 2),
    PageUp: () => view.scrollTo(view.scroll - view.shown / 2),
    "/": () => search.focus(),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = commands[keys[event.key]] || arrows[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  for (const button of document.querySelectorAll("[data-do]")) {
    button.addEventListener("click", commands[button.dataset.do]);
  }
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { clear(); canvas.focus(); }
  });

  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      move((event.deltaX || event.deltaY) / 1000);
    } else {
      zoom(Math.exp(Math.max(Math.min(event.deltaY, 200), -200) / 400), Math.max(event.offsetX, view.gutter));
    }
  }, { passive: false });

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.offsetY, from: view.from, to: view.to, scroll: view.scroll,
      measures: event.shiftKey, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
    drag.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
    if (drag.measures) {
      view.measure = [view.tick(drag.x), view.tick(event.offsetX)];
      panel.textContent = inUnits(Math.abs(view.measure[1] - view.measure[0]) * head.tick_ns);
      view.show(view.from, view.to);
    } else if (drag.moved) {
      const ticks = dx / (view.width - view.gutter) * (drag.to - drag.from);
      view.scrollTo(drag.scroll - dy);
      view.show(drag.from - ticks, drag.to - ticks);
    }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) {
      view.measure = null;
      const lane = view.laneAt(event.offsetY), finding = view.findingAt(event.offsetY);
      if (finding) {
        const places = placesOf(finding, view);
        goTo(finding, event.offsetX < view.gutter ? longestPlace(places) : nearestPlace(places, view.tick(event.offsetX)));
        drag = null;
        return;
      }
      if (event.offsetX < view.gutter && lane >= 0) {
        if (!view.folded.delete(lane)) view.folded.add(lane);
        view.layOut();
        view.scrollTo(view.scroll);
      } else {
        select(view.sliceAt(event.offsetX, event.offsetY));
      }
    }
    drag = null;
  });
  canvas.addEventListener("dblclick", () => commands.selected());

  const byKey = new Map(head.marks.map((mark) => [mark.key, mark]));
  for (const button of document.querySelectorAll("button.at")) {
    const mark = byKey.get(button.dataset.mark);
    if (!mark) continue;
    button.hidden = false;
    button.addEventListener("click", () => {
      goTo(mark, longestPlace(placesOf(mark, view)));
      byId("timeline").scrollIntoView({ block: "start" });
      canvas.focus({ preventScroll: true });
    });
  }
  new ResizeObserver(() => view.resize()).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view.resize());
}

(async () => {
  const packed = document.getElementById("data");
  if (!packed || typeof DecompressionStream === "undefined") return;
  const data = await readTimeline(packed.textContent);
  document.getElementById("live").hidden = false;
  document.getElementById("still").style.display = "none";
  const view = new TimelineView(document.getElementById("canvas"), data);
  view.resize();
  liveTimeline(view);
  document.getElementById("timeline").dataset.ready = performance.now();  // ms since the page was asked for
  window.pinchpointTimeline = view;  // for tests and for a reader's console
})();
