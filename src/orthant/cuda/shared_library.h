// A library opened at run time, and functions of it by name: what lets one program run with and without a card. Local.
#pragma once

#include <string>
#include <vector>

namespace orthant::cuda {

class SharedLibrary {
 public:
  // The first of `names` that opens; it stays open until the process ends. ConfigError, with what each attempt said,
  // when none does.
  explicit SharedLibrary(const std::vector<std::string>& names);

  // Sets `function` to the symbol of that name. ConfigError when the library and those it needs have none.
  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(symbol(name));
  }

  const std::string& name() const { return name_; }

 private:
  void* symbol(const char* name) const;

  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace orthant::cuda
