// The run's configuration: what is read, what is refused and with which words, and that what is printed reads the same.
#include "orthant/train/run_config.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error_text.h"
#include "orthant/models/llama/config.h"

namespace orthant {
namespace run_config_test {

// A small llama, with overrides as --set takes them.
JsonDocument document(const std::vector<std::string>& overrides = {}) {
  JsonOptions options;
  options.source = "small.json";
  auto parsed = JsonDocument::parse(R"({
 "model": {"kind": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
           "intermediate_size": 32, "vocab_size": 64, "max_position_embeddings": 32},
 "data": {"kind": "tokens", "sequence_length": 8, "samples": 100},
 "train": {"global_batch_size": 12}
})",
                                    options);
  for (const auto& assignment : overrides) parsed.apply_override(assignment);
  return parsed;
}

RunConfig read(const std::vector<std::string>& overrides = {}) {
  return read_run_config(document(overrides));
}

// Every line of the refusal must appear in the error of that override.
struct Refusal {
  std::vector<std::string> overrides;
  std::vector<std::string> texts;
};

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const auto& refusal : refusals) {
    SCOPED_TRACE(refusal.overrides.back());
    const auto found = error_text<ConfigError>([&] { read(refusal.overrides); });
    for (const auto& text : refusal.texts) EXPECT_NE(found.find(text), std::string::npos) << text << " in\n" << found;
  }
}

void expect_same(const RunConfig& found, const RunConfig& expected) {
  EXPECT_EQ(found.name, expected.name);
  EXPECT_EQ(found.model, expected.model);
  EXPECT_EQ(found.data.kind, expected.data.kind);
  EXPECT_EQ(found.data.sequence_length, expected.data.sequence_length);
  EXPECT_EQ(found.data.secondary_length, expected.data.secondary_length);
  EXPECT_EQ(found.data.samples, expected.data.samples);
  EXPECT_EQ(found.data.eval_fraction, expected.data.eval_fraction);
  EXPECT_EQ(found.mesh, expected.mesh);
  EXPECT_EQ(found.global_batch_size, expected.global_batch_size);
  EXPECT_EQ(found.steps, expected.steps);
  EXPECT_EQ(found.eval_every, expected.eval_every);
  EXPECT_EQ(found.early_stop, expected.early_stop);
  EXPECT_EQ(found.checkpoint.save_every, expected.checkpoint.save_every);
  EXPECT_EQ(found.checkpoint.keep.last, expected.checkpoint.keep.last);
  const auto& a = found.trainer;
  const auto& b = expected.trainer;
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.precision, b.precision);
  EXPECT_EQ(a.loss_scale, b.loss_scale);
  EXPECT_EQ(a.recompute, b.recompute);
  EXPECT_EQ(a.microbatches, b.microbatches);
  EXPECT_EQ(a.stages.schedule, b.stages.schedule);
  EXPECT_EQ(a.stages.stages, b.stages.stages);
  EXPECT_EQ(a.stages.split, b.stages.split);
  EXPECT_EQ(a.optimizer.kind, b.optimizer.kind);
  for (const auto number : {&OptimizerOptions::beta1, &OptimizerOptions::beta2, &OptimizerOptions::eps,
                            &OptimizerOptions::weight_decay, &OptimizerOptions::momentum, &OptimizerOptions::clip}) {
    EXPECT_EQ(a.optimizer.*number, b.optimizer.*number);
  }
  EXPECT_EQ(a.lr.kind, b.lr.kind);
  EXPECT_EQ(a.lr.peak, b.lr.peak);
  EXPECT_EQ(a.lr.warmup_steps, b.lr.warmup_steps);
  EXPECT_EQ(a.lr.total_steps, b.lr.total_steps);
  EXPECT_EQ(a.lr.final_fraction, b.lr.final_fraction);
  EXPECT_EQ(a.lr.decay_steps, b.lr.decay_steps);
}

