#include "orthant/parallel/pipeline/stage_links.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "orthant/base/error.h"
#include "orthant/launch/activity_board.h"

namespace orthant {
namespace {

// Runs of a list that may start kernels for the first time: its first one, and the one behind which products have
// measured plans.
constexpr int kColdRuns = 2;
constexpr std::size_t kMostLists = 4096;  // whose runs are counted
constexpr std::int64_t kMostDims = 8;
constexpr std::int64_t kHeaderSize = 2 + 2 * kMostDims;  // dims or -1, dtype, sizes, strides

// Booleans travel as bytes.
at::Tensor as_sent(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool ? tensor.view(at::kByte) : tensor;
}

at::Tensor header_of(const at::Tensor& tensor) {
  auto header = at::zeros({kHeaderSize}, at::kLong);
  auto* numbers = header.mutable_data_ptr<std::int64_t>();
  numbers[0] = tensor.defined() ? tensor.dim() : -1;
  if (!tensor.defined()) return header;
  if (tensor.dim() > kMostDims) {
    throw ConfigError(
        fmt::format("a value of {} dims crosses stages; {} are the most that can", tensor.dim(), kMostDims),
        {.remedy = "flatten it, or put its writer and readers into one stage"});
  }
  numbers[1] = static_cast<std::int64_t>(tensor.scalar_type());
  std::ranges::copy(tensor.sizes(), numbers + 2);
  std::ranges::copy(tensor.strides(), numbers + 2 + kMostDims);
  return header;
}

// Uninitialised, as the header describes it; undefined when there is none.
at::Tensor described_by(const at::Tensor& header, at::Device device) {
  const auto on_host = header.cpu();
  const auto* numbers = on_host.const_data_ptr<std::int64_t>();
  if (numbers[0] < 0) return {};
  const auto dims = static_cast<std::size_t>(numbers[0]);
  const auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(numbers[1])).device(device);
  return at::empty_strided({numbers + 2, dims}, {numbers + 2 + kMostDims, dims}, options);
}

// The elements in memory order, as one dim.
at::Tensor in_memory_order(const at::Tensor& dense) {
  return as_sent(dense.is_contiguous() ? dense.view({-1}) : dense.as_strided({dense.numel()}, {1}));
}

// A failure of communication, with what this rank was about.
template <typename Text, typename Act>
auto said_of(const Text& text, const Act& act) {
  try {
    return act();
  } catch (const CommError& error) {
    throw CommError(fmt::format("{}: {}", text(), error.message()), {.remedy = error.remedy()}, error.where());
  }
}

}  // namespace

StageLinks::StageLinks(const GraphSpec& graph, LinkGroups groups, StageMap map, const std::vector<Channel>& channels,
                       at::Device device)
    : graph_(graph), groups_(std::move(groups)), map_(std::move(map)), device_(device) {
  for (const auto& channel : channels) group_of(channel).connect({{channel.from, channel.to}});
}

StageLinks::~StageLinks() {
  if (in_list_) return;
  try {
    finish();
  } catch (const std::exception&) {
    // A peer is gone; whoever calls it next is told.
  }
}

void StageLinks::begin(const std::vector<Action>& actions, FormOf form_of, std::int64_t step) {
  form_of_ = std::move(form_of);
  step_ = step;
  in_list_ = true;
  ++list_;
  for (auto& [channel, queue] : sent_) {
    for (; !queue.empty() && queue.front().list + 1 < list_; queue.pop_front()) wait_for(queue.front(), channel);
  }
  incoming_.clear();
  for (const auto& action : actions) {
    if (action.kind != ActionKind::receive && action.kind != ActionKind::receive_gradient) continue;
    incoming_[channel_of(action, own())].actions.push_back(action);
  }
  ahead_ = num_ahead();
  for (auto& [channel, incoming] : incoming_) post(channel, incoming, ahead_);
}

