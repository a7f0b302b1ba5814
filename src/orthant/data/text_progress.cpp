#include "orthant/data/text_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "orthant/base/human.h"

namespace orthant {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kLogSeconds = 10;
constexpr int kMaxBar = 30;
constexpr int kMinBar = 6;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The most important first.
std::vector<std::string> parts_of(const TextProgress& progress, double seconds) {
  std::vector<std::string> parts = {
      "tokenizing", fmt::format("{}/{}", format_bytes(progress.bytes), format_bytes(progress.total_bytes))};
  const double rate = static_cast<double>(progress.bytes - progress.first_byte) / std::max(seconds, 1e-9);
  if (rate >= 1 && seconds > 0) {
    parts.push_back(fmt::format("{}/s", format_bytes(std::llround(rate))));
    const double left = static_cast<double>(progress.total_bytes - progress.bytes) / rate;
    parts.push_back("eta " + format_seconds(std::ceil(left)));
  }
  parts.push_back(fmt::format("{} tokens", format_count(progress.tokens)));
  return parts;
}

std::size_t joined_width(const std::vector<std::string>& parts) {
  std::size_t width = 0;
  for (const auto& part : parts) width += part.size() + (width > 0 ? 2 : 0);
  return width;
}

}  // namespace

std::string text_progress_line(const TextProgress& progress, double seconds, int width, bool color) {
  auto parts = parts_of(progress, seconds);
  std::string bar;
  if (width >= 0) {
    while (parts.size() > 1 && joined_width(parts) > static_cast<std::size_t>(width)) parts.pop_back();
    const int room = std::min(width - static_cast<int>(joined_width(parts)) - 4, kMaxBar);
    if (room >= kMinBar) {
      const double done = progress.total_bytes > 0
                              ? static_cast<double>(progress.bytes) / static_cast<double>(progress.total_bytes)
                              : 1;
      const auto filled = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * room);
      bar = fmt::format("  [{}{}{}{}]", color ? "\x1b[36m" : "", std::string(filled, '#'),
                        std::string(static_cast<std::size_t>(room) - filled, '.'), color ? "\x1b[0m" : "");
    }
  }
  std::string line = parts[0] + bar;
  for (std::size_t i = 1; i < parts.size(); ++i) line += "  " + parts[i];
  return bar.empty() && width >= 0 ? line.substr(0, static_cast<std::size_t>(width)) : line;
}

TextProgressReport::TextProgressReport(std::ostream& out, TextProgressOptions options)
    : out_(out), options_(std::move(options)) {
  if (!options_.clock_seconds) options_.clock_seconds = steady_seconds;
  began_seconds_ = shown_seconds_ = options_.clock_seconds();
}

TextProgressReport::~TextProgressReport() {
  if (on_line_) out_ << "\n" << std::flush;
}

void TextProgressReport::show(const TextProgress& progress) {
  last_ = progress;
  pending_ = true;
  const double now = options_.clock_seconds();
  if (now - shown_seconds_ >= (options_.terminal_width ? kRedrawSeconds : kLogSeconds)) draw(now);
}

void TextProgressReport::draw(double now) {
  const double seconds = now - began_seconds_;
  if (options_.terminal_width) {
    // One column stays free: a full line would wrap in some terminals.
    out_ << "\r" << text_progress_line(last_, seconds, options_.terminal_width() - 1, options_.color) << "\x1b[K"
         << std::flush;
    on_line_ = true;
  } else {
    out_ << text_progress_line(last_, seconds, -1, false) << "\n" << std::flush;
  }
  shown_seconds_ = now;
  shown_ = true;
  pending_ = false;
}

void TextProgressReport::finish() {
  // What took no time needs no line in a log.
  if (pending_ && (options_.terminal_width || shown_)) draw(options_.clock_seconds());
  if (on_line_) out_ << "\n" << std::flush;
  on_line_ = false;
}

}  // namespace orthant