TEST(RunConfig, AnExplicitZeroShardsOverDp) {
  EXPECT_EQ(read({"mesh.dp=2", "parallel.zero=2"}).mesh.to_string(), "fsdp=2");
  EXPECT_EQ(read({"mesh.dp=2", "parallel.zero=FULL_SHARD"}).mesh.to_string(), "fsdp=2");
  EXPECT_EQ(read({"mesh.dp=2", "mesh.fsdp=3", "parallel.zero=2"}).mesh.to_string(), "dp=2,fsdp=3");
  for (const char* none : {"parallel.zero=0", "parallel.zero=NO_SHARD", "parallel.zero=null", "seed=1"}) {
    EXPECT_EQ(read({"mesh.dp=2", none}).mesh.to_string(), "dp=2") << none;
  }
}

// A default that is written down must not become an explicit one.
TEST(RunConfig, ReplicasStayReplicasWhenTheResolvedConfigurationIsReadAgain) {
  for (const auto& [overrides, mesh] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"mesh.dp=2"}, "dp=2"}, {{"mesh.dp=2", "parallel.zero=1"}, "fsdp=2"}, {{"mesh.fsdp=2"}, "fsdp=2"}}) {
    const auto first = document(overrides);
    const auto config = read_run_config(first);
    const auto again = read_run_config(JsonDocument::parse(resolved_config(first)));
    EXPECT_EQ(again.mesh.to_string(), mesh);
    EXPECT_EQ(again.trainer.policy, config.trainer.policy);
  }
}

TEST(RunConfig, ReadsTheEmbeddedDefault) {
  const auto config = read_run_config(load_run_document("", {}));
  EXPECT_EQ(config.name, "trimodal-demo");
  EXPECT_EQ(model_kind(config.model), "trimodal");
  EXPECT_EQ(config.data.kind, "trimodal_demo");
  EXPECT_EQ(config.mesh, Mesh());
  EXPECT_EQ(config.trainer.optimizer.kind, "adamw");
  EXPECT_EQ(config.trainer.lr.total_steps, config.steps);
  EXPECT_GT(config.trainer.lr.peak, 0);
  EXPECT_NO_THROW(run_spec(config).check());
}

TEST(RunConfig, OverridesReachTheEmbeddedDefault) {
  const auto config = read_run_config(load_run_document("", {"train.steps=7", "optimizer.kind=sgd", "seed=9"}));
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.trainer.lr.total_steps, 7);
  EXPECT_EQ(config.trainer.optimizer.kind, "sgd");
  EXPECT_EQ(config.trainer.seed, 9U);
}

TEST(RunConfig, WhatIsLeftOutHasItsDefault) {
  const auto config = read();
  EXPECT_EQ(config.name, "run");
  EXPECT_EQ(config.trainer.precision, Precision());
  EXPECT_EQ(config.trainer.loss_scale, LossScaleOptions());
  EXPECT_EQ(config.trainer.microbatches, 1);
  EXPECT_EQ(config.trainer.recompute, Recompute::none);
  EXPECT_EQ(config.trainer.optimizer.clip, 0);
  EXPECT_EQ(config.trainer.lr.kind, LrSchedule::Kind::cosine);
  EXPECT_EQ(config.trainer.lr.peak, 1e-3);
  EXPECT_EQ(config.checkpoint.keep.last, 3);
}

TEST(RunConfig, EpochsBecomeSteps) {
  EXPECT_EQ(read({"train.epochs=2"}).steps, 2 * 9) << "100 samples in batches of 12: the last one is short";
  EXPECT_EQ(read({"train.epochs=2", "data.samples=96"}).steps, 2 * 8);
  expect_refusals({{{"train.epochs=2", "train.steps=5"},
                    {"train.epochs: is given beside train.steps", "set one of them (epochs=0 for steps)"}}});
  EXPECT_EQ(read({"train.epochs=0", "train.steps=5"}).steps, 5);
}

TEST(RunConfig, ParamsSetTheOtherDtypes) {
  EXPECT_EQ(read({"precision.params=float64"}).trainer.precision,
            (Precision{DType::float64, DType::float64, DType::float64}));
  EXPECT_EQ(read({"precision.compute=bfloat16"}).trainer.precision,
            (Precision{DType::float32, DType::bfloat16, DType::float32}));
}

