// An NVRTC that compiles kernels for the emulated card: with this project's compiler, as C++ for the host.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "cuda/emulated_card/translate.h"

namespace {

// ORTHANT_EMULATED_COMPILER, ORTHANT_EMULATED_FLAGS and ORTHANT_EMULATED_HEADERS are CMake's.
constexpr int kCompilationFailed = 6;

struct Program {
  std::string source;
  std::string log;
  std::string code;
};

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "emulated_card_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::filesystem::filesystem_error("no folder " + pattern, {});
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// With instructions of this machine that conversions and fused sums take.
std::string flags() {
  std::string all = ORTHANT_EMULATED_FLAGS;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    all += " -mavx2 -mfma -mf16c";
  }
#endif
  return all;
}

// The compiler's words are left in the program's log.
bool compiles(Program& program, const Folder& folder, const std::string& arguments) {
  const std::string log = folder.file("log");
  const std::string command =
      fmt::format("{} {} -I{} {} 2> {}", ORTHANT_EMULATED_COMPILER, flags(), ORTHANT_EMULATED_HEADERS, arguments, log);
  const int status = std::system(command.c_str());
  program.log = contents(log);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int compile(Program& program, const std::string& macros) {
  const Folder folder;
  std::ofstream(folder.file("source.cpp")) << "#include \"device.h\"\n#line 1 \"prelude.cu\"\n" << program.source;
  if (!compiles(program, folder,
                fmt::format("{} -E {} -o {}", macros, folder.file("source.cpp"), folder.file("whole")))) {
    return kCompilationFailed;
  }
  const auto translation = emulated_card::translate(contents(folder.file("whole")));
  if (!translation.problem.empty()) {
    program.log = translation.problem;
    return kCompilationFailed;
  }
  std::ofstream(folder.file("host.ii")) << translation.text;
  if (!compiles(program, folder, fmt::format("-shared {} -o {} -lm", folder.file("host.ii"), folder.file("code.so")))) {
    return kCompilationFailed;
  }
  const std::string code = contents(folder.file("code.so"));
  const std::uint64_t bytes = code.size();
  program.code.assign(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  program.code += code;
  return 0;
}

}  // namespace

extern "C" {

// Code is kept on disk by version: what else goes into it is part of the number.
int nvrtcVersion(int* major, int* minor) {
  const std::string headers = ORTHANT_EMULATED_HEADERS;
  const auto hash = std::hash<std::string>{}(contents(headers + "/device.h") + contents(headers + "/card.h") +
                                             ORTHANT_EMULATED_COMPILER + flags());
  *major = 0;
  *minor = static_cast<int>(hash & 0x7fffffffU);
  return 0;
}
int nvrtcCreateProgram(void** program, const char* source, const char* /*name*/, int /*headers*/,
                       const char* const* /*texts*/, const char* const* /*names*/) {
  *program = new Program{source, {}, {}};
  return 0;
}
int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  std::string macros;
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(options[i], "-D", 2) == 0) macros += std::string(options[i]) + " ";
  }
  return compile(*static_cast<Program*>(program), macros);
}
int nvrtcGetProgramLogSize(void* program, std::size_t* bytes) {
  *bytes = static_cast<Program*>(program)->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, static_cast<Program*>(program)->log.c_str());
  return 0;
}
int nvrtcGetCUBINSize(void* program, std::size_t* bytes) {
  *bytes = static_cast<Program*>(program)->code.size();
  return 0;
}
int nvrtcGetCUBIN(void* program, char* code) {
  const auto& made = static_cast<Program*>(program)->code;
  std::memcpy(code, made.data(), made.size());
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
}
