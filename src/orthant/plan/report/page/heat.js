// The best speed of each pair of tp and pp.

function is_better(point, other) {
  if (point.fits !== other.fits) return point.fits;
  return point.fits ? point.speed > other.speed : point.memory_bytes < other.memory_bytes;
}

// "tp,pp" -> the fastest that fits, or else the leanest that does not.
function best_by_pair(points) {
  const cells = new Map();
  for (const point of points) {
    const key = `${point.tp},${point.pp}`;
    if (!cells.has(key) || is_better(point, cells.get(key))) cells.set(key, point);
  }
  return cells;
}

function heat_cell(data, point, speeds, ringed) {
  const none = (title, words) => html("td", {class: "none", title}, words);
  if (!point) return none("not priced: too large without activations, or degrees that divide nothing", "–");
  const needs = `${memory_text(point.memory_bytes)} of ${memory_text(data.hardware.memory_bytes)}`;
  if (!point.fits) return none(`does not fit: the leanest needs ${needs}`, `${grouped(gib(point.memory_bytes))} GiB`);
  const low = smallest(speeds), high = largest(speeds), share = high > low ? (point.speed - low) / (high - low) : 1;
  const title = `${mesh_text(point)}: ${manner_text(point)}; ${needs}`;
  const style = `--share: ${(0.06 + 0.94 * share).toFixed(3)}`;
  return html("td", {style, class: ringed ? "best" : undefined, title}, short(point.speed));
}

function heat_finding(cells, best) {
  const fits = [...cells.values()].filter(point => point.fits);
  if (!fits.length) return "No pair of tp and pp fits.";
  const ring = best ? [" The ring is the best plan’s pair: ", bold(`tp ${best.tp}, pp ${best.pp}`), "."] : "";
  return ["Tokens/s per GPU of the fastest plan that fits.", ring];
}

function show_heat(data, best) {
  const cells = best_by_pair(data.points);
  const degrees = axis => [...new Set(data.points.map(point => point[axis]))].sort((a, b) => a - b);
  const tps = degrees("tp"), pps = degrees("pp");
  const speeds = [...cells.values()].filter(point => point.fits).map(point => point.speed);
  if (tps.length * pps.length < 2) return;
  show("heat-section");
  put("heat-finding", heat_finding(cells, best));
  const head = html("tr", {}, html("th", {}), tps.map(tp => html("th", {scope: "col"}, `tp ${tp}`)));
  const row = pp => html("tr", {}, html("th", {scope: "row"}, `pp ${pp}`),
    tps.map(tp => heat_cell(data, cells.get(`${tp},${pp}`), speeds, best && best.tp === tp && best.pp === pp)));
  put("heat", html("table", {class: "heat"}, html("thead", {}, head), html("tbody", {}, pps.map(row))));
  put("heat-note", "Hatched: nothing fits. A figure there is what the leanest priced plan needs; a dash: none was ",
    "worth pricing.");
}