TEST(RunConfig, ASplitIsAutoANumberOrLists) {
  EXPECT_EQ(read({"parallel.split=auto"}).trainer.stages.stages, 0);
  EXPECT_EQ(read({"parallel.split=3"}).trainer.stages.stages, 3);
  EXPECT_EQ(read({R"(parallel.split=[["embed"],["layers.0","layers.1"]])"}).trainer.stages.split,
            (std::vector<std::vector<std::string>>{{"embed"}, {"layers.0", "layers.1"}}));
}

TEST(RunConfig, UnknownNamesAreRefusedWithTheNearestOne) {
  expect_refusals({
      {{"data.kind=token"}, {"data.kind: unknown data \"token\"", "did you mean \"tokens\"?", "trimodal_demo, random"}},
      {{"optimizer.kind=adam"},
       {"optimizer.kind: unknown optimizer \"adam\"", "did you mean \"adamw\"? (one of adamw, sgd"}},
      {{"precision.params=float3"},
       {"precision.params: \"float3\" is not a dtype to train in", "did you mean \"float32\"?"}},
      {{"precision.compute=int64"},
       {"precision.compute: \"int64\" is not a dtype to train in", "one of float64, float32, bfloat16, float16"}},
      {{"lr_schedule.kind=cosin"}, {"lr_schedule.kind: unknown schedule \"cosin\"", "did you mean \"cosine\"?"}},
      {{"parallel.recompute=ful"}, {"\"ful\"", "did you mean \"full\"?"}},
      {{"parallel.accumulate=half"}, {"parallel.accumulate: unknown value \"half\"", "use full or sharded"}},
      {{"train.step=3"}, {"unknown key train.step", "use \"steps\""}},
      {{"optimiser.lr=3"}, {"unknown key optimiser", "use \"optimizer\""}},
  });
}

TEST(RunConfig, ARefusalNamesThePlace) {
  expect_refusals({{{"data.kind=token"}, {"--set data.kind=token: data.kind: unknown data"}}});
  JsonOptions options;
  options.source = "small.json";
  const auto text = error_text<ConfigError>([&] {
    read_run_config(JsonDocument::parse(
        "{\"model\": {\"preset\": \"llama-tiny\", \"kind\": \"llama\"},\n \"data\": {\"kind\": 3}}", options));
  });
  EXPECT_NE(text.find("small.json:"), std::string::npos) << text;
}

TEST(RunConfig, BetasAreTwoNumbersBelowOne) {
  const std::string rule = "optimizer.betas: must be two numbers in [0, 1), found ";
  expect_refusals({
      {{"optimizer.betas=[0.9]"}, {rule + "0.9\n", "use [0.9, 0.95]"}},
      {{"optimizer.betas=[0.9, 0.95, 0.99]"}, {rule + "0.9, 0.95, 0.99"}},
      {{"optimizer.betas=[1.0, 0.95]"}, {rule + "1, 0.95"}},
      {{"optimizer.betas=[0.9, 1]"}, {rule + "0.9, 1"}},
      {{"optimizer.betas=[-0.1, 0.95]"}, {rule + "-0.1, 0.95"}},
      {{"optimizer.betas=[0.9, -1]"}, {rule + "0.9, -1"}},
  });
  EXPECT_EQ(read({"optimizer.betas=[0, 0.5]"}).trainer.optimizer.beta2, 0.5);
}

TEST(RunConfig, NegativeNumbersAreRefused) {
  for (const char* key : {"eps", "weight_decay", "momentum", "clip"}) {
    expect_refusals({{{std::string("optimizer.") + key + "=-0.5"}, {std::string("optimizer.") + key + ": is -0.5"}}});
  }
  for (const std::string key : {"data.sequence_length", "data.samples", "train.global_batch_size", "train.steps",
                                "checkpoint.keep_last", "parallel.microbatches", "parallel.virtual_stages"}) {
    expect_refusals({{{key + "=0"}, {key + ": is 0; it must be at least 1"}},
                     {{key + "=-3"}, {key + ": is -3; it must be at least 1"}}});
  }
  for (const std::string key :
       {"train.epochs", "train.eval_every", "checkpoint.save_every", "parallel.zero", "lr_schedule.warmup_steps"}) {
    expect_refusals({{{key + "=-1"}, {key + ": is -1; it must be at least 0"}}});
  }
  expect_refusals({{{"data.kind=random", "data.secondary_length=-1"}, {"data.secondary_length: is -1"}},
                   {{"optimizer.lr=-1"}, {"optimizer.lr is -1", "set optimizer.lr"}},
                   {{"seed=-1"}, {"seed"}},
                   {{"mesh.dp=0"}, {"dp"}},
                   {{"mesh.dp=-2"}, {"dp"}}});
}

