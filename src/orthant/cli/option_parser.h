// What a command accepts on its command line: options and where their values go, help, and parsing. It is the part of
// CLI11 that commands use, under CLI11's names. Only option_parser.cpp includes CLI11, which is all inline code and
// takes seconds in each file that sees it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace orthant::cli {

// Both ends belong to it.
template <typename Number>
struct NumberRange {
  NumberRange(Number least_number, Number most_number) : least(least_number), most(most_number) {}

  Number least;
  Number most;
};

// One option of an OptionParser, which owns it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  Option group(const std::string& heading);
  Option excludes(Option other);
  Option delimiter(char separator);
  Option take_all();  // may be given several times
  // Defined in option_parser.cpp for the numbers in use; another one needs its line there.
  template <typename Number>
  Option check(const NumberRange<Number>& range);
  // `find_fault` returns what is wrong with a word, nothing when it is good.
  Option check(const std::function<std::string(const std::string& word)>& find_fault);

  std::string get_name() const;                 // "--some-flag"
  std::vector<std::string> get_lnames() const;  // all its long names, without dashes
  std::size_t count() const;                    // of words that were given to it
  std::string text() const;                     // of the one word that was given to it

 private:
  CLI::Option* option_;
};

// A command line that does not fit the options; the text is CLI11's.
class ParseError : public std::runtime_error {
 public:
  ParseError(const std::string& text, bool given_twice) : std::runtime_error(text), given_twice_(given_twice) {}

  bool given_twice() const { return given_twice_; }  // an option that may be given once

 private:
  bool given_twice_;
};

class OptionParser {
 public:
  OptionParser(const std::string& description, const std::string& name);
  ~OptionParser();

  // Borrows `value` until parse() has returned. Defined in option_parser.cpp for the types in use; another one needs
  // its line there.
  template <typename Value>
  Option add_option(const std::string& name, Value& value, const std::string& description);
  Option add_flag(const std::string& name, bool& value, const std::string& description);
  void footer(const std::string& text);  // below the options in help()

  // False when `--help` was among the words. ParseError.
  bool parse(const std::vector<std::string>& words);
  std::vector<std::string> remaining() const;  // words that parse() had no use for

  std::size_t count(const std::string& name) const;
  Option operator[](const std::string& name) const;
  std::vector<Option> get_options() const;  // `--help` included
  std::string get_name() const;
  std::string help() const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace orthant::cli
