// orthant plan --calibrate FILE: this machine as the planner knows machines, measured.
#pragma once

#include <string>

#include "orthant/cli/command.h"

namespace orthant::cli {

struct CalibrateOptions {
  std::string path;
  std::string device = "auto";
  std::string compute;       // dtype of products; empty: float32 on cores, bfloat16 on a GPU
  int rounds = 9;            // of all measurements: medians of few are rough, and take less time
  int ranks_per_device = 0;  // that share a GPU over NCCL; 0: one each. What they compute with is then shared, too
  bool json = false;         // the file's text on stdout, too
};

// Measures with a rank on each core of this machine, or on each GPU, all busy at the same time, and writes a file
// that find_hardware() reads. Nine rounds take half a minute. What it finds is told on stderr. Returns the exit code.
// ConfigError, before anything is measured, when the file cannot be written.
int calibrate(const CalibrateOptions& options, Context& context);

}  // namespace orthant::cli
