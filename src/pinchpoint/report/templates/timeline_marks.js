// What the links of the page lead to; report/timeline/marks.py says what they are.

// The places of a mark in order of time: starts and ends in ticks, slices where they are events.
function placesOf(mark, data) {
  if (mark.places) return mark.places;
  let starts = [], ends = [], slices = null;
  if (mark.starts) {
    let at = 0;
    mark.starts.forEach((gap, k) => { at += gap; starts.push(at); ends.push(at + mark.lengths[k]); });
  } else {
    if (mark.names) {
      const wanted = new Uint8Array(data.head.names.length);
      for (const entry of mark.names) wanted[entry] = 1;
      slices = slicesNamed(wanted, data);
    } else {
      slices = summed(mark.slices);
    }
    slices.sort((a, b) => data.start[a] - data.start[b]);
    starts = Array.from(slices, (i) => data.start[i]);
    ends = Array.from(slices, (i) => data.start[i] + data.duration[i]);
  }
  mark.places = { starts, ends, slices };
  return mark.places;
}

function summed(differences) {
  const sums = Int32Array.from(differences);
  for (let k = 1; k < sums.length; k++) sums[k] += sums[k - 1];
  return sums;
}

// The slices with some of the names, in order of tracks; folded stretches are none of them.
function slicesNamed(wanted, { head, name, count }) {
  const found = [];
  for (let i = 0; i < head.slices; i++) if (wanted[name[i]] && !count[i]) found.push(i);
  return Int32Array.from(found);
}

// Where a link leads first: the longest place in the step that a finding is about, of all else in
// the typical one. Where that has none, the longest of all.
function firstPlace(mark, view) {
  const { starts, ends } = placesOf(mark, view), key = mark.key.replace(/^finding /, "");
  const steps = view.head.shown_steps;
  const about = steps.find(([, , , why]) => why.includes(key)) || steps.find(([, , , why]) => why.includes("typical"));
  const [from, to] = about ? [view.tickOf(about[1]), view.tickOf(about[2])] : [0, 0];
  let longest = 0, inside = -1;
  for (let k = 0; k < starts.length; k++) {
    const length = ends[k] - starts[k];
    if (length > ends[longest] - starts[longest]) longest = k;
    if (starts[k] >= from && starts[k] < to && (inside < 0 || length > ends[inside] - starts[inside])) inside = k;
  }
  return inside < 0 ? longest : inside;
}

function nearestPlace({ starts, ends }, at) {
  let nearest = 0, least = Infinity;
  for (let k = 0; k < starts.length; k++) {
    const away = at < starts[k] ? starts[k] - at : Math.max(at - ends[k], 0);
    if (away < least) [nearest, least] = [k, away];
  }
  return nearest;
}
