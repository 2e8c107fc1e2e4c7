"use strict";
// Unpacks what report/timeline/pack.py wrote.
async function readTimeline(base64) {
  const bytes = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(base64)
    : Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const body = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(body.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(body.subarray(4, 4 + length)));
  const n = head.slices;
  let at = 4 + length;
  const planes = [...head.planes];
  const column = () => {
    const values = new Uint32Array(n);
    for (const plane of planes.shift()) {
      for (let i = 0; i < n; i++) values[i] |= body[at + i] << (8 * plane);
      at += n;
    }
    return values;
  };
  const start = column(), duration = column(), name = column();
  const link = new Int32Array(column().buffer), count = column();
  const row = new Int32Array(column().buffer), detail = column(), source = column();
  const track = new Int32Array(n);
  head.tracks.forEach(([, , first, slices], t) => {
    track.fill(t, first, first + slices);
    for (let i = first + 1; i < first + slices; i++) {
      start[i] += start[i - 1];
      row[i] += row[i - 1];
    }
  });
  return { head, start, duration, name, link, count, row, detail, source, track };
}

// First position in [low, high) whose start is not before a time; high if there is none.
function notBefore(start, time, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
}

function inUnits(ns) {
  const [unit, size] = ns >= 1e10 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6]
    : ns >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  const value = ns / size;
  return `${value >= 100 || size === 1 ? value.toFixed(0) : value.toPrecision(3)} ${unit}`;
}

const thousands = (number) => number.toLocaleString("en");

// An element with text and children.
function element(tag, text = "", ...children) {
  const made = document.createElement(tag);
  made.textContent = text;
  made.append(...children);
  return made;
}

function pressable(text, act) {
  const button = element("button", text);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}
