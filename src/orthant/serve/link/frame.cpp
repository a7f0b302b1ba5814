#include "orthant/serve/link/frame.h"

#include <cstring>
#include <type_traits>
#include <vector>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::size_t kHeadBytes = 4 + 1 + 8;
constexpr std::uint32_t kLongestFrame = std::uint32_t{1} << 28;

class FrameWriter {
 public:
  template <class T>
  FrameWriter& add(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  FrameWriter& add_text(std::string_view text) {
    add(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  FrameWriter& add_list(const std::vector<std::int64_t>& values) {
    add(static_cast<std::uint32_t>(values.size()));
    for (const auto value : values) add(value);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, part(sizeof value).data(), sizeof value);
    return value;
  }
  std::string take_text() {
    const auto size = take<std::uint32_t>();
    return std::string(part(size));
  }
  std::vector<std::int64_t> take_list() {
    const auto size = take<std::uint32_t>();
    if (size > bytes_.size() / sizeof(std::int64_t)) throw InternalError("a frame is shorter than it says");
    std::vector<std::int64_t> values(size);
    for (auto& value : values) value = take<std::int64_t>();
    return values;
  }
  void finish() const {
    if (!bytes_.empty()) throw InternalError("a frame is longer than it says");
  }

 private:
  std::string_view part(std::size_t size) {
    if (size > bytes_.size()) throw InternalError("a frame is shorter than it says");
    const auto taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view bytes_;
};

}  // namespace

std::string frame_bytes(const LinkFrame& frame) {
  FrameWriter writer;
  writer.add(static_cast<std::uint32_t>(frame.payload.size())).add(frame.kind).add(frame.id);
  return writer.take() + frame.payload;
}

std::optional<LinkFrame> FrameReader::next() {
  const auto rest = std::string_view(buffer_).substr(at_);
  if (rest.size() >= kHeadBytes) {
    PayloadReader head(rest.substr(0, kHeadBytes));
    const auto size = head.take<std::uint32_t>();
    if (size > kLongestFrame) throw InternalError("a frame is longer than any");
    if (rest.size() >= kHeadBytes + size) {
      LinkFrame frame;
      frame.kind = head.take<FrameKind>();
      frame.id = head.take<std::uint64_t>();
      frame.payload = std::string(rest.substr(kHeadBytes, size));
      at_ += kHeadBytes + size;
      return frame;
    }
  }
  buffer_.erase(0, at_);
  at_ = 0;
  return std::nullopt;
}

LinkFrame hello_frame(const Hello& hello) {
  return {FrameKind::hello, 0, FrameWriter().add(hello.most_tokens).add(hello.vocabulary).take()};
}

Hello read_hello(const LinkFrame& frame) {
  PayloadReader reader(frame.payload);
  Hello hello;
  hello.most_tokens = reader.take<std::int64_t>();
  hello.vocabulary = reader.take<std::int64_t>();
  reader.finish();
  return hello;
}

LinkFrame load_frame(const GeneratorLoad& load) {
  FrameWriter writer;
  writer.add(load);
  return {FrameKind::load, 0, writer.take()};
}

GeneratorLoad read_load(const LinkFrame& frame) {
  PayloadReader reader(frame.payload);
  const auto load = reader.take<GeneratorLoad>();
  reader.finish();
  return load;
}

LinkFrame submit_frame(const GenerationRequest& request) {
  const auto& sampling = request.sampling;
  FrameWriter writer;
  writer.add(sampling.temperature).add(sampling.top_k).add(sampling.top_p).add(sampling.min_p);
  writer.add(sampling.repetition_penalty).add(sampling.max_tokens).add(sampling.seed).add(sampling.logprobs);
  writer.add_list(sampling.stop_tokens).add(sampling.ignore_end).add_list(request.prompt);
  return {FrameKind::submit, request.id, writer.take()};
}

GenerationRequest read_submit(const LinkFrame& frame) {
  PayloadReader reader(frame.payload);
  GenerationRequest request;
  request.id = frame.id;
  auto& sampling = request.sampling;
  sampling.temperature = reader.take<double>();
  sampling.top_k = reader.take<int>();
  sampling.top_p = reader.take<double>();
  sampling.min_p = reader.take<double>();
  sampling.repetition_penalty = reader.take<double>();
  sampling.max_tokens = reader.take<std::int64_t>();
  sampling.seed = reader.take<std::uint64_t>();
  sampling.logprobs = reader.take<int>();
  sampling.stop_tokens = reader.take_list();
  sampling.ignore_end = reader.take<bool>();
  request.prompt = reader.take_list();
  reader.finish();
  return request;
}

LinkFrame token_frame(std::uint64_t id, const GeneratedToken& token) {
  FrameWriter writer;
  writer.add(token.token).add(token.logprob).add(static_cast<std::uint32_t>(token.most.size()));
  for (const auto& one : token.most) writer.add(one.token).add(one.logprob);
  return {FrameKind::token, id, writer.take()};
}

GeneratedToken read_token(const LinkFrame& frame) {
  PayloadReader reader(frame.payload);
  GeneratedToken token;
  token.token = reader.take<std::int64_t>();
  token.logprob = reader.take<double>();
  for (auto left = reader.take<std::uint32_t>(); left > 0; --left) {
    const auto id = reader.take<std::int64_t>();
    token.most.push_back({id, reader.take<double>()});
  }
  reader.finish();
  return token;
}

LinkFrame finished_frame(std::uint64_t id, const Finish& finish) {
  return {FrameKind::finished, id, FrameWriter().add(finish.reason).add_text(finish.error).take()};
}

Finish read_finished(const LinkFrame& frame) {
  PayloadReader reader(frame.payload);
  Finish finish;
  finish.reason = reader.take<FinishReason>();
  finish.error = reader.take_text();
  reader.finish();
  return finish;
}

}  // namespace orthant
