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

function longestPlace({ starts, ends }) {
  let longest = 0;
  for (let k = 1; k < starts.length; k++) if (ends[k] - starts[k] > ends[longest] - starts[longest]) longest = k;
  return longest;
}

function nearestPlace({ starts, ends }, at) {
  let nearest = 0, least = Infinity;
  for (let k = 0; k < starts.length; k++) {
    const away = at < starts[k] ? starts[k] - at : Math.max(at - ends[k], 0);
    if (away < least) [nearest, least] = [k, away];
  }
  return nearest;
}
