#include <fmt/format.h>

#include "orthant/report/curve.h"
#include "orthant/report/page_parts.h"

namespace orthant::report {
namespace {

constexpr const char* kStyle = R"css(
/* Both themes at once: the first colour of a pair is the light one. ?theme=dark and ?theme=light overrule the system. */
:root {
  color-scheme: light dark;
  --paper: light-dark(#fdfdfb, #15171b); --panel: light-dark(#f4f5f3, #1d2026); --ink: light-dark(#1a1e23, #e9e7e2);
  --soft: light-dark(#59626c, #a5adb7); --rule: light-dark(#d9dce0, #353a42); --grid: light-dark(#e8eaec, #282c33);
  --accent: light-dark(#1a5a9c, #86bdf3); --bad: light-dark(#a53a22, #ff9d85); --good: light-dark(#1f6f54, #6fcfab);
  --c0: light-dark(#1a5a9c, #86bdf3); --c1: light-dark(#c2602b, #eb9a63); --c2: light-dark(#1f6f54, #6fcfab);
  --c3: light-dark(#8f1d4f, #ef7fa8); --c4: light-dark(#6a5a00, #e5c67f); --c5: light-dark(#3b1d6e, #a996f5);
  --p0: light-dark(#1d4f86, #3c78b8); --p1: light-dark(#5590c4, #74aede); --p2: light-dark(#abcdea, #b9d9f3);
  --p3: light-dark(#c2602b, #cc6d37); --p4: light-dark(#e39d66, #e8a877); --p5: light-dark(#f3d6ad, #f0d6b2);
  --p6: light-dark(#8f1d4f, #ef7fa8); --p7: light-dark(#54a84a, #8fd35f); --p8: light-dark(#1f8a8c, #2fb9a9);
  --p9: light-dark(#c79a12, #f3dd55); --p10: light-dark(#b4bac1, #565d67);
  --forward: light-dark(#93bfe2, #6fa6d6); --backward: light-dark(#eca876, #dd9259); --weights: light-dark(#f3dca8, #e5c67f);
}
:root[data-theme="light"] { color-scheme: light; }
:root[data-theme="dark"] { color-scheme: dark; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 -apple-system, "Segoe UI", Inter, Roboto, "Helvetica Neue", Arial, sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1128px; margin: 0 auto; padding: 36px 28px 64px; }
.skip { position: absolute; left: -9999px; }
.skip:focus { left: 12px; top: 12px; background: var(--paper); padding: 4px 8px; z-index: 3; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 2px; }
h1, h2 { text-wrap: balance; line-height: 1.2; font-weight: 650; letter-spacing: -0.012em; }
h1 { font-size: 30px; margin: 4px 0 12px; } h2 { font-size: 20px; margin: 0 0 10px; }
section { margin-top: 40px; padding-top: 18px; border-top: 1px solid var(--rule); }
.kicker, .note, figcaption, .readout, .legend { color: var(--soft); font-size: 14px; }
.kicker, .readout { margin: 0; } figure { margin: 0; min-width: 0; } figure + figure { margin-top: 14px; } .curves figure { margin-top: 0; } figcaption { font-weight: 600; color: var(--ink); margin-bottom: 4px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 18px 24px; margin: 22px 0 0;
  padding: 16px 0; border: solid var(--rule); border-width: 1px 0; }
.figures div { display: flex; flex-direction: column; } .figures dt { order: 2; color: var(--soft); font-size: 13px; }
.figures dd { margin: 0; font-size: 24px; font-weight: 600; white-space: nowrap; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 10px 36px; }
svg { display: block; width: 100%; height: auto; } .grid { stroke: var(--grid); } .tick { fill: var(--soft); font-size: 11.5px; }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; } .cursor { stroke: var(--soft); }
.line-0 { stroke: var(--c0); } .line-1 { stroke: var(--c1); } .line-2 { stroke: var(--c2); } .line-3 { stroke: var(--c3); }
.line-4 { stroke: var(--c4); } .line-5 { stroke: var(--c5); } .dot { fill: var(--paper); stroke-width: 1.6; }
.mark-checkpoint { stroke: var(--good); stroke-width: 2; } .mark-restart { stroke: var(--c3); stroke-dasharray: 4 3; }
.mark-bad { stroke: var(--bad); } .key { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 6px 0 12px; }
.finding { margin: 0 0 14px; padding: 10px 14px; background: var(--panel); border-left: 3px solid var(--accent); max-width: 62em; }
.finding.bad { border-color: var(--bad); } .finding p { margin: 0; overflow-wrap: anywhere; } .finding .note { margin-top: 4px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13.5px; } caption { text-align: left; }
th, td { padding: 4px 14px 4px 0; text-align: right; border-bottom: 1px solid var(--grid); white-space: nowrap; }
th { font-weight: 600; } th:first-child, td:first-child, .texts td { text-align: left; } .texts td { white-space: normal; overflow-wrap: anywhere; }
.bars text { fill: var(--ink); font-size: 12px; } .bars { min-width: 680px; } .action { stroke: var(--paper); stroke-width: .5; }
.live { float: right; margin: 0; font-size: 14px; color: var(--soft); } .live::before { content: ""; display: inline-block; width: 9px; height: 9px;
  border-radius: 50%; margin-right: 6px; background: var(--soft); } .live.on::before { background: var(--good); } .live.off::before { background: var(--bad); }
details { margin-top: 12px; } summary { cursor: pointer; }
@media (max-width: 600px) { main { padding: 22px 14px 44px; } h1 { font-size: 24px; } .figures dd { font-size: 20px; } .tick { font-size: 15px; } .bars text { font-size: 17px; } }
@media print { .skip, .readout { display: none; } }
)css";

constexpr const char* kScript = R"js(
"use strict";
const theme = new URLSearchParams(location.search).get("theme");
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
const places = {};  // of cursors: the step of each curve that is read
const wire = (holder) => {
  const svg = document.getElementById(holder.dataset.for), curves = JSON.parse(holder.textContent);
  const readout = document.getElementById(svg.id + "-readout"), cursor = svg.querySelector(".cursor");
  let longest = curves[0];
  for (const curve of curves) if (curve.points.length > longest.points.length) longest = curve;
  const points = longest.points;
  let place = points.length - 1;
  const nearest = (of, key, wanted) => {
    let low = 0, high = of.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (of[middle][key] <= wanted) low = middle; else high = middle; }
    return of[high] && Math.abs(of[high][key] - wanted) < Math.abs(of[low][key] - wanted) ? high : low;
  };
  const show = () => {
    if (!points.length) return;
    const [step, , x] = points[place];
    places[svg.id] = place === points.length - 1 ? Infinity : step;  // who reads the end goes with it
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.setAttribute("visibility", "visible");
    readout.textContent = "step " + step + ": " + curves.filter((curve) => curve.points.length)
      .map((curve) => curve.name + " " + curve.points[nearest(curve.points, 2, x)][1]).join(", ");
  };
  if (svg.id in places && points.length) {
    place = places[svg.id] === Infinity ? points.length - 1 : nearest(points, 0, places[svg.id]);
    show();
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    if (points.length) place = nearest(points, 2, x);
    show();
  });
  svg.addEventListener("focus", show);
  svg.addEventListener("keydown", (event) => {
    const last = points.length - 1, far = Math.max(1, Math.round(last / 20));
    const moves = { ArrowLeft: place - 1, ArrowRight: place + 1, PageUp: place - far, PageDown: place + far, Home: 0, End: last };
    if (!(event.key in moves)) return;
    event.preventDefault(); place = Math.min(last, Math.max(0, moves[event.key])); show();
  });
};
for (const holder of document.querySelectorAll("script[data-for]")) wire(holder);
)js";

// Takes sections as they come. What somebody reads stays as it is: the focus, open parts, how far a table is scrolled.
constexpr const char* kLiveScript = R"js(
const live = document.getElementById("live");
const say = (text, state) => { if (live.textContent !== text) live.textContent = text; live.className = "live " + state; };
const paths = (root) => [...root.querySelectorAll(":scope details, :scope .wide")];
const replace = (id, html) => {
  const piece = document.getElementById(id);
  if (!piece) return;
  const focused = piece.contains(document.activeElement) ? document.activeElement : null;
  const all = [...piece.querySelectorAll("[tabindex], summary, a")], number = all.indexOf(focused);
  const kept = paths(piece).map((one) => [one.open, one.scrollLeft]);
  piece.innerHTML = html;
  paths(piece).forEach((one, i) => { if (kept[i]) { one.open = kept[i][0]; one.scrollLeft = kept[i][1]; } });
  for (const holder of piece.querySelectorAll("script[data-for]")) wire(holder);
  if (!focused) return;
  const again = focused.id ? document.getElementById(focused.id) : piece.querySelectorAll("[tabindex], summary, a")[number];
  if (again) again.focus({ preventScroll: true });
};
const source = new EventSource("events?since=" + encodeURIComponent(live.dataset.since));
source.addEventListener("pieces", (event) => {
  const { title, pieces } = JSON.parse(event.data);
  document.title = title;
  for (const { id, html } of pieces) replace(id, html);
});
source.addEventListener("open", () => say("live", "on"));
source.addEventListener("error", () => say("not connected: this page stands still", "off"));
)js";

}  // namespace

std::string page_head(const std::string& title) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#answer\">Skip to the answer</a>\n<main>\n",
      escaped(title), kStyle);
}

std::string page_foot(bool live) {
  return fmt::format("</main>\n<script>{}{}</script>\n</body>\n</html>\n", kScript, live ? kLiveScript : "");
}

}  // namespace orthant::report
