// Requests of HTTP/1.1 out of the bytes of a connection, as they come: strict where leniency would let two programs
// read one request differently, bounded in every part.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "orthant/http/message.h"

namespace orthant::http {

struct Limits {
  std::size_t line_bytes = 8192;     // of the request line
  std::size_t header_bytes = 32768;  // of all headers
  std::size_t num_headers = 100;
  std::size_t body_bytes = std::size_t{8} << 20;
};

// What is wrong with a request: the answer's status and a sentence for whoever wrote it.
struct Refusal {
  int status = 400;
  std::string message;
  std::string code = {};  // a word for programs; may be empty
};

class RequestParser {
 public:
  explicit RequestParser(Limits limits) : limits_(limits) {}

  // Takes bytes from the begin of `bytes` and answers how many: all, or those up to the end of the request. After a
  // refusal it takes none.
  std::size_t feed(std::string_view bytes);

  bool done() const { return state_ == State::done; }
  const std::optional<Refusal>& refusal() const { return refusal_; }
  // Whether any byte of a request has come that is not whole yet.
  bool begun() const { return begun_ && state_ != State::done; }
  bool reads_body() const { return state_ != State::line && state_ != State::headers; }
  // Whether the head is whole, and the client waits to be told to send the body. Told once.
  bool take_expectation();

  // The request, when done; the parser begins anew.
  Request take();

 private:
  enum class State { line, headers, sized_body, chunk_size, chunk, chunk_end, trailers, done };

  bool next_line(std::string_view bytes, std::size_t& used, std::size_t limit, int status);
  void line();
  void header();
  void finish_head();
  void take_target(std::string target);
  bool take_body_length();
  void chunk_size();
  void refuse(int status, std::string message);
  std::size_t take_body(std::string_view bytes);

  Limits limits_;
  State state_ = State::line;
  Request request_;
  std::string buffer_;      // of the line that is being read
  bool line_done_ = false;  // it was read: the next byte begins another
  std::size_t header_bytes_ = 0;
  std::size_t left_ = 0;  // of the body, or of the chunk
  int empty_lines_ = 0;   // before the request
  bool begun_ = false;
  bool expects_ = false;
  std::optional<Refusal> refusal_;
};

}  // namespace orthant::http
