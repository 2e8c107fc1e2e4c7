"use strict";
// Flame graphs to zoom and search in; without this script they are pictures. Frames are those of
// report/svg/flame.py, of time and of memory alike.
(() => {
  const ROW = 18;
  const NARROWEST = 0.0008;  // of the width; about a pixel

  // A tree of {name, amount, times, children}; parents come before their children in the data.
  function treeOf({ names, foreign, parent, name, amount, times, what }) {
    const hidden = new Set(foreign);
    const nodes = name.map((n, i) => ({ name: names[n], foreign: hidden.has(n), amount: amount[i], times: times[i], children: [] }));
    const roots = [];
    nodes.forEach((node, i) => (parent[i] < 0 ? roots : nodes[parent[i]].children).push(node));
    if (roots.length === 1) return roots[0];
    return { name: what, amount: roots.reduce((sum, node) => sum + node.amount, 0), times: 0, children: roots };
  }

  const ownOf = (node) => Math.max(node.amount - node.children.reduce((sum, child) => sum + child.amount, 0), 0);

  // The child of a node with a name, made where there is none.
  function childOf(node, name, foreign) {
    let child = node.children.find((one) => one.name === name);
    if (!child) node.children.push(child = { name, foreign, amount: 0, times: 0, children: [] });
    return child;
  }

  // Frames of libraries give what is below them to their callers; equal names become one.
  function withoutLibraries(node) {
    const made = { ...node, children: [] };
    const add = (from, to) => {
      for (const child of from.children) {
        if (child.foreign) { add(child, to); continue; }
        const own = childOf(to, child.name, false);
        own.amount += child.amount;
        own.times += child.times;
        add(child, own);
      }
    };
    add(node, made);
    return made;
  }

  // What holds it by itself first, then who called that: amounts are without those of callees.
  function inverted(top) {
    const made = { name: top.name, amount: top.amount, times: 0, children: [] }, path = [];
    const walk = (node) => {
      path.push(node);
      const own = ownOf(node);
      if (own > 0) {
        let at = made;
        for (let k = path.length - 1; k > 0 || (k === 0 && path.length === 1); k--) {
          at = childOf(at, path[k].name, path[k].foreign);
          at.amount += own;
          if (k === path.length - 1) at.times += node.times;
        }
      }
      node.children.forEach(walk);
      path.pop();
    };
    walk(top);
    return made;
  }

  function inUnit(amount, unit) {
    const steps = unit === "bytes" ? [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024], ["B", 1]]
      : [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
    const [word, size] = steps.find(([, least]) => amount >= least) || steps.at(-1);
    return `${size === 1 ? amount : (amount / size).toPrecision(3)} ${word}`;
  }

  const made = (tag, css, text = "") => Object.assign(document.createElement(tag), { className: css, textContent: text });

  function live(holder) {
    const data = JSON.parse(holder.querySelector(".frames").textContent);
    const plain = treeOf(data);
    const box = made("div", "flamebox"), said = made("p", "flamesaid soft"), tools = made("div", "flametools tools");
    const search = made("input", "");
    const modes = { inverted: false, short: false };
    let top = plain, zoomed = plain, here = plain, parents = new Map(), boxes = new Map();

    const describe = (node) => {
      const share = (100 * node.amount / top.amount).toFixed(1);
      const own = modes.inverted ? "" : `, ${inUnit(ownOf(node), data.unit)} by itself`;
      return `${node.name}: ${inUnit(node.amount, data.unit)}, ${share} %${own}`
        + (node.times ? `, ${node.times.toLocaleString("en")} ${node.times === 1 ? data.counted.slice(0, -1) : data.counted}` : "");
    };
    const hits = (node) => search.value.trim() !== "" && node.name.toLowerCase().includes(search.value.trim().toLowerCase());
    const sumOfHits = (node) => hits(node) ? node.amount : node.children.reduce((sum, child) => sum + sumOfHits(child), 0);
    const say = (node = here) => {
      said.textContent = search.value.trim()
        ? `${inUnit(sumOfHits(top), data.unit)}, ${(100 * sumOfHits(top) / top.amount).toFixed(1)} % in frames that match. ${describe(node)}`
        : describe(node);
    };

    const place = (node, left, width, level) => {
      const frame = made("div", `frame d${level % 4}`, node.name);
      frame.style.left = `${100 * left}%`;
      frame.style.width = `${100 * width}%`;
      frame.style.top = `${level * ROW}px`;
      frame.title = describe(node);
      if (search.value.trim()) frame.classList.add(hits(node) ? "hit" : "dim");
      if (node === here) frame.classList.add("here");
      frame.addEventListener("click", () => { here = node; zoom(node); });
      frame.addEventListener("pointerenter", () => say(node));
      boxes.set(node, frame);
      box.append(frame);
      return level;
    };
    const draw = () => {
      box.replaceChildren();
      boxes = new Map();
      const path = [];
      for (let node = zoomed; node; node = parents.get(node)) path.unshift(node);
      path.forEach((node, level) => place(node, 0, 1, level));
      let deepest = path.length - 1;
      const below = (node, left, width, level) => {
        let at = left;
        for (const child of node.children) {
          const wide = width * child.amount / Math.max(node.amount, 1);
          if (wide < NARROWEST) break;  // the others are narrower
          deepest = Math.max(deepest, place(child, at, wide, level));
          below(child, at, wide, level + 1);
          at += wide;
        }
      };
      below(zoomed, 0, 1, path.length);
      box.style.height = `${(deepest + 1) * ROW}px`;
      say();
    };
    const zoom = (node) => { zoomed = node; draw(); };
    const turn = () => {
      top = modes.short ? withoutLibraries(plain) : plain;
      if (modes.inverted) top = inverted(top);
      parents = new Map();
      const note = (node) => {
        node.children.sort((a, b) => b.amount - a.amount);
        for (const child of node.children) { parents.set(child, node); note(child); }
      };
      note(top);
      here = top;
      zoom(top);
    };
    const go = (node) => {
      if (!node || !boxes.has(node)) return;
      boxes.get(here)?.classList.remove("here");
      boxes.get(node).classList.add("here");
      here = node;
      say();
    };
    const beside = (by) => {
      const around = parents.get(here)?.children || [];
      return around[around.indexOf(here) + by];
    };

    const button = (text, act) => {
      const one = made("button", "", text);
      one.type = "button";
      one.addEventListener("click", () => act(one));
      tools.append(one);
    };
    const mode = (text, name) => button(text, (one) => {
      modes[name] = !modes[name];
      one.setAttribute("aria-pressed", String(modes[name]));
      turn();
    });
    search.type = "search";
    search.placeholder = "search frames";
    search.setAttribute("aria-label", `Search frames: ${data.what}`);
    search.addEventListener("input", draw);
    tools.append(search);
    button("whole", () => { here = top; zoom(top); });
    mode("invert", "inverted");
    if (data.foreign.length) mode("hide library frames", "short");
    for (const one of tools.querySelectorAll("button:not(:nth-of-type(1))")) one.setAttribute("aria-pressed", "false");

    box.tabIndex = 0;
    box.setAttribute("role", "application");
    box.setAttribute("aria-label", `${data.what}: arrow keys choose frames, Enter zooms, Escape shows all`);
    const keys = {
      ArrowUp: () => go(parents.get(here)), ArrowDown: () => go(here.children[0]),
      ArrowLeft: () => go(beside(-1)), ArrowRight: () => go(beside(1)),
      Enter: () => zoom(here), Escape: () => { here = top; zoom(top); }, "/": () => search.focus(),
    };
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    box.addEventListener("pointerleave", () => say());
    said.setAttribute("role", "status");
    holder.querySelector(".flame").style.display = "none";
    holder.prepend(tools, box, said);
    turn();
  }
  const later = window.requestIdleCallback || ((act) => setTimeout(act, 50));  // the first screen comes first
  for (const holder of document.querySelectorAll(".flames")) later(() => live(holder));
})();
