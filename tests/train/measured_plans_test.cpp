// Measured plans of products in trainings: rank 0's on all ranks, from the second step on, kept for whoever continues.
#include "orthant/train/measured_plans.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <sstream>

#include "base/error_text.h"
#include "ops/fake_products.h"
#include "orthant/files/whole_file.h"
#include "orthant/train/device_setup.h"
#include "orthant/train/kept_plans.h"
#include "orthant/train/start_check.h"
#include "train/training_ranks.h"

namespace orthant {
namespace measured_plans_test {

constexpr const char* kResolved = R"({"model": {}})";

RunConfig config_of(std::vector<std::string> settings = {}) {
  settings.insert(
      settings.begin(),
      {"model.num_hidden_layers=2", "model.hidden_size=16", "model.intermediate_size=20", "model.num_attention_heads=2",
       "model.num_key_value_heads=1", "model.vocab_size=53", "data.sequence_length=8", "data.samples=48",
       "train.global_batch_size=12", "train.steps=6", "checkpoint.save_every=3", "train.product_plans=measured"});
  return read_run_config(load_run_document(ORTHANT_SOURCE_DIR "/configs/llama_tiny.json", settings));
}

struct Ran {
  RunOutcome outcome;
  std::string said;
};

Ran run(RunConfig config, const std::shared_ptr<FakeProducts>& library, const std::filesystem::path& folder,
        const RunOptions& how = {}) {
  config.trainer.product_library = library;
  auto options = how;
  options.output_dir = folder.string();
  // Its event files are named after the second and the process, of which a continued run elsewhere has others.
  std::filesystem::remove_all(folder / "tensorboard");
  std::ostringstream out;
  auto outcome = run_training(config, kResolved, options, out);
  return {outcome, out.str()};
}

TEST(MeasuredPlans, ATableReadsAsItWasWritten) {
  ProductTable table{"fake 1", "a \"card\"", "mesh dp=2", {}};
  table.plans[{.rows = 3,
               .columns = 5,
               .depth = 7,
               .left_turned = true,
               .left_stride = 3,
               .right_stride = 5,
               .out_stride = 5,
               .in = cuda::Element::bfloat16,
               .adds = true,
               .alignment = 8}] = {{{0xffffffffffffffffULL, 2, 3, 4, 5, 6, 7, 8}, 4096}, 1.5e-6, 2e-6};
  table.plans[{.rows = 1,
               .columns = 1,
               .depth = 1,
               .left_stride = 1,
               .right_stride = 1,
               .out_stride = 1,
               .tf32 = true,
               .has_bias = true}] = {};
  const auto text = to_text(table);
  EXPECT_EQ(product_table(text, "file"), table);
  std::set<cuda::Product> products;
  for (const auto& [product, plan] : table.plans) products.insert(product);
  EXPECT_EQ(product_set(to_text(products)), products);
}

TEST(MeasuredPlans, WhatIsNoTableIsRefused) {
  ProductTable table{"fake 1", "a card", "mesh dp=2", {}};
  table.plans[{.rows = 3, .columns = 5, .depth = 7, .left_stride = 7, .right_stride = 5, .out_stride = 5}] = {};
  const auto good = to_text(table);
  const auto with = [&](const std::string& from, const std::string& to) {
    auto text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const auto& text : {std::string(), std::string("{"), std::string("[]"), with("\"version\": 1", "\"version\": 2"),
                           with("\"rows\": 3", "\"rows\": -3"), with("\"rows\": 3", "\"rows\": 3.5"),
                           with("\"alignment\": 16", "\"alignment\": 99999999999"), with("\"float32\"", "\"float8\""),
                           with("0000000000000000", "zzzz"), with("\"plan\"", "\"plans\"")}) {
    const auto found = error_text<DataError>([&] { product_table(text, "some.json"); });
    EXPECT_NE(found.find("product plans cannot be read"), std::string::npos) << text << found;
    EXPECT_NE(found.find("some.json"), std::string::npos) << text << found;
  }
}

TEST(MeasuredPlans, TheCpuHasNoneToMeasure) {
  const auto text = error_text<ConfigError>([] { check_device(config_of().trainer); });
  EXPECT_NE(text.find("train.product_plans=measured needs a CUDA device, and this run trains on cpu"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("use --device cuda, or train.product_plans=heuristic"), std::string::npos) << text;
}

TEST(MeasuredPlans, TheFirstStepIsLibtorchsAndTheNextGoByTheFastestPlans) {
  auto config = config_of();
  const auto library = std::make_shared<FakeProducts>();
  config.trainer.product_library = library;
  const auto data = make_run_data(config);
  const auto trainer = make_trainer(config);
  const auto loader = make_loader(config, data, 0);
  trainer->step(loader->next()).get();
  EXPECT_EQ(library->num_multiplied, 0);
  const auto& table = trainer->measured_plans()->table();
  ASSERT_TRUE(table);
  EXPECT_GE(table->plans.size(), 8U);
  for (const auto& [product, chosen] : table->plans) EXPECT_EQ(chosen.plan.words[0], 1U) << to_text(product);
  const auto timed = library->num_timed;
  EXPECT_EQ(timed, 3 * static_cast<int>(table->plans.size()));
  trainer->step(loader->next()).get();
  const int per_step = library->num_multiplied;
  EXPECT_GE(per_step, 3 * (4 * 2 + 1));  // forward and both gradients of two layers and the head
  trainer->step(loader->next()).get();
  EXPECT_EQ(library->num_multiplied, 2 * per_step);
  EXPECT_EQ(library->num_timed, timed);
}

// Rank 1 would choose another plan, and has products that rank 0 has not.
TEST(MeasuredPlans, AllRanksGoByRankZerosChoice) {
  for (const char* axis : {"mesh.dp=2", "mesh.tp=2", "mesh.pp=2"}) {
    std::mutex mutex;
    std::vector<std::string> tables;
    std::vector<int> timed(2);
    on_ranks(config_of({axis, "parallel.microbatches=2"}), [&](const RunConfig& common) {
      auto config = common;
      const auto library = std::make_shared<FakeProducts>();
      if (rank_of(config) == 1) library->times = {1, 2, 3};
      config.trainer.product_library = library;
      const auto data = make_run_data(config);
      const auto trainer = make_trainer(config);
      const auto loader = make_loader(config, data, 0);
      for (int step = 0; step < 2; ++step) trainer->step(loader->next()).get();
      EXPECT_GT(library->num_multiplied, 0) << axis;
      const std::lock_guard lock(mutex);
      tables.push_back(to_text(trainer->measured_plans()->table().value()));
      timed[static_cast<std::size_t>(rank_of(config))] = library->num_timed;
    });
    ASSERT_EQ(tables.size(), 2U) << axis;
    EXPECT_EQ(tables[0], tables[1]) << axis;
    EXPECT_GT(timed[0], 0) << axis;
    EXPECT_EQ(timed[1], 0) << axis;
  }
}

TEST(MeasuredPlans, ARankWithAnotherCardIsRefused) {
  const auto errors = try_on_ranks(config_of({"mesh.dp=2"}), [&](const RunConfig& common) {
    auto config = common;
    const auto library = std::make_shared<FakeProducts>();
    if (rank_of(config) == 1) library->card_text = "another card";
    config.trainer.product_library = library;
    const auto data = make_run_data(config);
    make_trainer(config)->step(make_loader(config, data, 0)->next()).get();
  });
  for (const auto& error : errors) {
    try {
      if (error) std::rethrow_exception(error);
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& thrown) {
      EXPECT_EQ(thrown.message(), "product plans of rank 0 cannot be used: made for a card, and this is another card");
      EXPECT_EQ(thrown.rank(), 1);
    }
  }
}

// A run of six steps, and one that was stopped after three and continued on a day when another plan was the fastest.
TEST(MeasuredPlans, AContinuedRunHasTheBitsOfTheWholeOne) {
  const TestFolder folder("orthant-plans");
  const auto config = config_of({"train.deterministic=true"});
  const auto whole = run(config, std::make_shared<FakeProducts>(), folder.path / "whole");
  EXPECT_TRUE(std::filesystem::exists(folder.path / "whole" / "product_plans.json"));
  RunOptions half;
  half.stop_after = 3;
  run(config, std::make_shared<FakeProducts>(), folder.path / "run", half);
  const auto kept = read_file(folder.path / "run" / "product_plans.json");
  EXPECT_EQ(product_table(kept, "kept").card, "a card");

  const auto other_day = std::make_shared<FakeProducts>();
  other_day->times = {1, 2, 3};
  RunOptions resume;
  resume.resume = "auto";
  const auto continued = run(config, other_day, folder.path / "run", resume);
  EXPECT_EQ(other_day->num_timed, 0);
  EXPECT_GT(other_day->num_multiplied, 0);
  EXPECT_EQ(continued.outcome.result.weights_hash, whole.outcome.result.weights_hash);
  EXPECT_EQ(read_file(folder.path / "run" / "product_plans.json"), kept);

  // In a folder of its own, with the plans of the folder that the checkpoint lies in.
  resume.resume = (folder.path / "run" / "checkpoints" / "step-3").string();
  const auto elsewhere = run(config, other_day, folder.path / "elsewhere", resume);
  EXPECT_EQ(other_day->num_timed, 0);
  EXPECT_EQ(elsewhere.outcome.result.weights_hash, whole.outcome.result.weights_hash);
  EXPECT_EQ(read_file(folder.path / "elsewhere" / "product_plans.json"), kept);

  const auto measured_then = run(config, other_day, folder.path / "other");
  EXPECT_NE(measured_then.outcome.result.weights_hash,
            whole.outcome.result.weights_hash);  // plans have bits of their own
}

TEST(MeasuredPlans, OtherSettingsHaveOtherProductsWhichAreMeasured) {
  const TestFolder folder("orthant-plans");
  RunOptions half;
  half.stop_after = 3;
  run(config_of(), std::make_shared<FakeProducts>(), folder.path / "run", half);
  RunOptions resume;
  resume.resume = "auto";
  const auto library = std::make_shared<FakeProducts>();
  const auto ran =
      run(config_of({"train.deterministic=true", "parallel.microbatches=2"}), library, folder.path / "run", resume);
  for (const char* part :
       {"product_plans.json: made for llama ", ", mesh dp=1, 1 microbatches, float32 into float32, and this is llama ",
        ", mesh dp=1, 2 microbatches, float32 into float32; plans are measured anew after the next step"}) {
    EXPECT_NE(ran.said.find(part), std::string::npos) << part << "\n" << ran.said;
  }
  EXPECT_GT(library->num_timed, 0);
  EXPECT_GT(library->num_multiplied, 0);
  const auto kept = product_table(read_file(folder.path / "run" / "product_plans.json"), "kept");
  EXPECT_TRUE(kept.settings.ends_with(", mesh dp=1, 2 microbatches, float32 into float32")) << kept.settings;
}

TEST(MeasuredPlans, PlansOfOtherSizesInTheFolderAreNotTaken) {
  const TestFolder folder("orthant-plans");
  run(config_of(), std::make_shared<FakeProducts>(), folder.path / "other");
  const auto begin_with_its_plans = [&](const std::string& name, std::vector<std::string> settings) {
    std::filesystem::create_directories(folder.path / name);
    std::filesystem::copy(folder.path / "other" / "product_plans.json", folder.path / name / "product_plans.json");
    const auto library = std::make_shared<FakeProducts>();
    run(config_of(std::move(settings)), library, folder.path / name);
    EXPECT_GT(library->num_multiplied, 0) << name;
    return library->num_timed;
  };
  EXPECT_EQ(begin_with_its_plans("alike", {}), 0);
  EXPECT_GT(begin_with_its_plans("length", {"data.sequence_length=16"}), 0);
  EXPECT_GT(begin_with_its_plans("rows", {"train.global_batch_size=4"}), 0);
  EXPECT_GT(begin_with_its_plans("model", {"model.intermediate_size=24"}), 0);
}

TEST(MeasuredPlans, WithoutItsPlansARunGoesOnByNewOnesUnlessBitsMustRepeat) {
  const TestFolder folder("orthant-plans");
  const auto make = [&](const std::string& name) {
    RunOptions half;
    half.stop_after = 3;
    run(config_of(), std::make_shared<FakeProducts>(), folder.path / name, half);
    return folder.path / name;
  };
  RunOptions resume;
  resume.resume = "auto";
  const auto another = [] {
    auto library = std::make_shared<FakeProducts>();
    library->card_text = "another card";
    return library;
  };
  const auto refuses_plans = [] {
    auto library = std::make_shared<FakeProducts>();
    library->accepts_plans = false;
    return library;
  };
  struct Case {
    std::string name;
    std::function<void(const std::filesystem::path&)> spoil;
    std::shared_ptr<FakeProducts> library;
    std::string why;
  };
  const auto nothing = [](const std::filesystem::path&) {};
  const std::vector<Case> cases = {
      {"missing", [](const auto& path) { std::filesystem::remove(path); }, std::make_shared<FakeProducts>(),
       "is missing"},
      {"spoilt", [](const auto& path) { write_file_atomically(path, "{}"); }, std::make_shared<FakeProducts>(),
       "product plans cannot be read"},
      {"card", nothing, another(), "made for a card, and this is another card"},
      {"refused", nothing, refuses_plans(), "fake 1 refuses the plan for"},
  };
  for (const auto& one : cases) {
    const auto path = make(one.name);
    one.spoil(path / "product_plans.json");
    try {
      run(config_of({"train.deterministic=true"}), one.library, path, resume);
      ADD_FAILURE() << one.name;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_NE(error.message().find("product_plans.json: "), std::string::npos) << error.message();
      EXPECT_NE(error.message().find(one.why), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("under train.deterministic the run goes on after step 3"), std::string::npos);
      EXPECT_NE(error.remedy().find("train.product_plans=heuristic"), std::string::npos) << error.remedy();
    }
    EXPECT_EQ(one.library->num_timed, 0) << one.name;
    if (one.name == "missing") {  // a dry run says the same
      auto dry = resume;
      dry.output_dir = path.string();
      const auto text =
          error_text<ConfigError>([&] { check_start(config_of({"train.deterministic=true"}), kResolved, dry); });
      EXPECT_NE(text.find(one.why), std::string::npos) << text;
      check_start(config_of(), kResolved, dry);
    }
    one.library->accepts_plans = true;
    if (one.name == "refused") continue;
    const auto ran = run(config_of(), one.library, path, resume);
    EXPECT_GT(one.library->num_timed, 0) << one.name;
    EXPECT_GT(one.library->num_multiplied, 0) << one.name;
    EXPECT_NE(ran.said.find("plans are measured anew after the next step"), std::string::npos) << ran.said;
    EXPECT_EQ(product_table(read_file(path / "product_plans.json"), "new").card, one.library->card_text);
  }
}

}  // namespace measured_plans_test
}  // namespace orthant
