// The folder of a run with any bytes in its files, as `doctor` and `report` read it: a diagnosis, its JSON and the
// page, or a ConfigError. The input is cut at bytes 0xff; the first byte of each part chooses its file.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fuzz/scratch_run.h"
#include "orthant/base/error.h"
#include "orthant/report/page.h"

namespace {

using namespace orthant;
using namespace orthant::report;

const std::array<std::string, 9> kFiles = {"metrics.jsonl",        "log/launcher.jsonl",   "log/rank-0.log",
                                           "log/rank-1.log",       "eval.jsonl",           "config.json",
                                           "flight/rank-0.events", "flight/rank-1.events", "profile.json"};

void show(const fuzz::ScratchRun& folder) {
  ReportedRun reported{read_run_folder(folder.path()), {}};
  Observed observed;
  for (std::size_t i = 0; i < reported.run.ranks.size(); ++i) {
    observed.processes.push_back(i % 2 == 0 ? ProcessState::gone : ProcessState::running);
  }
  observed.now_ns = std::int64_t{1} << 40;
  reported.findings = diagnose(reported.run, observed);
  if (reported.findings.empty() || to_text(reported.run, reported.findings).empty()) std::abort();
  to_json(reported.run, reported.findings).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (report_text({reported}).empty()) std::abort();
  const auto page = report_html({reported, reported});
  if (page.find("<script src") != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::ScratchRun kRun;
  for (const auto& file : kFiles) kRun.remove(file);
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  for (std::size_t begin = 0; begin < all.size();) {
    const auto end = std::min(all.find('\xff', begin), all.size());
    if (end > begin) {
      const auto place = static_cast<unsigned char>(all[begin]) % kFiles.size();
      kRun.write(kFiles[place], all.substr(begin + 1, end - begin - 1));
    }
    begin = end + 1;
  }
  try {
    show(kRun);
  } catch (const ConfigError&) {
  }
  return 0;
}
