// Mixtures of experts by programs, against formulas that send every token through every expert.
#include <limits>

#include "interpret/unit_checks.h"
#include "orthant/ops/functions.h"

namespace orthant::test::experts_test {

constexpr std::int64_t kChannels = 4;
constexpr std::int64_t kInner = 6;

struct Mixture {
  ops::Experts kind;
  bool biased = false;
};

ops::Experts experts_of(std::int64_t count, std::int64_t per_token) {
  return {
      .router = "router", .inputs = "in", .outputs = "out", .count = count, .per_token = per_token, .inner = kInner};
}

std::vector<Mixture> mixtures() {
  ops::Experts plain = experts_of(5, 2);
  ops::Experts unnormalised = experts_of(5, 3);
  unnormalised.normalised = false;
  ops::Experts one = experts_of(3, 1);
  one.normalised = false;
  ops::Experts all = experts_of(4, 4);
  ops::Experts sigmoid = experts_of(6, 2);
  sigmoid.sigmoid = true;
  sigmoid.scaling = 2.5;
  ops::Experts grouped = experts_of(8, 3);
  grouped.sigmoid = true;
  grouped.groups = 4;
  grouped.groups_taken = 2;
  ops::Experts softmax_groups = experts_of(6, 2);
  softmax_groups.groups = 3;
  softmax_groups.groups_taken = 1;
  ops::Experts tight = experts_of(5, 3);
  tight.capacity = 2;
  ops::Experts tightest = experts_of(3, 1);
  tightest.normalised = false;
  tightest.capacity = 1;
  return {{plain},   {unnormalised},   {one},   {all},      {sigmoid},
          {grouped}, {softmax_groups}, {tight}, {tightest}, {grouped, true}};
}

std::string name_of(std::int64_t expert, const char* matrix) {
  return "experts." + std::to_string(expert) + "." + matrix;
}

// Records the mixture; the caller says what its output is.
ops::RoutedTokens record(UnitCase& given, Mixture mixture, std::int64_t rows, std::int64_t sequence,
                         Value labels = {}) {
  const ops::Experts& kind = mixture.kind;
  const Value x = given.input("x", random_tensor({rows, sequence, kChannels}, 1));
  given.parameter("router", random_tensor({kind.count, kChannels}, 2));
  if (mixture.biased) mixture.kind.bias = given.parameter("bias", random_tensor({kind.count}, 3));
  for (std::int64_t e = 0; e < kind.count; ++e) {
    given.parameter(name_of(e, "w1"), random_tensor({kInner, kChannels}, 10 + e), Split{0}, "in");
    given.parameter(name_of(e, "w3"), random_tensor({kInner, kChannels}, 30 + e), Split{0}, "in");
  }
  for (std::int64_t e = 0; e < kind.count; ++e) {
    given.parameter(name_of(e, "w2"), random_tensor({kChannels, kInner}, 50 + e), Split{1}, "out");
  }
  return ops::experts(given.recorder, x, mixture.kind, labels);
}

UnitCase mixture_case(const Mixture& mixture, std::int64_t rows = 2, std::int64_t sequence = 3) {
  UnitCase given(rows, sequence);
  given.output(record(given, mixture, rows, sequence).y, random_tensor({rows, sequence, kChannels}, 4));
  return given;
}

struct Choice {
  at::Tensor scores;  // [tokens, experts]
  at::Tensor taken;   // 1 where the expert takes the token, likewise
};

// Token by token, best first, of equal ones the first.
Choice choose(const Named& t, const Mixture& mixture, const at::Tensor& logits) {
  const ops::Experts& kind = mixture.kind;
  Choice made;
  made.scores = kind.sigmoid ? at::sigmoid(logits) : at::softmax(logits, 1);
  const at::Tensor ranked = (mixture.biased ? made.scores + t.at("bias") : made.scores).detach();
  made.taken = at::zeros_like(ranked);
  const std::int64_t size = kind.count / kind.groups;
  const auto take_best = [](std::vector<double>& values) {
    const auto best = std::ranges::max_element(values) - values.begin();
    values[static_cast<std::size_t>(best)] = -std::numeric_limits<double>::infinity();
    return best;
  };
  for (std::int64_t token = 0; token < ranked.size(0); ++token) {
    std::vector<double> values(static_cast<std::size_t>(kind.count), -std::numeric_limits<double>::infinity());
    std::vector<double> groups;
    for (std::int64_t g = 0; g < kind.groups; ++g) {
      const auto two = std::get<0>(ranked[token].narrow(0, g * size, size).topk(std::min<std::int64_t>(2, size)));
      groups.push_back(two.sum().item<double>());
    }
    for (std::int64_t i = 0; i < kind.groups_taken; ++i) {
      const std::int64_t first = take_best(groups) * size;
      for (std::int64_t e = first; e < first + size; ++e) {
        values[static_cast<std::size_t>(e)] = ranked[token][e].item<double>();
      }
    }
    for (std::int64_t i = 0; i < kind.per_token; ++i) made.taken[token][take_best(values)] = 1;
  }
  return made;
}

// Row by row, of those that choose an expert the first.
at::Tensor with_room(at::Tensor taken, std::int64_t sequence, std::int64_t capacity) {
  if (capacity == 0) return taken;
  taken = taken.clone();
  for (std::int64_t e = 0; e < taken.size(1); ++e) {
    std::int64_t left = 0;
    for (std::int64_t token = 0; token < taken.size(0); ++token) {
      if (token % sequence == 0) left = capacity;
      if (taken[token][e].item<double>() == 0) continue;
      if (left-- <= 0) taken[token][e] = 0;
    }
  }
  return taken;
}

at::Tensor logits_of(const Named& t) {
  return at::matmul(t.at("x").reshape({-1, kChannels}), t.at("router").t());
}

Formula formula_of(const Mixture& mixture) {
  return [=](const Named& t, const nn::Pass&) {
    const at::Tensor x = t.at("x").reshape({-1, kChannels});
    const Choice choice = choose(t, mixture, logits_of(t));
    at::Tensor weights = choice.scores * choice.taken;
    if (mixture.kind.normalised) weights = weights / weights.sum(1, /*keepdim=*/true);
    weights = weights * with_room(choice.taken, t.at("x").size(1), mixture.kind.capacity);
    at::Tensor y = at::zeros_like(x);
    for (std::int64_t e = 0; e < mixture.kind.count; ++e) {
      const at::Tensor inner = at::silu(at::matmul(x, t.at(name_of(e, "w1")).t()));
      const at::Tensor made = at::matmul(inner * at::matmul(x, t.at(name_of(e, "w3")).t()), t.at(name_of(e, "w2")).t());
      y = y + weights.select(1, e).unsqueeze(1) * made * mixture.kind.scaling;
    }
    if (mixture.biased) y = y + 0 * t.at("bias").sum();  // counts in the choice alone
    return y.view_as(t.at("x"));
  };
}

TEST(Experts, EqualFormulasUnderAutograd) {
  for (const Mixture& mixture : mixtures()) {
    if (mixture.biased) continue;
    SCOPED_TRACE(testing::Message() << mixture.kind.count << " experts, " << mixture.kind.per_token << " per token");
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      expect_formula(mixture_case(mixture), formula_of(mixture), dtype);
      expect_formula(mixture_case(mixture, 1, 1), formula_of(mixture), dtype);
      expect_formula(mixture_case(mixture, 4, 9), formula_of(mixture), dtype);
    }
  }
}

