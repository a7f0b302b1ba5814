#include "orthant/generate/device_choice.h"

#include <ATen/ATen.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>

#include "orthant/base/random.h"
#include "orthant/nn/device_kernels.h"

namespace orthant::cuda::sources {
extern const std::string_view choose_tokens;
}

namespace orthant {
namespace {

namespace device = nn::device;

const cuda::Source kChooseTokens{"generate/choose_tokens.cu", cuda::sources::choose_tokens, {"ELEMENT", "ALIGNED"}};

constexpr std::uint32_t kThreads = 512;
constexpr int kMostKept = 256;

// As choose_tokens.cu has them.
struct WantedToken {
  double inverse_temperature = 0, min_p = 0, uniform = 0;
  std::int64_t keep = 0, sums = 0;
};
struct ChosenToken {
  std::int64_t token, finite, count;
  double sum;
};

bool takes_most_probable(const ChoiceRow& row) {
  return row.params == nullptr || row.params->temperature == 0;
}

at::Tensor on_host(std::int64_t bytes, const at::Tensor& like) {
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(!like.is_cpu()));
}

// When all that was asked of the device so far has ended.
at::Tensor fetched(const at::Tensor& x) {
  if (x.is_cpu()) return x;
  at::Tensor copy = on_host(x.numel(), x);
  copy.copy_(x, /*non_blocking=*/true);
  c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).synchronize();
  return copy;
}

template <class T>
const T* at_bytes(const at::Tensor& bytes, std::int64_t offset) {
  return reinterpret_cast<const T*>(bytes.const_data_ptr<std::uint8_t>() + offset);
}

std::vector<std::optional<std::int64_t>> most_probable(const at::Tensor& logits,
                                                       const std::vector<ChoiceRow>& rows_of) {
  const std::int64_t rows = logits.size(0);
  const at::Tensor chosen = at::empty({rows * 2 * 8}, logits.options().dtype(at::kByte));
  const int aligned = device::aligned(logits.size(1), {logits}) ? 1 : 0;
  cuda::kernel(kChooseTokens, "most_probable", {device::element(logits), aligned})(
      {.blocks = static_cast<std::uint32_t>(rows), .threads = kThreads, .stream = device::stream(logits)},
      device::data<std::int64_t>(chosen), device::data(logits), static_cast<int>(logits.size(1)));
  const at::Tensor copy = fetched(chosen);
  std::vector<std::optional<std::int64_t>> tokens;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto* const own = at_bytes<std::int64_t>(copy, row * 2 * 8);
    if (own[1] == 0) refuse_logits();
    const bool here = rows_of[static_cast<std::size_t>(row)].params != nullptr;
    tokens.push_back(here ? std::optional(own[0]) : std::nullopt);
  }
  return tokens;
}

WantedToken wanted_of(const ChoiceRow& row) {
  WantedToken wanted;
  if (takes_most_probable(row)) return wanted;
  const SamplingParams& params = *row.params;
  wanted.inverse_temperature = 1 / params.temperature;
  wanted.min_p = params.min_p;
  wanted.uniform = TokenChooser::drawn(params, row.answer);
  if (params.top_k > 0) wanted.keep = params.top_k;
  if (params.top_k == 0 && params.top_p < 1) {
    wanted.keep = kMostKept;
    wanted.sums = 1;
  }
  return wanted;
}

// What a kernel writes: `ChosenToken` of each row, then tokens and values of `most` places for each.
class ChosenRows {
 public:
  ChosenRows(std::int64_t rows, std::int64_t most, const at::Tensor& logits)
      : rows_(rows),
        most_(most),
        bytes_(at::empty({values_at() + rows * most * 4}, logits.options().dtype(at::kByte))) {}

  std::uint8_t* device_bytes() const { return device::data<std::uint8_t>(bytes_); }
  std::int64_t tokens_at() const { return rows_ * static_cast<std::int64_t>(sizeof(ChosenToken)); }
  std::int64_t values_at() const { return tokens_at() + rows_ * most_ * 4; }

  void fetch() { copy_ = fetched(bytes_); }
  const ChosenToken& chosen(std::int64_t row) const { return at_bytes<ChosenToken>(copy_, 0)[row]; }
  std::vector<TokenScore> kept(std::int64_t row) const {
    std::vector<TokenScore> kept;
    for (std::int64_t i = row * most_; i < row * most_ + chosen(row).count; ++i) {
      kept.push_back({at_bytes<std::int32_t>(copy_, tokens_at())[i], at_bytes<float>(copy_, values_at())[i]});
    }
    return kept;
  }

 private:
  std::int64_t rows_, most_;
  at::Tensor bytes_, copy_;
};

}  // namespace

bool serves_choice(const at::Tensor& logits) {
  return device::serves(logits) && logits.dim() == 2 && logits.size(1) > 0 && logits.size(1) < (std::int64_t{1} << 31);
}

bool device_chooses(const SamplingParams& params) {
  return params.repetition_penalty == 1 && params.logprobs < 0 && params.top_k <= kMostKept;
}

std::vector<std::optional<std::int64_t>> choose_on_device(const at::Tensor& logits,
                                                          const std::vector<ChoiceRow>& rows) {
  if (std::ranges::all_of(rows, takes_most_probable)) return most_probable(logits, rows);
  const std::int64_t count = logits.size(0);
  at::Tensor all = on_host(count * static_cast<std::int64_t>(sizeof(WantedToken)), logits);
  std::int64_t most = 1;
  for (std::int64_t row = 0; row < count; ++row) {
    const WantedToken wanted = wanted_of(rows[static_cast<std::size_t>(row)]);
    std::memcpy(all.mutable_data_ptr<std::uint8_t>() + row * static_cast<std::int64_t>(sizeof wanted), &wanted,
                sizeof wanted);
    most = std::max(most, wanted.keep);
  }
  const at::Tensor on_device = all.to(logits.device(), /*non_blocking=*/true);
  ChosenRows made(count, most, logits);
  std::uint8_t* const bytes = made.device_bytes();
  const int aligned = device::aligned(logits.size(1), {logits}) ? 1 : 0;
  cuda::kernel(kChooseTokens, "choose", {device::element(logits), aligned})(
      {.blocks = static_cast<std::uint32_t>(count), .threads = kThreads, .stream = device::stream(logits)},
      static_cast<void*>(bytes), static_cast<void*>(bytes + made.tokens_at()),
      static_cast<void*>(bytes + made.values_at()), device::data(logits), device::data(on_device),
      static_cast<int>(logits.size(1)), static_cast<int>(most));
  made.fetch();
  std::vector<std::optional<std::int64_t>> tokens;
  for (std::int64_t row = 0; row < count; ++row) {
    const ChoiceRow& own = rows[static_cast<std::size_t>(row)];
    const ChosenToken& chosen = made.chosen(row);
    if (chosen.finite == 0) refuse_logits();
    if (own.params == nullptr) {
      tokens.emplace_back();
      continue;
    }
    if (chosen.count == 0) {
      tokens.emplace_back(chosen.token);
      continue;
    }
    const bool some = own.params->top_k == 0 && chosen.count < logits.size(1);
    tokens.push_back(TokenChooser::choose_among(made.kept(row), *own.params, own.answer,
                                                some ? std::optional(chosen.sum) : std::nullopt));
  }
  return tokens;
}

device::Variants choice_variants(at::ScalarType dtype) {
  if (dtype == at::kDouble) return {};
  return {{&kChooseTokens, {device::element(dtype), 1}}};
}

}  // namespace orthant
