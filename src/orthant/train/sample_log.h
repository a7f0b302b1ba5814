// Which samples a replica trained on in each step: log/samples-R.jsonl of the replica's first rank R, one line
// {"step":3,"epoch":0,"first_row":2,"samples":[17,4]} per step. Over all replicas of a step they are the global batch,
// in order of their first rows. For audits that no sample was lost or taken twice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "orthant/data/batch.h"
#include "orthant/files/metrics_file.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

class SampleLog {
 public:
  SampleLog() = default;  // writes nothing
  // In the folder `log` of the run, which is there. Nothing is written by ranks that only help another with its
  // samples.
  SampleLog(const std::string& run, const Mesh& mesh, int rank, const WriteFence& fence = {});

  void step(std::int64_t step, const Batch& batch);

  // Writes the lines of steps that found no room. DataError.
  void flush();

 private:
  std::unique_ptr<LineFile> file_;
};

// The files of all ranks in that run's folder, as names below it: "log/samples-0.jsonl". Local. IoError.
std::vector<std::string> sample_logs(const std::string& run);

}  // namespace orthant
