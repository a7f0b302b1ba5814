// How far a run is, on stderr. On a terminal one live line, redrawn at most ten times a second and never wider than the
// terminal; elsewhere plain lines, about twenty a run and one at least every ten seconds. An epoch ends with a line of
// its averages. The owner is rank 0's RunLog; nothing here reads the environment: whether colour is wanted is told.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "orthant/train/metrics.h"

namespace orthant {

enum class ProgressRate { samples, tokens };

struct ProgressOptions {
  std::int64_t total_steps = 1;
  std::int64_t first_step = 1;       // of this process: above 1 when a run is resumed
  std::int64_t steps_per_epoch = 0;  // an epoch's end has a line with its averages; 0: none has
  ProgressRate rate = ProgressRate::samples;
  bool color = false;
  std::function<int()> terminal_width = {};    // columns now; empty: not a terminal
  std::function<double()> clock_seconds = {};  // rising; empty: the machine's steady clock
};

// What a line shows.
struct ProgressState {
  StepMetrics metrics;
  std::int64_t total_steps = 1;
  double eta_seconds = -1;  // below 0: not known
  ProgressRate rate = ProgressRate::samples;
};

// The live line without a line end: step, bar, loss, gradient norm, rate, time left, memory. It has at most `width`
// columns; what does not fit is left out, the least important first. Colour adds no columns.
std::string progress_line(const ProgressState& state, int width, bool color);

// The line of a log: every field, no bar.
std::string progress_log_line(const ProgressState& state);

// Sums over the steps since the last line of an epoch.
struct EpochSums {
  std::int64_t first_epoch = 0;  // counted from 0, as metrics do
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  double weighted_loss = 0;  // by samples, of steps with a finite loss
  std::int64_t weight = 0;

  void add(const StepMetrics& metrics);
};

// "epoch 2: mean loss 0.4127 over 128 steps, 1.2K samples/s, 14 s"; `last` is the epoch that ends, from 0.
std::string epoch_line(const EpochSums& sums, std::int64_t last, ProgressRate rate);

// Asks the terminal behind `file_descriptor` for its width at each call; empty when there is none.
std::function<int()> terminal_width_of(int file_descriptor);

// Not thread-safe: one thread reports.
class Progress {
 public:
  // `out` must outlive this.
  Progress(std::ostream& out, ProgressOptions options);

  // Ends a live line, so that what follows an exception begins on a line of its own.
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepMetrics& metrics);

  // A line of its own (an evaluation, a saved checkpoint); the live line stays below it.
  void message(std::string_view text);

  // Shows the last step when it was not shown yet, and ends the live line. More calls do nothing.
  void finish();

 private:
  bool live() const { return static_cast<bool>(options_.terminal_width); }
  void show();
  void add_to_epoch(const StepMetrics& metrics, double now);
  double seconds_left(double now);

  std::ostream& out_;
  ProgressOptions options_;
  ProgressState state_;
  double started_seconds_ = 0;
  double shown_seconds_ = 0;
  std::int64_t shown_step_ = 0;
  std::int64_t first_reported_ = 0;  // 0: nothing reported yet
  EpochSums epoch_;
  double epoch_shown_seconds_ = 0;
  bool pending_ = false;  // the last step is not shown
  bool on_line_ = false;  // the cursor stands behind a live line
};

}  // namespace orthant
