#include "orthant/plan/estimate/link_fit.h"

namespace orthant {

Link fit_link(const std::vector<LinkSample>& samples) {
  // hops * latency + bytes * pace = seconds, each equation divided by its seconds.
  double hh = 0, hb = 0, bb = 0, h = 0, b = 0;
  for (const auto& sample : samples) {
    const double hops = sample.hops / sample.seconds;
    const double bytes = sample.bytes / sample.seconds;
    hh += hops * hops;
    hb += hops * bytes;
    bb += bytes * bytes;
    h += hops;
    b += bytes;
  }
  const double determinant = hh * bb - hb * hb;
  const double latency = (h * bb - b * hb) / determinant;
  const double pace = (b * hh - h * hb) / determinant;
  const bool sensible = determinant > 0 && latency > 0 && pace > 0;
  Link link;
  link.bandwidth = sensible ? 1 / pace : bb / b;
  link.latency = sensible ? latency : 0;
  return link;
}

}  // namespace orthant
