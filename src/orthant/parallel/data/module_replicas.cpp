#include "orthant/parallel/data/module_replicas.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <map>

#include "orthant/base/error.h"
#include "orthant/base/stable_hash.h"

namespace orthant {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

[[noreturn]] void refuse_difference(const comm::Group& group, const std::vector<std::string>& texts) {
  std::vector<std::vector<std::string>> lines;
  for (const auto& text : texts) lines.push_back(lines_of(text));
  const auto shown = [&](std::size_t member, std::size_t i) {
    return i < lines[member].size() ? fmt::format("\"{}\"", lines[member][i]) : std::string("nothing");
  };
  for (std::size_t i = 0;; ++i) {
    std::vector<int> others;
    std::string theirs;
    for (std::size_t member = 1; member < lines.size(); ++member) {
      if (shown(member, i) == shown(0, i)) continue;
      if (others.empty()) theirs = shown(member, i);
      others.push_back(group.ranks()[member]);
    }
    if (others.empty()) continue;
    throw ConfigError(fmt::format("DataParallel: ranks differ: rank {} has {}, rank {} has {}", group.ranks()[0],
                                  shown(0, i), fmt::join(others, ", rank "), theirs),
                      {.remedy = "make the same module and options on every rank",
                       .rank = group.ranks()[static_cast<std::size_t>(group.index())]});
  }
}

std::vector<std::string> gather_texts(const comm::Communicator& communicator, comm::Group& group,
                                      const std::string& text, const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (const auto count : counts) sum += count;
  const auto length = static_cast<std::int64_t>(text.size());
  const auto own = communicator.allocate(length, at::kByte);
  own.copy_(at::from_blob(const_cast<char*>(text.data()), {length}, at::kByte));
  const auto all = communicator.allocate(sum, at::kByte);
  group.all_gather(all, own, counts).wait();
  const auto bytes = all.cpu();
  const auto* letters = static_cast<const char*>(bytes.const_data_ptr());
  std::vector<std::string> texts;
  for (const auto count : counts) {
    texts.emplace_back(letters, static_cast<std::size_t>(count));
    letters += count;
  }
  return texts;
}

}  // namespace

std::string description_of(const torch::nn::Module& module) {
  std::string text;
  const auto add = [&](const char* kind, const std::string& name, const at::Tensor& tensor, const std::string& more) {
    text += fmt::format("{} {}: {} [{}]{}\n", kind, name, comm::dtype_name(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ", "), more);
  };
  std::map<const void*, std::string> known;
  for (const auto& item : module.named_parameters()) {
    const auto [first, fresh] = known.emplace(item.value().unsafeGetTensorImpl(), item.key());
    const std::string frozen = item.value().requires_grad() ? "" : ", frozen";
    add("parameter", item.key(), item.value(), fresh ? frozen : fmt::format(", shared with {}", first->second));
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) add("buffer", item.key(), item.value(), "");
  }
  return text;
}

void check_same(const comm::Communicator& communicator, comm::Group group, const std::string& text) {
  const std::vector<std::int64_t> facts = {static_cast<std::int64_t>(stable_hash(text)),
                                           static_cast<std::int64_t>(text.size())};
  const auto own = communicator.allocate(2, at::kLong);
  own.copy_(at::tensor(facts, at::kLong));
  const auto all = communicator.allocate(2 * group.size(), at::kLong);
  group.all_gather(all, own).wait();
  const auto seen = all.cpu().view({group.size(), 2});
  if (seen.eq(seen[0]).all().item<bool>()) return;
  std::vector<std::int64_t> lengths;
  for (int member = 0; member < group.size(); ++member) lengths.push_back(seen[member][1].item<std::int64_t>());
  refuse_difference(group, gather_texts(communicator, group, text, lengths));
}

void broadcast_values(const comm::Communicator& communicator, comm::Group group, const std::vector<at::Tensor>& tensors,
                      std::int64_t call_bytes) {
  constexpr std::int64_t kAlignment = 16;  // serves every dtype
  const at::NoGradGuard no_gradients;
  for (std::size_t begin = 0; begin < tensors.size();) {
    std::vector<std::int64_t> offsets;
    std::int64_t bytes = 0;
    std::size_t end = begin;
    for (; end < tensors.size(); ++end) {
      const auto own = static_cast<std::int64_t>(tensors[end].nbytes());
      if (end > begin && bytes + own > call_bytes) break;
      offsets.push_back(bytes);
      bytes += (own + kAlignment - 1) / kAlignment * kAlignment;
    }
    const auto packed = communicator.allocate(bytes, at::kByte);
    const auto part = [&](std::size_t i) {
      const auto length = static_cast<std::int64_t>(tensors[i].nbytes());
      return packed.narrow(0, offsets[i - begin], length).view(tensors[i].scalar_type()).view(tensors[i].sizes());
    };
    for (std::size_t i = begin; group.index() == 0 && i < end; ++i) part(i).copy_(tensors[i]);
    group.broadcast(packed, 0).wait();
    for (std::size_t i = begin; group.index() != 0 && i < end; ++i) tensors[i].copy_(part(i));
    begin = end;
  }
}

}  // namespace orthant
