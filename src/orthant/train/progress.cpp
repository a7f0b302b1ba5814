#include "orthant/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "orthant/base/human.h"

namespace orthant {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kLogSeconds = 10;
constexpr std::int64_t kLogLines = 20;
constexpr std::int64_t kEpochLines = 100;  // of a run; more epochs share lines
constexpr std::string_view kGap = "  ";
constexpr int kMaxBar = 30;
constexpr int kMinBar = 6;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Four digits after the point where that says something, four significant ones elsewhere.
std::string loss_text(double value) {
  const double size = std::abs(value);
  return size >= 0.01 && size < 10000 ? fmt::format("{:.4f}", value) : fmt::format("{:.4g}", value);
}

std::string rate_text(double rate, std::string_view unit) {
  if (!std::isfinite(rate) || std::abs(rate) > 1e18) return fmt::format("{} {}", rate, unit);
  if (rate < 10) return fmt::format("{:.2f} {}", rate, unit);
  return fmt::format("{} {}", format_count(std::llround(rate)), unit);
}

std::string_view unit_of(ProgressRate rate) {
  return rate == ProgressRate::tokens ? "tokens/s" : "samples/s";
}

std::string rate_text(const ProgressState& state) {
  const bool tokens = state.rate == ProgressRate::tokens;
  return rate_text(tokens ? state.metrics.tokens_per_second : state.metrics.samples_per_second, unit_of(state.rate));
}

std::string step_text(const ProgressState& state) {
  const std::string total = fmt::format("{}", state.total_steps);
  return fmt::format("step {:>{}}/{}", state.metrics.step, total.size(), total);
}

std::string eta_text(const ProgressState& state) {
  if (state.eta_seconds < 0) return "";
  // A second is fine enough for a guess.
  return "eta " + format_seconds(state.eta_seconds < 1 ? std::ceil(state.eta_seconds) : std::round(state.eta_seconds));
}

std::string bar_text(const ProgressState& state, int inside) {
  const double done = std::clamp(
      static_cast<double>(state.metrics.step) / static_cast<double>(std::max<std::int64_t>(state.total_steps, 1)), 0.0,
      1.0);
  const auto filled = static_cast<std::size_t>(done * inside);
  return std::string(filled, '#') + std::string(static_cast<std::size_t>(inside) - filled, '.');
}

struct Field {
  std::string text;
  int importance;  // the lowest is left out first
};

std::vector<Field> fields_of(const ProgressState& state) {
  std::vector<Field> fields = {
      {step_text(state), 7},
      {"loss " + loss_text(state.metrics.loss), 6},
      {fmt::format("grad {:.3g}", state.metrics.grad_norm), 2},
      {rate_text(state), 4},
      {eta_text(state), 5},
      {state.metrics.peak_memory_bytes > 0 ? format_bytes(state.metrics.peak_memory_bytes) : "", 1},
  };
  std::erase_if(fields, [](const Field& field) { return field.text.empty(); });
  return fields;
}

std::size_t joined_width(const std::vector<Field>& fields) {
  std::size_t width = 0;
  for (const Field& field : fields) width += field.text.size() + (width > 0 ? kGap.size() : 0);
  return width;
}

}  // namespace

std::string progress_line(const ProgressState& state, int width, bool color) {
  const auto columns = static_cast<std::size_t>(std::max(width, 0));
  std::vector<Field> fields = fields_of(state);
  while (fields.size() > 1 && joined_width(fields) > columns) {
    fields.erase(std::min_element(fields.begin(), fields.end(), [](const Field& left, const Field& right) {
      return left.importance < right.importance;
    }));
  }
  // The bar takes what is left, between its brackets.
  const int room = width - static_cast<int>(joined_width(fields) + kGap.size() + 2);
  std::string line = fields.front().text.substr(0, columns);
  if (room >= kMinBar) {
    const std::string bar = bar_text(state, std::min(room, kMaxBar));
    line += fmt::format("{}[{}{}{}]", kGap, color ? "\x1b[36m" : "", bar, color ? "\x1b[0m" : "");
  }
  for (std::size_t i = 1; i < fields.size(); ++i) line += fmt::format("{}{}", kGap, fields[i].text);
  return line;
}

std::string progress_log_line(const ProgressState& state) {
  std::string line;
  for (const Field& field : fields_of(state)) line += fmt::format("{}{}", line.empty() ? "" : kGap, field.text);
  return line;
}

