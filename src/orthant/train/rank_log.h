// log/rank-R.log in a run's folder: what one rank has to say, a line at a time, each with the time in UTC. Every rank
// has a file of its own, which grows when a run is resumed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/files/metrics_file.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

class RankLog {
 public:
  // Keeps lines until open().
  RankLog() = default;

  // Makes the folder `log` in `run` and writes what was said before. DataError.
  void open(const std::string& run, int rank, const WriteFence& fence = {});

  // A text of several lines becomes several. What cannot be written waits, or, of an attempt that another one has
  // followed, is not written at all.
  void say(std::string_view text);

 private:
  std::unique_ptr<LineFile> file_;
  std::vector<std::string> waiting_;
};

// The rank's coordinate: "dp=0,fsdp=1".
std::string place_text(const Mesh& mesh, int rank);

// "rank 1 of 4 started: host node7, process 4711, at dp=0,fsdp=1 of mesh dp=2,fsdp=2, device cpu"
std::string start_line(const Mesh& mesh, int rank, const std::string& device);

}  // namespace orthant
