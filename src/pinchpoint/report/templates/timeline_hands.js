// Mouse, touch and keys. What they do is in `act`, by name.

const TAP = 5;  // pixels that a finger or mouse may move and still be a click

const KEYS = {
  w: "in", "+": "in", "=": "in", s: "out", "-": "out", a: "left", d: "right",
  Home: "whole", f: "selected", n: "next", p: "previous", m: "markArea", "?": "help", g: "large", c: "path",
  e: "fold", t: "pin", "[": "back", "]": "on", "/": "search", Escape: "escape",
  ArrowLeft: "before", ArrowRight: "after", ArrowUp: "caller", ArrowDown: "called",
  PageDown: "lower", PageUp: "higher",
};
const SHIFTED = { ArrowUp: "laneAbove", ArrowDown: "laneBelow" };

function watchKeys(act, section, isLarge) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { target } = event, inside = section.contains(target);
    const alone = isLarge() && (target === document.body || inside);
    if (target.closest("input, textarea, select, dialog") || !(inside || alone)) return;
    // On a button, space and Enter press it, and the arrows and letters are the timeline's.
    const name = (event.shiftKey && SHIFTED[event.key]) || KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!name) return;
    event.preventDefault();
    act[name]();
  });
}

function watchWheel(view, act, isLarge) {
  view.canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== view.canvas && !event.ctrlKey && !isLarge()) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      act.moveBy((event.deltaX || event.deltaY) / 1000);
    } else {
      act.zoom(Math.exp(Math.max(Math.min(event.deltaY, 200), -200) / 400), Math.max(event.offsetX, view.gutter));
    }
  }, { passive: false });
}

// One finger or the mouse moves, two fingers zoom around what is between them.
function watchPointers(view, act) {
  const { canvas } = view, down = new Map();
  let drag = null, pinch = null;

  const placed = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const both = () => {
    const [a, b] = [...down.values()];
    return { middle: (a.x + b.x) / 2, apart: Math.max(Math.abs(a.x - b.x), Math.abs(a.y - b.y), 20) };
  };

  canvas.addEventListener("pointerdown", (event) => {
    const at = placed(event);
    down.set(event.pointerId, at);
    try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
    if (down.size === 2) {
      const { middle, apart } = both();
      pinch = { tick: view.tick(middle), length: view.to - view.from, apart };
      drag = null;
      return;
    }
    const onRuler = at.y < TimelineLayout.RULER && at.x > view.gutter;
    drag = { ...at, from: view.from, to: view.to, scroll: view.scroll, moved: false,
      marks: event.shiftKey || onRuler || act.areaWanted(), everyLane: onRuler };
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = placed(event);
    if (!down.has(event.pointerId)) return act.hover(at);
    down.set(event.pointerId, at);
    if (pinch && down.size === 2) {
      const { middle, apart } = both(), length = pinch.length * pinch.apart / apart;
      const from = pinch.tick - length * (middle - view.gutter) / (view.width - view.gutter);
      view.show(from, from + length);
      return;
    }
    if (!drag) return;
    drag.moved ||= Math.abs(at.x - drag.x) + Math.abs(at.y - drag.y) > TAP;
    if (!drag.moved) return;
    if (drag.marks) return act.stretch(drag, at);
    const ticks = (at.x - drag.x) / (view.width - view.gutter) * (drag.to - drag.from);
    view.scrollTo(drag.scroll - (at.y - drag.y));
    view.show(drag.from - ticks, drag.to - ticks);
  });
  const up = (event, cancelled) => {
    down.delete(event.pointerId);
    if (down.size < 2) pinch = null;
    if (drag && !cancelled && !drag.moved) act.click(placed(event));
    if (drag && drag.moved && drag.marks) act.stretched();
    drag = null;
  };
  canvas.addEventListener("pointerup", (event) => up(event, false));
  canvas.addEventListener("pointercancel", (event) => up(event, true));
  canvas.addEventListener("pointerleave", () => act.hover(null));
  canvas.addEventListener("dblclick", () => act.selected());
}

// The names of the lanes as buttons over the column of names: collapse, and pin. One collapses all
// counters.
function laneHeads(view, box, toggle, toggleCounters) {
  const many = view.head.counters.length, counters = many ? pressable("", toggleCounters) : null;
  if (counters) {
    counters.className = "name";
    box.append(element("div", "", counters));
  }
  const heads = view.lanes.map((lane) => {
    const name = pressable("", () => toggle(lane, "folded")), pin = pressable("", () => toggle(lane, "pinned"));
    name.className = "name";
    name.title = lane.label;
    pin.className = "pin";
    pin.setAttribute("aria-label", `pin ${lane.label} to the top`);
    const head = element("div", "", name, pin);
    box.append(head);
    return { lane, head, name, pin };
  });
  return () => {
    if (counters) {
      const top = view.counterTop();
      counters.textContent = `${view.countersShown ? "▾" : "▸"} ${many} counter${many > 1 ? "s" : ""}`;
      counters.setAttribute("aria-expanded", String(view.countersShown));
      placeHead(view, counters.parentElement, top, view.top, view.shown);
    }
    for (const { lane, head, name, pin } of heads) {
      const top = view.laneTop(lane), [low, high] = view.zone(lane);
      placeHead(view, head, top, low, high);
      const sign = lane.levels > 1 ? (lane.folded ? "▸ " : "▾ ") : "";
      if (name.textContent !== sign + lane.label) name.textContent = sign + lane.label;
      name.setAttribute("aria-expanded", String(!lane.folded));
      pin.textContent = lane.pinned ? "▲" : "△";
      pin.title = lane.pinned ? "pinned to the top (t)" : "pin to the top (t)";
      pin.setAttribute("aria-pressed", String(lane.pinned));
    }
  };
}

function placeHead(view, head, top, low, high) {
  head.hidden = top < low - 6 || top + TimelineLayout.ROW > high + 4;
  head.style.display = head.hidden ? "none" : "";
  head.style.transform = `translateY(${top - 1}px)`;
  head.style.width = `${view.gutter - 10}px`;
}