void EpochSums::add(const StepMetrics& metrics) {
  if (steps == 0) first_epoch = metrics.epoch;
  ++steps;
  samples += metrics.samples;
  tokens += metrics.tokens;
  seconds += metrics.step_seconds;
  if (!std::isfinite(metrics.loss)) return;
  weighted_loss += metrics.loss * static_cast<double>(metrics.samples);
  weight += metrics.samples;
}

std::string epoch_line(const EpochSums& sums, std::int64_t last, ProgressRate rate) {
  const bool one = sums.first_epoch == last;
  auto line = one ? fmt::format("epoch {}:", last + 1) : fmt::format("epochs {}-{}:", sums.first_epoch + 1, last + 1);
  if (sums.weight > 0) line += " mean loss " + loss_text(sums.weighted_loss / static_cast<double>(sums.weight));
  line += fmt::format(" over {} step{}", sums.steps, sums.steps == 1 ? "" : "s");
  const auto work = static_cast<double>(rate == ProgressRate::tokens ? sums.tokens : sums.samples);
  if (sums.seconds > 0) line += fmt::format(", {}", rate_text(work / sums.seconds, unit_of(rate)));
  return line + ", " + format_seconds(sums.seconds);
}

std::function<int()> terminal_width_of(int file_descriptor) {
  if (isatty(file_descriptor) == 0) return {};
  return [file_descriptor] {
    winsize size = {};
    const bool known = ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? static_cast<int>(size.ws_col) : 80;
  };
}

Progress::Progress(std::ostream& out, ProgressOptions options) : out_(out), options_(std::move(options)) {
  if (!options_.clock_seconds) options_.clock_seconds = steady_seconds;
  state_.total_steps = options_.total_steps;
  state_.rate = options_.rate;
}

Progress::~Progress() {
  if (on_line_) out_ << "\n" << std::flush;
}

// From the mean time between reports of this process, evaluations and checkpoints included.
double Progress::seconds_left(double now) {
  const std::int64_t between = state_.metrics.step - first_reported_;
  const double each =
      between > 0 ? (now - started_seconds_) / static_cast<double>(between) : state_.metrics.step_seconds;
  return each * static_cast<double>(std::max<std::int64_t>(options_.total_steps - state_.metrics.step, 0));
}

void Progress::step(const StepMetrics& metrics) {
  const double now = options_.clock_seconds();
  const bool first = first_reported_ == 0;
  if (first) {
    first_reported_ = metrics.step;
    started_seconds_ = now;
  }
  state_.metrics = metrics;
  state_.eta_seconds = seconds_left(now);
  pending_ = true;
  const std::int64_t steps = options_.total_steps - options_.first_step + 1;
  const std::int64_t stride = std::max<std::int64_t>(1, steps / kLogLines);
  const double waited = now - shown_seconds_;
  const bool due = live() ? waited >= kRedrawSeconds : metrics.step - shown_step_ >= stride || waited >= kLogSeconds;
  if (first || due || metrics.step >= options_.total_steps) {
    shown_seconds_ = now;
    show();
  }
  add_to_epoch(metrics, now);
}

// Many epochs share lines, one at least every ten seconds.
void Progress::add_to_epoch(const StepMetrics& metrics, double now) {
  if (options_.steps_per_epoch == 0) return;
  epoch_.add(metrics);
  if (metrics.step % options_.steps_per_epoch != 0) return;
  const std::int64_t epochs = options_.total_steps / options_.steps_per_epoch;
  const std::int64_t stride = std::max<std::int64_t>(1, epochs / kEpochLines);
  const bool due = (metrics.epoch + 1) % stride == 0 || now - epoch_shown_seconds_ >= kLogSeconds;
  if (!due && metrics.step < options_.total_steps) return;
  message(epoch_line(epoch_, metrics.epoch, options_.rate));
  epoch_ = {};
  epoch_shown_seconds_ = now;
}

void Progress::show() {
  if (live()) {
    // One column stays free: a full line would wrap in some terminals. The code behind it clears what was longer.
    out_ << "\r" << progress_line(state_, options_.terminal_width() - 1, options_.color) << "\x1b[K" << std::flush;
    on_line_ = true;
  } else {
    out_ << progress_log_line(state_) << "\n" << std::flush;
  }
  shown_step_ = state_.metrics.step;
  pending_ = false;
}

void Progress::message(std::string_view text) {
  if (on_line_) out_ << "\r\x1b[K";
  out_ << text << "\n" << std::flush;
  if (on_line_) show();
}

void Progress::finish() {
  if (pending_) show();
  if (on_line_) out_ << "\n" << std::flush;
  on_line_ = false;
}

}  // namespace orthant