std::size_t StageLinks::num_ahead() {
  if (!device_.is_cuda()) return kPostedAhead;
  std::vector<std::int64_t> list;
  for (const auto& [channel, incoming] : incoming_) {
    for (const auto& action : incoming.actions) {
      list.insert(list.end(), {action.value, action.consumer, action.microbatch});
      if (is_opaque(action)) continue;
      const auto sizes = form_of_(action).sizes;
      list.insert(list.end(), sizes.begin(), sizes.end());
    }
  }
  if (runs_.size() == kMostLists && !runs_.contains(list)) return 0;
  int& runs = runs_[list];
  if (runs == kColdRuns) return kPostedAhead;
  ++runs;
  return 0;
}

void StageLinks::post(const Channel& channel, Incoming& incoming, std::size_t count) {
  while (incoming.posted.size() < count && incoming.to_post < incoming.actions.size()) {
    const auto& action = incoming.actions[incoming.to_post];
    Posted posted;
    if (is_opaque(action)) {
      // What follows a header has its size: nothing can be posted behind it.
      if (!incoming.posted.empty()) return;
      posted.header = at::empty({kHeaderSize}, at::TensorOptions().dtype(at::kLong).device(device_));
      posted.work = start_receive(action, posted.header);
    } else {
      const auto form = form_of_(action);
      posted.buffer = at::empty(form.sizes, at::TensorOptions().dtype(form.dtype).device(device_));
      posted.work = start_receive(action, as_sent(posted.buffer));
    }
    ++incoming.to_post;
    incoming.posted.push_back(std::move(posted));
    if (is_opaque(action)) return;
  }
}

// Of a declared value: what it must be.
at::Tensor StageLinks::sendable(const Action& action, const at::Tensor& tensor) const {
  const auto form = form_of_(action);
  if (!tensor.defined() && action.kind == ActionKind::send_gradient) {
    return at::zeros(form.sizes, at::TensorOptions().dtype(form.dtype).device(device_));
  }
  if (!tensor.defined() || tensor.sizes() != form.sizes || tensor.scalar_type() != form.dtype) {
    throw InternalError(fmt::format("{}: it is {} and not {}", to_string(action, graph_),
                                    tensor.defined() ? c10::str(tensor.scalar_type(), " ", tensor.sizes()) : "missing",
                                    c10::str(form.dtype, " ", at::IntArrayRef(form.sizes))));
  }
  return tensor.contiguous();
}

void StageLinks::send(const Action& action, const at::Tensor& tensor) {
  drop_sent();
  const auto channel = channel_of(action, own());
  auto& group = group_of(channel);
  Sent sent{.message = message_of(action), .tensors = {}, .works = {}, .list = list_};
  const auto start = [&](const at::Tensor& part) {
    sent.tensors.push_back(part);
    sent.works.push_back(said_of([&] { return sending_text(channel, action.microbatch); },
                                 [&] { return group.send(part, channel.to); }));
  };
  if (is_opaque(action)) {
    const auto dense = tensor.defined() && !tensor.is_non_overlapping_and_dense() ? tensor.contiguous() : tensor;
    start(header_of(dense).to(device_));
    if (dense.defined()) start(in_memory_order(dense));
  } else {
    start(as_sent(sendable(action, tensor)));
  }
  sent_[channel].push_back(std::move(sent));
}

comm::Work StageLinks::start_receive(const Action& action, const at::Tensor& buffer) {
  const auto channel = channel_of(action, own());
  return said_of([&] { return fmt::format("rank {} {}", rank_at(own()), waiting_text(action)); },
                 [&] { return group_of(channel).receive(buffer, channel.from); });
}

at::Tensor StageLinks::take_opaque(const Action& action, Posted& posted) {
  posted.work.wait();
  const auto buffer = described_by(posted.header, device_);
  if (!buffer.defined()) return buffer;
  const auto channel = channel_of(action, own());
  group_of(channel).receive(in_memory_order(buffer), channel.from).wait();
  return buffer;
}

