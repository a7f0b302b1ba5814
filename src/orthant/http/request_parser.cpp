#include "orthant/http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "orthant/base/printable.h"

namespace orthant::http {
namespace {

bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_token_character);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (auto& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text,
                             [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; });
}

template <int base>
bool parse_size(std::string_view text, std::size_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return !text.empty() && text[0] != '-' && text[0] != '+' && error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void RequestParser::refuse(int status, std::string message) {
  if (!refusal_) refusal_ = Refusal{status, std::move(message)};
}

std::size_t RequestParser::feed(std::string_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && !refusal_ && state_ != State::done) {
    begun_ = begun_ || bytes.find_first_not_of("\r\n", used) != std::string_view::npos;
    switch (state_) {
      case State::line:
        if (next_line(bytes, used, limits_.line_bytes, 414)) line();
        break;
      case State::headers:
        if (next_line(bytes, used, limits_.header_bytes, 431)) header();
        break;
      case State::chunk_size:
        if (next_line(bytes, used, 256, 400)) chunk_size();
        break;
      case State::chunk_end:
        if (next_line(bytes, used, 2, 400)) {
          if (!buffer_.empty()) refuse(400, "a chunk of the body is longer than it says");
          state_ = State::chunk_size;
        }
        break;
      case State::trailers:
        if (next_line(bytes, used, limits_.header_bytes, 431)) {
          header_bytes_ += buffer_.size();
          if (header_bytes_ > limits_.header_bytes) refuse(431, "the trailers are too long");
          if (buffer_.empty()) state_ = State::done;
        }
        break;
      case State::sized_body:
      case State::chunk:
        used += take_body(bytes.substr(used));
        break;
      case State::done:
        break;
    }
  }
  return used;
}

// Lines end with CR LF, and nothing else may hold either of them.
bool RequestParser::next_line(std::string_view bytes, std::size_t& used, std::size_t limit, int status) {
  if (line_done_) {
    buffer_.clear();
    line_done_ = false;
  }
  const auto end = bytes.find('\n', used);
  const auto part = bytes.substr(used, end == std::string_view::npos ? std::string_view::npos : end - used + 1);
  if (buffer_.size() + part.size() > limit + 2) {
    refuse(status, fmt::format("a line of the request has more than {} bytes", limit));
    return false;
  }
  buffer_ += part;
  used += part.size();
  if (end == std::string_view::npos) return false;
  line_done_ = true;
  if (!buffer_.ends_with("\r\n")) {
    refuse(400, "a line of the request does not end with CR LF: this server speaks plain HTTP/1.1");
    return false;
  }
  buffer_.resize(buffer_.size() - 2);
  if (has_control(buffer_)) {
    refuse(400, "a line of the request has a control character");
    return false;
  }
  return true;
}

void RequestParser::line() {
  if (buffer_.empty()) {
    if (++empty_lines_ > 4) refuse(400, "no request line");
    return;
  }
  begun_ = true;
  const auto first = buffer_.find(' ');
  const auto last = buffer_.rfind(' ');
  if (first == std::string::npos || first == last) return refuse(400, "the request line is no METHOD TARGET HTTP/1.1");
  request_.method = buffer_.substr(0, first);
  const auto version = std::string_view(buffer_).substr(last + 1);
  if (!is_token(request_.method)) return refuse(400, "the method is no name");
  if (version == "HTTP/1.0") {
    request_.keep_alive = false;
  } else if (version != "HTTP/1.1") {
    const bool other = version.size() == 8 && version.starts_with("HTTP/") && version[6] == '.';
    return refuse(other ? 505 : 400, "this server speaks HTTP/1.1");
  }
  take_target(buffer_.substr(first + 1, last - first - 1));
  state_ = State::headers;
}

void RequestParser::take_target(std::string target) {
  if (target.starts_with("http://")) {  // as a proxy is asked
    const auto path = target.find('/', 7);
    target = path == std::string::npos ? "/" : target.substr(path);
  }
  const bool whole_server = target == "*" && request_.method == "OPTIONS";
  if ((!target.starts_with('/') && !whole_server) || target.find(' ') != std::string::npos) {
    return refuse(400, "the target is no path");
  }
  const auto query = target.find('?');
  request_.path = target.substr(0, query);
  if (query != std::string::npos) request_.query = target.substr(query + 1);
}

