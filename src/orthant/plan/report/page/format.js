// Quantities as people read them. GiB = 2^30 bytes, GB = 1e9.

function grouped(number, digits = 0) {
  const text = Math.abs(number).toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
  return number < 0 && /[1-9]/.test(text) ? `−${text}` : text;
}

// Three digits that count, or whole numbers: 1,218 or 64.8 or 0.52.
function short(number) {
  const size = Math.abs(number);
  return grouped(number, size >= 100 || number === 0 ? 0 : size >= 10 ? 1 : 2);
}

// 28.4k, 1.02M, 70.6B.
function scaled(number) {
  for (const [size, letter] of [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (number >= 0.9995 * size) return short(number / size).replace(/\.0+$/, "") + letter;
  }
  return short(number);
}

const gib = bytes => bytes / 2 ** 30;
const gib_text = bytes => grouped(gib(bytes), Math.abs(gib(bytes)) < 1000 ? 1 : 0);
const memory_text = bytes => gib_text(bytes) + " GiB";
const speed_text = speed => short(speed) + " tokens/s";
const percent = (share, digits = 1) => grouped(100 * share, digits) + "%";
const plural = (count, one, many = one + "s") => `${grouped(count)} ${count === 1 ? one : many}`;

function bytes_text(bytes) {
  for (const [size, name] of [
    [2 ** 40, "TiB"],
    [2 ** 30, "GiB"],
    [2 ** 20, "MiB"],
    [2 ** 10, "KiB"],
  ]) {
    if (bytes >= size) return `${short(bytes / size)} ${name}`;
  }
  return `${bytes} B`;
}

// Number and unit, apart, so that figures can set them in two sizes.
function seconds_parts(seconds) {
  if (seconds <= 0) return ["0", "s"];
  if (seconds < 0.9995e-3) return [short(seconds * 1e6), "µs"];
  if (seconds < 0.9995) return [short(seconds * 1e3), "ms"];
  if (seconds < 600) return [short(seconds), "s"];
  return seconds < 7200 ? [short(seconds / 60), "min"] : [short(seconds / 3600), "h"];
}
const seconds_text = seconds => seconds_parts(seconds).join(" ");

const days_parts = days =>
  days < 2 ? [short(days * 24), "hours"] : days < 1000 ? [short(days), "days"] : [short(days / 365.25), "years"];

function dollars_text(dollars) {
  return "$" + (dollars >= 1e4 ? scaled(dollars) : grouped(dollars));
}

const kAxes = ["pp", "dp", "fsdp", "cp", "tp", "ep"];

// "pp 8 · fsdp 2 · tp 4"; degrees of 1 are not said.
function mesh_text(mesh) {
  const said = kAxes.filter(axis => mesh[axis] > 1).map(axis => `${axis} ${mesh[axis]}`);
  return said.length ? said.join(" · ") : "no parallel axis";
}

// The same of "pp=8,fsdp=2,tp=4".
const mesh_words = text =>
  mesh_text(
    Object.fromEntries(
      text
        .split(",")
        .map(field => field.split("="))
        .map(([axis, degree]) => [axis, Number(degree)]),
    ),
  );

// How it runs besides its mesh.
function manner_text(plan) {
  const words = [];
  if (plan.pp > 1)
    words.push(
      plan.virtual_stages > 1 ? `${plan.schedule} with ${plan.virtual_stages} stages per pp coordinate` : plan.schedule,
    );
  words.push(`micro batch ${plan.micro_batch}`);
  if (plan.fsdp > 1) words.push(`zero ${plan.zero}`);
  words.push(plan.recompute === "none" ? "no recompute" : `recompute ${plan.recompute}`);
  if (plan.sequence_parallel) words.push("sequence parallel");
  if (plan.regather) words.push("regather");
  if (plan.accumulate === "sharded") words.push("gradients accumulated in shards");
  return words.join(", ");
}