TEST(RunConfig, NumbersOutOfRangeAreRefused) {
  expect_refusals({
      {{"data.eval_fraction=1.5"}, {"data.eval_fraction: is 1.5; it must lie in [0, 1]", "use 0.1"}},
      {{"data.path=a.txt"},
       {"data.path: is given, but data.kind", "is generated",
        "set data.kind=text for texts and ids, or data.kind=trimodal for a table"}},
      {{"data.eval_fraction=-0.5"}, {"data.eval_fraction: is -0.5; it must lie in [0, 1]"}},
      {{"lr_schedule.final_fraction=2"}, {"lr_schedule.final_fraction is 2"}},
      {{"lr_schedule.kind=wsd", "train.steps=10", "lr_schedule.decay_steps=11"}, {"lr_schedule.decay_steps is 11"}},
  });
}

TEST(RunConfig, NumbersBeyondAllUseAreRefused) {
  expect_refusals({
      {{"train.steps=1099511627777"}, {"train.steps: is 1099511627777; it must be at most 1099511627776"}},
      {{"parallel.microbatches=4294967297"}, {"parallel.microbatches: is 4294967297; it must be at most 1048576"}},
      {{"parallel.zero=4"}, {"parallel.zero: is 4; it must be at most 3"}},
  });
}

TEST(RunConfig, DtypesMustFitTogether) {
  expect_refusals({
      {{"precision.params=bfloat16"},
       {"precision.params: the optimizer's copy in bfloat16 loses small updates", "use float32 and compute bfloat16"}},
      {{"precision.params=float32", "precision.compute=float64"},
       {"precision.compute: is float64 with params float32", "use the same dtype, bfloat16 or float16"}},
      {{"precision.params=float64", "precision.compute=float32"},
       {"precision.compute: is float32 with params float64"}},
  });
}

TEST(RunConfig, AWrongSplitIsRefused) {
  expect_refusals({
      {{"parallel.split=0"},
       {"parallel.split: found 0", "use \"auto\", \"towers\", a number of stages, or a list of lists"}},
      {{"parallel.split=half"}, {"parallel.split: found \"half\""}},
      {{R"(parallel.split=["embed"])"}, {"parallel.split: is not a list of lists of unit names", "use [["}},
  });
}

TEST(RunConfig, ABatchThatCannotBeCutNamesTheTwoNearest) {
  expect_refusals({
      {{"parallel.microbatches=5"},
       {"train.global_batch_size is 12, not a multiple of dp x fsdp x parallel.microbatches = 1 x 5",
        "set train.global_batch_size=10 or 15 (--batch_size 10 or 15)"}},
      {{"mesh.dp=2", "mesh.fsdp=2", "parallel.microbatches=2"},
       {"= 4 x 2", "set train.global_batch_size=8 or 16 (--batch_size 2 or 4)"}},
      {{"parallel.microbatches=13"}, {"= 1 x 13", "fix: set train.global_batch_size=13 (--batch_size 13)"}},
  });
  EXPECT_NO_THROW(read({"mesh.dp=2", "mesh.tp=2", "parallel.microbatches=6"}));
}

TEST(RunConfig, DynamicFrequenciesDoNotFollowTheCutIntoMicrobatches) {
  const std::vector<std::string> text = {"data.kind=text", "data.path=a.txt",
                                         "model.rope_scaling={\"rope_type\": \"dynamic\", \"factor\": 4.0}",
                                         "data.sequence_length=64"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), text.begin(), text.end());
    auto parsed = JsonDocument::parse(R"({"model": {"kind": "llama", "hidden_size": 16, "num_hidden_layers": 1,
      "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 64, "max_position_embeddings": 32}})");
    for (const auto& assignment : more) parsed.apply_override(assignment);
    return read_run_config(parsed);
  };
  const auto refusal = error_text<ConfigError>([&] { with({}); });
  EXPECT_NE(refusal.find("depend on the length of each microbatch"), std::string::npos) << refusal;
  EXPECT_NO_THROW(with({"data.padding=full"}));
  EXPECT_NO_THROW(with({"data.sequence_length=32"}));
}

