// What travels over HTTP/1.1: a request as the server hands it on, and the head of an answer.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;
  std::string path;  // without the query
  std::string query;
  Headers headers;  // names in lower case, each once; white space around values is gone
  std::string body;
  bool keep_alive = true;

  // Null where there is none.
  const std::string* header(std::string_view name) const;
};

struct Answer {
  int status = 200;
  Headers headers = {};  // besides length, date and connection
  std::string body = {};
};

// "Not Found"
std::string_view reason_of(int status);

// The status line and headers of an answer, up to the empty line. `length` below 0: the body comes in chunks.
std::string head_of(const Answer& answer, long long length, bool keep_alive);

// A part of such a body; an empty one ends it.
std::string chunk_of(std::string_view part);

}  // namespace orthant::http
