#include "orthant/train/start_check.h"

#include <algorithm>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/checkpoint/pretrained.h"
#include "orthant/comm/control_group.h"
#include "orthant/files/path_facts.h"
#include "orthant/train/datasets.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/resume.h"
#include "orthant/train/run_tokenizers.h"

namespace orthant {
namespace {

// The first file of data that is not there; empty when all are.
std::string absent_data(const DataConfig& data) {
  auto paths = data.kind == "text" ? data.text.path : std::vector<std::string>{data.table.path};
  const auto absent = std::ranges::find_if(paths, [](const std::string& path) { return !is_there(path); });
  return absent == paths.end() ? "" : *absent;
}

}  // namespace

std::string check_start(RunConfig config, const std::string& resolved_config, const RunOptions& options) {
  const ControlGroup alone = control_group(config.trainer);
  if (!options.resume.empty() && !options.output_dir.empty()) use_kept_tokenizers(config, options.output_dir);
  const OutputFolder folder(options.output_dir, config.name, folder_use(config, options));
  folder.check_not_in_use();
  const bool from_files = config.data.from_files();  // check_trainable() has looked at data that is generated
  const auto absent = from_files ? absent_data(config.data) : "";
  RunData data;
  if (from_files && absent.empty()) {
    data = make_run_data(config);
    make_sampler(config, data);
    check_evaluated(config, data);
  }
  if (!folder.resumes()) {
    PretrainedWeights(run_spec(config), pretrained_sources(config.model), alone);
  }
  if (!absent.empty()) return absent + " is not here: a start would be refused, and no data was looked at";
  if (!folder.resumes()) return {};
  const auto samples = from_files ? data.train->size() : config.data.samples;
  check_resume(folder, Sampler(samples, config.global_batch_size, config.trainer.seed), config.trainer, alone,
               {folder.path(),
                resolved_config,
                data.saved_files,
                [](const std::string&) {},
                {IoPatience(config.checkpoint.retry_seconds), checkpoint_key(config)}});
  return {};
}

}  // namespace orthant