at::Tensor StageLinks::receive(const Action& action) {
  drop_sent();
  const auto channel = channel_of(action, own());
  auto& incoming = incoming_[channel];
  if (incoming.next >= incoming.actions.size() || incoming.actions[incoming.next] != action) {
    throw InternalError(fmt::format("{}: not the next of its channel", to_string(action, graph_)));
  }
  if (incoming.posted.empty()) post(channel, incoming, 1);
  auto posted = std::move(incoming.posted.front());
  incoming.posted.pop_front();
  ++incoming.next;
  // What follows an opaque value comes after its content.
  if (!is_opaque(action)) post(channel, incoming, ahead_);
  if (!posted.work.done()) {
    launch::Activity::of_process().say({launch::ActivityMoment::Kind::step, step_}, waiting_text(action));
  }
  said_of([&] { return fmt::format("rank {} {}", rank_at(own()), waiting_text(action)); },
          [&] {
            if (is_opaque(action)) {
              posted.buffer = take_opaque(action, posted);
              post(channel, incoming, ahead_);
            } else {
              posted.work.wait();
            }
          });
  if (action.kind == ActionKind::receive_gradient) drop_answered(action);
  return posted.buffer;
}

void StageLinks::wait_for(Sent& sent, const Channel& channel) const {
  said_of([&] { return sending_text(channel, sent.message.microbatch); },
          [&] {
            for (auto& work : sent.works) work.wait();
          });
}

void StageLinks::drop_sent() {
  for (auto& [channel, queue] : sent_) {
    while (!queue.empty() && std::ranges::all_of(queue.front().works, &comm::Work::done)) {
      wait_for(queue.front(), channel);
      queue.pop_front();
    }
  }
}

// A gradient proves that its value has arrived, and all that was sent before it on that channel.
void StageLinks::drop_answered(const Action& received) {
  const Channel channel{.from = own(), .to = received.peer, .gradients = false};
  auto& queue = sent_[channel];
  const auto proven = std::ranges::find_if(queue, [&](const Sent& sent) {
    return sent.message.value == received.value && sent.message.microbatch == received.microbatch;
  });
  if (proven == queue.end()) return;
  for (auto sent = queue.begin(); sent != proven + 1; ++sent) wait_for(*sent, channel);
  queue.erase(queue.begin(), proven + 1);
}

void StageLinks::finish() {
  for (auto& [channel, queue] : sent_) {
    for (auto& sent : queue) wait_for(sent, channel);
    queue.clear();
  }
}

std::size_t StageLinks::num_unsent() const {
  std::size_t count = 0;
  for (const auto& [channel, queue] : sent_) count += queue.size();
  return count;
}

// The stage that waits: the one that wrote the value, or the first here that reads it.
int StageLinks::stage_of(const Action& received) const {
  const auto& name = graph_.values[static_cast<std::size_t>(received.value)].name;
  const auto units =
      received.kind == ActionKind::receive ? graph_.consumers(name) : std::vector<int>{graph_.producer(name)};
  for (int s = 0; s < map_.num_stages(); ++s) {
    const auto place = static_cast<std::size_t>(s);
    if (map_.pp_coordinates[place] != own()) continue;
    const auto& own = map_.units[place];
    if (std::ranges::any_of(units, [&](int u) { return std::ranges::find(own, u) != own.end(); })) return s;
  }
  throw InternalError(fmt::format("{}: no stage here waits for it", to_string(received, graph_)));
}

std::string StageLinks::sending_text(const Channel& channel, int microbatch) const {
  return fmt::format("rank {}: sending {} of microbatch {} to rank {}", rank_at(own()),
                     channel.gradients ? "gradients" : "activations", microbatch, rank_at(channel.to));
}

std::string StageLinks::waiting_text(const Action& action) const {
  const bool gradient = action.kind == ActionKind::receive_gradient;
  return fmt::format("stage {}: waiting for {} of microbatch {} from rank {}", stage_of(action),
                     gradient ? "gradients" : "activations", action.microbatch, rank_at(action.peer));
}

}  // namespace orthant
