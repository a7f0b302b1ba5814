// Flat buffers at run time: parameters are views at the layout's offsets, first values follow from names alone, and
// the gradients of a tied parameter are added in unit order.
#include "orthant/parallel/data/flat_parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error_text.h"
#include "orthant/base/random.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {
namespace flat_parameters_test {

constexpr std::uint64_t kSeed = 11;
constexpr int kEmbed = 0;
constexpr int kLayer = 1;
constexpr int kFirstHead = 2;
constexpr int kSecondHead = 3;

UnitSpec named_unit(std::string name) {
  UnitSpec unit;
  unit.name = std::move(name);
  return unit;
}

// No product of dims is a multiple of 32, so every entry is followed by a gap; q, k and v are neighbours without one.
GraphSpec small_graph() {
  GraphSpec graph;
  graph.units = {named_unit("embed"), named_unit("layer"), named_unit("first"), named_unit("second")};
  graph.units[0].parameters = {
      {.name = "embed.table", .shape = {5, 6}, .init = {Init::Kind::normal, 0.5}},
      {.name = "embed.places", .shape = {3, 6}, .init = {Init::Kind::normal, 0.25}, .trainable = false}};
  graph.units[1].parameters = {{.name = "layer.norm", .shape = {6}, .init = {Init::Kind::ones}, .decay = false},
                               {.name = "layer.q", .shape = {4, 6}, .init = {Init::Kind::normal, 0.1}, .joined = "qkv"},
                               {.name = "layer.k", .shape = {2, 6}, .init = {Init::Kind::normal, 0.2}, .joined = "qkv"},
                               {.name = "layer.v", .shape = {2, 6}, .init = {Init::Kind::normal, 0.3}, .joined = "qkv"},
                               {.name = "layer.out", .shape = {6, 4}, .init = {Init::Kind::uniform, 0.7}},
                               {.name = "layer.bias", .shape = {6}, .init = {Init::Kind::zeros}, .decay = false}};
  graph.units[2].borrowed = {"embed.table"};
  graph.units[3].borrowed = {"embed.table"};
  return graph;
}

// A graph and its store, which refers to it.
struct Model {
  explicit Model(GraphSpec spec = small_graph(), Precision precision = {})
      : graph(std::move(spec)), store(graph, Mesh(), 0, precision, [](std::int64_t n, at::ScalarType type) {
          return at::zeros({n}, at::TensorOptions().dtype(type));
        }) {}

  // The buffer that holds a parameter, and where.
  FlatParameters& buffer_of(const std::string& name) {
    for (const auto& buffer : store.buffers()) {
      if (buffer->layout().find(name) != nullptr) return *buffer;
    }
    throw InternalError("no buffer holds " + name);
  }
  at::Tensor master(const std::string& name) {
    const auto& buffer = buffer_of(name);
    return buffer.master_view(buffer.layout().entry(name));
  }
  at::Tensor gradient(const std::string& name) {
    const auto& buffer = buffer_of(name);
    return buffer.gradient_view(buffer.layout().entry(name));
  }
  void begin_step() { store.begin_step(std::vector<bool>(graph.units.size(), false)); }

