// The tokenizers of a run, kept in its folder: an exported checkpoint carries them along, and a run goes on when the
// folder that they came from is gone. Those of a trimodal model lie in tokenizers/primary and tokenizers/secondary.
#pragma once

#include <filesystem>

#include "orthant/train/run_config.h"

namespace orthant {

// Copies those that the configuration names, as `tokenizer` or with the weights of a `path`, and that are on disk or
// kept with the checkpoint `resumed`, where the run goes on from one.
void keep_tokenizers(const RunConfig& config, const std::filesystem::path& run,
                     const std::filesystem::path& resumed = {});

// Lets the data be read with a kept one where what the configuration names is not there any more.
void use_kept_tokenizers(RunConfig& config, const std::filesystem::path& run);

// Lets other data be read with the kept ones, whatever lies where the configuration's names lead by now.
void prefer_kept_tokenizers(RunConfig& config, const std::filesystem::path& run);

}  // namespace orthant
