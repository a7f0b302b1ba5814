// orthant bench step|pipeline|comm|startup|checkpoint|tokenize|kernels|generate|load: our side of the tables.
#include "orthant/cli/bench.h"

namespace orthant::cli {
namespace {

const std::vector<Command> kBenchmarks = {
    {"step", "time and memory of a training step", run_bench_step},
    {"pipeline", "a schedule whose stages sleep, beside the simulator", run_bench_pipeline},
    {"comm", "times of every operation, 4 KiB to 64 MiB", run_bench_comm},
    {"startup", "seconds from process creation to the first finished all-reduce, and memory per rank",
     run_bench_startup},
    {"checkpoint", "seconds to save, to save in the background, and to load", run_bench_checkpoint},
    {"tokenize", "speed of a tokenizer on a text, one thread", run_bench_tokenize},
    {"kernels", "kernels of a CUDA device beside a plain copy", run_bench_kernels},
    {"generate", "time of prompts and of each further token, by how many texts run side by side", run_bench_generate},
    {"load", "seconds to load a model folder, beside reading its files once", run_bench_load},
};

}  // namespace

int run_bench(const Arguments& arguments, Context& context) {
  return run_sub_command("bench", kBenchmarks, "orthant bench comm --mesh dp=2 --json", arguments, context);
}

}  // namespace orthant::cli