  GraphSpec graph;
  ParameterStore store;
};

constexpr Precision kDouble = {DType::float64, DType::float64, DType::float64};
constexpr Precision kNarrowCompute = {DType::float32, DType::bfloat16, DType::float32};

// Elements of a buffer that belong to no parameter.
at::Tensor gaps(const FlatBuffer& layout, const at::Tensor& buffer) {
  auto outside = at::ones({layout.size}, at::kBool);
  for (const auto& entry : layout.entries) outside.narrow(0, entry.offset, entry.elements).fill_(false);
  return buffer.masked_select(outside);
}

TEST(FlatParameters, ParametersAreViewsOfOneBufferAtTheLayoutsOffsets) {
  Model model;
  auto& buffer = model.buffer_of("layer.q");
  const auto start = buffer.master().whole().const_data_ptr<float>();
  const auto gradient_start = buffer.gradient().const_data_ptr<float>();
  ASSERT_EQ(buffer.layout().entries.size(), 6U);
  for (const auto& entry : buffer.layout().entries) {
    const auto* found = buffer.find(entry.parameter, kLayer);
    ASSERT_NE(found, nullptr) << entry.parameter;
    EXPECT_EQ(found->value.sizes(), at::IntArrayRef(entry.shape)) << entry.parameter;
    EXPECT_EQ(found->value.const_data_ptr<float>(), start + entry.offset) << entry.parameter;
    EXPECT_EQ(found->gradient.const_data_ptr<float>(), gradient_start + entry.offset) << entry.parameter;
    EXPECT_TRUE(found->value.is_leaf() && found->value.requires_grad()) << entry.parameter;
    EXPECT_EQ(found, buffer.find(entry.parameter, kLayer)) << entry.parameter << " is made twice";
  }
  EXPECT_EQ(buffer.find("layer.unknown", kLayer), nullptr);
}

TEST(FlatParameters, JoinedParametersAreOneViewOverTheirNeighbours) {
  Model model;
  model.store.initialise(kSeed);
  const auto& qkv = model.store.unit(kLayer).joined("qkv");
  EXPECT_EQ(qkv.value.sizes(), at::IntArrayRef({8, 6}));
  EXPECT_EQ(qkv.value.const_data_ptr<float>(), model.master("layer.q").const_data_ptr<float>());
  const auto expected = at::cat({model.master("layer.q"), model.master("layer.k"), model.master("layer.v")});
  EXPECT_TRUE(at::equal(qkv.value, expected));

  model.begin_step();
  const auto rows = at::arange(48, at::kFloat).reshape({8, 6});
  nn::add_gradient(model.store.unit(kLayer).joined("qkv"), rows);
  const auto unused = model.store.complete_gradients();
  EXPECT_TRUE(at::equal(model.gradient("layer.q"), rows.narrow(0, 0, 4)));
  EXPECT_TRUE(at::equal(model.gradient("layer.k"), rows.narrow(0, 4, 2)));
  EXPECT_TRUE(at::equal(model.gradient("layer.v"), rows.narrow(0, 6, 2)));
  for (const auto& name : unused) EXPECT_TRUE(name != "layer.q" && name != "layer.k" && name != "layer.v") << name;
}

TEST(FlatParameters, FirstValuesAreThoseOfTheNamedRandomStream) {
  Model model(small_graph(), kDouble);
  model.store.initialise(kSeed);
  for (const auto& [name, scale] :
       std::map<std::string, double>{{"embed.table", 0.5}, {"embed.places", 0.25}, {"layer.k", 0.2}}) {
    const auto found = model.master(name).flatten();
    const RandomStream stream(kSeed, name);
    for (std::int64_t i = 0; i < found.numel(); ++i) {
      ASSERT_DOUBLE_EQ(found[i].item<double>(), scale * stream.normal(static_cast<std::uint64_t>(i))) << name << i;
    }
  }
  std::vector<double> uniform(24);
  RandomStream(kSeed, "layer.out").fill_uniform(uniform, 0, -0.7, 0.7);
  EXPECT_TRUE(at::equal(model.master("layer.out").flatten(), at::tensor(uniform, at::kDouble)));
  EXPECT_TRUE(at::equal(model.master("layer.norm"), at::ones({6}, at::kDouble)));
  EXPECT_TRUE(at::equal(model.master("layer.bias"), at::zeros({6}, at::kDouble)));
}

TEST(FlatParameters, FirstValuesDoNotDependOnTheRestOfTheModel) {
  Model model;
  auto larger = small_graph();
  larger.units[1].parameters.insert(
      larger.units[1].parameters.begin(),
      {.name = "layer.extra", .shape = {7, 9}, .init = {Init::Kind::normal, 2.0}, .decay = true});
  larger.units.push_back(named_unit("third"));
  larger.units.back().parameters = {{.name = "third.weight", .shape = {3}, .init = {Init::Kind::normal, 1.0}}};
  larger.units[1].parameters.back().trainable = false;
  Model other(larger);
  model.store.initialise(kSeed);
  other.store.initialise(kSeed);
  EXPECT_NE(model.buffer_of("layer.v").layout().entry("layer.v").offset,
            other.buffer_of("layer.v").layout().entry("layer.v").offset);
  for (const auto& unit : model.graph.units) {
    for (const auto& parameter : unit.parameters) {
      EXPECT_TRUE(at::equal(model.master(parameter.name), other.master(parameter.name))) << parameter.name;
    }
  }
  const auto before = model.master("layer.q").clone();
  model.store.initialise(kSeed + 1);
  EXPECT_FALSE(at::equal(model.master("layer.q"), before)) << "the seed counts";
}

TEST(FlatParameters, FloatFirstValuesAreRoundedDoubles) {
  Model narrow;
  Model wide(small_graph(), kDouble);
  narrow.store.initialise(kSeed);
  wide.store.initialise(kSeed);
  for (const char* name : {"embed.table", "layer.q", "layer.out"}) {
    EXPECT_TRUE(at::equal(narrow.master(name), wide.master(name).to(at::kFloat))) << name;
  }
}

TEST(FlatParameters, GapsStayZero) {
  Model model(small_graph(), kNarrowCompute);
  model.store.initialise(kSeed);
  model.begin_step();
  for (int u = 0; u < 4; ++u) {
    const auto parameters = model.store.unit(u);
    for (const auto& parameter : model.graph.units[static_cast<std::size_t>(u)].parameters) {
      auto& found = parameters.named(parameter.name);
      nn::add_gradient(found, at::ones(found.value.sizes()));
    }
    for (const auto& name : parameters.spec().borrowed) nn::add_gradient(parameters.named(name), at::ones({5, 6}));
  }
  EXPECT_TRUE(model.store.complete_gradients().empty());
  model.store.publish();
  std::int64_t checked = 0;
  for (const auto& buffer : model.store.buffers()) {
    const auto& layout = buffer->layout();
    checked += gaps(layout, buffer->master().values()).numel();
    EXPECT_EQ(gaps(layout, buffer->master().values()).count_nonzero().item<std::int64_t>(), 0) << layout.name;
    if (!buffer->trainable()) continue;
    EXPECT_EQ(gaps(layout, buffer->gradient()).count_nonzero().item<std::int64_t>(), 0) << layout.name;
  }
  // embed.tied 32 - 30, embed.frozen 32 - 18; layer 64 + 3 x 32 - 84
  EXPECT_EQ(checked, 2 + 14 + 76);
}

TEST(FlatParameters, ATiedParameterHasOneValueAndOneGradientPerUse) {
  Model model;
  auto& buffer = model.buffer_of("embed.table");
  EXPECT_EQ(buffer.layout().users, (std::vector<int>{kEmbed, kFirstHead, kSecondHead}));
  std::set<const void*> values;
  std::set<const void*> gradients;
  for (const int user : buffer.layout().users) {
    const auto& parameter = model.store.unit(user).named("embed.table");
    values.insert(parameter.value.const_data_ptr());
    gradients.insert(parameter.gradient.const_data_ptr());
  }
  EXPECT_EQ(values.size(), 1U);
  EXPECT_EQ(gradients.size(), 3U);
  const auto text = error_text<InternalError>([&] { buffer.find("embed.table", kLayer); });
  EXPECT_EQ(text, "unit 1 does not use the buffer embed.tied");
}

// In float32 (2^25 + 1) - 2^25 is 0, and any order that cancels first gives 1.
TEST(FlatParameters, UsesAreAddedInUnitOrderWhicheverWasWrittenFirst) {
  constexpr float kLarge = 33554432.0F;
  const std::vector<int> users = {kEmbed, kFirstHead, kSecondHead};
  const std::vector<float> addends = {kLarge, 1.0F, -kLarge};
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    Model model;
    for (const int user : users) model.store.unit(user).named("embed.table");
    model.begin_step();
    for (const auto i : order) {
      nn::add_gradient(model.store.unit(users[i]).named("embed.table"), at::full({5, 6}, addends[i]));
    }
    model.store.complete_gradients();
    EXPECT_TRUE(at::equal(model.gradient("embed.table"), at::zeros({5, 6}))) << order[0] << order[1] << order[2];
  }
}

