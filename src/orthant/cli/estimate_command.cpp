// orthant estimate: what one way to train a model on a mesh costs: memory per pp coordinate, time, what travels. Runs
// nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/nearest.h"
#include "orthant/cli/command.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/plan_options.h"
#include "orthant/cli/planned_run.h"
#include "orthant/plan/report/plan_html.h"
#include "orthant/plan/report/plan_json.h"

namespace orthant::cli {
namespace {

struct EstimateOptions {
  PlanOptions common;
  std::string mesh;
  std::string order;
  std::int64_t micro_batch = 0;
  std::string schedule = "1f1b";
  int virtual_stages = 0;
  std::string zero;
  std::string recompute = "none";
  bool sequence_parallel = false;
  bool loss_parallel = false;
  bool regather = false;
  double expert_skew = 1;
  std::string context = "auto";
  std::string shard_over_context = "on";
  std::string expert_tp = "auto";
  std::string flash = "on";
  std::string split = "even";
  std::string accumulate = "full";
  std::string master;  // empty: as params
  std::string join_head_and_loss = "auto";
  std::int64_t loss_chunk_rows = 0;
  bool deterministic = false;
  std::string stack = "orthant";
};

// One of two words.
bool parse_switch(const std::string& option, const std::string& text, const std::string& yes, const std::string& no) {
  if (text == yes || text == no) return text == yes;
  const std::vector<std::string> words = {yes, no};
  throw ConfigError(fmt::format("{} {}: unknown value", option, text), {.remedy = did_you_mean(text, words)});
}

DataPolicy data_policy(const EstimateOptions& options, const Mesh& mesh) {
  DataPolicy policy;
  policy.zero = options.zero.empty() ? (mesh.degree(Axis::fsdp) > 1 ? 3 : 0) : parse_zero(options.zero);
  policy.accumulate_sharded = parse_switch("--accumulate", options.accumulate, "sharded", "full");
  policy.shard_over_context = parse_switch("--shard-over-context", options.shard_over_context, "on", "off");
  effective_policy(policy, mesh);  // refuses
  return policy;
}

ContextPolicy context_policy(const std::string& way) {
  if (const auto policy = parse_context(way)) return *policy;
  throw ConfigError(fmt::format("--context {}: unknown value", way), {.remedy = did_you_mean(way, context_words())});
}

std::optional<bool> expert_tp(const std::string& text) {
  if (text == "auto") return std::nullopt;
  return parse_switch("--expert-tp", text, "on", "off");
}

bool splits_master(const std::string& master, const PlanSettings& settings) {
  const std::string params(dtype_name(settings.params));
  const bool splits = parse_switch("--master", master.empty() ? params : master, "bf16_remainder", params);
  if (!splits || (settings.params == DType::float32 && settings.compute == DType::bfloat16)) return splits;
  throw ConfigError(fmt::format("--master bf16_remainder is float32 params beside bfloat16 compute; params are {} and "
                                "compute is {}",
                                params, dtype_name(settings.compute)),
                    {.remedy = fmt::format("use --master {}", params)});
}

PlanSettings settings_of(const EstimateOptions& options) {
  const PlanOptions& common = options.common;
  PlanSettings settings;
  settings.mesh = Mesh::parse(options.mesh, options.order);
  settings.micro_batch = options.micro_batch;
  settings.global_batch = common.global_batch;
  settings.sequence = common.sequence;
  settings.stages.schedule = options.schedule;
  settings.stages.virtual_stages = options.virtual_stages;
  settings.split = options.split;
  settings.data = data_policy(options, settings.mesh);
  settings.tensor = {.sequence_parallel = options.sequence_parallel,
                     .loss_parallel = options.loss_parallel,
                     .regather = options.regather,
                     .expert_tp = expert_tp(options.expert_tp)};
  settings.context = context_policy(options.context);
  settings.expert_skew = options.expert_skew;
  settings.recompute = parse_plan_recompute(options.recompute);
  settings.flash = parse_switch("--flash", options.flash, "on", "off");
  settings.params = asked_dtype("--params", common.params);
  settings.float8 = common.compute == kFloat8Name;
  settings.compute = settings.float8 ? DType::bfloat16 : asked_dtype("--compute", common.compute);
  settings.gradients = asked_dtype("--grads", common.gradients);
  settings.splits_master = splits_master(options.master, settings);
  settings.join_head_and_loss = parse_join(options.join_head_and_loss);
  settings.loss_chunk_rows = options.loss_chunk_rows;
  settings.deterministic = options.deterministic;
  return settings;
}

void check_float8(const PlanModel& model, const Stack& stack, const Hardware& hardware) {
  const char* const remedy = "use --compute bfloat16";
  if (!stack.runs_here || !model.config) {
    throw ConfigError(fmt::format("--compute float8: what rounds and multiplies in 8 bits is known of models that "
                                  "orthant trains, and this is {} by stack {}",
                                  model.name, stack.name),
                      {.remedy = remedy});
  }
  if (hardware.float8_flops > 0) return;
  throw ConfigError(fmt::format("--compute float8: hardware {} has no products in 8 bits", hardware.name),
                    {.remedy = fmt::format("{}, or a file of hardware with float8_flops", remedy)});
}

void add_options(OptionParser& app, EstimateOptions& options) {
  add_plan_options(app, options.common);
  app.add_option("--mesh", options.mesh, "degrees of the axes, e.g. pp=2,fsdp=4,tp=8 (axes: pp dp fsdp cp tp ep)");
  app.add_option("--order", options.order, "axes from the outermost to the innermost (default pp,dp,fsdp,cp,tp)");
  app.add_option("--micro-batch", options.micro_batch, "rows of a microbatch");
  app.add_option("--schedule", options.schedule, "gpipe, 1f1b, interleaved, zbh1 or zbv (default 1f1b)");
  app.add_option("--virtual", options.virtual_stages, "stages per pp coordinate (default: the schedule's)");
  app.add_option("--zero", options.zero, "what fsdp, or dp without fsdp, shards: 0 to 3 (default 3 with fsdp, else 0)");
  app.add_option("--recompute", options.recompute, "none, selective, full, or op (default none)");
  app.add_flag("--sequence-parallel", options.sequence_parallel, "cut norms, dropout and sums over tp");
  app.add_flag("--loss-parallel", options.loss_parallel, "leave logits cut over tp");
  app.add_flag("--regather", options.regather, "gather inputs of products again in backward (sequence parallelism)");
  app.add_option("--context", options.context,
                 "over cp, how queries meet the keys of other ranks: ring, all_to_all or gather (default auto)");
  app.add_option("--shard-over-context", options.shard_over_context,
                 "with fsdp, whether shards span cp, too: on or off (default on)");
  app.add_option("--expert-tp", options.expert_tp,
                 "of mixtures: whether tp ranks share each expert: on, off, or auto (default: without ep)");
  app.add_option("--expert-skew", options.expert_skew,
                 "over ep: tokens of the busiest rank's experts, of what all would take alike (default 1)")
      .check(NumberRange(1.0, 1e6));
  app.add_option("--flash", options.flash, "fused attention: on or off (default on)");
  app.add_option("--split", options.split, "layers per stage: even, auto, or numbers like 2,3,3,2 (default even)");
  app.add_option("--accumulate", options.accumulate, "gradients of microbatches: full or sharded (default full)");
  app.add_option("--master", options.master,
                 "how updated parameters are kept: as --params (default) or bf16_remainder");
  app.add_option("--join-head-and-loss", options.join_head_and_loss,
                 "head and loss of a language model as one unit: auto, on or off (default auto: on a GPU)");
  app.add_option("--loss-chunk-rows", options.loss_chunk_rows,
                 "of such a unit: tokens whose logits exist at once (default 0: as many as make 512 Mi logits)")
      .check(NumberRange(std::int64_t{0}, std::int64_t{1} << 40));
  app.add_flag("--deterministic", options.deterministic, "on a GPU: every sum in one order");
  app.add_option("--stack", options.stack, "whose memory and habits: orthant, megatron, ... or a JSON file");
}

void print_json(const Plan& plan, const Hardware& hardware, double tokens) {
  auto document = plan_document(plan);
  if (tokens > 0) document["budget"] = budget_document(budget_of(plan, hardware, tokens), tokens);
  std::cout << json_text(document, 2) << '\n';
}

void print_text(const Plan& plan, const PlanModel& model, const Hardware& hardware, double tokens) {
  std::cout << plan_text(plan, model, hardware);
  if (tokens > 0) std::cout << '\n' << budget_text(budget_of(plan, hardware, tokens), tokens) << ".\n";
}

}  // namespace

int run_estimate(const Arguments& arguments, Context& context) {
  OptionParser app("Prices one way to train a model: memory of every pp coordinate, time of a step, what travels.",
                   "orthant estimate");
  EstimateOptions options;
  add_options(app, options);
  if (!parse(app, arguments, context, std::string(example::kEstimate) + known_names())) {
    return 0;
  }
  for (const char* needed : {"--model", "--mesh", "--gpu", "--micro-batch", "--global-batch", "--seq"}) {
    require_option(app, needed);
  }
  check_tokens(app, options.common.tokens);
  const PlanModel model = asked_model(options.common);
  const Hardware hardware = asked_hardware(options.common);
  const Stack stack = find_stack(options.stack);
  auto settings = settings_of(options);
  if (stack.runs_here && settings.data.zero > 0) settings.mesh = with_shards_of_dp(settings.mesh);
  settings.on_host = hardware.on_host;
  settings.widens_products = hardware.widens_products;
  // Published programs name the axis they shard over dp; with ours it is fsdp by then.
  if (stack.runs_here) settings.data = effective_policy(settings.data, settings.mesh);
  check_compute(settings.compute, hardware);
  if (settings.float8) check_float8(model, stack, hardware);
  const Plan plan = estimate(model, settings, hardware, stack);
  if (!options.common.html.empty()) {
    ReportExtras extras;
    extras.tokens = options.common.tokens;
    if (model.config) extras.run = run_line(planned_model(options.common.model));
    extras.command = fmt::format("orthant {}", fmt::join(context.words, " "));
    write_output("--html", options.common.html, plan_html(plan, model, hardware, extras));
  }
  if (options.common.json) {
    print_json(plan, hardware, options.common.tokens);
  } else {
    print_text(plan, model, hardware, options.common.tokens);
  }
  return 0;
}

}  // namespace orthant::cli
