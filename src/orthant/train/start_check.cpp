#include "orthant/train/start_check.h"

#include "orthant/base/error.h"
#include "orthant/train/control_group.h"
#include "orthant/train/datasets.h"
#include "orthant/train/output_folder.h"
#include "orthant/train/pretrained.h"
#include "orthant/train/resume.h"
#include "orthant/train/run_tokenizers.h"

namespace orthant {

void check_start(RunConfig config, const std::string& resolved_config, const RunOptions& options) {
  const ControlGroup alone(config.trainer);
  if (!options.resume.empty() && !options.output_dir.empty()) use_kept_tokenizers(config, options.output_dir);
  const OutputFolder folder(options.output_dir, config.name, folder_use(config, options));
  folder.check_not_in_use();
  RunData data;
  if (config.data.from_files()) {  // check_trainable() has looked at data that is generated
    data = make_run_data(config);
    make_sampler(config, data);
    check_evaluated(config, data);
  }
  if (!folder.resumes()) {
    PretrainedWeights(run_spec(config), pretrained_sources(config.model), alone);
    return;
  }
  const auto samples = config.data.from_files() ? data.train->size() : config.data.samples;
  check_resume(folder, Sampler(samples, config.global_batch_size, config.trainer.seed), config.trainer.seed, alone,
               {folder.path(),
                resolved_config,
                data.saved_files,
                [](const std::string&) {},
                {IoPatience(config.checkpoint.retry_seconds), checkpoint_key(config)}});
}

}  // namespace orthant
