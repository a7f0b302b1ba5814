#include "cuda/emulated_card/translate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <vector>

namespace emulated_card {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

// The place behind the string or character literal that begins at `at`.
std::size_t behind_literal(std::string_view text, std::size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

// The parts of a text between `separator`s outside of brackets and literals.
std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = behind_literal(text, at);
      continue;
    }
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == separator && depth == 0) {
      parts.push_back(trimmed(text.substr(begin, at - begin)));
      begin = at + 1;
    }
    ++at;
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

class Translator {
 public:
  explicit Translator(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (at_line_begin() && text_.substr(at_).starts_with("#pragma unroll")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_[at_] == '"' || text_[at_] == '\'') {
        copy_to(behind_literal(text_, at_));
      } else if (is_word(text_[at_])) {
        take_word();
      } else {
        copy_to(at_ + 1);
      }
    }
    return out_ + launchers_;
  }

 private:
  bool at_line_begin() const { return at_ == 0 || text_[at_ - 1] == '\n'; }
  void copy_to(std::size_t end) {
    out_ += text_.substr(at_, end - at_);
    at_ = end;
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  std::string word() {
    skip_space();
    const auto begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  // Between the bracket that comes next and its partner.
  std::string bracketed() {
    skip_space();
    const auto begin = ++at_;
    for (int depth = 1; at_ < text_.size(); ++at_) {
      while (text_[at_] == '"' || text_[at_] == '\'') at_ = behind_literal(text_, at_);
      if (text_[at_] == '(') ++depth;
      if (text_[at_] == ')' && --depth == 0) break;
    }
    return std::string(text_.substr(begin, at_++ - begin));
  }

  void take_word() {
    const auto begin = at_;
    const std::string name = word();
    if (name == "asm") {
      take_assembly();
    } else if (name == "__global__") {
      take_kernel();
    } else if (name == "__shared__") {
      take_shared(/*dynamic=*/false);
    } else if (const auto behind = at_; name == "extern" && word() == "__shared__") {
      take_shared(/*dynamic=*/true);
    } else {
      at_ = begin;
      copy_to(behind);
    }
  }

  void take_assembly() {
    skip_space();
    if (text_.substr(at_).starts_with("volatile")) word();
    const std::string body = bracketed();
    const auto sections = parts_of(body, ':');
    std::vector<std::string> operands;
    for (std::size_t s = 1; s < sections.size(); ++s) {
      for (const auto& operand : parts_of(sections[s], ',')) {
        if (!operand.empty()) operands.push_back(operand.substr(behind_literal(operand, 0)));
      }
    }
    out_ += "(";
    for (const auto& instruction : parts_of(instructions_of(sections[0]), ';')) {
      if (!instruction.empty()) out_ += call_of(instruction, operands) + ", ";
    }
    out_ += "(void)0)";
  }

  // The contents of literals side by side.
  static std::string instructions_of(const std::string& literals) {
    std::string all;
    for (std::size_t at = 0; at < literals.size(); ++at) {
      if (literals[at] != '"') continue;
      const auto end = behind_literal(literals, at);
      all += literals.substr(at + 1, end - at - 2);
      at = end - 1;
    }
    return all;
  }

  // "ldmatrix.x4 {%0, %1}, [%2]" becomes ptx_ldmatrix_x4(operand 0, operand 1, operand 2).
  std::string call_of(const std::string& instruction, const std::vector<std::string>& operands) const {
    const auto end = std::min(instruction.find(' '), instruction.size());
    std::string name = "ptx_" + instruction.substr(0, end);
    std::ranges::replace(name, '.', '_');
    std::ranges::replace(name, ':', '_');
    if (text_.find(name + "(") == std::string_view::npos) {
      throw std::runtime_error(fmt::format(
          "the emulated card has no instruction \"{}\": tests/cuda/emulated_card/device.h needs a function {}",
          instruction, name));
    }
    std::string arguments = instruction.substr(end);
    std::erase_if(arguments, [](char c) { return c == '{' || c == '}' || c == '[' || c == ']'; });
    std::string call;
    for (const auto& argument : parts_of(arguments, ',')) {
      if (argument.empty()) continue;
      const auto value = argument[0] == '%' ? operands.at(std::stoul(argument.substr(1))) : argument;
      call += (call.empty() ? "" : ", ") + value;
    }
    return fmt::format("{}({})", name, call);
  }

  void take_kernel() {
    std::string most = "1024", name;
    do {
      name = word();
      if (name == "__launch_bounds__") most = parts_of(bracketed(), ',')[0];
      if (name.empty()) throw std::runtime_error("a __global__ function without a name");
      skip_space();
      if (text_[at_] != '(' && name != "__launch_bounds__") out_ += name + " ";
    } while (text_[at_] != '(' || name == "__launch_bounds__");
    out_ += name;
    const std::string visible = "\nextern \"C\" __attribute__((visibility(\"default\"))) ";
    launchers_ += visible + fmt::format("void emulated_run_{0}(void** a) {{ emulated_card::call({0}, a); }}", name);
    launchers_ += visible + fmt::format("unsigned emulated_most_threads_{}() {{ return {}; }}\n", name, most);
  }

  void take_shared(bool dynamic) {
    const auto end = std::min(text_.find(';', at_), text_.size());
    if (const auto attribute = text_.find("__attribute__", at_); attribute < end) {
      at_ = attribute;
      word();
      bracketed();
    }
    const std::string declaration = trimmed(text_.substr(at_, end - at_));
    const auto name_end = std::min(declaration.find('['), declaration.size());
    auto name_begin = name_end;
    while (name_begin > 0 && is_word(declaration[name_begin - 1])) --name_begin;
    const auto type = declaration.substr(0, name_begin), name = declaration.substr(name_begin, name_end - name_begin);
    if (dynamic) {
      out_ += fmt::format("{0}* const {1} = reinterpret_cast<{0}*>(emulated_dynamic_shared())", type, name);
    } else {
      out_ += fmt::format("auto& {} = emulated_card::static_shared<{}{}, {}>()", name, type,
                          declaration.substr(name_end), ++sites_);
    }
    at_ = end;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_, launchers_;
  int sites_ = 0;
};

}  // namespace

Translation translate(std::string_view preprocessed) {
  try {
    return {Translator(preprocessed).run(), {}};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

}  // namespace emulated_card
