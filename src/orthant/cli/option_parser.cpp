#include "orthant/cli/option_parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace orthant::cli {
namespace {

constexpr std::size_t kHelpColumnWidth = 34;

bool is_given_twice(const CLI::ParseError& error) {
  return error.get_name() == "ArgumentMismatch" &&
         std::string_view(error.what()).find("At Most 1") != std::string_view::npos;
}

}  // namespace

Option Option::required() {
  return Option(option_->required());
}

Option Option::group(const std::string& heading) {
  return Option(option_->group(heading));
}

Option Option::excludes(Option other) {
  return Option(option_->excludes(other.option_));
}

Option Option::delimiter(char separator) {
  return Option(option_->delimiter(separator));
}

Option Option::take_all() {
  return Option(option_->take_all());
}

template <typename Number>
Option Option::check(const NumberRange<Number>& range) {
  auto validator = CLI::Range(range.least, range.most);
  return Option(option_->check(validator.description("")));  // help says what a number is for, errors the range
}

template Option Option::check(const NumberRange<int>&);
template Option Option::check(const NumberRange<std::int64_t>&);
template Option Option::check(const NumberRange<double>&);

Option Option::check(const std::function<std::string(const std::string& word)>& find_fault) {
  return Option(option_->check(find_fault));
}

std::string Option::get_name() const {
  return option_->get_name();
}

std::vector<std::string> Option::get_lnames() const {
  return option_->get_lnames();
}

std::size_t Option::count() const {
  return option_->count();
}

std::string Option::text() const {
  return option_->as<std::string>();
}

OptionParser::OptionParser(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->get_formatter()->column_width(kHelpColumnWidth);
}

OptionParser::~OptionParser() = default;

template <typename Value>
Option OptionParser::add_option(const std::string& name, Value& value, const std::string& description) {
  return Option(app_->add_option(name, value, description));
}

template Option OptionParser::add_option(const std::string&, int&, const std::string&);
template Option OptionParser::add_option(const std::string&, std::int64_t&, const std::string&);
template Option OptionParser::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option OptionParser::add_option(const std::string&, double&, const std::string&);
template Option OptionParser::add_option(const std::string&, std::string&, const std::string&);
template Option OptionParser::add_option(const std::string&, std::filesystem::path&, const std::string&);
template Option OptionParser::add_option(const std::string&, std::optional<int>&, const std::string&);
template Option OptionParser::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&);
template Option OptionParser::add_option(const std::string&, std::optional<double>&, const std::string&);
template Option OptionParser::add_option(const std::string&, std::vector<std::string>&, const std::string&);

Option OptionParser::add_flag(const std::string& name, bool& value, const std::string& description) {
  return Option(app_->add_flag(name, value, description));
}

void OptionParser::footer(const std::string& text) {
  app_->footer(text);
}

bool OptionParser::parse(const std::vector<std::string>& words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ParseError& error) {
    throw ParseError(error.what(), is_given_twice(error));
  }
  return true;
}

std::vector<std::string> OptionParser::remaining() const {
  return app_->remaining(true);
}

std::size_t OptionParser::count(const std::string& name) const {
  return app_->count(name);
}

Option OptionParser::operator[](const std::string& name) const {
  return Option(app_->get_option(name));
}

std::vector<Option> OptionParser::get_options() const {
  std::vector<Option> options;
  for (CLI::Option* option : app_->get_options()) options.emplace_back(option);
  return options;
}

std::string OptionParser::get_name() const {
  return app_->get_name();
}

std::string OptionParser::help() const {
  return app_->help();
}

}  // namespace orthant::cli
