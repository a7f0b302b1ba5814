// The folder of a run, made once and filled anew for each input; in memory where the machine has such a disk.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace orthant::fuzz {

class ScratchRun {
 public:
  ScratchRun() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder ? folder : access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/orthant-fuzz-XXXXXX";
    if (!mkdtemp(path_.data())) std::abort();
    for (const char* below : {"log", "flight", "checkpoints"}) std::filesystem::create_directory(path_ + "/" + below);
  }
  ~ScratchRun() { std::filesystem::remove_all(path_); }
  ScratchRun(const ScratchRun&) = delete;
  ScratchRun& operator=(const ScratchRun&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& file) const { return path_ + "/" + file; }
  void write(const std::string& file, std::string_view bytes) const {
    std::ofstream(path(file), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  void remove(const std::string& file) const { unlink(path(file).c_str()); }

 private:
  std::string path_;
};

}  // namespace orthant::fuzz
