#include "orthant/http/request_parser.h"

#include <gtest/gtest.h>

namespace orthant {
namespace request_parser_test {

using http::RequestParser;

// Fed whole and byte by byte: both must see the same.
std::string outcome(const std::string& text, http::Limits limits = {}) {
  std::string outcomes[2];
  for (const std::size_t step : {text.size(), std::size_t{1}}) {
    RequestParser parser(limits);
    std::string rest = text;
    while (!rest.empty() && !parser.done() && !parser.refusal()) {
      const auto part = rest.substr(0, step);
      rest.erase(0, std::max<std::size_t>(parser.feed(part), parser.refusal() || parser.done() ? 0 : part.size()));
    }
    auto& out = outcomes[step == 1 ? 1 : 0];
    if (parser.refusal()) {
      out = std::to_string(parser.refusal()->status) + " " + parser.refusal()->message;
    } else if (!parser.done()) {
      out = parser.begun() ? "more" : "nothing yet";
    } else {
      const auto request = parser.take();
      out = request.method + " " + request.path + "?" + request.query + " " + request.body +
            (request.keep_alive ? " stays" : " goes") + " rest " + rest;
    }
  }
  EXPECT_EQ(outcomes[0], outcomes[1]) << text;
  return outcomes[0];
}

TEST(RequestParser, ReadsRequestsWhereverBytesAreCut) {
  EXPECT_EQ(outcome("GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"), "GET /a?b=c  stays rest ");
  EXPECT_EQ(outcome("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET"), "POST /? hello stays rest GET");
  EXPECT_EQ(outcome("\r\n\r\nGET / HTTP/1.0\r\n\r\n"), "GET /?  goes rest ");
  EXPECT_EQ(outcome("GET / HTTP/1.1\r\nhOsT:x\r\nConnection: Close\r\n\r\n"), "GET /?  goes rest ");
  EXPECT_EQ(outcome("GET http://host:1/p?q HTTP/1.1\r\nHost: x\r\n\r\n"), "GET /p?q  stays rest ");
  EXPECT_EQ(outcome("GET / HTTP/1.1\r\nHost: x\r\n"), "more");
  EXPECT_EQ(outcome("\r\n\r"), "nothing yet");
  EXPECT_EQ(outcome("\r\nGET"), "more");
}

TEST(RequestParser, ReadsBodiesInChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(outcome(head + "3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\nTrailer: t\r\n\r\nnext"),
            "POST /? abc0123456789abcdef stays rest next");
  EXPECT_EQ(outcome(head + "0\r\n\r\n"), "POST /?  stays rest ");
  EXPECT_EQ(outcome(head + "x\r\n"), "400 a chunk of the body has no size");
  EXPECT_EQ(outcome(head + "-1\r\n"), "400 a chunk of the body has no size");
  EXPECT_EQ(outcome(head + "1\r\nab\r\n"), "400 a chunk of the body is longer than it says");
  EXPECT_EQ(outcome(head + "fffffffffffffff0\r\n"), "413 the body has more than 8388608 bytes");
}

TEST(RequestParser, RefusesWhatTwoProgramsCouldReadDifferently) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\n";
  EXPECT_EQ(outcome(head + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "400 Content-Length beside Transfer-Encoding");
  EXPECT_EQ(outcome(head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            "400 the header content-length comes twice");
  EXPECT_EQ(outcome(head + "Content-Length: +1\r\n\r\n"), "400 Content-Length is no number");
  EXPECT_EQ(outcome(head + "Content-Length: 99999999999999999999999\r\n\r\n"), "413 the body is too long");
  EXPECT_EQ(outcome(head + "Transfer-Encoding: gzip, chunked\r\n\r\n"),
            "501 the only transfer encoding that is read is chunked");
  EXPECT_EQ(outcome(head + " folded: x\r\n\r\n"), "400 a header is no NAME: VALUE");
  EXPECT_EQ(outcome(head + "name : x\r\n\r\n"), "400 a header is no NAME: VALUE");
  EXPECT_EQ(outcome(head + "Host: y\r\n\r\n"), "400 the header host comes twice");
  EXPECT_EQ(outcome("GET / HTTP/1.1\nHost: x\n\n"),
            "400 a line of the request does not end with CR LF: this server speaks plain HTTP/1.1");
  EXPECT_EQ(outcome(head + std::string("a: b\0c\r\n\r\n", 10)), "400 a line of the request has a control character");
  EXPECT_EQ(outcome("GET / HTTP/1.1\r\n\r\n"), "400 HTTP/1.1 asks for a header Host");
  EXPECT_EQ(outcome("GET / HTTP/2.0\r\n\r\n"), "505 this server speaks HTTP/1.1");
  EXPECT_EQ(outcome("GET / FTP\r\n\r\n"), "400 this server speaks HTTP/1.1");
  EXPECT_EQ(outcome("GET /\r\n\r\n"), "400 the request line is no METHOD TARGET HTTP/1.1");
  EXPECT_EQ(outcome("GET a HTTP/1.1\r\n\r\n"), "400 the target is no path");
  EXPECT_EQ(outcome("G(T / HTTP/1.1\r\n\r\n"), "400 the method is no name");
  EXPECT_EQ(outcome("\r\n\r\n\r\n\r\n\r\n"), "400 no request line");
  EXPECT_EQ(outcome(head + "Expect: tea\r\nContent-Length: 1\r\n\r\n"),
            "417 the only expectation that is met is 100-continue");
}

TEST(RequestParser, BoundsEveryPart) {
  EXPECT_EQ(outcome("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n"),
            "414 a line of the request has more than 8192 bytes");
  EXPECT_EQ(outcome("GET / HTTP/1.1\r\nHost: " + std::string(40000, 'a') + "\r\n\r\n"),
            "431 a line of the request has more than 32768 bytes");
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 200; ++i) many += "h" + std::to_string(i) + ": x\r\n";
  EXPECT_EQ(outcome(many + "\r\n"), "431 more than 100 headers");
  EXPECT_EQ(outcome("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n", {.body_bytes = 10}),
            "413 the body has 11 bytes, and at most 10 are read");
}

TEST(RequestParser, TellsOnceWhenAClientWaitsToSend) {
  RequestParser parser({});
  parser.feed("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(parser.take_expectation());
  EXPECT_FALSE(parser.take_expectation());
  parser.feed("ab");
  EXPECT_TRUE(parser.done());
}

}  // namespace request_parser_test
}  // namespace orthant