TEST(FlatParameters, MicrobatchesAreAddedAndTheNextStepStartsAfresh) {
  Model model;
  auto& out = model.store.unit(kLayer)["out"];
  for (int step = 0; step < 2; ++step) {
    model.begin_step();
    for (int m = 0; m < 3; ++m) nn::add_gradient(out, at::full({6, 4}, 0.5));
    model.store.complete_gradients();
    EXPECT_TRUE(at::equal(model.gradient("layer.out"), at::full({6, 4}, 1.5))) << "step " << step;
  }
}

TEST(FlatParameters, WhatNobodyWroteIsClearedAndNamed) {
  Model model;
  const auto layer = model.store.unit(kLayer);
  for (const char* name : {"norm", "q", "k", "v", "out", "bias"}) layer[name].gradient.fill_(7);  // of a step before
  for (const int user : {kEmbed, kFirstHead, kSecondHead}) {
    model.store.unit(user).named("embed.table").gradient.fill_(7);
  }
  model.begin_step();
  for (const char* name : {"q", "k", "v", "out"}) nn::add_gradient(layer[name], at::ones(layer[name].value.sizes()));
  nn::add_gradient(model.store.unit(kSecondHead).named("embed.table"), at::ones({5, 6}));
  const auto unused = model.store.complete_gradients();
  EXPECT_EQ(std::set<std::string>(unused.begin(), unused.end()), (std::set<std::string>{"layer.norm", "layer.bias"}));
  EXPECT_EQ(unused.size(), 2U);
  EXPECT_TRUE(at::equal(model.gradient("layer.norm"), at::zeros({6})));
  EXPECT_TRUE(at::equal(model.gradient("layer.bias"), at::zeros({6})));
  EXPECT_TRUE(at::equal(model.gradient("layer.out"), at::ones({6, 4})));
  EXPECT_TRUE(at::equal(model.gradient("embed.table"), at::ones({5, 6}))) << "one use of three was written";
}

