// Machine code of kernels on disk, so that only the first start on a machine compiles. A file holds hashes of what it
// was made from and of its contents: one that is damaged, cut short or made from something else counts as absent. Ranks
// that start together make each file once: the others wait for the one that makes it. A folder that cannot be written
// costs time, never an error. Local.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace orthant::cuda {

class CubinCache {
 public:
  // Without a folder nothing is kept.
  explicit CubinCache(std::filesystem::path folder = {}) : folder_(std::move(folder)) {}

  // The code kept under `key`, or what `make` returns, which is kept then. `key` names everything the code depends on.
  // Waits while another process makes the same. Any thread.
  std::string get(const std::string& key, const std::function<std::string()>& make) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

}  // namespace orthant::cuda