TEST(RunConfig, AnotherKindReplacesItsSection) {
  const auto loaded = [](const std::vector<std::string>& overrides) {
    return read_run_config(load_run_document("", overrides));
  };
  // The embedded default is a trimodal model on generated data.
  const auto text = loaded({"model.kind=llama", "data.kind=text", "data.path=a.txt", "model.vocab_size=99"});
  EXPECT_EQ(get<LlamaConfig>(text.model).vocab_size, 99);
  EXPECT_EQ(text.data.sequence_length, 128) << "nothing of the demo is left";
  const auto same = loaded({"data.kind=trimodal_demo", "data.samples=64"});
  EXPECT_EQ(same.data.secondary_length, 24) << "the kind it has already changes nothing";
}

TEST(RunConfig, AnotherModelOrDataTakesNothingFromTheDemo) {
  const auto printed = [](const std::vector<std::string>& overrides) {
    const auto document = load_run_document("", overrides);
    read_run_config(document);
    return printed_config(document);
  };
  const std::vector<std::string> table = {"data.kind=trimodal", "data.path=a.csv", "data.primary_text=t",
                                          "data.label=l"};
  const auto classify = printed(table);
  EXPECT_NE(classify.find("(default of classify: optimizer.lr=0.0005)"), std::string::npos) << classify;
  const auto text = printed({"model.kind=llama", "data.kind=text", "data.path=a.txt"});
  for (const char* part : {"name = \"pretrain\"", "(default of pretrain: train.epochs=1)",
                           "(default of pretrain: train.global_batch_size=32)", "lr_schedule.warmup_steps = 0"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_EQ(text.find("the embedded default"), std::string::npos) << text;
  const auto steps = printed({"model.kind=llama", "data.kind=tokens", "train.steps=7", "optimizer.lr=0.5"});
  EXPECT_NE(steps.find("train.epochs = 0"), std::string::npos) << steps;
  EXPECT_NE(steps.find("(--set optimizer.lr=0.5)"), std::string::npos) << steps;
  EXPECT_EQ(printed({"data.kind=random"}).find("default of "), std::string::npos) << "the demo's model";
}

TEST(RunConfig, AModelIsRequired) {
  const auto text = error_text<ConfigError>([] { read_run_config(JsonDocument::parse("{}")); });
  EXPECT_NE(text.find("missing key model"), std::string::npos) << text;
}

TEST(RunConfig, TheResolvedConfigReadsTheSame) {
  const std::vector<std::pair<std::string, JsonDocument>> documents = {
      {"default", load_run_document("", {})},
      {"default with sgd", load_run_document("", {"optimizer.kind=sgd", "optimizer.momentum=0.9"})},
      {"small", document()},
      {"many",
       document({"name=other", "seed=18446744073709551615", "mesh.dp=2", "mesh.tp=2", "mesh.order=tp,dp,pp,fsdp,cp",
                 "parallel.microbatches=3", "parallel.recompute=selective", R"(parallel.split=[["embed"],["head"]])",
                 "parallel.schedule=gpipe", "parallel.zero=2", "precision.compute=bfloat16", "lr_schedule.kind=wsd",
                 "lr_schedule.decay_steps=4", "optimizer.lr=0.1", "optimizer.eps=1e-15", "checkpoint.save_every=7",
                 "model.freeze=[\"embed\"]"})},
      {"split number", document({"parallel.split=2"})},
      {"float16", document({"precision.compute=float16"})},
      {"loss scale", document({"precision.compute=float16", "precision.loss_scale.interval=9"})},
      {"tokenizer of both texts", load_run_document("", {"data.kind=trimodal", "data.path=a.csv", "data.primary_text=t",
                                                         "data.label=l", "data.tokenizer=vocab.txt"})},
      {"random", document({"data.kind=random", "data.secondary_length=5"})},
  };
  for (const auto& [name, first] : documents) {
    SCOPED_TRACE(name);
    const auto config = read_run_config(first);
    const auto text = resolved_config(first);
    const auto second = JsonDocument::parse(text);
    expect_same(read_run_config(second), config);
    EXPECT_EQ(resolved_config(second), text);
  }
}

TEST(RunConfig, TheResolvedConfigOfEpochsReadsTheSame) {
  const auto first = document({"train.epochs=2"});
  const auto config = read_run_config(first);
  expect_same(read_run_config(JsonDocument::parse(resolved_config(first))), config);
}

TEST(RunConfig, ThePrintedConfigShowsValuesAndOrigins) {
  const auto read_one = document({"train.steps=7"});
  read_run_config(read_one);
  const auto text = printed_config(read_one);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  EXPECT_EQ(lines.size(), read_one.entries().size());
  const auto has_line = [&](const std::string& value, const std::string& origin) {
    for (const auto& line : lines) {
      if (line.starts_with(value + " ") && line.ends_with(" (" + origin + ")")) return true;
    }
    return false;
  };
  EXPECT_TRUE(has_line("model.hidden_size = 16", "small.json:2")) << text;
  EXPECT_TRUE(has_line("data.sequence_length = 8", "small.json:4")) << text;
  EXPECT_TRUE(has_line("train.steps = 7", "--set train.steps=7")) << text;
  EXPECT_TRUE(has_line("optimizer.kind = \"adamw\"", "default")) << text;
  EXPECT_TRUE(has_line("mesh.tp = 1", "default")) << text;
  const auto column = lines.front().find(" (");
  for (const auto& line : lines) EXPECT_EQ(line.rfind(" ("), column) << line;
}

TEST(RunConfig, TheWorkOfAMicrobatchFollowsFromBatchMeshAndMicrobatches) {
  EXPECT_EQ(work_size(read()), (WorkSize{.rows = 12, .sequence = 8}));
  EXPECT_EQ(work_size(read({"parallel.microbatches=3"})).rows, 4);
  EXPECT_EQ(work_size(read({"mesh.dp=2", "mesh.fsdp=3", "mesh.tp=2", "parallel.microbatches=2"})).rows, 1);
  EXPECT_EQ(work_size(read({"data.kind=random", "data.secondary_length=5", "precision.compute=bfloat16"})),
            (WorkSize{.rows = 12, .sequence = 8, .secondary_sequence = 5, .compute = DType::bfloat16}));
}

TEST(RunConfig, RefusesRulesThatNoCheckpointCanMeet) {
  const auto refusal = [](const std::vector<std::string>& overrides) {
    return error_text<ConfigError>([&] { read(overrides); });
  };
  EXPECT_TRUE(refusal({"checkpoint.save_every=4", "checkpoint.keep_every=6"})
                  .starts_with("checkpoint.keep_every is 6, but only multiples of save_every 4 are saved"));
  for (const auto& overrides : std::vector<std::vector<std::string>>{
           {"checkpoint.keep_best=1", "data.eval_fraction=0.5"},
           {"checkpoint.keep_best=1", "checkpoint.save_every=4", "data.eval_fraction=0.5"},
           {"checkpoint.keep_best=1", "checkpoint.save_every=4", "train.eval_every=3", "data.eval_fraction=0.5"},
           {"checkpoint.keep_best=1", "checkpoint.save_every_epochs=1", "train.eval_every=1000",
            "data.eval_fraction=0.5"}}) {
    EXPECT_NE(refusal(overrides).find("checkpoint.keep_best ranks checkpoints by the evaluation of their step"),
              std::string::npos);
  }
  EXPECT_EQ(read({"checkpoint.keep_best=1", "checkpoint.save_every=4", "train.eval_every=2", "data.eval_fraction=0.5"})
                .checkpoint.keep.best,
            1);
  EXPECT_TRUE(
      refusal({"checkpoint.keep_best=1", "checkpoint.save_every=4", "train.eval_every=2", "data.eval_fraction=0"})
          .starts_with("checkpoint.keep_best without data to evaluate on"));
  EXPECT_NE(refusal({"train.bad_steps=ignore"}).find("found \"ignore\""), std::string::npos);
}

}  // namespace run_config_test
}  // namespace orthant
