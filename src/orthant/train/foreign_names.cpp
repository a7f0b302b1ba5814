#include "orthant/train/foreign_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace orthant {
namespace {

constexpr std::string_view kHuggingFace = "Hugging Face";
constexpr std::string_view kDeepSpeed = "DeepSpeed";
constexpr std::string_view kMegatron = "Megatron";
constexpr std::string_view kTorchTitan = "torchtitan";
constexpr std::string_view kLightning = "Lightning";
constexpr std::string_view kFsdp = "PyTorch FSDP";
constexpr std::string_view kDdp = "PyTorch DDP";

constexpr std::string_view kRowsNote =
    "it counts all ranks: rows of a microbatch x dp x fsdp x parallel.microbatches (--batch_size counts one replica)";
constexpr std::string_view kRatioNote = "the ratio x train.steps";
constexpr std::string_view kLeaveOut = "leave it out";

constexpr ForeignName kNames[] = {
    {"learning_rate", kHuggingFace, "optimizer.lr", "", ""},
    {"max_steps", kHuggingFace, "train.steps", "", ""},
    {"num_train_epochs", kHuggingFace, "train.epochs", "", "and train.steps=0 where steps are set"},
    {"per_device_train_batch_size", kHuggingFace, "train.global_batch_size", "ROWS", kRowsNote},
    {"per_device_eval_batch_size", kHuggingFace, "", "", "evaluation takes the rows of a training microbatch"},
    {"gradient_accumulation_steps", kHuggingFace, "parallel.microbatches", "", ""},
    {"warmup_ratio", kHuggingFace, "lr_schedule.warmup_steps", "STEPS", kRatioNote},
    {"lr_scheduler_type", kHuggingFace, "lr_schedule.kind", "", "linear, cosine, wsd or constant"},
    {"adam_beta1", kHuggingFace, "optimizer.betas", "[BETA1,BETA2]", ""},
    {"adam_beta2", kHuggingFace, "optimizer.betas", "[BETA1,BETA2]", ""},
    {"adam_epsilon", kHuggingFace, "optimizer.eps", "", ""},
    {"max_grad_norm", kHuggingFace, "optimizer.clip", "", ""},
    {"optim", kHuggingFace, "optimizer.kind", "", "adamw or sgd"},
    {"fp16", kHuggingFace, "precision.compute", "float16", "", kLeaveOut},
    {"bf16", kHuggingFace, "precision.compute", "bfloat16", "", kLeaveOut},
    {"fp16_full_eval", kHuggingFace, "", "", "evaluation computes as training does: precision.compute", kLeaveOut},
    {"gradient_checkpointing", kHuggingFace, "parallel.recompute", "full", "", kLeaveOut},
    {"save_steps", kHuggingFace, "checkpoint.save_every", "", ""},
    {"save_total_limit", kHuggingFace, "checkpoint.keep_last", "", ""},
    {"eval_steps", kHuggingFace, "train.eval_every", "", ""},
    {"load_best_model_at_end", kHuggingFace, "checkpoint.keep_best", "1", "", kLeaveOut},
    {"early_stopping_patience", kHuggingFace, "train.early_stop", "", ""},
    {"resume_from_checkpoint", kHuggingFace, "", "", "resuming is an option: --resume auto, or --resume CHECKPOINT"},
    {"overwrite_output_dir", kHuggingFace, "", "",
     "a folder with a run is never overwritten: name another --output_dir", kLeaveOut},
    {"logging_steps", kHuggingFace, "", "", "every step has its line in metrics.jsonl"},
    {"report_to", kHuggingFace, "", "", "metrics.jsonl and tensorboard/ are always written"},
    {"dataloader_num_workers", kHuggingFace, "", "", "batches are read ahead in the background, without workers"},
    {"model_name_or_path", kHuggingFace, "model.path", "", "a folder on disk"},
    {"tokenizer_name", kHuggingFace, "data.tokenizer", "", "a file or folder on disk"},
    {"train_file", kHuggingFace, "data.path", "", ""},
    {"validation_file", kHuggingFace, "data.eval_path", "", ""},
    {"block_size", kHuggingFace, "data.sequence_length", "", ""},
    {"max_seq_length", kHuggingFace, "data.sequence_length", "", ""},
    {"ddp_bucket_cap_mb", kHuggingFace, "parallel.bucket_mb", "", ""},
    {"ddp_find_unused_parameters", kHuggingFace, "train.allow_unused_parameters", "", "", kLeaveOut},
    {"fsdp_transformer_layer_cls_to_wrap", kHuggingFace, "parallel.units", "layer", ""},

    {"zero_optimization.stage", kDeepSpeed, "parallel.zero", "", "over fsdp, and over dp where there is no fsdp"},
    {"zero_optimization.offload_optimizer", kDeepSpeed, "parallel.offload", "optimizer", ""},
    {"zero_optimization.offload_param", kDeepSpeed, "parallel.offload", "params", ""},
    {"zero_optimization", kDeepSpeed, "parallel.zero", "STAGE", "over fsdp, and over dp where there is no fsdp"},
    {"zero_stage", kDeepSpeed, "parallel.zero", "", "over fsdp, and over dp where there is no fsdp"},
    {"train_batch_size", kDeepSpeed, "train.global_batch_size", "", ""},
    {"train_micro_batch_size_per_gpu", kDeepSpeed, "train.global_batch_size", "ROWS", kRowsNote},
    {"gradient_clipping", kDeepSpeed, "optimizer.clip", "", ""},
    {"fp16.loss_scale", kDeepSpeed, "precision.loss_scale", "",
     "and precision.compute=float16; 0 there is dynamic here"},
    {"fp16.initial_scale_power", kDeepSpeed, "precision.loss_scale", "{\"initial\":SCALE}",
     "2 to that power, and precision.compute=float16"},
    {"activation_checkpointing", kDeepSpeed, "parallel.recompute", "full", "", kLeaveOut},
    {"steps_per_print", kDeepSpeed, "", "", "every step has its line in metrics.jsonl"},
    {"wall_clock_breakdown", kDeepSpeed, "", "", "a run ends with a table of its times; --hardware adds predictions",
     kLeaveOut},
    {"scheduler", kDeepSpeed, "lr_schedule.kind", "KIND", "linear, cosine, wsd or constant"},
    {"deepspeed", kDeepSpeed, "", "",
     "its file has sections of its own: parallel, precision, optimizer and train here"},

    {"tensor_model_parallel_size", kMegatron, "mesh.tp", "", ""},
    {"pipeline_model_parallel_size", kMegatron, "mesh.pp", "", ""},
    {"num_layers_per_virtual_pipeline_stage", kMegatron, "parallel.virtual_stages", "STAGES",
     "stages per pp coordinate, with parallel.schedule=interleaved"},
    {"micro_batch_size", kMegatron, "train.global_batch_size", "ROWS", kRowsNote},
    {"use_distributed_optimizer", kMegatron, "parallel.zero", "1", "", kLeaveOut},
    {"recompute_granularity", kMegatron, "parallel.recompute", "", "none, selective or full"},
    {"train_iters", kMegatron, "train.steps", "", ""},
    {"train_samples", kMegatron, "train.steps", "STEPS", "the samples / train.global_batch_size"},
    {"lr_warmup_iters", kMegatron, "lr_schedule.warmup_steps", "", ""},
    {"lr_warmup_fraction", kMegatron, "lr_schedule.warmup_steps", "STEPS", kRatioNote},
    {"lr_decay_style", kMegatron, "lr_schedule.kind", "", "linear, cosine, wsd or constant"},
    {"min_lr", kMegatron, "lr_schedule.final_fraction", "FRACTION", "the rate at the end / optimizer.lr"},
    {"clip_grad", kMegatron, "optimizer.clip", "", ""},
    {"adam_eps", kMegatron, "optimizer.eps", "", ""},
    {"save_interval", kMegatron, "checkpoint.save_every", "", ""},
    {"eval_interval", kMegatron, "train.eval_every", "", ""},
    {"seq_length", kMegatron, "data.sequence_length", "", ""},
    {"num_layers", kMegatron, "model.num_hidden_layers", "", ""},
    {"ffn_hidden_size", kMegatron, "model.intermediate_size", "", ""},
    {"num_query_groups", kMegatron, "model.num_key_value_heads", "", ""},
    {"tokenizer_model", kMegatron, "data.tokenizer", "", ""},

    {"data_parallel_shard_degree", kTorchTitan, "mesh.fsdp", "", ""},
    {"data_parallel_replicate_degree", kTorchTitan, "mesh.dp", "", ""},
    {"tensor_parallel_degree", kTorchTitan, "mesh.tp", "", ""},
    {"pipeline_parallel_degree", kTorchTitan, "mesh.pp", "", ""},
    {"pipeline_parallel_schedule", kTorchTitan, "parallel.schedule", "", "gpipe, 1f1b, interleaved, zbh1 or zbv"},
    {"local_batch_size", kTorchTitan, "train.global_batch_size", "ROWS", kRowsNote},
    {"seq_len", kTorchTitan, "data.sequence_length", "", ""},

    {"max_epochs", kLightning, "train.epochs", "", "and train.steps=0 where steps are set"},
    {"accumulate_grad_batches", kLightning, "parallel.microbatches", "", ""},
    {"gradient_clip_val", kLightning, "optimizer.clip", "", ""},
    {"val_check_interval", kLightning, "train.eval_every", "STEPS", "a number of steps"},
    {"devices", kLightning, "mesh.dp", "", "or another axis: the product of the mesh is the number of ranks"},

    {"sharding_strategy", kFsdp, "parallel.zero", "3", "3 is FULL_SHARD, 2 SHARD_GRAD_OP, 0 NO_SHARD"},
    {"reshard_after_forward", kFsdp, "parallel.zero", "3", "3 gathers again in backward; 2 keeps parameters whole",
     "parallel.zero=2 keeps parameters whole until backward"},
    {"cpu_offload", kFsdp, "parallel.offload", "params", "", kLeaveOut},
    {"auto_wrap_policy", kFsdp, "parallel.units", "layer", ""},
    {"param_dtype", kFsdp, "precision.compute", "", "precision.params is what the optimizer updates"},
    {"reduce_dtype", kFsdp, "precision.reduce", "", ""},
    {"find_unused_parameters", kDdp, "train.allow_unused_parameters", "", "", kLeaveOut},
};

const ForeignName* find_name(std::string_view name) {
  const auto found = std::ranges::find(kNames, name, &ForeignName::name);
  return found == std::end(kNames) ? nullptr : &*found;
}

// Whether the value turns a setting off. Words of a command line come as strings; objects of DeepSpeed have a switch.
bool is_off(const ForeignName& found, const nlohmann::json& value) {
  if (value.is_object())
    return value.value("enabled", nlohmann::json()) == false || value.value("device", nlohmann::json()) == "none";
  if (value.is_null() || value == false || value == "false" || value == "False") return true;
  return !found.off.empty() && (value == 0 || value == "0");
}

// `before` stands in front of a key: "set " or "use --set ".
std::string text_of(const ForeignName& found, const nlohmann::json& value, std::string_view before,
                    const std::string& same_value) {
  auto text = fmt::format("{} is {}'s name: ", found.name, found.owner);
  if (is_off(found, value)) return text + std::string(found.off.empty() || value.is_null() ? kLeaveOut : found.off);
  if (found.key.empty()) return text + std::string(found.note);
  const auto ours = found.value.empty() ? same_value : std::string(found.value);
  text += fmt::format("{}{}{}{}", before, found.key, ours.empty() ? "" : "=", ours);
  return found.note.empty() ? text : fmt::format("{} ({})", text, found.note);
}

}  // namespace

std::span<const ForeignName> foreign_names() {
  return kNames;
}

std::string hint_of_key(std::string_view name, const nlohmann::json& value) {
  const auto* found = find_name(name);
  if (value.is_object() && (found == nullptr || !is_off(*found, value))) {
    for (const auto& [child, inner] : value.items()) {
      if (find_name(fmt::format("{}.{}", name, child)) != nullptr)
        return hint_of_key(fmt::format("{}.{}", name, child), inner);
    }
  }
  if (found == nullptr) return {};
  return text_of(*found, value, "set ", value.is_number() ? value.dump() : "");
}

std::string hint_of_option(std::string_view option, std::string_view value) {
  std::string name(option.substr(std::min(option.find_first_not_of('-'), option.size())));
  std::ranges::replace(name, '-', '_');
  const auto* found = find_name(name);
  return found == nullptr ? "" : text_of(*found, value, "use --set ", "VALUE");
}

}  // namespace orthant