TEST(Experts, ABiasCountsInTheChoiceAlone) {
  const Mixture biased = mixtures().back();
  const UnitCase given = mixture_case(biased, 5, 7);
  const Result expected = oracle(given, formula_of(biased), at::kDouble);
  const Result found = UnitRun(given, {.frozen = {"bias"}}, at::kDouble).run();
  expect_near(found.y, expected.y, 1e-12, "y");
  for (const auto* name : {"x", "router"})
    expect_near(found.gradients.at(name), expected.gradients.at(name), 1e-11, name);
  const UnitCase without = mixture_case({biased.kind}, 5, 7);
  EXPECT_GT((UnitRun(without, {}, at::kDouble).run().y - found.y).abs().max().item<double>(), 1e-3);
}

TEST(Experts, BeyondTheirCapacityTakeNothing) {
  const std::int64_t rows = 3, sequence = 8;
  for (const Mixture& mixture : mixtures()) {
    if (mixture.kind.capacity == 0) continue;
    const Named named = mixture_case(mixture, rows, sequence).rounded(at::kDouble);
    const at::Tensor taken = choose(named, mixture, logits_of(named)).taken;
    EXPECT_GT(taken.view({rows, sequence, -1}).sum(1).max().item<double>(), static_cast<double>(mixture.kind.capacity));
    const at::Tensor left = with_room(taken, sequence, mixture.kind.capacity);
    EXPECT_LE(left.view({rows, sequence, -1}).sum(1).max().item<double>(), static_cast<double>(mixture.kind.capacity));
  }
}

