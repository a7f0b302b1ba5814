// What travels between the process that serves and the rank that generates: frames on a stream socket. Both are this
// program; a frame that cannot be read is a defect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "orthant/serve/generator.h"

namespace orthant {

enum class FrameKind : std::uint8_t {
  hello,     // rank: most_tokens, vocabulary
  load,      // rank: GeneratorLoad
  submit,    // server: a request
  cancel,    // server
  stop,      // server: answer nothing any more, and end
  token,     // rank
  finished,  // rank
};

struct LinkFrame {
  FrameKind kind = FrameKind::hello;
  std::uint64_t id = 0;  // of the request
  std::string payload = {};
};

// With its length in front.
std::string frame_bytes(const LinkFrame& frame);

// Takes bytes as they come. InternalError for a length that no frame has.
class FrameReader {
 public:
  void feed(std::string_view bytes) { buffer_ += bytes; }
  std::optional<LinkFrame> next();

 private:
  std::string buffer_;
  std::size_t at_ = 0;
};

struct Hello {
  std::int64_t most_tokens = 0;
  std::int64_t vocabulary = 0;
};

struct Finish {
  FinishReason reason = FinishReason::stop;
  std::string error;
};

// InternalError for a payload that is not of the kind.
LinkFrame hello_frame(const Hello& hello);
Hello read_hello(const LinkFrame& frame);
LinkFrame load_frame(const GeneratorLoad& load);
GeneratorLoad read_load(const LinkFrame& frame);
LinkFrame submit_frame(const GenerationRequest& request);
GenerationRequest read_submit(const LinkFrame& frame);
LinkFrame token_frame(std::uint64_t id, const GeneratedToken& token);
GeneratedToken read_token(const LinkFrame& frame);
LinkFrame finished_frame(std::uint64_t id, const Finish& finish);
Finish read_finished(const LinkFrame& frame);

}  // namespace orthant
