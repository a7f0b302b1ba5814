// orthant bench load: the time from opening a model folder to all parameters in memory, beside reading its files once.
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/base/json_text.h"
#include "orthant/base/quantile.h"
#include "orthant/checkpoint/weight_reader.h"
#include "orthant/cli/bench.h"
#include "orthant/cli/dtype_option.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/tensor_folder.h"
#include "orthant/train/inference.h"

namespace orthant::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Time that passed, and that this process was given: on a busy machine only the second one repeats.
struct Spent {
  double seconds = 0;
  double cpu_seconds = 0;
};

double cpu_now() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Stopwatch {
 public:
  Spent spent() const { return {std::chrono::duration<double>(Clock::now() - began_).count(), cpu_now() - cpu_began_}; }

 private:
  Clock::time_point began_ = Clock::now();
  double cpu_began_ = cpu_now();
};

std::vector<fs::path> weight_files(const std::string& folder) {
  const auto opened = TensorFolder::open(folder);
  std::vector<fs::path> files;
  for (const auto& name : opened.files()) files.push_back(fs::path(folder) / name);
  return files;
}

struct Unmap {
  std::size_t bytes;
  void operator()(void* memory) const { munmap(memory, bytes); }
};

// Fresh memory of the file's size, read from its begin to its end: what any program that holds the file must do.
Spent read_once(const fs::path& path, std::int64_t bytes) {
  const Stopwatch watch;
  const FileHandle file(path, O_RDONLY);
  const auto size = static_cast<std::size_t>(bytes);
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw_io_error(path, fmt::format("mmap of {} bytes to read it", bytes), errno);
  const std::unique_ptr<void, Unmap> memory(mapped, Unmap{size});
  file.read_exactly(0, {static_cast<std::byte*>(mapped), size});
  return watch.spent();
}

// VmRSS or VmHWM of this process.
std::int64_t memory_bytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stoll(line.substr(line.find(':') + 1)) * 1024;
  }
  return 0;
}

// The kernel counts the peak anew from here.
void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

struct LoadTimes {
  std::vector<double> read, read_cpu;
  std::vector<double> load, load_cpu;
  std::int64_t file_bytes = 0;
  std::int64_t parameters = 0;
  std::int64_t peak_rss_growth_bytes = 0;
};

LoadTimes measure(const std::string& folder, DType dtype, int rounds) {
  LoadTimes times;
  const auto files = weight_files(folder);
  for (const auto& path : files) times.file_bytes += static_cast<std::int64_t>(fs::file_size(path));
  for (int round = 0; round <= rounds; ++round) {
    Spent read;
    for (const auto& path : files) {
      const auto spent = read_once(path, static_cast<std::int64_t>(fs::file_size(path)));
      read.seconds += spent.seconds;
      read.cpu_seconds += spent.cpu_seconds;
    }
    reset_peak();
    const auto before = memory_bytes("VmRSS");
    {
      const Stopwatch watch;
      InferenceOptions options;
      options.dtype = dtype;
      const Inference inference(find_stored_model(folder), options);
      const auto load = watch.spent();
      times.parameters = inference.graph().num_parameters();
      if (round > 0) {  // the first one brings the files into the page cache
        times.read.push_back(read.seconds);
        times.read_cpu.push_back(read.cpu_seconds);
        times.load.push_back(load.seconds);
        times.load_cpu.push_back(load.cpu_seconds);
      }
    }
    times.peak_rss_growth_bytes = std::max(times.peak_rss_growth_bytes, memory_bytes("VmHWM") - before);
  }
  return times;
}

}  // namespace

int run_bench_load(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Seconds from opening a model folder to all parameters in memory, beside reading its files once with read() into "
      "fresh memory of their size; rounds of both alternate, files are in the page cache.",
      "orthant bench load");
  std::string folder;
  std::string dtype = "float32";
  int rounds = 7;
  bool json = false;
  app.add_option("--model", folder, "Hugging Face folder").required();
  app.add_option("--dtype", dtype, fmt::format("of the parameters: {} (default float32)", dtype_list(kComputeDTypes)));
  app.add_option("--rounds", rounds, "of both (default 7)").check(NumberRange(1, 1000));
  app.add_flag("--json", json, "one JSON document on stdout");
  if (!parse(app, arguments, context, example::kBenchLoad)) return 0;
  if (is_checkpoint(folder)) {
    throw ConfigError(fmt::format("{}: a checkpoint; its files also hold optimizer state", folder),
                      {.remedy = "name a Hugging Face folder"});
  }
  at::set_num_threads(1);
  const auto times = measure(folder, parse_dtype_option(dtype, kComputeDTypes), rounds);
  const double read = quantile(times.read, 0.5);
  const double load = quantile(times.load, 0.5);
  const double read_cpu = quantile(times.read_cpu, 0.5);
  const double load_cpu = quantile(times.load_cpu, 0.5);
  const auto growth = static_cast<double>(times.peak_rss_growth_bytes) / static_cast<double>(times.file_bytes);
  if (json) {
    std::cout << json_text(nlohmann::ordered_json{{"file_bytes", times.file_bytes},
                                                  {"parameters", times.parameters},
                                                  {"rounds", rounds},
                                                  {"read_seconds", read},
                                                  {"load_seconds", load},
                                                  {"ratio", load / read},
                                                  {"read_cpu_seconds", read_cpu},
                                                  {"load_cpu_seconds", load_cpu},
                                                  {"cpu_ratio", load_cpu / read_cpu},
                                                  {"read_seconds_all", times.read},
                                                  {"load_seconds_all", times.load},
                                                  {"peak_rss_growth_bytes", times.peak_rss_growth_bytes},
                                                  {"peak_rss_ratio", growth},
                                                  {"peak_rss_bytes", memory_bytes("VmHWM")}})
              << std::endl;
  } else {
    std::cout << fmt::format("{} in {}: read once {}, loaded {} ({:.2f} x), memory grows by {} at most ({:.2f} x)\n",
                             format_bytes(times.file_bytes), folder, format_seconds(read), format_seconds(load),
                             load / read, format_bytes(times.peak_rss_growth_bytes), growth)
              << std::flush;
  }
  return 0;
}

}  // namespace orthant::cli