TEST(Experts, AreSharedByTpRanks) {
  for (const Mixture& mixture : mixtures()) {
    if (mixture.biased) continue;
    SCOPED_TRACE(testing::Message() << mixture.kind.count << " experts, " << mixture.kind.per_token << " per token");
    expect_axis(mixture_case(mixture, 3, 5), {2, 3}, at::kDouble, 1e-11);
  }
}

// All scores are equal.
TEST(Experts, TiesGoToTheFirst) {
  Mixture mixture{experts_of(5, 2)};
  UnitCase given = mixture_case(mixture);
  UnitRun run(given, {}, at::kDouble);
  at::NoGradGuard no_grad;
  run.parameter("router").value.zero_();
  const Result found = run.run();
  for (std::int64_t e = 0; e < 5; ++e) {
    const double largest = found.gradients.at(name_of(e, "w2")).abs().max().item<double>();
    EXPECT_EQ(largest > 0, e < 2) << e;
  }
}

// Labels of which some do not count.
at::Tensor labels_of(std::int64_t rows, std::int64_t sequence) {
  at::Tensor labels = at::arange(rows * sequence, at::kLong).view({rows, sequence}).clone();
  labels.masked_fill_(labels.remainder(4).eq(2), -100);
  return labels;
}

UnitCase loss_case(Mixture mixture, std::int64_t rows, std::int64_t sequence) {
  UnitCase given(rows, sequence);
  const Value labels = given.field("labels", labels_of(rows, sequence));
  given.output(record(given, mixture, rows, sequence, labels).loss, at::full({}, 1.7, at::kDouble));
  return given;
}

// Row by row, as Switch Transformer has it for a batch.
Formula loss_formula(const Mixture& mixture) {
  return [=](const Named& t, const nn::Pass&) {
    const at::Tensor logits = logits_of(t);
    const Choice choice = choose(t, mixture, logits);
    const at::Tensor shares = mixture.kind.sigmoid ? choice.scores / choice.scores.sum(1, true) : choice.scores;
    const std::int64_t rows = t.at("labels").size(0), sequence = t.at("labels").size(1);
    const at::Tensor counts = t.at("labels").ge(0).to(at::kDouble).view({-1, 1});
    at::Tensor loss = at::zeros({}, at::kDouble);
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto of_row = [&](const at::Tensor& x) { return (x * counts).narrow(0, row * sequence, sequence).sum(0); };
      const double n = counts.narrow(0, row * sequence, sequence).sum().item<double>();
      if (n == 0) continue;
      const auto experts = static_cast<double>(mixture.kind.count);
      loss = loss + mixture.kind.loss.balance * n * experts * (of_row(choice.taken) / n * (of_row(shares) / n)).sum();
    }
    const at::Tensor z = (at::logsumexp(logits, {1}).square() * counts.squeeze(1)).sum();
    return loss + mixture.kind.loss.z * z;
  };
}

TEST(RouterLoss, EqualsItsFormula) {
  for (Mixture mixture : mixtures()) {
    if (mixture.biased) continue;
    for (const auto& [balance, z] : {std::pair{0.5, 0.0}, std::pair{0.2, 0.7}}) {
      mixture.kind.loss = {balance, z};
      SCOPED_TRACE(testing::Message() << mixture.kind.count << " experts, balance " << balance << ", z " << z);
      for (const auto& [rows, sequence] : {std::pair{4, 5}, std::pair{3, 1}}) {
        const UnitCase given = loss_case(mixture, rows, sequence);
        const Result expected = oracle(given, loss_formula(mixture), at::kDouble);
        for (Way way : {Way{}, Way{.split = true}, Way{.remake = {.all = true}}}) {
          const Result found = UnitRun(given, way, at::kDouble).run();
          expect_near(found.y, expected.y, 1e-12, "loss");
          for (const auto* name : {"x", "router"}) {
            expect_near(found.gradients.at(name), expected.gradients.at(name), 1e-11, name);
          }
        }
      }
    }
  }
}

}  // namespace orthant::test::experts_test