TEST(FlatParameters, AParameterThatNoUnitAskedForIsNamedToo) {
  Model model;
  model.begin_step();
  const auto unused = model.store.complete_gradients();
  EXPECT_EQ(
      std::set<std::string>(unused.begin(), unused.end()),
      (std::set<std::string>{"embed.table", "layer.norm", "layer.q", "layer.k", "layer.v", "layer.out", "layer.bias"}));
}

TEST(FlatParameters, GradientsThatAutogradAccumulatesAreClearedAtTheStart) {
  Model model;
  auto& out = model.store.unit(kLayer)["out"];
  out.gradient.fill_(7);
  model.store.begin_step({false, true, false, false});
  EXPECT_TRUE(at::equal(out.gradient, at::full({6, 4}, 7.0))) << "what the step before left may still be read";
  model.store.need_gradients(kLayer);
  EXPECT_TRUE(at::equal(out.gradient, at::zeros({6, 4})));
  EXPECT_TRUE(out.fresh) << "nothing was added yet";
  out.gradient.add_(2);  // what autograd does
  out.fresh = false;     // and what the unit's hook notes
  for (const auto& name : model.store.complete_gradients()) EXPECT_NE(name, "layer.out");
  EXPECT_TRUE(at::equal(model.gradient("layer.out"), at::full({6, 4}, 2.0)));
}

TEST(FlatParameters, FrozenParametersHaveNoGradient) {
  Model model;
  model.store.initialise(kSeed);
  auto& places = model.store.unit(kEmbed)["places"];
  EXPECT_FALSE(places.trainable());
  EXPECT_FALSE(places.gradient.defined());
  EXPECT_FALSE(places.value.requires_grad());
  EXPECT_FALSE(model.buffer_of("embed.places").trainable());
  const auto before = places.value.clone();
  model.begin_step();
  nn::add_gradient(places, at::ones({3, 6}));
  for (const auto& name : model.store.complete_gradients()) EXPECT_NE(name, "embed.places");
  EXPECT_TRUE(at::equal(places.value, before));
}

TEST(FlatParameters, ANarrowComputeCopyFollowsAfterPublish) {
  Model model(small_graph(), kNarrowCompute);
  model.store.initialise(kSeed);
  const auto& out = model.store.unit(kLayer)["out"];
  EXPECT_EQ(out.value.scalar_type(), at::kBFloat16);
  EXPECT_EQ(out.gradient.scalar_type(), at::kFloat);
  EXPECT_EQ(model.master("layer.out").scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(out.value, model.master("layer.out").to(at::kBFloat16))) << "after initialise()";
  const auto before = out.value.clone();
  model.master("layer.out").add_(1.0 / 3);
  EXPECT_TRUE(at::equal(out.value, before)) << "a copy, not the optimizer's values";
  model.store.publish();
  EXPECT_TRUE(at::equal(out.value, model.master("layer.out").to(at::kBFloat16)));
  EXPECT_FALSE(at::equal(out.value, before));
}

TEST(FlatParameters, OneDtypeMeansOneBuffer) {
  Model model;
  const auto& out = model.store.unit(kLayer)["out"];
  model.master("layer.out").fill_(3);
  EXPECT_TRUE(at::equal(out.value, at::full({6, 4}, 3.0))) << "without publish()";
}

TEST(UnitParameters, NamesAreRelativeAndReachBorrowedParameters) {
  Model model;
  const auto head = model.store.unit(kFirstHead);
  EXPECT_EQ(&head["table"], &head.named("embed.table"));
  EXPECT_EQ(head.find("bias"), nullptr);
  EXPECT_EQ(error_text<InternalError>([&] { head["bias"]; }), "unit first has no parameter bias");
  EXPECT_EQ(error_text<InternalError>([&] { head.named("layer.out"); }),
            "unit first does not hold the parameter layer.out");
  EXPECT_EQ(error_text<InternalError>([&] { head.joined("qkv"); }), "unit first has no parameters joined as qkv");
}

}  // namespace flat_parameters_test
}  // namespace orthant