void RequestParser::header() {
  header_bytes_ += buffer_.size() + 2;
  if (header_bytes_ > limits_.header_bytes) {
    return refuse(431, fmt::format("the headers have more than {} bytes", limits_.header_bytes));
  }
  if (buffer_.empty()) return finish_head();
  if (request_.headers.size() >= limits_.num_headers) {
    return refuse(431, fmt::format("more than {} headers", limits_.num_headers));
  }
  const auto colon = buffer_.find(':');
  if (colon == std::string::npos || !is_token(std::string_view(buffer_).substr(0, colon))) {
    return refuse(400, "a header is no NAME: VALUE");
  }
  auto name = lower_case(std::string_view(buffer_).substr(0, colon));
  std::string value(without_blanks(std::string_view(buffer_).substr(colon + 1)));
  for (auto& [known, other] : request_.headers) {
    if (known != name) continue;
    const bool single = name == "host" || name == "content-length" || name == "transfer-encoding" ||
                        name == "authorization" || name == "content-type" || name == "expect";
    if (single) return refuse(400, fmt::format("the header {} comes twice", printable(name)));
    other += ", " + value;
    return;
  }
  request_.headers.emplace_back(std::move(name), std::move(value));
}

void RequestParser::finish_head() {
  if (request_.keep_alive && !request_.header("host")) return refuse(400, "HTTP/1.1 asks for a header Host");
  if (const auto* connection = request_.header("connection")) {
    const auto words = lower_case(*connection);
    if (words.find("close") != std::string::npos) request_.keep_alive = false;
  }
  if (!take_body_length()) return;
  if (const auto* expect = request_.header("expect")) {
    if (lower_case(*expect) != "100-continue") return refuse(417, "the only expectation that is met is 100-continue");
    expects_ = state_ != State::done;
  }
}

// Where the body ends. Never two ways at once.
bool RequestParser::take_body_length() {
  const auto* encoding = request_.header("transfer-encoding");
  const auto* length = request_.header("content-length");
  if (encoding) {
    if (length) refuse(400, "Content-Length beside Transfer-Encoding");
    if (lower_case(*encoding) != "chunked") refuse(501, "the only transfer encoding that is read is chunked");
    state_ = State::chunk_size;
    return !refusal_;
  }
  state_ = State::done;
  if (!length) return true;
  if (!parse_size<10>(*length, left_)) {
    const bool digits = std::ranges::all_of(*length, [](char c) { return c >= '0' && c <= '9'; }) && !length->empty();
    refuse(digits ? 413 : 400, digits ? "the body is too long" : "Content-Length is no number");
    return false;
  }
  if (left_ > limits_.body_bytes) {
    refuse(413, fmt::format("the body has {} bytes, and at most {} are read", left_, limits_.body_bytes));
    return false;
  }
  if (left_ > 0) state_ = State::sized_body;
  return true;
}

void RequestParser::chunk_size() {
  const auto size = without_blanks(std::string_view(buffer_).substr(0, buffer_.find(';')));
  if (!parse_size<16>(size, left_)) return refuse(400, "a chunk of the body has no size");
  if (left_ > limits_.body_bytes - request_.body.size()) {
    return refuse(413, fmt::format("the body has more than {} bytes", limits_.body_bytes));
  }
  header_bytes_ = 0;
  state_ = left_ > 0 ? State::chunk : State::trailers;
}

std::size_t RequestParser::take_body(std::string_view bytes) {
  const auto count = std::min(left_, bytes.size());
  request_.body += bytes.substr(0, count);
  left_ -= count;
  if (left_ == 0) state_ = state_ == State::chunk ? State::chunk_end : State::done;
  return count;
}

bool RequestParser::take_expectation() {
  const bool waits = expects_ && !refusal_ && state_ != State::done && request_.body.empty();
  expects_ = false;
  return waits;
}

Request RequestParser::take() {
  auto request = std::move(request_);
  *this = RequestParser(limits_);
  return request;
}

}  // namespace orthant::http
